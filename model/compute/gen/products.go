package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tileVectors is the number of vectors in a row of a full tile. A half tile has one.
const tileVectors = 2

// cacheLine is the number of bytes a prefetch fetches.
const cacheLine = 64

// tileRows is the number of rows of a full tile: as many as leave two registers
// for B and two for A.
func tileRows(bits int) int {
	registers := 16
	if bits == 512 {
		registers = 32
	}
	return (registers - 4) / tileVectors
}

// tileName returns the name of a tile.
func tileName(bits int, packed bool, rows, vectors int) string {
	set, storage := "avx2", "Rows"
	if bits == 512 {
		set = "avx512"
	}
	if packed {
		storage = "Strip"
	}
	return fmt.Sprintf("%s%s%dx%d", set, storage, rows, vectors*bits/32)
}

// products emits everything a matrix product is made of.
func products(e *emitter) {
	for _, packed := range []bool{false, true} {
		for vectors := 1; vectors <= tileVectors; vectors++ {
			for rows := 1; rows <= tileRows(e.bits); rows++ {
				tile(e, packed, rows, vectors)
			}
		}
	}
	packPanels(e)
	packStrip(e)
	if e.bits == 512 {
		transpose16(e)
	} else {
		transpose8(e)
	}
}

// tile emits the product of some rows of A and one panel of B, summed over k in
// registers and then stored to C, or added to it. Every element is a single chain
// of fused multiply-adds in the order of k, in every tile. The panel's rows may be
// far apart, in B itself, where no hardware would foresee the next.
func tile(e *emitter, packed bool, rows, vectors int) {
	e.Function(tileName(e.bits, packed, rows, vectors))
	e.Attributes(attr.NOSPLIT)
	e.SignatureExpr("func(k int64, a *float32, aStep int64, b *float32, bStep int64, c *float32, cStep int64, accumulate int64)")
	e.Pragma("noescape")
	k, b, bStep := e.integer("k"), e.pointer("b"), e.integer("bStep")
	fetchTile(e, rows, vectors)
	a := newRowPointers(e, packed, rows)

	sums := make([][]reg.VecVirtual, rows)
	for i := range sums {
		for range vectors {
			sums[i] = append(sums[i], e.zero())
		}
	}
	bRow := make([]reg.VecVirtual, vectors)
	for j := range bRow {
		bRow[j] = e.vector()
	}
	aElement := [2]reg.VecVirtual{e.vector(), e.vector()} // in turn, so that loads run ahead
	step := func(ahead int) {
		for offset := 0; offset < vectors*e.size(); offset += cacheLine {
			e.PREFETCHT0(operand.Mem{Base: b, Index: bStep, Scale: 8, Disp: offset})
		}
		for j, v := range bRow {
			e.VMOVUPS(at(b, j*e.size()), v)
		}
		for i, row := range sums {
			e.VBROADCASTSS(a.element(i, ahead), aElement[i%2])
			for j := range row {
				e.VFMADD231PS(bRow[j], aElement[i%2], row[j])
			}
		}
		e.ADDQ(bStep, b)
		a.next()
	}

	const unroll = 4
	rounds := e.GP64()
	e.MOVQ(k, rounds)
	e.SHRQ(operand.Imm(2), rounds)
	e.JZ(operand.LabelRef("rest"))
	e.Label("round")
	a.fetch()
	for ahead := range unroll {
		step(ahead)
	}
	a.advance(unroll)
	e.DECQ(rounds)
	e.JNZ(operand.LabelRef("round"))
	e.Label("rest")
	e.ANDQ(operand.Imm(unroll-1), k)
	e.JZ(operand.LabelRef("sums"))
	e.Label("one")
	step(0)
	a.advance(1)
	e.DECQ(k)
	e.JNZ(operand.LabelRef("one"))

	e.Label("sums")
	c, cStep, accumulate := e.pointer("c"), e.integer("cStep"), e.integer("accumulate")
	e.TESTQ(accumulate, accumulate)
	e.JZ(operand.LabelRef("store"))
	for i, row := range sums {
		for j, v := range row {
			e.VADDPS(at(c, j*e.size()), v, v)
			e.VMOVUPS(v, at(c, j*e.size()))
		}
		if i < rows-1 {
			e.ADDQ(cStep, c)
		}
	}
	e.end()
	e.Label("store")
	for i, row := range sums {
		for j, v := range row {
			e.VMOVUPS(v, at(c, j*e.size()))
		}
		if i < rows-1 {
			e.ADDQ(cStep, c)
		}
	}
	e.end()
}

// fetchTile emits a request for the rows of C, so that they are near by the time
// the sums are there.
func fetchTile(e *emitter, rows, vectors int) {
	c, cStep := e.pointer("c"), e.integer("cStep")
	for row := range rows {
		for offset := 0; offset < vectors*e.size(); offset += cacheLine {
			e.PREFETCHT0(at(c, offset))
		}
		if row < rows-1 {
			e.ADDQ(cStep, c)
		}
	}
}

