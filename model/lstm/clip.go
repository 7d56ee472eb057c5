package lstm

import (
	"math"

	"pushpull/model"
)

// A clipper takes norms and scales gradients, on several threads but with the
// same result as on one.
type clipper struct {
	arithmetic
	sums []float64 // of each piece of the longest gradient
	norm float64   // the last global norm taken
}

// piece is how many elements of a gradient are summed before sums are added up.
const piece = 1 << 16

func newClipper(a arithmetic, variables []*model.Variable) clipper {
	longest := 0
	for _, v := range variables {
		longest = max(longest, len(v.Grad))
	}
	return clipper{arithmetic: a, sums: make([]float64, pieces(longest))}
}

// clip scales all gradients by MaxNorm / max(norm, MaxNorm).
func (m *Model) clip() {
	if m.cfg.MaxNorm == 0 {
		return
	}
	c := &m.clipper
	squares := 0.0
	for _, v := range m.variables {
		g := gradient(v)
		if v.Rows != nil && m.cfg.Norm == SliceNorm {
			g = m.training.embedding.slices
		}
		squares += c.sumSquares(g)
	}
	c.norm = math.Sqrt(squares)
	if c.norm <= m.cfg.MaxNorm {
		return
	}
	for _, v := range m.variables {
		c.scale(gradient(v), float32(m.cfg.MaxNorm/c.norm))
	}
}

// gradient returns what of Grad is the gradient.
func gradient(v *model.Variable) []float32 {
	if v.Rows == nil {
		return v.Grad
	}
	return v.Grad[:len(v.Rows)*v.Width()]
}

// sumSquares returns the sum of the squares of x. The pieces it is summed by do
// not depend on the number of threads.
func (c *clipper) sumSquares(x []float32) float64 {
	sums := c.sums[:pieces(len(x))]
	c.parallel(len(sums), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			sums[i] = c.SumSquares(x[i*piece : min((i+1)*piece, len(x))])
		}
	})
	sum := 0.0
	for _, s := range sums {
		sum += s
	}
	return sum
}

// scale multiplies x by s.
func (c *clipper) scale(x []float32, s float32) {
	c.parallel(pieces(len(x)), func(lo, hi int) {
		c.Scale(x[lo*piece:min(hi*piece, len(x))], s)
	})
}

func pieces(n int) int { return (n + piece - 1) / piece }
