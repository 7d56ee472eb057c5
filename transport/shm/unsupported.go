//go:build !linux

package shm

import (
	"errors"
	"fmt"
	"runtime"

	"pushpull/transport"
)

// Listen fails.
func (n *network) Listen(addr string, _ transport.Service) (transport.Listener, error) {
	return nil, fmt.Errorf("listen at %s: shared memory takes Linux, this is %s: use another transport: %w", addr, runtime.GOOS, errors.ErrUnsupported)
}

// Dial fails.
func (n *network) Dial(addr string) (transport.Conn, error) {
	return nil, fmt.Errorf("dial %s: shared memory takes Linux, this is %s: use another transport: %w", addr, runtime.GOOS, errors.ErrUnsupported)
}
