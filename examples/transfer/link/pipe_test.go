//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ends returns two pairs of sockets that keep frames apart, in place of two
// devices: what is written to near comes out of far.
func ends(t *testing.T) (near, in, out, far int) {
	t.Helper()
	var fds [4]int
	for i := range 2 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds[2*i], fds[2*i+1] = pair[0], pair[1]
	}
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	return fds[0], fds[1], fds[2], fds[3]
}

// await reads one frame.
func await(t *testing.T, fd int, buf []byte) int {
	t.Helper()
	limit := unix.NsecToTimespec(int64(10 * time.Second))
	for {
		n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &limit, nil)
		if n == 1 {
			break
		}
		if err != unix.EINTR { // as Go's own signals make it
			t.Fatalf("no frame has come: %v", err)
		}
	}
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPipeKeepsRateDelayAndOrder(t *testing.T) {
	const rate, delay, frames, size = 1e6, 30 * time.Millisecond, 20, 1000
	near, in, out, far := ends(t)
	p := newPipe(in, out, rate, delay)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	start := time.Now()
	for i := range uint64(frames) {
		data := make([]byte, headerBytes+size)
		binary.LittleEndian.PutUint64(data, i)
		if _, err := unix.Write(near, data); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, frameBytes)
	for i := range uint64(frames) {
		n := await(t, far, buf)
		// A frame takes a millisecond of the link, after those before it.
		if took, least := time.Since(start), time.Duration(i+1)*time.Millisecond+delay; took < least {
			t.Errorf("frame %d came after %v, want at least %v", i, took, least)
		}
		if got := binary.LittleEndian.Uint64(buf); n != headerBytes+size || got != i {
			t.Errorf("frame %d of %d bytes came in place %d", got, n, i)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestPipeTakesNoMoreThanItsQueue(t *testing.T) {
	near, in, out, _ := ends(t)
	p := newPipe(in, out, 1, time.Hour) // nothing ever arrives
	data := make([]byte, 60<<10)
	for range 100 {
		for {
			if _, err := unix.Write(near, data); err != nil {
				break
			}
		}
		if _, err := p.accept(); err != nil {
			t.Fatal(err)
		}
	}
	if p.queued > p.most+frameBytes {
		t.Errorf("%d bytes are queued, want at most one frame over %d", p.queued, p.most)
	}
}

func TestRunRefusesWhatIsNoLink(t *testing.T) {
	for _, namespaces := range [][]string{nil, {"a"}, {"no such namespace", "nor this"}} {
		if err := run(t.Context(), namespaces, "wire", 1e9, 0); err == nil {
			t.Errorf("run between %q returned nil", namespaces)
		}
	}
	if err := run(t.Context(), []string{"a", "b"}, "wire", 0, 0); err == nil {
		t.Error("run of a link without a rate returned nil")
	}
}
