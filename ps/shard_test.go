package ps_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pushpull/ps"
	"pushpull/transport"
)

// newShard returns a shard of the configuration, completed for tests, in which
// all replicas have joined with life 1.
func newShard(t testing.TB, cfg ps.Config, parts ...transport.Part) *ps.Shard {
	t.Helper()
	s, err := ps.NewShard(complete(cfg))
	if err != nil {
		t.Fatal(err)
	}
	for task := range max(cfg.Replicas, 1) {
		join(t, s, task, transport.Plan{})
	}
	if err := s.Init(parts); err != nil {
		t.Fatal(err)
	}
	return s
}

// complete fills in what a test does not care about.
func complete(cfg ps.Config) ps.Config {
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.Policy == (ps.Policy{}) {
		cfg.Policy = ps.Async()
	}
	if cfg.Optimizer == nil {
		cfg.Optimizer = ps.SGD{}
	}
	if cfg.Schedule == nil {
		cfg.Schedule = ps.Constant(1)
	}
	return cfg
}

func join(t testing.TB, s *ps.Shard, task int, plan transport.Plan) {
	t.Helper()
	if _, err := s.Join(transport.Hello{Replica: transport.Replica{Task: task, Life: 1}, Plan: plan}); err != nil {
		t.Fatal(err)
	}
}

// A pusher pushes for a replica, numbering what it sends.
type pusher struct {
	s   *ps.Shard
	seq map[int]uint64
}

func newPusher(s *ps.Shard) *pusher { return &pusher{s, make(map[int]uint64)} }

func (p *pusher) push(t testing.TB, task int, grads ...transport.Part) transport.Verdict {
	t.Helper()
	p.seq[task]++
	verdict, err := p.s.Push(transport.Push{
		Replica: transport.Replica{Task: task, Life: 1}, Seq: p.seq[task], Step: p.s.Status().Step, Examples: 1,
	}, grads)
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}

func weights(t testing.TB, s *ps.Shard, p transport.Part) []float32 {
	t.Helper()
	p.Rows, p.Data = nil, make([]float32, len(p.Data))
	if _, err := s.Pull([]transport.Part{p}); err != nil {
		t.Fatal(err)
	}
	return p.Data
}

// Rows have the effect of the dense gradient that is zero elsewhere, bit for
// bit, whatever is mixed: with every optimizer, alone and averaged, and with
// negative zeros among weights and gradients.
func TestRowsEqualDense(t *testing.T) {
	const rows, width = 13, 3
	for _, opt := range optimizers {
		for _, replicas := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%s/replicas=%d", opt.Name(), replicas), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, uint64(replicas)))
				embedding := transport.Part{Variable: "e", Width: width, Data: zeroed(rng, normals(rng, rows*width))}
				other := transport.Part{Variable: "w", Offset: 5, Data: normals(rng, 4)}
				cfg := ps.Config{Replicas: replicas, Policy: ps.Sync(replicas), Optimizer: opt, Schedule: ps.Constant(0.3)}
				sparse, dense := newShard(t, cfg, embedding, other), newShard(t, cfg, embedding, other)
				pr, pd := newPusher(sparse), newPusher(dense)
				for step := range 40 {
					for task := range replicas {
						some, all := gradient(rng, embedding)
						if rng.IntN(4) == 0 {
							some = all
						}
						grads := []transport.Part{some, {Variable: "w", Offset: 5, Data: normals(rng, 4)}}
						switch rng.IntN(4) {
						case 0: // mention only the embedding
							grads[1].Data = make([]float32, 4)
							pr.push(t, task, grads[0])
						case 1: // mention it in another order
							pr.push(t, task, grads[1], grads[0])
						default:
							pr.push(t, task, grads...)
						}
						pd.push(t, task, all, grads[1])
					}
					if got, want := sparse.Status().Step, int64(step+1); got != want {
						t.Fatalf("step = %d, want %d", got, want)
					}
					for _, p := range []transport.Part{embedding, other} {
						if diff := cmp.Diff(bits(weights(t, dense, p)), bits(weights(t, sparse, p))); diff != "" {
							t.Fatalf("%s at step %d (-dense +rows):\n%s", p.Variable, step+1, diff)
						}
					}
				}
			})
		}
	}
}

