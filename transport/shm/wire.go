//go:build linux

package shm

import (
	"encoding/binary"
	"fmt"
	"math"

	"pushpull/transport"
)

// Bodies of messages. Whole numbers are varints; texts, lists and bytes follow
// their length; what can be nil follows its length and one, and 0 for nil.

// maxParts is the most parts of one call: in memory an empty one takes fifteen
// times what it takes here.
const maxParts = 1 << 18

func appendInt[T int | int64](b []byte, v T) []byte { return binary.AppendVarint(b, int64(v)) }
func appendLength(b []byte, n int) []byte           { return binary.AppendUvarint(b, uint64(n)) }
func appendText(b []byte, s string) []byte          { return append(appendLength(b, len(s)), s...) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendBytes(b, x []byte) []byte {
	if x == nil {
		return appendLength(b, 0)
	}
	return append(appendLength(b, len(x)+1), x...)
}

func appendReplica(b []byte, r transport.Replica) []byte {
	return binary.AppendUvarint(appendInt(b, r.Task), r.Life)
}

func appendSettings(b []byte, settings []transport.Setting) []byte {
	b = appendLength(b, len(settings))
	for _, s := range settings {
		b = appendText(appendText(b, s.Name), s.Value)
	}
	return b
}

func appendPlan(b []byte, p transport.Plan) []byte {
	return appendInt(appendInt(appendInt(b, p.EpochExamples), p.Examples), p.Steps)
}

func appendHello(b []byte, h transport.Hello) []byte {
	return appendPlan(appendSettings(appendReplica(b, h.Replica), h.Settings), h.Plan)
}

func appendWelcome(b []byte, w transport.Welcome) []byte {
	b = appendBool(appendInt(b, w.Step), w.Saves)
	return binary.AppendUvarint(appendBytes(b, w.Cursor), w.Seq)
}

func appendStatus(b []byte, s transport.Status) []byte {
	b = appendInt(appendInt(b, s.Step), s.Examples)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(s.LearningRate))
	return appendBool(b, s.Done)
}

func appendPush(b []byte, p transport.Push) []byte {
	b = binary.AppendUvarint(appendReplica(b, p.Replica), p.Seq)
	return appendBytes(appendInt(appendInt(b, p.Step), p.Examples), p.Cursor)
}

func appendDescription(b []byte, d transport.Description) []byte {
	b = appendSettings(appendText(b, d.Task), d.Settings)
	b = appendPlan(appendStatus(b, d.Status), d.Plan)
	b = appendLength(b, len(d.Extents))
	for _, e := range d.Extents {
		b = appendInt(appendInt(appendInt(appendText(b, e.Variable), e.Offset), e.Length), e.Width)
	}
	b = appendLength(b, len(d.Replicas))
	for _, r := range d.Replicas {
		b = appendBool(appendBool(appendBool(appendInt(b, r.Task), r.Joined), r.Finished), r.Left)
		b = appendInt(b, r.Examples)
		b = appendLength(b, len(r.Verdicts))
		for v, n := range r.Verdicts {
			b = appendInt(append(b, byte(v)), n)
		}
	}
	return b
}

// appendParts appends parts less their data, which lies in the region.
func appendParts(b []byte, parts []transport.Part) []byte {
	b = appendLength(b, len(parts))
	for i := range parts {
		p := &parts[i]
		b = appendInt(appendInt(appendText(b, p.Variable), p.Offset), p.Width)
		b = appendLength(append(b, byte(p.Encoding)), len(p.Data))
		if p.Rows == nil {
			b = appendLength(b, 0)
			continue
		}
		b = appendLength(b, len(p.Rows)+1)
		for _, r := range p.Rows {
			b = binary.LittleEndian.AppendUint32(b, uint32(r))
		}
	}
	return b
}

// A decoder reads a body. After the first error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

// fail notes the first error.
func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format+": %w", append(args, transport.ErrInvalid)...)
	}
	d.b = nil
}

// end returns the first error; bytes that are left are one.
func (d *decoder) end() error {
	if n := len(d.b); n > 0 {
		d.fail("%d bytes after the message's last field", n)
	}
	return d.err
}

// take returns the next n bytes where they lie.
func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.fail("a field of %d bytes where %d are left", n, len(d.b))
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("a number that does not end")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int64() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("a number that does not end")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int {
	v := d.int64()
	if int64(int(v)) != v {
		d.fail("the number %d does not fit", v)
		return 0
	}
	return int(v)
}

// length returns how many items follow that take size bytes each, or more.
func (d *decoder) length(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.fail("%d items of %d bytes or more where %d bytes are left", n, size, len(d.b))
		return 0
	}
	return int(n)
}

