// Package compute is the arithmetic behind the operations of a model: matrix
// products and the elementwise functions of an LSTM, in float32 on the CPU.
//
// An [Engine] is one way to compute them. All matrices are row-major; ld is the
// distance between the starts of two rows, in elements. Functions write only
// to what their comment says, keep no reference to their arguments, and panic
// if a slice is too short for the sizes given.
package compute

// An Engine computes. It is stateless and safe for concurrent use.
type Engine interface {
	// Name is what [ByName] finds the engine by.
	Name() string

	// Gemm computes C = op(A) op(B), or C += op(A) op(B) if accumulate is set, on
	// up to threads goroutines. op(A) is m by k, op(B) k by n; a transposed
	// operand is stored as k by m or n by k.
	Gemm(threads int, transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int)

	// NewPacked returns room for a right-hand matrix of repeated products.
	NewPacked() Packed

	// LSTMForward computes one row of n cells, n = len(h). z holds the 4n
	// pre-activations of the gates i, j, f, o without the bias and is left
	// holding their activations:
	//
	//	i, f, o = σ(z+bias), with forgetBias added to f;  j = tanh(z+bias)
	//	c = f·cPrev + i·j;  tanhC = tanh(c);  h = o·tanhC
	LSTMForward(z, bias, cPrev, c, tanhC, h []float32, forgetBias float32)

	// LSTMBackward goes back through one row: from the activations z, cPrev and
	// tanhC of the forward pass, the gradient dh of h, and dc of c, it computes
	// the gradient dz of the 4n pre-activations, and replaces dc by the gradient
	// of cPrev. dz may be z.
	LSTMBackward(dz, z, cPrev, tanhC, dh, dc []float32)

	// SoftmaxXent adds bias to the logits x and returns the cross entropy
	// -log softmax(x)[target] in nats. If grad is set, it leaves
	// scale·(softmax(x) - onehot(target)) in x; else x is scratch.
	SoftmaxXent(x, bias []float32, target int, scale float32, grad bool) float32

	// Axpy computes y += s·x.
	Axpy(y, x []float32, s float32)
	// Scale computes x *= s.
	Scale(x []float32, s float32)
	// Mul computes dst = x·y, elementwise. dst may be x or y.
	Mul(dst, x, y []float32)
	// SumSquares returns the sum of the squares of x, summed in float64.
	SumSquares(x []float32) float64
}

// Packed is a right-hand matrix op(B), k by n, prepared for repeated products.
// It reuses its memory from one Pack to the next. Products may run at the same
// time; a Pack must not run beside anything.
type Packed interface {
	// Pack copies op(B) on up to threads goroutines.
	Pack(threads int, transB bool, k, n int, b []float32, ldb int)
	// Mul computes C = A op(B), or C += A op(B), with A m by k, on up to threads
	// goroutines. The result for a row of A does not depend on m or on threads.
	Mul(threads, m int, a []float32, lda int, accumulate bool, c []float32, ldc int)
}
