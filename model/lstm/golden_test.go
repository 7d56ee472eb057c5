package lstm

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"pushpull/model"
	"pushpull/model/compute"
)

// The golden files come from PyTorch's autograd in float64. Tensors are compared
// by the norm of the difference over the norm of what is wanted.
const goldenTolerance = 1e-5

// A goldenFile is what the tests read of testdata/golden/*.json.
type goldenFile struct {
	Config struct {
		Vocab, Hidden, Layers int
		Batch                 int     `json:"batch_size"`
		Unroll                int     `json:"num_steps"`
		ForgetBias            float64 `json:"forget_bias"`
		Rate                  float64 `json:"lr"`
		MaxNorm               float64 `json:"max_grad_norm"`
		Norm                  string  `json:"global_norm_mode"`
		Keep                  float64 `json:"keep_prob"`
	}
	Tokens     []int32                      `json:"raw_data"`
	Weights    map[string]nested            `json:"weights"`
	Steps      []goldenStep                 `json:"steps"`
	Perplexity float64                      `json:"perplexity"`
	Same       struct{ Perplexity float64 } `json:"same_data_b2s3"`
}

type goldenStep struct {
	X, Y         [][]int32
	Initial      []goldenState `json:"initial_state"`
	Final        []goldenState `json:"final_state"`
	Cost         float64
	Losses       nested
	Grads        map[string]nested
	Slices       nested            `json:"embedding_grad_slices"`
	NormDense    float64           `json:"global_norm_dense"`
	NormSlices   float64           `json:"global_norm_slices"`
	NormUsed     float64           `json:"global_norm"`
	Clipped      map[string]nested `json:"clipped_grads"`
	WeightsAfter map[string]nested `json:"weights_after"`
	Masks        map[string]nested
}

// A goldenState is a layer's h and c, [batch, hidden].
type goldenState struct{ H, C nested }

// nested is a nested list of numbers, flattened, with its lengths.
type nested struct {
	shape []int
	data  []float64
}

func (n *nested) UnmarshalJSON(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	n.flatten(v, 0)
	return nil
}

func (n *nested) flatten(v any, depth int) {
	list, ok := v.([]any)
	if !ok {
		n.data = append(n.data, v.(float64))
		return
	}
	if depth == len(n.shape) {
		n.shape = append(n.shape, len(list))
	}
	for _, e := range list {
		n.flatten(e, depth+1)
	}
}

// timeMajor returns the data of [batch][time]... as [time][batch]...
func (n nested) timeMajor() []float64 {
	batch, time := n.shape[0], n.shape[1]
	width := len(n.data) / (batch * time)
	out := make([]float64, 0, len(n.data))
	for t := range time {
		for b := range batch {
			out = append(out, n.data[(b*time+t)*width:][:width]...)
		}
	}
	return out
}

func readGolden(t *testing.T, name string) goldenFile {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	var g goldenFile
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(g.Steps) == 0 {
		t.Fatalf("%s has no steps", name)
	}
	return g
}

