package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An emitter writes functions for vectors of one width. Where the instruction
// sets have the same mnemonic, the width of its registers tells them apart.
type emitter struct {
	*build.Context
	bits      int                 // of a vector: 512 for AVX-512, 256 for AVX2
	constants map[string]constant // in the file's data
}

// A constant is a float32, as many times as a 256-bit vector has lanes.
type constant struct {
	value float64
	data  operand.Mem
}

// lanes returns the float32s in a vector, size its bytes.
func (e *emitter) lanes() int { return e.bits / 32 }
func (e *emitter) size() int  { return e.bits / 8 }

// begin starts a function whose name ends with the width.
func (e *emitter) begin(name, signature string, doc ...string) {
	e.Function(fmt.Sprintf("%s%d", name, e.bits))
	e.Attributes(attr.NOSPLIT)
	e.SignatureExpr(signature)
	e.Doc(doc...)
	e.Pragma("noescape")
}

// end returns from the function.
func (e *emitter) end() {
	e.VZEROUPPER()
	e.RET()
}

// integer and pointer load a parameter of 64 bits.
func (e *emitter) integer(name string) reg.GPVirtual { return e.pointer(name) }
func (e *emitter) pointer(name string) reg.GPVirtual {
	r := e.GP64()
	e.Load(e.Param(name), r)
	return r
}

// scalar loads a float32 parameter into all lanes of a vector.
func (e *emitter) scalar(name string) reg.VecVirtual {
	x := e.XMM()
	e.Load(e.Param(name), x)
	v := e.vector()
	e.VBROADCASTSS(x, v)
	return v
}

// vector returns a new register.
func (e *emitter) vector() reg.VecVirtual {
	if e.bits == 512 {
		return e.ZMM()
	}
	return e.YMM()
}

// zero returns a new register of zeros.
func (e *emitter) zero() reg.VecVirtual {
	v := e.vector()
	e.clear(v)
	return v
}

func (e *emitter) clear(v reg.VecVirtual) {
	if e.bits == 512 {
		e.VPXORD(v, v, v)
	} else {
		e.VXORPS(v, v, v)
	}
}

// move returns a copy of a vector in a new register.
func (e *emitter) move(v operand.Op) reg.VecVirtual {
	to := e.vector()
	e.VMOVUPS(v, to)
	return to
}

// constant returns a number in all lanes, as an operand that may be memory. It is
// to be called ahead of loops. AVX-512 has the registers to keep it in one.
func (e *emitter) constant(name string, value float64) operand.Op {
	c, ok := e.constants[name]
	if !ok {
		c = constant{value, e.StaticGlobal(name)}
		e.DataAttributes(attr.RODATA | attr.NOPTR)
		for range 256 / 32 {
			e.AppendDatum(operand.U32(math.Float32bits(float32(value))))
		}
		e.constants[name] = c
	}
	if c.value != value {
		panic(fmt.Sprintf("two constants %s: %v and %v", name, c.value, value))
	}
	if e.bits == 256 {
		return c.data
	}
	v := e.vector()
	e.VBROADCASTSS(c.data, v)
	return v
}

// register returns a constant in a register, for where memory cannot stand.
func (e *emitter) register(c operand.Op) reg.VecVirtual {
	if r, ok := c.(reg.VecVirtual); ok {
		return r
	}
	return e.move(c)
}

// at returns the operand a number of bytes beyond a pointer.
func at(p reg.Register, bytes int) operand.Mem { return operand.Mem{Base: p, Disp: bytes} }
