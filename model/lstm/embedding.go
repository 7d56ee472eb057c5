package lstm

import (
	"slices"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"pushpull/model"
)

// An embedding is the operation that looks words up in a table: row r of its
// output is the table's row for word r.
type embedding struct {
	signature
	arithmetic
	table *model.Variable
	width int
	out   *tensor.Dense

	// What the backward pass needs and leaves.
	slot   []int32   // by word: the place of its row in the gradient, or -1
	rows   []int32   // words that have a row, ascending
	slices []float32 // the gradient of the last run before rows were added, one row per word of the batch
}

var _ gorgonia.SDOp = (*embedding)(nil)

// newEmbedding returns an embedding of n words.
func newEmbedding(a arithmetic, table *model.Variable, n int) *embedding {
	width := table.Width()
	return &embedding{
		signature:  signature{"embedding", []hm.Type{matrixType, wordType}, matrixType, tensor.Shape{n, width}},
		arithmetic: a, table: table, width: width, out: newTensor(n, width),
	}
}

// Do takes the table and the words.
func (e *embedding) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	table, out := floats(in[0]), floats(e.out)
	for r, word := range words(in[1]) {
		copy(e.row(out, r), e.row(table, int(word)))
	}
	return e.out, nil
}

// DiffWRT says that the table has a gradient and the words have none.
func (e *embedding) DiffWRT(int) []bool { return []bool{true, false} }

// SymDiff adds the backward pass to the graph.
func (e *embedding) SymDiff(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	e.slot = make([]int32, e.table.Shape[0])
	for i := range e.slot {
		e.slot[i] = -1
	}
	e.rows = make([]int32, 0, min(e.shape[0], len(e.slot)))
	e.table.Rows = e.rows
	d, err := backward("d(embedding)", tensorOf(e.table.Grad, e.table.Shape...), e.backward, in[1], grad)
	return gorgonia.Nodes{d, nil}, err
}

// backward adds the rows of the gradient that belong to one word. The result
// has the table's shape but is compact: its first rows are those of the words
// in e.rows, the rest is not looked at by anybody.
func (e *embedding) backward(in []gorgonia.Value) {
	batch, grad := words(in[0]), floats(in[1])
	e.slices = grad
	e.rows = e.rows[:0]
	for _, word := range batch {
		if e.slot[word] < 0 {
			e.slot[word] = 0
			e.rows = append(e.rows, word)
		}
	}
	slices.Sort(e.rows)
	for i, word := range e.rows {
		e.slot[word] = int32(i)
	}
	clear(e.table.Grad[:len(e.rows)*e.width])
	for r, word := range batch {
		e.Axpy(e.row(e.table.Grad, int(e.slot[word])), e.row(grad, r), 1)
	}
	for _, word := range e.rows {
		e.slot[word] = -1
	}
	e.table.Rows = e.rows
}

// row returns row i of a matrix as wide as the table.
func (e *embedding) row(x []float32, i int) []float32 { return x[i*e.width:][:e.width] }
