package compute

import "fmt"

// A matrix of rows by columns, row-major in data, rows ld elements apart.
// Nothing beyond the last element of the last row is looked at.
type matrix struct {
	data       []float32
	rows, cols int
	ld         int
}

// operand returns op(X) of the given size: stored as it is, or transposed.
func operand(trans bool, rows, cols int, x []float32, ld int) matrix {
	if trans {
		rows, cols = cols, rows
	}
	return matrix{x, rows, cols, ld}
}

// check panics unless the matrix fits its data. It names the call and the
// argument at fault.
func (x matrix) check(call, arg string) {
	if x.rows < 0 || x.cols < 0 {
		panic(fmt.Sprintf("compute: %s: %s is %d by %d: want no negative size", call, arg, x.rows, x.cols))
	}
	if x.rows == 0 || x.cols == 0 {
		return
	}
	if x.ld < x.cols {
		panic(fmt.Sprintf("compute: %s: rows of %s are %d apart: want at least their length, %d", call, arg, x.ld, x.cols))
	}
	if want := (x.rows-1)*x.ld + x.cols; len(x.data) < want {
		panic(fmt.Sprintf("compute: %s: %s has %d elements: want at least %d for %d by %d, rows %d apart",
			call, arg, len(x.data), want, x.rows, x.cols, x.ld))
	}
}

// need panics unless a slice has as many elements as a call wants of it.
func need(call, arg string, have, want int) {
	if have < want {
		short(call, arg, have, want)
	}
}

func short(call, arg string, have, want int) {
	panic(fmt.Sprintf("compute: %s: %s has %d elements: want at least %d", call, arg, have, want))
}

// checkProduct checks the arguments of C = op(A) op(B) and reports whether C has
// any element.
func checkProduct(call string, transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) bool {
	operand(transA, m, k, a, lda).check(call, "a")
	operand(transB, k, n, b, ldb).check(call, "b")
	matrix{c, m, n, ldc}.check(call, "c")
	return m > 0 && n > 0
}

// checkLSTMForward checks the arguments of LSTMForward and returns the number of cells.
func checkLSTMForward(z, bias, cPrev, c, tanhC, h []float32) int {
	const call = "LSTMForward"
	n := len(h)
	need(call, "z", len(z), 4*n)
	need(call, "bias", len(bias), 4*n)
	need(call, "cPrev", len(cPrev), n)
	need(call, "c", len(c), n)
	need(call, "tanhC", len(tanhC), n)
	return n
}

// checkLSTMBackward checks the arguments of LSTMBackward and returns the number of cells.
func checkLSTMBackward(dz, z, cPrev, tanhC, dh, dc []float32) int {
	const call = "LSTMBackward"
	n := len(dh)
	need(call, "dz", len(dz), 4*n)
	need(call, "z", len(z), 4*n)
	need(call, "cPrev", len(cPrev), n)
	need(call, "tanhC", len(tanhC), n)
	need(call, "dc", len(dc), n)
	return n
}

// checkSoftmaxXent checks the arguments of SoftmaxXent.
func checkSoftmaxXent(x, bias []float32, target int) {
	need("SoftmaxXent", "bias", len(bias), len(x))
	if target < 0 || target >= len(x) {
		panic(fmt.Sprintf("compute: SoftmaxXent: target %d: want one of [0, %d)", target, len(x)))
	}
}
