package main

import (
	"time"

	"pushpull/model/compute"
)

// A kind is a part of a step's work.
type kind int

const (
	multiply kind = iota // matrix products, with what they pack for themselves
	pack                 // weights made ready for products
	cells                // the elementwise functions of the LSTM
	softmax              // passes over the logits
	biases               // sums of gradients by rows
	lookup               // the embedding's gradient
	dropout              // masks applied, not drawn
	clip
	update // SGD
	rest   // what no engine does: words looked up, masks drawn, Gorgonia's machine
	kinds
)

func (k kind) String() string {
	return [...]string{"multiply", "pack", "cells", "softmax", "biases", "embedding", "dropout", "clip", "SGD", "rest"}[k]
}

// A ledger says what a step spent its CPU time on.
type ledger struct {
	spent [kinds]time.Duration
	flop  float64       // two for each multiply-add of a product
	calls int           // that were booked
	clock time.Duration // what a look at the clock takes: each call takes two
}

// A measured engine is another one that books the time of each call. It is for
// one thread.
type measured struct {
	compute.Engine
	width int // of the embedding
	vocab int
	*ledger
}

// book adds the CPU time since start, less what it takes to look at the clock, which
// tells where calls are short.
func (l *ledger) book(k kind, start time.Duration) {
	l.spent[k] += processTime() - start - l.clock
	l.calls++
}

// clockCost returns the time between two looks at the clock.
func clockCost() time.Duration {
	const looks = 1000
	least := time.Hour
	for range looks {
		start := processTime()
		least = min(least, processTime()-start)
	}
	return least
}

func (e measured) Gemm(threads int, transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	defer e.book(multiply, processTime())
	e.flop += flop(m, n, k)
	e.Engine.Gemm(threads, transA, transB, m, n, k, a, lda, b, ldb, accumulate, c, ldc)
}

func (e measured) NewPacked() compute.Packed {
	return &measuredPacked{Packed: e.Engine.NewPacked(), ledger: e.ledger}
}

func (e measured) LSTMForward(z, bias, cPrev, c, tanhC, h []float32, forgetBias float32) {
	defer e.book(cells, processTime())
	e.Engine.LSTMForward(z, bias, cPrev, c, tanhC, h, forgetBias)
}

func (e measured) LSTMBackward(dz, z, cPrev, tanhC, dh, dc []float32) {
	defer e.book(cells, processTime())
	e.Engine.LSTMBackward(dz, z, cPrev, tanhC, dh, dc)
}

func (e measured) SoftmaxXent(x, bias []float32, target int, scale float32, grad bool) float32 {
	defer e.book(softmax, processTime())
	return e.Engine.SoftmaxXent(x, bias, target, scale, grad)
}

// Axpy adds up rows: of the embedding's gradient, or of a bias's.
func (e measured) Axpy(y, x []float32, s float32) {
	k := biases
	if len(x) == e.width {
		k = lookup
	}
	defer e.book(k, processTime())
	e.Engine.Axpy(y, x, s)
}

func (e measured) Scale(x []float32, s float32) {
	defer e.book(clip, processTime())
	e.Engine.Scale(x, s)
}

func (e measured) SumSquares(x []float32) float64 {
	defer e.book(clip, processTime())
	return e.Engine.SumSquares(x)
}

func (e measured) Mul(dst, x, y []float32) {
	defer e.book(dropout, processTime())
	e.Engine.Mul(dst, x, y)
}

// measuredPacked is a matrix of a measured engine.
type measuredPacked struct {
	compute.Packed
	*ledger
	k, n int
}

func (p *measuredPacked) Pack(threads int, transB bool, k, n int, b []float32, ldb int) {
	defer p.book(pack, processTime())
	p.k, p.n = k, n
	p.Packed.Pack(threads, transB, k, n, b, ldb)
}

func (p *measuredPacked) Mul(threads, m int, a []float32, lda int, accumulate bool, c []float32, ldc int) {
	defer p.book(multiply, processTime())
	p.flop += flop(m, p.n, p.k)
	p.Packed.Mul(threads, m, a, lda, accumulate, c, ldc)
}

func flop(m, n, k int) float64 { return 2 * float64(m) * float64(n) * float64(k) }
