package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"

	"pushpull/model"
	"pushpull/model/compute"
	"pushpull/model/lstm"
)

// batches is how many batches of random words are trained on, over and over.
const batches = 64

// A trainer is a worker without parameter servers: it applies its gradients
// itself.
type trainer struct {
	entry
	model *lstm.Model
	step  float32 // minus the rate
}

// newTrainer returns a trainer whose model computes with e.
func newTrainer(n entry, e compute.Engine) (*trainer, error) {
	p := n.preset
	m, err := lstm.New(lstm.Config{
		Vocab: p.Vocab, Layers: p.Layers, Hidden: p.Hidden, Batch: p.Batch, Unroll: p.Unroll,
		InitScale: p.InitScale, Keep: p.Keep, MaxNorm: p.MaxNorm,
		Seed: 1, Threads: n.threads, Engine: e,
	}, randomWords(p.Batch*(batches*p.Unroll+1), p.Vocab))
	return &trainer{n, m, float32(-p.Rate)}, err
}

// randomWords returns n words, the same every time.
func randomWords(n, vocab int) []int32 {
	r := rand.New(rand.NewPCG(1, 1))
	words := make([]int32, n)
	for i := range words {
		words[i] = r.Int32N(int32(vocab))
	}
	return words
}

// train makes one step: forward, backward, clip, update.
func (t *trainer) train(ctx context.Context) error {
	if err := t.compute(ctx); err != nil {
		return err
	}
	t.update()
	return nil
}

// compute leaves the clipped gradient of the next batch in the model's variables.
func (t *trainer) compute(ctx context.Context) error {
	_, err := t.model.Step(ctx)
	if errors.Is(err, io.EOF) {
		_, err = t.model.Step(ctx)
	}
	return err
}

// update applies the gradient.
func (t *trainer) update() {
	for _, v := range t.model.Variables() {
		if v.Rows == nil {
			t.descend(v)
			continue
		}
		w := v.Width()
		for i, row := range v.Rows {
			t.engine.Axpy(v.Value[int(row)*w:][:w], v.Grad[i*w:][:w], t.step)
		}
	}
}

// descend applies a gradient that is not in rows, on all threads.
func (t *trainer) descend(v *model.Variable) {
	compute.Parallel(t.threads, len(v.Value), func(lo, hi int) {
		t.engine.Axpy(v.Value[lo:hi], v.Grad[lo:hi], t.step)
	})
}
