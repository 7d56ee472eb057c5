// Package auto is a transport that takes the fastest of two for each address:
// a near one within this host, a far one to any other. A server listens on
// both, so workers on its own host and on others reach it at one address.
package auto

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"pushpull/transport"
)

// network chooses between two transports.
type network struct{ near, far transport.Transport }

// New returns a transport that reaches services of this host by near and others
// by far. Both must take an address host:port, as transport/shm and
// transport/grpc do. Where near does not work, as shared memory outside Linux,
// a server listens on far alone, and far reaches this host, too.
func New(near, far transport.Transport) transport.Transport { return network{near, far} }

// Listen serves s at addr on both transports. If addr leaves the port open, far
// chooses it.
func (n network) Listen(addr string, s transport.Service) (transport.Listener, error) {
	far, err := n.far.Listen(addr, s)
	if err != nil {
		return nil, err
	}
	near, err := n.near.Listen(far.Addr(), s)
	if errors.Is(err, errors.ErrUnsupported) {
		return far, nil
	}
	if err != nil {
		return nil, errors.Join(err, far.Close())
	}
	return listener{near, far}, nil
}

// Dial returns a connection of the transport that suits addr.
func (n network) Dial(addr string) (transport.Conn, error) {
	local, err := isLocal(addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	if local {
		c, err := n.near.Dial(addr)
		if !errors.Is(err, errors.ErrUnsupported) {
			return c, err
		}
	}
	return n.far.Dial(addr)
}

// isLocal reports whether the host of addr is this one: a loopback address or
// one of an interface's. A name counts if it resolves to such an address; one
// that does not resolve, or not yet, is another host's.
func isLocal(addr string) (bool, error) {
	if strings.HasPrefix(addr, "unix://") {
		return true, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, err
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false, err
	}
	ips, err := net.LookupIP(host)
	if err != nil {
		return false, nil
	}
	for _, ip := range ips {
		if ip.IsLoopback() {
			return true, nil
		}
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
				return true, nil
			}
		}
	}
	return false, nil
}

// listener is both listeners of a service.
type listener struct{ near, far transport.Listener }

func (l listener) Addr() string { return l.far.Addr() }

func (l listener) Close() error {
	return errors.Join(l.near.Close(), l.far.Close())
}
