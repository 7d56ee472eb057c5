package lstm

import "fmt"

// Batches cuts a text into batches as the PTB tutorial does. The text becomes
// Batch rows of equal length, what is left over is dropped, and each batch is
// the next Unroll columns: row b of one batch continues row b of the batch
// before it. A batch has words x and the words y that follow them, which are
// the same text one word later.
type Batches struct {
	tokens        []int32
	batch, unroll int
	row           int // tokens in a row
}

// NewBatches cuts tokens, which it keeps and which must not change. A text too
// short for one batch is an error.
func NewBatches(tokens []int32, batch, unroll int) (Batches, error) {
	if batch < 1 || unroll < 1 {
		return Batches{}, fmt.Errorf("lstm: batches of %d by %d words: want at least 1 by 1", batch, unroll)
	}
	b := Batches{tokens: tokens, batch: batch, unroll: unroll, row: len(tokens) / batch}
	if b.Len() < 1 {
		return Batches{}, fmt.Errorf(
			"lstm: a text of %d tokens is too short: one batch of %d by %d words and the word after each needs %.0f; lower the batch or the unroll, or bring more text",
			len(tokens), batch, unroll, float64(batch)*(float64(unroll)+1))
	}
	return b, nil
}

// Len returns the number of batches in an epoch.
func (b Batches) Len() int { return max(b.row-1, 0) / b.unroll }

// Read fills x and y, which are time-major and Batch·Unroll long, with batch i:
// x[t·Batch+r] is the word of row r at time t.
func (b Batches) Read(i int, x, y []int32) { b.read(i*b.unroll, b.unroll, x, y) }

// read fills x and y with n columns of the text from column start.
func (b Batches) read(start, n int, x, y []int32) {
	for r := range b.batch {
		text := b.tokens[r*b.row+start:][:n+1]
		for t := range n {
			x[t*b.batch+r], y[t*b.batch+r] = text[t], text[t+1]
		}
	}
}

// checkTokens says which token is not a word of the vocabulary, if any.
func checkTokens(tokens []int32, vocab int) error {
	for i, id := range tokens {
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("lstm: token %d is word %d: want 0 to %d, the vocabulary's", i, id, vocab-1)
		}
	}
	return nil
}

// Share returns the part of a text that one of several tasks trains on, a view
// of it. The shares of all tasks, in order, are the text: none overlaps
// another, nothing is left out, and their lengths differ by one at most.
func Share(tokens []int32, task, tasks int) ([]int32, error) {
	if tasks < 1 || task < 0 || task >= tasks {
		return nil, fmt.Errorf("lstm: share of task %d of %d: want a task from 0 to %d", task, tasks, tasks-1)
	}
	lo, hi := shareStart(len(tokens), task, tasks), shareStart(len(tokens), task+1, tasks)
	return tokens[lo:hi:hi], nil
}

// shareStart returns where the share of a task starts in n tokens: the first
// n%tasks tasks have one more.
func shareStart(n, task, tasks int) int {
	return n/tasks*task + min(task, n%tasks)
}
