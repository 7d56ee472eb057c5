package transporttest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"pushpull/transport"
)

// A shard is a service of few thoughts: it keeps what it is told, answers what
// it was set up to, and has weights of which nothing is ever computed.
type shard struct {
	welcome transport.Welcome     // what Join answers
	about   transport.Description // what Describe answers, with the extents of the weights after its own
	verdict transport.Verdict     // what Push answers
	waiting chan struct{}         // told of each Pull that waits; may be nil

	mu      sync.Mutex
	fail    error                          // guarded by mu; what every call returns, if not nil
	status  transport.Status               // guarded by mu
	moved   chan struct{}                  // guarded by mu; closed when the status changes
	weights []transport.Part               // guarded by mu; as the first Init left them
	hello   transport.Hello                // guarded by mu; the last Join's
	pushed  []transport.Push               // guarded by mu; of all pushes
	grads   []transport.Part               // guarded by mu; of the last push
	ended   map[string][]transport.Replica // guarded by mu; who has called Finish, and Leave
}

var _ transport.Service = (*shard)(nil)

func newShard() *shard {
	return &shard{
		verdict: transport.Applied, status: transport.Status{Step: -1},
		moved: make(chan struct{}), ended: make(map[string][]transport.Replica),
	}
}

// set changes the status and wakes those who wait for it.
func (s *shard) set(st transport.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = st
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *shard) failWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// lastPush returns what the last push brought.
func (s *shard) lastPush() (transport.Push, []transport.Part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pushed[len(s.pushed)-1], s.grads
}

func (s *shard) Join(_ context.Context, hello transport.Hello) (transport.Welcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hello = hello
	return s.welcome, s.fail
}

func (s *shard) Init(_ context.Context, parts []transport.Part) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail == nil && s.weights == nil {
		s.weights = deep(parts)
	}
	return s.fail
}

func (s *shard) Pull(ctx context.Context, minStep int64, dst []transport.Part) (transport.Status, error) {
	for {
		s.mu.Lock()
		st, moved, err := s.status, s.moved, s.fail
		if err == nil && st.Step >= minStep {
			err = s.read(dst)
		}
		s.mu.Unlock()
		if err != nil || st.Step >= minStep {
			return st, err
		}
		if s.waiting != nil {
			s.waiting <- struct{}{}
		}
		select {
		case <-ctx.Done():
			return st, ctx.Err()
		case <-moved:
		}
	}
}

// read fills dst with weights. The caller holds mu.
func (s *shard) read(dst []transport.Part) error {
	for i := range dst {
		p := &dst[i]
		at := slices.IndexFunc(s.weights, func(w transport.Part) bool { return w.Variable == p.Variable && w.Offset == p.Offset })
		if at < 0 {
			return fmt.Errorf("%s[%d:]: %w", p.Variable, p.Offset, transport.ErrUnknownPart)
		}
		w := s.weights[at].Data
		if p.Rows == nil {
			if len(p.Data) != len(w) {
				return fmt.Errorf("%s[%d:]: %d elements, want %d: %w", p.Variable, p.Offset, len(p.Data), len(w), transport.ErrLength)
			}
			copy(p.Data, w)
			continue
		}
		for j, r := range p.Rows {
			lo := int(r) * p.Width
			if lo+p.Width > len(w) {
				return fmt.Errorf("%s[%d:]: no row %d: %w", p.Variable, p.Offset, r, transport.ErrLength)
			}
			copy(p.Data[j*p.Width:(j+1)*p.Width], w[lo:])
		}
	}
	return nil
}

func (s *shard) Push(_ context.Context, push transport.Push, grads []transport.Part) (transport.Verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return 0, s.fail
	}
	push.Cursor = slices.Clone(push.Cursor)
	s.pushed, s.grads = append(s.pushed, push), deep(grads)
	return s.verdict, nil
}

func (s *shard) Finish(_ context.Context, r transport.Replica) error { return s.note("finish", r) }
func (s *shard) Leave(_ context.Context, r transport.Replica) error  { return s.note("leave", r) }

func (s *shard) note(what string, r transport.Replica) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[what] = append(s.ended[what], r)
	return s.fail
}

func (s *shard) Describe(context.Context) (transport.Description, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.about
	d.Extents = slices.Clone(d.Extents)
	for _, w := range s.weights {
		d.Extents = append(d.Extents, transport.Extent{Variable: w.Variable, Offset: w.Offset, Length: len(w.Data), Width: w.Width})
	}
	return d, s.fail
}

// deep returns a copy of parts that shares no memory with them.
func deep(parts []transport.Part) []transport.Part {
	parts = slices.Clone(parts)
	for i := range parts {
		parts[i].Rows, parts[i].Data = slices.Clone(parts[i].Rows), slices.Clone(parts[i].Data)
	}
	return parts
}