// rowPointers address the elements of A. In a strip, the rows of one k lie side by side,
// step bytes before those of the next; else each row is contiguous, step bytes
// before the next.
type rowPointers struct {
	e           *emitter
	packed      bool
	rows        int
	step, step3 reg.GPVirtual   // step3 is three steps
	every4      []reg.GPVirtual // pointers to rows 0, 4, 8...; of a strip only to row 0
}

func newRowPointers(e *emitter, packed bool, rows int) *rowPointers {
	a := &rowPointers{e: e, packed: packed, rows: rows, step: e.integer("aStep"), every4: []reg.GPVirtual{e.pointer("a")}}
	if packed {
		return a
	}
	if rows > 3 {
		a.step3 = e.GP64()
		e.LEAQ(operand.Mem{Base: a.step, Index: a.step, Scale: 2}, a.step3)
	}
	for row := 4; row < rows; row += 4 {
		p := e.GP64()
		e.LEAQ(operand.Mem{Base: a.every4[len(a.every4)-1], Index: a.step, Scale: 4}, p)
		a.every4 = append(a.every4, p)
	}
	return a
}

// element returns the operand of a row, a number of k ahead of the last advance.
func (a *rowPointers) element(row, ahead int) operand.Mem {
	if a.packed {
		return at(a.every4[0], 4*row)
	}
	m := at(a.every4[row/4], 4*ahead)
	switch row % 4 {
	case 1, 2:
		m.Index, m.Scale = a.step, uint8(row%4)
	case 3:
		m.Index, m.Scale = a.step3, 1
	}
	return m
}

// fetch requests what the rows have a few cache lines on: they are too many, and
// too far apart, for hardware to foresee.
func (a *rowPointers) fetch() {
	if a.packed {
		return
	}
	const lines = 4 // ahead, of 16 elements each
	for row := range a.rows {
		a.e.PREFETCHT0(a.element(row, lines*cacheLine/4))
	}
}

// next goes on to the next k where displacements cannot reach it.
func (a *rowPointers) next() {
	if a.packed {
		a.e.ADDQ(a.step, a.every4[0])
	}
}

// advance goes on by a number of k where displacements have reached them.
func (a *rowPointers) advance(steps int) {
	if a.packed {
		return
	}
	for _, p := range a.every4 {
		a.e.ADDQ(operand.Imm(uint64(4*steps)), p)
	}
}

// packPanels emits a copy of rows of B into full panels beside each other.
func packPanels(e *emitter) {
	e.begin("packPanels", "func(dst *float32, panelStep int64, src *float32, srcStep int64, k int64, panels int64)",
		"packPanels copies k rows of src, srcStep bytes apart, into panels of two",
		"vectors a row, panelStep bytes apart.")
	dst, panelStep := e.pointer("dst"), e.integer("panelStep")
	src, srcStep, k, panels := e.pointer("src"), e.integer("srcStep"), e.integer("k"), e.integer("panels")
	from, to, left := e.GP64(), e.GP64(), e.GP64()
	width := tileVectors * e.size()
	e.Label("row")
	e.MOVQ(src, from)
	e.MOVQ(dst, to)
	e.MOVQ(panels, left)
	e.Label("panel")
	for offset := 0; offset < width; offset += cacheLine {
		e.PREFETCHT0(operand.Mem{Base: from, Index: srcStep, Scale: 4, Disp: offset})
	}
	for offset := 0; offset < width; offset += e.size() {
		v := e.vector()
		e.VMOVUPS(at(from, offset), v)
		e.VMOVUPS(v, at(to, offset))
	}
	e.ADDQ(operand.U32(width), from)
	e.ADDQ(panelStep, to)
	e.DECQ(left)
	e.JNZ(operand.LabelRef("panel"))
	e.ADDQ(srcStep, src)
	e.ADDQ(operand.U32(width), dst)
	e.DECQ(k)
	e.JNZ(operand.LabelRef("row"))
	e.end()
}

// packStrip emits a copy of columns of a transposed A into a strip.
func packStrip(e *emitter) {
	e.begin("packStrip", "func(dst *float32, src *float32, srcStep int64, k int64, rows int64)",
		"packStrip copies the first elements of k rows of src, srcStep bytes apart, one",
		"for each of the strip's rows. It writes up to a vector beyond the strip.")
	dst, src, srcStep, k, rows := e.pointer("dst"), e.pointer("src"), e.integer("srcStep"), e.integer("k"), e.integer("rows")
	v, l := e.vector(), e.tail(rows)
	e.Label("row")
	e.PREFETCHT0(operand.Mem{Base: src, Index: srcStep, Scale: 8})
	l.loadInto(at(src, 0), v)
	e.VMOVUPS(v, at(dst, 0))
	e.ADDQ(srcStep, src)
	e.LEAQ(operand.Mem{Base: dst, Index: rows, Scale: 4}, dst)
	e.DECQ(k)
	e.JNZ(operand.LabelRef("row"))
	e.end()
}
