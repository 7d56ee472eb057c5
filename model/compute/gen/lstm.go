package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var negativeInfinity = math.Inf(-1)

// gates address the four parts of a row of 4n elements.
type gates struct{ n4, n12 reg.GPVirtual } // 4n and 12n: bytes of one part and of three

func (e *emitter) gates(n reg.GPVirtual) gates {
	g := gates{e.GP64(), e.GP64()}
	e.LEAQ(operand.Mem{Base: n, Index: n, Scale: 2}, g.n12)
	e.SHLQ(operand.Imm(2), g.n12)
	e.MOVQ(n, g.n4)
	e.SHLQ(operand.Imm(2), g.n4)
	return g
}

// of returns the operands of i, j, f and o, given that of the first.
func (g gates) of(p reg.GPVirtual) [4]operand.Mem {
	return [4]operand.Mem{
		{Base: p},
		{Base: p, Index: g.n4, Scale: 1},
		{Base: p, Index: g.n4, Scale: 2},
		{Base: p, Index: g.n12, Scale: 1},
	}
}

// lstmForward emits a row of cells, forward.
func lstmForward(e *emitter) {
	e.begin("lstmForward",
		"func(z *float32, bias *float32, cPrev *float32, c *float32, tanhC *float32, h *float32, n int64, forgetBias float32)",
		"lstmForward is Engine.LSTMForward.")
	z, bias, cPrev := e.pointer("z"), e.pointer("bias"), e.pointer("cPrev")
	c, tanhC, h := e.pointer("c"), e.pointer("tanhC"), e.pointer("h")
	n, forgetBias := e.integer("n"), e.scalar("forgetBias")
	g := e.gates(n)
	sigmoid, tanh := e.sigmoid(), e.tangent()
	e.loop(n, func(l live) {
		var gate [4]reg.VecVirtual
		for i, m := range g.of(z) {
			gate[i] = l.load(m)
			e.VADDPS(l.load(g.of(bias)[i]), gate[i], gate[i])
			switch i {
			case 1:
				tanh.of(gate[i])
			case 2:
				e.VADDPS(forgetBias, gate[i], gate[i])
				sigmoid.of(gate[i])
			default:
				sigmoid.of(gate[i])
			}
			l.store(gate[i], m)
		}
		cell := l.load(at(cPrev, 0))
		e.VMULPS(gate[2], cell, cell)
		e.VFMADD231PS(gate[0], gate[1], cell)
		l.store(cell, at(c, 0))
		tanh.of(cell)
		l.store(cell, at(tanhC, 0))
		e.VMULPS(gate[3], cell, cell)
		l.store(cell, at(h, 0))
	}, z, bias, cPrev, c, tanhC, h)
	e.end()
}

// lstmBackward emits a row of cells, backward.
func lstmBackward(e *emitter) {
	e.begin("lstmBackward",
		"func(dz *float32, z *float32, cPrev *float32, tanhC *float32, dh *float32, dc *float32, n int64)",
		"lstmBackward is Engine.LSTMBackward.")
	dz, z, cPrev, tanhC := e.pointer("dz"), e.pointer("z"), e.pointer("cPrev"), e.pointer("tanhC")
	dh, dc, n := e.pointer("dh"), e.pointer("dc"), e.integer("n")
	g := e.gates(n)
	one := e.register(e.constant("one", 1))
	e.loop(n, func(l live) {
		var gate [4]reg.VecVirtual
		for i, m := range g.of(z) { // all of them before dz, which may be z, is written
			gate[i] = l.load(m)
		}
		i, j, f, o := gate[0], gate[1], gate[2], gate[3]
		t, dhv, d := l.load(at(tanhC, 0)), l.load(at(dh, 0)), l.load(at(dc, 0))
		out := g.of(dz)

		// do = dh·tanhC·o·(1-o)
		do := e.slope(one, o)
		e.VMULPS(t, do, do)
		e.VMULPS(dhv, do, do)
		l.store(do, out[3])
		// d = dc + dh·o·(1-tanhC²), the gradient of c
		e.VMULPS(o, dhv, dhv)
		e.VFMADD231PS(e.tanhSlope(one, t), dhv, d)
		// di = d·j·i·(1-i)
		di := e.slope(one, i)
		e.VMULPS(j, di, di)
		e.VMULPS(d, di, di)
		l.store(di, out[0])
		// dj = d·i·(1-j²)
		dj := e.tanhSlope(one, j)
		e.VMULPS(i, dj, dj)
		e.VMULPS(d, dj, dj)
		l.store(dj, out[1])
		// df = d·cPrev·f·(1-f)
		df := e.slope(one, f)
		e.VMULPS(l.load(at(cPrev, 0)), df, df)
		e.VMULPS(d, df, df)
		l.store(df, out[2])

		e.VMULPS(f, d, d)
		l.store(d, at(dc, 0))
	}, dz, z, cPrev, tanhC, dh, dc)
	e.end()
}

// slope returns y(1-y), the derivative of a sigmoid that is y.
func (e *emitter) slope(one, y reg.VecVirtual) reg.VecVirtual {
	v := e.vector()
	e.VSUBPS(y, one, v)
	e.VMULPS(y, v, v)
	return v
}

// tanhSlope returns 1-y², the derivative of a tangent that is y.
func (e *emitter) tanhSlope(one, y reg.VecVirtual) reg.VecVirtual {
	v := e.move(one)
	e.VFNMADD231PS(y, y, v)
	return v
}
