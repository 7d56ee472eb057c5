package tcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"pushpull/transport"
	"pushpull/transport/internal/pool"
)

// Sizes of reading and writing, by BenchmarkTCP.
const (
	readBytes  = 4 << 10   // read ahead; more goes where it belongs
	writeBytes = 1 << 20   // written at once; must make its way within the stall timeout
	chunkBytes = 256 << 10 // of data on its way from or to another encoding
	keepBytes  = 1 << 20   // of memory for headers that a link keeps
)

var (
	// errStalled says that the far end neither took nor sent anything.
	errStalled = errors.New("the far end gives no sign of life")
	// errInterrupted says that the far end did not wait for all that was to be
	// sent.
	errInterrupted = errors.New("the far end did not take all that was sent")
)

// A link is one connection, and either end of it. Apart from close it is not
// for concurrent use.
type link struct {
	nc     net.Conn
	in     *bufio.Reader // of src
	src    source
	probe  *probe
	stall  time.Duration
	bytes  *pool.Pool[byte]
	broken error // why it cannot be used anymore

	sent      encoder     // the frame and header being sent
	out       net.Buffers // to be sent next
	outBytes  int         // in out
	pending   net.Buffers // of out, being sent
	chunk     *[]byte     // of data that was encoded; nil if there is none
	chunkUsed int         // bytes of chunk that are in out

	received []byte // the header received last
	left     int64  // bytes of the data that belongs to it and was not read
}

// A source reads from a connection.
type source struct {
	nc    net.Conn
	limit time.Duration // to the wait for something to read; 0 for none
}

func (s *source) Read(b []byte) (int, error) {
	end := time.Time{}
	if s.limit > 0 {
		end = time.Now().Add(s.limit)
	}
	if err := s.nc.SetReadDeadline(end); err != nil {
		return 0, err
	}
	return s.nc.Read(b)
}

func newLink(nc net.Conn, stall time.Duration, bytes *pool.Pool[byte]) *link {
	l := &link{nc: nc, probe: newProbe(nc), stall: stall, bytes: bytes, src: source{nc: nc, limit: stall}}
	l.in = bufio.NewReaderSize(&l.src, readBytes)
	return l
}

// close ends the connection and whatever uses it. It may be called at any time.
func (l *link) close() { l.nc.Close() }

// fail notes and returns why the link cannot be used anymore.
func (l *link) fail(err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%w for %v", errStalled, l.stall)
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		err = errors.New("the far end hung up")
	}
	if l.broken == nil {
		l.broken = err
	}
	return err
}

// header returns an encoder for the header of the frame that is sent next.
func (l *link) header() *encoder {
	if cap(l.sent.b) > keepBytes {
		l.sent.b = nil
	}
	l.sent.b = append(l.sent.b[:0], make([]byte, frameBytes)...)
	return &l.sent
}

// send sends a frame with the header that was made and the data of parts.
func (l *link) send(k kind, parts []transport.Part) error {
	data := bytesOf(parts)
	if data > 0 {
		l.sent.pad()
	}
	n := len(l.sent.b) - frameBytes
	if n > maxHeaderBytes {
		return tooLarge(int64(n))
	}
	frame{k, n, data}.put(l.sent.b)
	err := l.sendBytes(l.sent.b)
	for i := range parts {
		if err != nil {
			break
		}
		if p := &parts[i]; direct(p.Encoding) {
			err = l.sendBytes(view(p.Data))
		} else {
			err = l.sendEncoded(p.Encoding, p.Data, data)
		}
	}
	if err == nil {
		err = l.flush()
	}
	clear(l.out) // what could not be sent is the caller's again
	l.pending, l.out, l.outBytes = nil, l.out[:0], 0
	if cap(l.out) > keepBytes/32 {
		l.out = nil
	}
	if l.chunk != nil {
		l.bytes.Put(l.chunk)
		l.chunk, l.chunkUsed = nil, 0
	}
	return err
}

// add puts b, which is not empty, among what is sent next.
func (l *link) add(b []byte) {
	l.out = append(l.out, b)
	l.outBytes += len(b)
}

// sendBytes sends b, or adds it to what is sent next.
func (l *link) sendBytes(b []byte) error {
	for l.outBytes+len(b) > writeBytes+writeBytes/4 { // nor a last piece that is tiny
		if n := writeBytes - l.outBytes; n > 0 {
			l.add(b[:n])
			b = b[n:]
		}
		if err := l.flushFull(); err != nil {
			return err
		}
	}
	if len(b) > 0 {
		l.add(b)
	}
	return nil
}

