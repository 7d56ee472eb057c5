package transporttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"pushpull/transport"
)

// Faults says how often what goes wrong, as probabilities of a call. Several
// can befall the same call.
type Faults struct {
	DropBefore float64 // it is never carried out
	DropAfter  float64 // it is carried out, but its answer is lost
	Duplicate  float64 // it is carried out twice; the second answer counts
	Cut        float64 // its connection breaks within MaxDelay, or with its end
	Delay      float64 // it is on its way for a while, up to MaxDelay
	MaxDelay   time.Duration
}

// Counts says how many calls met with what.
type Counts struct {
	Calls, DroppedBefore, DroppedAfter, Duplicated, Cut, Delayed int
}

// A Faulty is a transport on which calls fail now and then, in the ways a
// network makes them fail: with ErrUnavailable, carried out or not.
type Faulty struct {
	t      transport.Transport
	faults Faults

	mu     sync.Mutex
	rand   *rand.Rand         // guarded by mu
	counts Counts             // guarded by mu
	down   context.Context    // guarded by mu; done while the network is cut
	cut    context.CancelFunc // guarded by mu; of down
}

var _ transport.Transport = (*Faulty)(nil)

// NewFaulty returns t with faults. The same seed and the same sequence of calls
// give the same faults; print it when a test fails.
func NewFaulty(t transport.Transport, seed uint64, f Faults) *Faulty {
	faulty := &Faulty{t: t, faults: f, rand: rand.New(rand.NewPCG(seed, 0))}
	faulty.Mend()
	return faulty
}

// Cut takes the network down: calls under way end with ErrUnavailable, and so
// do all others until Mend.
func (f *Faulty) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut()
}

// Mend brings the network up again.
func (f *Faulty) Mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.cut = context.WithCancel(context.Background())
}

// Counts returns what has happened so far.
func (f *Faulty) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// Listen serves s as the transport below does: all faults are on the way.
func (f *Faulty) Listen(addr string, s transport.Service) (transport.Listener, error) {
	return f.t.Listen(addr, s)
}

// Dial returns a connection whose calls meet with faults.
func (f *Faulty) Dial(addr string) (transport.Conn, error) {
	c, err := f.t.Dial(addr)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: c, faulty: f}, nil
}

// A fate is what becomes of one call.
type fate struct {
	dropBefore, dropAfter, duplicate, cut bool
	delay, cutAfter                       time.Duration
	down                                  context.Context // done when the network is cut
}

// draw decides on the next call. It draws as often whatever the outcome, so
// that one probability does not change what another does.
func (f *Faulty) draw() fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts.Calls++
	happens := func(p float64, n *int) bool {
		yes := f.rand.Float64() < p
		if yes {
			*n++
		}
		return yes
	}
	sometime := func() time.Duration { return time.Duration(f.rand.Float64() * float64(f.faults.MaxDelay)) }
	d := fate{
		dropBefore: happens(f.faults.DropBefore, &f.counts.DroppedBefore),
		dropAfter:  happens(f.faults.DropAfter, &f.counts.DroppedAfter),
		duplicate:  happens(f.faults.Duplicate, &f.counts.Duplicated),
		cut:        happens(f.faults.Cut, &f.counts.Cut),
		cutAfter:   sometime(),
		down:       f.down,
	}
	delayed, delay := happens(f.faults.Delay, &f.counts.Delayed), sometime()
	if delayed {
		d.delay = delay
	}
	return d
}

// errCut is why a call's context is canceled if not by its caller.
var errCut = errors.New("cut by the test")

// A faultyConn is a connection whose calls meet with faults.
type faultyConn struct {
	transport.Conn
	faulty *Faulty
}

// call makes a call as its fate has it.
func call[T any](ctx context.Context, c *faultyConn, do func(context.Context) (T, error)) (T, error) {
	d := c.faulty.draw()
	var none T
	lost := func(what string) (T, error) {
		return none, fmt.Errorf("%s by the test: %w", what, transport.ErrUnavailable)
	}
	if err := sleep(ctx, d.delay); err != nil {
		return none, err
	}
	if d.dropBefore || d.down.Err() != nil {
		return lost("dropped before it arrived")
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.down, func() { cancel(errCut) })()
	if d.cut {
		defer time.AfterFunc(d.cutAfter, func() { cancel(errCut) }).Stop()
	}
	answer, err := do(inner)
	if d.duplicate && inner.Err() == nil {
		answer, err = do(inner)
	}
	switch {
	case d.cut || context.Cause(inner) == errCut:
		return lost("cut")
	case d.dropAfter && err == nil:
		return lost("answer dropped")
	case err != nil:
		return none, err
	}
	return answer, nil
}

// sleep waits, no longer than ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (c *faultyConn) Join(ctx context.Context, hello transport.Hello) (transport.Welcome, error) {
	return call(ctx, c, func(ctx context.Context) (transport.Welcome, error) { return c.Conn.Join(ctx, hello) })
}

func (c *faultyConn) Init(ctx context.Context, parts []transport.Part) error {
	return c.bare(ctx, func(ctx context.Context) error { return c.Conn.Init(ctx, parts) })
}

func (c *faultyConn) Pull(ctx context.Context, minStep int64, dst []transport.Part) (transport.Status, error) {
	return call(ctx, c, func(ctx context.Context) (transport.Status, error) { return c.Conn.Pull(ctx, minStep, dst) })
}

func (c *faultyConn) Push(ctx context.Context, push transport.Push, grads []transport.Part) (transport.Verdict, error) {
	return call(ctx, c, func(ctx context.Context) (transport.Verdict, error) { return c.Conn.Push(ctx, push, grads) })
}

func (c *faultyConn) Finish(ctx context.Context, r transport.Replica) error {
	return c.bare(ctx, func(ctx context.Context) error { return c.Conn.Finish(ctx, r) })
}

func (c *faultyConn) Leave(ctx context.Context, r transport.Replica) error {
	return c.bare(ctx, func(ctx context.Context) error { return c.Conn.Leave(ctx, r) })
}

func (c *faultyConn) Describe(ctx context.Context) (transport.Description, error) {
	return call(ctx, c, c.Conn.Describe)
}

// bare is call for methods that answer nothing.
func (c *faultyConn) bare(ctx context.Context, do func(context.Context) error) error {
	_, err := call(ctx, c, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}
