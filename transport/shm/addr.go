//go:build linux

package shm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"pushpull/transport/internal/address"
	"strconv"
	"strings"
	"syscall"
)

// maxPath is the longest name of a Unix socket.
const maxPath = 107

// A place is what an address stands for: a socket in the file system, or the
// port of an abstract one.
type place struct {
	scheme, path string // of a socket in the file system
	host         string // as given, of an abstract socket
	port         int    // its port; 0 if one is to be chosen
}

// parse returns the place that addr stands for.
func parse(addr string) (place, error) {
	scheme, rest, ok := strings.Cut(addr, "://")
	switch {
	case !ok:
		scheme, rest = "", addr
	case scheme != "unix" && scheme != "shm":
		return place{}, fmt.Errorf("scheme %q: want unix:///path, shm:///path or host:port", scheme)
	case scheme == "unix" || strings.HasPrefix(rest, "/"):
		if rest == "" || len(rest) > maxPath {
			return place{}, fmt.Errorf("a socket's path of %d bytes: want 1 to %d", len(rest), maxPath)
		}
		return place{scheme: scheme, path: rest}, nil
	}
	if rest == "" {
		rest = ":0"
	}
	host, digits, err := net.SplitHostPort(rest)
	if err != nil {
		return place{}, err
	}
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil {
		return place{}, fmt.Errorf("port %q: want a number up to 65535", digits)
	}
	return place{scheme: scheme, host: host, port: int(port)}, nil
}

// socket returns the name of the place's socket.
func (p place) socket() *net.UnixAddr {
	name := p.path
	if name == "" {
		name = fmt.Sprintf("@pushpull-%d", p.port)
	}
	return &net.UnixAddr{Name: name, Net: "unix"}
}

// String returns an address that others can dial.
func (p place) String() string {
	s := p.path
	if s == "" {
		host := p.host
		if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		s = net.JoinHostPort(host, strconv.Itoa(p.port))
	}
	if p.scheme != "" {
		s = p.scheme + "://" + s
	}
	return s
}

// listen opens the socket of a place. It chooses a port if that is left open,
// and takes the place of a socket at which nobody listens anymore.
func (p place) listen() (*net.UnixListener, place, error) {
	if p.path == "" && p.port == 0 {
		return p.choose()
	}
	l, err := net.ListenUnix("unix", p.socket())
	if errors.Is(err, syscall.EADDRINUSE) && p.path != "" && address.Abandoned(p.path) {
		if err := os.Remove(p.path); err != nil {
			return nil, p, err
		}
		l, err = net.ListenUnix("unix", p.socket())
	}
	return l, p, err
}

// choose opens an abstract socket of a free port, of those that nobody is
// given by name.
func (p place) choose() (l *net.UnixListener, _ place, err error) {
	const first, ports, tries = 49152, 16384, 100
	for range tries {
		p.port = first + rand.IntN(ports)
		if l, err = net.ListenUnix("unix", p.socket()); !errors.Is(err, syscall.EADDRINUSE) {
			return l, p, err
		}
	}
	return nil, p, fmt.Errorf("%d ports tried from %d on: %w", tries, first, err)
}
