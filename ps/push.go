package ps

import (
	"fmt"
	"math"

	"pushpull/transport"
)

// Push takes one replica's gradient and says what became of it.
func (s *Shard) Push(p transport.Push, grads []transport.Part) (transport.Verdict, error) {
	r, err := s.caller("push", p.Replica)
	if err != nil {
		return 0, err
	}
	if p.Seq > 0 && p.Seq <= r.seq {
		r.verdicts[transport.Duplicate]++
		if p.Seq == r.seq {
			return r.verdict, nil
		}
		return transport.Duplicate, nil
	}
	if err := s.check(&p, grads); err != nil {
		return 0, fmt.Errorf("%s: push: %s: %w", s.task, worker(p.Replica.Task), err)
	}

	s.seen += p.Examples
	verdict := s.judge(&p, r, grads)
	if verdict == 0 {
		verdict = s.gather(r, grads)
	}
	r.record(&p, verdict)
	s.settle()
	return verdict, nil
}

// repeats reports whether p bears a sequence number that its life has used.
func (s *Shard) repeats(p *transport.Push) bool {
	r, err := s.caller("push", p.Replica)
	return err == nil && p.Seq > 0 && p.Seq <= r.seq
}

// check returns why a push that is not a repeated one cannot be taken, and else
// leaves its parts in s.matched.
func (s *Shard) check(p *transport.Push, grads []transport.Part) error {
	switch {
	case p.Seq == 0:
		return fmt.Errorf("sequence number 0: want them counted from 1: %w", transport.ErrInvalid)
	case p.Step < 0:
		return fmt.Errorf("gradient of step %d: want at least 0: %w", p.Step, transport.ErrInvalid)
	case p.Examples < 0 || p.Examples > math.MaxInt64-s.seen:
		return fmt.Errorf("gradient of %d examples, after %d: want at least 0, and a sum in range: %w", p.Examples, s.seen, transport.ErrInvalid)
	}
	s.stamp++
	s.matched = s.matched[:0]
	for i := range grads {
		h, err := s.find(&grads[i])
		if err != nil {
			return err
		}
		if h.stamp == s.stamp {
			return fmt.Errorf("%s is given twice: %w", h, transport.ErrInvalid)
		}
		h.stamp = s.stamp
		s.matched = append(s.matched, h)
	}
	if p.Step > s.step {
		return fmt.Errorf("gradient of step %d, the shard is at step %d: %w", p.Step, s.step, transport.ErrRolledBack)
	}
	return nil
}

// judge returns the verdict on a gradient that is dropped, 0 if it is not.
func (s *Shard) judge(p *transport.Push, r *replica, grads []transport.Part) transport.Verdict {
	switch {
	case s.done || r.finished:
		return transport.Surplus
	case s.step-p.Step > s.cfg.Policy.MaxStaleness:
		return transport.Stale
	}
	for i := range grads {
		if !finite(grads[i].Data) {
			return transport.NotFinite
		}
	}
	if r.turn {
		return transport.Surplus
	}
	return 0
}

// gather makes a gradient, whose parts are s.matched, part of the next update,
// and makes that update if it is complete.
func (s *Shard) gather(r *replica, grads []transport.Part) transport.Verdict {
	r.turn = true
	s.gathered++
	complete := s.complete()
	if complete && s.gathered == 1 {
		s.update(func(u update) {
			for i, h := range s.matched {
				h.apply(u, &grads[i])
			}
			for _, h := range s.parts {
				if h.stamp != s.stamp {
					h.applyZero(u)
				}
			}
		})
		return transport.Applied
	}
	for i, h := range s.matched {
		if p := &grads[i]; p.Rows == nil {
			h.sum.add(p.Data)
		} else {
			h.sum.addRows(len(h.w), h.width, p.Rows, p.Data)
		}
	}
	if complete {
		s.updateFromSum()
		return transport.Applied
	}
	r.keep()
	return transport.Gathered
}

// complete reports whether the gathered gradients make an update.
func (s *Shard) complete() bool {
	if s.gathered == 0 {
		return false
	}
	if s.gathered >= s.cfg.Policy.Aggregate || s.planSeen() {
		return true
	}
	for task := range s.replicas {
		if s.replicas[task].awaited() {
			return false
		}
	}
	return true
}

func (s *Shard) updateFromSum() {
	s.update(func(u update) {
		for _, h := range s.parts {
			h.applySum(u, s.gathered)
		}
	})
}

// update moves on by one step: apply updates the parts.
func (s *Shard) update(apply func(update)) {
	apply(update{opt: s.cfg.Optimizer, t: s.step + 1, rate: float32(s.rate()), slots: s.slots})
	s.step++
	s.stepStart = s.seen
	s.gathered = 0
	for task := range s.replicas {
		s.replicas[task].turn = false
	}
}

// settle makes the update that has become complete without a further gradient,
// and ends training when its end has come. Every call that changes the shard
// ends with it.
func (s *Shard) settle() {
	if s.complete() {
		s.updateFromSum()
	}
	s.done = s.done || s.planSeen() || s.plan.Steps > 0 && s.planned && s.step >= s.plan.Steps || s.allFinished()
}

// planSeen reports whether the planned examples have been seen.
func (s *Shard) planSeen() bool {
	return s.planned && s.plan.Examples > 0 && s.seen >= s.plan.Examples
}

func (s *Shard) allFinished() bool {
	for task := range s.replicas {
		if !s.replicas[task].finished {
			return false
		}
	}
	return true
}
