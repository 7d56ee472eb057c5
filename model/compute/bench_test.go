package compute_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Sizes of the products in the language models: m by k times k by n. The first is the
// recurrent one of the small model.
var benchSizes = []struct{ m, k, n int }{
	{20, 200, 800},
	{20, 400, 800},
	{400, 200, 10000},
	{700, 650, 10000},
	{20, 1300, 2600},
	{1, 200, 10000},
}

func BenchmarkGemm(b *testing.B) {
	for _, s := range benchSizes {
		for _, form := range []struct {
			name           string
			transA, transB bool
		}{{"AB", false, false}, {"AtB", true, false}, {"ABt", false, true}} {
			for _, e := range engines(b) {
				b.Run(fmt.Sprintf("size=%dx%dx%d/form=%s/engine=%s/threads=1", s.m, s.k, s.n, form.name, e.Name()), func(b *testing.B) {
					r := rand.New(rand.NewPCG(1, 1))
					p := newProduct(r, form.transA, form.transB, false, s.m, s.n, s.k, 0)
					b.ReportAllocs()
					for b.Loop() {
						e.Gemm(1, p.transA, p.transB, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, false, p.c, p.ldc)
					}
					reportRate(b, p)
				})
			}
		}
	}
}

func BenchmarkPacked(b *testing.B) {
	for _, s := range benchSizes {
		for _, e := range engines(b) {
			b.Run(fmt.Sprintf("size=%dx%dx%d/engine=%s/threads=1", s.m, s.k, s.n, e.Name()), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				p := newProduct(r, false, false, true, s.m, s.n, s.k, 0)
				q := e.NewPacked()
				q.Pack(1, false, p.k, p.n, p.b, p.ldb)
				b.ReportAllocs()
				for b.Loop() {
					q.Mul(1, p.m, p.a, p.lda, false, p.c, p.ldc)
				}
				reportRate(b, p)
			})
		}
	}
}

// reportRate reports the arithmetic of a product, two operations for each multiply-add.
func reportRate(b *testing.B, p product) {
	ops := 2 * float64(p.m) * float64(p.n) * float64(p.k) * float64(b.N)
	b.ReportMetric(ops/1e9/b.Elapsed().Seconds(), "GFLOP/s")
}

func BenchmarkElementwise(b *testing.B) {
	const n = 4096
	r := rand.New(rand.NewPCG(1, 1))
	z, bias := uniform(r, 4*n), uniform(r, 4*n)
	x, y, c, tanhC, h := uniform(r, n), uniform(r, n), uniform(r, n), uniform(r, n), uniform(r, n)
	for _, e := range engines(b) {
		for _, f := range []struct {
			name string
			call func()
		}{
			{"LSTMForward", func() { e.LSTMForward(z, bias, x, c, tanhC, h, 0) }},
			{"LSTMBackward", func() { e.LSTMBackward(z, z, x, tanhC, h, c) }},
			{"SoftmaxXent", func() { e.SoftmaxXent(x, bias, 7, 1e-3, true) }},
			{"Axpy", func() { e.Axpy(y, x, 1e-9) }},
			{"Scale", func() { e.Scale(x, 1) }},
			{"Mul", func() { e.Mul(c, x, y) }},
			{"SumSquares", func() { e.SumSquares(x) }},
		} {
			b.Run(fmt.Sprintf("function=%s/engine=%s", f.name, e.Name()), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					f.call()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
			})
		}
	}
}
