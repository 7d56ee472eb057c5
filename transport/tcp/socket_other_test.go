//go:build !linux

package tcp

import (
	"net"
	"time"
)

// setCubic does nothing: the system's congestion control is used.
func setCubic(net.Conn) {}

// cpuTime is not known.
func cpuTime() time.Duration { return 0 }
