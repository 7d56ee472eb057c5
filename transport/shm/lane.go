//go:build linux

package shm

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"pushpull/transport"
)

// An exchange is one call: what is asked, which data goes out with it, which
// comes in with the answer. Functions and parts can be nil.
type exchange struct {
	name    string
	method  uint8
	ask     func([]byte) []byte
	out, in []transport.Part
	answer  func(*decoder)
}

// parts returns those whose data lies in the region during the call.
func (x *exchange) parts() []transport.Part {
	if x.out != nil {
		return x.out
	}
	return x.in
}

// room returns the bytes that the exchange takes in a region. It refuses parts
// that are malformed, and more of them than limit.
func (x *exchange) room(limit int64) (bytes int, err error) {
	parts := x.parts()
	if len(parts) > maxParts {
		return 0, tooMany(len(parts))
	}
	for i := range parts {
		n := len(parts[i].Data)
		if err := parts[i].Check(n); err != nil {
			return 0, err
		}
		if err := spend(&limit, &parts[i], n); err != nil {
			return 0, err
		}
		bytes += padded(n)
	}
	return bytes, nil
}

// spend takes the memory of a part of n elements from what is left of a limit.
func spend(left *int64, p *transport.Part, n int) error {
	had := *left
	*left -= 4 * int64(len(p.Rows))
	if *left < 0 || int64(n) > *left/4 {
		return fmt.Errorf("%q[%d:]: %d elements and %d row numbers, where the limit leaves %d bytes of one call: %w",
			p.Variable, p.Offset, n, len(p.Rows), had, transport.ErrTooLarge)
	}
	*left -= 4 * int64(n)
	return nil
}

// A lane is a socket, and a region that the far end maps too, for one call at a
// time. Its region is unmapped by whoever has taken the lane, or by the conn
// that keeps it.
type lane struct {
	socket
	region *region // nil before there was data
	used   bool    // a call has been made
}

// abort ends what waits for the lane.
func (l *lane) abort() { l.conn.SetDeadline(past) }

func (l *lane) close() {
	l.conn.Close()
	l.region.close()
}

// call makes one call, of which bytes lie in the region. It reports whether the
// lane can be used again.
func (l *lane) call(ctx context.Context, x exchange, bytes int) (again bool, err error) {
	l.used = true
	if bytes > l.region.size() {
		if err := l.grow(bytes); err != nil {
			return false, err
		}
	}
	l.fill(x.out)
	h := header{kind: x.method}
	if end, ok := ctx.Deadline(); ok {
		h.limit = max(time.Until(end), 1)
	}
	message := l.compose()
	if x.ask != nil {
		message = x.ask(message)
	}
	if err := l.send(message, h); err != nil {
		return false, err
	}
	return l.read(x)
}

// grow makes a larger region, and shares it with the far end: that is told its
// size, says that it waits for the file, and that it has it.
func (l *lane) grow(bytes int) error {
	l.region.close()
	r, file, err := newRegion(bytes)
	if err != nil {
		return err
	}
	defer unix.Close(file)
	l.region = r
	if err := l.send(appendInt(l.compose(), r.size()), header{kind: share}); err != nil {
		return err
	}
	if _, err := l.read(exchange{}); err != nil {
		return err
	}
	if err := l.sendFile(file); err != nil {
		return err
	}
	_, err = l.read(exchange{})
	return err
}

// read reads the reply.
func (l *lane) read(x exchange) (again bool, err error) {
	h, body, err := l.receive()
	if err != nil {
		return false, err
	}
	if h.kind != done {
		return true, errorOf(h.kind, body)
	}
	d := decoder{b: body}
	if x.answer != nil {
		x.answer(&d)
	}
	if err := d.end(); err != nil {
		return false, err
	}
	l.drain(x.in)
	return true, nil
}

// fill copies data into the region, rounded to what survives its encoding.
func (l *lane) fill(parts []transport.Part) {
	at := 0
	for i := range parts {
		p := &parts[i]
		to := l.region.floats(at, len(p.Data))
		copy(to, p.Data)
		p.Encoding.Round(to)
		at += padded(len(p.Data))
	}
}

// drain copies data out of the region, rounded to what survives its encoding.
func (l *lane) drain(parts []transport.Part) {
	at := 0
	for i := range parts {
		p := &parts[i]
		copy(p.Data, l.region.floats(at, len(p.Data)))
		p.Encoding.Round(p.Data)
		at += padded(len(p.Data))
	}
}
