package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// live is the set of a vector's lanes that hold elements: all of them, or the first
// few at the end of a slice. What lies beyond is neither read nor written.
type live struct {
	e      *emitter
	opmask reg.OpmaskVirtual // AVX-512
	mask   reg.VecVirtual    // AVX2: all bits of a live lane
}

// all returns the full set.
func (e *emitter) all() live { return live{e: e} }

// tail returns the first n lanes, with n below the number of lanes.
func (e *emitter) tail(n reg.GPVirtual) live {
	l := live{e: e}
	if e.bits == 512 {
		bits := e.GP32()
		e.MOVQ(n, reg.RCX)
		e.MOVL(operand.U32(1), bits)
		e.SHLL(reg.CL, bits)
		e.DECL(bits)
		l.opmask = e.K()
		e.KMOVW(bits, l.opmask)
		return l
	}
	const name = "tailMask"
	table, ok := e.constants[name]
	if !ok {
		table = constant{math.NaN(), e.StaticGlobal(name)}
		e.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 2 * e.lanes() {
			if i < e.lanes() {
				e.AppendDatum(operand.U32(math.MaxUint32))
			} else {
				e.AppendDatum(operand.U32(0))
			}
		}
		e.constants[name] = table
	}
	middle, back := e.GP64(), e.GP64()
	e.LEAQ(table.data, middle)
	e.MOVQ(n, back)
	e.NEGQ(back)
	l.mask = e.vector()
	e.VMOVUPS(operand.Mem{Base: middle, Index: back, Scale: 4, Disp: e.size()}, l.mask)
	return l
}

// load returns the live elements at m, and zeros.
func (l live) load(m operand.Mem) reg.VecVirtual {
	v := l.e.vector()
	l.loadInto(m, v)
	return v
}

func (l live) loadInto(m operand.Mem, v reg.VecVirtual) {
	switch {
	case l.opmask != nil:
		l.e.VMOVUPS_Z(m, l.opmask, v)
	case l.mask != nil:
		l.e.VMASKMOVPS(m, l.mask, v)
	default:
		l.e.VMOVUPS(m, v)
	}
}

// store writes the live lanes of v to m.
func (l live) store(v reg.VecVirtual, m operand.Mem) {
	switch {
	case l.opmask != nil:
		l.e.VMOVUPS(v, l.opmask, m)
	case l.mask != nil:
		l.e.VMASKMOVPS(v, l.mask, m)
	default:
		l.e.VMOVUPS(v, m)
	}
}

// or makes the lanes of v that are not live those of other.
func (l live) or(other, v reg.VecVirtual) {
	switch {
	case l.opmask != nil:
		l.e.VBLENDMPS(v, other, l.opmask, v)
	case l.mask != nil:
		l.e.VBLENDVPS(l.mask, v, other, v)
	}
}

// loop emits body for the n elements at the pointers: for vectors as long as
// they last, then for the tail. It uses up n and the pointers.
func (e *emitter) loop(n reg.GPVirtual, body func(l live), pointers ...reg.GPVirtual) {
	lanes := operand.Imm(uint64(e.lanes()))
	e.CMPQ(n, lanes)
	e.JLT(operand.LabelRef("tail"))
	e.Label("vectors")
	body(e.all())
	for _, p := range pointers {
		e.ADDQ(operand.Imm(uint64(e.size())), p)
	}
	e.SUBQ(lanes, n)
	e.CMPQ(n, lanes)
	e.JGE(operand.LabelRef("vectors"))
	e.Label("tail")
	e.TESTQ(n, n)
	e.JZ(operand.LabelRef("done"))
	body(e.tail(n))
	e.Label("done")
}
