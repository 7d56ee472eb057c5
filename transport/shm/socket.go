//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"pushpull/transport"
)

// Sizes of what crosses the socket: a header of fixed size, then a body.
const (
	headerBytes = 24
	magic       = 0x314d4853 // "SHM1"
	maxBody     = 64 << 20   // names, row numbers, cursor: all but the data of a call
	readAhead   = 16 << 10   // bytes that are read at once, or taken for a body that has not arrived
)

// A header begins each request and each reply.
//
//	 0  magic
//	 4  kind, as one byte, and three of zero
//	 8  bytes of the body
//	16  nanoseconds that the call may take; 0 if it may take any time
//
// Numbers are little-endian.
type header struct {
	kind  uint8 // of a request its method, of a reply its outcome
	body  int
	limit time.Duration
}

// put writes h to b.
func (h header) put(b []byte) {
	binary.LittleEndian.PutUint32(b, magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(h.kind))
	binary.LittleEndian.PutUint64(b[8:], uint64(h.body))
	binary.LittleEndian.PutUint64(b[16:], uint64(h.limit))
}

// parseHeader reads a header from b.
func parseHeader(b []byte) (header, error) {
	if m := binary.LittleEndian.Uint32(b); m != magic {
		return header{}, fmt.Errorf("a message begins with %#08x, want %#08x: the far end is none of ours: %w", m, magic, transport.ErrInvalid)
	}
	kind := binary.LittleEndian.Uint32(b[4:])
	body, limit := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	switch {
	case kind > math.MaxUint8 || limit > math.MaxInt64:
		return header{}, fmt.Errorf("a message of kind %#x with %#x ns to take: out of range: %w", kind, limit, transport.ErrInvalid)
	case body > maxBody:
		return header{}, fmt.Errorf("a message of %d bytes, want at most %d: %w", body, maxBody, transport.ErrTooLarge)
	}
	return header{uint8(kind), int(body), time.Duration(limit)}, nil
}

// A socket is one end of a connection. Requests and replies take turns, so
// never more than one message is under way. It is for one goroutine at a time,
// but for the deadlines of conn.
type socket struct {
	conn *net.UnixConn
	in   []byte // the last message that arrived
	out  []byte // the next message, with room for its header
}

func newSocket(c *net.UnixConn) socket {
	return socket{conn: c, in: make([]byte, readAhead), out: make([]byte, headerBytes, 1024)}
}

// past ends whatever waits for a socket.
var past = time.Unix(1, 0)

// compose begins the next message: the body is to be appended to what it
// returns, and handed to send.
func (s *socket) compose() []byte { return s.out[:headerBytes] }

// send sends a message that compose began.
func (s *socket) send(message []byte, h header) error {
	s.out = message
	if h.body = len(message) - headerBytes; h.body > maxBody {
		return fmt.Errorf("names, row numbers and cursor of one call take %d bytes, want at most %d: %w", h.body, maxBody, transport.ErrTooLarge)
	}
	h.put(message)
	_, err := s.conn.Write(message)
	return err
}

// receive returns the next message, or io.EOF if there is none. The body is
// good until the next call. Memory for a long one is taken as it arrives.
func (s *socket) receive() (h header, body []byte, err error) {
	got, want := 0, headerBytes
	for got < want {
		if got == len(s.in) {
			s.in = append(s.in, make([]byte, min(len(s.in), want-got))...)
		}
		n, err := s.conn.Read(s.in[got:])
		switch {
		case errors.Is(err, io.EOF) && got > 0:
			return h, nil, fmt.Errorf("a message ends after %d of %d bytes: %w", got, want, io.ErrUnexpectedEOF)
		case err != nil:
			return h, nil, err
		}
		before := got
		got += n
		if before < headerBytes && got >= headerBytes {
			if h, err = parseHeader(s.in); err != nil {
				return h, nil, err
			}
			want += h.body
		}
	}
	if got > want {
		return h, nil, fmt.Errorf("%d bytes after a message that is not answered yet: %w", got-want, transport.ErrInvalid)
	}
	return h, s.in[headerBytes:want], nil
}

// sendFile sends a file, with one byte that bears it.
func (s *socket) sendFile(file int) error {
	_, _, err := s.conn.WriteMsgUnix([]byte{0}, unix.UnixRights(file), nil)
	return err
}

// receiveFile receives what sendFile sends, for the caller to close. The far
// end sends it when told to, and nothing with it: read with what comes before,
// the file would be lost.
func (s *socket) receiveFile() (file int, err error) {
	var b, room [64]byte
	n, k, _, _, err := s.conn.ReadMsgUnix(b[:], room[:])
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return -1, err
	}
	files := filesIn(room[:k])
	if n != 1 || len(files) != 1 {
		for _, f := range files {
			unix.Close(f)
		}
		return -1, fmt.Errorf("%d files with %d bytes, want one with one: %w", len(files), n, transport.ErrInvalid)
	}
	return files[0], nil
}

// filesIn returns the files that a control message brings.
func filesIn(b []byte) (files []int) {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return nil
	}
	for i := range messages {
		if f, err := unix.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, f...)
		}
	}
	return files
}
