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
	"time"

	"pushpull/transport"
)

// Listen serves s at a TCP address.
func (plain) Listen(addr string, s transport.Service) (transport.Listener, error) {
	socket, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &plainListener{socket: socket, service: s, conns: map[net.Conn]bool{}}
	l.wg.Go(l.accept)
	return l, nil
}

// A plainListener serves connections until it is closed.
type plainListener struct {
	socket  net.Listener
	service transport.Service
	wg      sync.WaitGroup // all goroutines

	mu     sync.Mutex
	conns  map[net.Conn]bool // guarded by mu
	closed bool              // guarded by mu
}

func (l *plainListener) Addr() string { return l.socket.Addr().String() }

// Close lets calls under way end, for a few seconds.
func (l *plainListener) Close() error {
	l.mu.Lock()
	l.closed = true
	for c := range l.conns {
		c.SetReadDeadline(time.Now())
		c.SetWriteDeadline(time.Now().Add(3 * time.Second))
	}
	l.mu.Unlock()
	err := l.socket.Close()
	l.wg.Wait()
	return err
}

func (l *plainListener) accept() {
	for {
		c, err := l.socket.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		if l.closed {
			c.Close()
		} else {
			l.conns[c] = true
			l.wg.Go(func() { l.serve(c) })
		}
		l.mu.Unlock()
	}
}

func (l *plainListener) serve(c net.Conn) {
	e := &plainEnd{socket: c, service: l.service}
	for e.one() == nil {
	}
	c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// A plainEnd is the far end of one connection, with memory of its own for the
// tensors that Init has spoken of.
type plainEnd struct {
	socket  net.Conn
	service transport.Service
	parts   []transport.Part
	header  [requestBytes]byte
	buffers net.Buffers // reused
}

// one serves one call. It returns an error if the connection is of no more use.
func (e *plainEnd) one() error {
	h := e.header[:]
	if _, err := io.ReadFull(e.socket, h); err != nil {
		return err
	}
	push := transport.Push{
		Seq: binary.LittleEndian.Uint64(h[8:]), Step: int64(binary.LittleEndian.Uint64(h[16:])), Examples: int64(binary.LittleEndian.Uint64(h[24:])),
	}
	n := binary.LittleEndian.Uint64(h[32:])
	if n > mostJSON {
		return fmt.Errorf("a request of %d bytes: %w", n, transport.ErrTooLarge)
	}
	var text []byte
	if n > 0 {
		text = make([]byte, n)
		if _, err := io.ReadFull(e.socket, text); err != nil {
			return err
		}
	}
	op := h[0]
	if op == opInit {
		if err := e.layOut(text); err != nil {
			return err
		}
	}
	if op == opInit || op == opPush {
		for i := range e.parts {
			if _, err := io.ReadFull(e.socket, view(e.parts[i].Data)); err != nil {
				return err
			}
		}
	}
	verdict, out, err := e.do(op, push, text)
	return e.answer(op, verdict, out, err)
}

// layOut takes memory for the tensors that a layout describes.
func (e *plainEnd) layOut(text []byte) error {
	var layouts []layout
	if err := json.Unmarshal(text, &layouts); err != nil {
		return err
	}
	e.parts = nil
	for _, l := range layouts {
		if l.Length < 0 {
			return fmt.Errorf("%s has %d elements: %w", l.Variable, l.Length, transport.ErrInvalid)
		}
		e.parts = append(e.parts, transport.Part{Variable: l.Variable, Encoding: l.Encoding, Data: make([]float32, l.Length)})
	}
	return nil
}

// do makes the call of the service.
func (e *plainEnd) do(op byte, push transport.Push, text []byte) (verdict byte, out any, err error) {
	ctx := context.Background()
	switch op {
	case opPush:
		v, err := e.service.Push(ctx, push, e.parts)
		return byte(v), nil, err
	case opPull:
		_, err := e.service.Pull(ctx, push.Step, e.parts)
		return 0, nil, err
	case opInit:
		return 0, nil, e.service.Init(ctx, e.parts)
	case opDescribe:
		d, err := e.service.Describe(ctx)
		return 0, d, err
	case opJoin:
		var hello transport.Hello
		if err := json.Unmarshal(text, &hello); err != nil {
			return 0, nil, err
		}
		w, err := e.service.Join(ctx, hello)
		return 0, w, err
	case opFinish, opLeave:
		var r transport.Replica
		if err := json.Unmarshal(text, &r); err != nil {
			return 0, nil, err
		}
		if op == opLeave {
			return 0, nil, e.service.Leave(ctx, r)
		}
		return 0, nil, e.service.Finish(ctx, r)
	}
	return 0, nil, fmt.Errorf("operation %d: %w", op, transport.ErrInvalid)
}

// answer sends what came of a call.
func (e *plainEnd) answer(op, verdict byte, out any, err error) error {
	var text []byte
	if err == nil && out != nil {
		text, err = json.Marshal(out)
	}
	if err != nil {
		verdict, text = failed, []byte(err.Error())
		text = text[:min(len(text), mostJSON)]
	}
	h := e.header[:answerBytes]
	h[0] = verdict
	binary.LittleEndian.PutUint64(h[8:], uint64(len(text)))
	e.buffers = append(e.buffers[:0], h)
	if len(text) > 0 {
		e.buffers = append(e.buffers, text)
	}
	if op == opPull && err == nil {
		for i := range e.parts {
			e.buffers = append(e.buffers, view(e.parts[i].Data))
		}
	}
	rest := e.buffers
	_, writeErr := rest.WriteTo(e.socket)
	if errors.Is(err, transport.ErrInvalid) && op != opPush && op != opPull {
		return err // it may not have been a call at all
	}
	return writeErr
}
