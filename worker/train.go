package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"pushpull/model"
)

// TrainConfig says who is told about the training.
type TrainConfig struct {
	// OnStep is called after each step with the model's result; it may be nil.
	OnStep func(model.Result)
}

// Train pulls, steps and pushes until the model's epoch ends, or training is
// over on the servers: Session.Done tells which. After the end of an epoch the
// variables hold weights that include the replica's last gradient.
func Train(ctx context.Context, s *Session, m model.Model, cfg TrainConfig) error {
	for {
		if err := s.Pull(ctx); err != nil {
			return err
		}
		if s.Done() {
			return nil
		}
		start := time.Now()
		r, err := m.Step(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("worker/%d: step %d: %w", s.cfg.Task, s.Status().Step, err)
		}
		s.stats.Compute += s.metrics.observe("compute", start)
		if err := s.Push(ctx, r); err != nil {
			return err
		}
		if cfg.OnStep != nil {
			cfg.OnStep(r)
		}
	}
}
