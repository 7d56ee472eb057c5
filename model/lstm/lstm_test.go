package lstm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pushpull/model/compute"
	"pushpull/model/lstm"
)

// tiny is a config whose steps take no time.
func tiny() lstm.Config {
	return lstm.Config{Vocab: 12, Layers: 2, Hidden: 8, Batch: 3, Unroll: 4, InitScale: 0.3, Keep: 1, MaxNorm: 1, Seed: 1}
}

func newModel(t testing.TB, cfg lstm.Config, tokens []int32) *lstm.Model {
	t.Helper()
	m, err := lstm.New(cfg, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// train takes steps and applies each gradient at a rate, as a server would. At
// the end of an epoch it goes on with the next.
func train(t testing.TB, m *lstm.Model, steps int, rate float32) (losses []float64) {
	t.Helper()
	for len(losses) < steps {
		r, err := m.Step(t.Context())
		if err == io.EOF {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, r.Loss)
		for _, v := range m.Variables() {
			if v.Rows == nil {
				for i, g := range v.Grad {
					v.Value[i] -= rate * g
				}
				continue
			}
			for i, row := range v.Rows {
				w := v.Value[int(row)*v.Width():][:v.Width()]
				for k, g := range v.Grad[i*v.Width():][:v.Width()] {
					w[k] -= rate * g
				}
			}
		}
	}
	return losses
}

// values returns copies of all weights.
func values(m *lstm.Model) [][]float32 {
	var all [][]float32
	for _, v := range m.Variables() {
		all = append(all, slices.Clone(v.Value))
	}
	return all
}

func TestVariablesAreNamedAndShapedAsDocumented(t *testing.T) {
	m := newModel(t, tiny(), randomTokens(100, 12))
	var got []string
	for _, v := range m.Variables() {
		got = append(got, fmt.Sprint(v.Name, v.Shape))
		n := 1
		for _, d := range v.Shape {
			n *= d
		}
		if len(v.Value) != n || len(v.Grad) != n {
			t.Errorf("%s %v has %d values and %d of gradient, want %d each", v.Name, v.Shape, len(v.Value), len(v.Grad), n)
		}
		if rows := v.Rows != nil; rows != (v.Name == "embedding") {
			t.Errorf("before the first step %s has rows: %v, want only the embedding to", v.Name, rows)
		}
	}
	want := []string{
		"embedding[12 8]", "lstm0_kernel[16 32]", "lstm0_bias[32]", "lstm1_kernel[16 32]", "lstm1_bias[32]",
		"softmax_w[8 12]", "softmax_b[12]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

func TestInitialWeightsDependOnTheSeedOnly(t *testing.T) {
	cfg := tiny()
	first := values(newModel(t, cfg, randomTokens(100, 12)))
	portable, err := compute.ByName("portable")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Threads, cfg.Engine, cfg.Keep, cfg.Batch = 2, portable, 0.5, 1
	if diff := cmp.Diff(first, values(newModel(t, cfg, randomTokens(50, 12)))); diff != "" {
		t.Errorf("the same seed gives other weights:\n%s", diff)
	}
	cfg.Seed++
	if cmp.Equal(first[0], values(newModel(t, cfg, randomTokens(50, 12)))[0]) {
		t.Error("another seed gives the same weights")
	}
}

func TestInitialWeightsAreUniformAndBiasesZero(t *testing.T) {
	cfg := lstm.Config{Vocab: 500, Layers: 1, Hidden: 40, Batch: 1, Unroll: 1, InitScale: 0.1, Keep: 1}
	for _, v := range newModel(t, cfg, []int32{1, 2}).Variables() {
		mean, squares := 0.0, 0.0
		for _, x := range v.Value {
			if !(math.Abs(float64(x)) <= 0.1) {
				t.Fatalf("%s has an initial weight of %v, want at most 0.1", v.Name, x)
			}
			mean += float64(x)
			squares += float64(x) * float64(x)
		}
		n := float64(len(v.Value))
		mean, deviation := mean/n, math.Sqrt(squares/n)
		want := 0.1 / math.Sqrt(3)
		if strings.HasSuffix(v.Name, "bias") {
			want = 0
		}
		if math.Abs(mean) > 5*want/math.Sqrt(n) || math.Abs(deviation-want) > 3*want/math.Sqrt(n) {
			t.Errorf("%s has mean %.4f and deviation %.4f, want 0 and %.4f", v.Name, mean, deviation, want)
		}
	}
}

func TestTheFirstLossIsThatOfAGuess(t *testing.T) {
	cfg := tiny()
	cfg.InitScale = 0.05
	r, err := newModel(t, cfg, randomTokens(100, 12)).Step(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Loss/float64(cfg.Unroll), math.Log(12); math.Abs(got/want-1) > 0.02 {
		t.Errorf("the first loss is %.3f nats a word, want nearly ln(12) = %.3f", got, want)
	}
	if got, want := r.Examples, cfg.Batch*cfg.Unroll; got != want {
		t.Errorf("Examples = %d, want %d", got, want)
	}
}

func TestOneBatchCanBeLearnedByHeart(t *testing.T) {
	for _, name := range compute.Names() {
		t.Run("engine="+name, func(t *testing.T) {
			cfg := tiny()
			cfg.Engine, _ = compute.ByName(name)
			cfg.MaxNorm = 5
			m := newModel(t, cfg, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 3, 5, 1})
			if got := m.EpochSize(); got != 1 {
				t.Fatalf("EpochSize() = %d, want 1", got)
			}
			losses := train(t, m, 200, 1)
			if last := losses[len(losses)-1] / float64(cfg.Unroll); !(last < 0.05) {
				t.Errorf("after %d steps on one batch the loss is %.3f nats a word, want less than 0.05", len(losses), last)
			}
		})
	}
}

func TestTheSmallestModelWorks(t *testing.T) {
	for _, vocab := range []int{1, 2} {
		for _, threads := range []int{1, 2} {
			m := newModel(t, lstm.Config{Vocab: vocab, Layers: 1, Hidden: 1, Batch: 1, Unroll: 1, InitScale: 0.1, Keep: 0.5, MaxNorm: 1, Threads: threads}, make([]int32, 5))
			losses := train(t, m, 10, 0.1)
			if first := losses[0]; math.Abs(first-math.Log(float64(vocab))) > 0.1 {
				t.Errorf("vocabulary %d: the first loss is %v, want nearly its logarithm", vocab, first)
			}
			if p, err := m.Evaluate(t.Context(), make([]int32, 5), 1, 1); err != nil || !(p >= 1 && p < 2.2) {
				t.Errorf("Evaluate = %v, %v, want a perplexity from 1 to %d", p, err, vocab)
			}
		}
	}
}

// relative returns the norm of a-b over that of a.
func relative(a, b []float32) float64 {
	difference, norm := 0.0, 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		difference += d * d
		norm += float64(a[i]) * float64(a[i])
	}
	return math.Sqrt(difference / max(norm, 1e-30))
}

func TestEnginesAgree(t *testing.T) {
	for _, cfg := range []lstm.Config{
		{Vocab: 37, Layers: 2, Hidden: 19, Batch: 5, Unroll: 3, InitScale: 0.3, Keep: 0.6, MaxNorm: 2},
		{Vocab: 101, Layers: 1, Hidden: 265, Batch: 2, Unroll: 2, InitScale: 0.05, Keep: 1, MaxNorm: 2},
	} {
		var first [][]float32
		for _, name := range compute.Names() {
			cfg.Engine, _ = compute.ByName(name)
			m := newModel(t, cfg, randomTokens(200, cfg.Vocab))
			train(t, m, 4, 0.5)
			got := values(m)
			if first == nil {
				first = got
			}
			for i, v := range m.Variables() {
				if d := relative(first[i], got[i]); !(d < 1e-5) {
					t.Errorf("after 4 steps, weights of %s differ by %.2g between the engines %s and %s", v.Name, d, compute.Names()[0], name)
				}
			}
		}
	}
}

func TestThreadsDoNotChangeABit(t *testing.T) {
	for _, name := range compute.Names() {
		engine, err := compute.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, cfg := range []lstm.Config{
			{Vocab: 300, Layers: 2, Hidden: 40, Batch: 7, Unroll: 3, InitScale: 0.3, Keep: 0.6, MaxNorm: 0.5}, // splits the batch
			{Vocab: 50, Layers: 1, Hidden: 264, Batch: 5, Unroll: 2, InitScale: 0.1, Keep: 1, MaxNorm: 0.5},   // splits the columns
			{Vocab: 300, Layers: 1, Hidden: 40, Batch: 1, Unroll: 9, InitScale: 0.1, Keep: 1, MaxNorm: 0.5},   // has nothing to split of the batch
		} {
			cfg.Engine = engine
			var first [][]float32
			for _, threads := range []int{1, 2, 3} {
				cfg.Threads = threads
				m := newModel(t, cfg, randomTokens(200, cfg.Vocab))
				train(t, m, 2, 0.5)
				got := values(m)
				if first == nil {
					first = got
				}
				for i, v := range m.Variables() {
					if !slices.Equal(first[i], got[i]) {
						t.Errorf("engine %s, hidden %d, batch %d: weights of %s differ by %.2g between 1 and %d threads, want no bit to",
							name, cfg.Hidden, cfg.Batch, v.Name, relative(first[i], got[i]), threads)
					}
				}
			}
		}
	}
}

func TestModelsBesideEachOtherShareNothing(t *testing.T) {
	cfg := tiny()
	cfg.Keep, cfg.Threads = 0.7, 2
	tokens := randomTokens(200, cfg.Vocab)
	run := func() [][]float32 {
		m, err := lstm.New(cfg, tokens)
		if err != nil {
			t.Error(err)
			return nil
		}
		train(t, m, 12, 0.5)
		if _, err := m.Evaluate(t.Context(), tokens, 2, 3); err != nil {
			t.Error(err)
		}
		return values(m)
	}
	want := run()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := run(); !cmp.Equal(want, got) {
				t.Error("a model beside others ends with other weights than one alone")
			}
		})
	}
	wg.Wait()
}

