package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pushpull/examples/transfer/race"
	"pushpull/transport"
)

// A store is the ps side: a [transport.Service] that holds every worker's
// tensors, and checks that what is pushed is what was sent.
//
// A push is read where it arrived, as an optimizer would read it. Where nothing
// moves it there, because worker and ps are one process, the store copies it
// into its own memory: keep says so. A pull is copied out of the tensors.
type store struct {
	keep       bool
	workers    int
	congestion string // control for the sockets of this process; "" leaves them
	log        func(format string, args ...any)

	mu      sync.Mutex
	tensors map[string]*tensor // guarded by mu; by variable
	extents []transport.Extent // guarded by mu, not what they hold: of the tensors, by name
	joined  map[int]bool       // guarded by mu; by task: true until it leaves
	heard   time.Time          // guarded by mu; when the last call began or ended
	calls   int                // guarded by mu; under way
	left    chan struct{}      // closed when all workers have come and left
}

var _ transport.Service = (*store)(nil)

// A tensor is one variable as the store has it.
type tensor struct {
	pattern pattern

	mu     sync.Mutex
	data   []float32 // guarded by mu
	pushed uint64    // guarded by mu; number of the last push
}

func newStore(workers int, keep bool, congestion string, log func(format string, args ...any)) *store {
	return &store{
		keep: keep, workers: workers, congestion: congestion, log: log,
		tensors: map[string]*tensor{}, joined: map[int]bool{}, heard: time.Now(), left: make(chan struct{}),
	}
}

// wait returns when all workers have come and left. It returns an error if ctx
// ends before, or nobody calls for longer than limit.
func (s *store) wait(ctx context.Context, limit time.Duration) error {
	tick := time.NewTicker(min(time.Second, limit))
	defer tick.Stop()
	for {
		select {
		case <-s.left:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if missing, silent := s.silence(); silent > limit {
				return fmt.Errorf("no call for %v, want %s to come and leave within --timeout=%v", silent.Round(time.Second), missing, limit)
			}
		}
	}
}

// silence returns who is still expected, and for how long nobody has called.
func (s *store) silence() (missing string, silent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls > 0 {
		return "", 0
	}
	for task := range s.workers {
		if here, came := s.joined[task]; here || !came {
			return fmt.Sprintf("worker %d", task), time.Since(s.heard)
		}
	}
	return "", 0
}

// enter notes a call until the function it returns is called.
func (s *store) enter() (leave func()) {
	s.count(1)
	return func() { s.count(-1) }
}

func (s *store) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls += n
	s.heard = time.Now()
}

// Join takes a worker in, if it expects as many as the store. The cursor of the
// answer is what this process has used so far, also for a worker that is in.
func (s *store) Join(_ context.Context, hello transport.Hello) (transport.Welcome, error) {
	defer s.enter()()
	task := hello.Replica.Task
	for _, set := range hello.Settings {
		if want := strconv.Itoa(s.workers); set.Name == "workers" && set.Value != want {
			return transport.Welcome{}, fmt.Errorf("worker %d counts %s workers, the ps %s: want the same --worker_hosts: %w", task, set.Value, want, transport.ErrJob)
		}
	}
	if task < 0 || task >= s.workers {
		return transport.Welcome{}, fmt.Errorf("worker %d of %d: %w", task, s.workers, transport.ErrJob)
	}
	s.mu.Lock()
	again := s.joined[task]
	s.joined[task] = true
	s.mu.Unlock()
	if !again {
		s.log("worker %d has come", task)
	}
	if s.congestion != "" {
		if _, err := race.SetCongestion(s.congestion); err != nil {
			return transport.Welcome{}, err
		}
	}
	return transport.Welcome{Step: -1, Cursor: encodeCost(race.Spent())}, nil
}

// Init makes tensors of parts, after it has checked every element.
func (s *store) Init(_ context.Context, parts []transport.Part) error {
	defer s.enter()()
	for i := range parts {
		p := &parts[i]
		t := &tensor{pattern: newPattern(p.Variable, p.Encoding), data: make([]float32, len(p.Data))}
		if err := t.pattern.checkAll(p.Data, 0); err != nil {
			return fmt.Errorf("init %s: %w", p.Variable, err)
		}
		copy(t.data, p.Data)
		s.add(p.Variable, t, len(p.Data))
	}
	return nil
}

