package compute_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pushpull/model/compute"
)

// engines returns every engine this CPU can run.
func engines(t testing.TB) []compute.Engine {
	t.Helper()
	var all []compute.Engine
	for _, name := range compute.Names() {
		e, err := compute.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// eachEngine runs f as a subtest of every engine.
func eachEngine(t *testing.T, f func(t *testing.T, e compute.Engine)) {
	for _, e := range engines(t) {
		t.Run("engine="+e.Name(), func(t *testing.T) { f(t, e) })
	}
}

// random returns a source of random numbers, and logs its seed for the case of
// a failure.
func random(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// uniform returns n numbers in [-1, 1).
func uniform(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 2*r.Float32() - 1
	}
	return x
}

// A product is the sizes of one C = op(A) op(B), the operands and the C it starts with.
type product struct {
	transA, transB, accumulate bool
	m, n, k                    int
	lda, ldb, ldc              int
	a, b, c                    []float32
}

func (p product) String() string {
	return fmt.Sprintf("%dx%dx%d lda=%d ldb=%d ldc=%d transA=%t transB=%t accumulate=%t",
		p.m, p.k, p.n, p.lda, p.ldb, p.ldc, p.transA, p.transB, p.accumulate)
}

// elements returns the least number of elements that hold a matrix.
func elements(rows, cols, ld int) int {
	if rows == 0 || cols == 0 {
		return 0
	}
	return (rows-1)*ld + cols
}

// newProduct makes a product of the given size out of random numbers, with up to
// pad elements between rows. Its slices end with their last rows.
func newProduct(r *rand.Rand, transA, transB, accumulate bool, m, n, k, pad int) product {
	p := product{transA: transA, transB: transB, accumulate: accumulate, m: m, n: n, k: k}
	ar, ac, br, bc := m, k, k, n
	if transA {
		ar, ac = k, m
	}
	if transB {
		br, bc = n, k
	}
	p.lda, p.ldb, p.ldc = ac+r.IntN(pad+1), bc+r.IntN(pad+1), n+r.IntN(pad+1)
	p.a, p.b, p.c = uniform(r, elements(ar, ac, p.lda)), uniform(r, elements(br, bc, p.ldb)), uniform(r, elements(m, n, p.ldc))
	return p
}

// clone returns the product with a C of its own.
func (p product) clone() product {
	p.c = append([]float32(nil), p.c...)
	return p
}

func (p product) gemm(e compute.Engine, threads int) []float32 {
	p = p.clone()
	e.Gemm(threads, p.transA, p.transB, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, p.accumulate, p.c, p.ldc)
	return p.c
}

func (p product) packed(e compute.Engine, threads int) []float32 {
	p = p.clone()
	q := e.NewPacked()
	q.Pack(threads, p.transB, p.k, p.n, p.b, p.ldb)
	q.Mul(threads, p.m, p.a, p.lda, p.accumulate, p.c, p.ldc)
	return p.c
}

// plain computes op(A) op(B) with plain sums in float64, and for each the sum of the
// magnitudes it is made of.
func (p product) plain() (sums, sizes []float64) {
	a, b := doubles(p.a, p.lda, p.m, p.k, p.transA), doubles(p.b, p.ldb, p.n, p.k, !p.transB)
	for i := range p.m {
		for j := range p.n {
			sum, size := 0.0, 1.0
			if p.accumulate {
				sum = float64(p.c[i*p.ldc+j])
			}
			row := b[j*p.k:][:p.k]
			for l, v := range a[i*p.k:][:p.k] {
				sum += v * row[l]
				size += math.Abs(v * row[l])
			}
			sums, sizes = append(sums, sum), append(sizes, size)
		}
	}
	return sums, sizes
}

// doubles returns a matrix of rows by cols, without gaps; trans says that it is stored
// transposed.
func doubles(x []float32, ld, rows, cols int, trans bool) []float64 {
	y := make([]float64, 0, rows*cols)
	for i := range rows {
		for j := range cols {
			if trans {
				y = append(y, float64(x[j*ld+i]))
			} else {
				y = append(y, float64(x[i*ld+j]))
			}
		}
	}
	return y
}

// check computes the product in every way an engine has, and compares it with plain sums.
func (p product) check(t *testing.T, e compute.Engine, threads int) {
	t.Helper()
	sums, sizes := p.plain()
	results := map[string][]float32{"Gemm": p.gemm(e, threads)}
	if !p.transA {
		results["Mul"] = p.packed(e, threads)
	}
	for call, got := range results {
		p.compare(t, fmt.Sprintf("%s(%d)", call, threads), got, sums, sizes)
	}
}

// compare fails unless got is the sums to rounding, and unchanged between rows.
func (p product) compare(t *testing.T, call string, got []float32, sums, sizes []float64) {
	t.Helper()
	for i := range p.m {
		for j := range p.n {
			// Each addition rounds, by half a unit in the last place of a partial sum.
			most := 6e-8 * sizes[i*p.n+j] * math.Sqrt(float64(p.k)+8)
			if got, want := float64(got[i*p.ldc+j]), sums[i*p.n+j]; !(math.Abs(got-want) <= most) {
				t.Fatalf("%s of %v: element %d, %d = %v, want %v", call, p, i, j, got, want)
			}
		}
		for j := i*p.ldc + p.n; j < min((i+1)*p.ldc, len(got)); j++ {
			if got, want := got[j], p.c[j]; got != want {
				t.Fatalf("%s of %v: wrote %v beyond row %d", call, p, got, i)
			}
		}
	}
}

// size draws a size up to most, as often small as large.
func size(r *rand.Rand, most int) int { return 1 + int(float64(most)*math.Pow(r.Float64(), 3)) }

// flip draws a bool.
func flip(r *rand.Rand) bool { return r.IntN(2) == 0 }

func TestProductsAgreeWithPlainSums(t *testing.T) {
	r := random(t)
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for range rounds {
			p := newProduct(r, flip(r), flip(r), flip(r), size(r, 80), size(r, 300), size(r, 900), r.IntN(20))
			p.check(t, e, 1+r.IntN(4))
		}
	})
}