// newModel returns a model of the file's config, text and weights. It clips to
// maxNorm.
func (g goldenFile) newModel(t *testing.T, engine compute.Engine, maxNorm float64) *Model {
	t.Helper()
	c := g.Config
	cfg := Config{
		Vocab: c.Vocab, Layers: c.Layers, Hidden: c.Hidden, Batch: c.Batch, Unroll: c.Unroll,
		ForgetBias: c.ForgetBias, Keep: c.Keep, MaxNorm: maxNorm, Engine: engine,
	}
	if cfg.Keep == 0 { // the evaluation's file has none
		cfg.Keep = 1
	}
	if c.Norm == "slices" {
		cfg.Norm = SliceNorm
	}
	m, err := New(cfg, g.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range m.Variables() {
		w, ok := g.Weights[v.Name]
		if !ok || len(w.data) != len(v.Value) {
			t.Fatalf("variable %s %v: the file has %d weights of that name", v.Name, v.Shape, len(w.data))
		}
		for i, x := range w.data {
			v.Value[i] = float32(x)
		}
	}
	return m
}

// setMasks has the dropouts use the file's masks.
func (m *Model) setMasks(s goldenStep) {
	for i, d := range m.training.dropouts {
		name := [...]string{"input", "output0", "output1"}[i]
		d.draw = func() {
			for i, kept := range s.Masks[name].timeMajor() {
				d.mask[i] = float32(kept / d.keep)
			}
		}
	}
}

// engines returns the engines that this CPU can run.
func engines(t *testing.T) []compute.Engine {
	t.Helper()
	var all []compute.Engine
	for _, name := range compute.Names() {
		e, err := compute.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// dense returns a variable's gradient with a row for every index.
func dense(v *model.Variable) []float32 {
	if v.Rows == nil {
		return v.Grad
	}
	g, width := make([]float32, len(v.Grad)), v.Width()
	for i, row := range v.Rows {
		copy(g[int(row)*width:][:width], v.Grad[i*width:])
	}
	return g
}

// deviation returns the norm of got-want over that of want, or the norm of got if
// want is zero.
func deviation(got []float32, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	difference, norm := 0.0, 0.0
	for i, w := range want {
		d := float64(got[i]) - w
		difference += d * d
		norm += w * w
	}
	if norm == 0 {
		return math.Sqrt(difference)
	}
	return math.Sqrt(difference / norm)
}

func TestTrainingFollowsTheGoldenRuns(t *testing.T) {
	for _, name := range []string{"lstm_fb0_clip_dense.json", "lstm_fb0_clip_slices.json", "lstm_fb1_noclip.json", "lstm_dropout_masks.json"} {
		for _, engine := range engines(t) {
			t.Run("file="+name+"/engine="+engine.Name(), func(t *testing.T) {
				followGolden(t, readGolden(t, name), engine)
			})
		}
	}
}

// followGolden takes the steps of a file, with two models at the same weights:
// one clips, the other's gradients are compared as they are.
func followGolden(t *testing.T, g goldenFile, engine compute.Engine) {
	worst := 0.0
	check := func(what string, got []float32, want []float64) {
		t.Helper()
		d := deviation(got, want)
		worst = max(worst, d)
		if !(d <= goldenTolerance) {
			t.Errorf("%s deviates by %.2g: got %v, want %v", what, d, got, want)
		}
	}
	number := func(what string, got, want float64) {
		t.Helper()
		check(what, []float32{float32(got)}, []float64{want})
	}
	checkState := func(when string, m *Model, want []goldenState) {
		t.Helper()
		for l, s := range want {
			check(fmt.Sprintf("h of layer %d %s", l, when), m.training.state[l].h, s.H.data)
			check(fmt.Sprintf("c of layer %d %s", l, when), m.training.state[l].c, s.C.data)
		}
	}

	m, plain := g.newModel(t, engine, g.Config.MaxNorm), g.newModel(t, engine, 0)
	for _, s := range g.Steps {
		m.setMasks(s)
		plain.setMasks(s)
		for j, v := range plain.Variables() {
			copy(v.Value, m.Variables()[j].Value)
		}
		checkState("before", m, s.Initial)
		result, err := m.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plain.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		number("cost", result.Loss, s.Cost)
		check("losses", m.training.projection.nats, s.Losses.timeMajor())
		checkState("after", m, s.Final)
		for _, v := range plain.Variables() {
			check("gradient of "+v.Name, dense(v), s.Grads[v.Name].data)
		}
		check("slices of the embedding's gradient", plain.training.embedding.slices, s.Slices.timeMajor())
		number("dense norm", plain.norm(DenseNorm), s.NormDense)
		number("norm of slices", plain.norm(SliceNorm), s.NormSlices)
		number("norm used", m.clipper.norm, s.NormUsed)
		for _, v := range m.Variables() {
			clipped := dense(v)
			check("clipped gradient of "+v.Name, clipped, s.Clipped[v.Name].data)
			for k, d := range clipped {
				v.Value[k] -= float32(g.Config.Rate) * d
			}
			check("weights after of "+v.Name, v.Value, s.WeightsAfter[v.Name].data)
		}
	}
	number("perplexity", m.Perplexity(), g.Perplexity)
	t.Logf("largest deviation %.2g", worst)
}

// norm returns the global norm of the gradients as they are.
func (m *Model) norm(n Norm) float64 {
	cfg := m.cfg
	defer func() { m.cfg = cfg }()
	m.cfg.Norm, m.cfg.MaxNorm = n, math.MaxFloat32
	m.clip()
	return m.clipper.norm
}

func TestEvaluationFollowsTheGoldenRun(t *testing.T) {
	g := readGolden(t, "eval_b1s1.json")
	m := g.newModel(t, compute.Best(), 0)
	n, err := m.evaluation(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range g.Steps {
		n.x[0], n.y[0] = s.X[0][0], s.Y[0][0]
		m.packs.expire()
		cost, err := n.run()
		if err != nil {
			t.Fatal(err)
		}
		if d := deviation([]float32{float32(cost)}, []float64{s.Cost}); !(d <= goldenTolerance) {
			t.Errorf("cost of step %d = %v, want %v", i, cost, s.Cost)
		}
		for l, f := range s.Final {
			if d := deviation(n.state[l].h, f.H.data); !(d <= goldenTolerance) {
				t.Errorf("h of layer %d after step %d deviates by %.2g", l, i, d)
			}
			if d := deviation(n.state[l].c, f.C.data); !(d <= goldenTolerance) {
				t.Errorf("c of layer %d after step %d deviates by %.2g", l, i, d)
			}
		}
	}
	for _, c := range []struct {
		batch, unroll int
		want          float64
	}{{1, 1, g.Perplexity}, {2, 3, g.Same.Perplexity}} {
		got, err := m.Evaluate(t.Context(), g.Tokens, c.batch, c.unroll)
		if err != nil {
			t.Fatal(err)
		}
		if !(math.Abs(got/c.want-1) <= goldenTolerance) {
			t.Errorf("perplexity in batches of %d by %d = %v, want %v", c.batch, c.unroll, got, c.want)
		}
	}
}
