package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pushpull/model"
	"pushpull/ps"
	"pushpull/transport"
	"pushpull/transport/grpc"
	"pushpull/transport/inproc"
	"pushpull/transport/transporttest"
	"pushpull/worker"
)

// A cluster is a job in this process.
type cluster struct {
	t       testing.TB
	net     transport.Transport
	addrs   []string
	servers sync.WaitGroup
	plan    transport.Plan
}

// start runs n parameter servers on an in-process network.
func start(t testing.TB, n, replicas int, cfg ps.Config) *cluster {
	return startOn(t, &inproc.Network{}, n, replicas, cfg)
}

func startOn(t testing.TB, net transport.Transport, n, replicas int, cfg ps.Config) *cluster {
	c := &cluster{t: t, net: net}
	if cfg.Optimizer == nil {
		cfg.Optimizer = ps.SGD{}
	}
	if cfg.Schedule == nil {
		cfg.Schedule = ps.Constant(0.05)
	}
	for i := range n {
		cfg.Task, cfg.Tasks, cfg.Replicas = i, n, replicas
		srv, err := ps.NewServer(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("localhost:0", srv)
		if err != nil {
			t.Fatal(err)
		}
		c.addrs = append(c.addrs, l.Addr())
		c.servers.Go(func() {
			if err := srv.Run(t.Context()); err != nil && t.Context().Err() == nil {
				t.Errorf("ps/%d: %v", i, err)
			}
			l.Close()
		})
	}
	return c
}

func (c *cluster) config(task int) worker.Config {
	return worker.Config{
		Transport: c.net, Addrs: c.addrs, Task: task, Plan: c.plan, Partition: worker.FixedSize(8),
		StartLimit: 20 * time.Second, StepLimit: 20 * time.Second, CallLimit: 10 * time.Second,
	}
}

// train runs one replica for the epochs, waits for the end and says goodbye.
func (c *cluster) train(task, epochs int, m model.Model) error {
	ctx := c.t.Context()
	s, err := worker.Open(ctx, c.config(task), m)
	if err != nil {
		return err
	}
	defer s.Close()
	for range epochs {
		if err := worker.Train(ctx, s, m, worker.TrainConfig{}); err != nil {
			return err
		}
	}
	if err := s.WaitDone(ctx); err != nil {
		return err
	}
	return s.Leave(ctx)
}

// run trains one toy per replica to the end, the servers included.
func (c *cluster) run(epochs int, toys ...model.Model) {
	c.t.Helper()
	var wg sync.WaitGroup
	for task, m := range toys {
		wg.Go(func() {
			if err := c.train(task, epochs, m); err != nil {
				c.t.Errorf("worker/%d: %v", task, err)
			}
		})
	}
	wg.Wait()
	c.servers.Wait()
}

// deal gives replica r of n every n-th batch, so that n replicas read in one
// step what one replica with n times the batch reads.
func deal(data []example, batch, r, n int) (out []example) {
	for at := r * batch; at+batch <= len(data); at += n * batch {
		out = append(out, data[at:at+batch]...)
	}
	return out
}

func planOf(epochs int, toys ...*toy) transport.Plan {
	var n int64
	for _, m := range toys {
		n += int64(len(m.data) / m.batch * m.batch)
	}
	return transport.Plan{EpochExamples: n, Examples: int64(epochs) * n}
}

func near(a, b []float32, tolerance float64) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Abs(float64(x-y)) <= tolerance })
}

// A gradient τ steps stale is stable on a quadratic of curvature λ only for
// rates below 2·sin(π/(4τ+2))/λ. Here λ < 2·(1.5²+1) = 6.5 and τ is about 3, so
// the rate 0.05 is under 0.13.
func TestTrainFitsUnderEveryPolicy(t *testing.T) {
	const replicas, rows, epochs = 4, 5, 40
	for name, policy := range map[string]ps.Policy{
		"async": ps.Async(), "bounded": {Aggregate: 1, MaxStaleness: 3}, "sync": ps.Sync(replicas), "backup": ps.Sync(replicas - 1),
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, 2, replicas, ps.Config{Policy: policy})
			var toys []*toy
			var models []model.Model
			for i := range replicas {
				m := newToy(rows, 8, examples(200, rows, uint64(i)))
				toys, models = append(toys, m), append(models, m)
			}
			c.plan = planOf(epochs, toys...)
			c.run(epochs, models...)
			for i, m := range toys {
				if got, want := m.loss(), 0.02; got > want {
					t.Errorf("worker/%d ends with loss %v and weights %v, want at most %v", i, got, m.weights(), want)
				}
				if got, want := m.weights(), toys[0].weights(); !slices.Equal(got, want) {
					t.Errorf("worker/%d ends with %v, worker/0 with %v: want the same", i, got, want)
				}
			}
		})
	}
}

