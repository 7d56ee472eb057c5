package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"pushpull/transport"
)

// A phase is what a session is at.
type phase uint8

const (
	resting phase = iota // between calls
	moving               // receives a request or sends an answer
	serving              // within the service
)

// A session is one connection to a listener. It serves one call after another.
type session struct {
	listener *listener
	link     *link
	watch    *watch
	list     list       // of the call being served
	floats   *[]float32 // for the data of its parts; kept for the next call, nil if there is none

	mu       sync.Mutex
	phase    phase // guarded by mu
	draining bool  // guarded by mu; the call under way is the last
}

func newSession(l *listener, nc net.Conn) *session {
	s := &session{listener: l, link: l.network.newLink(nc)}
	s.watch = newWatch(nc)
	return s
}

// enter says what the session goes on with. It reports false if the session is
// to end instead.
func (s *session) enter(p phase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = p
	return p != resting || !s.draining
}

// drain ends the session after the call under way, or at once if there is none.
func (s *session) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	if s.phase == resting {
		s.link.close()
	}
}

// cut ends the session now, unless it is within the service, whose context is
// canceled, so that it can still say why.
func (s *session) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != serving {
		s.link.close()
	}
}

// kill ends the session now.
func (s *session) kill() { s.link.close() }

// run serves calls until either end hangs up.
func (s *session) run() {
	defer s.rest()
	defer s.link.close()
	if err := s.greet(); err != nil {
		if err != errSilent { // which was a look at whether anybody listens, or our own Close
			s.warn(err)
		}
		return
	}
	for s.enter(resting) {
		f, header, err := s.next()
		if err != nil {
			if codeOf(err) != other {
				s.refuse(err)
			}
			return
		}
		if !s.serve(f, header) {
			return
		}
	}
}

// keepTime is how long a session without a call keeps memory for the data of
// the next.
const keepTime = time.Minute

// next receives the frame that begins a call.
func (s *session) next() (frame, []byte, error) {
	err := s.link.await(keepTime)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.rest()
		err = s.link.await(0)
	}
	s.enter(moving)
	if err != nil {
		return frame{}, nil, s.link.fail(err)
	}
	return s.link.next()
}

// rest lets go of memory that is kept for the next call.
func (s *session) rest() {
	if s.floats != nil {
		s.listener.network.floats.Put(s.floats)
		s.floats = nil
	}
}

// warn tells the logger of a peer that is turned away.
func (s *session) warn(err error) {
	s.listener.network.opts.Logger.Warn("turned a peer away", "addr", s.listener.addr, "peer", s.link.nc.RemoteAddr().String(), "err", err)
}

// greet hears the greeting and answers it. Whoever says something else is told
// what was expected.
func (s *session) greet() error {
	limit := s.listener.network.opts.ConnectTimeout
	s.link.nc.SetDeadline(time.Now().Add(limit))
	err := s.link.hear(limit)
	if err == errSilent {
		return err
	}
	reply := greeting
	if err != nil {
		reply += err.Error() + "\n"
	}
	if _, writeErr := io.WriteString(s.link.nc, reply); err == nil && writeErr != nil {
		return writeErr
	}
	if err != nil {
		s.linger()
	}
	return err
}

// refuse ends a connection on which something came that is no frame.
func (s *session) refuse(err error) {
	e := s.link.header()
	e.b = appendFailure(e.b, codeOf(err), err)
	if s.link.send(failure, nil) == nil {
		s.linger()
	}
	s.warn(err)
}

// linger lets the far end read what it was told last: a connection closed with
// bytes unread takes it back.
func (s *session) linger() {
	if c, ok := s.link.nc.(interface{ CloseWrite() error }); ok && c.CloseWrite() == nil {
		s.link.nc.SetReadDeadline(time.Now().Add(time.Second))
		io.CopyN(io.Discard, s.link.nc, 1<<20)
	}
}

// serve answers one call. It reports whether the connection is good for more.
func (s *session) serve(f frame, header []byte) bool {
	d := decoder{b: header}
	left, silence := d.uint(), d.uint()
	if d.err != nil || f.kind > describe {
		s.refuse(fmt.Errorf("%v is no call: %w", f.kind, transport.ErrInvalid))
		return false
	}
	ctx, cancel := context.WithCancelCause(s.listener.cut)
	defer cancel(nil)
	if left > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, time.Duration(min(left, math.MaxInt64)))
		defer end()
	}
	c := call{session: s, ctx: ctx, cancel: cancel, every: s.interval(silence), data: f.data, in: &d, out: s.link.header()}
	err := c.answer(f.kind)
	defer s.list.clear()
	switch {
	case s.link.broken != nil:
		return false
	case err == nil:
		err = s.link.send(answer, c.reply)
	}
	if err != nil && s.link.broken == nil {
		code, err := c.failure(err)
		e := s.link.header()
		e.b = appendFailure(e.b, code, err)
		s.link.send(failure, nil)
	}
	return s.link.broken == nil && s.link.drain() == nil
}

// interval returns how often a caller is told that its call goes on, if it puts
// up with so many milliseconds of silence.
func (s *session) interval(silence uint64) time.Duration {
	limit := time.Duration(min(silence, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	return max(min(limit, s.listener.network.opts.StallTimeout)/3, time.Millisecond)
}
