package lstm

import (
	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A dropout is the operation that zeroes each element with probability 1-keep
// and divides the others by keep.
type dropout struct {
	signature
	arithmetic
	keep    float64
	random  stream
	draw    func() // fills the mask
	mask    []float32
	out, dx *tensor.Dense
}

var _ gorgonia.SDOp = (*dropout)(nil)

// newDropout returns a dropout of an n by width matrix.
func newDropout(a arithmetic, name string, keep float64, random stream, n, width int) *dropout {
	d := &dropout{
		signature:  signature{name, []hm.Type{matrixType}, matrixType, tensor.Shape{n, width}},
		arithmetic: a, keep: keep, random: random,
		mask: allocate(n * width), out: newTensor(n, width), dx: newTensor(n, width),
	}
	d.draw = d.sample
	return d
}

// sample fills the mask with 0 and 1/keep from the stream. No element depends on
// the number of threads.
func (d *dropout) sample() {
	scale := [2]float32{0, float32(1 / d.keep)} // looked up, since no CPU could predict the branch
	below := uint64(d.keep * (1 << 53))
	d.parallel(len(d.mask), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			kept := 0
			if d.random.at(i)>>11 < below {
				kept = 1
			}
			d.mask[i] = scale[kept]
		}
	})
	d.random = d.random.skip(len(d.mask))
}

// Do takes the matrix.
func (d *dropout) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	d.draw()
	d.Mul(floats(d.out), floats(in[0]), d.mask)
	return d.out, nil
}

// DiffWRT says that the matrix has a gradient.
func (d *dropout) DiffWRT(int) []bool { return []bool{true} }

// SymDiff adds the backward pass to the graph.
func (d *dropout) SymDiff(_ gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	dx, err := backward("d("+d.name+")", d.dx, func(in []gorgonia.Value) {
		d.Mul(floats(d.dx), floats(in[0]), d.mask)
	}, grad)
	return gorgonia.Nodes{dx}, err
}
