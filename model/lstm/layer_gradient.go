package lstm

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A layerGradient goes back through a layer: from what the forward pass left in
// it and the gradient of its output, it computes the gradients of x, kernel and
// bias. The kernel's and the bias's go to their variables.
type layerGradient struct {
	*layer
	dz []float32 // [steps·batch, 4·width]
	dh []float32 // [steps·batch, width]: of a step's h, from the output and from the step after it
	dc []float32 // [batch, width]
	dx *tensor.Dense
}

func newLayerGradient(l *layer) *layerGradient {
	n := l.steps * l.batch
	return &layerGradient{
		layer: l,
		dz:    allocate(n * 4 * l.width), dh: allocate(n * l.width), dc: make([]float32, l.batch*l.width),
		dx: newTensor(n, l.in),
	}
}

// run takes x, the kernel, the layer's output and the gradient of that. Of the
// output it reads nothing: being an input of this function is what makes the
// layer run before it.
func (g *layerGradient) run(in []gorgonia.Value) {
	x, kernel := floats(in[0]), floats(in[1])
	g.packBackward(kernel)
	copy(g.dh, floats(in[3]))
	clear(g.dc)
	g.sequences(g.backward)

	n, gates := g.steps*g.batch, 4*g.width
	dKernel := g.kernel.Grad
	g.Gemm(g.threads, true, false, g.in, gates, n, x, g.in, g.dz, gates, false, dKernel, gates)
	g.Gemm(g.threads, true, false, g.width, gates, n, g.h, g.width, g.dz, gates, false, dKernel[g.in*gates:], gates)
	g.sumRows(g.bias.Grad)
	g.Gemm(g.threads, false, true, n, g.in, gates, g.dz, gates, kernel, gates, false, floats(g.dx), g.in)
}

// backward goes back through all steps of the sequences [lo, hi) of the batch.
func (g *layerGradient) backward(lo, hi, threads int) {
	w, gates := g.width, 4*g.width
	for t := g.steps - 1; t >= 0; t-- {
		first := t*g.batch + lo
		g.each(threads, first, hi-lo, func(r int) {
			g.LSTMBackward(g.dz[r*gates:][:gates], g.z[r*gates:][:gates], g.c[r*w:][:w], g.tanhC[r*w:][:w], g.dh[r*w:][:w], g.dc[r%g.batch*w:][:w])
		})
		if t > 0 {
			g.packs.hiddenT.Mul(threads, hi-lo, g.dz[first*gates:], gates, true, g.dh[(first-g.batch)*w:], w)
		}
	}
}

// sumRows sums the rows of dz. Threads divide the columns, so that the sum does
// not depend on how many they are.
func (g *layerGradient) sumRows(sum []float32) {
	gates := 4 * g.width
	clear(sum)
	g.parallel(gates, func(lo, hi int) {
		for r := range g.steps * g.batch {
			g.Axpy(sum[lo:hi], g.dz[r*gates:][lo:hi], 1)
		}
	})
}
