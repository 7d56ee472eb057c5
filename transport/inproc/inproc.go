// Package inproc is a transport within one process: a call is a method call.
// It keeps the contract's small print all the same: encodings round, contexts
// and Close end calls, and a listener can be missing.
package inproc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"pushpull/transport"
	"pushpull/transport/internal/pool"
)

// grace is how long Close of a listener waits for calls under way.
const grace = 3 * time.Second

// A Network is a [transport.Transport] and the space of addresses it serves.
// The zero value is ready.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener // guarded by mu; by address
	chosen    int                  // guarded by mu; the last port that was made up

	floats pool.Pool[float32] // copies of calls under way that round
}

var _ transport.Transport = (*Network)(nil)

// Listen serves s at addr, which can be any text. For an empty addr, or one
// that ends with ":0", it chooses one that is free.
func (n *Network) Listen(addr string, s transport.Service) (transport.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if host, ok := strings.CutSuffix(addr, ":0"); ok || addr == "" {
		for addr = ""; addr == "" || n.listeners[addr] != nil; {
			n.chosen++
			addr = fmt.Sprintf("%s:%d", host, n.chosen)
		}
	}
	if n.listeners[addr] != nil {
		return nil, fmt.Errorf("listen at %s: address in use", addr)
	}
	l := &listener{network: n, addr: addr, service: s}
	l.cut, l.cutNow = context.WithCancel(context.Background())
	if n.listeners == nil {
		n.listeners = make(map[string]*listener)
	}
	n.listeners[addr] = l
	return l, nil
}

// Dial returns a connection to whatever is served at addr at the time of each
// call.
func (n *Network) Dial(addr string) (transport.Conn, error) {
	c := &conn{network: n, addr: addr}
	c.closed, c.close = context.WithCancel(context.Background())
	return c, nil
}

func (n *Network) at(addr string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listeners[addr]
}

// A listener is one service being served.
type listener struct {
	network *Network
	addr    string
	service transport.Service
	cut     context.Context // done when calls still under way must end
	cutNow  context.CancelFunc

	mu     sync.Mutex
	calls  int           // guarded by mu; under way
	closed bool          // guarded by mu
	idle   chan struct{} // guarded by mu; closed with the last call after closed was set
}

func (l *listener) Addr() string { return l.addr }

// Close frees the address at once, lets calls under way end, and cuts those
// that take longer than a few seconds.
func (l *listener) Close() error {
	l.network.mu.Lock()
	if l.network.listeners[l.addr] == l {
		delete(l.network.listeners, l.addr)
	}
	l.network.mu.Unlock()

	l.mu.Lock()
	if !l.closed {
		l.closed = true
		l.idle = make(chan struct{})
		if l.calls == 0 {
			close(l.idle)
		}
	}
	idle := l.idle
	l.mu.Unlock()

	defer l.cutNow()
	if ended(idle) {
		return nil
	}
	l.cutNow()
	if ended(idle) {
		return nil
	}
	return fmt.Errorf("close listener at %s: calls under way do not end though their context is canceled", l.addr)
}

// ended waits for idle, for as long as grace.
func ended(idle <-chan struct{}) bool {
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-idle:
		return true
	case <-limit.C:
		return false
	}
}

// enter counts a call, unless the listener is closed.
func (l *listener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls++
	return true
}

func (l *listener) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	if l.closed && l.calls == 0 {
		close(l.idle)
	}
}

// errCut is why a call's context is canceled if not by its caller.
var errCut = errors.New("connection closed")

// A conn calls the service at an address.
type conn struct {
	network *Network
	addr    string
	closed  context.Context // done after Close
	close   context.CancelFunc
}

func (c *conn) Close() error {
	c.close()
	return nil
}

// call makes one call of the service, in the caller's goroutine.
func (c *conn) call(ctx context.Context, method string, do func(context.Context, transport.Service) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s at %s: %w", method, c.addr, err)
	}
	l := c.network.at(c.addr)
	switch {
	case c.closed.Err() != nil:
		return fmt.Errorf("%s at %s: the connection is closed: %w", method, c.addr, transport.ErrUnavailable)
	case l == nil || !l.enter():
		return fmt.Errorf("%s at %s: nobody listens there: %w", method, c.addr, transport.ErrUnavailable)
	}
	defer l.leave()

	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cut := func() { cancel(errCut) }
	defer context.AfterFunc(c.closed, cut)()
	defer context.AfterFunc(l.cut, cut)()
	err := do(inner, l.service)
	if err != nil && context.Cause(inner) == errCut && errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s at %s: closed during the call: %w", method, c.addr, transport.ErrUnavailable)
	}
	return err
}

func (c *conn) Join(ctx context.Context, hello transport.Hello) (w transport.Welcome, err error) {
	err = c.call(ctx, "join", func(ctx context.Context, s transport.Service) (err error) {
		w, err = s.Join(ctx, hello)
		return err
	})
	return w, err
}

func (c *conn) Init(ctx context.Context, parts []transport.Part) error {
	if err := transport.Check(parts); err != nil {
		return fmt.Errorf("init at %s: %w", c.addr, err)
	}
	parts, free := c.network.rounded(parts)
	defer free()
	return c.call(ctx, "init", func(ctx context.Context, s transport.Service) error {
		return s.Init(ctx, parts)
	})
}

func (c *conn) Pull(ctx context.Context, minStep int64, dst []transport.Part) (st transport.Status, err error) {
	if err := transport.Check(dst); err != nil {
		return st, fmt.Errorf("pull at %s: %w", c.addr, err)
	}
	err = c.call(ctx, "pull", func(ctx context.Context, s transport.Service) (err error) {
		st, err = s.Pull(ctx, minStep, dst)
		return err
	})
	if err == nil {
		for i := range dst {
			dst[i].Encoding.Round(dst[i].Data)
		}
	}
	return st, err
}

func (c *conn) Push(ctx context.Context, push transport.Push, grads []transport.Part) (v transport.Verdict, err error) {
	if err := transport.Check(grads); err != nil {
		return v, fmt.Errorf("push at %s: %w", c.addr, err)
	}
	grads, free := c.network.rounded(grads)
	defer free()
	err = c.call(ctx, "push", func(ctx context.Context, s transport.Service) (err error) {
		v, err = s.Push(ctx, push, grads)
		return err
	})
	return v, err
}

func (c *conn) Finish(ctx context.Context, r transport.Replica) error {
	return c.call(ctx, "finish", func(ctx context.Context, s transport.Service) error {
		return s.Finish(ctx, r)
	})
}

func (c *conn) Leave(ctx context.Context, r transport.Replica) error {
	return c.call(ctx, "leave", func(ctx context.Context, s transport.Service) error {
		return s.Leave(ctx, r)
	})
}

func (c *conn) Describe(ctx context.Context) (d transport.Description, err error) {
	err = c.call(ctx, "describe", func(ctx context.Context, s transport.Service) (err error) {
		d, err = s.Describe(ctx)
		return err
	})
	return d, err
}
