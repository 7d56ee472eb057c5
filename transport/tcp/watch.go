package tcp

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// notice is how long a call may last before its connection is watched: most
// are over by then.
const notice = 5 * time.Millisecond

var (
	errGone  = errors.New("the far end hung up during the call")
	errTalks = errors.New("the far end sends before it is answered")
)

// workingFrame says that a call goes on.
var workingFrame = func() []byte {
	b := make([]byte, frameBytes)
	frame{kind: working}.put(b)
	return b
}()

// A watch looks after a connection while a call is within the service: it
// cancels the call when the far end hangs up, and tells the far end now and
// then that the call goes on. It serves one call after another.
type watch struct {
	nc    net.Conn
	timer *time.Timer   // starts watching
	ended chan struct{} // told when watching ends
	buf   [1]byte

	// Of the call being watched.
	cancel context.CancelCauseFunc
	every  time.Duration // between signs of life
	stall  time.Duration // a sign of life may take
	broken error         // why the connection cannot be used anymore; read after ended

	mu   sync.Mutex
	over bool // guarded by mu; the call is
}

func newWatch(nc net.Conn) *watch {
	w := &watch{nc: nc, ended: make(chan struct{})}
	w.timer = time.AfterFunc(time.Hour, w.run)
	w.timer.Stop()
	return w
}

// start begins to watch, if the call takes longer than most.
func (w *watch) start(cancel context.CancelCauseFunc, every, stall time.Duration) {
	w.cancel, w.every, w.stall, w.broken, w.over = cancel, every, stall, nil, false
	w.timer.Reset(min(notice, every))
}

// stop ends watching and waits for its end. It returns why the connection cannot
// be used anymore, or nil. No deadline is left on reading, other than one that
// has passed.
func (w *watch) stop() error {
	if w.timer.Stop() {
		return nil
	}
	w.mu.Lock()
	w.over = true
	w.nc.SetReadDeadline(time.Unix(1, 0)) // wakes run
	w.mu.Unlock()
	<-w.ended
	return w.broken
}

// run watches. It is joined by stop.
func (w *watch) run() {
	defer func() { w.ended <- struct{}{} }()
	for w.wait() {
		n, err := w.nc.Read(w.buf[:])
		switch {
		case n > 0:
			w.end(errTalks)
			return
		case !errors.Is(err, os.ErrDeadlineExceeded):
			w.end(errGone)
			return
		case !w.goesOn():
			return
		}
		w.nc.SetWriteDeadline(time.Now().Add(w.stall))
		if _, err := w.nc.Write(workingFrame); err != nil {
			w.end(errGone)
			return
		}
	}
}

// wait sets the deadline of the next look, unless the call is over.
func (w *watch) wait() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.nc.SetReadDeadline(time.Now().Add(w.every))
	}
	return !w.over
}

func (w *watch) goesOn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over
}

func (w *watch) end(err error) {
	w.broken = err
	w.cancel(err)
}
