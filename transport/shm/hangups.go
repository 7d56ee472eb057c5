//go:build linux

package shm

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Hangups cancels the contexts of callers that have gone, while others serve
// them and do not read. The kernel looks after the sockets: a call costs
// nothing, one goroutine does for all callers.
type hangups struct {
	file *os.File // an epoll instance of the callers' sockets
	raw  syscall.RawConn

	mu      sync.Mutex
	last    int32                        // guarded by mu; the last key given
	cancels map[int32]context.CancelFunc // guarded by mu; by the key of the socket
}

func newHangups() (*hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll instance: %w", err)
	}
	unix.SetNonblock(fd, true) // or os would not wait for it as it does for sockets
	h := &hangups{file: os.NewFile(uintptr(fd), "epoll"), cancels: make(map[int32]context.CancelFunc)}
	if err = h.file.SetReadDeadline(time.Time{}); err == nil { // else os cannot wait for it
		h.raw, err = h.file.SyscallConn()
	}
	if err != nil {
		h.file.Close()
		return nil, fmt.Errorf("wait for an epoll instance: %w", err)
	}
	return h, nil
}

// close ends run.
func (h *hangups) close() { h.file.Close() }

// add has cancel called when the far end of c is closed. The key is for remove.
func (h *hangups) add(c *net.UnixConn, cancel context.CancelFunc) (key int32, err error) {
	h.mu.Lock()
	h.last++
	key = h.last
	h.cancels[key] = cancel
	h.mu.Unlock()
	if err := h.register(c, key); err != nil {
		h.remove(key)
		return 0, fmt.Errorf("watch a socket: %w", err)
	}
	return key, nil
}

func (h *hangups) register(c *net.UnixConn, key int32) error {
	socket, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var ctlErr error
	err = h.raw.Control(func(epoll uintptr) {
		err := socket.Control(func(fd uintptr) {
			event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: key}
			ctlErr = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, int(fd), &event)
		})
		if err != nil {
			ctlErr = err
		}
	})
	if err != nil {
		return err
	}
	return ctlErr
}

// remove forgets a socket, which closing it takes from the epoll instance.
func (h *hangups) remove(key int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.cancels, key)
}

// run cancels contexts until it is closed.
func (h *hangups) run() {
	events := make([]unix.EpollEvent, 16)
	for {
		n := 0
		err := h.raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			return
		}
		h.mu.Lock()
		for _, e := range events[:n] {
			if cancel := h.cancels[e.Fd]; cancel != nil {
				cancel()
			}
		}
		h.mu.Unlock()
	}
}
