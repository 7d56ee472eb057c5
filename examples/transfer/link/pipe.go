//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	frameBytes  = 68 << 10              // the longest frame: 64 KB of segments not cut yet, and headers
	headerBytes = 10                    // before each frame, what is left to do with it (virtio_net_hdr)
	queueTime   = 10 * time.Millisecond // worth of frames that wait for the link besides those on it
	wakeEvery   = 200 * time.Millisecond
)

// A frame is on its way.
type frame struct {
	due  time.Time // when it arrives
	data []byte
}

// A pipe is one direction of a link. The rate is kept by giving every frame the
// time that its bytes take, after the frame before it; the delay is added.
type pipe struct {
	in, out int // file descriptors, not blocking
	rate    float64
	delay   time.Duration
	most    int // bytes in the queue at which no more is read

	queue  []frame
	queued int
	free   time.Time // when the link has sent all that is queued
	unused [][]byte  // memory of frames that have arrived
}

// newPipe returns a pipe of a rate in bytes a second.
func newPipe(in, out int, rate float64, delay time.Duration) *pipe {
	most := int(rate * (delay + queueTime).Seconds())
	return &pipe{in: in, out: out, rate: rate, delay: delay, most: max(most, 4*frameBytes)}
}

// run moves frames until ctx ends, on a thread of its own: it sleeps for
// microseconds, which timers of the runtime do not.
func (p *pipe) run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err != nil {
		return err
	}
	for ctx.Err() == nil {
		sent, err := p.deliver()
		if err != nil {
			return err
		}
		received, err := p.accept()
		if err != nil {
			return err
		}
		if !sent && !received {
			if err := p.sleep(); err != nil {
				return err
			}
		}
	}
	return nil
}

// deliver writes what is due.
func (p *pipe) deliver() (some bool, err error) {
	now := time.Now()
	for len(p.queue) > 0 && !p.queue[0].due.After(now) {
		f := p.queue[0]
		p.queue = p.queue[1:]
		p.queued -= len(f.data)
		if _, err := unix.Write(p.out, f.data); err != nil && !lost(err) {
			return some, fmt.Errorf("deliver a frame of %d bytes: %w", len(f.data), err)
		}
		p.unused = append(p.unused, f.data[:cap(f.data)])
		some = true
	}
	return some, nil
}

// lost reports whether a frame is merely lost: the far end is full, or down.
func lost(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EIO) || errors.Is(err, unix.EINVAL)
}

// accept reads some of what there is, unless the queue is full: then it waits
// in the device's own.
func (p *pipe) accept() (some bool, err error) {
	for range 16 {
		if p.queued >= p.most {
			return some, nil
		}
		if len(p.unused) == 0 {
			p.unused = append(p.unused, make([]byte, frameBytes))
		}
		buf := p.unused[len(p.unused)-1]
		n, err := unix.Read(p.in, buf)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EIO) { // nothing there, or the device is down
			return some, nil
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return some, fmt.Errorf("take a frame: %w", err)
		}
		p.unused = p.unused[:len(p.unused)-1]
		p.send(buf[:n], time.Now())
		some = true
	}
	return some, nil
}

// send puts a frame on the link.
func (p *pipe) send(data []byte, now time.Time) {
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(len(data)-headerBytes) / p.rate * 1e9))
	p.queue = append(p.queue, frame{p.free.Add(p.delay), data})
	p.queued += len(data)
}

// sleep waits until a frame is due or there is one to read.
func (p *pipe) sleep() error {
	wait := wakeEvery // to look at the context
	if len(p.queue) > 0 {
		wait = min(wait, max(0, time.Until(p.queue[0].due)))
	}
	fds := []unix.PollFd{{Fd: int32(p.in), Events: unix.POLLIN}}
	if p.queued >= p.most {
		fds = nil
	}
	limit := unix.NsecToTimespec(int64(wait))
	if _, err := unix.Ppoll(fds, &limit, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	return nil
}
