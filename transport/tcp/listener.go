package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"pushpull/transport"
)

// A listener accepts connections and runs a session on each.
type listener struct {
	network *network
	service transport.Service
	socket  net.Listener
	addr    string          // that others can dial
	cut     context.Context // done when calls still under way must end
	cutNow  context.CancelFunc

	running sync.WaitGroup // the goroutine that accepts, and the sessions
	idle    chan struct{}  // closed when all of running have ended, after Close
	once    sync.Once
	err     error // of the first Close; guarded by once

	mu       sync.Mutex
	closed   bool                  // guarded by mu
	sessions map[*session]struct{} // guarded by mu
}

func (l *listener) Addr() string { return l.addr }

// accept starts a session for each connection, until the socket is closed.
func (l *listener) accept() {
	for pause := time.Duration(0); ; {
		nc, err := l.socket.Accept()
		switch {
		case err == nil:
			pause = 0
			l.start(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // such as too many open files
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			l.network.opts.Logger.Warn("cannot accept a connection", "addr", l.addr, "err", err, "pause", pause)
			closes(l.cut.Done(), pause)
		}
	}
}

// start runs a session on nc, unless the listener is closed.
func (l *listener) start(nc net.Conn) {
	s := newSession(l, nc)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		nc.Close()
		return
	}
	l.sessions[s] = struct{}{}
	l.running.Go(func() {
		s.run()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.sessions, s)
	})
}

// Close frees the address at once, lets calls under way end for as long as the
// grace, then cuts them.
func (l *listener) Close() error {
	l.once.Do(func() { l.err = l.stop() })
	return l.err
}

func (l *listener) stop() error {
	grace := l.network.opts.Grace
	err := l.socket.Close()
	l.each((*session).drain)
	go func() {
		l.running.Wait()
		close(l.idle)
	}()
	defer l.cutNow()
	if !closes(l.idle, grace) {
		l.cutNow()
		l.each((*session).cut)
		if !closes(l.idle, grace) {
			l.each((*session).kill)
			if !closes(l.idle, grace) {
				return fmt.Errorf("close listener at %s: calls under way do not end though their context is canceled", l.addr)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("close listener at %s: %w", l.addr, err)
	}
	return nil
}

// each does something to all sessions, the last there will be.
func (l *listener) each(do func(*session)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for s := range l.sessions {
		do(s)
	}
}
