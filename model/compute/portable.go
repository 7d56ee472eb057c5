package compute

import "math"

// portable computes everything in Go, the elementwise functions in float64, and
// products with gonum. It runs anywhere, and the other engines are measured
// against it.
type portable struct{}

var _ Engine = portable{}

func (portable) Name() string { return "portable" }

func (portable) LSTMForward(z, bias, cPrev, c, tanhC, h []float32, forgetBias float32) {
	n := checkLSTMForward(z, bias, cPrev, c, tanhC, h)
	for u := range n {
		i := sigmoid(z[u] + bias[u])
		j := tanh(z[n+u] + bias[n+u])
		f := sigmoid(z[2*n+u] + bias[2*n+u] + forgetBias)
		o := sigmoid(z[3*n+u] + bias[3*n+u])
		z[u], z[n+u], z[2*n+u], z[3*n+u] = i, j, f, o
		cell := f*cPrev[u] + i*j
		t := tanh(cell)
		c[u], tanhC[u], h[u] = cell, t, o*t
	}
}

func (portable) LSTMBackward(dz, z, cPrev, tanhC, dh, dc []float32) {
	n := checkLSTMBackward(dz, z, cPrev, tanhC, dh, dc)
	for u := range n {
		i, j, f, o, t := z[u], z[n+u], z[2*n+u], z[3*n+u], tanhC[u]
		d := dc[u] + dh[u]*o*(1-t*t)
		dz[u] = d * j * i * (1 - i)
		dz[n+u] = d * i * (1 - j*j)
		dz[2*n+u] = d * cPrev[u] * f * (1 - f)
		dz[3*n+u] = dh[u] * t * o * (1 - o)
		dc[u] = d * f
	}
}

func (portable) SoftmaxXent(x, bias []float32, target int, scale float32, grad bool) float32 {
	checkSoftmaxXent(x, bias, target)
	largest := float32(math.Inf(-1))
	for i, b := range bias[:len(x)] {
		x[i] += b
		largest = max(largest, x[i]) // NaN if any is
	}
	logit := x[target]
	sum := 0.0
	for i, v := range x {
		e := math.Exp(float64(v - largest))
		x[i] = float32(e)
		sum += e
	}
	if grad {
		own := ownGradient(x[target], sum, scale)
		portable{}.Scale(x, float32(float64(scale)/sum))
		x[target] = own
	}
	return crossEntropy(logit, largest, sum)
}

// ownGradient returns the gradient of the target's own logit, given its exponential
// and the sum of all: a small difference of two numbers near each other, once the
// model is sure of the target.
func ownGradient(exp float32, sum float64, scale float32) float32 {
	return float32(float64(scale) * (float64(exp)/sum - 1))
}

// crossEntropy returns -log softmax of a logit, given the largest logit and the
// sum of the exponentials of all logits' distances to it.
func crossEntropy(logit, largest float32, sum float64) float32 {
	return float32(math.Log(sum) + (float64(largest) - float64(logit)))
}

func (portable) Axpy(y, x []float32, s float32) {
	need("Axpy", "y", len(y), len(x))
	for i, v := range x {
		y[i] += s * v
	}
}

func (portable) Scale(x []float32, s float32) {
	for i := range x {
		x[i] *= s
	}
}

func (portable) Mul(dst, x, y []float32) {
	need("Mul", "x", len(x), len(dst))
	need("Mul", "y", len(y), len(dst))
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

func (portable) SumSquares(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

func sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }

func tanh(x float32) float32 { return float32(math.Tanh(float64(x))) }
