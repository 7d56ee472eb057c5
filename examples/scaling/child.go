package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pushpull/model"
	"pushpull/model/lstm"
	"pushpull/ps"
	"pushpull/transport"
	"pushpull/transport/grpc"
	"pushpull/transport/shm"
	"pushpull/transport/tcp"
	"pushpull/worker"
)

// This file is what the child processes do: train alone, serve, and work.

// A preset is a model of the PTB program, and how long to measure it.
type preset struct {
	name              string
	hidden, unroll    int
	keep, scale, norm float64
	steps             int
}

var presets = []preset{
	{name: "small", hidden: 200, unroll: 20, keep: 1, scale: 0.1, norm: 5, steps: 60},
	{name: "medium", hidden: 650, unroll: 35, keep: 0.5, scale: 0.05, norm: 5, steps: 12},
	{name: "large", hidden: 1500, unroll: 35, keep: 0.35, scale: 0.04, norm: 10, steps: 5},
}

func presetNames() (names []string) {
	for _, p := range presets {
		names = append(names, p.name)
	}
	return names
}

func presetByName(name string) preset {
	for _, p := range presets {
		if p.name == name {
			return p
		}
	}
	panic("preset " + name + " was checked")
}

// transports are those that reach another process.
var transports = []struct {
	name string
	new  func() transport.Transport
	addr string // to listen at
}{
	{"grpc", func() transport.Transport { return grpc.New(grpc.Options{}) }, "localhost:0"},
	{"tcp", func() transport.Transport { return tcp.New(tcp.Options{}) }, "localhost:0"},
	{"shm", func() transport.Transport { return shm.New(shm.Options{}) }, "localhost:0"},
}

func transportNames() (names []string) {
	for _, t := range transports {
		names = append(names, t.name)
	}
	return names
}

func transportByName(name string) (transport.Transport, string) {
	for _, t := range transports {
		if t.name == name {
			return t.new(), t.addr
		}
	}
	panic("transport " + name + " was checked")
}

func encodingNames() (names []string) {
	for _, e := range transport.Encodings {
		names = append(names, e.String())
	}
	return names
}

// rate is the learning rate: low enough that nothing diverges, which would
// change the cost of a step.
const rate = 0.1

// model makes the language model with one thread, on random words.
func (o *options) model() (*lstm.Model, error) {
	const layers, batch, vocab, batches = 2, 20, 10000, 50
	p := presetByName(o.preset)
	rng := rand.New(rand.NewPCG(1, uint64(o.task)))
	tokens := make([]int32, batch*(batches*p.unroll+1))
	for i := range tokens {
		// Words of a text are not spread evenly: the square is nearer to how many
		// different ones a batch has.
		u := rng.Float64()
		tokens[i] = int32(u * u * vocab)
	}
	return lstm.New(lstm.Config{
		Vocab: vocab, Layers: layers, Hidden: p.hidden, Batch: batch, Unroll: p.unroll,
		InitScale: p.scale, Keep: p.keep, MaxNorm: p.norm, Seed: uint64(1 + o.task), Threads: 1,
	}, tokens)
}

// A usage is what a process has used.
type usage struct {
	wall time.Time
	cpu  time.Duration
}

func used() usage {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(fmt.Sprintf("getrusage of this process: %v", err)) // cannot fail
	}
	return usage{time.Now(), time.Duration(r.Utime.Nano() + r.Stime.Nano())}
}

// figures are what a child measured, per step but for Words, which is per second.
type figures struct {
	Words   float64 `json:"words_per_second,omitempty"`
	CPU     float64 `json:"cpu_seconds"`
	Pull    float64 `json:"pull_cpu_seconds,omitempty"`
	Compute float64 `json:"compute_cpu_seconds,omitempty"`
	Push    float64 `json:"push_cpu_seconds,omitempty"`
	Wait    float64 `json:"pull_wall_seconds,omitempty"`
	Send    float64 `json:"push_wall_seconds,omitempty"`
	Pulled  float64 `json:"pull_bytes,omitempty"`
	Pushed  float64 `json:"push_bytes,omitempty"`
}

func (f figures) print(w io.Writer) error { return json.NewEncoder(w).Encode(f) }

// step takes a step of the model, into the next epoch if it must.
func step(ctx context.Context, m *lstm.Model) (model.Result, error) {
	r, err := m.Step(ctx)
	if err == io.EOF {
		return m.Step(ctx)
	}
	return r, err
}

