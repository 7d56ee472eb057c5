package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"pushpull/transport"
	"pushpull/transport/internal/address"
)

// A conn calls the service at an address, over as many links as it has calls
// under way.
type conn struct {
	network *network
	addr    string
	closing context.Context // done after Close
	close   context.CancelFunc

	mu    sync.Mutex
	links map[*link]struct{} // guarded by mu; all that are open
	idle  []*link            // guarded by mu; those of them without a call, the last used last
}

var _ transport.Conn = (*conn)(nil)

func newConn(n *network, addr string) *conn {
	c := &conn{network: n, addr: addr, links: make(map[*link]struct{})}
	c.closing, c.close = context.WithCancel(context.Background())
	return c
}

func (c *conn) Close() error {
	c.close() // ends attempts to connect
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.links {
		l.close()
	}
	clear(c.links)
	c.idle = nil
	return nil
}

func (c *conn) Join(ctx context.Context, hello transport.Hello) (w transport.Welcome, err error) {
	err = c.call(ctx, join, func(e *encoder) { e.hello(hello) }, nil, nil, func(d *decoder) { w = d.welcome() })
	return w, err
}

func (c *conn) Init(ctx context.Context, parts []transport.Part) error {
	if err := checkSent(parts); err != nil {
		return c.fail(ctx, initial, err)
	}
	return c.call(ctx, initial, func(e *encoder) { e.parts(parts) }, parts, nil, nothing)
}

func (c *conn) Pull(ctx context.Context, minStep int64, dst []transport.Part) (st transport.Status, err error) {
	if err := checkSent(dst); err != nil {
		return st, c.fail(ctx, pull, err)
	}
	err = c.call(ctx, pull, func(e *encoder) {
		e.int(minStep)
		e.parts(dst)
	}, nil, dst, func(d *decoder) { st = d.status() })
	return st, err
}

func (c *conn) Push(ctx context.Context, p transport.Push, grads []transport.Part) (v transport.Verdict, err error) {
	if err := checkSent(grads); err != nil {
		return v, c.fail(ctx, push, err)
	}
	err = c.call(ctx, push, func(e *encoder) {
		e.push(p)
		e.parts(grads)
	}, grads, nil, func(d *decoder) { v = transport.Verdict(d.byte()) })
	return v, err
}

func (c *conn) Finish(ctx context.Context, r transport.Replica) error {
	return c.call(ctx, finish, func(e *encoder) { e.replica(r) }, nil, nil, nothing)
}

func (c *conn) Leave(ctx context.Context, r transport.Replica) error {
	return c.call(ctx, leave, func(e *encoder) { e.replica(r) }, nil, nil, nothing)
}

func (c *conn) Describe(ctx context.Context) (about transport.Description, err error) {
	err = c.call(ctx, describe, func(*encoder) {}, nil, nil, func(d *decoder) { about = d.description() })
	return about, err
}

// nothing is the result of calls that have none.
func nothing(*decoder) {}

// checkSent checks parts before anything is sent.
func checkSent(parts []transport.Part) error {
	if len(parts) > maxParts {
		return fmt.Errorf("%d parts, want at most %d: %w", len(parts), maxParts, transport.ErrTooLarge)
	}
	return transport.Check(parts)
}

// call makes a call: it sends the arguments and the data of parts, receives the
// results and the data for dst. Nothing is left of it when it returns. On an
// error the results are zero.
func (c *conn) call(ctx context.Context, k kind, arguments func(*encoder), parts, dst []transport.Part, results func(*decoder)) error {
	if err := ctx.Err(); err != nil {
		return c.fail(ctx, k, err)
	}
	l, err := c.take(ctx)
	if err != nil {
		return c.fail(ctx, k, err)
	}
	stop := context.AfterFunc(ctx, l.close)
	err = exchange(ctx, l, k, arguments, parts, dst, results)
	c.put(l, stop() && l.broken == nil)
	if err != nil {
		return c.fail(ctx, k, err)
	}
	return nil
}

