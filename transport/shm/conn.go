//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"

	"pushpull/transport"
)

// A conn calls the service at an address, over as many lanes as there are calls
// under way.
type conn struct {
	addr   string
	socket *net.UnixAddr
	limit  int64         // MaxCallBytes
	turns  chan struct{} // holds one for each call under way

	closed context.Context // done after Close
	close  context.CancelFunc

	mu   sync.Mutex
	idle []*lane            // guarded by mu; the last was used last
	busy map[*lane]struct{} // guarded by mu
}

var _ transport.Conn = (*conn)(nil)

// Dial returns a connection to the service at addr. It connects with the first
// call, and again after it has lost the far end.
func (n *network) Dial(addr string) (transport.Conn, error) {
	p, err := parse(addr)
	if err == nil && p.path == "" && p.port == 0 {
		err = errors.New("port 0 is for listening")
	}
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	c := &conn{
		addr: addr, socket: p.socket(), limit: n.opts.MaxCallBytes,
		turns: make(chan struct{}, n.opts.MaxCalls), busy: make(map[*lane]struct{}),
	}
	c.closed, c.close = context.WithCancel(context.Background())
	return c, nil
}

// Close closes idle lanes. Calls under way end, and close their own.
func (c *conn) Close() error {
	c.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.busy {
		l.abort()
	}
	for _, l := range c.idle {
		l.close()
	}
	c.idle = nil
	return nil
}

func (c *conn) Join(ctx context.Context, hello transport.Hello) (w transport.Welcome, err error) {
	err = c.call(ctx, exchange{
		name: "join", method: join,
		ask:    func(b []byte) []byte { return appendHello(b, hello) },
		answer: func(d *decoder) { w = d.welcome(); w.Cursor = slices.Clone(w.Cursor) },
	})
	return w, err
}

func (c *conn) Init(ctx context.Context, parts []transport.Part) error {
	return c.call(ctx, exchange{
		name: "init", method: initial, out: parts,
		ask: func(b []byte) []byte { return appendParts(b, parts) },
	})
}

func (c *conn) Pull(ctx context.Context, minStep int64, dst []transport.Part) (st transport.Status, err error) {
	err = c.call(ctx, exchange{
		name: "pull", method: pull, in: dst,
		ask:    func(b []byte) []byte { return appendParts(appendInt(b, minStep), dst) },
		answer: func(d *decoder) { st = d.status() },
	})
	return st, err
}

func (c *conn) Push(ctx context.Context, p transport.Push, grads []transport.Part) (v transport.Verdict, err error) {
	err = c.call(ctx, exchange{
		name: "push", method: push, out: grads,
		ask:    func(b []byte) []byte { return appendParts(appendPush(b, p), grads) },
		answer: func(d *decoder) { v = transport.Verdict(d.byte()) },
	})
	return v, err
}

func (c *conn) Finish(ctx context.Context, r transport.Replica) error {
	return c.call(ctx, exchange{name: "finish", method: finish, ask: func(b []byte) []byte { return appendReplica(b, r) }})
}

func (c *conn) Leave(ctx context.Context, r transport.Replica) error {
	return c.call(ctx, exchange{name: "leave", method: leave, ask: func(b []byte) []byte { return appendReplica(b, r) }})
}

func (c *conn) Describe(ctx context.Context) (about transport.Description, err error) {
	err = c.call(ctx, exchange{name: "describe", method: describe, answer: func(d *decoder) { about = d.description() }})
	return about, err
}

// call makes one call. It returns the service's own error; else the context's;
// else what went wrong on the way.
func (c *conn) call(ctx context.Context, x exchange) error {
	err := c.try(ctx, x)
	var remote *remoteError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &remote):
		return remote
	case ctx.Err() != nil:
		err = ctx.Err()
	case c.closed.Err() != nil:
		err = fmt.Errorf("the connection is closed: %w", transport.ErrUnavailable)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		err = fmt.Errorf("nobody listens at %s: %w", c.socket.Name, transport.ErrUnavailable)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		err = fmt.Errorf("the server went away during the call: %w", transport.ErrUnavailable)
	case outcomeOf(err) == failed:
		err = fmt.Errorf("%w: %w", err, transport.ErrUnavailable)
	}
	return fmt.Errorf("%s at %s: %w", x.name, c.addr, err)
}

// try makes one call over a lane that works, if one can be had.
func (c *conn) try(ctx context.Context, x exchange) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	bytes, err := x.room(c.limit)
	if err != nil {
		return err
	}
	select {
	case c.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed.Done():
		return c.closed.Err()
	}
	defer func() { <-c.turns }()
	for {
		l, err := c.take(ctx, bytes)
		if err != nil {
			return err
		}
		used := l.used
		stop := context.AfterFunc(ctx, l.abort)
		again, err := l.call(ctx, x, bytes)
		c.done(l, stop() && again)
		// What a server that has gone was sent has not arrived.
		if !used || !errors.Is(err, syscall.EPIPE) {
			return err
		}
	}
}

// take returns a lane, one whose region has room for that many bytes if it can:
// an idle one, else a new one.
func (c *conn) take(ctx context.Context, bytes int) (*lane, error) {
	if l := c.pick(bytes); l != nil {
		return l, nil
	}
	socket, err := new(net.Dialer).DialContext(ctx, "unix", c.socket.Name)
	if err != nil {
		return nil, err
	}
	l := &lane{socket: newSocket(socket.(*net.UnixConn))}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.closed.Err(); err != nil {
		l.close()
		return nil, err
	}
	c.busy[l] = struct{}{}
	return l, nil
}

// pick takes an idle lane: the smallest with room for that many bytes, else the
// one used last, else none.
func (c *conn) pick(bytes int) *lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := len(c.idle) - 1
	if best < 0 {
		return nil
	}
	for i, l := range c.idle {
		size, least := l.region.size(), c.idle[best].region.size()
		if size >= bytes && (least < bytes || size < least) {
			best = i
		}
	}
	l := c.idle[best]
	c.idle = slices.Delete(c.idle, best, best+1)
	c.busy[l] = struct{}{}
	return l
}

// done takes back a lane after a call, for another if it is as good as ever.
func (c *conn) done(l *lane, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.busy, l)
	if again && c.closed.Err() == nil {
		c.idle = append(c.idle, l)
		return
	}
	l.close()
}