func TestStateIsCarriedWithinAnEpochAndZeroAtItsStart(t *testing.T) {
	cfg := tiny()
	cfg.Batch, cfg.Unroll = 1, 2
	m := newModel(t, cfg, []int32{1, 2, 1, 2, 1, 2, 1})
	losses := train(t, m, 6, 0) // two epochs of three batches, at weights that stay
	if losses[0] == losses[1] || losses[1] == losses[2] {
		t.Errorf("losses of equal batches at equal weights are %v: want them to differ by the state carried", losses[:3])
	}
	if diff := cmp.Diff(losses[:3], losses[3:]); diff != "" {
		t.Errorf("the second epoch differs from the first, so it did not start from zero:\n%s", diff)
	}
}

func TestAnEpochEndsWithEOF(t *testing.T) {
	cfg := tiny()
	m := newModel(t, cfg, randomTokens(cfg.Batch*(2*cfg.Unroll+1), cfg.Vocab))
	if !math.IsNaN(m.Perplexity()) {
		t.Errorf("before the first step Perplexity() = %v, want NaN", m.Perplexity())
	}
	type place struct{ Epoch, Step int }
	at := func() place {
		epoch, step := m.Position()
		return place{epoch, step}
	}
	places := []place{at()}
	sum := 0.0
	for epoch := range 2 {
		for {
			r, err := m.Step(t.Context())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			sum += r.Loss
			places = append(places, at())
		}
		places = append(places, at())
		if got, want := m.Perplexity(), math.Exp(sum/float64(2*cfg.Unroll)); math.Abs(got/want-1) > 1e-12 {
			t.Errorf("after epoch %d Perplexity() = %v, want %v", epoch, got, want)
		}
		sum = 0
	}
	want := []place{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {2, 0}}
	if diff := cmp.Diff(want, places); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
}

