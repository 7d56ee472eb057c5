package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Over plain TCP a message is eight bytes of length and its bytes. Answers come
// in the order of the requests.
const lengthBytes = 8

// most is the longest message that is taken.
const most = 1 << 40

// serveTCP serves at a socket until ctx ends.
func serveTCP(ctx context.Context, socket net.Listener, r *responder) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	for {
		c, err := socket.Accept()
		if ctx.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			answerAll(c, r) // ends when the client has gone, or sends what is no message
		})
	}
}

// answerAll answers messages until the connection ends.
func answerAll(c net.Conn, r *responder) error {
	header := make([]byte, lengthBytes)
	var body []byte
	for {
		if _, err := io.ReadFull(c, header); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint64(header)
		if n > most {
			return fmt.Errorf("a message of %d bytes, want at most %d", n, most)
		}
		if uint64(cap(body)) < n {
			body = make([]byte, n)
		}
		body = body[:n]
		if _, err := io.ReadFull(c, body); err != nil {
			return err
		}
		response, err := r.respond([][]byte{body})
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(header, uint64(len(response)))
		buffers := net.Buffers{header, response}
		if _, err := buffers.WriteTo(c); err != nil {
			return err
		}
	}
}

// A tcpChannel is one connection. Several calls may be under way: each writes
// its request when the one before it has, and reads its answer when that has.
type tcpChannel struct {
	conn net.Conn

	mu   sync.Mutex    // held while a request is written
	turn chan struct{} // guarded by mu; closed when the last call so far has read its answer

	answer []byte // whoever's turn it is may use it
}

// dialTCP connects, and tries again for as long as limit if nobody listens yet.
func dialTCP(ctx context.Context, addr string, limit time.Duration) (channel, error) {
	d := net.Dialer{Timeout: limit}
	for start := time.Now(); ; {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			first := make(chan struct{})
			close(first)
			return &tcpChannel{conn: c, turn: first}, nil
		}
		if time.Since(start) > limit {
			return nil, fmt.Errorf("nobody has listened for %v: %w", limit, err)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *tcpChannel) call(ctx context.Context, request []byte, check func(pieces [][]byte) error) error {
	turn, done, err := c.send(request)
	defer close(done)
	if err != nil {
		return err
	}
	<-turn
	if err := ctx.Err(); err != nil {
		return err
	}
	var header [lengthBytes]byte
	if _, err := io.ReadFull(c.conn, header[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(header[:])
	if n > most {
		return fmt.Errorf("an answer of %d bytes, want at most %d", n, most)
	}
	if uint64(cap(c.answer)) < n {
		c.answer = make([]byte, n)
	}
	c.answer = c.answer[:n]
	if _, err := io.ReadFull(c.conn, c.answer); err != nil {
		return err
	}
	return check([][]byte{c.answer})
}

// send writes a request. It returns what is closed when the answer to it is the
// next to read, and what to close when that is read.
func (c *tcpChannel) send(request []byte) (turn <-chan struct{}, done chan struct{}, err error) {
	var header [lengthBytes]byte
	binary.LittleEndian.PutUint64(header[:], uint64(len(request)))
	done = make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	turn, c.turn = c.turn, done
	buffers := net.Buffers{header[:], request}
	_, err = buffers.WriteTo(c.conn)
	return turn, done, err
}

func (c *tcpChannel) close() error { return c.conn.Close() }
