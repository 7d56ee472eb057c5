//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"pushpull/transport"
)

// A caller is the far end of one lane, and what the server keeps for it. One
// goroutine serves it, which also owns the region.
type caller struct {
	socket
	listener *listener
	ctx      context.Context // done when the caller has gone, or is cut
	region   *region         // nil before there was data
	inbox    inbox
	calling  bool // guarded by the listener's mu; a call is under way
}

// serve answers one call after another until the caller has gone, breaks the
// rules or is hung up on.
func (c *caller) serve() {
	for {
		h, body, err := c.receive()
		if err != nil {
			c.refuse(err)
			return
		}
		if !c.listener.enter(c) {
			return
		}
		if h.kind == share {
			if err := c.share(body); err != nil {
				c.refuse(err)
				return
			}
		} else if !c.call(h, body) {
			return
		}
		if !c.listener.leave(c) {
			return
		}
	}
}

// refuse tells why nothing more will be answered, if the caller broke the rules.
func (c *caller) refuse(err error) {
	if outcomeOf(err) != failed {
		c.conn.SetWriteDeadline(time.Now().Add(time.Second))
		_ = c.reply(c.compose(), err) // nobody else to tell
	}
}

// share takes a new region in the place of the old one.
func (c *caller) share(body []byte) error {
	d := decoder{b: body}
	size := d.int64()
	if err := d.end(); err != nil {
		return err
	}
	// Beyond the limit of a call it takes padding, and rounding of its size.
	const spare, most = line * maxParts, 1 << 60
	limit := min(c.listener.opts.MaxCallBytes, most)
	limit += limit/4 + spare
	if size < 1 || size > limit || size > math.MaxInt {
		return fmt.Errorf("a region of %d bytes, want 1 to %d: %w", size, limit, transport.ErrTooLarge)
	}
	if err := c.reply(c.compose(), nil); err != nil {
		return err
	}
	file, err := c.receiveFile()
	if err != nil {
		return err
	}
	defer unix.Close(file)
	r, err := acceptRegion(file, int(size))
	if err != nil {
		return err
	}
	c.region.close()
	c.region = r
	return c.reply(c.compose(), nil)
}

// call makes one call of the service and replies. It reports whether the caller
// may make another.
func (c *caller) call(h header, body []byte) bool {
	ctx := c.ctx
	if h.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.limit)
		defer cancel()
	}
	message, err := c.serviceCall(ctx, h.kind, body)
	if c.ctx.Err() != nil {
		return false
	}
	if err != nil && ctx.Err() != nil {
		err = &remoteError{context.DeadlineExceeded, err.Error()}
	}
	return c.reply(message, err) == nil
}

// reply sends a message that compose began, or an error in its place.
func (c *caller) reply(message []byte, err error) error {
	if err == nil {
		if err = c.send(message, header{kind: done}); !errors.Is(err, transport.ErrTooLarge) {
			return err
		}
	}
	return c.send(append(c.compose(), err.Error()...), header{kind: outcomeOf(err)})
}

// serviceCall decodes a request, makes the call and encodes what it returns.
func (c *caller) serviceCall(ctx context.Context, method uint8, body []byte) (message []byte, err error) {
	d, out, s := &decoder{b: body}, c.compose(), c.listener.service
	switch method {
	case join:
		hello := d.hello()
		if err := d.end(); err != nil {
			return nil, err
		}
		w, err := s.Join(ctx, hello)
		return appendWelcome(out, w), err
	case initial:
		parts, err := c.parts(d)
		if err != nil {
			return nil, err
		}
		defer forget(parts)
		return out, s.Init(ctx, parts)
	case pull:
		minStep := d.int64()
		dst, err := c.parts(d)
		if err != nil {
			return nil, err
		}
		defer forget(dst)
		st, err := s.Pull(ctx, minStep, dst)
		return appendStatus(out, st), err
	case push:
		p := d.push()
		grads, err := c.parts(d)
		if err != nil {
			return nil, err
		}
		defer forget(grads)
		v, err := s.Push(ctx, p, grads)
		return append(out, byte(v)), err
	case finish, leave:
		r := d.replica()
		if err := d.end(); err != nil {
			return nil, err
		}
		if method == finish {
			return out, s.Finish(ctx, r)
		}
		return out, s.Leave(ctx, r)
	case describe:
		if err := d.end(); err != nil {
			return nil, err
		}
		about, err := s.Describe(ctx)
		return appendDescription(out, about), err
	}
	return nil, fmt.Errorf("method %d is not known: %w", method, transport.ErrInvalid)
}

// parts reads the parts that end a request. Their data lies in the region,
// where the caller can change it at any time; nothing else of them does.
func (c *caller) parts(d *decoder) ([]transport.Part, error) {
	c.inbox.read(d)
	if err := d.end(); err != nil {
		return nil, err
	}
	parts, left, at := c.inbox.parts, c.listener.opts.MaxCallBytes, 0
	for i, n := range c.inbox.lengths {
		p := &parts[i]
		if err := p.Check(n); err != nil {
			return nil, err
		}
		if err := spend(&left, p, n); err != nil {
			return nil, err
		}
		if room := c.region.size() - at; padded(n) > room {
			return nil, fmt.Errorf("%q[%d:]: %d elements, where %d bytes are left of a region of %d: %w",
				p.Variable, p.Offset, n, room, c.region.size(), transport.ErrInvalid)
		}
		at += padded(n)
	}
	at = 0
	for i, n := range c.inbox.lengths {
		parts[i].Data = c.region.floats(at, n)
		at += padded(n)
	}
	return parts, nil
}

// forget drops what points into the region, which can be unmapped at any time
// after the call.
func forget(parts []transport.Part) {
	for i := range parts {
		parts[i].Data = nil
	}
}
