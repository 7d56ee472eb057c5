package grpc

import (
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"pushpull/transport"
	"pushpull/transport/internal/pool"
)

// The data of a call's parts is one sequence of bytes. A source cuts it into
// messages where it is sent, a sink puts it together where it arrives.

// viewBytes is the least data for which a message refers to the memory of a
// slab; less is copied. (gRPC does not tell when it is done with less than a
// kilobyte.)
const viewBytes = 16 << 10

// A source reads the data of parts from its start to its end.
type source struct {
	parts []transport.Part
	at    int   // in the data of the first of parts
	left  int64 // bytes not read yet
	bytes *pool.Pool[byte]
	slab  *slab // that messages refer to, if they may: parts is then one float32 run
}

// newSource returns a source. If the data lies in a slab, messages may refer to
// it; else they copy, because a transport does not say when it has sent them.
func newSource(parts []transport.Part, bytes *pool.Pool[byte], data *slab) *source {
	s := &source{parts: parts, bytes: bytes}
	plain := data != nil && littleEndian
	for i := range parts {
		s.left += int64(len(parts[i].Data)) * int64(parts[i].Encoding.Size())
		plain = plain && parts[i].Encoding == transport.Float32
	}
	if plain {
		s.parts, s.slab = []transport.Part{{Data: (*data.buf)[:data.total]}}, data
	}
	return s
}

// next returns as many of the next n bytes as are whole elements, nil if there
// are none.
func (s *source) next(n int) mem.Buffer {
	n = int(min(int64(n), s.left))
	if s.slab != nil && n >= viewBytes {
		return s.view(n)
	}
	if n <= 0 {
		return nil
	}
	buf := s.bytes.Get(n)
	filled := 0
	for filled < n {
		p := &s.parts[0]
		k := min((n-filled)/p.Encoding.Size(), len(p.Data)-s.at)
		if k == 0 && s.at < len(p.Data) {
			break
		}
		encode(p.Encoding, (*buf)[filled:], p.Data[s.at:s.at+k])
		filled += k * p.Encoding.Size()
		if s.at += k; s.at == len(p.Data) {
			s.parts, s.at = s.parts[1:], 0
		}
	}
	s.left -= int64(filled)
	if filled == 0 {
		s.bytes.Put(buf)
		return nil
	}
	*buf = (*buf)[:filled]
	return mem.NewBuffer(buf, s.bytes)
}

// view returns the next n bytes where they lie, with the parts' one slab kept
// until they are sent. All parts are one float32 run.
func (s *source) view(n int) mem.Buffer {
	n = n / 4 * 4
	v := view(s.parts[0].Data[s.at : s.at+n/4])
	s.at += n / 4
	s.left -= int64(n)
	s.slab.refs.Add(1)
	return mem.NewBuffer(&v, s.slab)
}

// A sink writes data to its parts from their start to their end: to their Data
// or, where there is none yet, to a slab that grows with what arrives.
type sink struct {
	parts   []transport.Part
	lengths []int // of the parts' data, in elements
	slab    *slab // nil if the parts have their Data

	at    int     // elements of the first of parts that are written
	flat  int     // elements of all parts that are written
	carry [4]byte // an element that has arrived in part
	held  int     // bytes of it
}

// write takes the next bytes. It returns ErrInvalid if they are more than the
// parts have room for.
func (s *sink) write(b []byte) error {
	for len(b) > 0 {
		for len(s.lengths) > 0 && s.at == s.lengths[0] {
			s.parts, s.lengths, s.at = s.parts[1:], s.lengths[1:], 0
		}
		if len(s.lengths) == 0 {
			return fmt.Errorf("%d bytes of data or more after the last part's: %w", len(b), transport.ErrInvalid)
		}
		e := s.parts[0].Encoding
		size := e.Size()
		if s.held > 0 || len(b) < size {
			k := copy(s.carry[s.held:size], b)
			b = b[k:]
			if s.held += k; s.held == size {
				decode(e, s.room(1), s.carry[:size])
				s.advance(1)
				s.held = 0
			}
			continue
		}
		dst := s.room(min(len(b)/size, s.lengths[0]-s.at))
		decode(e, dst, b[:len(dst)*size])
		b = b[len(dst)*size:]
		s.advance(len(dst))
	}
	return nil
}

// room returns where the next elements of the first part go: at least one, at
// most n.
func (s *sink) room(n int) []float32 {
	if s.slab != nil {
		return s.slab.room(s.flat, n)
	}
	return s.parts[0].Data[s.at : s.at+n]
}

func (s *sink) advance(n int) {
	s.at += n
	s.flat += n
}

// end returns ErrInvalid if the parts are not complete.
func (s *sink) end() error {
	missing := -s.at
	for _, n := range s.lengths {
		missing += n
	}
	if missing > 0 || s.held > 0 {
		return fmt.Errorf("data ends %d of %d elements early: %w", missing, s.flat+missing, transport.ErrInvalid)
	}
	return nil
}

// A slab is the memory for the data of one call's parts, one after another.
// As a mem.BufferPool it is told when a message that refers to it is sent.
type slab struct {
	floats *pool.Pool[float32]
	buf    *[]float32   // as much of it as there is yet
	total  int          // elements it may grow to
	refs   atomic.Int32 // messages under way that refer to it
}

// newSlab returns a slab for total elements. It takes memory that was used
// before, or else grows as elements arrive.
func newSlab(floats *pool.Pool[float32], total int) *slab {
	buf := floats.Reuse(total)
	if buf == nil {
		buf = floats.Get(min(total, chunkBytes/4))
	}
	return &slab{floats: floats, buf: buf, total: total}
}

// room returns the elements from lo, at least one, at most n.
func (s *slab) room(lo, n int) []float32 {
	if lo == len(*s.buf) {
		s.grow(min(s.total, 4*lo))
	}
	return (*s.buf)[lo:min(lo+n, len(*s.buf))]
}

func (s *slab) grow(n int) {
	larger := s.floats.Get(n)
	copy(*larger, *s.buf)
	s.floats.Put(s.buf)
	s.buf = larger
}

// share gives each of the parts its piece of the slab as Data.
func (s *slab) share(parts []transport.Part, lengths []int) {
	rest := *s.buf
	for i, n := range lengths {
		parts[i].Data, rest = rest[:n:n], rest[n:]
	}
}

// release says that a message, or the slab's maker, is done with it. After the
// last of them the memory is reused.
func (s *slab) release() {
	if s.refs.Add(-1) < 0 {
		s.floats.Put(s.buf)
	}
}

// Get is there for mem.BufferPool; nobody calls it.
func (s *slab) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put is called when a message that [source.view] made is sent.
func (s *slab) Put(*[]byte) { s.release() }
