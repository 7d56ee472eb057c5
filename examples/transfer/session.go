package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"pushpull/examples/transfer/race"
	"pushpull/transport"
)

// Directions that tensors can go.
const (
	push = "push"
	pull = "pull"
	both = "both"
)

// A session is a worker's side: its tensors, and a connection to every ps.
type session struct {
	conns    []transport.Conn
	parts    [][]transport.Part // by ps: the tensors it holds, and what they are pushed from
	weights  [][]transport.Part // by ps: what they are pulled into
	patterns [][]pattern        // by ps
	hello    transport.Hello
	limit    time.Duration // for one answer
	stop     context.CancelCauseFunc
	timer    *time.Timer // calls stop when the limit is over
	pushes   uint64
	pulls    uint64
}

// A load is what a session moves.
type load struct {
	bytes    int64 // in memory
	tensors  int
	encoding transport.Encoding
}

// newSession makes tensors, and spreads them over conns in turn. It closes
// conns when it is closed. Its context, which all calls must have, ends when a
// call takes longer than limit.
func newSession(ctx context.Context, conns []transport.Conn, task int, l load, limit time.Duration) (*session, context.Context) {
	s := &session{
		conns: conns, hello: transport.Hello{Replica: transport.Replica{Task: task, Life: rand.Uint64()}}, limit: limit,
		parts: make([][]transport.Part, len(conns)), weights: make([][]transport.Part, len(conns)), patterns: make([][]pattern, len(conns)),
	}
	ctx, s.stop = context.WithCancelCause(ctx)
	s.timer = time.AfterFunc(limit, func() {
		s.stop(fmt.Errorf("the ps has not answered for %v (--timeout)", limit))
	})
	elements := int(l.bytes / 4)
	for i := range l.tensors {
		n := elements / l.tensors
		if i < elements%l.tensors {
			n++
		}
		name := fmt.Sprintf("worker%d/tensor%d", task, i)
		p := newPattern(name, l.encoding)
		part := transport.Part{Variable: name, Encoding: l.encoding, Data: make([]float32, n)}
		p.fill(part.Data)
		weights := part
		weights.Data = make([]float32, n)
		at := i % len(conns)
		s.parts[at] = append(s.parts[at], part)
		s.weights[at] = append(s.weights[at], weights)
		s.patterns[at] = append(s.patterns[at], p)
	}
	return s, ctx
}

// measure moves all tensors in a direction until enough says so, and checks
// every element before and after that. shared says that the ps is this same
// process, whose cost is not to be counted twice.
func (s *session) measure(ctx context.Context, direction string, shared bool, enough func(calls int64, took time.Duration) bool) (race.Sample, error) {
	var sample race.Sample
	far := func() (race.Cost, error) {
		if shared {
			return race.Cost{}, nil
		}
		return s.cost(ctx)
	}
	if err := s.move(ctx, direction, true); err != nil {
		return sample, err
	}
	farBefore, err := far()
	if err != nil {
		return sample, err
	}
	nearBefore, start := race.Spent(), time.Now()
	for ; !enough(sample.Calls, time.Since(start)); sample.Calls++ {
		if err := s.move(ctx, direction, false); err != nil {
			return sample, err
		}
	}
	sample.Seconds = time.Since(start).Seconds()
	nearAfter := race.Spent()
	farAfter, err := far()
	if err != nil {
		return sample, err
	}
	sample.Bytes = sample.Calls * s.bytes()
	sample.Cost = nearAfter.Since(nearBefore).Plus(farAfter.Since(farBefore))
	return sample, s.move(ctx, direction, true)
}

// bytes returns what one transfer moves, as it lies in memory.
func (s *session) bytes() (n int64) {
	for _, parts := range s.parts {
		for i := range parts {
			n += 4 * int64(len(parts[i].Data))
		}
	}
	return n
}

// close ends the session. It does not tell the ps: see leave.
func (s *session) close() {
	s.timer.Stop()
	s.stop(nil)
	for _, c := range s.conns {
		c.Close()
	}
}

// each makes a call to every ps at once.
func (s *session) each(ctx context.Context, call func(ctx context.Context, at int, c transport.Conn) error) error {
	s.timer.Reset(s.limit)
	if len(s.conns) == 1 {
		return caused(ctx, call(ctx, 0, s.conns[0]))
	}
	g, inner := errgroup.WithContext(ctx)
	for at, c := range s.conns {
		g.Go(func() error { return call(inner, at, c) })
	}
	return caused(ctx, g.Wait())
}

// caused returns why ctx ended, if that is why err came.
func caused(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

// join announces the worker, and gives every ps its tensors. With a congestion
// control it sets that of this process's sockets.
func (s *session) join(ctx context.Context, workers int, congestion string) error {
	s.hello.Settings = []transport.Setting{{Name: "workers", Value: strconv.Itoa(workers)}}
	if _, err := s.cost(ctx); err != nil {
		return err
	}
	if congestion != "" {
		if _, err := race.SetCongestion(congestion); err != nil {
			return err
		}
	}
	return s.each(ctx, func(ctx context.Context, at int, c transport.Conn) error { return c.Init(ctx, s.parts[at]) })
}

func (s *session) leave(ctx context.Context) error {
	return s.each(ctx, func(ctx context.Context, at int, c transport.Conn) error { return c.Leave(ctx, s.hello.Replica) })
}

// push sends all tensors once. The ps checks their stamps, or every element.
func (s *session) push(ctx context.Context, all bool) error {
	s.pushes++
	p := transport.Push{Replica: s.hello.Replica, Seq: s.pushes}
	for at := range s.parts {
		for i := range s.parts[at] {
			data := s.parts[at][i].Data
			s.patterns[at][i].stamp(data, p.Seq)
			if all {
				p.Examples += int64(len(data))
			}
		}
	}
	return s.each(ctx, func(ctx context.Context, at int, c transport.Conn) error {
		v, err := c.Push(ctx, p, s.parts[at])
		if err == nil && v != transport.Applied {
			return fmt.Errorf("push %d: the ps says %v, want %v", p.Seq, v, transport.Applied)
		}
		return err
	})
}

// pull fetches all tensors once, and checks their stamps or every element.
func (s *session) pull(ctx context.Context, all bool) error {
	s.pulls++
	number := s.pulls
	return s.each(ctx, func(ctx context.Context, at int, c transport.Conn) error {
		if _, err := c.Pull(ctx, int64(number), s.weights[at]); err != nil {
			return err
		}
		for i, p := range s.patterns[at] {
			check := p.checkStamps
			if all {
				check = p.checkAll
			}
			if err := check(s.weights[at][i].Data, number); err != nil {
				return fmt.Errorf("pull %d of %s: %w", number, s.weights[at][i].Variable, err)
			}
		}
		return nil
	})
}

// move makes one transfer in a direction.
func (s *session) move(ctx context.Context, direction string, all bool) error {
	if direction == pull {
		return s.pull(ctx, all)
	}
	return s.push(ctx, all)
}

// cost returns what every ps has used so far: they tell whoever joins, also
// again.
func (s *session) cost(ctx context.Context) (race.Cost, error) {
	costs := make([]race.Cost, len(s.conns))
	err := s.each(ctx, func(ctx context.Context, at int, c transport.Conn) error {
		w, err := c.Join(ctx, s.hello)
		if err != nil {
			return err
		}
		costs[at], err = decodeCost(w.Cursor)
		return err
	})
	var sum race.Cost
	for _, c := range costs {
		sum = sum.Plus(c)
	}
	return sum, err
}