// Around one, the sizes of tiles, and the depth of a block. A short test takes one form of
// each.
func TestProductsOfEdgeSizesAgreeWithPlainSums(t *testing.T) {
	r := random(t)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for _, m := range []int{1, 2, 6, 7, 13, 14, 15, 29, 43} {
			for _, n := range []int{1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 49} {
				for _, k := range []int{1, 3, 4, 17, 401} {
					for form := range 8 {
						if testing.Short() && form != (m+n+k)%8 {
							continue
						}
						newProduct(r, form&1 != 0, form&2 != 0, form&4 != 0, m, n, k, 0).check(t, e, 1)
					}
				}
			}
		}
	})
}

func TestProductOfNothingIsZeroOrLeavesC(t *testing.T) {
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for _, accumulate := range []bool{false, true} {
			p := product{accumulate: accumulate, m: 2, n: 3, lda: 1, ldb: 3, ldc: 4, c: []float32{1, 2, 3, 4, 5, 6, 7}}
			want := []float32{0, 0, 0, 4, 0, 0, 0}
			if accumulate {
				want = p.c
			}
			if got := p.gemm(e, 1); !slices.Equal(got, want) {
				t.Errorf("Gemm of %v = %v, want %v", p, got, want)
			}
			if got := p.packed(e, 1); !slices.Equal(got, want) {
				t.Errorf("Mul of %v = %v, want %v", p, got, want)
			}
		}
		e.Gemm(2, false, false, 0, 5, 5, nil, 5, make([]float32, 25), 5, false, nil, 5)
		e.Gemm(2, false, false, 5, 0, 5, make([]float32, 25), 5, nil, 0, false, nil, 0)
	})
}

// sameBits reports whether two results are the same in every bit.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}

