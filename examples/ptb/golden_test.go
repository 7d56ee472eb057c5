package main

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"pushpull/model"
	"pushpull/model/lstm"
	"pushpull/ps"
	"pushpull/transport"
)

// A recording is a distributed run of an independent implementation, in float64.
type recording struct {
	Config struct {
		Vocab, Hidden, Layers int
		Batch                 int     `json:"batch_size"`
		Unroll                int     `json:"num_steps"`
		ForgetBias            float64 `json:"forget_bias"`
		Rate                  float64 `json:"lr"`
		MaxNorm               float64 `json:"max_grad_norm"`
		Workers               int
		Aggregate             int `json:"replicas_to_aggregate"`
	}
	Weights map[string]any
	Batches [][][2][][]int32 `json:"worker_batches"` // by worker: x and y, each by sequence
	Final   map[string]any   `json:"final_weights"`

	Rounds []struct { // of the synchronous run
		Order  []int                    `json:"arrival_order"`
		Steps  []struct{ Cost float64 } `json:"worker_steps"`
		Events []struct {
			Worker   int
			Accepted bool
			Applied  *struct {
				Step    int64          `json:"global_step_after"`
				Weights map[string]any `json:"weights_after"`
			}
		}
	}
	Events []struct { // of the asynchronous run
		Op      string
		Worker  int
		Version int64
		After   int64 `json:"version_after"`
		Cost    float64
		Weights map[string]any `json:"weights_after"`
	}
}

// A replay is the recorded job rebuilt: one shard, and a model for each worker.
type replay struct {
	t      *testing.T
	rec    recording
	shard  *ps.Shard
	models []*lstm.Model
	step   []int64 // of the weights that a worker has
	seq    []uint64
}

func newReplay(t *testing.T, file string, policy ps.Policy) *replay {
	r := &replay{t: t}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r.rec); err != nil {
		t.Fatal(err)
	}
	c := r.rec.Config
	r.shard, err = ps.NewShard(ps.Config{Replicas: c.Workers, Policy: policy, Optimizer: ps.SGD{}, Schedule: ps.Constant(c.Rate)})
	if err != nil {
		t.Fatal(err)
	}
	for task, batches := range r.rec.Batches {
		m, err := lstm.New(lstm.Config{Vocab: c.Vocab, Layers: c.Layers, Hidden: c.Hidden, Batch: c.Batch, Unroll: c.Unroll,
			ForgetBias: c.ForgetBias, Keep: 1, MaxNorm: c.MaxNorm}, original(batches))
		if err != nil {
			t.Fatal(err)
		}
		r.models = append(r.models, m)
		if _, err := r.shard.Join(transport.Hello{Replica: r.replica(task)}); err != nil {
			t.Fatal(err)
		}
	}
	r.step, r.seq = make([]int64, c.Workers), make([]uint64, c.Workers)
	initial := values(r.models[0])
	for i, p := range initial {
		initial[i].Data = flatten(nil, r.rec.Weights[p.Variable])
	}
	if err := r.shard.Init(initial); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replay) replica(task int) transport.Replica {
	return transport.Replica{Task: task, Life: uint64(task + 1)}
}

// pull gives a worker the newest weights.
func (r *replay) pull(task int) {
	r.t.Helper()
	status, err := r.shard.Pull(values(r.models[task]))
	if err != nil {
		r.t.Fatalf("worker/%d: pull: %v", task, err)
	}
	r.step[task] = status.Step
}

// compute runs a worker's next step and checks its cost.
func (r *replay) compute(task int, cost float64) {
	r.t.Helper()
	res, err := r.models[task].Step(r.t.Context())
	if err != nil {
		r.t.Fatalf("worker/%d: step: %v", task, err)
	}
	if !near(res.Loss, cost) {
		r.t.Errorf("worker/%d: cost = %v, want %v", task, res.Loss, cost)
	}
}

// push hands over the gradient that the worker computed last.
func (r *replay) push(task int) transport.Verdict {
	r.t.Helper()
	r.seq[task]++
	c := r.rec.Config
	v, err := r.shard.Push(transport.Push{Replica: r.replica(task), Seq: r.seq[task], Step: r.step[task], Examples: int64(c.Batch * c.Unroll)},
		gradients(r.models[task]))
	if err != nil {
		r.t.Fatalf("worker/%d: push: %v", task, err)
	}
	return v
}

