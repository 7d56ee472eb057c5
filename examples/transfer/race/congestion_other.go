//go:build !linux

package race

import (
	"errors"
	"fmt"
)

// SetCongestion gives every TCP socket of this process the named congestion
// control. This system cannot: the error wraps errors.ErrUnsupported.
func SetCongestion(name string) (sockets int, err error) {
	return 0, fmt.Errorf("congestion control %s: %w on this system", name, errors.ErrUnsupported)
}

// DefaultCongestion returns the congestion control that this system gives new
// TCP sockets, "" if it does not tell.
func DefaultCongestion() string { return "" }
