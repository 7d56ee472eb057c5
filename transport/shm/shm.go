// Package shm is a transport between processes of one host, through memory
// that both ends map. A call's header crosses a Unix socket, which also wakes
// the far end and tells when it dies; the data lies in a region of memory that
// the caller has made for the connection. A push is copied into the region and
// served from there; a pull is served into the region and copied out.
//
// A region is a memory file without a name, sealed so that neither end can
// shrink it under the other. It is gone with the last process that maps it,
// however that ends. There are regions on Linux only: elsewhere Listen and Dial
// fail with [errors.ErrUnsupported].
//
// # Addresses
//
// unix:///path and shm:///path name a Unix socket in the file system. host:port
// stands for the abstract socket "@pushpull-port" of the same host, so that the
// addresses of a job can stay what they are over TCP: the host, which must be
// this one, is not looked at.
package shm

import (
	"time"

	"pushpull/transport"
)

// Options are the settings of a transport. The zero value is good.
type Options struct {
	// MaxCallBytes is the most memory that the parts of one call may take, at
	// four bytes for an element and four for a row number. A call that declares
	// more fails with ErrTooLarge, at whichever end allows less. 0 means 64 GiB.
	MaxCallBytes int64

	// MaxCalls is how many calls may be under way at once over one connection,
	// pulls that wait for a step among them; more of them wait for their turn.
	// Each takes a socket and a region as large as the largest call it has seen,
	// and both are kept for the next call until the connection is closed.
	// 0 means 16.
	MaxCalls int

	// Grace is how long Close of a listener lets calls under way go on.
	// 0 means 3 s.
	Grace time.Duration
}

// withDefaults returns o with every zero replaced by what it stands for.
func (o Options) withDefaults() Options {
	if o.MaxCallBytes <= 0 {
		o.MaxCallBytes = 64 << 30
	}
	if o.MaxCalls <= 0 {
		o.MaxCalls = 16
	}
	if o.Grace <= 0 {
		o.Grace = 3 * time.Second
	}
	return o
}

// New returns a transport. Connections are not authenticated: whoever may open
// a socket's file may call what is served there, and every process of the host
// what is served at host:port.
func New(opts Options) transport.Transport {
	return &network{opts: opts.withDefaults()}
}

// network makes listeners and connections.
type network struct{ opts Options }
