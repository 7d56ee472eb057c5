package lstm_test

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pushpull/model/lstm"
)

// withDropout is a config in which every part of a cursor matters.
func withDropout() lstm.Config {
	cfg := tiny()
	cfg.Keep = 0.6
	return cfg
}

// restore returns a model at the weights and cursor of another. Its seed is
// another too: a cursor carries what the seed was for.
func restore(t *testing.T, cfg lstm.Config, tokens []int32, weights [][]float32, cursor []byte) *lstm.Model {
	t.Helper()
	cfg.Seed += 100
	m := newModel(t, cfg, tokens)
	for i, v := range m.Variables() {
		copy(v.Value, weights[i])
	}
	if err := m.Seek(cursor); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGoingOnFromACursorEqualsNeverHavingStopped(t *testing.T) {
	cfg := withDropout()
	tokens := randomTokens(cfg.Batch*(5*cfg.Unroll+1), cfg.Vocab) // epochs of 5 steps
	m := newModel(t, cfg, tokens)
	for stop := range 13 {
		weights, cursor := values(m), slices.Clone(m.Cursor())
		restored := restore(t, cfg, tokens, weights, cursor)
		if got := restored.Cursor(); !bytes.Equal(cursor, got) {
			t.Errorf("stop %d: a model that sought a cursor returns another", stop)
		}
		more := newModel(t, cfg, tokens)
		if err := more.Seek(cursor); err != nil {
			t.Fatal(err)
		}
		// One step of the original, ends of epochs included, and the same of the restored.
		want, wantErr := m.Step(t.Context())
		got, gotErr := restored.Step(t.Context())
		if want != got || wantErr != gotErr {
			t.Errorf("stop %d: Step = %v, %v, want %v, %v", stop, got, gotErr, want, wantErr)
		}
		if wantErr != nil && wantErr != io.EOF {
			t.Fatal(wantErr)
		}
		for i, v := range m.Variables() {
			r := restored.Variables()[i]
			if wantErr == nil && (!slices.Equal(v.Rows, r.Rows) || !slices.Equal(compact(v.Grad, v.Rows, v.Width()), compact(r.Grad, r.Rows, r.Width()))) {
				t.Errorf("stop %d: the gradient of %s differs", stop, v.Name)
			}
			for k := range v.Value { // a change of weights that both see
				v.Value[k] *= 1.01
			}
		}
		wantEpoch, wantStep := m.Position()
		gotEpoch, gotStep := restored.Position()
		if gotEpoch != wantEpoch || gotStep != wantStep {
			t.Errorf("stop %d: Position() = %d, %d, want %d, %d", stop, gotEpoch, gotStep, wantEpoch, wantStep)
		}
		if got, want := restored.Perplexity(), m.Perplexity(); got != want {
			t.Errorf("stop %d: Perplexity() = %v, want %v", stop, got, want)
		}
	}
}

// compact returns what of a gradient is the gradient.
func compact(grad []float32, rows []int32, width int) []float32 {
	if rows == nil {
		return grad
	}
	return grad[:len(rows)*width]
}

func TestARunResumedManyStepsLaterEndsWithTheSameWeights(t *testing.T) {
	cfg := withDropout()
	tokens := randomTokens(cfg.Batch*(5*cfg.Unroll+1), cfg.Vocab)
	whole := newModel(t, cfg, tokens)
	wantLosses := train(t, whole, 17, 0.3)

	first := newModel(t, cfg, tokens)
	gotLosses := train(t, first, 7, 0.3)
	second := restore(t, cfg, tokens, values(first), first.Cursor())
	gotLosses = append(gotLosses, train(t, second, 10, 0.3)...)

	if diff := cmp.Diff(wantLosses, gotLosses); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(values(whole), values(second)); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
}

func TestACursorReusesItsMemory(t *testing.T) {
	m := newModel(t, withDropout(), randomTokens(100, 12))
	if n := testing.AllocsPerRun(10, func() { m.Cursor() }); n != 0 {
		t.Errorf("Cursor() allocates %v times, want none", n)
	}
}

func TestSeekRefusesWhatIsNotItsOwn(t *testing.T) {
	cfg := withDropout()
	tokens := randomTokens(100, cfg.Vocab)
	m := newModel(t, cfg, tokens)
	train(t, m, 2, 0.1)
	own := slices.Clone(m.Cursor())

	change := func(at int, b byte) []byte {
		c := slices.Clone(own)
		c[at] = b
		return c
	}
	other := func(f func(*lstm.Config), n int) []byte {
		cfg := cfg
		f(&cfg)
		return newModel(t, cfg, randomTokens(n, cfg.Vocab)).Cursor()
	}
	for _, c := range []struct {
		name   string
		cursor []byte
		want   string
	}{
		{"none", nil, "0 bytes"},
		{"no cursor", []byte("checkpoint, but of something else entirely, and long"), `"chec"`},
		{"a later version", change(4, 2), "version 2: want 1"},
		{"cut", own[:len(own)-1], "bytes: want"},
		{"added to", append(slices.Clone(own), 0), "bytes: want"},
		{"more layers", other(func(c *lstm.Config) { c.Layers++ }, 100), "layers 3, this one 2"},
		{"wider", other(func(c *lstm.Config) { c.Hidden++ }, 100), "hidden 9, this one 8"},
		{"another batch", other(func(c *lstm.Config) { c.Batch++ }, 100), "batch 4, this one 3"},
		{"another unroll", other(func(c *lstm.Config) { c.Unroll++ }, 100), "unroll 5, this one 4"},
		{"without dropout", other(func(c *lstm.Config) { c.Keep = 1 }, 100), "dropouts 0, this one 3"},
		{"another text", other(func(c *lstm.Config) {}, 200), "epoch has 16 steps, this one 8"},
		{"an epoch beyond all", change(36+7, 0x7f), "epoch"},
		{"a step beyond the epoch", change(44, 200), "step 200: an epoch has 8"},
		{"more time than an epoch", change(60, 200), "200 time steps: an epoch has 32"},
	} {
		err := m.Seek(c.cursor)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Seek of %s: %v, want an error with %q", c.name, err, c.want)
		}
		if got := m.Cursor(); !bytes.Equal(own, got) {
			t.Fatalf("Seek of %s failed and yet changed the model", c.name)
		}
	}
}

func FuzzSeek(f *testing.F) {
	cfg := withDropout()
	cfg.Batch, cfg.Unroll, cfg.Hidden, cfg.Layers = 1, 1, 2, 1
	m := newModel(f, cfg, []int32{0, 1, 2, 3, 4})
	f.Add([]byte{})
	f.Add(slices.Clone(m.Cursor()))
	train(f, m, 3, 0.1)
	f.Add(slices.Clone(m.Cursor()))
	f.Add(slices.Clone(m.Cursor()[:50]))
	f.Fuzz(func(t *testing.T, cursor []byte) {
		before := slices.Clone(m.Cursor())
		err := m.Seek(cursor)
		want := cursor
		if err != nil {
			want = before
		}
		if got := m.Cursor(); !bytes.Equal(want, got) {
			t.Fatalf("after Seek(%x) = %v, Cursor() = %x, want %x", cursor, err, got, want)
		}
		if _, err := m.Step(t.Context()); err != nil && err != io.EOF {
			t.Fatalf("after Seek(%x) = %v, Step: %v", cursor, err, err)
		}
	})
}
