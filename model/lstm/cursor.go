package lstm

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A cursor is, little-endian:
//
//	[4]byte  "lstm"
//	uint32   version, 1
//	uint32   layers, hidden, batch, unroll, dropouts
//	uint64   steps in an epoch
//	uint64   epoch, step         of the next batch
//	float64  cost                nats since the start of the epoch
//	uint64   time                time steps since then
//	uint64   stream              one for each dropout
//	float32  h, then c           [batch, hidden], for each layer
const (
	cursorMagic   = "lstm"
	cursorVersion = 1
	cursorHeader  = 4 + 6*4 + 8
)

// Cursor returns the place in the text, the state carried, the random numbers of
// dropout and the running perplexity: with the weights, all that a run needs to
// go on as if it had never stopped, to the last bit. The slice is the model's,
// valid until the next call of Cursor or Step.
func (m *Model) Cursor() []byte {
	le := binary.LittleEndian
	b := m.appendHeader(m.cursor[:0])
	b = le.AppendUint64(b, uint64(m.epoch))
	b = le.AppendUint64(b, uint64(m.step))
	b = le.AppendUint64(b, math.Float64bits(m.cost))
	b = le.AppendUint64(b, uint64(m.time))
	for _, d := range m.training.dropouts {
		b = le.AppendUint64(b, uint64(d.random))
	}
	for _, s := range m.training.state {
		b = appendFloats(b, s.h)
		b = appendFloats(b, s.c)
	}
	m.cursor = b
	return b
}

// appendHeader appends what a cursor must have in common with a model.
func (m *Model) appendHeader(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, cursorMagic...)
	b = le.AppendUint32(b, cursorVersion)
	for _, n := range m.dimensions() {
		b = le.AppendUint32(b, uint32(n))
	}
	return le.AppendUint64(b, uint64(m.EpochSize()))
}

// dimensions returns layers, hidden, batch, unroll and dropouts.
func (m *Model) dimensions() [5]int {
	return [5]int{m.cfg.Layers, m.cfg.Hidden, m.cfg.Batch, m.cfg.Unroll, len(m.training.dropouts)}
}

// Seek goes on from a cursor of a model with the same Layers, Hidden, Batch and
// Unroll, with dropout or without like this one, and a text that makes as many
// batches. On any other it changes nothing and says what differs.
func (m *Model) Seek(cursor []byte) error {
	if err := m.checkHeader(cursor); err != nil {
		return fmt.Errorf("lstm: seek: %w", err)
	}
	r := reader(cursor[cursorHeader:])
	epoch, step := r.uint64(), r.uint64()
	cost, time := math.Float64frombits(r.uint64()), r.uint64()
	switch {
	case epoch > math.MaxInt32:
		return fmt.Errorf("lstm: seek: the cursor is of epoch %d: want at most %d", epoch, math.MaxInt32)
	case step > uint64(m.EpochSize()):
		return fmt.Errorf("lstm: seek: the cursor is at step %d: an epoch has %d", step, m.EpochSize())
	case time > uint64(m.EpochSize()*m.cfg.Unroll):
		return fmt.Errorf("lstm: seek: the cursor sums %d time steps: an epoch has %d", time, m.EpochSize()*m.cfg.Unroll)
	}
	m.epoch, m.step, m.cost, m.time = int(epoch), int(step), cost, int(time)
	for _, d := range m.training.dropouts {
		d.random = stream(r.uint64())
	}
	for _, s := range m.training.state {
		r.floats(s.h)
		r.floats(s.c)
	}
	m.next.look(m.batches, m.step)
	return nil
}

// checkHeader says how a cursor is not one of this model, if so.
func (m *Model) checkHeader(cursor []byte) error {
	le := binary.LittleEndian
	if len(cursor) < cursorHeader || string(cursor[:4]) != cursorMagic {
		return fmt.Errorf("%d bytes that begin with %.4q are no cursor: want at least %d that begin with %q", len(cursor), cursor, cursorHeader, cursorMagic)
	}
	if v := le.Uint32(cursor[4:]); v != cursorVersion {
		return fmt.Errorf("the cursor has version %d: want %d; go on with the program that saved it", v, cursorVersion)
	}
	want := m.dimensions()
	for i, name := range [5]string{"layers", "hidden", "batch", "unroll", "dropouts"} {
		if got := le.Uint32(cursor[8+4*i:]); got != uint32(want[i]) {
			return fmt.Errorf("the cursor is of another model: it has %s %d, this one %d", name, got, want[i])
		}
	}
	if got := le.Uint64(cursor[cursorHeader-8:]); got != uint64(m.EpochSize()) {
		return fmt.Errorf("the cursor is of another text: its epoch has %d steps, this one %d", got, m.EpochSize())
	}
	if want := m.cursorSize(); len(cursor) != want {
		return fmt.Errorf("the cursor has %d bytes: want %d; it was cut or added to", len(cursor), want)
	}
	return nil
}

// cursorSize returns the number of bytes in a cursor of this model.
func (m *Model) cursorSize() int {
	return cursorHeader + 4*8 + 8*len(m.training.dropouts) + 4*2*m.cfg.Layers*m.cfg.Batch*m.cfg.Hidden
}

func appendFloats(b []byte, x []float32) []byte {
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// A reader takes numbers off the front of bytes known to be long enough.
type reader []byte

func (r *reader) uint64() uint64 {
	v := binary.LittleEndian.Uint64(*r)
	*r = (*r)[8:]
	return v
}

func (r *reader) floats(x []float32) {
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32((*r)[4*i:]))
	}
	*r = (*r)[4*len(x):]
}
