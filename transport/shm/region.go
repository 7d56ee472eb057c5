//go:build linux

package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"

	"pushpull/transport"
)

// Sizes of regions.
const (
	line     = 64      // a part's data begins at a multiple of it
	smallest = 1 << 20 // bytes of a region
	seals    = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)

// A region is memory that two processes map. It has one owner, who unmaps it
// when nobody reads or writes it anymore.
type region struct{ mem []byte }

// newRegion makes a region of at least n bytes. It returns the file, which the
// far end is to map and the caller is to close.
func newRegion(n int) (_ *region, file int, err error) {
	size := roundUp(n)
	file, err = unix.MemfdCreate("pushpull", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		file, err = unix.MemfdCreate("pushpull", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, -1, fmt.Errorf("make a memory file: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(file)
		}
	}()
	// Taking the memory now fails with an error if there is none. A page found
	// missing later would end the process.
	if err := unix.Fallocate(file, 0, 0, int64(size)); err != nil {
		return nil, -1, fmt.Errorf("take %d bytes of shared memory: %w: %w", size, err, transport.ErrTooLarge)
	}
	if _, err := unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals); err != nil {
		return nil, -1, fmt.Errorf("seal a memory file: %w", err)
	}
	r, err := mapFile(file, size)
	return r, file, err
}

// acceptRegion maps a file that came from the far end, if it is a region of
// size bytes. The caller closes the file.
func acceptRegion(file, size int) (*region, error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if err := unix.Fstatfs(file, &fs); err != nil {
		return nil, fmt.Errorf("a file that cannot be looked at: %w: %w", err, transport.ErrInvalid)
	}
	if int64(fs.Type) != unix.TMPFS_MAGIC { // pages of others can be missing
		return nil, fmt.Errorf("a file of file system %#x, want memory, %#x: %w", fs.Type, unix.TMPFS_MAGIC, transport.ErrInvalid)
	}
	sealed, err := unix.FcntlInt(uintptr(file), unix.F_GET_SEALS, 0)
	if err != nil || sealed&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("a memory file with seals %#x, want %#x, so that it cannot shrink: %w", sealed, unix.F_SEAL_SHRINK, transport.ErrInvalid)
	}
	if err := unix.Fstat(file, &st); err != nil {
		return nil, fmt.Errorf("a file that cannot be looked at: %w: %w", err, transport.ErrInvalid)
	}
	switch {
	case st.Size < int64(size):
		return nil, fmt.Errorf("a memory file of %d bytes, want the region's %d: %w", st.Size, size, transport.ErrInvalid)
	case st.Blocks < int64(size/512): // or to map it is to pay for it
		return nil, fmt.Errorf("a memory file with %d bytes of memory, want the region's %d: %w", st.Blocks*512, size, transport.ErrInvalid)
	}
	return mapFile(file, size)
}

// mapFile maps all pages at once: found one by one, they cost more than the
// first copy.
func mapFile(file, size int) (*region, error) {
	mem, err := unix.Mmap(file, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of shared memory: %w", size, err)
	}
	return &region{mem}, nil
}

// size returns the bytes of r, which can be nil.
func (r *region) size() int {
	if r == nil {
		return 0
	}
	return len(r.mem)
}

// floats returns n elements from byte lo on, without room to append.
func (r *region) floats(lo, n int) []float32 {
	if n == 0 {
		return nil
	}
	mem := r.mem[lo : lo+4*n]
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

// close unmaps r, which can be nil. Nobody may use what floats returned.
func (r *region) close() {
	if r != nil {
		unix.Munmap(r.mem)
		r.mem = nil
	}
}

// roundUp returns the size of a region for n bytes: n rounded up to four
// significant bits and whole pages.
func roundUp(n int) int {
	n = max(n, smallest)
	shift := bits.Len(uint(n-1)) - 4
	return ((n-1)>>shift + 1) << shift
}

// padded returns the bytes that n elements take in a region.
func padded(n int) int { return (4*n + line - 1) &^ (line - 1) }
