package lstm

import (
	"slices"
	"testing"
)

func TestGradientsAreWhatTheGraphProduced(t *testing.T) {
	cfg := Config{Vocab: 9, Layers: 2, Hidden: 6, Batch: 2, Unroll: 3, InitScale: 0.3, Keep: 0.5}
	m, err := New(cfg, text(60, cfg.Vocab))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range m.Variables() {
		for i := range v.Grad {
			v.Grad[i] = 12345 // must not survive a step
		}
	}
	if _, err := m.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, v := range m.Variables() {
		node := m.training.gradients[i]
		if got, want := node.Shape(), v.Shape; !slices.Equal(got, want) {
			t.Errorf("the graph's gradient of %s has shape %v, want %v", v.Name, got, want)
		}
		if got := floats(node.Value()); len(got) != len(v.Grad) || &got[0] != &v.Grad[0] {
			t.Errorf("the graph's gradient of %s is not the variable's memory", v.Name)
		}
		if got := floats(m.training.variables[i].Value()); len(got) != len(v.Value) || &got[0] != &v.Value[0] {
			t.Errorf("the graph's value of %s is not the variable's memory", v.Name)
		}
		if slices.Contains(gradient(v), 12345) {
			t.Errorf("the graph left elements of the gradient of %s alone", v.Name)
		}
	}
}

func TestRowsAreThoseOfTheBatchInOrderAndOnce(t *testing.T) {
	cfg := Config{Vocab: 50, Layers: 1, Hidden: 3, Batch: 2, Unroll: 5, InitScale: 0.3, Keep: 1}
	m, err := New(cfg, text(200, cfg.Vocab))
	if err != nil {
		t.Fatal(err)
	}
	embedding := m.Variables()[0]
	if embedding.Rows == nil || len(embedding.Rows) != 0 {
		t.Errorf("before the first step Rows = %v, want none, not nil", embedding.Rows)
	}
	memory := &m.training.embedding.rows[:1][0]
	for range 10 {
		if _, err := m.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(m.training.x)
		slices.Sort(want)
		want = slices.Compact(want)
		if got := embedding.Rows; !slices.Equal(got, want) {
			t.Errorf("Rows = %v, want %v", got, want)
		}
		if &embedding.Rows[0] != memory {
			t.Error("Rows are in new memory, want that of the step before")
		}
		// Each row is the sum of the slices of its word.
		for i, word := range embedding.Rows {
			want := make([]float64, cfg.Hidden)
			for r, x := range m.training.x {
				if x == word {
					for k, g := range m.training.embedding.slices[r*cfg.Hidden:][:cfg.Hidden] {
						want[k] += float64(g)
					}
				}
			}
			if got := embedding.Grad[i*cfg.Hidden:][:cfg.Hidden]; !(deviation(got, want) < 1e-6) {
				t.Errorf("row %d, of word %d, is %v, want %v", i, word, got, want)
			}
		}
	}
}

func TestClippingScalesAllGradientsToTheNorm(t *testing.T) {
	for _, norm := range []Norm{DenseNorm, SliceNorm} {
		for _, maxNorm := range []float64{0, 0.01, 1e6} {
			cfg := Config{Vocab: 4, Layers: 1, Hidden: 3, Batch: 2, Unroll: 5, InitScale: 0.5, Keep: 1, Norm: norm}
			plain, err := New(cfg, text(50, cfg.Vocab))
			if err != nil {
				t.Fatal(err)
			}
			cfg.MaxNorm, cfg.Threads = maxNorm, 2
			clipped, err := New(cfg, text(50, cfg.Vocab))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range []*Model{plain, clipped} {
				if _, err := m.Step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			scale := 1.0
			if n := plain.norm(norm); maxNorm > 0 && n > maxNorm {
				scale = maxNorm / n
			}
			if got, want := scale < 1, maxNorm == 0.01; got != want {
				t.Fatalf("norm %v: a clip at %v is active: %v, want %v", norm, maxNorm, got, want)
			}
			for i, v := range plain.Variables() {
				var want []float64
				for _, g := range gradient(v) {
					want = append(want, scale*float64(g))
				}
				if d := deviation(gradient(clipped.Variables()[i]), want); !(d < 1e-6) {
					t.Errorf("norm %v: gradient of %s clipped at %v deviates by %.2g", norm, v.Name, maxNorm, d)
				}
			}
		}
	}
}

func TestNormsOfLongGradientsAreTheSameOnAnyThreads(t *testing.T) {
	for _, n := range []int{0, 1, piece - 1, piece, piece + 1, 3*piece + 17} {
		for _, engine := range engines(t) {
			x := random(uint64(n), n)
			plain := 0.0
			for _, v := range x {
				plain += float64(v) * float64(v)
			}
			one := clipper{arithmetic: arithmetic{engine, 1}, sums: make([]float64, pieces(n))}
			two := clipper{arithmetic: arithmetic{engine, 2}, sums: make([]float64, pieces(n))}
			a, b := one.sumSquares(x), two.sumSquares(x)
			if a != b {
				t.Errorf("engine %s: sumSquares of %d = %v on one thread, %v on two", engine.Name(), n, a, b)
			}
			if d := a - plain; d > 1e-9*plain || d < -1e-9*plain {
				t.Errorf("engine %s: sumSquares of %d = %v, want %v", engine.Name(), n, a, plain)
			}
			want := random(uint64(n), n)
			two.scale(x, 0.5)
			for i := range x {
				if x[i] != want[i]*0.5 {
					t.Fatalf("engine %s: scale of %d leaves %v at %d, want %v", engine.Name(), n, x[i], i, want[i]*0.5)
				}
			}
		}
	}
}
