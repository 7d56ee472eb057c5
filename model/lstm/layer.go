package lstm

import (
	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"pushpull/model"
)

// A layer is an LSTM layer over all time steps of a batch, as one operation.
// From inputs x [steps·batch, in], kernel [in+width, 4·width], bias [4·width] and
// the h and c [batch, width] before the first step, it computes h [steps·batch,
// width]; see the package comment for the formulas.
type layer struct {
	signature
	arithmetic
	steps, batch, in, width int
	forgetBias              float32
	kernel, bias            *model.Variable
	packs                   *layerPacks
	trains                  bool // whether there is a backward pass, and new weights after it

	z     []float32 // [steps·batch, 4·width]: what the gates see, then what they say
	tanhC []float32 // [steps·batch, width]
	c, h  []float32 // [(steps+1)·batch, width]: block t is before step t, block t+1 after it
	out   *tensor.Dense
}

var _ gorgonia.SDOp = (*layer)(nil)

// newLayer returns a layer of the width and input that its kernel has.
func newLayer(a arithmetic, name string, kernel, bias *model.Variable, p *layerPacks, forgetBias float64, steps, batch int) *layer {
	n, width := steps*batch, len(bias.Value)/4
	l := &layer{
		signature:  signature{name, []hm.Type{matrixType, matrixType, vectorType, matrixType, matrixType}, matrixType, tensor.Shape{n, width}},
		arithmetic: a, steps: steps, batch: batch, in: kernel.Shape[0] - width, width: width,
		forgetBias: float32(forgetBias), kernel: kernel, bias: bias, packs: p,
		z: allocate(n * 4 * width), tanhC: allocate(n * width),
		c: allocate((n + batch) * width), h: allocate((n + batch) * width),
	}
	l.out = tensorOf(l.h[batch*width:], n, width)
	return l
}

// final returns h and c after the last step, which the next run overwrites.
func (l *layer) final() (h, c []float32) {
	n := l.steps * l.batch * l.width
	return l.h[n:], l.c[n:]
}

// Do takes x, kernel, bias, h and c.
func (l *layer) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	x, kernel, bias := floats(in[0]), floats(in[1]), floats(in[2])
	copy(l.h, floats(in[3]))
	copy(l.c, floats(in[4]))
	l.pack(kernel)
	l.timesInput(x, kernel)
	l.sequences(func(lo, hi, threads int) { l.forward(bias, lo, hi, threads) })
	return l.out, nil
}

// timesInput computes the input's share of z. It does not wait for h: one product
// for all steps. In training that is the only use of these weights before they
// change.
func (l *layer) timesInput(x, kernel []float32) {
	n, gates := l.steps*l.batch, 4*l.width
	if l.trains {
		l.Gemm(l.threads, false, false, n, gates, l.in, x, l.in, kernel, gates, false, l.z, gates)
		return
	}
	l.packs.input.pack(l.threads, false, l.in, gates, kernel, gates)
	l.packs.input.Mul(l.threads, n, x, l.in, false, l.z, gates)
}

// pack packs what of the kernel every step of the forward pass needs, unless it
// is packed.
func (l *layer) pack(kernel []float32) {
	gates := 4 * l.width
	l.packs.hidden.pack(l.threads, false, l.width, gates, kernel[l.in*gates:], gates)
}

// packBackward packs what the backward pass needs.
func (l *layer) packBackward(kernel []float32) {
	gates := 4 * l.width
	l.packs.hiddenT.pack(l.threads, true, gates, l.width, kernel[l.in*gates:], gates)
}

// forward computes all steps of the sequences [lo, hi) of the batch.
func (l *layer) forward(bias []float32, lo, hi, threads int) {
	w, gates := l.width, 4*l.width
	for t := range l.steps {
		first := t*l.batch + lo
		l.packs.hidden.Mul(threads, hi-lo, l.h[first*w:], w, true, l.z[first*gates:], gates)
		l.each(threads, first, hi-lo, func(r int) {
			next := (r + l.batch) * w
			l.LSTMForward(l.z[r*gates:][:gates], bias, l.c[r*w:][:w], l.c[next:][:w], l.tanhC[r*w:][:w], l.h[next:][:w], l.forgetBias)
		})
	}
}

// Recurrent weights up to this size stay in a core's own cache.
const cachedBytes = 1 << 20

// sequences calls f for the sequences of the batch. If the recurrent weights fit
// the cache of a core, each thread takes its part of the batch through all
// steps, and threads meet only at the end. Else they share the products of every
// step, each with its part of the weights.
func (l *layer) sequences(f func(lo, hi, threads int)) {
	if l.batch >= l.threads && 4*4*l.width*l.width <= cachedBytes {
		l.parallel(l.batch, func(lo, hi int) { f(lo, hi, 1) })
		return
	}
	f(0, l.batch, l.threads)
}

// each calls f for n rows from the first.
func (l *layer) each(threads, first, n int, f func(r int)) {
	if threads == 1 {
		for r := first; r < first+n; r++ {
			f(r)
		}
		return
	}
	arithmetic{l.Engine, threads}.parallel(n, func(lo, hi int) { l.each(1, first+lo, hi-lo, f) })
}

// DiffWRT says that x, kernel and bias have gradients; the state before the batch
// has none.
func (l *layer) DiffWRT(int) []bool { return []bool{true, true, true, false, false} }

// SymDiff adds the backward pass to the graph: one function, which returns the
// gradient of x, and the picks of those of kernel and bias.
func (l *layer) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	l.trains = true
	g := newLayerGradient(l)
	dx, err := backward("d("+l.name+")", g.dx, g.run, in[0], in[1], out, grad)
	if err != nil {
		return nil, err
	}
	dKernel, err := pick("d("+l.kernel.Name+")", tensorOf(l.kernel.Grad, l.kernel.Shape...), dx)
	if err != nil {
		return nil, err
	}
	dBias, err := pick("d("+l.bias.Name+")", tensorOf(l.bias.Grad, l.bias.Shape...), dx)
	return gorgonia.Nodes{dx, dKernel, dBias, nil, nil}, err
}