// expect compares the shard's weights and step.
func (r *replay) expect(step int64, weights map[string]any) {
	r.t.Helper()
	got := values(r.models[0])
	for i := range got {
		got[i].Data = make([]float32, len(got[i].Data))
	}
	status, err := r.shard.Pull(got)
	if err != nil {
		r.t.Fatal(err)
	}
	if status.Step != step {
		r.t.Errorf("step = %d, want %d", status.Step, step)
	}
	for _, p := range got {
		for i, want := range flatten(nil, weights[p.Variable]) {
			if !near(float64(p.Data[i]), float64(want)) {
				r.t.Fatalf("step %d: %s[%d] = %v, want %v", step, p.Variable, i, p.Data[i], want)
			}
		}
	}
}

func TestSynchronousRunAgreesWithRecording(t *testing.T) {
	r := newReplay(t, "testdata/ps_sync_3w_agg2.json", ps.Sync(2))
	if got, want := r.rec.Config.Aggregate, 2; got != want {
		t.Fatalf("recording aggregates %d, want %d", got, want)
	}
	updates := 0
	for _, round := range r.rec.Rounds {
		for task := range r.models {
			r.pull(task)
			r.compute(task, round.Steps[task].Cost)
		}
		for _, e := range round.Events {
			want := transport.Stale
			switch {
			case e.Applied != nil:
				want = transport.Applied
			case e.Accepted:
				want = transport.Gathered
			}
			if got := r.push(e.Worker); got != want {
				t.Errorf("worker/%d: verdict %v, want %v", e.Worker, got, want)
			}
			if e.Applied != nil {
				updates++
				r.expect(e.Applied.Step, e.Applied.Weights)
			}
		}
	}
	if updates != 2 {
		t.Fatalf("%d updates recorded, want 2", updates)
	}
	r.expect(int64(updates), r.rec.Final)
}

func TestAsynchronousRunAgreesWithRecording(t *testing.T) {
	r := newReplay(t, "testdata/ps_async_3w.json", ps.Async())
	updates := int64(0)
	for _, e := range r.rec.Events {
		if e.Op == "pull" {
			r.pull(e.Worker)
			if got, want := r.step[e.Worker], e.Version; got != want {
				t.Errorf("worker/%d: pulled step %d, want %d", e.Worker, got, want)
			}
			continue
		}
		r.compute(e.Worker, e.Cost)
		if got, want := r.push(e.Worker), transport.Applied; got != want {
			t.Errorf("worker/%d: verdict %v, want %v", e.Worker, got, want)
		}
		updates++
		r.expect(e.After, e.Weights)
	}
	if updates != 5 {
		t.Fatalf("%d updates recorded, want 5", updates)
	}
	r.expect(updates, r.rec.Final)
}

// original puts batches together to the text they were cut from.
func original(batches [][2][][]int32) (text []int32) {
	last := batches[len(batches)-1][1]
	for row := range last {
		for _, b := range batches {
			text = append(text, b[0][row]...)
		}
		text = append(text, last[row][len(last[row])-1])
	}
	return text
}

// values views the model's weights as parts.
func values(m model.Model) (parts []transport.Part) {
	for _, v := range m.Variables() {
		parts = append(parts, transport.Part{Variable: v.Name, Width: v.Width(), Data: v.Value})
	}
	return parts
}

// gradients views the gradient that the last step left as parts.
func gradients(m model.Model) (parts []transport.Part) {
	for _, v := range m.Variables() {
		p := transport.Part{Variable: v.Name, Width: v.Width(), Rows: v.Rows, Data: v.Grad}
		if v.Rows != nil {
			p.Data = v.Grad[:len(v.Rows)*v.Width()]
		}
		parts = append(parts, p)
	}
	return parts
}

// flatten appends nested lists of numbers to dst, row by row.
func flatten(dst []float32, x any) []float32 {
	if n, ok := x.(float64); ok {
		return append(dst, float32(n))
	}
	for _, e := range x.([]any) {
		dst = flatten(dst, e)
	}
	return dst
}

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-4*max(math.Abs(want), 1e-2) }
