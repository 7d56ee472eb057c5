package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// functions emits the elementwise functions and the sums.
func functions(e *emitter) {
	lstmForward(e)
	lstmBackward(e)
	addMax(e)
	expSum(e)
	sumSquares(e)
	scale(e)
	axpy(e)
	mul(e)
}

// addMax emits the first pass of a softmax.
func addMax(e *emitter) {
	e.begin("addMax", "func(x *float32, bias *float32, n int64) float32",
		"addMax adds bias to x and returns the largest element, or any number if one is NaN.")
	x, bias, n := e.pointer("x"), e.pointer("bias"), e.integer("n")
	lowest := e.register(e.constant("minusInfinity", negativeInfinity))
	largest := e.move(lowest)
	e.loop(n, func(l live) {
		v := l.load(at(x, 0))
		e.VADDPS(l.load(at(bias, 0)), v, v)
		l.store(v, at(x, 0))
		l.or(lowest, v)
		e.VMAXPS(v, largest, largest)
	}, x, bias)
	e.fold(largest, func(a, b, to reg.VecVirtual) { e.VMAXPS(a, b, to) }, 4)
	e.Store(largest.AsX(), e.ReturnIndex(0))
	e.end()
}

// expSum emits the second pass of a softmax.
func expSum(e *emitter) {
	e.begin("expSum", "func(x *float32, largest float32, n int64) float64",
		"expSum replaces x by exp(x-largest) and returns its sum.")
	x, largest, n := e.pointer("x"), e.scalar("largest"), e.integer("n")
	exp := e.exponential(1)
	sums := [2]reg.VecVirtual{e.zero(), e.zero()}
	none := e.zero()
	e.loop(n, func(l live) {
		v := l.load(at(x, 0))
		e.VSUBPS(largest, v, v)
		exp.of(v)
		l.store(v, at(x, 0))
		l.or(none, v)
		for i, half := range e.doubles(v) {
			e.VADDPD(half, sums[i], sums[i])
		}
	}, x)
	e.returnSum(sums)
	e.end()
}

// sumSquares emits a sum in float64.
func sumSquares(e *emitter) {
	e.begin("sumSquares", "func(x *float32, n int64) float64",
		"sumSquares returns the sum of the squares of x.")
	x, n := e.pointer("x"), e.integer("n")
	sums := [2]reg.VecVirtual{e.zero(), e.zero()}
	e.loop(n, func(l live) {
		for i, half := range e.doubles(l.load(at(x, 0))) {
			e.VFMADD231PD(half, half, sums[i])
		}
	}, x)
	e.returnSum(sums)
	e.end()
}

func scale(e *emitter) {
	e.begin("scale", "func(x *float32, s float32, n int64)", "scale computes x *= s.")
	x, s, n := e.pointer("x"), e.scalar("s"), e.integer("n")
	e.loop(n, func(l live) {
		v := l.load(at(x, 0))
		e.VMULPS(s, v, v)
		l.store(v, at(x, 0))
	}, x)
	e.end()
}

func axpy(e *emitter) {
	e.begin("axpy", "func(y *float32, x *float32, s float32, n int64)", "axpy computes y += s·x.")
	y, x, s, n := e.pointer("y"), e.pointer("x"), e.scalar("s"), e.integer("n")
	e.loop(n, func(l live) {
		v := l.load(at(y, 0))
		e.VFMADD231PS(l.load(at(x, 0)), s, v)
		l.store(v, at(y, 0))
	}, y, x)
	e.end()
}

func mul(e *emitter) {
	e.begin("mul", "func(dst *float32, x *float32, y *float32, n int64)", "mul computes dst = x·y.")
	dst, x, y, n := e.pointer("dst"), e.pointer("x"), e.pointer("y"), e.integer("n")
	e.loop(n, func(l live) {
		v := l.load(at(x, 0))
		e.VMULPS(l.load(at(y, 0)), v, v)
		l.store(v, at(dst, 0))
	}, dst, x, y)
	e.end()
}

// doubles returns the two halves of a vector as float64.
func (e *emitter) doubles(v reg.VecVirtual) [2]reg.VecVirtual {
	low, high := e.vector(), e.vector()
	e.VCVTPS2PD(e.half(v), low)
	e.VCVTPS2PD(e.upper(v), high)
	return [2]reg.VecVirtual{low, high}
}

// half returns the lower half of a vector, the same register by its other name.
func (e *emitter) half(v reg.VecVirtual) reg.Register {
	if v.Size() == 64 {
		return v.AsY()
	}
	return v.AsX()
}

// upper returns the upper half of a vector in a new register.
func (e *emitter) upper(v reg.VecVirtual) reg.VecVirtual {
	if v.Size() == 64 {
		to := e.YMM()
		e.VEXTRACTF64X4(operand.Imm(1), v, to)
		return to
	}
	to := e.XMM()
	e.VEXTRACTF128(operand.Imm(1), v, to)
	return to
}

// returnSum returns the sum of the float64s in two vectors.
func (e *emitter) returnSum(sums [2]reg.VecVirtual) {
	e.VADDPD(sums[1], sums[0], sums[0])
	e.fold(sums[0], func(a, b, to reg.VecVirtual) { e.VADDPD(a, b, to) }, 8)
	e.Store(sums[0].AsX(), e.ReturnIndex(0))
}

// fold combines all elements of a vector, of the given size in bytes, into its first.
func (e *emitter) fold(v reg.VecVirtual, combine func(a, b, to reg.VecVirtual), element int) {
	for size := e.size(); size > 16; size /= 2 {
		if size == 64 {
			low := v.AsY().(reg.VecVirtual)
			combine(e.upper(v), low, low)
			continue
		}
		low := v.AsX().(reg.VecVirtual)
		combine(e.upper(v.AsY().(reg.VecVirtual)), low, low)
	}
	low := v.AsX().(reg.VecVirtual)
	for size := 8; size >= element; size /= 2 {
		other := e.XMM()
		e.VPSRLDQ(operand.Imm(uint64(size)), low, other)
		combine(other, low, low)
	}
}
