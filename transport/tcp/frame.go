package tcp

import (
	"encoding/binary"
	"fmt"
	"math"

	"pushpull/transport"
)

const (
	mark           = 'p' // begins every frame
	frameBytes     = 16  // before the header
	maxHeaderBytes = 64 << 20
	maxParts       = 1 << 18 // in one call
)

// A kind says what a frame is.
type kind uint8

const (
	join kind = iota + 1
	initial
	pull
	push
	finish
	leave
	describe
	answer  // with the results
	failure // with the error
	working // the call goes on
)

// String returns the name of a method.
func (k kind) String() string {
	switch k {
	case join:
		return "join"
	case initial:
		return "init"
	case pull:
		return "pull"
	case push:
		return "push"
	case finish:
		return "finish"
	case leave:
		return "leave"
	case describe:
		return "describe"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// A frame is what comes before a header and data.
type frame struct {
	kind   kind
	header int   // bytes, at most maxHeaderBytes
	data   int64 // bytes
}

// put writes f to the first frameBytes of b.
func (f frame) put(b []byte) {
	b[0], b[1], b[2], b[3] = mark, byte(f.kind), 0, 0
	binary.LittleEndian.PutUint32(b[4:], uint32(f.header))
	binary.LittleEndian.PutUint64(b[8:], uint64(f.data))
}

// parseFrame reads the frame that b begins with. It returns ErrInvalid if it is
// none, and ErrTooLarge if nobody may send so much.
func parseFrame(b []byte) (frame, error) {
	header, data := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint64(b[8:])
	switch {
	case b[0] != mark || b[2] != 0 || b[3] != 0 || b[1] < byte(join) || b[1] > byte(working):
		return frame{}, fmt.Errorf("no frame begins with the bytes %x: %w", b[:frameBytes], transport.ErrInvalid)
	case header > maxHeaderBytes:
		return frame{}, tooLarge(int64(header))
	case data > math.MaxInt64:
		return frame{}, fmt.Errorf("a frame with %d bytes of data: %w", data, transport.ErrTooLarge)
	}
	return frame{kind(b[1]), int(header), int64(data)}, nil
}

func tooLarge(header int64) error {
	return fmt.Errorf("row numbers, names and cursor of one call take %d bytes, want at most %d: %w",
		header, maxHeaderBytes, transport.ErrTooLarge)
}
