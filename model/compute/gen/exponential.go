package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Below, a vector that may hold NaN is the first operand of every VMINPS and
// VMAXPS: these return it, and not their second, if either is NaN.

// exponential computes exp(x) or exp(-x) = 2^n exp(r), with n the whole number
// nearest to ±x/ln 2.
type exponential struct {
	e            *emitter
	sign         float64
	least, most  operand.Op // of x: beyond, the result is 0 or infinite all the same
	log2e        operand.Op // sign·log2 e
	high, low    operand.Op // ln 2 = high + low; n·high is exact
	coefficients []operand.Op
	one          operand.Op
}

// expCoefficients are those of r^6 to r^2. With 1+r, they make the largest relative
// error over |r| <= ln 2 / 2 the least, 3.1e-9.
var expCoefficients = []float64{0.0013814602455351945, 0.00836871678588772, 0.041668387988689784, 0.16666520632352066, 0.4999999344797442}

// exponential prepares for exp(x) or, if sign is -1, exp(-x).
func (e *emitter) exponential(sign float64) *exponential {
	const high = 355.0 / 512
	x := &exponential{
		e: e, sign: sign,
		high: e.constant("ln2High", high), low: e.constant("ln2Low", math.Ln2-high),
		one: e.constant("one", 1),
	}
	if sign > 0 {
		x.least, x.most = e.constant("minus104", -104), e.constant("plus89", 89)
		x.log2e = e.constant("log2e", math.Log2E)
	} else {
		x.least, x.most = e.constant("minus89", -89), e.constant("plus104", 104)
		x.log2e = e.constant("minusLog2e", -math.Log2E)
	}
	for i, c := range expCoefficients {
		x.coefficients = append(x.coefficients, e.constant("exp"+string(rune('6'-i)), c))
	}
	return x
}

// of replaces v by its exponential.
func (x *exponential) of(v reg.VecVirtual) {
	e := x.e
	e.VMINPS(v, e.register(x.most), v)
	e.VMAXPS(v, e.register(x.least), v)
	n := e.vector()
	e.VMULPS(x.log2e, v, n)
	e.round(n)
	if x.sign > 0 {
		e.VFNMADD231PS(x.high, n, v) // v - n·high
	} else {
		e.VFNMSUB231PS(x.high, n, v) // -v - n·high
	}
	e.VFNMADD231PS(x.low, n, v)
	p := e.move(x.coefficients[0])
	for _, c := range x.coefficients[1:] {
		e.VFMADD213PS(c, v, p)
	}
	e.VFMADD213PS(x.one, v, p)
	e.VFMADD213PS(x.one, v, p)
	e.scale(p, n)
	e.VMOVAPS(p, v)
}

// round rounds to the nearest whole number.
func (e *emitter) round(v reg.VecVirtual) {
	if e.bits == 512 {
		e.VRNDSCALEPS(operand.Imm(0), v, v)
	} else {
		e.VROUNDPS(operand.Imm(0), v, v)
	}
}

// scale multiplies v by 2^n, with n whole and between -150 and 128, and uses up n.
func (e *emitter) scale(v, n reg.VecVirtual) {
	if e.bits == 512 {
		e.VSCALEFPS(n, v, v)
		return
	}
	// A float's exponent reaches from -126 to 127: multiply twice, by half of n.
	half, bias := e.vector(), e.move(e.exponentBias())
	e.VCVTPS2DQ(n, n)
	e.VPSRAD(operand.Imm(1), n, half)
	e.VPSUBD(half, n, n)
	for _, power := range []reg.VecVirtual{half, n} {
		e.VPADDD(bias, power, power)
		e.VPSLLD(operand.Imm(23), power, power)
		e.VMULPS(power, v, v)
	}
}

// exponentBias returns what a float's exponent is stored with, as whole numbers.
func (e *emitter) exponentBias() operand.Op {
	return e.constant("exponentBias", float64(math.Float32frombits(127)))
}

// A sigmoid computes σ(x) = 1/(1+exp(-x)).
type sigmoid struct{ *exponential }

func (e *emitter) sigmoid() sigmoid { return sigmoid{e.exponential(-1)} }

// of replaces v by its sigmoid.
func (s sigmoid) of(v reg.VecVirtual) {
	s.exponential.of(v)
	s.e.VADDPS(s.one, v, v)
	s.e.VDIVPS(v, s.e.register(s.one), v)
}

// A tangent computes the hyperbolic tangent as x·p(x²)/q(x²). Unlike a form with
// an exponential, this keeps its relative precision near 0.
type tangent struct {
	e           *emitter
	least, most operand.Op // of x: beyond, the result is ±1
	p, q        []operand.Op
	one, minus  operand.Op
}

// The coefficients of p and q from the fourth power to the first, the zeroth being
// 1. They make the largest relative error over |x| <= 9.02 the least, 2.2e-8.
var (
	tanhP = []float64{1.3382712466661376e-08, 2.0634636043225964e-05, 0.003497384356415789, 0.13382625420256913}
	tanhQ = []float64{7.789587950116526e-07, 0.00032883981180023065, 0.02588408149079653, 0.4671594667919637}
)

func (e *emitter) tangent() *tangent {
	t := &tangent{
		e: e, least: e.constant("minus9", -9.02), most: e.constant("plus9", 9.02),
		one: e.constant("one", 1), minus: e.constant("minusOne", -1),
	}
	for i := range tanhP {
		power := string(rune('4' - i))
		t.p = append(t.p, e.constant("tanhP"+power, tanhP[i]))
		t.q = append(t.q, e.constant("tanhQ"+power, tanhQ[i]))
	}
	return t
}

// of replaces v by its tangent.
func (t *tangent) of(v reg.VecVirtual) {
	e := t.e
	t.clamp(v, t.least, t.most)
	square := e.vector()
	e.VMULPS(v, v, square)
	p, q := e.move(t.p[0]), e.move(t.q[0])
	for i := range t.p[1:] {
		e.VFMADD213PS(t.p[i+1], square, p)
		e.VFMADD213PS(t.q[i+1], square, q)
	}
	e.VFMADD213PS(t.one, square, p)
	e.VFMADD213PS(t.one, square, q)
	e.VMULPS(p, v, v)
	e.VDIVPS(q, v, v)
	t.clamp(v, t.minus, t.one) // rounding may lead a little beyond
}

func (t *tangent) clamp(v reg.VecVirtual, least, most operand.Op) {
	t.e.VMINPS(v, t.e.register(most), v)
	t.e.VMAXPS(v, t.e.register(least), v)
}
