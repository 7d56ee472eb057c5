package lstm

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a large page on the machines we know, in bytes.
const hugePage = 1 << 21

// adviseHuge asks for large pages under the whole ones in x, before x is first
// touched: products read matrices across their rows, each row from another small
// page. It is advice: where the system declines, x is as it was.
func adviseHuge(x []float32) {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
	start := int(-uintptr(unsafe.Pointer(unsafe.SliceData(x))) % hugePage)
	if end := len(bytes) - (len(bytes)-start)%hugePage; start < end {
		_ = unix.Madvise(bytes[start:end], unix.MADV_HUGEPAGE)
	}
}
