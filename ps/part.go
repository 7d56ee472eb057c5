package ps

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"pushpull/transport"
)

// partName tells the parts of a shard apart.
type partName struct {
	variable string
	offset   int
}

// String returns the name as it stands in messages.
func (n partName) String() string { return fmt.Sprintf("%q[%d:]", n.variable, n.offset) }

// A part is a run of one variable's elements as a shard holds it.
type part struct {
	partName
	width int // elements in a row of the variable; 0 if it has none
	w     []float32
	slots [][]float32
	sum   sum
	stamp uint64 // of the last gradient that mentions the part; see Shard.stamp
}

// newPart checks what Init gives. The part aliases p.Data.
func newPart(p transport.Part) (*part, error) {
	if err := p.Check(len(p.Data)); err != nil {
		return nil, err
	}
	h := &part{partName: partName{p.Variable, p.Offset}, width: p.Width, w: p.Data}
	switch {
	case p.Offset > math.MaxInt-len(p.Data):
		return nil, fmt.Errorf("%s: offset out of range: %w", h, transport.ErrInvalid)
	case p.Rows != nil:
		return nil, fmt.Errorf("%s: weights given for %d rows: want the whole run: %w", h, len(p.Rows), transport.ErrInvalid)
	}
	return h, nil
}

// sortParts sorts by variable and offset and checks that no two overlap.
func sortParts(parts []*part) error {
	slices.SortFunc(parts, func(a, b *part) int {
		return cmp.Or(cmp.Compare(a.variable, b.variable), cmp.Compare(a.offset, b.offset))
	})
	for i := 1; i < len(parts); i++ {
		a, b := parts[i-1], parts[i]
		if a.variable == b.variable && (a.offset == b.offset || a.offset+len(a.w) > b.offset) {
			return fmt.Errorf("%s with %d elements overlaps %s: %w", a, len(a.w), b, transport.ErrInvalid)
		}
	}
	return nil
}

func (h *part) extent() transport.Extent {
	return transport.Extent{Variable: h.variable, Offset: h.offset, Length: len(h.w), Width: h.width}
}

// rows returns the number of rows of the part; 0 if it does not consist of
// whole rows.
func (h *part) rows() int {
	if h.width == 0 || len(h.w)%h.width != 0 {
		return 0
	}
	return len(h.w) / h.width
}

// check returns why p, which is well formed, does not fit the part; nil if it
// does.
func (h *part) check(p *transport.Part) error {
	switch {
	case p.Width != h.width && (p.Rows != nil || p.Width != 0):
		return fmt.Errorf("%s: got rows of %d elements, the shard has rows of %d: %w", h, p.Width, h.width, transport.ErrLength)
	case p.Rows == nil && len(p.Data) != len(h.w):
		return fmt.Errorf("%s: got %d elements, the shard has %d: %w", h, len(p.Data), len(h.w), transport.ErrLength)
	case len(p.Rows) > 0 && int(p.Rows[len(p.Rows)-1]) >= h.rows():
		return fmt.Errorf("%s: got row %d, the shard has %d rows of %d: %w",
			h, p.Rows[len(p.Rows)-1], h.rows(), h.width, transport.ErrLength)
	}
	return nil
}

// apply makes an update from a gradient that is not part of the sum, which is
// empty.
func (h *part) apply(u update, p *transport.Part) {
	switch {
	case p.Rows == nil:
		u.opt.Apply(u.t, u.rate, h.w, p.Data, h.slots)
	case u.opt.Lazy():
		for j, row := range p.Rows {
			h.applyRow(u, row, p.Data[j*h.width:(j+1)*h.width])
		}
	default:
		g := h.sum.zeros(len(h.w))
		for j, row := range p.Rows {
			copy(g[int(row)*h.width:], p.Data[j*h.width:(j+1)*h.width])
		}
		u.opt.Apply(u.t, u.rate, h.w, g, h.slots)
		for _, row := range p.Rows {
			clear(g[int(row)*h.width : (int(row)+1)*h.width])
		}
	}
}

// applyZero makes an update from a gradient that is zero.
func (h *part) applyZero(u update) {
	if !u.opt.Lazy() {
		u.opt.Apply(u.t, u.rate, h.w, h.sum.zeros(len(h.w)), h.slots)
	}
}

// applySum makes an update from the mean of the gradients in the sum, which is
// empty afterwards.
func (h *part) applySum(u update, n int) {
	switch {
	case h.sum.dense:
		mean(h.sum.g, n)
		u.opt.Apply(u.t, u.rate, h.w, h.sum.g, h.slots)
	case len(h.sum.rows) == 0:
		h.applyZero(u)
	default:
		for _, row := range h.sum.rows {
			g := h.sum.g[int(row)*h.width : (int(row)+1)*h.width]
			mean(g, n)
			if u.opt.Lazy() {
				h.applyRow(u, row, g)
			}
		}
		if !u.opt.Lazy() {
			u.opt.Apply(u.t, u.rate, h.w, h.sum.g, h.slots)
		}
	}
	h.sum.reset(h.width)
}

// applyRow makes an update of one row.
func (h *part) applyRow(u update, row int32, g []float32) {
	lo, hi := int(row)*h.width, (int(row)+1)*h.width
	for i, slot := range h.slots {
		u.slots[i] = slot[lo:hi]
	}
	u.opt.Apply(u.t, u.rate, h.w[lo:hi], g, u.slots)
}

// update is what all parts of an update have in common.
type update struct {
	opt   Optimizer
	t     int64 // the update's number, from 1
	rate  float32
	slots [][]float32 // scratch for applyRow
}