// A negative zero is where a first gradient that is copied would differ from one
// that is added to zero.
func TestRowsEqualDenseForNegativeZeros(t *testing.T) {
	zero := float32(math.Copysign(0, -1))
	w := transport.Part{Variable: "w", Width: 1, Data: []float32{zero, zero}}
	row := transport.Part{Variable: "w", Width: 1, Rows: []int32{0}, Data: []float32{zero}}
	all := transport.Part{Variable: "w", Width: 1, Data: []float32{zero, 0}}
	for _, replicas := range []int{1, 2} {
		cfg := ps.Config{Replicas: replicas, Policy: ps.Sync(replicas)}
		sparse, dense := newShard(t, cfg, w), newShard(t, cfg, w)
		pr, pd := newPusher(sparse), newPusher(dense)
		for task := range replicas {
			pr.push(t, task, row)
			pd.push(t, task, all)
		}
		if diff := cmp.Diff(bits(weights(t, dense, w)), bits(weights(t, sparse, w))); diff != "" {
			t.Errorf("%d replicas (-dense +rows):\n%s", replicas, diff)
		}
	}
}

// gradient returns a gradient of random rows of p, and the dense one that is
// zero elsewhere.
func gradient(rng *rand.Rand, p transport.Part) (some, all transport.Part) {
	some, all = p, p
	some.Rows, some.Data = []int32{}, nil
	all.Data = make([]float32, len(p.Data))
	for row := range len(p.Data) / p.Width {
		if rng.IntN(3) == 0 {
			g := zeroed(rng, normals(rng, p.Width))
			some.Rows = append(some.Rows, int32(row))
			some.Data = append(some.Data, g...)
			copy(all.Data[row*p.Width:], g)
		}
	}
	return some, all
}

// zeroed makes some elements of x zero, some of these negative.
func zeroed(rng *rand.Rand, x []float32) []float32 {
	for i := range x {
		switch rng.IntN(6) {
		case 0:
			x[i] = 0
		case 1:
			x[i] = float32(math.Copysign(0, -1))
		}
	}
	return x
}

// Synchronous training with one replica is asynchronous training with one
// replica, bit for bit.
func TestSyncWithOneReplicaEqualsAsync(t *testing.T) {
	for _, opt := range optimizers {
		rng := rand.New(rand.NewPCG(5, 6))
		w := transport.Part{Variable: "w", Width: 2, Data: normals(rng, 10)}
		async := newShard(t, ps.Config{Policy: ps.Async(), Optimizer: opt}, w)
		sync := newShard(t, ps.Config{Policy: ps.Sync(1), Optimizer: opt}, w)
		pa, pb := newPusher(async), newPusher(sync)
		for range 20 {
			some, all := gradient(rng, w)
			pa.push(t, 0, all)
			pb.push(t, 0, some)
		}
		if diff := cmp.Diff(bits(weights(t, async, w)), bits(weights(t, sync, w))); diff != "" {
			t.Errorf("%s (-async +sync):\n%s", opt.Name(), diff)
		}
	}
}

// The mean of two gradients does not depend on who comes first.
func TestMeanOfTwoDoesNotDependOnTheirOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	w := transport.Part{Variable: "w", Width: 3, Data: normals(rng, 30)}
	cfg := ps.Config{Replicas: 2, Policy: ps.Sync(2), Optimizer: ps.Adam{}}
	one, two := newShard(t, cfg, w), newShard(t, cfg, w)
	p1, p2 := newPusher(one), newPusher(two)
	for range 20 {
		some, _ := gradient(rng, w)
		_, all := gradient(rng, w)
		p1.push(t, 0, some)
		p1.push(t, 1, all)
		p2.push(t, 1, all)
		p2.push(t, 0, some)
	}
	if diff := cmp.Diff(bits(weights(t, one, w)), bits(weights(t, two, w))); diff != "" {
		t.Errorf("weights differ:\n%s", diff)
	}
}

