package tcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pushpull/transport"
)

// A call is one call being served.
type call struct {
	session *session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	every   time.Duration    // between signs of life
	data    int64            // bytes of data that come with it
	in      *decoder         // the arguments
	out     *encoder         // for the results
	reply   []transport.Part // whose data is sent with the results
}

// answer makes the service do what was asked.
func (c *call) answer(k kind) error {
	service, list := c.session.listener.service, &c.session.list
	switch k {
	case join:
		hello := c.in.hello()
		return c.serve(func(ctx context.Context) error {
			w, err := service.Join(ctx, hello)
			c.out.welcome(w)
			return err
		})
	case initial:
		if err := c.receive(); err != nil {
			return err
		}
		return c.serve(func(ctx context.Context) error { return service.Init(ctx, list.parts) })
	case pull:
		return c.pull(service)
	case push:
		p := c.in.push()
		if err := c.receive(); err != nil {
			return err
		}
		return c.serve(func(ctx context.Context) error {
			v, err := service.Push(ctx, p, list.parts)
			c.out.byte(byte(v))
			return err
		})
	case finish:
		r := c.in.replica()
		return c.serve(func(ctx context.Context) error { return service.Finish(ctx, r) })
	case leave:
		r := c.in.replica()
		return c.serve(func(ctx context.Context) error { return service.Leave(ctx, r) })
	}
	return c.serve(func(ctx context.Context) error {
		d, err := service.Describe(ctx)
		c.out.description(d)
		return err
	})
}

func (c *call) pull(service transport.Service) error {
	s := c.session
	minStep := c.in.int()
	c.in.parts(&s.list)
	if err := c.in.end(); err != nil {
		return err
	}
	total, _, err := s.list.check(s.listener.network.opts.MaxCallBytes)
	if err != nil {
		return err
	}
	return c.serve(func(ctx context.Context) (err error) {
		if err := s.room(ctx, minStep, total); err != nil {
			return err
		}
		st, err := service.Pull(ctx, minStep, s.list.parts)
		c.out.status(st)
		c.reply = s.list.parts
		return err
	})
}

// receive reads the parts of the call and their data.
func (c *call) receive() error {
	s := c.session
	c.in.parts(&s.list)
	if err := c.in.end(); err != nil {
		return err
	}
	total, bytes, err := s.list.check(s.listener.network.opts.MaxCallBytes)
	if err != nil {
		return err
	}
	if bytes != c.data {
		return fmt.Errorf("%d bytes of data for parts of %d: %w", c.data, bytes, transport.ErrInvalid)
	}
	return s.receive(total)
}

// serve lets the service work, and watches the connection meanwhile.
func (c *call) serve(do func(context.Context) error) error {
	s := c.session
	if err := c.in.end(); err != nil {
		return err
	}
	if s.link.left > 0 {
		return fmt.Errorf("%d bytes of data with a call that has none: %w", s.link.left, transport.ErrInvalid)
	}
	if s.link.in.Buffered() > 0 {
		return s.link.fail(errTalks)
	}
	s.enter(serving)
	s.watch.start(c.cancel, c.every, s.link.stall)
	err := do(c.ctx)
	if broken := s.watch.stop(); broken != nil {
		s.link.fail(broken)
	}
	s.enter(moving)
	return err
}

// failure returns what the caller is to know of err.
func (c *call) failure(err error) (code byte, _ error) {
	if c.ctx.Err() == nil || !errors.Is(err, c.ctx.Err()) {
		return codeOf(err), err
	}
	if c.ctx.Err() == context.DeadlineExceeded {
		return deadline, err
	}
	err = fmt.Errorf("the listener at %s was closed during the call: %w", c.session.listener.addr, transport.ErrUnavailable)
	return codeOf(err), err
}