func TestACanceledStepReturnsTheReasonAndReadsNothing(t *testing.T) {
	a, b := newModel(t, tiny(), randomTokens(100, 12)), newModel(t, tiny(), randomTokens(100, 12))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Step(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Step of a canceled context = %v, want context.Canceled", err)
	}
	if _, err := a.Evaluate(ctx, randomTokens(100, 12), 1, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Evaluate of a canceled context = %v, want context.Canceled", err)
	}
	if diff := cmp.Diff(train(t, b, 3, 0.1), train(t, a, 3, 0.1)); diff != "" {
		t.Errorf("losses after a canceled step (-want +got):\n%s", diff)
	}
}

func TestAWeightThatIsNotANumberShows(t *testing.T) {
	for _, name := range compute.Names() {
		for i, v := range newModel(t, tiny(), randomTokens(50, 12)).Variables() {
			for _, bad := range []float64{math.NaN(), math.Inf(1)} {
				t.Run(fmt.Sprintf("engine=%s/variable=%s/value=%v", name, v.Name, bad), func(t *testing.T) {
					cfg := tiny()
					cfg.Engine, _ = compute.ByName(name)
					m := newModel(t, cfg, randomTokens(50, 12))
					w := m.Variables()[i].Value
					for k := range w {
						w[k] = float32(bad)
					}
					r, err := m.Step(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					finite := !math.IsNaN(r.Loss) && !math.IsInf(r.Loss, 0)
					for _, v := range m.Variables() {
						for _, g := range v.Grad {
							finite = finite && !math.IsNaN(float64(g)) && !math.IsInf(float64(g), 0)
						}
					}
					// Infinite biases of a gate only close or open it.
					if finite && !(math.IsInf(bad, 1) && strings.HasSuffix(v.Name, "_bias")) {
						t.Errorf("the loss %v and all gradients are finite, want that %v weights show", r.Loss, bad)
					}
					if _, err := m.Evaluate(t.Context(), counting(12), 1, 1); err != nil {
						t.Errorf("Evaluate: %v", err)
					}
				})
			}
		}
	}
}

func TestABadConfigIsNamed(t *testing.T) {
	for _, c := range []struct {
		field  string
		value  string
		change func(*lstm.Config)
	}{
		{"Vocab", "0", func(c *lstm.Config) { c.Vocab = 0 }},
		{"Layers", "0", func(c *lstm.Config) { c.Layers = 0 }},
		{"Hidden", "-1", func(c *lstm.Config) { c.Hidden = -1 }},
		{"Batch", "0", func(c *lstm.Config) { c.Batch = 0 }},
		{"Unroll", "-7", func(c *lstm.Config) { c.Unroll = -7 }},
		{"InitScale", "-0.1", func(c *lstm.Config) { c.InitScale = -0.1 }},
		{"InitScale", "NaN", func(c *lstm.Config) { c.InitScale = math.NaN() }},
		{"ForgetBias", "+Inf", func(c *lstm.Config) { c.ForgetBias = math.Inf(1) }},
		{"Keep", "0", func(c *lstm.Config) { c.Keep = 0 }},
		{"Keep", "1.5", func(c *lstm.Config) { c.Keep = 1.5 }},
		{"Keep", "NaN", func(c *lstm.Config) { c.Keep = math.NaN() }},
		{"MaxNorm", "-5", func(c *lstm.Config) { c.MaxNorm = -5 }},
		{"Norm", "Norm(9)", func(c *lstm.Config) { c.Norm = 9 }},
		{"Threads", "-2", func(c *lstm.Config) { c.Threads = -2 }},
		{"Hidden", "30000000", func(c *lstm.Config) { c.Hidden = 30_000_000 }},
		{"Vocab", "2000000000", func(c *lstm.Config) { c.Vocab = 2_000_000_000 }},
	} {
		cfg := tiny()
		c.change(&cfg)
		_, err := lstm.New(cfg, randomTokens(100, 12))
		if err == nil || !strings.Contains(err.Error(), c.field) || !strings.Contains(err.Error(), c.value) {
			t.Errorf("New with %s %s: %v, want an error that names both", c.field, c.value, err)
		}
	}
}

func TestATextThatDoesNotFitIsAnError(t *testing.T) {
	for _, c := range []struct {
		tokens []int32
		want   string
	}{
		{nil, "text of 0 tokens"},
		{randomTokens(14, 12), "needs 15"},
		{append(randomTokens(50, 12), 12), "token 50 is word 12: want 0 to 11"},
		{append(randomTokens(50, 12), -1), "token 50 is word -1"},
	} {
		if _, err := lstm.New(tiny(), c.tokens); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New with %d tokens: %v, want an error with %q", len(c.tokens), err, c.want)
		}
		m := newModel(t, tiny(), randomTokens(100, 12))
		if _, err := m.Evaluate(t.Context(), c.tokens, 3, 4); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Evaluate with %d tokens: %v, want an error with %q", len(c.tokens), err, c.want)
		}
	}
}

func TestAStepOfSmallAllocatesLittle(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector pools drop what they hold at random")
	}
	for _, threads := range []int{1, 2} {
		cfg := presets[0].cfg
		cfg.Threads = threads
		m := newModel(t, cfg, randomTokens(10_000, cfg.Vocab))
		least := uint64(math.MaxUint64) // an engine's pool may be refilled at any step, but not at every one
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := m.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.Cursor()
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		if least >= 100_000 {
			t.Errorf("with %d threads a step of small allocates %d bytes, want less than 100 KB", threads, least)
		}
		t.Logf("with %d threads a step of small allocates %d bytes", threads, least)
	}
}

// Gorgonia panics when imported by a Go that one of its modules does not know,
// unless an environment variable forbids it to.
func TestAProgramWithThisPackageStarts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$")
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ASSUME_NO_MOVING_GC") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("this program without its tests: %v\n%s", err, out)
	}
}