func TestRowsDoNotDependOnSplitOrThreads(t *testing.T) {
	r := random(t)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for range 40 {
			p := newProduct(r, false, flip(r), flip(r), 1+r.IntN(90), 1+r.IntN(500), size(r, 900), r.IntN(3))
			want := p.packed(e, 1)
			q := e.NewPacked()
			q.Pack(1+r.IntN(4), p.transB, p.k, p.n, p.b, p.ldb)
			for threads := 1; threads <= 4; threads++ {
				if !sameBits(p.packed(e, threads), want) {
					t.Fatalf("Mul of %v differs between 1 and %d threads", p, threads)
				}
				if !sameBits(p.gemm(e, threads), want) {
					t.Fatalf("Gemm(%d) of %v differs from Mul", threads, p)
				}
				c := p.clone().c
				for lo := 0; lo < p.m; {
					hi := min(lo+1+r.IntN(30), p.m)
					q.Mul(threads, hi-lo, p.a[lo*p.lda:], p.lda, p.accumulate, c[lo*p.ldc:], p.ldc)
					lo = hi
				}
				if !sameBits(c, want) {
					t.Fatalf("Mul(%d) of %v differs if its rows are split", threads, p)
				}
			}
		}
	})
}

func TestProductsDoNotDependOnStorage(t *testing.T) {
	r := random(t)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for range 30 {
			p := newProduct(r, true, true, flip(r), 1+r.IntN(60), 1+r.IntN(300), size(r, 900), 0)
			want := p.gemm(e, 1)
			for _, form := range []struct{ transA, transB bool }{{false, false}, {false, true}, {true, false}} {
				q := p.clone()
				if q.transA = form.transA; !q.transA {
					q.a, q.lda = transpose(p.a, p.k, p.m), p.k
				}
				if q.transB = form.transB; !q.transB {
					q.b, q.ldb = transpose(p.b, p.n, p.k), p.n
				}
				if !sameBits(q.gemm(e, 1+r.IntN(3)), want) {
					t.Fatalf("Gemm of %v differs from that of the same matrices, both transposed", q)
				}
			}
		}
	})
}

// transpose returns the transpose of rows by cols elements.
func transpose(x []float32, rows, cols int) []float32 {
	y := make([]float32, len(x))
	for i := range rows {
		for j := range cols {
			y[j*rows+i] = x[i*cols+j]
		}
	}
	return y
}

func TestAssemblyEnginesHaveTheSameProducts(t *testing.T) {
	one, err := compute.ByName("avx512")
	if errors.Is(err, compute.ErrUnavailable) {
		t.Skip(err)
	}
	other, err := compute.ByName("avx2")
	if errors.Is(err, compute.ErrUnavailable) {
		t.Skip(err)
	}
	r := random(t)
	for range 50 {
		p := newProduct(r, flip(r), flip(r), flip(r), size(r, 80), size(r, 300), size(r, 900), 0)
		if !sameBits(p.gemm(one, 1), p.gemm(other, 1)) {
			t.Fatalf("Gemm of %v differs between %s and %s", p, one.Name(), other.Name())
		}
	}
}

func TestProductsDoNotHideNaN(t *testing.T) {
	r := random(t)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for range 50 {
			p := newProduct(r, false, flip(r), flip(r), 1+r.IntN(40), 1+r.IntN(80), 1+r.IntN(500), 0)
			i, j, l := r.IntN(p.m), r.IntN(p.n), r.IntN(p.k)
			bad := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}[r.IntN(3)]
			ai, bi := i*p.lda+l, l*p.ldb+j
			if p.transB {
				bi = j*p.ldb + l
			}
			if flip(r) {
				p.a[ai], p.b[bi] = bad, 0
			} else {
				p.a[ai], p.b[bi] = 0, bad
			}
			for call, c := range map[string][]float32{"Gemm": p.gemm(e, 1), "Mul": p.packed(e, 1)} {
				if got := c[i*p.ldc+j]; got == got {
					t.Fatalf("%s of %v with 0·%v in element %d, %d = %v, want NaN", call, p, bad, i, j, got)
				}
			}
		}
	})
}

