package lstm

import (
	"context"
	"fmt"
	"math"
)

// An evaluation is the size of batch that a network evaluates.
type evaluation struct{ batch, unroll int }

// evaluatedRows is how many words an evaluation computes at once if its own
// batches are smaller.
const evaluatedRows = 64

// Evaluate returns the model's perplexity on a text read in batches as by
// [NewBatches], from a state of zero, without dropout. It changes nothing that
// training sees.
//
// State is carried from batch to batch, so the perplexity depends on how many
// words are read but not on where batches end. Evaluate uses that: it computes
// several small batches as one longer one, which for batch 1 and unroll 1, as the
// tutorial tests, is many times faster and gives the same numbers. A network is
// kept for each size computed, at most two for a text, and used again.
//
// A text too short for one batch and a token that is no word of the vocabulary
// are errors. If ctx is done, Evaluate returns its error before the next batch.
func (m *Model) Evaluate(ctx context.Context, tokens []int32, batch, unroll int) (perplexity float64, err error) {
	batches, err := NewBatches(tokens, batch, unroll)
	if err != nil {
		return 0, fmt.Errorf("evaluate: %w", err)
	}
	if err := checkTokens(tokens, m.cfg.Vocab); err != nil {
		return 0, fmt.Errorf("evaluate: %w", err)
	}
	m.packs.expire() // once: weights do not change until the last batch
	defer m.packs.expire()

	time := batches.Len() * unroll
	stride := min(longStride(batch, unroll), time)
	cost := 0.0
	var last *network
	for t := 0; t < time; t += stride {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("evaluate: at time step %d of %d: %w", t, time, err)
		}
		n, err := m.evaluation(batch, min(stride, time-t))
		if err != nil {
			return 0, fmt.Errorf("evaluate: %w", err)
		}
		n.follow(last)
		last = n
		batches.read(t, n.unroll, n.x, n.y)
		c, err := n.run()
		if err != nil {
			return 0, fmt.Errorf("evaluate: %w", err)
		}
		cost += c
	}
	return math.Exp(cost / float64(time)), nil
}

// longStride returns the least multiple of unroll with which a batch has
// evaluatedRows.
func longStride(batch, unroll int) int {
	step := batch * unroll
	return (evaluatedRows + step - 1) / step * unroll
}

// evaluation returns the network for a size of batch.
func (m *Model) evaluation(batch, unroll int) (*network, error) {
	size := evaluation{batch, unroll}
	if n, ok := m.evaluations[size]; ok {
		return n, nil
	}
	if err := m.cfg.validateSize(batch, unroll); err != nil {
		return nil, err
	}
	n, err := newNetwork(m.cfg, m.variables, m.packs, 1, batch, unroll)
	if err != nil {
		return nil, err
	}
	if err := n.compile(); err != nil {
		return nil, err
	}
	m.evaluations[size] = n
	return n, nil
}

// follow takes over the state that the network before it leaves, or zero if it
// is the first.
func (n *network) follow(before *network) {
	switch before {
	case nil:
		n.reset()
	case n:
	default:
		for i, s := range before.state {
			copy(n.state[i].h, s.h)
			copy(n.state[i].c, s.c)
		}
	}
}
