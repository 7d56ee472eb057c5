package compute_test

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"pushpull/model/compute"
)

// guarded is memory between two pages that must not be touched.
type guarded struct{ memory []float32 }

// newGuarded returns guarded memory for n elements or more.
func newGuarded(t *testing.T, n int) guarded {
	t.Helper()
	page := unix.Getpagesize()
	size := (4*n + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("mmap of %d bytes: %v", size+2*page, err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(all); err != nil {
			t.Errorf("munmap: %v", err)
		}
	})
	for _, guard := range [][]byte{all[:page], all[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatalf("mprotect: %v", err)
		}
	}
	return guarded{unsafe.Slice((*float32)(unsafe.Pointer(&all[page])), size/4)}
}

// hold returns a copy of x that ends where the memory does, or begins where it does.
func (g guarded) hold(x []float32, atEnd bool) []float32 {
	to := g.memory[:len(x):len(x)]
	if atEnd {
		to = g.memory[len(g.memory)-len(x):]
	}
	copy(to, x)
	return to
}

// within runs f and fails if it touches a guard.
func within(t *testing.T, what any, f func()) {
	t.Helper()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		t.Helper()
		if fault := recover(); fault != nil {
			t.Fatalf("%v: %v", what, fault)
		}
	}()
	f()
}

func TestProductsStayWithinTheirSlices(t *testing.T) {
	r := random(t)
	a, b, c := newGuarded(t, 80*420), newGuarded(t, 420*420), newGuarded(t, 80*90)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		try := func(m, n, k, pad int) {
			for form := range 16 {
				p := newProduct(r, form&1 != 0, form&2 != 0, form&4 != 0, m, n, k, pad)
				atEnd := form&8 != 0
				p.a, p.b, p.c = a.hold(p.a, atEnd), b.hold(p.b, atEnd), c.hold(p.c, atEnd)
				within(t, fmt.Sprintf("Gemm of %v, atEnd=%t", p, atEnd), func() {
					e.Gemm(1, p.transA, p.transB, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, p.accumulate, p.c, p.ldc)
				})
				if p.transA {
					continue
				}
				within(t, fmt.Sprintf("Mul of %v, atEnd=%t", p, atEnd), func() {
					q := e.NewPacked()
					q.Pack(1, p.transB, p.k, p.n, p.b, p.ldb)
					q.Mul(1, p.m, p.a, p.lda, p.accumulate, p.c, p.ldc)
				})
			}
		}
		for m := 1; m <= 15; m++ { // every tile there is
			for n := 1; n <= 33; n += 1 + r.IntN(3) {
				try(m, n, 1+r.IntN(9), 0)
			}
			try(m, 8, 5, 0)
			try(m, 16, 5, 0)
			try(m, 32, 5, 0)
		}
		for range 60 {
			try(1+r.IntN(60), 1+r.IntN(80), 1+r.IntN(400), r.IntN(10))
		}
	})
}

func TestElementwiseFunctionsStayWithinTheirSlices(t *testing.T) {
	r := random(t)
	var memory [6]guarded
	for i := range memory {
		memory[i] = newGuarded(t, 4*100)
	}
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for n := 1; n <= 70; n++ {
			for _, atEnd := range []bool{true, false} {
				within(t, fmt.Sprintf("n=%d atEnd=%t", n, atEnd), func() { callAll(e, r, memory, n, atEnd) })
			}
		}
	})
}

// callAll calls every elementwise function with n elements in guarded memory.
func callAll(e compute.Engine, r *rand.Rand, memory [6]guarded, n int, atEnd bool) {
	hold := func(i, n int) []float32 { return memory[i].hold(uniform(r, n), atEnd) }
	e.LSTMForward(hold(0, 4*n), hold(1, 4*n), hold(2, n), hold(3, n), hold(4, n), hold(5, n), 1)
	e.LSTMBackward(hold(0, 4*n), hold(1, 4*n), hold(2, n), hold(3, n), hold(4, n), hold(5, n))
	e.SoftmaxXent(hold(0, n), hold(1, n), n-1, 1, true)
	e.Axpy(hold(0, n), hold(1, n), 2)
	e.Scale(hold(0, n), 2)
	e.Mul(hold(0, n), hold(1, n), hold(2, n))
	e.SumSquares(hold(0, n))
}
