//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"pushpull/transport"
)

// A listener serves the callers that connect to a socket.
type listener struct {
	addr    string
	socket  *net.UnixListener
	service transport.Service
	opts    Options

	cut    context.Context // done when calls still under way must end
	cutNow context.CancelFunc
	gone   *hangups
	served sync.WaitGroup // the goroutine that accepts, and one for each caller
	told   sync.WaitGroup // the goroutine of gone

	mu      sync.Mutex
	closing chan struct{}        // closed with the first Close, under mu
	callers map[*caller]struct{} // guarded by mu

	once sync.Once
	err  error // of the first Close; guarded by once
}

// Listen serves s at addr. For port 0, or no address at all, it chooses a port.
// Of a socket in the file system at which nobody listens anymore it takes the
// place.
func (n *network) Listen(addr string, s transport.Service) (transport.Listener, error) {
	p, err := parse(addr)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", addr, err)
	}
	socket, p, err := p.listen()
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", addr, err)
	}
	gone, err := newHangups()
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("listen at %s: %w", addr, err)
	}
	l := &listener{
		addr: p.String(), socket: socket, service: s, opts: n.opts, gone: gone,
		closing: make(chan struct{}), callers: make(map[*caller]struct{}),
	}
	l.cut, l.cutNow = context.WithCancel(context.Background())
	l.told.Go(gone.run)
	l.served.Go(l.accept)
	return l, nil
}

func (l *listener) Addr() string { return l.addr }

// accept serves whoever connects, until the socket is closed.
func (l *listener) accept() {
	const least, most = 5 * time.Millisecond, time.Second
	pause := least
	for {
		socket, err := l.socket.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no more files, mostly: others may close theirs
			select {
			case <-time.After(pause):
			case <-l.closing:
			}
			pause = min(2*pause, most)
			continue
		}
		pause = least
		l.served.Go(func() { l.serve(socket) })
	}
}

// serve answers the calls that come over a socket.
func (l *listener) serve(conn *net.UnixConn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(l.cut)
	defer cancel()
	key, err := l.gone.add(conn, cancel)
	if err != nil {
		return
	}
	defer l.gone.remove(key)
	c := &caller{socket: newSocket(conn), listener: l, ctx: ctx}
	if l.add(c) {
		c.serve()
		l.remove(c)
	}
	c.region.close()
}

// add notes a caller, unless the listener is closing.
func (l *listener) add(c *caller) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosing() {
		return false
	}
	l.callers[c] = struct{}{}
	return true
}

func (l *listener) remove(c *caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.callers, c)
}

func (l *listener) isClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// enter notes that c has a call under way, unless the listener is closing.
func (l *listener) enter(c *caller) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.calling = !l.isClosing()
	return c.calling
}

// leave notes that c has none, and tells whether it may make another.
func (l *listener) leave(c *caller) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.calling = false
	return !l.isClosing()
}

// Close frees the address at once, lets calls under way end for as long as the
// grace, then cuts them.
func (l *listener) Close() error {
	l.once.Do(func() { l.err = l.stop() })
	return l.err
}

func (l *listener) stop() error {
	l.socket.Close()
	l.hangUp(func(c *caller) bool { return !c.calling })
	defer l.cutNow()
	served := make(chan struct{})
	go func() {
		l.served.Wait()
		l.gone.close()
		l.told.Wait()
		close(served)
	}()
	if closes(served, l.opts.Grace) {
		return nil
	}
	l.cutNow()
	l.hangUp(func(*caller) bool { return true })
	if closes(served, l.opts.Grace) {
		return nil
	}
	return fmt.Errorf("close listener at %s: calls under way do not end though their context is canceled", l.addr)
}

// hangUp begins closing, if nothing has, and ends what those callers wait for.
func (l *listener) hangUp(whom func(*caller) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isClosing() {
		close(l.closing)
	}
	for c := range l.callers {
		if whom(c) {
			c.conn.SetDeadline(past)
		}
	}
}

// closes waits for c to be closed, no longer than limit.
func closes(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
