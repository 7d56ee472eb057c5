package lstm_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"pushpull/model/lstm"
)

// A model learns a text that repeats itself, without a server: the gradient of
// each step is subtracted here.
func Example() {
	tokens := make([]int32, 200)
	for i := range tokens {
		tokens[i] = int32(i % 4) // 0 1 2 3 0 1 2 3 ...
	}
	m, err := lstm.New(lstm.Config{
		Vocab: 4, Layers: 1, Hidden: 8, Batch: 2, Unroll: 5,
		InitScale: 0.1, Keep: 1, MaxNorm: 1, Seed: 1,
	}, tokens)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for epoch := range 4 {
		for {
			_, err := m.Step(ctx)
			if err == io.EOF {
				break
			}
			if err != nil {
				log.Fatal(err)
			}
			for _, v := range m.Variables() {
				for i := range v.Rows { // of the embedding: rows i of Grad for rows v.Rows[i] of Value
					w := v.Value[int(v.Rows[i])*v.Width():]
					for k, g := range v.Grad[i*v.Width():][:v.Width()] {
						w[k] -= g
					}
				}
				if v.Rows == nil {
					for i, g := range v.Grad {
						v.Value[i] -= g
					}
				}
			}
		}
		fmt.Printf("epoch %d: perplexity %.1f\n", epoch+1, m.Perplexity())
	}
	valid, err := m.Evaluate(ctx, []int32{2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, 1, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("valid: perplexity %.1f\n", valid)
	// Output:
	// epoch 1: perplexity 4.4
	// epoch 2: perplexity 4.1
	// epoch 3: perplexity 1.5
	// epoch 4: perplexity 1.0
	// valid: perplexity 1.2
}

// Two workers train on a half of the text each.
func ExampleShare() {
	tokens := []int32{3, 1, 4, 1, 5, 9, 2}
	for task := range 2 {
		share, err := lstm.Share(tokens, task, 2)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(share)
	}
	// Output:
	// [3 1 4 1]
	// [5 9 2]
}
