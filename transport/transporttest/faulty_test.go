package transporttest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pushpull/transport"
	"pushpull/transport/inproc"
)

// faulty serves a shard with weights over an inproc transport with faults.
func faulty(t *testing.T, seed uint64, f Faults) (*Faulty, *shard, transport.Conn) {
	t.Helper()
	tr := NewFaulty(new(inproc.Network), seed, f)
	b := &bench{T: t, transport: tr}
	s := newShard()
	c := b.dial(b.listen("", s).Addr())
	s.weights = []transport.Part{weights}
	s.set(transport.Status{})
	return tr, s, c
}

const calls = 400

// outcomes pushes many times and tells which pushes succeeded.
func outcomes(t *testing.T, c transport.Conn) (succeeded []bool) {
	t.Helper()
	for i := range calls {
		v, err := c.Push(context.Background(), transport.Push{Seq: uint64(i)}, nil)
		switch {
		case err == nil && v != transport.Applied || err != nil && v != 0:
			t.Fatalf("Push = %v, %v", v, err)
		case err != nil && !errors.Is(err, transport.ErrUnavailable):
			t.Fatalf("Push: %v, want %v", err, transport.ErrUnavailable)
		}
		succeeded = append(succeeded, err == nil)
	}
	return succeeded
}

func count(x []bool) (n int) {
	for _, yes := range x {
		if yes {
			n++
		}
	}
	return n
}

func TestFaultsDoWhatTheySay(t *testing.T) {
	for _, c := range []struct {
		name   string
		faults Faults
		// How often something happened, and what succeeded and arrived then.
		happened           func(Counts) int
		succeeded, arrived func(happened int) int
	}{
		{
			"no fault", Faults{}, func(Counts) int { return calls },
			func(int) int { return calls }, func(int) int { return calls },
		}, {
			"dropped before", Faults{DropBefore: 0.3}, func(c Counts) int { return c.DroppedBefore },
			func(n int) int { return calls - n }, func(n int) int { return calls - n },
		}, {
			"dropped after", Faults{DropAfter: 0.3}, func(c Counts) int { return c.DroppedAfter },
			func(n int) int { return calls - n }, func(int) int { return calls },
		}, {
			"duplicated", Faults{Duplicate: 0.3}, func(c Counts) int { return c.Duplicated },
			func(int) int { return calls }, func(n int) int { return calls + n },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, s, conn := faulty(t, 1, c.faults)
			got := count(outcomes(t, conn))
			n := c.happened(tr.Counts())
			if n < calls/5 {
				t.Errorf("it happened %d times in %d calls, want about 3 in 10", n, calls)
			}
			if want := c.succeeded(n); got != want {
				t.Errorf("%d pushes succeed, want %d", got, want)
			}
			if got, want := len(s.pushed), c.arrived(n); got != want {
				t.Errorf("%d pushes arrive, want %d", got, want)
			}
		})
	}
}

func TestSeedsDecide(t *testing.T) {
	run := func(seed uint64) string {
		_, _, c := faulty(t, seed, Faults{DropBefore: 0.1, DropAfter: 0.1, Duplicate: 0.1})
		s := ""
		for _, ok := range outcomes(t, c) {
			s += map[bool]string{true: ".", false: "x"}[ok]
		}
		return s
	}
	if a, b := run(3), run(3); a != b {
		t.Errorf("seed 3 gives\n%s\nthen\n%s", a, b)
	}
	if a, b := run(3), run(4); a == b {
		t.Errorf("seeds 3 and 4 both give\n%s", a)
	}
}

func TestCutEndsCallsUntilMend(t *testing.T) {
	tr, s, c := faulty(t, 1, Faults{})
	b := &bench{T: t}
	done := b.waitingPull(b.context(), s, c)
	tr.Cut()
	b.is("Pull when the network is cut", b.soon("Pull", done), transport.ErrUnavailable)
	all(b.context(), c, func(method string, err error) {
		b.is(method+" while the network is cut", err, transport.ErrUnavailable)
	})
	tr.Mend()
	b.works(c)
}

func TestCutBreaksOffWithinMaxDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, s, c := faulty(t, 1, Faults{Cut: 1, MaxDelay: time.Minute})
		start := time.Now()
		_, err := c.Pull(t.Context(), 1, nil)
		if !errors.Is(err, transport.ErrUnavailable) {
			t.Errorf("Pull: %v, want %v", err, transport.ErrUnavailable)
		}
		if d := time.Since(start); d <= 0 || d > time.Minute {
			t.Errorf("Pull is cut after %v, want up to a minute", d)
		}
		if _, err := c.Push(t.Context(), transport.Push{}, nil); !errors.Is(err, transport.ErrUnavailable) || len(s.pushed) != 1 {
			t.Errorf("Push: %v and %d arrive, want %v and 1", err, len(s.pushed), transport.ErrUnavailable)
		}
		if got := tr.Counts(); got.Cut != 2 || got.Calls != 2 {
			t.Errorf("counted %+v, want 2 calls, both cut", got)
		}
	})
}

func TestDelayIsBoundedAndEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _, c := faulty(t, 1, Faults{Delay: 0.5, MaxDelay: time.Second})
		var longest time.Duration
		slow := 0
		for range calls {
			start := time.Now()
			if err := c.Finish(t.Context(), transport.Replica{}); err != nil {
				t.Fatalf("Finish: %v", err)
			}
			if d := time.Since(start); d > 0 {
				slow++
				longest = max(longest, d)
			}
		}
		if slow != tr.Counts().Delayed || slow < calls/3 || longest > time.Second || longest < time.Second/2 {
			t.Errorf("%d of %d calls are slow (counted %d), up to %v", slow, calls, tr.Counts().Delayed, longest)
		}
		_, _, c = faulty(t, 1, Faults{Delay: 1, MaxDelay: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := c.Finish(ctx, transport.Replica{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Finish: %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// TestSuite runs the suite over a transport that could have faults.
func TestSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("the same as without")
	}
	Test(t, func(*testing.T) (transport.Transport, string) {
		return NewFaulty(new(inproc.Network), 1, Faults{}), ":0"
	})
}
