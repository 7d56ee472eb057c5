package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const transposeSignature = "func(dst *float32, dstStep int64, src *float32, srcStep int64)"

// transpose16 emits the transposition of 16 by 16 elements: in each of four steps
// a register takes its halves from two registers of the step before.
func transpose16(e *emitter) {
	e.begin("transpose", transposeSignature,
		"transpose transposes 16 by 16 elements. Rows are the given steps apart, in bytes.")
	rows := loadRows(e, 16)
	quads := transposeQuads(e, rows)

	// quads[4g+c] holds, in its 128-bit lane l, column 4l+c of rows 4g to 4g+3.
	// Gather the four groups of rows of each column, pairs of groups first.
	columns := make([]reg.VecVirtual, 16)
	for c := range 4 {
		even01, odd01 := pairLanes(e, quads[c], quads[4+c])
		even23, odd23 := pairLanes(e, quads[8+c], quads[12+c])
		columns[c], columns[8+c] = pairLanes(e, even01, even23)
		columns[4+c], columns[12+c] = pairLanes(e, odd01, odd23)
	}
	storeRows(e, columns)
}

// transpose8 emits the transposition of 8 by 8 elements.
func transpose8(e *emitter) {
	e.begin("transpose", transposeSignature,
		"transpose transposes 8 by 8 elements. Rows are the given steps apart, in bytes.")
	quads := transposeQuads(e, loadRows(e, 8))
	columns := make([]reg.VecVirtual, 8)
	for c := range 4 {
		columns[c], columns[4+c] = e.vector(), e.vector()
		e.VPERM2F128(operand.Imm(0x20), quads[4+c], quads[c], columns[c])
		e.VPERM2F128(operand.Imm(0x31), quads[4+c], quads[c], columns[4+c])
	}
	storeRows(e, columns)
}

// transposeQuads transposes each 4 by 4 block that lies in one 128-bit lane of
// four registers. Register 4g+c of the result holds column c of each lane of
// registers 4g to 4g+3.
func transposeQuads(e *emitter, rows []reg.VecVirtual) []reg.VecVirtual {
	quads := make([]reg.VecVirtual, len(rows))
	for g := 0; g < len(rows); g += 4 {
		low01, high01 := e.vector(), e.vector()
		e.VUNPCKLPS(rows[g+1], rows[g], low01)
		e.VUNPCKHPS(rows[g+1], rows[g], high01)
		low23, high23 := e.vector(), e.vector()
		e.VUNPCKLPS(rows[g+3], rows[g+2], low23)
		e.VUNPCKHPS(rows[g+3], rows[g+2], high23)
		for c := range 4 {
			quads[g+c] = e.vector()
		}
		e.VUNPCKLPD(low23, low01, quads[g])
		e.VUNPCKHPD(low23, low01, quads[g+1])
		e.VUNPCKLPD(high23, high01, quads[g+2])
		e.VUNPCKHPD(high23, high01, quads[g+3])
	}
	return quads
}

// pairLanes returns the even and the odd 128-bit lanes of a, then b.
func pairLanes(e *emitter, a, b reg.VecVirtual) (even, odd reg.VecVirtual) {
	even, odd = e.vector(), e.vector()
	e.VSHUFF32X4(operand.Imm(0x88), b, a, even)
	e.VSHUFF32X4(operand.Imm(0xdd), b, a, odd)
	return even, odd
}

func loadRows(e *emitter, n int) []reg.VecVirtual {
	src, step := e.pointer("src"), e.integer("srcStep")
	rows := make([]reg.VecVirtual, n)
	for i := range rows {
		rows[i] = e.move(at(src, 0))
		if i < n-1 {
			e.ADDQ(step, src)
		}
	}
	return rows
}

func storeRows(e *emitter, rows []reg.VecVirtual) {
	dst, step := e.pointer("dst"), e.integer("dstStep")
	for i, v := range rows {
		e.VMOVUPS(v, at(dst, 0))
		if i < len(rows)-1 {
			e.ADDQ(step, dst)
		}
	}
	e.end()
}
