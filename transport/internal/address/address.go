// Package address understands the addresses of transports over sockets, and
// listens at them.
package address

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Split tells network and address of addr apart: "unix" and a path for
// unix:///path, else "tcp" and host:port.
func Split(addr string) (kind, place string) {
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		return "unix", path
	}
	return "tcp", addr
}

// Listen opens a socket at addr, and returns the address others can dial. For
// port 0 it chooses a port. If the host is a name or address of another
// machine's, as a cluster's list of tasks may have it behind address
// translation, it listens on all interfaces. Of a Unix socket nobody listens at
// anymore it takes the place.
func Listen(addr string) (socket net.Listener, shown string, err error) {
	kind, place := Split(addr)
	socket, err = net.Listen(kind, place)
	if kind == "unix" {
		if errors.Is(err, syscall.EADDRINUSE) && Abandoned(place) {
			if err := os.Remove(place); err != nil {
				return nil, "", err
			}
			socket, err = net.Listen(kind, place)
		}
		return socket, addr, err
	}
	host, port, _ := net.SplitHostPort(place)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		socket, err = net.Listen(kind, ":"+port)
	}
	if err != nil {
		return nil, "", err
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	_, port, err = net.SplitHostPort(socket.Addr().String())
	return socket, net.JoinHostPort(host, port), err
}

// Abandoned reports whether path is a Unix socket at which nobody listens.
func Abandoned(path string) bool {
	if f, err := os.Lstat(path); err != nil || f.Mode().Type() != os.ModeSocket {
		return false // connecting to a plain file is refused, too
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
