package lstm_test

import (
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"pushpull/model/lstm"
)

// Rows that Next does not list may be anything: of two models one has NaN in
// all of them before every step, and both take the same steps.
func TestNextListsTheRowsThatAStepReads(t *testing.T) {
	cfg := tiny()
	cfg.Vocab = 40
	tokens := make([]int32, 80)
	for i := range tokens {
		tokens[i] = int32(i * i % cfg.Vocab)
	}
	whole, partly := newModel(t, cfg, tokens), newModel(t, cfg, tokens)
	for step := range 2 * whole.EpochSize() {
		table := partly.Variables()[0]
		if step%whole.EpochSize() != 0 && len(table.Next) > 12 {
			t.Fatalf("step %d: Next lists %d rows, a batch has 12 words", step, len(table.Next))
		}
		if !slices.IsSorted(table.Next) {
			t.Fatalf("step %d: Next = %v, want it ascending", step, table.Next)
		}
		for i := range table.Value {
			table.Value[i] = float32(math.NaN())
		}
		for _, row := range table.Next {
			lo := int(row) * cfg.Hidden
			copy(table.Value[lo:lo+cfg.Hidden], whole.Variables()[0].Value[lo:])
		}
		want, got := advance(t, whole), advance(t, partly)
		if got != want {
			t.Fatalf("step %d: loss = %v, with all rows %v", step, got, want)
		}
		for i, v := range partly.Variables() {
			if w := whole.Variables()[i]; !slices.Equal(v.Rows, w.Rows) || !slices.Equal(v.Grad, w.Grad) {
				t.Fatalf("step %d: gradient of %s differs from that with all rows", step, v.Name)
			}
		}
	}
}

// advance takes a step. At the end of an epoch all rows must be asked for, and
// the step is the first of the next.
func advance(t *testing.T, m *lstm.Model) float64 {
	t.Helper()
	r, err := m.Step(t.Context())
	if _, step := m.Position(); err == nil && step == m.EpochSize() {
		if next := m.Variables()[0].Next; next != nil {
			t.Fatalf("at the end of an epoch Next = %v, want nil", next)
		}
		if _, err := m.Step(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatalf("Step at the end of an epoch = %v, want EOF", err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.Loss
}