// optional is length of what can be nil.
func (d *decoder) optional(size int) (n int, ok bool) {
	v := d.uvarint()
	if v == 0 {
		return 0, false
	}
	if v-1 > uint64(len(d.b)/size) {
		d.fail("%d items of %d bytes where %d bytes are left", v-1, size, len(d.b))
		return 0, false
	}
	return int(v - 1), true
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) bool() bool {
	v := d.byte()
	if v > 1 {
		d.fail("the byte %d for yes or no", v)
	}
	return v == 1
}

func (d *decoder) float64() float64 {
	if b := d.take(8); b != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return 0
}

func (d *decoder) text() string { return string(d.take(d.length(1))) }

// bytes returns bytes where they lie, or nil.
func (d *decoder) bytes() []byte {
	n, ok := d.optional(1)
	if !ok {
		return nil
	}
	return d.take(n)
}

func (d *decoder) replica() transport.Replica {
	return transport.Replica{Task: d.int(), Life: d.uvarint()}
}

func (d *decoder) settings() (settings []transport.Setting) {
	for range d.length(2) {
		settings = append(settings, transport.Setting{Name: d.text(), Value: d.text()})
	}
	return settings
}

func (d *decoder) plan() transport.Plan {
	return transport.Plan{EpochExamples: d.int64(), Examples: d.int64(), Steps: d.int64()}
}

func (d *decoder) hello() transport.Hello {
	return transport.Hello{Replica: d.replica(), Settings: d.settings(), Plan: d.plan()}
}

// welcome returns a message whose cursor lies in the body.
func (d *decoder) welcome() transport.Welcome {
	return transport.Welcome{Step: d.int64(), Saves: d.bool(), Cursor: d.bytes(), Seq: d.uvarint()}
}

func (d *decoder) status() transport.Status {
	return transport.Status{Step: d.int64(), Examples: d.int64(), LearningRate: d.float64(), Done: d.bool()}
}

// push returns a message whose cursor lies in the body.
func (d *decoder) push() transport.Push {
	return transport.Push{Replica: d.replica(), Seq: d.uvarint(), Step: d.int64(), Examples: d.int64(), Cursor: d.bytes()}
}

func (d *decoder) description() transport.Description {
	about := transport.Description{Task: d.text(), Settings: d.settings(), Status: d.status(), Plan: d.plan()}
	for range d.length(4) {
		about.Extents = append(about.Extents, transport.Extent{Variable: d.text(), Offset: d.int(), Length: d.int(), Width: d.int()})
	}
	for range d.length(6) {
		r := transport.ReplicaState{Task: d.int(), Joined: d.bool(), Finished: d.bool(), Left: d.bool(), Examples: d.int64()}
		for range d.length(2) {
			if r.Verdicts == nil {
				r.Verdicts = make(map[transport.Verdict]int64)
			}
			v := transport.Verdict(d.byte())
			r.Verdicts[v] = d.int64()
		}
		about.Replicas = append(about.Replicas, r)
	}
	return about
}

func tooMany(parts int) error {
	return fmt.Errorf("%d parts, want at most %d: %w", parts, maxParts, transport.ErrTooLarge)
}

// An inbox holds the parts of one call after another, in the same memory.
type inbox struct {
	parts   []transport.Part
	lengths []int // of the parts' data, in elements
	rows    []int32
}

// read reads parts that have no data yet. They are good until the next read.
// Nothing about them has been checked, but that the numbers fit.
func (in *inbox) read(d *decoder) {
	in.lengths, in.rows = in.lengths[:0], in.rows[:0]
	n := d.length(6)
	if n > maxParts {
		*d, n = decoder{err: tooMany(n)}, 0
	}
	before := in.parts[:cap(in.parts)]
	in.parts = in.parts[:0]
	for i := range n {
		var p transport.Part
		if name := d.take(d.length(1)); i < len(before) && before[i].Variable == string(name) {
			p.Variable = before[i].Variable // most calls name what the last one did
		} else {
			p.Variable = string(name)
		}
		p.Offset, p.Width, p.Encoding = d.int(), d.int(), transport.Encoding(d.byte())
		length := d.uvarint()
		if length > math.MaxInt/4 {
			d.fail("%d elements do not fit", length)
		}
		if k, ok := d.optional(4); ok {
			lo := len(in.rows)
			for b := d.take(4 * k); len(b) > 0; b = b[4:] {
				in.rows = append(in.rows, int32(binary.LittleEndian.Uint32(b)))
			}
			p.Rows = in.rows[lo:len(in.rows):len(in.rows)]
			if p.Rows == nil {
				p.Rows = []int32{}
			}
		}
		in.parts, in.lengths = append(in.parts, p), append(in.lengths, int(length))
	}
	if d.err != nil {
		in.parts, in.lengths = in.parts[:0], in.lengths[:0]
	}
}
