package tcp

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged makes the kernel give up a connection whose far end has
// not acknowledged what was sent for as long as limit.
func limitUnacknowledged(c *net.TCPConn, limit time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // it is closed, as its first use will tell
	}
	raw.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
}

// A probe looks at a socket without waiting.
type probe struct {
	raw   syscall.RawConn // nil if it is none
	look  func(fd uintptr)
	quiet bool // found by look
	buf   [1]byte
}

func newProbe(nc net.Conn) *probe {
	p := new(probe)
	if c, ok := nc.(syscall.Conn); ok {
		p.raw, _ = c.SyscallConn()
	}
	p.look = func(fd uintptr) {
		_, _, err := unix.Recvfrom(int(fd), p.buf[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		p.quiet = err == unix.EAGAIN
	}
	return p
}

// isQuiet reports whether the far end has neither sent anything that was not
// read, nor closed the connection, as far as is known.
func (p *probe) isQuiet() bool {
	if p.raw == nil {
		return true
	}
	p.quiet = false
	p.raw.Control(p.look)
	return p.quiet
}