func TestPackedCanBeUsedAgainAndAtOnce(t *testing.T) {
	r := random(t)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		q := e.NewPacked()
		for range 10 {
			p := newProduct(r, false, flip(r), false, 1+r.IntN(50), 1+r.IntN(400), size(r, 500), 0)
			q.Pack(2, p.transB, p.k, p.n, p.b, p.ldb)
			results := make([][]float32, 4)
			var wg sync.WaitGroup
			for i := range results {
				results[i] = p.clone().c
				wg.Go(func() { q.Mul(1+i%2, p.m, p.a, p.lda, false, results[i], p.ldc) })
			}
			wg.Wait()
			sums, sizes := p.plain()
			for _, c := range results {
				p.compare(t, "Mul", c, sums, sizes)
			}
		}
	})
}

func TestProductsOfShortSlicesPanic(t *testing.T) {
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		full := func() []float32 { return make([]float32, 12) }
		q := e.NewPacked()
		q.Pack(1, false, 4, 3, full(), 3)
		for name, call := range map[string]func(){
			"a of Gemm":   func() { e.Gemm(1, false, false, 3, 3, 4, full()[1:], 4, full(), 3, false, full(), 3) },
			"b of Gemm":   func() { e.Gemm(1, false, false, 3, 3, 4, full(), 4, full()[1:], 3, false, full(), 3) },
			"c of Gemm":   func() { e.Gemm(1, false, false, 3, 3, 4, full(), 4, full(), 3, false, full()[4:], 3) },
			"a of Mul":    func() { q.Mul(1, 3, full()[1:], 4, false, full(), 3) },
			"c of Mul":    func() { q.Mul(1, 3, full(), 4, false, full()[4:], 3) },
			"b of Pack":   func() { e.NewPacked().Pack(1, true, 4, 3, full()[1:], 4) },
			"ld of Gemm":  func() { e.Gemm(1, false, false, 3, 3, 4, full(), 3, full(), 3, false, full(), 3) },
			"negative k":  func() { e.Gemm(1, false, false, 3, 3, -1, full(), 4, full(), 3, false, full(), 3) },
			"c beyond it": func() { e.Gemm(1, false, false, 3, 3, 4, full(), 4, full(), 3, false, full()[:3], 3) },
		} {
			wantPanic(t, name, call)
		}
	})
}

// wantPanic fails unless the call panics with a text of this package.
func wantPanic(t *testing.T, name string, call func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "compute: ") {
			t.Errorf("%s: got no panic of this package", name)
		}
	}()
	call()
}

func TestCallsOnOneThreadDoNotAllocate(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes sync.Pool forget")
	}
	r := random(t)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		p := newProduct(r, true, true, true, 37, 75, 400, 0)
		q := e.NewPacked()
		x, bias := uniform(r, 100), uniform(r, 400)
		z, c, h := uniform(r, 400), uniform(r, 100), uniform(r, 100)
		calls := func() {
			e.Gemm(1, false, false, p.m, p.n, p.k, p.a, p.k, p.b, p.n, false, p.c, p.ldc)
			e.Gemm(1, true, true, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, true, p.c, p.ldc)
			q.Pack(1, true, p.k, p.n, p.b, p.ldb)
			q.Mul(1, p.m, p.a, p.k, false, p.c, p.ldc)
			e.LSTMForward(z, bias, x, c, x, h, 1)
			e.LSTMBackward(z, z, x, x, h, c)
			e.SoftmaxXent(x, bias, 3, 1, true)
			e.Axpy(h, x, 2)
			e.Scale(x, 0.5)
			e.Mul(h, x, c)
			e.SumSquares(x)
		}
		if got := testing.AllocsPerRun(20, calls); got != 0 {
			t.Errorf("%v allocations for one of each call, want 0", got)
		}
	})
}
