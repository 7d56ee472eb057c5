package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pushpull/ps"
	"pushpull/transport"
)

// A shardServer is one parameter server of the job.
type shardServer struct {
	name   string // as in "ps/0"
	server *ps.Server
	herald *herald
	linger time.Duration
	transport.Listener
}

// listen makes a parameter server and lets it answer at addr.
func listen(o *options, task int, t transport.Transport, addr string, reg prometheus.Registerer, log *slog.Logger) (*shardServer, error) {
	name := fmt.Sprintf("ps/%d", task)
	cfg := o.server(task, reg, log)
	server, err := ps.NewServer(cfg)
	if err != nil {
		return nil, err
	}
	h := newHerald(server, cfg.Replicas, log.With("task", name))
	l, err := t.Listen(addr, h)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	h.log.Info("listening", "addr", l.Addr(), "policy", cfg.Policy.String(), "settings", describe(cfg.Settings))
	return &shardServer{name, server, h, cfg.Linger, l}, nil
}

// run serves until training is over and the workers have said goodbye. It stays
// a little longer for workers that have not come yet: a job can be short, and
// one that comes late is to find that training is over, rather than nobody.
func (s *shardServer) run(ctx context.Context) error {
	if err := s.server.Run(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	if absent := s.herald.absent(); len(absent) > 0 {
		s.herald.log.Info("training is over, but some workers have not come", "workers", absent, "waiting", s.linger)
		timeout := time.NewTimer(s.linger)
		defer timeout.Stop()
		select {
		case <-s.herald.empty:
		case <-timeout.C:
		case <-ctx.Done():
		}
	}
	s.herald.log.Info("goodbye")
	return s.Close()
}

// A herald is a service that tells the log who comes and goes.
type herald struct {
	transport.Service
	log    *slog.Logger
	filled sync.Once // for the first weights

	mu           sync.Mutex
	joined, left map[int]bool  // guarded by mu; by task
	empty        chan struct{} // closed when all have left
	replicas     int
}

func newHerald(s transport.Service, replicas int, log *slog.Logger) *herald {
	return &herald{Service: s, log: log, joined: map[int]bool{}, left: map[int]bool{}, empty: make(chan struct{}), replicas: replicas}
}

// absent returns the tasks that have not joined.
func (h *herald) absent() (tasks []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for task := range h.replicas {
		if !h.joined[task] {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// Join implements transport.Service.
func (h *herald) Join(ctx context.Context, hello transport.Hello) (transport.Welcome, error) {
	welcome, err := h.Service.Join(ctx, hello)
	if err != nil {
		h.log.Warn("refused", "worker", hello.Replica.Task, "error", err)
		return welcome, err
	}
	h.log.Info("joined", "worker", hello.Replica.Task, "step", welcome.Step)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joined[hello.Replica.Task] = true
	return welcome, nil
}

// Leave implements transport.Service.
func (h *herald) Leave(ctx context.Context, r transport.Replica) error {
	if err := h.Service.Leave(ctx, r); err != nil {
		return err
	}
	h.log.Info("left", "worker", r.Task)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.left[r.Task] {
		h.left[r.Task] = true
		if len(h.left) == h.replicas {
			close(h.empty)
		}
	}
	return nil
}

// Init implements transport.Service.
func (h *herald) Init(ctx context.Context, parts []transport.Part) error {
	err := h.Service.Init(ctx, parts)
	if err == nil {
		h.filled.Do(func() {
			bytes, extents := 0, make([]string, len(parts))
			for i, p := range parts {
				bytes += 4 * len(p.Data)
				extents[i] = fmt.Sprintf("%s[%d:%d]", p.Variable, p.Offset, p.Offset+len(p.Data))
			}
			h.log.Info("holds weights", "bytes", bytes, "extents", strings.Join(extents, " "))
		})
	}
	return err
}

// describe lists settings in one line.
func describe(settings []transport.Setting) string {
	var out []string
	for _, s := range settings {
		out = append(out, s.Name+"="+s.Value)
	}
	return strings.Join(out, " ")
}
