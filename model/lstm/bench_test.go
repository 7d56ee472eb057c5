package lstm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pushpull/model/lstm"
)

// presets are the sizes of the tutorial's models.
var presets = []struct {
	name string
	cfg  lstm.Config
}{
	{"small", lstm.Config{Vocab: 10000, Layers: 2, Hidden: 200, Batch: 20, Unroll: 20, InitScale: 0.1, Keep: 1, MaxNorm: 5}},
	{"medium", lstm.Config{Vocab: 10000, Layers: 2, Hidden: 650, Batch: 20, Unroll: 35, InitScale: 0.05, Keep: 0.5, MaxNorm: 5}},
	{"large", lstm.Config{Vocab: 10000, Layers: 2, Hidden: 1500, Batch: 20, Unroll: 35, InitScale: 0.04, Keep: 0.35, MaxNorm: 10}},
}

// randomTokens returns n words of a vocabulary, the same every time.
func randomTokens(n, vocab int) []int32 {
	r := rand.New(rand.NewPCG(1, 2))
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = r.Int32N(int32(vocab))
	}
	return tokens
}

func BenchmarkStep(b *testing.B) {
	for _, p := range presets {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("model=%s/threads=%d", p.name, threads), func(b *testing.B) {
				p.cfg.Threads = threads
				m, err := lstm.New(p.cfg, randomTokens(100_000, p.cfg.Vocab))
				if err != nil {
					b.Fatal(err)
				}
				words := 0
				b.ReportAllocs()
				for b.Loop() {
					r, err := m.Step(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					words += r.Examples
				}
				b.ReportMetric(float64(words)/b.Elapsed().Seconds(), "words/s")
			})
		}
	}
}
