package ps

import (
	"fmt"
	"math"
	"slices"

	"pushpull/transport"
)

// A Shard is the part of the model one parameter server owns. It is a plain
// state machine: no lock, no goroutine, no clock, no network; the same calls in
// the same order leave the same bits. The package comment lists its invariants.
//
// Its calls are those of [transport.Service], less the waiting. They keep no
// reference to their arguments.
type Shard struct {
	cfg  Config
	task string // "ps/0"

	plan    transport.Plan
	planned bool // a replica of this shard's life has given the plan
	done    bool

	step      int64
	seen      int64 // examples, in all pushes
	stepStart int64 // examples seen when this step's gathering began
	gathered  int   // gradients in the sums of the parts

	replicas []replica // by task
	parts    []*part   // sorted by variable and offset
	byName   map[partName]*part

	stamp   uint64      // counts gradients looked up; see part.stamp
	matched []*part     // scratch: the parts of a push, in its order
	slots   [][]float32 // scratch: one row of each slot
}

// NewShard returns a shard without weights.
func NewShard(cfg Config) (*Shard, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return newShard(cfg), nil
}

func newShard(cfg Config) *Shard {
	return &Shard{
		cfg:      cfg,
		task:     fmt.Sprintf("ps/%d", cfg.Task),
		step:     -1,
		replicas: make([]replica, cfg.Replicas),
		slots:    make([][]float32, cfg.Optimizer.Slots()),
	}
}

// Init sets the weights, which it copies, unless the shard has some. Parts that
// overlap or list rows are ErrInvalid.
func (s *Shard) Init(parts []transport.Part) error {
	if s.step >= 0 || s.done {
		return nil
	}
	held := make([]*part, len(parts))
	for i, p := range parts {
		h, err := newPart(p)
		if err != nil {
			return fmt.Errorf("%s: init: %w", s.task, err)
		}
		held[i] = h
	}
	if err := sortParts(held); err != nil {
		return fmt.Errorf("%s: init: %w", s.task, err)
	}
	for _, h := range held {
		h.w = slices.Clone(h.w)
		for slot := range s.cfg.Optimizer.Slots() {
			h.slots = append(h.slots, filled(len(h.w), s.cfg.Optimizer.SlotInit(slot)))
		}
	}
	s.hold(held)
	s.step = 0
	return nil
}

// hold makes parts, which are sorted, what the shard holds.
func (s *Shard) hold(parts []*part) {
	s.parts = parts
	s.byName = make(map[partName]*part, len(parts))
	for _, h := range parts {
		s.byName[h.partName] = h
	}
}

// Pull fills dst with the current weights and says of which step they are. It
// changes nothing in the shard.
func (s *Shard) Pull(dst []transport.Part) (transport.Status, error) {
	for i := range dst {
		if _, err := s.find(&dst[i]); err != nil {
			return transport.Status{}, fmt.Errorf("%s: pull: %w", s.task, err)
		}
	}
	for i := range dst {
		p := &dst[i]
		h := s.byName[partName{p.Variable, p.Offset}]
		if p.Rows == nil {
			copy(p.Data, h.w)
			continue
		}
		for j, row := range p.Rows {
			copy(p.Data[j*h.width:(j+1)*h.width], h.w[int(row)*h.width:])
		}
	}
	return s.Status(), nil
}

// find returns the part that p names, or why p does not fit it.
func (s *Shard) find(p *transport.Part) (*part, error) {
	if err := p.Check(len(p.Data)); err != nil {
		return nil, err
	}
	h, ok := s.byName[partName{p.Variable, p.Offset}]
	switch {
	case !ok && s.step < 0:
		return nil, fmt.Errorf("%s: the shard has no weights yet: %w", partName{p.Variable, p.Offset}, transport.ErrUnknownPart)
	case !ok:
		return nil, fmt.Errorf("%s: the shard has no such part: %w", partName{p.Variable, p.Offset}, transport.ErrUnknownPart)
	}
	return h, h.check(p)
}

// Status returns where the shard stands.
func (s *Shard) Status() transport.Status {
	return transport.Status{
		Step:         s.step,
		Examples:     s.seen,
		LearningRate: s.rate(),
		Done:         s.done,
	}
}

// rate returns the learning rate of the next update.
func (s *Shard) rate() float64 {
	epoch := 0
	if s.plan.EpochExamples > 0 {
		epoch = int(min(s.stepStart/s.plan.EpochExamples, math.MaxInt32))
	}
	return s.cfg.Schedule.At(epoch)
}

// awaited returns the tasks of the replicas that could still add a gradient to
// the next update, in order.
func (s *Shard) awaited() []int {
	var tasks []int
	for task := range s.replicas {
		if s.replicas[task].awaited() {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// Describe tells what the shard holds and whom it has heard of. The result is
// the caller's.
func (s *Shard) Describe() transport.Description {
	d := transport.Description{
		Task:     s.task,
		Settings: slices.Clone(s.cfg.Settings),
		Status:   s.Status(),
		Plan:     s.plan,
	}
	for _, h := range s.parts {
		d.Extents = append(d.Extents, h.extent())
	}
	for task := range s.replicas {
		r := &s.replicas[task]
		d.Replicas = append(d.Replicas, transport.ReplicaState{
			Task:     task,
			Joined:   r.joined,
			Finished: r.finished,
			Left:     r.left,
			Examples: r.examples,
			Verdicts: r.verdicts.toMap(),
		})
	}
	return d
}

// filled returns n elements of value x.
func filled(n int, x float32) []float32 {
	v := make([]float32, n)
	if x != 0 {
		for i := range v {
			v[i] = x
		}
	}
	return v
}
