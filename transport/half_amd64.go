package transport

import "golang.org/x/sys/cpu"

// hasHalf says that this CPU converts eight elements at a time.
var hasHalf = cpu.X86.HasAVX2 && cpu.X86.HasF16C

//go:noescape
func encodeFloat16x8(dst *byte, src *float32, n int)

//go:noescape
func decodeFloat16x8(dst *float32, src *byte, n int)

//go:noescape
func roundFloat16x8(x *float32, n int)

//go:noescape
func encodeBFloat16x8(dst *byte, src *float32, n int)

//go:noescape
func decodeBFloat16x8(dst *float32, src *byte, n int)

//go:noescape
func roundBFloat16x8(x *float32, n int)

// encodeHalf encodes as many elements as it can, and returns how many those are.
func encodeHalf(e Encoding, dst []byte, src []float32) int {
	n := len(src) &^ 7
	if n == 0 || !hasHalf {
		return 0
	}
	_ = dst[2*n-1]
	if e == BFloat16 {
		encodeBFloat16x8(&dst[0], &src[0], n)
	} else {
		encodeFloat16x8(&dst[0], &src[0], n)
	}
	return n
}

// decodeHalf decodes as many elements as it can, and returns how many those are.
func decodeHalf(e Encoding, dst []float32, src []byte) int {
	n := len(dst) &^ 7
	if n == 0 || !hasHalf {
		return 0
	}
	_ = src[2*n-1]
	if e == BFloat16 {
		decodeBFloat16x8(&dst[0], &src[0], n)
	} else {
		decodeFloat16x8(&dst[0], &src[0], n)
	}
	return n
}

// roundHalf rounds as many elements as it can, and returns how many those are.
func roundHalf(e Encoding, x []float32) int {
	n := len(x) &^ 7
	if n == 0 || !hasHalf {
		return 0
	}
	if e == BFloat16 {
		roundBFloat16x8(&x[0], n)
	} else {
		roundFloat16x8(&x[0], n)
	}
	return n
}