// Replicas whose gradients are averaged do as one with the mean gradient: as one
// with as many times the batch.
func TestSyncReplicasEqualOneWithTheirMean(t *testing.T) {
	const replicas = 3
	for _, opt := range optimizers {
		rng := rand.New(rand.NewPCG(17, 18))
		w := transport.Part{Variable: "w", Width: 3, Data: normals(rng, 30)}
		many := newShard(t, ps.Config{Replicas: replicas, Policy: ps.Sync(replicas), Optimizer: opt, Schedule: ps.Constant(0.01)}, w)
		single := newShard(t, ps.Config{Optimizer: opt, Schedule: ps.Constant(0.01)}, w)
		pm, p1 := newPusher(many), newPusher(single)
		for range 10 {
			sum := make([]float64, len(w.Data))
			for task := range replicas {
				some, all := gradient(rng, w)
				for i, x := range all.Data {
					sum[i] += float64(x)
				}
				pm.push(t, task, some)
			}
			mean := transport.Part{Variable: "w", Data: make([]float32, len(sum))}
			for i, x := range sum {
				mean.Data[i] = float32(x / replicas)
			}
			p1.push(t, 0, mean)
		}
		got, want := weights(t, many, w), weights(t, single, w)
		for i := range got {
			if math.Abs(float64(got[i]-want[i])) > 1e-6 {
				t.Errorf("%s: w[%d] = %v with %d replicas, %v with one", opt.Name(), i, got[i], replicas, want[i])
			}
		}
	}
}

// The rate depends on the examples seen alone: it is that of the epoch, with any
// number of replicas and in either mode, and it never follows the step.
func TestRateFollowsTheExamples(t *testing.T) {
	const batches, batch, epochExamples = 48, 10, 120
	schedule := ps.Decay{Rate: 1, Factor: 0.5, Hold: 1}
	for _, replicas := range []int{1, 2, 4} {
		for aggregate := 1; aggregate <= replicas; aggregate += max(1, replicas-1) {
			s, err := ps.NewShard(complete(ps.Config{Replicas: replicas, Policy: ps.Policy{Aggregate: aggregate, MaxStaleness: ps.Unbounded}, Schedule: schedule}))
			must(t, err)
			for task := range replicas {
				join(t, s, task, transport.Plan{EpochExamples: epochExamples, Examples: batches * batch})
			}
			must(t, s.Init(wpart(0)))
			var sum float64
			for i := range batches {
				if i%aggregate == 0 {
					want := schedule.At(i * batch / epochExamples)
					if got := s.Status().LearningRate; got != want {
						t.Errorf("%d replicas, %d averaged: rate after %d batches = %v, want %v", replicas, aggregate, i, got, want)
					}
					sum += want
				}
				_, err := s.Push(transport.Push{
					Replica: transport.Replica{Task: i % replicas, Life: 1}, Seq: uint64(i + 1), Step: s.Status().Step, Examples: batch,
				}, wpart(-1))
				must(t, err)
			}
			status := s.Status()
			if status.Step != int64(batches/aggregate) || status.Examples != batches*batch || !status.Done {
				t.Errorf("%d replicas, %d averaged: %+v, want %d steps, %d examples, done", replicas, aggregate, status, batches/aggregate, batches*batch)
			}
			if got := weights(t, s, wpart(0)[0])[0]; float64(got) != sum {
				t.Errorf("%d replicas, %d averaged: weight %v, want the sum of the rates, %v", replicas, aggregate, got, sum)
			}
		}
	}
}

func TestShardKeepsNoReferenceToItsArguments(t *testing.T) {
	init := []transport.Part{{Variable: "w", Data: []float32{1, 2}}}
	s := newShard(t, ps.Config{Replicas: 2, Policy: ps.Sync(2)}, init...)
	init[0].Data[0] = 99
	g := transport.Part{Variable: "w", Data: []float32{2, 2}}
	cursor := []byte("here")
	id := transport.Replica{Task: 0, Life: 1}
	if _, err := s.Push(transport.Push{Replica: id, Seq: 1, Cursor: cursor}, []transport.Part{g}); err != nil {
		t.Fatal(err)
	}
	g.Data[0], cursor[0] = 99, 'X'
	newPusher(s).push(t, 1, transport.Part{Variable: "w", Data: []float32{4, 4}})
	if got, want := weights(t, s, g), []float32{-2, -1}; !slices.Equal(got, want) {
		t.Errorf("weights = %v, want %v", got, want)
	}
	for range 2 {
		welcome, err := s.Join(transport.Hello{Replica: id})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(welcome.Cursor), "here"; got != want {
			t.Errorf("cursor = %q, want %q", got, want)
		}
		welcome.Cursor[0] = 'X'
	}
}

