package tcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"pushpull/transport"
)

// An encoder appends the fields of a header to b.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)   { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) byte(v byte)   { e.b = append(e.b, v) }

func (e *encoder) flag(v bool) {
	if v {
		e.byte(1)
		return
	}
	e.byte(0)
}

func (e *encoder) float(v float64) {
	e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(v))
}

func (e *encoder) text(s string) {
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
}

// blob tells nil from empty.
func (e *encoder) blob(b []byte) {
	if b == nil {
		e.uint(0)
		return
	}
	e.uint(uint64(len(b)) + 1)
	e.b = append(e.b, b...)
}

// alignBytes divides the place in a frame at which data begins: the copies to
// and from a socket cost a tenth to a third less if both sides are so aligned.
const alignBytes = 64

// pad appends zeros up to where data may begin.
func (e *encoder) pad() {
	if n := len(e.b) % alignBytes; n > 0 {
		e.b = append(e.b, make([]byte, alignBytes-n)...)
	}
}

// rows tells nil from empty.
func (e *encoder) rows(rows []int32) {
	if rows == nil {
		e.uint(0)
		return
	}
	e.uint(uint64(len(rows)) + 1)
	for _, r := range rows {
		e.b = binary.LittleEndian.AppendUint32(e.b, uint32(r))
	}
}

var errHeader = fmt.Errorf("the header is not that of a call: it ends early, or a number in it is out of range: %w", transport.ErrInvalid)

// A decoder takes fields off b. After the first that is malformed, all are zero.
type decoder struct {
	b   []byte
	err error // of the first malformed field
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errHeader
	}
	d.b = nil
}

// end returns the first error. It is one if anything but padding is left.
func (d *decoder) end() error {
	if rest := len(bytes.TrimLeft(d.b, "\x00")); d.err == nil && (rest > 0 || len(d.b) >= alignBytes) {
		d.err = fmt.Errorf("%d bytes after the header's end: %w", len(d.b), transport.ErrInvalid)
	}
	return d.err
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// index reads an int64 that is to fit an int.
func (d *decoder) index() int {
	v := d.int()
	if int64(int(v)) != v {
		d.fail()
		return 0
	}
	return int(v)
}

// take reads n bytes, which the header goes on to hold.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) flag() bool {
	b := d.byte()
	if b > 1 {
		d.fail()
	}
	return b == 1
}

func (d *decoder) float() float64 {
	if b := d.take(8); b != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// text reads a string, and returns was instead if it is the same.
func (d *decoder) text(was string) string {
	b := d.take(d.uint())
	if string(b) == was {
		return was
	}
	return string(b)
}

func (d *decoder) blob() []byte {
	n := d.uint()
	if n == 0 {
		return nil
	}
	return append([]byte{}, d.take(n-1)...)
}

// rows appends row numbers to room, and returns them by themselves, and room
// with them.
func (d *decoder) rows(room []int32) (rows, _ []int32) {
	n := d.uint()
	if n == 0 {
		return nil, room
	}
	n--
	if n > uint64(len(d.b))/4 {
		d.fail()
		return nil, room
	}
	lo := len(room)
	for b := d.take(4 * n); len(b) > 0; b = b[4:] {
		room = append(room, int32(binary.LittleEndian.Uint32(b)))
	}
	if n == 0 {
		return []int32{}, room
	}
	return room[lo:len(room):len(room)], room
}

// count reads how many elements follow, each of least bytes or more. More than
// limit of them are refused before memory is taken for them.
func (d *decoder) count(least, limit int) int {
	n := d.uint()
	if n > uint64(len(d.b)/least) {
		d.fail()
		return 0
	}
	if n > uint64(limit) {
		if d.err == nil {
			d.err = fmt.Errorf("%d entries of a list, want at most %d: %w", n, limit, transport.ErrTooLarge)
		}
		d.b = nil
		return 0
	}
	return int(n)
}
