package grpc

import (
	"encoding/binary"
	"unsafe"

	"pushpull/transport"
)

// littleEndian says whether float32s lie in memory as they travel.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// view returns the memory of x as bytes.
func view(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// encode is e.Encode, and one copy where memory and wire agree.
func encode(e transport.Encoding, dst []byte, src []float32) {
	if e == transport.Float32 && littleEndian {
		copy(dst, view(src))
		return
	}
	e.Encode(dst, src)
}

// decode is e.Decode, and one copy where memory and wire agree.
func decode(e transport.Encoding, dst []float32, src []byte) {
	if e == transport.Float32 && littleEndian {
		copy(view(dst), src)
		return
	}
	e.Decode(dst, src)
}