// exchange makes a call over a link.
func exchange(ctx context.Context, l *link, k kind, arguments func(*encoder), parts, dst []transport.Part, results func(*decoder)) error {
	e := l.header()
	left := time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		left = max(time.Until(end), 1)
	}
	e.uint(uint64(left))
	e.uint(uint64(l.stall.Milliseconds()))
	arguments(e)
	sendErr := l.send(k, parts)
	if sendErr != nil && (l.broken == nil || errors.Is(sendErr, errStalled)) {
		return sendErr // there will be no answer
	}
	f, header, err := l.next()
	for err == nil && f.kind == working && f.header == 0 && f.data == 0 {
		f, header, err = l.next()
	}
	switch {
	case err != nil && sendErr != nil && sendErr != errInterrupted:
		return sendErr
	case err != nil:
		return err
	case f.kind == failure && f.data == 0:
		return failureOf(header)
	case f.kind != answer || sendErr != nil || f.data != bytesOf(dst):
		return l.fail(fmt.Errorf("answered with %v and %d bytes of data, want %d: %w", f.kind, f.data, bytesOf(dst), transport.ErrInvalid))
	}
	return receiveAnswer(l, header, dst, results)
}

// receiveAnswer reads the results and the data of an answer.
func receiveAnswer(l *link, header []byte, dst []transport.Part, results func(*decoder)) error {
	for i := range dst {
		if err := l.readData(dst[i].Encoding, dst[i].Data); err != nil {
			return err
		}
	}
	d := decoder{b: header}
	results(&d)
	if err := d.end(); err != nil {
		results(new(decoder)) // all zero
		return l.fail(err)
	}
	return nil
}

// take returns a link without a call: an idle one on which all is quiet, or a
// new one.
func (c *conn) take(ctx context.Context) (*link, error) {
	for {
		c.mu.Lock()
		n := len(c.idle)
		if n == 0 {
			c.mu.Unlock()
			return c.dial(ctx)
		}
		l := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		if l.probe.isQuiet() {
			return l, nil
		}
		c.put(l, false)
	}
}

// put takes back a link. It keeps it for the next call if it is good and if
// there are not too many.
func (c *conn) put(l *link, good bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if good && c.closing.Err() == nil && len(c.idle) < c.network.opts.IdleConns {
		c.idle = append(c.idle, l)
		return
	}
	delete(c.links, l)
	l.close()
}

// dial connects and greets.
func (c *conn) dial(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.closing, cancel)()

	limit, start := c.network.opts.ConnectTimeout, time.Now()
	kind, place := address.Split(c.addr)
	nc, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, kind, place)
	if err != nil {
		return nil, err
	}
	l := c.network.newLink(nc)
	c.mu.Lock()
	c.links[l] = struct{}{}
	c.mu.Unlock()
	stop := context.AfterFunc(ctx, l.close)
	err = l.greet(limit, start)
	if !stop() || err != nil {
		c.put(l, false)
		return nil, errors.Join(err, ctx.Err())
	}
	return l, nil
}

var errClosed = errors.New("the connection is closed")

// fail returns what the caller with context ctx is to know of err.
func (c *conn) fail(ctx context.Context, k kind, err error) error {
	var remote *remoteError
	end, limited := ctx.Deadline()
	switch {
	case errors.As(err, &remote):
		return remote
	case ctx.Err() != nil:
		err = ctx.Err()
	case limited && (err == errLate || !time.Now().Before(end)): // ctx is about to say so
		err = context.DeadlineExceeded
	case c.closing.Err() != nil:
		err = fmt.Errorf("%w: %w", errClosed, transport.ErrUnavailable)
	case codeOf(err) == other:
		err = fmt.Errorf("%w: %w", err, transport.ErrUnavailable)
	}
	return fmt.Errorf("%v at %s: %w", k, c.addr, err)
}
