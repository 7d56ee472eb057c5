package lstm

import (
	"slices"

	"pushpull/model"
)

// A lookahead tells which rows of the embedding a batch reads.
type lookahead struct {
	table *model.Variable
	seen  []bool  // by word
	rows  []int32 // memory of table.Next
}

func newLookahead(table *model.Variable, b Batches) lookahead {
	return lookahead{table, make([]bool, table.Shape[0]), make([]int32, 0, min(table.Shape[0], b.batch*b.unroll))}
}

// look sets the table's Next to the words of batch i, or to nil if the epoch
// has no batch i.
func (l *lookahead) look(b Batches, i int) {
	if i >= b.Len() {
		l.table.Next = nil
		return
	}
	l.rows = l.rows[:0]
	for r := range b.batch {
		for _, word := range b.tokens[r*b.row+i*b.unroll:][:b.unroll] {
			if !l.seen[word] {
				l.seen[word] = true
				l.rows = append(l.rows, word)
			}
		}
	}
	for _, word := range l.rows {
		l.seen[word] = false
	}
	slices.Sort(l.rows)
	l.table.Next = l.rows
}
