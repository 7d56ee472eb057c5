package transport

import (
	"encoding/binary"
	"fmt"
	"math"
)

// An Encoding is how a part's data travels. Memory always holds float32; a
// transport rounds to the encoding on one side, to nearest even, and widens on
// the other. NaN and infinities are kept.
type Encoding uint8

// Encodings.
const (
	Float32  Encoding = iota // as it is
	Float16                  // IEEE 754 binary16: 11 bits of precision; beyond ±65504 infinite
	BFloat16                 // the upper half of a float32: its range, 8 bits of precision
)

// Encodings lists all encodings in order.
var Encodings = []Encoding{Float32, Float16, BFloat16}

// String returns the encoding's name.
func (e Encoding) String() string {
	switch e {
	case Float32:
		return "float32"
	case Float16:
		return "float16"
	case BFloat16:
		return "bfloat16"
	}
	return fmt.Sprintf("encoding(%d)", uint8(e))
}

// Valid reports whether e is one of the encodings above.
func (e Encoding) Valid() bool { return e <= BFloat16 }

// Size returns the bytes that one element takes.
func (e Encoding) Size() int {
	if e == Float32 {
		return 4
	}
	return 2
}

// Encode writes src to dst, little-endian. It panics unless dst has room for
// len(src) elements.
func (e Encoding) Encode(dst []byte, src []float32) {
	if e == Float32 {
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
		}
		return
	}
	n := encodeHalf(e, dst, src)
	for i, x := range src[n:] {
		binary.LittleEndian.PutUint16(dst[2*(n+i):], e.toHalf(x))
	}
}

// Decode reads len(dst) elements from src. It panics if src is too short.
func (e Encoding) Decode(dst []float32, src []byte) {
	if e == Float32 {
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
		return
	}
	for i := decodeHalf(e, dst, src); i < len(dst); i++ {
		dst[i] = e.fromHalf(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// Round rounds x in place to what survives a transfer.
func (e Encoding) Round(x []float32) {
	if e == Float32 {
		return
	}
	for i := roundHalf(e, x); i < len(x); i++ {
		x[i] = e.fromHalf(e.toHalf(x[i]))
	}
}

func (e Encoding) toHalf(x float32) uint16 {
	if e == BFloat16 {
		return toBFloat16(x)
	}
	return toFloat16(x)
}

func (e Encoding) fromHalf(h uint16) float32 {
	if e == BFloat16 {
		return math.Float32frombits(uint32(h) << 16)
	}
	return fromFloat16(h)
}

// toBFloat16 rounds to nearest even. A NaN stays one, as in toFloat16.
func toBFloat16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// toFloat16 rounds to nearest even. A NaN stays one: its quiet bit is set and
// the top of its payload kept.
func toFloat16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(b>>13)&0x1ff
	case b >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case b < 0x38800000: // subnormal: adding 0.5 leaves round(x/2^-24) in the low bits
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	b += 0xfff + b>>13&1 // half a unit in the last place, ties to even
	return sign | uint16((b-0x38000000)>>13)
}

func fromFloat16(h uint16) float32 {
	sign, b := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case b >= 0x7c00: // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | b&0x3ff<<13)
	case b < 0x400: // subnormal
		return math.Float32frombits(sign | math.Float32bits(float32(b)*0x1p-24))
	}
	return math.Float32frombits(sign | (b<<13 + 0x38000000))
}
