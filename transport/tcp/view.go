package tcp

import (
	"encoding/binary"
	"unsafe"

	"pushpull/transport"
)

// littleEndian says whether float32s lie in memory as they travel.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// direct says whether data of encoding e travels as it lies in memory.
func direct(e transport.Encoding) bool { return e == transport.Float32 && littleEndian }

// view returns the memory of x as bytes.
func view(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
