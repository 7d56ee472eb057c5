package worker

import (
	"fmt"
	"slices"

	"pushpull/model"
)

// A Range is a contiguous run of a variable's elements, [Lo, Hi).
type Range struct {
	Variable *model.Variable
	Lo, Hi   int
}

// Bytes returns the size of the range's weights.
func (r Range) Bytes() int { return 4 * (r.Hi - r.Lo) }

// A Partitioner splits a variable into ranges that cover it in order. Cuts fall
// between rows, so that a row's gradient goes to one shard.
type Partitioner func(v *model.Variable) []Range

// Whole is the Partitioner that never splits.
func Whole(v *model.Variable) []Range { return []Range{{v, 0, len(v.Value)}} }

// FixedSize returns a Partitioner whose ranges take at most the given bytes of
// weights, or one row if that is more.
func FixedSize(bytes int) Partitioner {
	return func(v *model.Variable) []Range {
		width := v.Width()
		run := max(1, bytes/4/width) * width
		var rs []Range
		for lo := 0; lo < len(v.Value); lo += run {
			rs = append(rs, Range{v, lo, min(lo+run, len(v.Value))})
		}
		return rs
	}
}

// Automatic returns the Partitioner for a number of shards: variables stay
// whole on one; on several they are cut so finely that [Greedy] can give each
// shard its share to within a few percent, and no finer.
func Automatic(vars []*model.Variable, shards int) Partitioner {
	if shards <= 1 {
		return Whole
	}
	total := 0
	for _, v := range vars {
		total += 4 * len(v.Value)
	}
	const perShard = 32 // a shard's share is then off by at most 1/32 and one row
	return FixedSize(total / (perShard * shards))
}

// A Placement assigns each range a shard in [0, shards).
type Placement func(rs []Range, shards int) []int

// RoundRobin deals ranges out in order, whatever their size.
func RoundRobin(rs []Range, shards int) []int {
	out := make([]int, len(rs))
	for i := range rs {
		out[i] = i % shards
	}
	return out
}

// Greedy gives each range, largest first, to the shard with the fewest bytes.
// The largest and the smallest shard then differ by at most one range.
func Greedy(rs []Range, shards int) []int {
	order := make([]int, len(rs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rs[b].Bytes() - rs[a].Bytes() })
	out, load := make([]int, len(rs)), make([]int, shards)
	for _, i := range order {
		least := 0
		for s := range load {
			if load[s] < load[least] {
				least = s
			}
		}
		out[i] = least
		load[least] += rs[i].Bytes()
	}
	return out
}

// A Layout says which ranges each shard holds, in the order of the variables.
type Layout [][]Range

// NewLayout splits the variables and places the ranges.
func NewLayout(vars []*model.Variable, shards int, split Partitioner, place Placement) (Layout, error) {
	if shards < 1 {
		return nil, fmt.Errorf("worker: %d shards: want at least 1", shards)
	}
	var rs []Range
	for _, v := range vars {
		if n := v.Width() * rows(v); n != len(v.Value) || n != len(v.Grad) {
			return nil, fmt.Errorf("worker: variable %s: shape %v has %d elements, the value %d, the gradient %d: want all equal",
				v.Name, v.Shape, n, len(v.Value), len(v.Grad))
		}
		rs = append(rs, split(v)...)
	}
	layout := make(Layout, shards)
	for i, at := range place(rs, shards) {
		layout[at] = append(layout[at], rs[i])
	}
	return layout, nil
}

func rows(v *model.Variable) int {
	if len(v.Shape) == 0 {
		return 1
	}
	return v.Shape[0]
}

// Bytes returns the size of each shard's weights.
func (l Layout) Bytes() []int {
	out := make([]int, len(l))
	for i, rs := range l {
		for _, r := range rs {
			out[i] += r.Bytes()
		}
	}
	return out
}

// Imbalance returns the size of the largest shard over the mean: 1 is perfect.
func (l Layout) Imbalance() float64 {
	sum, most := 0, 0
	for _, n := range l.Bytes() {
		sum, most = sum+n, max(most, n)
	}
	if sum == 0 {
		return 1
	}
	return float64(most) * float64(len(l)) / float64(sum)
}
