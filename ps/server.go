package ps

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pushpull/transport"
)

// Server makes a [Shard] safe to share, makes Pull wait for its step, counts,
// and saves checkpoints. It answers calls from its construction on; [Server.Run]
// saves and says when the process may end.
type Server struct {
	cfg      Config
	metrics  *metrics
	restored int64 // step of the checkpoint the shard was restored from; -1 if none
	begun    time.Time
	called   atomic.Int64 // when the last call began or ended, in nanoseconds since begun

	mu      sync.RWMutex
	shard   *Shard        // its state is guarded by mu
	heard   []time.Time   // when each replica last called, by task; guarded by mu
	changed chan struct{} // closed when the shard has changed; guarded by mu
}

var _ transport.Service = (*Server)(nil)

// NewServer returns a server for the shard that cfg describes, without weights
// or, if there is a checkpoint, restored from the newest whole one. A checkpoint
// of another job is an error, [transport.ErrJob].
func NewServer(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:     cfg,
		begun:   time.Now(),
		shard:   newShard(cfg),
		heard:   make([]time.Time, cfg.Replicas),
		changed: make(chan struct{}),
	}
	if cfg.Checkpoint.Dir != "" {
		if err := restoreNewest(s.shard); err != nil {
			return nil, err
		}
	}
	s.restored = s.shard.step
	if s.metrics, err = newMetrics(cfg.Metrics); err != nil {
		return nil, err
	}
	s.metrics.observe(s.shard)
	return s, nil
}

// Join implements [transport.Service].
func (s *Server) Join(ctx context.Context, hello transport.Hello) (transport.Welcome, error) {
	if err := ctx.Err(); err != nil {
		return transport.Welcome{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	welcome, err := s.shard.Join(hello)
	if err != nil {
		s.touch()
		return welcome, err
	}
	s.hear(hello.Replica.Task)
	s.announce()
	return welcome, nil
}

// Init implements [transport.Service].
func (s *Server) Init(ctx context.Context, parts []transport.Part) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	if err := s.shard.Init(parts); err != nil {
		return err
	}
	s.announce()
	return nil
}

// Pull implements [transport.Service]. It waits at most Config.MaxWait, and not
// quite to the context's deadline, so that the answer that names who is awaited
// comes in time.
func (s *Server) Pull(ctx context.Context, minStep int64, dst []transport.Part) (transport.Status, error) {
	if err := ctx.Err(); err != nil {
		return transport.Status{}, err
	}
	start := time.Now()
	s.touch()
	defer s.touch()
	defer s.metrics.waited(start)
	wait := s.cfg.MaxWait
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		wait = min(wait, left-min(left/10, 250*time.Millisecond))
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		status, changed, err := s.tryPull(minStep, dst)
		if changed == nil {
			return status, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return transport.Status{}, s.notReady(minStep, transport.ErrNotReady)
		case <-ctx.Done():
			return transport.Status{}, s.notReady(minStep, ctx.Err())
		}
	}
}

// tryPull pulls if the shard has reached minStep or training is over. Else, and
// if it will come to that, it returns a channel that is closed once the shard
// has changed.
func (s *Server) tryPull(minStep int64, dst []transport.Part) (transport.Status, <-chan struct{}, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch step := s.shard.step; {
	case step >= minStep || s.shard.done:
		status, err := s.shard.Pull(dst)
		return status, nil, err
	case step >= 0 && minStep > step+1:
		return transport.Status{}, nil, fmt.Errorf("%s: pull: step %d is wanted, the shard is at step %d: %w",
			s.shard.task, minStep, step, transport.ErrRolledBack)
	}
	return transport.Status{}, s.changed, nil
}

// Push implements [transport.Service].
func (s *Server) Push(ctx context.Context, push transport.Push, grads []transport.Part) (transport.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	step, done := s.shard.step, s.shard.done
	repeated := s.shard.repeats(&push)
	verdict, err := s.shard.Push(push, grads)
	if err != nil {
		return verdict, err
	}
	s.hear(push.Replica.Task)
	s.metrics.pushed(&push, verdict, step-push.Step, repeated)
	if s.shard.step != step || s.shard.done != done {
		s.announce()
	}
	return verdict, nil
}

// Finish implements [transport.Service].
func (s *Server) Finish(ctx context.Context, r transport.Replica) error {
	return s.end(ctx, r, s.shard.Finish)
}

// Leave implements [transport.Service].
func (s *Server) Leave(ctx context.Context, r transport.Replica) error {
	return s.end(ctx, r, s.shard.Leave)
}

// end carries out Finish and Leave.
func (s *Server) end(ctx context.Context, r transport.Replica, call func(transport.Replica) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := call(r); err != nil {
		s.touch()
		return err
	}
	s.hear(r.Task)
	s.announce()
	return nil
}

// Describe implements [transport.Service]. Unlike the other calls it does not
// keep an idle server alive: who only watches a job is not part of it.
func (s *Server) Describe(ctx context.Context) (transport.Description, error) {
	if err := ctx.Err(); err != nil {
		return transport.Description{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.shard.Describe(), nil
}

// announce wakes every waiting Pull, and Run. The caller holds mu.
func (s *Server) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
	s.metrics.observe(s.shard)
}

// hear notes that a replica calls. The caller holds mu.
func (s *Server) hear(task int) {
	s.heard[task] = time.Now()
	s.touch()
}

// touch notes that somebody calls.
func (s *Server) touch() { s.called.Store(int64(time.Since(s.begun))) }

// quiet returns for how long nobody has called.
func (s *Server) quiet() time.Duration {
	return time.Since(s.begun) - time.Duration(s.called.Load())
}

// notReady wraps err in a text that says for whom a pull of minStep waits.
func (s *Server) notReady(minStep int64, err error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sh := s.shard
	var waits string
	switch awaited := s.names(sh.awaited()); {
	case sh.step < 0:
		waits = "the shard waits for the initial weights of the chief, " + s.names([]int{0})
	case sh.gathered == 0:
		waits = fmt.Sprintf("step %d waits for gradients of %s", minStep, awaited)
	default:
		waits = fmt.Sprintf("step %d has %d of %d gradients and waits for %s",
			minStep, sh.gathered, min(sh.cfg.Policy.Aggregate, len(sh.replicas)), awaited)
	}
	return fmt.Errorf("%s: pull: %w: %s", sh.task, err, waits)
}

// names lists workers and when each has called last. The caller holds mu.
func (s *Server) names(tasks []int) string {
	var b strings.Builder
	for i, task := range tasks {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(worker(task))
		switch r := &s.shard.replicas[task]; {
		case !r.joined:
			b.WriteString(" (not joined)")
		default:
			fmt.Fprintf(&b, " (last call %v ago)", time.Since(s.heard[task]).Round(time.Second))
		}
	}
	return b.String()
}
