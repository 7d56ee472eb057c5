package lstm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

// naive returns the perplexity one batch at a time, as the tutorial computes it.
func naive(t testing.TB, m *Model, tokens []int32, batch, unroll int) float64 {
	t.Helper()
	b, err := NewBatches(tokens, batch, unroll)
	if err != nil {
		t.Fatal(err)
	}
	n, err := m.evaluation(batch, unroll)
	if err != nil {
		t.Fatal(err)
	}
	n.reset()
	cost := 0.0
	for i := range b.Len() {
		b.Read(i, n.x, n.y)
		m.packs.expire()
		c, err := n.run()
		if err != nil {
			t.Fatal(err)
		}
		cost += c
	}
	return math.Exp(cost / float64(b.Len()*unroll))
}

func BenchmarkEvaluate(b *testing.B) {
	cfg := Config{Vocab: 10000, Layers: 2, Hidden: 200, Batch: 1, Unroll: 1, InitScale: 0.1, Keep: 1}
	tokens := text(129, cfg.Vocab)
	m, err := New(cfg, tokens)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		evaluate func() error
	}{
		{"naive", func() error { naive(b, m, tokens, 1, 1); return nil }},
		{"strides", func() error { _, err := m.Evaluate(b.Context(), tokens, 1, 1); return err }},
	} {
		b.Run("model=small/batch=1/unroll=1/way="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if err := c.evaluate(); err != nil {
					b.Fatal(err)
				}
				n += len(tokens) - 1
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "words/s")
		})
	}
}

func text(n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(newStream(3, 0).at(i) % uint64(vocab))
	}
	return tokens
}

func TestEvaluationInLongStridesEqualsTheNaiveOne(t *testing.T) {
	type size struct{ tokens, batch, unroll int }
	sizes := []size{
		{2, 1, 1}, {10, 1, 1}, {64, 1, 1}, {65, 1, 1}, {66, 1, 1}, {129, 1, 1}, {150, 1, 1},
		{150, 1, 7}, {200, 3, 2}, {200, 3, 30}, {200, 70, 1}, {200, 20, 4},
	}
	for _, c := range []struct {
		hidden int
		sizes  []size
	}{
		{7, sizes},
		{257, []size{{67, 1, 1}, {30, 3, 4}}}, // recurrent weights that a core cannot keep
	} {
		for _, engine := range engines(t) {
			for _, threads := range []int{1, 2} {
				cfg := Config{Vocab: 31, Layers: 2, Hidden: c.hidden, Batch: 3, Unroll: 2, InitScale: 0.3, Keep: 0.5, Engine: engine, Threads: threads}
				m, err := New(cfg, text(100, cfg.Vocab))
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range c.sizes {
					tokens := text(s.tokens, cfg.Vocab)
					got, err := m.Evaluate(t.Context(), tokens, s.batch, s.unroll)
					if err != nil {
						t.Fatal(err)
					}
					want := naive(t, m, tokens, s.batch, s.unroll)
					// States and cross entropies agree to the bit; sums of them only to rounding.
					if !(math.Abs(got/want-1) < 1e-12) {
						t.Errorf("engine %s, hidden %d: perplexity of %+v = %v, want %v as step by step", engine.Name(), c.hidden, s, got, want)
					}
				}
			}
		}
	}
}

func TestAnEvaluationOfSmallBatchesTakesLongStrides(t *testing.T) {
	for _, c := range []struct{ batch, unroll, want int }{
		{1, 1, 64}, {1, 7, 70}, {2, 1, 32}, {3, 2, 22}, {64, 1, 1}, {20, 20, 20}, {20, 35, 35},
	} {
		if got := longStride(c.batch, c.unroll); got != c.want {
			t.Errorf("longStride(%d, %d) = %d, want %d", c.batch, c.unroll, got, c.want)
		}
	}
	m, err := New(Config{Vocab: 5, Layers: 1, Hidden: 2, Batch: 1, Unroll: 1, Keep: 1}, text(10, 5))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := m.Evaluate(t.Context(), text(150, 5), 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.evaluations) != 2 || m.evaluations[evaluation{1, 64}] == nil || m.evaluations[evaluation{1, 21}] == nil {
		t.Errorf("two evaluations of 149 words keep %d networks, want one of 64 words and one of the 21 left", len(m.evaluations))
	}
}

func TestAnEvaluationDoesNotDisturbTraining(t *testing.T) {
	cfg := Config{Vocab: 9, Layers: 2, Hidden: 6, Batch: 2, Unroll: 3, InitScale: 0.3, Keep: 0.5, MaxNorm: 1}
	tokens := text(60, cfg.Vocab)
	run := func(evaluate bool) (all []float32) {
		m, err := New(cfg, tokens)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if _, err := m.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
			if evaluate {
				if _, err := m.Evaluate(t.Context(), tokens, 2, 3); err != nil {
					t.Fatal(err)
				}
			}
			for _, v := range m.Variables() {
				for i, g := range dense(v) {
					v.Value[i] -= g
				}
				all = append(all, v.Value...)
			}
		}
		return all
	}
	if !slices.Equal(run(false), run(true)) {
		t.Error("training with evaluations in between ends with other weights")
	}
}

func TestAnEvaluationSeesTheWeightsAsTheyAre(t *testing.T) {
	m, err := New(Config{Vocab: 9, Layers: 1, Hidden: 6, Batch: 2, Unroll: 3, InitScale: 0.3, Keep: 0.5}, text(60, 9))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[float64]string{}
	for i := -1; i < len(m.Variables()); i++ {
		what := "nothing"
		if i >= 0 {
			v := m.Variables()[i]
			what = v.Name
			for k := range v.Value {
				v.Value[k] += 0.1 * float32(k%3)
			}
		}
		p, err := m.Evaluate(t.Context(), text(60, 9), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[p]; ok {
			t.Errorf("after a change of %s the perplexity is still that after %s: %v", what, before, p)
		}
		seen[p] = what
	}
}

// A countdown is a context that is done after it was asked a number of times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

func TestAnEvaluationStopsBetweenBatches(t *testing.T) {
	m, err := New(Config{Vocab: 9, Layers: 1, Hidden: 6, Batch: 2, Unroll: 3, InitScale: 0.3, Keep: 1}, text(60, 9))
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Evaluate(&countdown{t.Context(), 2}, text(1000, 9), 1, 1)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Evaluate = %v, want %v", err, context.DeadlineExceeded)
	}
	if got, want := err.Error(), fmt.Sprint("evaluate: at time step 128 of 999: ", context.DeadlineExceeded); got != want {
		t.Errorf("Evaluate says %q, want %q", got, want)
	}
}

// An evaluation packs weights that training multiplies with as they are.
func TestTrainingAndEvaluationComputeTheSameCost(t *testing.T) {
	for _, engine := range engines(t) {
		for _, threads := range []int{1, 2} {
			cfg := Config{Vocab: 131, Layers: 2, Hidden: 37, Batch: 3, Unroll: 5, InitScale: 0.3, Keep: 1, Engine: engine, Threads: threads}
			tokens := text(cfg.Batch*(cfg.Unroll+1), cfg.Vocab)
			m, err := New(cfg, tokens)
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.Evaluate(t.Context(), tokens, cfg.Batch, cfg.Unroll)
			if err != nil {
				t.Fatal(err)
			}
			r, err := m.Step(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want := math.Exp(r.Loss / float64(cfg.Unroll)); got != want {
				t.Errorf("engine %s, %d threads: the evaluation's perplexity is %v, the same step's %v", engine.Name(), threads, got, want)
			}
		}
	}
}