// sendEncoded sends x, or adds it to what is sent next, encoded into a chunk
// that serves all parts of a call of so many bytes.
func (l *link) sendEncoded(e transport.Encoding, x []float32, bytes int64) error {
	if l.chunk == nil {
		l.chunk = l.bytes.Get(int(min(chunkBytes, bytes)))
	}
	for len(x) > 0 {
		room := min(len(*l.chunk)-l.chunkUsed, writeBytes-l.outBytes)
		n := min(len(x), room/e.Size())
		if n <= 0 {
			if err := l.flushFull(); err != nil {
				return err
			}
			continue
		}
		b := (*l.chunk)[l.chunkUsed : l.chunkUsed+n*e.Size()]
		e.Encode(b, x[:n])
		l.add(b)
		l.chunkUsed += len(b)
		x = x[n:]
	}
	return nil
}

// flushFull sends what was added when there is more to come, unless the far end
// has already answered or gone.
func (l *link) flushFull() error {
	if err := l.flush(); err != nil {
		return err
	}
	if !l.probe.isQuiet() {
		return l.fail(errInterrupted)
	}
	return nil
}

// flush sends what was added.
func (l *link) flush() error {
	err := l.nc.SetWriteDeadline(time.Now().Add(l.stall))
	if err == nil {
		if len(l.out) == 1 {
			_, err = l.nc.Write(l.out[0])
		} else {
			l.pending = l.out
			_, err = l.pending.WriteTo(l.nc)
		}
	}
	if err != nil {
		return l.fail(err)
	}
	clear(l.out)
	l.pending, l.out, l.outBytes, l.chunkUsed = nil, l.out[:0], 0, 0
	return nil
}

// await waits until a frame begins, no longer than limit if that is not 0.
func (l *link) await(limit time.Duration) error {
	stall := l.src.limit
	l.src.limit = limit
	_, err := l.in.Peek(1)
	l.src.limit = stall
	return err
}

// next receives a frame up to its header, which is good until the next call.
func (l *link) next() (frame, []byte, error) {
	b, err := l.in.Peek(frameBytes)
	if err != nil {
		return frame{}, nil, l.fail(err)
	}
	f, err := parseFrame(b)
	if err != nil {
		return frame{}, nil, l.fail(err)
	}
	l.in.Discard(frameBytes)
	l.left = f.data
	if err := l.readHeader(f.header); err != nil {
		return frame{}, nil, l.fail(err)
	}
	return f, l.received, nil
}

// readHeader reads n bytes into received, for which it takes memory as they
// arrive.
func (l *link) readHeader(n int) error {
	if cap(l.received) > keepBytes {
		l.received = nil
	}
	l.received = l.received[:0]
	for len(l.received) < n {
		lo := len(l.received)
		hi := min(n, max(cap(l.received), 2*lo, readBytes))
		l.received = slices.Grow(l.received, hi-lo)[:hi]
		if _, err := io.ReadFull(l.in, l.received[lo:]); err != nil {
			return err
		}
	}
	return nil
}

// readData reads elements of data, no more than were announced, into dst.
func (l *link) readData(e transport.Encoding, dst []float32) error {
	l.left -= int64(len(dst)) * int64(e.Size())
	if direct(e) {
		if _, err := io.ReadFull(l.in, view(dst)); err != nil {
			return l.fail(err)
		}
		return nil
	}
	for len(dst) > 0 {
		n := min(len(dst), chunkBytes/e.Size())
		buf := l.bytes.Get(n * e.Size())
		_, err := io.ReadFull(l.in, *buf)
		if err == nil {
			e.Decode(dst[:n], *buf)
		}
		l.bytes.Put(buf)
		if err != nil {
			return l.fail(err)
		}
		dst = dst[n:]
	}
	return nil
}

// drain reads what is left of the data and forgets it, so that the far end can
// finish sending it and read the answer.
func (l *link) drain() error {
	for l.left > 0 {
		n, err := l.in.Discard(int(min(l.left, 1<<30)))
		l.left -= int64(n)
		if err != nil {
			return l.fail(err)
		}
	}
	return nil
}
