package compute

import (
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"
)

// Tiles of the result small enough that gonum computes each on the calling
// goroutine, whatever GOMAXPROCS: threads are the caller's decision.
const (
	tileRows = 64
	tileCols = 192
)

func (portable) Gemm(threads int, transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	if !checkProduct("Gemm", transA, transB, m, n, k, a, lda, b, ldb, c, ldc) {
		return
	}
	p := plainProducts.Get().(*plainProduct)
	defer plainProducts.Put(p)
	if transB {
		p.scratch.Pack(threads, true, k, n, b, ldb)
		b, ldb = p.scratch.b, n
	} else {
		p.scratch.finite = finite(matrix{b, k, n, ldb})
	}
	*p = plainProduct{
		scratch: p.scratch, split: p.split,
		transA: transA, finite: p.scratch.finite, accumulate: accumulate,
		m: m, n: n, k: k, lda: lda, ldb: ldb, ldc: ldc, a: a, b: b, c: c,
	}
	p.compute(threads)
}

func (portable) NewPacked() Packed { return &plainPacked{} }

// plainPacked is op(B) as k rows of n.
type plainPacked struct {
	k, n   int
	b      []float32
	finite bool // whether b has neither NaN nor infinity
}

func (p *plainPacked) Pack(threads int, transB bool, k, n int, b []float32, ldb int) {
	operand(transB, k, n, b, ldb).check("Pack", "b")
	p.k, p.n, p.b = k, n, grow(p.b, k*n)
	if !transB {
		for row := range k {
			copy(p.b[row*n:(row+1)*n], b[row*ldb:])
		}
	} else {
		for j := range n {
			for row, v := range b[j*ldb:][:k] {
				p.b[row*n+j] = v
			}
		}
	}
	p.finite = finite(matrix{p.b, k, n, n})
}

func (p *plainPacked) Mul(threads, m int, a []float32, lda int, accumulate bool, c []float32, ldc int) {
	if !checkProduct("Mul", false, false, m, p.n, p.k, a, lda, p.b, p.n, c, ldc) {
		return
	}
	q := plainProducts.Get().(*plainProduct)
	defer plainProducts.Put(q)
	*q = plainProduct{
		scratch: q.scratch, split: q.split,
		finite: p.finite, accumulate: accumulate,
		m: m, n: p.n, k: p.k, lda: lda, ldb: p.n, ldc: ldc, a: a, b: p.b, c: c,
	}
	q.compute(threads)
}

// grow returns a slice of n elements, x's memory if that suffices.
func grow(x []float32, n int) []float32 {
	if cap(x) < n {
		return make([]float32, n)
	}
	return x[:n]
}

// finite reports whether all elements are: neither NaN nor infinite.
func finite(x matrix) bool {
	var zero [4]float32 // independent sums, to not wait for one another
	for i := range x.rows {
		row := x.data[i*x.ld:][:x.cols]
		for ; len(row) >= 4; row = row[4:] {
			zero[0] += row[0] * 0
			zero[1] += row[1] * 0
			zero[2] += row[2] * 0
			zero[3] += row[3] * 0
		}
		for _, v := range row {
			zero[0] += v * 0
		}
	}
	return zero[0]+zero[1]+zero[2]+zero[3] == 0
}

// A plainProduct is one product under way: C = op(A) B, with B not transposed.
type plainProduct struct {
	transA, finite, accumulate bool
	m, n, k, lda, ldb, ldc     int
	a, b, c                    []float32

	scratch plainPacked // op(B), if B is transposed
	split   struct{ rows, cols func(lo, hi int) }
}

var plainProducts = sync.Pool{New: func() any {
	p := new(plainProduct)
	p.split.rows = func(lo, hi int) { p.block(lo, hi, 0, p.n) }
	p.split.cols = func(lo, hi int) { p.block(0, p.m, lo, hi) }
	return p
}}

// compute splits the product over rows or columns of C. Each element is summed
// by itself, so no split changes it.
func (p *plainProduct) compute(threads int) {
	if p.m >= p.n {
		Parallel(threads, p.m, p.split.rows)
	} else {
		Parallel(threads, p.n, p.split.cols)
	}
	p.a, p.b, p.c = nil, nil, nil
}

// block computes rows [i0, i1) of columns [j0, j1) of C, tile by tile.
func (p *plainProduct) block(i0, i1, j0, j1 int) {
	for i := i0; i < i1; i += tileRows {
		for j := j0; j < j1; j += tileCols {
			p.tile(i, j, min(tileRows, i1-i), min(tileCols, j1-j))
		}
	}
}

func (p *plainProduct) tile(i, j, m, n int) {
	c := p.c[i*p.ldc+j:]
	if p.k == 0 {
		if !p.accumulate {
			for r := range m {
				clear(c[r*p.ldc:][:n])
			}
		}
		return
	}
	start, trans := i*p.lda, blas.NoTrans
	if p.transA {
		start, trans = i, blas.Trans
	}
	a := p.a[start:]
	beta := float32(0)
	if p.accumulate {
		beta = 1
	}
	if !p.finite {
		p.slowTile(a, p.b[j:], beta, c, m, n)
		return
	}
	gonum.Implementation{}.Sgemm(trans, blas.NoTrans, m, n, p.k, 1, a, p.lda, p.b[j:], p.ldb, beta, c, p.ldc)
}

// slowTile is a tile for a B with NaN or infinite elements: gonum skips the zeros of
// A, and would hide what 0·NaN and 0·∞ are. It sums in gonum's order.
func (p *plainProduct) slowTile(a, b []float32, beta float32, c []float32, m, n int) {
	rowStep, colStep := p.lda, 1
	if p.transA {
		rowStep, colStep = 1, p.lda
	}
	for i := range m {
		row := c[i*p.ldc:][:n]
		if beta == 0 {
			clear(row)
		}
		for l := range p.k {
			s := a[i*rowStep+l*colStep]
			for j, v := range b[l*p.ldb:][:n] {
				row[j] += s * v
			}
		}
	}
}
