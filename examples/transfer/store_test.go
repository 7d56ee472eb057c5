package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pushpull/transport"
	"pushpull/transport/grpc"
	"pushpull/transport/inproc"
)

func quiet(string, ...any) {}

func TestPatternSurvivesItsEncoding(t *testing.T) {
	for _, e := range transport.Encodings {
		p := newPattern("v", e)
		data := make([]float32, 3*stampEvery/2)
		p.fill(data)
		p.stamp(data, 1234567)
		e.Round(data)
		if err := p.checkAll(data, 1234567); err != nil {
			t.Errorf("%v: %v", e, err)
		}
	}
}

func TestPatternTellsTransfersAndTensorsApart(t *testing.T) {
	for _, e := range transport.Encodings {
		p := newPattern("v", e)
		data := make([]float32, 2*stampEvery)
		p.fill(data)
		for number := range uint64(100) {
			p.stamp(data, number+1)
			if err := p.checkStamps(data, number+1); err != nil {
				t.Fatal(err)
			}
			if p.checkStamps(data, number) == nil || p.checkStamps(data, number+2) == nil {
				t.Errorf("%v: transfer %d passes for its neighbor", e, number+1)
			}
		}
		if newPattern("w", e).checkStamps(data, 100) == nil {
			t.Errorf("%v: a tensor passes for another", e)
		}
	}
}

func TestPatternFindsEveryChangedElement(t *testing.T) {
	p := newPattern("v", transport.Float32)
	data := make([]float32, stampEvery+9)
	p.fill(data)
	for _, i := range []int{0, 1, stampEvery - 1, stampEvery, len(data) - 1} {
		was := data[i]
		data[i] = math.Float32frombits(math.Float32bits(was) ^ 1)
		if err := p.checkAll(data, 0); !errors.Is(err, transport.ErrInvalid) {
			t.Errorf("element %d with its lowest bit changed: %v, want %v", i, err, transport.ErrInvalid)
		}
		data[i] = was
	}
	copy(data, data[1:])
	if p.checkAll(data, 0) == nil {
		t.Error("what was moved by one element passes")
	}
}

// A spoiler is a store behind a way that spoils what it carries.
type spoiler struct {
	*store
	push, pull func(data []float32) // nil: as it is
	lose       bool                 // every other push
	pushes     int
}

func (s *spoiler) Push(ctx context.Context, push transport.Push, grads []transport.Part) (transport.Verdict, error) {
	s.pushes++
	if s.lose && s.pushes%2 == 0 {
		return transport.Applied, nil
	}
	if s.push != nil {
		grads = slices.Clone(grads)
		grads[0].Data = slices.Clone(grads[0].Data)
		s.push(grads[0].Data)
	}
	return s.store.Push(ctx, push, grads)
}

func (s *spoiler) Pull(ctx context.Context, minStep int64, dst []transport.Part) (transport.Status, error) {
	st, err := s.store.Pull(ctx, minStep, dst)
	if s.pull != nil {
		s.pull(dst[0].Data)
	}
	return st, err
}

// open returns a session with a service over tr.
func open(t *testing.T, tr transport.Transport, s transport.Service, l load) (*session, context.Context) {
	t.Helper()
	listener, err := tr.Listen("127.0.0.1:0", s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	ses, ctx, err := dial(t.Context(), tr, []string{listener.Addr()}, 0, l, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ses.close)
	if err := ses.join(ctx, 1, ""); err != nil {
		t.Fatal(err)
	}
	return ses, ctx
}

func TestCorruptedTransfersAreCaught(t *testing.T) {
	flip := func(i int) func([]float32) { return func(data []float32) { data[i] = 1 } }
	last := 2*stampEvery - 1
	for _, c := range []struct {
		name      string
		spoiler   spoiler
		direction string
		all       bool // caught only by the check of every element
	}{
		{"a push whose first element changes", spoiler{push: flip(0)}, push, false},
		{"a push whose last element changes", spoiler{push: flip(last)}, push, false},
		{"a push with a hole in the middle", spoiler{push: func(d []float32) { clear(d[1000 : stampEvery+1]) }}, push, false},
		{"a push with one element changed", spoiler{push: flip(777)}, push, true},
		{"a pull whose first element changes", spoiler{pull: flip(0)}, pull, false},
		{"a pull with one element changed", spoiler{pull: flip(777)}, pull, true},
		{"a push that is lost", spoiler{lose: true}, push, false},
	} {
		for name, tr := range map[string]transport.Transport{"inproc": new(inproc.Network), "grpc": grpc.New(grpc.Options{}), plainTCP: plain{}} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				sp := c.spoiler
				sp.store = newStore(1, false, "", quiet)
				s, ctx := open(t, tr, &sp, load{bytes: 4 * int64(last+1), tensors: 1})
				var err error
				for range 3 {
					if err = s.move(ctx, c.direction, false); err != nil {
						break
					}
				}
				if c.all {
					if err != nil {
						t.Fatalf("the stamps are wrong already: %v", err)
					}
					err = s.move(ctx, c.direction, true)
				}
				if err == nil {
					t.Error("nobody noticed")
				}
			})
		}
	}
}

func TestMeasureCountsAndChecks(t *testing.T) {
	for _, direction := range []string{push, pull} {
		store := newStore(1, true, "", quiet)
		s, ctx := open(t, new(inproc.Network), store, load{bytes: 4000, tensors: 3, encoding: transport.Float16})
		sample, err := s.measure(ctx, direction, true, func(calls int64, _ time.Duration) bool { return calls == 7 })
		if err != nil {
			t.Fatal(err)
		}
		if sample.Calls != 7 || sample.Bytes != 7*4000 || sample.Seconds <= 0 {
			t.Errorf("%s: %+v, want 7 calls of 4000 bytes", direction, sample)
		}
		if direction == push {
			got := store.tensors["worker0/tensor2"]
			if err := got.pattern.checkAll(got.data, 9); err != nil { // two more, of which every element was checked
				t.Errorf("the store does not hold the last push: %v", err)
			}
		}
		if err := s.leave(ctx); err != nil {
			t.Fatal(err)
		}
		if err := store.wait(ctx, time.Minute); err != nil {
			t.Errorf("wait = %v after the only worker has left", err)
		}
	}
}

func TestStoreRefusesAnotherJob(t *testing.T) {
	s := newStore(2, false, "", quiet)
	for _, hello := range []transport.Hello{
		{Replica: transport.Replica{Task: 2}},
		{Settings: []transport.Setting{{Name: "workers", Value: "3"}}},
	} {
		if _, err := s.Join(t.Context(), hello); !errors.Is(err, transport.ErrJob) {
			t.Errorf("Join(%+v) = %v, want %v", hello, err, transport.ErrJob)
		}
	}
	if _, err := s.Push(t.Context(), transport.Push{Seq: 1}, []transport.Part{{Variable: "v"}}); !errors.Is(err, transport.ErrUnknownPart) {
		t.Errorf("Push of an unknown tensor = %v", err)
	}
}

func TestStoreNamesWhomItWaitsFor(t *testing.T) {
	s := newStore(2, false, "", quiet)
	if _, err := s.Join(t.Context(), transport.Hello{Replica: transport.Replica{Task: 0}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Leave(t.Context(), transport.Replica{Task: 0}); err != nil {
		t.Fatal(err)
	}
	if err := s.wait(t.Context(), 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "worker 1") {
		t.Errorf("wait = %v, want that worker 1 is missing", err)
	}
}
