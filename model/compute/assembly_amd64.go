package compute

import "unsafe"

//go:generate go run -C gen . -out ..

// An assembly engine computes with the generated functions of one instruction
// set.
//
// Their errors, over all float32s: tanh is within 4e-7 of the result, relative, and
// never beyond ±1; σ within 2e-7, relative, down to the least normal number, below
// which it may be zero; exp within 2e-7, relative. NaN gives NaN.
//
// An element of a product is summed over each block of k in a chain of fused
// multiply-adds that begins at zero, and the blocks' sums are added in order. The
// blocks depend on k alone, so an element has the same bits in all products with
// the same row and column, in both engines.
type assembly struct {
	name  string
	lanes int // float32s in a vector

	tiles      tileTable
	packPanels func(dst *float32, panelStep int64, src *float32, srcStep int64, k int64, panels int64)
	packStrip  func(dst *float32, src *float32, srcStep int64, k int64, rows int64)
	transpose  func(dst *float32, dstStep int64, src *float32, srcStep int64)

	lstmForward  func(z *float32, bias *float32, cPrev *float32, c *float32, tanhC *float32, h *float32, n int64, forgetBias float32)
	lstmBackward func(dz *float32, z *float32, cPrev *float32, tanhC *float32, dh *float32, dc *float32, n int64)
	addMax       func(x *float32, bias *float32, n int64) float32
	expSum       func(x *float32, largest float32, n int64) float64
	sumSquares   func(x *float32, n int64) float64
	scale        func(x *float32, s float32, n int64)
	axpy         func(y *float32, x *float32, s float32, n int64)
	mul          func(dst *float32, x *float32, y *float32, n int64)
}

var _ Engine = (*assembly)(nil)

// The two assembly engines. They are never written to.
var (
	avx512 = assembly{
		name: "avx512", lanes: 16,
		tiles: tiles512, packPanels: packPanels512, packStrip: packStrip512, transpose: transpose512,
		lstmForward: lstmForward512, lstmBackward: lstmBackward512,
		addMax: addMax512, expSum: expSum512, sumSquares: sumSquares512,
		scale: scale512, axpy: axpy512, mul: mul512,
	}
	avx2 = assembly{
		name: "avx2", lanes: 8,
		tiles: tiles256, packPanels: packPanels256, packStrip: packStrip256, transpose: transpose256,
		lstmForward: lstmForward256, lstmBackward: lstmBackward256,
		addMax: addMax256, expSum: expSum256, sumSquares: sumSquares256,
		scale: scale256, axpy: axpy256, mul: mul256,
	}
)

func (e *assembly) Name() string { return e.name }

func (e *assembly) LSTMForward(z, bias, cPrev, c, tanhC, h []float32, forgetBias float32) {
	n := checkLSTMForward(z, bias, cPrev, c, tanhC, h)
	e.lstmForward(start(z), start(bias), start(cPrev), start(c), start(tanhC), start(h), int64(n), forgetBias)
}

func (e *assembly) LSTMBackward(dz, z, cPrev, tanhC, dh, dc []float32) {
	n := checkLSTMBackward(dz, z, cPrev, tanhC, dh, dc)
	e.lstmBackward(start(dz), start(z), start(cPrev), start(tanhC), start(dh), start(dc), int64(n))
}

func (e *assembly) SoftmaxXent(x, bias []float32, target int, scale float32, grad bool) float32 {
	checkSoftmaxXent(x, bias, target)
	n := int64(len(x))
	largest := e.addMax(start(x), start(bias), n)
	logit := x[target]
	sum := e.expSum(start(x), largest, n) // NaN if any element is
	if grad {
		own := ownGradient(x[target], sum, scale)
		e.scale(start(x), float32(float64(scale)/sum), n)
		x[target] = own
	}
	return crossEntropy(logit, largest, sum)
}

func (e *assembly) Axpy(y, x []float32, s float32) {
	need("Axpy", "y", len(y), len(x))
	e.axpy(start(y), start(x), s, int64(len(x)))
}

func (e *assembly) Scale(x []float32, s float32) { e.scale(start(x), s, int64(len(x))) }

func (e *assembly) Mul(dst, x, y []float32) {
	need("Mul", "x", len(x), len(dst))
	need("Mul", "y", len(y), len(dst))
	e.mul(start(dst), start(x), start(y), int64(len(dst)))
}

func (e *assembly) SumSquares(x []float32) float64 { return e.sumSquares(start(x), int64(len(x))) }

// start returns the address of a slice's first element. The functions do not look
// at it if the slice is empty.
func start(x []float32) *float32 { return unsafe.SliceData(x) }
