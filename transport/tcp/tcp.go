package tcp

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"time"

	"pushpull/transport"
	"pushpull/transport/internal/address"
	"pushpull/transport/internal/pool"
)

// Options are the settings of a transport. The zero value is good.
type Options struct {
	// MaxCallBytes is the most memory that the parts of one call may take where
	// they arrive, at four bytes for an element and four for a row number. A
	// call that declares more fails with ErrTooLarge. 0 means 64 GiB.
	MaxCallBytes int64

	// ConnectTimeout is how long a call may wait for a connection to be made and
	// greeted, before it fails with ErrUnavailable. 0 means 3 s.
	ConnectTimeout time.Duration

	// StallTimeout is how long the far end may neither take nor send anything
	// while a call is under way, before the call fails with ErrUnavailable. A
	// call that waits at a live server does not stall, however long it takes.
	// The kernel probes idle connections for as long. 0 means 30 s; less than
	// 1 ms means that.
	StallTimeout time.Duration

	// IdleConns is how many connections a Conn keeps for later calls, of those
	// it opened for calls at the same time. 0 means 8.
	IdleConns int

	// Grace is how long Close of a listener lets calls under way go on.
	// 0 means 3 s.
	Grace time.Duration

	// Logger is told of peers that were turned away because they do not speak
	// this protocol, and of trouble with accepting connections. Nil means
	// that nobody is told.
	Logger *slog.Logger
}

// withDefaults returns o with every zero replaced by what it stands for.
func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if o.MaxCallBytes <= 0 {
		o.MaxCallBytes = 64 << 30
	}
	o.MaxCallBytes = min(o.MaxCallBytes, math.MaxInt)
	set(&o.ConnectTimeout, 3*time.Second)
	set(&o.StallTimeout, 30*time.Second)
	o.StallTimeout = max(o.StallTimeout, time.Millisecond)
	if o.IdleConns <= 0 {
		o.IdleConns = 8
	}
	set(&o.Grace, 3*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// New returns a transport whose addresses are host:port of TCP, or
// unix:///path for a Unix socket. Connections are neither encrypted nor
// authenticated.
func New(opts Options) transport.Transport {
	return &network{opts: opts.withDefaults()}
}

// network makes listeners and connections.
type network struct {
	opts   Options
	bytes  pool.Pool[byte]    // data on its way from or to another encoding
	floats pool.Pool[float32] // data of calls being served
}

// Listen serves s at addr. For port 0, or no address at all, it chooses a port.
// If the host is a name or address of another machine's, as a cluster's list of
// tasks may have it behind address translation, it listens on all interfaces.
// Of a Unix socket nobody listens at anymore it takes the place.
func (n *network) Listen(addr string, s transport.Service) (transport.Listener, error) {
	sock, shown, err := address.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", addr, err)
	}
	l := &listener{
		network: n, service: s, socket: sock, addr: shown,
		sessions: make(map[*session]struct{}), idle: make(chan struct{}),
	}
	l.cut, l.cutNow = context.WithCancel(context.Background())
	l.running.Go(l.accept) // joined by Close
	return l, nil
}

// Dial returns a connection to the service at addr. A call that finds no
// idle connection makes one, whatever became of earlier attempts.
func (n *network) Dial(addr string) (transport.Conn, error) {
	return newConn(n, addr), nil
}

// newLink prepares a connection that was just made.
func (n *network) newLink(nc net.Conn) *link {
	tune(nc, n.opts.StallTimeout)
	return newLink(nc, n.opts.StallTimeout, &n.bytes)
}

// unixBufferBytes is how much of what is sent the kernel holds for a Unix
// socket. TCP's buffers are left to the kernel, which fits them to the link.
const unixBufferBytes = 1 << 20

// tune makes the kernel notice within about limit that the far end is gone.
func tune(nc net.Conn, limit time.Duration) {
	switch c := nc.(type) {
	case *net.TCPConn: // without delay, which is Go's default
		c.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: max(limit/2, time.Second), Interval: max(limit/6, time.Second), Count: 3,
		})
		limitUnacknowledged(c, limit)
	case *net.UnixConn:
		c.SetWriteBuffer(unixBufferBytes)
	}
}

// closes waits for c to be closed, no longer than limit.
func closes(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
