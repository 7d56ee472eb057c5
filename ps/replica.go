package ps

import (
	"fmt"
	"slices"

	"pushpull/transport"
)

// replica is what a shard knows of one worker task.
type replica struct {
	joined   bool
	finished bool     // it pushes no more
	left     bool     // it is gone; it has finished then
	life     uint64   // of the process that joined last
	past     []uint64 // lives that were replaced, the latest of them

	seq     uint64            // of this life's last push; 0 if none
	verdict transport.Verdict // on that push

	progress          // as of the last push, of whatever life
	turn     bool     // its gradient is part of the next update
	before   progress // if turn: as of before that gradient
}

// progress is what a checkpoint keeps of a replica.
type progress struct {
	last     uint64 // sequence number of the last push
	cursor   []byte // of the last push that bore one; nil if none
	examples int64
	verdicts ledger
}

// ledger counts verdicts.
type ledger [transport.Duplicate + 1]int64

func (l *ledger) toMap() map[transport.Verdict]int64 {
	m := make(map[transport.Verdict]int64)
	for v, n := range l {
		if n > 0 {
			m[transport.Verdict(v)] = n
		}
	}
	return m
}

// maxPast is how many replaced lives a shard remembers for each task, so that a
// late call of one is not taken for a new process.
const maxPast = 64

// awaited reports whether the replica could still add a gradient to the next
// update.
func (r *replica) awaited() bool { return !r.finished && !r.turn }

// join makes life the replica's process. It returns false if that has been
// replaced already.
func (r *replica) join(life uint64) bool {
	if r.joined && r.life == life {
		return true
	}
	if slices.Contains(r.past, life) {
		return false
	}
	if r.joined {
		if len(r.past) == maxPast {
			r.past = slices.Delete(r.past, 0, 1)
		}
		r.past = append(r.past, r.life)
	}
	r.joined, r.finished, r.left, r.life = true, false, false, life
	r.seq, r.verdict = 0, 0
	return true
}

// record enters a push and the first verdict on it.
func (r *replica) record(p *transport.Push, v transport.Verdict) {
	r.seq, r.verdict = p.Seq, v
	r.last = p.Seq
	r.examples += p.Examples
	r.verdicts[v]++
	if p.Cursor != nil {
		r.cursor = append(notNil(r.cursor)[:0], p.Cursor...)
	}
}

// keep remembers the replica's progress before a push that is gathered.
func (r *replica) keep() {
	spare := r.before.cursor
	r.before = r.progress
	if r.cursor != nil {
		r.cursor = append(notNil(spare)[:0], r.cursor...)
	}
}

// settled returns the replica's progress as of the last update.
func (r *replica) settled() *progress {
	if r.turn {
		return &r.before
	}
	return &r.progress
}

// Join announces a replica and what it expects of the job. The plan of the
// first one is adopted; after a restore, of the first one since. Whoever joins a
// restored shard is new to it, so that a push it has sent before is not known
// as a repeated one: Welcome.Seq tells whether it is in the checkpoint.
func (s *Shard) Join(h transport.Hello) (transport.Welcome, error) {
	who := worker(h.Replica.Task)
	if h.Replica.Task < 0 || h.Replica.Task >= len(s.replicas) {
		return transport.Welcome{}, fmt.Errorf("%s: %w: %s joined, this server expects %s to %s; start all processes with the same flags",
			s.task, transport.ErrJob, who, worker(0), worker(len(s.replicas)-1))
	}
	if name := repeatedName(h.Settings); name != "" {
		return transport.Welcome{}, fmt.Errorf("%s: join: %s gives the setting %q twice: %w", s.task, who, name, transport.ErrInvalid)
	}
	if name, our, their, ok := mismatch(s.cfg.Settings, h.Settings); !ok {
		return transport.Welcome{}, fmt.Errorf("%s: %w: %s: %s says %s, this server runs %s; start all processes with the same flags",
			s.task, transport.ErrJob, name, who, their, our)
	}
	if err := s.checkPlan(who, h.Plan); err != nil {
		return transport.Welcome{}, err
	}
	r := &s.replicas[h.Replica.Task]
	if !r.join(h.Replica.Life) {
		return transport.Welcome{}, s.replaced("join", who)
	}
	s.plan, s.planned = h.Plan, true
	s.settle()
	return transport.Welcome{
		Step:   s.step,
		Saves:  s.cfg.Checkpoint.Dir != "",
		Cursor: slices.Clone(r.cursor),
		Seq:    r.last,
	}, nil
}

// checkPlan compares a replica's plan with the shard's, if it has one.
func (s *Shard) checkPlan(who string, plan transport.Plan) error {
	for _, field := range []struct {
		name       string
		our, their int64
	}{
		{"EpochExamples", s.plan.EpochExamples, plan.EpochExamples},
		{"Examples", s.plan.Examples, plan.Examples},
		{"Steps", s.plan.Steps, plan.Steps},
	} {
		if field.their < 0 {
			return fmt.Errorf("%s: join: Plan.%s of %s is %d: want at least 0: %w",
				s.task, field.name, who, field.their, transport.ErrInvalid)
		}
		if s.planned && field.our != field.their {
			return fmt.Errorf("%s: %w: Plan.%s: %s says %d, the first worker to join said %d; give all workers the same data, epochs and steps",
				s.task, transport.ErrJob, field.name, who, field.their, field.our)
		}
	}
	return nil
}

// Finish says that a replica pushes no more, so that nobody waits for its
// gradients. That may complete an update, or end training.
func (s *Shard) Finish(id transport.Replica) error {
	r, err := s.caller("finish", id)
	if err != nil {
		return err
	}
	r.finished = true
	s.settle()
	return nil
}

// Leave says that a replica is gone, and has finished before that.
func (s *Shard) Leave(id transport.Replica) error {
	r, err := s.caller("leave", id)
	if err != nil {
		return err
	}
	r.finished, r.left = true, true
	s.settle()
	return nil
}

// caller returns the replica of a call's id, or why it may not call.
func (s *Shard) caller(call string, id transport.Replica) (*replica, error) {
	if id.Task < 0 || id.Task >= len(s.replicas) || !s.replicas[id.Task].joined {
		return nil, fmt.Errorf("%s: %s: %s: %w; join first", s.task, call, worker(id.Task), transport.ErrNotJoined)
	}
	r := &s.replicas[id.Task]
	if r.life != id.Life {
		if slices.Contains(r.past, id.Life) {
			return nil, s.replaced(call, worker(id.Task))
		}
		return nil, fmt.Errorf("%s: %s: this process of %s: %w; join first", s.task, call, worker(id.Task), transport.ErrNotJoined)
	}
	return r, nil
}

func (s *Shard) replaced(call, who string) error {
	return fmt.Errorf("%s: %s: %s: %w by a later process of the same task; end this one", s.task, call, who, transport.ErrReplaced)
}

// worker returns a worker task's name.
func worker(task int) string { return fmt.Sprintf("worker/%d", task) }

// notNil returns b, or an empty slice that is not nil.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
