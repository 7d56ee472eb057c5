package ps

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// ErrIdle reports a job that went silent: nobody has called a server for its
// Config.IdleLimit although training is not over.
var ErrIdle = errors.New("nobody calls")

// Run saves checkpoints and returns when the process may end: nil once training
// is over and every replica that joined has left, or none of those that stay has
// called for Config.Linger. It saves the last state, whatever ends it; a checkpoint that fails on the
// way is only logged and counted, but the last one failing is an error. If
// nobody calls for Config.IdleLimit it returns [ErrIdle] with the names of the
// replicas that are missing, and if ctx ends first, ctx's error.
//
// Run is to be called once. It starts no goroutine.
func (s *Server) Run(ctx context.Context) error {
	trainErr := s.train(ctx)
	var saveErr error
	if s.cfg.Checkpoint.Dir != "" {
		if err := s.save(); err != nil {
			saveErr = fmt.Errorf("%s: last checkpoint: %w", s.shard.task, err)
		}
	}
	if trainErr == nil {
		s.linger(ctx) // whatever became of the checkpoint, the workers get their weights
	}
	return errors.Join(trainErr, saveErr)
}

// train saves checkpoints until training is over.
func (s *Server) train(ctx context.Context) error {
	every := s.cfg.Checkpoint.Every
	saved := max(s.restored, 0) // step of the last checkpoint
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		state := s.state()
		if state.done {
			return nil
		}
		if every > 0 && state.step/every > saved/every {
			saved = state.step
			if err := s.save(); err != nil {
				s.cfg.Log.Error("checkpoint failed, training goes on", "task", s.shard.task, "step", saved, "error", err)
			}
			continue // the shard may have changed meanwhile
		}
		idle, err := s.idle()
		if err != nil {
			return err
		}
		timer.Reset(idle)
		select {
		case <-state.changed:
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// idle returns how long the server may still go without a call, or an error
// that names the missing if that time is over.
func (s *Server) idle() (time.Duration, error) {
	const forever = 24 * time.Hour // looked at again after that
	limit := s.cfg.IdleLimit
	if limit < 0 {
		return forever, nil
	}
	if left := limit - s.quiet(); left > 0 {
		return left, nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var missing []int
	for task := range s.shard.replicas {
		if !s.shard.replicas[task].finished {
			missing = append(missing, task)
		}
	}
	return 0, fmt.Errorf("%s: %w: none in %v, at step %d of training; missing are %s; see why they ended, or raise the idle limit",
		s.shard.task, ErrIdle, limit, s.shard.step, s.names(missing))
}

// linger waits until every replica that joined has left, as long as one of them
// is heard of now and then.
func (s *Server) linger(ctx context.Context) {
	over := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		state := s.state()
		if len(state.staying) == 0 {
			return
		}
		left := s.cfg.Linger - time.Since(later(over, s.lastHeard(state.staying)))
		if left <= 0 {
			s.mu.RLock()
			names := s.names(state.staying)
			s.mu.RUnlock()
			s.cfg.Log.Warn("training is over, but some workers have not left", "task", s.shard.task, "workers", names, "waited", s.cfg.Linger)
			return
		}
		timer.Reset(left)
		select {
		case <-state.changed:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// lastHeard returns when one of the replicas has called last.
func (s *Server) lastHeard(tasks []int) (t time.Time) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, task := range tasks {
		t = later(t, s.heard[task])
	}
	return t
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// state is what Run acts on.
type state struct {
	step    int64
	done    bool
	staying []int           // replicas that joined and have not left
	changed <-chan struct{} // closed when the state has changed
}

func (s *Server) state() state {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := state{step: s.shard.step, done: s.shard.done, changed: s.changed}
	for task := range s.shard.replicas {
		if r := &s.shard.replicas[task]; r.joined && !r.left {
			st.staying = append(st.staying, task)
		}
	}
	return st
}

// save writes a checkpoint, if there are weights, and removes those that are
// not to be kept. It holds up pushes only while it copies the shard.
func (s *Server) save() error {
	start := time.Now()
	s.mu.RLock()
	snap := s.shard.snapshot()
	if snap.step < 0 {
		s.mu.RUnlock()
		return nil
	}
	snap.detach()
	s.mu.RUnlock()
	dir := s.cfg.Checkpoint.Dir
	name, err := writeCheckpoint(dir, snap)
	s.metrics.checkpoint(err)
	if err != nil {
		return fmt.Errorf("save %s: %w", filepath.Join(dir, name.String()), err)
	}
	s.cfg.Log.Info("saved checkpoint", "task", s.shard.task, "file", filepath.Join(dir, name.String()),
		"step", snap.step, "bytes", snap.bytes(), "seconds", time.Since(start).Seconds())
	if err := retain(dir, name, s.cfg.Checkpoint.Keep); err != nil {
		s.cfg.Log.Warn("old checkpoints stay", "task", s.shard.task, "error", err)
	}
	return nil
}