// Invariant 6: n synchronous replicas with batch B follow one with n·B.
func TestSyncReplicasEqualOneBigBatch(t *testing.T) {
	const n, batch, rows, epochs = 3, 4, 7, 5
	data := examples(n*batch*20, rows, 1)
	for _, opt := range []ps.Optimizer{ps.SGD{}, ps.Momentum{Mu: 0.9}, ps.Adagrad{Initial: 0.1}, ps.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}} {
		for _, kind := range []string{"rows", "dense"} {
			t.Run(fmt.Sprintf("%s/%s", opt.Name(), kind), func(t *testing.T) {
				as := func(m *toy) model.Model {
					if kind == "dense" {
						return dense{m}
					}
					return m
				}
				cfg := ps.Config{Optimizer: opt, Schedule: ps.Constant(0.01)}
				cfg.Policy = ps.Sync(1)
				one := newToy(rows, n*batch, data)
				c := start(t, 1, 1, cfg)
				c.plan = planOf(epochs, one)
				c.run(epochs, as(one))

				cfg.Policy = ps.Sync(n)
				c = start(t, 2, n, cfg)
				var toys []*toy
				var models []model.Model
				for r := range n {
					m := newToy(rows, batch, deal(data, batch, r, n))
					toys, models = append(toys, m), append(models, as(m))
				}
				c.plan = planOf(epochs, toys...)
				c.run(epochs, models...)
				if got, want := toys[0].weights(), one.weights(); !near(got, want, 1e-5) {
					t.Errorf("%d replicas with batch %d end with %v, one with batch %d with %v", n, batch, got, n*batch, want)
				}
			})
		}
	}
}

// Invariant 8 and the equality of modes: with one replica every arrangement
// leaves the same bits as no parameter server at all.
func TestOneReplicaGivesTheSameBitsHoweverArranged(t *testing.T) {
	const rows, batch, epochs, rate = 9, 4, 6, 0.05
	data := examples(batch*25, rows, 3)
	local := newToy(rows, batch, data)
	for range epochs {
		for {
			if _, err := local.Step(t.Context()); err != nil {
				break
			}
			for i, id := range local.table.Rows {
				local.table.Value[id] -= rate * local.table.Grad[i]
			}
			local.bias.Value[0] -= rate * local.bias.Grad[0]
		}
	}
	for name, arrangement := range map[string]struct {
		policy ps.Policy
		shards int
	}{
		"async/1": {ps.Async(), 1}, "sync/1": {ps.Sync(1), 1}, "async/3": {ps.Async(), 3}, "sync/3": {ps.Sync(1), 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, arrangement.shards, 1, ps.Config{Policy: arrangement.policy, Schedule: ps.Constant(rate)})
			m := newToy(rows, batch, data)
			c.plan = planOf(epochs, m)
			c.run(epochs, m)
			if got, want := m.weights(), local.weights(); !slices.Equal(got, want) {
				t.Errorf("weights = %v, without a parameter server %v", got, want)
			}
		})
	}
}

// Invariant 11: shares of 10, 10, 10 and 3 batches. The first three steps
// average over all replicas, later ones over those that are left.
func TestUnevenSharesEnd(t *testing.T) {
	for _, aggregate := range []int{3, 4, 5} {
		t.Run(fmt.Sprintf("aggregate=%d", aggregate), func(t *testing.T) {
			c := start(t, 2, 4, ps.Config{Policy: ps.Sync(aggregate)})
			var toys []*toy
			var models []model.Model
			for i, batches := range []int{10, 10, 10, 3} {
				m := newToy(5, 4, examples(4*batches, 5, uint64(i)))
				toys, models = append(toys, m), append(models, m)
			}
			c.plan = planOf(1, toys...)
			c.run(1, models...)
		})
	}
}

