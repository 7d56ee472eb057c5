package lstm

import (
	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"pushpull/model"
)

// A projection is the end of the network as one operation: logits h W + b [rows,
// vocab], their softmax, and the cross entropy with the words that follow,
// summed over the rows and divided by the batch.
type projection struct {
	signature
	arithmetic
	rows, width, vocab, batch int
	weights, bias             *model.Variable
	packs                     *packed

	logits []float32 // [rows, vocab]; what is left there is scratch, or their gradient
	nats   []float32 // cross entropy of each row
	cost   *gorgonia.F64

	// partial is [blocks, vocab]: sums of the gradient over blocks of rows, taken
	// while the rows are in cache. That there are always as many blocks makes the
	// sum independent of the number of threads. Nil if there is no backward pass.
	partial []float32
	dh      *tensor.Dense
}

// blocks of rows; more than threads anybody has here, and few enough to add up.
const blocks = 16

var _ gorgonia.SDOp = (*projection)(nil)

// newProjection returns the projection of a number of rows, steps·batch.
func newProjection(a arithmetic, weights, bias *model.Variable, p *packed, rows, batch int) *projection {
	width, vocab := weights.Shape[0], weights.Shape[1]
	return &projection{
		signature:  signature{"projection", []hm.Type{matrixType, matrixType, vectorType, wordType}, costType, tensor.ScalarShape()},
		arithmetic: a, rows: rows, width: width, vocab: vocab, batch: batch, weights: weights, bias: bias, packs: p,
		logits: allocate(rows * vocab), nats: make([]float32, rows), cost: gorgonia.NewF64(0),
	}
}

// Do takes h, weights, bias and the words that follow.
func (p *projection) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	h, weights, bias, targets := floats(in[0]), floats(in[1]), floats(in[2]), words(in[3])
	p.multiply(h, weights)
	clear(p.partial)
	p.parallel(blocks, func(lo, hi int) {
		for b := lo; b < hi; b++ {
			p.block(b, bias, targets)
		}
	})
	sum := 0.0
	for _, v := range p.nats {
		sum += float64(v)
	}
	*p.cost = gorgonia.F64(sum / float64(p.batch))
	return p.cost, nil
}

// multiply computes the logits without bias. In training that is the only use of
// the weights in this form before they change, so they are not packed for more.
func (p *projection) multiply(h, weights []float32) {
	if p.trains() {
		p.Gemm(p.threads, false, false, p.rows, p.vocab, p.width, h, p.width, weights, p.vocab, false, p.logits, p.vocab)
		return
	}
	p.packs.pack(p.threads, false, p.width, p.vocab, weights, p.vocab)
	p.packs.Mul(p.threads, p.rows, h, p.width, false, p.logits, p.vocab)
}

// trains reports whether there is a backward pass.
func (p *projection) trains() bool { return p.partial != nil }

// block computes the cross entropy of a block of rows and, if there is a backward
// pass, the gradient of their logits and its sum.
func (p *projection) block(b int, bias []float32, targets []int32) {
	grad := p.trains()
	for r := b * p.rows / blocks; r < (b+1)*p.rows/blocks; r++ {
		row := p.logits[r*p.vocab:][:p.vocab]
		p.nats[r] = p.SoftmaxXent(row, bias, int(targets[r]), 1/float32(p.batch), grad)
		if grad {
			p.Axpy(p.partial[b*p.vocab:][:p.vocab], row, 1)
		}
	}
}

// DiffWRT says that h, weights and bias have gradients and the words have none.
func (p *projection) DiffWRT(int) []bool { return []bool{true, true, true, false} }

// SymDiff adds the backward pass to the graph: one function, which returns the
// gradient of h, and the picks of those of weights and bias.
func (p *projection) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	p.partial, p.dh = make([]float32, blocks*p.vocab), newTensor(p.rows, p.width)
	dh, err := backward("d(projection)", p.dh, p.backward, in[0], in[1], out, grad)
	if err != nil {
		return nil, err
	}
	dWeights, err := pick("d("+p.weights.Name+")", tensorOf(p.weights.Grad, p.weights.Shape...), dh)
	if err != nil {
		return nil, err
	}
	dBias, err := pick("d("+p.bias.Name+")", tensorOf(p.bias.Grad, p.bias.Shape...), dh)
	return gorgonia.Nodes{dh, dWeights, dBias, nil}, err
}

// backward takes h, weights, the cost, which it does not read, and the gradient
// of the cost.
func (p *projection) backward(in []gorgonia.Value) {
	h, weights, seed := floats(in[0]), floats(in[1]), in[3].Data().(float64)
	if seed != 1 { // it is 1 unless the cost is not the end of the graph
		p.Scale(p.logits, float32(seed))
		p.Scale(p.partial, float32(seed))
	}
	p.Gemm(p.threads, true, false, p.width, p.vocab, p.rows, h, p.width, p.logits, p.vocab, false, p.weights.Grad, p.vocab)
	clear(p.bias.Grad)
	for b := range blocks {
		p.Axpy(p.bias.Grad, p.partial[b*p.vocab:][:p.vocab], 1)
	}
	p.Gemm(p.threads, false, true, p.rows, p.width, p.vocab, p.logits, p.vocab, weights, p.vocab, false, floats(p.dh), p.width)
}