// add takes a tensor in, instead of one of the same name if there is one.
func (s *store) add(variable string, t *tensor, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tensors[variable] = t
	extents := slices.DeleteFunc(slices.Clone(s.extents), func(e transport.Extent) bool { return e.Variable == variable })
	extents = append(extents, transport.Extent{Variable: variable, Length: n})
	slices.SortFunc(extents, func(a, b transport.Extent) int { return strings.Compare(a.Variable, b.Variable) })
	s.extents = extents
}

func (s *store) tensor(p *transport.Part) (*tensor, error) {
	s.mu.Lock()
	t := s.tensors[p.Variable]
	s.mu.Unlock()
	if t == nil {
		return nil, fmt.Errorf("%s: %w", p.Variable, transport.ErrUnknownPart)
	}
	if len(p.Data) != len(t.data) {
		return nil, fmt.Errorf("%s: %d elements, want %d: %w", p.Variable, len(p.Data), len(t.data), transport.ErrLength)
	}
	return t, nil
}

// Push checks the stamps of what was pushed, or with push.Examples every
// element, and that no push was lost or came twice.
func (s *store) Push(_ context.Context, push transport.Push, grads []transport.Part) (transport.Verdict, error) {
	defer s.enter()()
	for i := range grads {
		t, err := s.tensor(&grads[i])
		if err == nil {
			err = t.push(push, grads[i].Data, s.keep)
		}
		if err != nil {
			return 0, fmt.Errorf("push %d of %s: %w", push.Seq, grads[i].Variable, err)
		}
	}
	return transport.Applied, nil
}

func (t *tensor) push(push transport.Push, data []float32, keep bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if push.Seq != t.pushed+1 {
		return fmt.Errorf("it comes after %d: %w", t.pushed, transport.ErrInvalid)
	}
	t.pushed = push.Seq
	if keep {
		copy(t.data, data)
	}
	if push.Examples > 0 {
		return t.pattern.checkAll(data, push.Seq)
	}
	return t.pattern.checkStamps(data, push.Seq)
}

// Pull fills dst with the tensors, bearing the stamps of transfer minStep.
func (s *store) Pull(_ context.Context, minStep int64, dst []transport.Part) (transport.Status, error) {
	defer s.enter()()
	for i := range dst {
		t, err := s.tensor(&dst[i])
		if err != nil {
			return transport.Status{}, fmt.Errorf("pull %d: %w", minStep, err)
		}
		t.pull(uint64(minStep), dst[i].Data)
	}
	return transport.Status{Step: minStep}, nil
}

func (t *tensor) pull(number uint64, dst []float32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pattern.stamp(t.data, number)
	copy(dst, t.data)
}

// Finish does nothing: nobody waits for a worker's gradients.
func (s *store) Finish(context.Context, transport.Replica) error { return nil }

// Leave notes that a worker is done.
func (s *store) Leave(_ context.Context, r transport.Replica) error {
	defer s.enter()()
	s.mu.Lock()
	defer s.mu.Unlock()
	if here, came := s.joined[r.Task]; !came || !here {
		return nil
	}
	s.joined[r.Task] = false
	s.log("worker %d has left", r.Task)
	if len(s.joined) < s.workers {
		return nil
	}
	for _, here := range s.joined {
		if here {
			return nil
		}
	}
	select {
	case <-s.left: // a worker came again after all had left
	default:
		close(s.left)
	}
	return nil
}

// Describe lists the tensors.
func (s *store) Describe(context.Context) (transport.Description, error) {
	defer s.enter()()
	s.mu.Lock()
	defer s.mu.Unlock()
	return transport.Description{Task: "ps", Extents: s.extents}, nil
}

// encodeCost writes a cost as bytes.
func encodeCost(c race.Cost) []byte {
	b := binary.LittleEndian.AppendUint64(nil, math.Float64bits(c.CPUSeconds))
	return binary.LittleEndian.AppendUint64(b, c.AllocBytes)
}

// decodeCost reads what encodeCost wrote.
func decodeCost(b []byte) (race.Cost, error) {
	if len(b) != 16 {
		return race.Cost{}, fmt.Errorf("the ps tells its cost in %d bytes, want 16: %w", len(b), transport.ErrInvalid)
	}
	return race.Cost{
		CPUSeconds: math.Float64frombits(binary.LittleEndian.Uint64(b)),
		AllocBytes: binary.LittleEndian.Uint64(b[8:]),
	}, nil
}