// Invariant 12.
func TestStopRestoreAndGoOnEqualsNeverHavingStopped(t *testing.T) {
	const rows, batch, epochs, total = 6, 4, 3, 60
	data := examples(batch*total/epochs, rows, 5)
	cfg := ps.Config{Policy: ps.Async(), Optimizer: ps.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, Schedule: ps.Decay{Rate: 0.1, Factor: 0.5, Hold: 1}}
	whole := newToy(rows, batch, data)
	c := start(t, 2, 1, cfg)
	c.plan = planOf(epochs, whole)
	c.run(epochs, whole)

	cfg.Checkpoint = ps.Checkpoint{Dir: t.TempDir(), Every: 1}
	for _, stop := range []int64{17, 33} { // in the first epoch, in the second
		m := newToy(rows, batch, data)
		c := start(t, 2, 1, cfg)
		c.plan = planOf(epochs, m)
		c.plan.Steps = stop
		c.run(epochs, m)
	}
	m := newToy(rows, batch, data)
	c = start(t, 2, 1, cfg)
	c.plan = planOf(epochs, m)
	s, err := worker.Open(t.Context(), c.config(0), m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, want := [2]int64{m.epoch, m.at}, [2]int64{1, 13}; got != want {
		t.Fatalf("goes on from epoch and batch %v, want %v", got, want)
	}
	for m.epoch < epochs && !s.Done() {
		if err := worker.Train(t.Context(), s, m, worker.TrainConfig{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.WaitDone(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := m.weights(), whole.weights(); !slices.Equal(got, want) {
		t.Errorf("weights after two restarts = %v, never stopped %v", got, want)
	}
	if err := s.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.servers.Wait()
}

// Invariant 4: calls that are lost on either way and sent again, or twice, leave
// the bits of a run without faults.
func TestFaultsLeaveNoTrace(t *testing.T) {
	const rows, batch, epochs = 6, 4, 2
	data := examples(batch*20, rows, 5)
	run := func(net transport.Transport) []float32 {
		m := newToy(rows, batch, data)
		c := startOn(t, net, 2, 1, ps.Config{Policy: ps.Async(), Optimizer: ps.Momentum{Mu: 0.9}, Schedule: ps.Constant(0.02)})
		c.plan = planOf(epochs, m)
		c.run(epochs, m)
		return m.weights()
	}
	want := run(&inproc.Network{})
	for seed := range uint64(2) {
		faulty := transporttest.NewFaulty(&inproc.Network{}, seed, transporttest.Faults{DropBefore: 0.1, DropAfter: 0.1, Duplicate: 0.2})
		if got := run(faulty); !slices.Equal(got, want) {
			t.Errorf("seed %d: weights = %v, without faults %v", seed, got, want)
		}
	}
}

func TestNonFiniteGradientHoldsUpNobody(t *testing.T) {
	for name, policy := range map[string]ps.Policy{"async": ps.Async(), "sync": ps.Sync(2)} {
		t.Run(name, func(t *testing.T) {
			c := start(t, 1, 2, ps.Config{Policy: policy})
			a, b := newToy(5, 4, examples(40, 5, 1)), newToy(5, 4, examples(40, 5, 2))
			b.poison = 4
			c.plan = planOf(2, a, b)
			c.run(2, a, b)
			for _, w := range a.weights() {
				if w != w {
					t.Errorf("a NaN reached the weights: %v", a.weights())
				}
			}
		})
	}
}

func TestOpenNamesTheServerThatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := &inproc.Network{}
		c := startOn(t, net, 1, 1, ps.Config{Policy: ps.Async()})
		cfg := c.config(3)
		cfg.Task = 0
		cfg.Addrs = append(cfg.Addrs, "nowhere:1")
		cfg.StartLimit = 35 * time.Second
		var lines []string
		cfg.OnWait = func(line string) { lines = append(lines, line) }
		began := time.Now()
		_, err := worker.Open(t.Context(), cfg, newToy(5, 4, nil))
		if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), "ps/1 (nowhere:1)") {
			t.Errorf("Open = %v, want ErrUnavailable naming ps/1 (nowhere:1)", err)
		}
		if d := time.Since(began); d > 36*time.Second || d < 30*time.Second {
			t.Errorf("Open gave up after %v, want about 35 s", d)
		}
		if len(lines) != 3 || !strings.Contains(lines[0], "ps/1 (nowhere:1)") {
			t.Errorf("OnWait was told %q, want a line every 10 s naming ps/1", lines)
		}
	})
}

func TestReplicaThatWaitsNamesTheOneThatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		net := &inproc.Network{}
		srv, err := ps.NewServer(ps.Config{Tasks: 1, Replicas: 2, Policy: ps.Sync(2), Optimizer: ps.SGD{}, Schedule: ps.Constant(1)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("ps0", srv)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		defer cancel()
		cfg := worker.Config{Transport: net, Addrs: []string{l.Addr()}, StepLimit: 35 * time.Second}
		var lines []string
		cfg.OnWait = func(line string) { lines = append(lines, line) }
		m := newToy(5, 4, examples(40, 5, 1))
		s, err := worker.Open(ctx, cfg, m)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		err = worker.Train(ctx, s, m, worker.TrainConfig{})
		if !errors.Is(err, transport.ErrNotReady) || !strings.Contains(err.Error(), "worker/1") {
			t.Errorf("Train = %v, want ErrNotReady naming worker/1", err)
		}
		if len(lines) != 3 || !strings.Contains(lines[0], "worker/1") {
			t.Errorf("OnWait was told %q, want a line every 10 s naming worker/1", lines)
		}
	})
}

