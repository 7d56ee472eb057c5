package tcp

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setCubic sets the usual congestion control, because others (such as BBR) are
// slow on loopback. Where the kernel lacks it, nothing changes.
func setCubic(c net.Conn) {
	if c, ok := c.(*net.TCPConn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
			})
		}
	}
}

// cpuTime returns what this process has used of all processors.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
