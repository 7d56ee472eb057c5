package transporttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"pushpull/transport"
)

func pullWithoutPartsWaits(b *bench) {
	s, c := b.served()
	s.waiting = make(chan struct{})
	done := async(func() error {
		st, err := c.Pull(b.context(), 3, nil)
		if err == nil && st.Step != 4 {
			err = fmt.Errorf("step %d, want 4", st.Step)
		}
		return err
	})
	<-s.waiting
	s.set(transport.Status{Step: 2})
	<-s.waiting
	s.set(transport.Status{Step: 4})
	if err := b.soon("Pull", done); err != nil {
		b.Errorf("Pull: %v", err)
	}
}

// waitingPull returns a pull that waits for what does not come.
func (b *bench) waitingPull(ctx context.Context, s *shard, c transport.Conn) <-chan error {
	s.waiting = make(chan struct{})
	dst := []transport.Part{{Variable: "v", Data: make([]float32, 3)}}
	done := async(func() error {
		_, err := c.Pull(ctx, 1, dst)
		return err
	})
	<-s.waiting
	return done
}

var weights = transport.Part{Variable: "v", Data: []float32{1, 2, 3}}

func cancelEndsPull(b *bench) {
	s, c := b.served(weights)
	ctx, cancel := context.WithCancel(b.context())
	done := b.waitingPull(ctx, s, c)
	cancel()
	b.is("Pull after cancel", b.soon("Pull", done), context.Canceled)
	b.works(c)
}

func deadlineEndsPull(b *bench) {
	s, c := b.served(weights)
	ctx, cancel := context.WithTimeout(b.context(), 500*time.Millisecond)
	defer cancel()
	done := b.waitingPull(ctx, s, c)
	b.is("Pull after its deadline", b.soon("Pull", done), context.DeadlineExceeded)
	b.works(c)
}

// works tells whether c still reaches its shard.
func (b *bench) works(c transport.Conn) {
	b.Helper()
	dst := blank([]transport.Part{weights})
	if _, err := c.Pull(b.context(), 0, dst); err != nil {
		b.Errorf("Pull afterwards: %v", err)
	}
	b.sameParts("pulled part", dst, []transport.Part{weights})
}

