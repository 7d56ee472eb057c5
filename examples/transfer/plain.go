package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"unsafe"

	"pushpull/transport"
)

// plain is the baseline: what one TCP connection makes of the same work. It is
// a transport for this program alone. Tensors cross as they lie in memory, one
// system call for as much as it takes, between two headers of a few bytes; what
// they are is said once, by Init. One call at a time is under way.
type plain struct{}

var _ transport.Transport = plain{}

// Operations of the wire.
const (
	opJoin = iota + 1
	opInit
	opPull
	opPush
	opFinish
	opLeave
	opDescribe
)

const (
	requestBytes = 40 // op, seq, step, examples, bytes of JSON that follow
	answerBytes  = 16 // verdict or failed, bytes of JSON or text that follow
	failed       = 255
	mostJSON     = 1 << 20
)

// A layout says what is in a tensor's bytes.
type layout struct {
	Variable string
	Encoding transport.Encoding
	Length   int
}

// view returns the memory of data as bytes.
func view(data []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), 4*len(data))
}

// Dial returns a connection that is made with the first call.
func (plain) Dial(addr string) (transport.Conn, error) { return &plainConn{addr: addr}, nil }

// A plainConn calls the service at an address.
type plainConn struct {
	addr string

	mu      sync.Mutex // held for a whole call
	socket  net.Conn   // guarded by mu; nil before the first call
	header  [requestBytes]byte
	buffers net.Buffers // guarded by mu; reused
	layouts []layout    // guarded by mu; what Init has said

	closing sync.Mutex
	closed  bool      // guarded by closing
	toClose io.Closer // guarded by closing; the socket
}

// Close ends a call under way.
func (c *plainConn) Close() error {
	c.closing.Lock()
	defer c.closing.Unlock()
	c.closed = true
	if c.toClose == nil {
		return nil
	}
	return c.toClose.Close()
}

// connect makes the connection. The caller holds mu.
func (c *plainConn) connect(ctx context.Context) error {
	if c.socket != nil {
		return nil
	}
	var d net.Dialer
	socket, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return fmt.Errorf("%w: %w", err, transport.ErrUnavailable)
	}
	c.closing.Lock()
	defer c.closing.Unlock()
	if c.closed {
		socket.Close()
		return fmt.Errorf("%s: the connection is closed: %w", c.addr, transport.ErrUnavailable)
	}
	c.socket, c.toClose = socket, socket
	return nil
}

// call sends a request with its JSON and data, and reads the answer: JSON into
// out, or data into dst.
func (c *plainConn) call(ctx context.Context, op byte, push transport.Push, in any, data []transport.Part, out any, dst []transport.Part) (verdict byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.connect(ctx); err != nil {
		return 0, err
	}
	var text []byte
	if in != nil {
		if text, err = json.Marshal(in); err != nil {
			return 0, err
		}
	}
	h := c.header[:]
	h[0] = op
	binary.LittleEndian.PutUint64(h[8:], push.Seq)
	binary.LittleEndian.PutUint64(h[16:], uint64(push.Step))
	binary.LittleEndian.PutUint64(h[24:], uint64(push.Examples))
	binary.LittleEndian.PutUint64(h[32:], uint64(len(text)))
	c.buffers = append(c.buffers[:0], h)
	if len(text) > 0 {
		c.buffers = append(c.buffers, text)
	}
	for i := range data {
		c.buffers = append(c.buffers, view(data[i].Data))
	}
	rest := c.buffers
	if _, err := rest.WriteTo(c.socket); err != nil {
		return 0, fmt.Errorf("%w: %w", err, transport.ErrUnavailable)
	}
	return c.answer(out, dst)
}

// answer reads one. The caller holds mu.
func (c *plainConn) answer(out any, dst []transport.Part) (verdict byte, err error) {
	h := c.header[:answerBytes]
	if _, err := io.ReadFull(c.socket, h); err != nil {
		return 0, fmt.Errorf("%w: %w", err, transport.ErrUnavailable)
	}
	verdict = h[0]
	if n := binary.LittleEndian.Uint64(h[8:]); n > 0 {
		if n > mostJSON {
			return 0, fmt.Errorf("an answer of %d bytes: %w", n, transport.ErrTooLarge)
		}
		text := make([]byte, n)
		if _, err := io.ReadFull(c.socket, text); err != nil {
			return 0, fmt.Errorf("%w: %w", err, transport.ErrUnavailable)
		}
		if verdict == failed {
			return 0, errors.New(string(text))
		}
		if err := json.Unmarshal(text, out); err != nil {
			return 0, err
		}
	}
	for i := range dst {
		if _, err := io.ReadFull(c.socket, view(dst[i].Data)); err != nil {
			return 0, fmt.Errorf("%w: %w", err, transport.ErrUnavailable)
		}
	}
	return verdict, nil
}

func (c *plainConn) Join(ctx context.Context, hello transport.Hello) (w transport.Welcome, err error) {
	_, err = c.call(ctx, opJoin, transport.Push{}, hello, nil, &w, nil)
	return w, err
}

func (c *plainConn) Init(ctx context.Context, parts []transport.Part) error {
	layouts := make([]layout, len(parts))
	for i, p := range parts {
		layouts[i] = layout{p.Variable, p.Encoding, len(p.Data)}
	}
	_, err := c.call(ctx, opInit, transport.Push{}, layouts, parts, nil, nil)
	if err == nil {
		c.mu.Lock()
		c.layouts = layouts
		c.mu.Unlock()
	}
	return err
}

// agreed returns an error unless parts are those that Init spoke of.
func (c *plainConn) agreed(parts []transport.Part) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(parts) != len(c.layouts) {
		return fmt.Errorf("%d parts, want %d: %w", len(parts), len(c.layouts), transport.ErrInvalid)
	}
	for i := range parts {
		if l := &c.layouts[i]; parts[i].Variable != l.Variable || len(parts[i].Data) != l.Length {
			return fmt.Errorf("part %d is %s of %d elements, want %s of %d: %w", i, parts[i].Variable, len(parts[i].Data), l.Variable, l.Length, transport.ErrInvalid)
		}
	}
	return nil
}

func (c *plainConn) Push(ctx context.Context, push transport.Push, grads []transport.Part) (transport.Verdict, error) {
	if err := c.agreed(grads); err != nil {
		return 0, err
	}
	v, err := c.call(ctx, opPush, push, nil, grads, nil, nil)
	return transport.Verdict(v), err
}

func (c *plainConn) Pull(ctx context.Context, minStep int64, dst []transport.Part) (transport.Status, error) {
	if err := c.agreed(dst); err != nil {
		return transport.Status{}, err
	}
	_, err := c.call(ctx, opPull, transport.Push{Step: minStep}, nil, nil, nil, dst)
	return transport.Status{Step: minStep}, err
}

func (c *plainConn) Finish(ctx context.Context, r transport.Replica) error {
	_, err := c.call(ctx, opFinish, transport.Push{}, r, nil, nil, nil)
	return err
}

func (c *plainConn) Leave(ctx context.Context, r transport.Replica) error {
	_, err := c.call(ctx, opLeave, transport.Push{}, r, nil, nil, nil)
	return err
}

func (c *plainConn) Describe(ctx context.Context) (d transport.Description, err error) {
	_, err = c.call(ctx, opDescribe, transport.Push{}, nil, nil, &d, nil)
	return d, err
}