func TestNonChiefStartsWhenTheChiefHasOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1, 2, ps.Config{Policy: ps.Async()})
		a, b := newToy(5, 4, examples(40, 5, 1)), newToy(5, 4, examples(40, 5, 2))
		c.plan = planOf(1, a, b)
		began := time.Now()
		var first time.Duration
		var wg sync.WaitGroup
		wg.Go(func() {
			s, err := worker.Open(t.Context(), c.config(1), b)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := s.Pull(t.Context()); err != nil {
				t.Error(err)
			}
			first = time.Since(began)
			if err := s.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(3 * time.Second)
		if err := c.train(0, 1, a); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if first < 3*time.Second || first > 3200*time.Millisecond {
			t.Errorf("worker/1 had weights after %v, the chief came after 3 s", first)
		}
		c.servers.Wait()
	})
}

// A chief does not put fresh weights beside trained ones. Who is no chief may
// well find one server trained and another not yet begun, just by coming early.
func TestChiefAloneMindsAServerWithoutWeights(t *testing.T) {
	c := start(t, 2, 2, ps.Config{Policy: ps.Async()})
	first := worker.Config{Transport: c.net, Addrs: c.addrs[:1], Task: 0}
	m := newToy(5, 4, examples(40, 5, 1))
	s, err := worker.Open(t.Context(), first, m)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := worker.Train(t.Context(), s, m, worker.TrainConfig{}); err != nil {
		t.Fatal(err)
	}
	other, err := worker.Open(t.Context(), c.config(1), newToy(5, 4, examples(40, 5, 2)))
	if err != nil {
		t.Fatalf("Open of worker/1 = %v, want it to join", err)
	}
	defer other.Close()
	_, err = worker.Open(t.Context(), c.config(0), newToy(5, 4, examples(40, 5, 1)))
	if !errors.Is(err, transport.ErrJob) || !strings.Contains(err.Error(), "ps/1") {
		t.Errorf("Open of worker/0 = %v, want ErrJob naming ps/1", err)
	}
	if err := other.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestKeepAliveTellsTheServersWhileItsFunctionRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1, 1, ps.Config{Policy: ps.Async(), Linger: 7 * time.Second})
		m := newToy(5, 4, examples(40, 5, 1))
		c.plan = planOf(1, m)
		s, err := worker.Open(t.Context(), c.config(0), m)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := worker.Train(t.Context(), s, m, worker.TrainConfig{}); err != nil {
			t.Fatal(err)
		}
		want := errors.New("evaluated")
		err = s.KeepAlive(t.Context(), func() error { time.Sleep(time.Minute); return want })
		if err != want {
			t.Errorf("KeepAlive = %v, want what its function returns", err)
		}
		if err := s.WaitDone(t.Context()); err != nil { // the server is still there
			t.Error(err)
		}
		if err := s.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		c.servers.Wait()
	})
}

func TestOtherJobIsRefused(t *testing.T) {
	c := start(t, 1, 1, ps.Config{Policy: ps.Async(), Settings: []transport.Setting{{Name: "sync_replicas", Value: "true"}}})
	cfg := c.config(0)
	cfg.Settings = []transport.Setting{{Name: "sync_replicas", Value: "false"}}
	_, err := worker.Open(t.Context(), cfg, newToy(5, 4, nil))
	if !errors.Is(err, transport.ErrJob) || !strings.Contains(err.Error(), `"true"`) || !strings.Contains(err.Error(), `"false"`) {
		t.Errorf("Open = %v, want ErrJob with both values", err)
	}
}

func BenchmarkSession(b *testing.B) {
	for _, elems := range []int{1 << 10, 1 << 20} {
		for name, net := range map[string]transport.Transport{"inproc": &inproc.Network{}, "grpc": grpc.New(grpc.Options{})} {
			b.Run(fmt.Sprintf("elems=%d/transport=%s", elems, name), func(b *testing.B) { benchmarkSession(b, net, elems) })
		}
	}
}

// flat is a model of one variable whose step costs nothing.
type flat struct {
	toy
	v *model.Variable
}

func (m *flat) Variables() []*model.Variable { return []*model.Variable{m.v} }

func benchmarkSession(b *testing.B, net transport.Transport, elems int) {
	c := startOn(b, net, 2, 1, ps.Config{Policy: ps.Async()})
	m := &flat{v: &model.Variable{Name: "w", Shape: []int{elems}, Value: make([]float32, elems), Grad: make([]float32, elems)}}
	cfg := c.config(0)
	cfg.Partition = nil
	s, err := worker.Open(b.Context(), cfg, m)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(8 * elems))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Pull(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := s.Push(b.Context(), model.Result{Examples: 1}); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if err := s.Leave(b.Context()); err != nil {
		b.Fatal(err)
	}
	c.servers.Wait()
	s.Close()
}