func canceledCallsFail(b *bench) {
	s, c := b.served(weights)
	canceled, cancel := context.WithCancel(b.context())
	cancel()
	late, cancel := context.WithDeadline(b.context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{canceled, late} {
		all(ctx, c, func(method string, err error) { b.is(method+" with a context that is done", err, ctx.Err()) })
	}
	if len(s.pushed) > 0 || len(s.ended) > 0 {
		b.Errorf("calls that were canceled before they began reached the shard")
	}
}

func closeOfConnEndsPull(b *bench) {
	s, c := b.served(weights)
	done := b.waitingPull(b.context(), s, c)
	if err := c.Close(); err != nil {
		b.Errorf("Close: %v", err)
	}
	b.is("Pull after Close", b.soon("Pull", done), transport.ErrUnavailable)
	all(b.context(), c, func(method string, err error) { b.is(method+" after Close", err, transport.ErrUnavailable) })
}

func closeOfListenerEndsPull(b *bench) {
	s := newShard()
	l := b.listen(b.addr, s)
	c := b.dial(l.Addr())
	done := b.waitingPull(b.context(), s, c)
	if err := b.soon("Close", async(l.Close)); err != nil {
		b.Errorf("Close: %v", err)
	}
	b.is("Pull after the listener's Close", b.soon("Pull", done), transport.ErrUnavailable)
	all(b.context(), c, func(method string, err error) {
		b.is(method+" after the listener's Close", err, transport.ErrUnavailable)
	})
}

func closeOfListenerLetsCallsEnd(b *bench) {
	s := newShard()
	l := b.listen(b.addr, s)
	c := b.dial(l.Addr())
	if err := c.Init(b.context(), []transport.Part{weights}); err != nil {
		b.Fatalf("Init: %v", err)
	}
	done := b.waitingPull(b.context(), s, c)
	closed := async(l.Close)
	b.eventually("Close stops new calls", patience, func() error {
		other := b.dial(l.Addr())
		defer other.Close()
		if _, err := other.Describe(b.context()); err == nil {
			return fmt.Errorf("Describe succeeds")
		}
		return nil
	})
	s.set(transport.Status{Step: 1})
	if err := b.soon("Pull", done); err != nil {
		b.Errorf("Pull that ends while the listener closes: %v", err)
	}
	if err := b.soon("Close", closed); err != nil {
		b.Errorf("Close: %v", err)
	}
}

func nobodyListens(b *bench) {
	l := b.listen(b.addr, newShard())
	addr := l.Addr()
	if err := l.Close(); err != nil {
		b.Fatalf("Close: %v", err)
	}
	c := b.dial(addr)
	start := time.Now()
	all(b.context(), c, func(method string, err error) {
		b.is(method, err, transport.ErrUnavailable)
		if err != nil && !strings.Contains(err.Error(), addr) {
			b.Errorf("%s: error %q does not name %s", method, err, addr)
		}
	})
	if d := time.Since(start); d > 3*time.Second {
		b.Errorf("calls nobody answers take %v", d)
	}
}

// listenerComesBack at the address that others know, and they find it.
func listenerComesBack(b *bench) {
	l := b.listen(b.addr, newShard())
	addr := l.Addr()
	c := b.dial(addr)
	for range 2 {
		if _, err := c.Describe(b.context()); err != nil {
			b.Fatalf("Describe: %v", err)
		}
		if err := l.Close(); err != nil {
			b.Fatalf("Close: %v", err)
		}
		_, err := c.Describe(b.context())
		b.is("Describe while nobody listens", err, transport.ErrUnavailable)
		l = b.listen(addr, newShard())
		b.eventually("Describe", 4*time.Second, func() error {
			_, err := c.Describe(b.context())
			return err
		})
	}
}

func addressInUse(b *bench) {
	addr := b.listen(b.addr, newShard()).Addr()
	start := time.Now()
	l, err := b.transport.Listen(addr, newShard())
	if err == nil {
		l.Close()
		b.Fatalf("Listen at %s succeeds twice", addr)
	}
	if !strings.Contains(err.Error(), addr) {
		b.Errorf("Listen at an address in use: error %q does not name %s", err, addr)
	}
	if d := time.Since(start); d > time.Second {
		b.Errorf("Listen at an address in use takes %v", d)
	}
}

// manyCallers share a connection, and get what they asked for.
func manyCallers(b *bench) {
	const callers, rounds = 8, 10
	var parts []transport.Part
	for i := range callers {
		parts = append(parts, transport.Part{Variable: name(i), Width: 1, Data: values(1+i*i*2000, uint64(i))})
	}
	s, c := b.served(parts...)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 0))
			for range rounds {
				n := r.IntN(callers)
				want := []transport.Part{parts[n], parts[(n+1)%callers]}
				dst := blank(want)
				if _, err := c.Pull(b.context(), 0, dst); err != nil {
					b.Errorf("Pull: %v", err)
				}
				b.sameParts("pulled part", dst, want)
				if v, err := c.Push(b.context(), transport.Push{Seq: uint64(i)}, want); err != nil || v != transport.Applied {
					b.Errorf("Push = %v, %v, want %v", v, err, transport.Applied)
				}
			}
		})
	}
	wg.Wait()
	if got, want := len(s.pushed), callers*rounds; got != want {
		b.Errorf("%d pushes arrive, want %d", got, want)
	}
}

// argumentsAreNotKept by a call that has returned, however it ended: the race
// detector sees it if they are.
func argumentsAreNotKept(b *bench) {
	s, c := b.served()
	data := make([]float32, 1<<20)
	rows := make([]int32, 1<<10)
	for round := range 20 {
		ctx, cancel := context.WithCancel(b.context())
		for i := range data {
			data[i] = float32(round)
		}
		for i := range rows {
			rows[i] = int32(i + round)
		}
		if round%2 == 1 {
			time.AfterFunc(time.Duration(round)*100*time.Microsecond, cancel)
		}
		_, err := c.Push(ctx, transport.Push{}, []transport.Part{
			{Variable: "dense", Data: data}, {Variable: "rows", Width: 2, Rows: rows, Data: data[:2*len(rows)]},
		})
		cancel()
		if err != nil {
			b.is("Push", err, context.Canceled)
			continue
		}
		_, grads := s.lastPush()
		for i, x := range grads[0].Data {
			if x != float32(round) {
				b.Fatalf("round %d: element %d arrives as %v", round, i, x)
			}
		}
	}
}