// base trains without a parameter server and applies its own gradients.
func (o *options) base(ctx context.Context, stdout io.Writer) error {
	m, err := o.model()
	if err != nil {
		return err
	}
	words, start := 0, usage{}
	for i := range o.warm + o.steps {
		if i == o.warm {
			words, start = 0, used()
		}
		r, err := step(ctx, m)
		if err != nil {
			return err
		}
		words += r.Examples
		for _, v := range m.Variables() {
			if v.Rows == nil {
				ps.SGD{}.Apply(1, rate, v.Value, v.Grad, nil)
				continue
			}
			n := v.Width()
			for k, row := range v.Rows {
				ps.SGD{}.Apply(1, rate, v.Value[int(row)*n:][:n], v.Grad[k*n:][:n], nil)
			}
		}
	}
	end := used()
	return figures{
		Words: float64(words) / end.wall.Sub(start.wall).Seconds(),
		CPU:   (end.cpu - start.cpu).Seconds() / float64(o.steps),
	}.print(stdout)
}

// A counter is a service that notes what the process has used when the workers
// begin to be measured.
type counter struct {
	transport.Service
	warm int

	mu     sync.Mutex
	pushes int   // guarded by mu
	start  usage // guarded by mu; after the last push that is not measured
	end    usage // guarded by mu; after the last push
}

func (c *counter) Push(ctx context.Context, p transport.Push, grads []transport.Part) (transport.Verdict, error) {
	v, err := c.Service.Push(ctx, p, grads)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushes++
	if c.pushes == c.warm {
		c.start = used()
	}
	c.end = used()
	return v, err
}

// serve is the parameter server: it prints its address, and at the end what it
// used for each step of a worker.
func (o *options) serve(ctx context.Context, stdout io.Writer) error {
	policy := ps.Async()
	if o.mode == "sync" {
		policy = ps.Sync(o.workers)
	}
	srv, err := ps.NewServer(ps.Config{Replicas: o.workers, Policy: policy, Optimizer: ps.SGD{}, Schedule: ps.Constant(rate)})
	if err != nil {
		return err
	}
	c := &counter{Service: srv, warm: o.workers * o.warm}
	t, addr := transportByName(o.via)
	l, err := t.Listen(addr, c)
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := fmt.Fprintln(stdout, l.Addr()); err != nil {
		return err
	}
	if err := srv.Run(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return figures{CPU: (c.end.cpu - c.start.cpu).Seconds() / float64(c.pushes-c.warm)}.print(stdout)
}

// work is one worker: the loop of worker.Train, with the CPU time of its phases.
func (o *options) work(ctx context.Context, stdout io.Writer) error {
	m, err := o.model()
	if err != nil {
		return err
	}
	t, _ := transportByName(o.via)
	meter := transport.Measure(t, nil)
	cfg := worker.Config{Transport: meter, Addrs: []string{o.addr}, Task: o.task}
	cfg.Encoding = transport.Encoding(slices.Index(encodingNames(), o.encoding))
	s, err := worker.Open(ctx, cfg, m)
	if err != nil {
		return err
	}
	defer s.Close()

	var f figures
	var words int
	var start usage
	var before map[string]transport.Totals
	n := float64(o.steps)
	for i := range o.warm + o.steps {
		if i == o.warm {
			f, words, start, before = figures{}, 0, used(), meter.Totals()
		}
		if o.wholePull {
			m.Variables()[0].Next = nil
		}
		a := used()
		if err := s.Pull(ctx); err != nil {
			return err
		}
		b := used()
		r, err := step(ctx, m)
		if err != nil {
			return err
		}
		c := used()
		if err := s.Push(ctx, r); err != nil {
			return err
		}
		d := used()
		words += r.Examples
		f.Pull += (b.cpu - a.cpu).Seconds() / n
		f.Compute += (c.cpu - b.cpu).Seconds() / n
		f.Push += (d.cpu - c.cpu).Seconds() / n
		f.Wait += b.wall.Sub(a.wall).Seconds() / n
		f.Send += d.wall.Sub(c.wall).Seconds() / n
	}
	end, after := used(), meter.Totals()
	f.Words = float64(words) / end.wall.Sub(start.wall).Seconds()
	f.CPU = (end.cpu - start.cpu).Seconds() / n
	f.Pulled = float64(after["pull"].Bytes-before["pull"].Bytes) / n
	f.Pushed = float64(after["push"].Bytes-before["push"].Bytes) / n
	if err := s.Leave(ctx); err != nil {
		return err
	}
	return f.print(stdout)
}