// A push of a shard's every part takes no memory once the shard has its
// buffers.
func TestPushTakesNoMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	embedding := transport.Part{Variable: "e", Width: 4, Data: normals(rng, 400)}
	dense := transport.Part{Variable: "w", Data: normals(rng, 100)}
	for _, opt := range optimizers {
		s := newShard(t, ps.Config{Replicas: 2, Policy: ps.Sync(2), Optimizer: opt}, embedding, dense)
		some, _ := gradient(rng, embedding)
		grads := []transport.Part{some, dense}
		cursor := make([]byte, 1000)
		var seq uint64
		allocs := testing.AllocsPerRun(20, func() {
			seq++
			for task := range 2 {
				push := transport.Push{Replica: transport.Replica{Task: task, Life: 1}, Seq: seq, Step: s.Status().Step, Cursor: cursor}
				if _, err := s.Push(push, grads); err != nil {
					t.Fatal(err)
				}
			}
		})
		if allocs != 0 {
			t.Errorf("%s: two pushes made %v allocations, want 0", opt.Name(), allocs)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*ps.Config)
		want   string
	}{
		{"task", func(c *ps.Config) { c.Task = 1 }, "Task is 1: want 0 to 0"},
		{"tasks", func(c *ps.Config) { c.Tasks = -1 }, "Tasks is -1"},
		{"replicas", func(c *ps.Config) { c.Replicas = -2 }, "Replicas is -2"},
		{"aggregate", func(c *ps.Config) { c.Policy = ps.Sync(0); c.Policy.MaxStaleness = 1 }, "Policy.Aggregate is 0"},
		{"staleness", func(c *ps.Config) { c.Policy = ps.Policy{Aggregate: 1, MaxStaleness: -1} }, "Policy.MaxStaleness is -1"},
		{"rate", func(c *ps.Config) { c.Schedule = ps.Constant(math.NaN()) }, "learning rate of NaN"},
		{"every", func(c *ps.Config) { c.Checkpoint.Every = -1 }, "Checkpoint.Every is -1"},
		{"every without dir", func(c *ps.Config) { c.Checkpoint.Every = 10 }, "Checkpoint.Dir is empty"},
		{"keep", func(c *ps.Config) { c.Checkpoint.Keep = -1 }, "Checkpoint.Keep is -1"},
		{"max wait", func(c *ps.Config) { c.MaxWait = -1 }, "MaxWait is -1ns"},
		{"linger", func(c *ps.Config) { c.Linger = -1 }, "Linger is -1ns"},
		{"settings", func(c *ps.Config) { c.Settings = []transport.Setting{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}} }, `Settings has "a" twice`},
		{"utf-8", func(c *ps.Config) { c.Settings = []transport.Setting{{Name: "a", Value: "\xff"}} }, `Settings has "a"="\xff"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := complete(ps.Config{})
			test.change(&cfg)
			if _, err := ps.NewShard(cfg); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("NewShard: %v, want an error with %q", err, test.want)
			}
			if _, err := ps.NewServer(cfg); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("NewServer: %v, want an error with %q", err, test.want)
			}
		})
	}
	for _, cfg := range []ps.Config{{Replicas: 1, Policy: ps.Async(), Schedule: ps.Constant(1)}, {Replicas: 1, Policy: ps.Async(), Optimizer: ps.SGD{}}} {
		if _, err := ps.NewShard(cfg); err == nil {
			t.Errorf("NewShard(%+v) succeeded, want an error", cfg)
		}
	}
}

// FuzzPush carries out random calls. Nothing may panic, the step never goes
// back, each replica's verdicts add up to its pushes that were answered, and
// the examples seen to theirs.
func FuzzPush(f *testing.F) {
	f.Add([]byte{0, 0, 1, 4, 4, 4, 5, 20, 21, 22, 40, 41, 42}, uint8(3), uint8(2), uint8(0))
	f.Add([]byte("a long string of calls, whatever they are"), uint8(2), uint8(1), uint8(1))
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		calls := make([]byte, 400)
		for i := range calls {
			calls[i] = byte(rng.UintN(256))
		}
		// Begin with replicas that have joined and weights.
		copy(calls, []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 1, 0, 2, 6})
		f.Add(calls, uint8(rng.UintN(4)), uint8(rng.UintN(5)), uint8(rng.UintN(4)))
	}
	f.Add([]byte{7, 7, 7, 250, 249, 248, 3, 2, 1, 9, 9, 100, 101, 102, 103}, uint8(1), uint8(3), uint8(2))
	f.Fuzz(func(t *testing.T, calls []byte, replicas, aggregate, staleness uint8) {
		cfg := complete(ps.Config{
			Replicas:  int(replicas%4) + 1,
			Policy:    ps.Policy{Aggregate: int(aggregate%5) + 1, MaxStaleness: int64(staleness % 4)},
			Optimizer: optimizers[int(aggregate)%len(optimizers)],
		})
		s, err := ps.NewShard(cfg)
		if err != nil {
			t.Fatal(err)
		}
		answered := make([]int64, cfg.Replicas)
		for i := 0; i+3 < len(calls); i += 4 {
			a, b, c, d := calls[i], calls[i+1], calls[i+2], calls[i+3]
			before := s.Status()
			id := transport.Replica{Task: int(b % 5), Life: uint64(b / 5 % 3)}
			switch a % 8 {
			case 0:
				s.Join(transport.Hello{Replica: id, Plan: transport.Plan{Steps: 20, Examples: 50, EpochExamples: 5}})
			case 1:
				s.Init([]transport.Part{{Variable: "w", Data: []float32{1, 2}}, {Variable: "e", Width: int(c % 3), Data: make([]float32, d%7)}})
			case 2:
				if c > 200 {
					s.Finish(id)
				} else if c > 150 {
					s.Leave(id)
				}
			default:
				grads := []transport.Part{{Variable: "w", Data: []float32{float32(c), float32(d)}}}
				if c%4 > 1 {
					grads = append(grads, transport.Part{Variable: "e", Width: int(c / 16 % 3), Rows: []int32{int32(d % 4)}, Data: []float32{1, 2}})
				}
				if c%16 == 15 {
					grads[0].Data[1] = float32(math.NaN())
				}
				push := transport.Push{Replica: id, Seq: uint64(d), Step: before.Step - int64(c/64), Examples: int64(d % 8), Cursor: calls[:i%3]}
				if _, err := s.Push(push, grads); err == nil {
					answered[id.Task]++
				}
			}
			after := s.Status()
			if after.Step < before.Step || after.Step > before.Step+1 || after.Examples < before.Examples || before.Done && after.Step != before.Step {
				t.Fatalf("after call %d: %+v, before: %+v", i/4, after, before)
			}
			if before.Done && !after.Done {
				t.Fatalf("after call %d training goes on again", i/4)
			}
		}
		d := s.Describe()
		var examples int64
		for _, r := range d.Replicas {
			var verdicts int64
			for _, n := range r.Verdicts {
				verdicts += n
			}
			if verdicts != answered[r.Task] {
				t.Errorf("worker/%d: verdicts %v add up to %d, want %d", r.Task, r.Verdicts, verdicts, answered[r.Task])
			}
			examples += r.Examples
		}
		if got := d.Status.Examples; got != examples {
			t.Errorf("%d examples seen, the replicas' add up to %d", got, examples)
		}
	})
}

func BenchmarkShardPush(b *testing.B) {
	const width = 256
	for _, elems := range []int{1 << 12, 1 << 20} {
		for _, kind := range []string{"dense", "rows"} {
			for _, replicas := range []int{1, 2} {
				b.Run(fmt.Sprintf("elems=%d/kind=%s/aggregate=%d", elems, kind, replicas), func(b *testing.B) {
					rng := rand.New(rand.NewPCG(1, 2))
					w := transport.Part{Variable: "w", Width: width, Data: normals(rng, elems)}
					s := newShard(b, ps.Config{Replicas: replicas, Policy: ps.Sync(replicas), Schedule: ps.Constant(1e-6)}, w)
					g := w
					if kind == "rows" { // one in sixteen
						g.Rows = []int32{}
						for row := 0; row < elems/width; row += 16 {
							g.Rows = append(g.Rows, int32(row))
						}
						g.Data = g.Data[:len(g.Rows)*width]
					}
					p := newPusher(s)
					b.SetBytes(int64(4 * len(g.Data) * replicas))
					b.ReportAllocs()
					for b.Loop() {
						for task := range replicas {
							p.push(b, task, g)
						}
					}
				})
			}
		}
	}
}
