package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pushpull/transport"
)

// still is a service whose weights are there at once and whose gradients are
// lost: what is left is the way.
type still struct {
	transport.Service
	length   int
	describe func() // called by Describe, if it is not nil
}

func (still) Pull(context.Context, int64, []transport.Part) (transport.Status, error) {
	return transport.Status{}, nil
}

func (still) Push(context.Context, transport.Push, []transport.Part) (transport.Verdict, error) {
	return transport.Applied, nil
}

func (s still) Describe(context.Context) (transport.Description, error) {
	if s.describe != nil {
		s.describe()
	}
	return transport.Description{Extents: []transport.Extent{{Variable: "v", Length: s.length}}}, nil
}

// BenchmarkTCP moves a part to and fro, and beside it the same bytes over a
// plain connection, in turns. The ratios are medians of what the plain one takes
// to what the transport takes, of the clock's time and of all processors'; over
// TCP both with cubic where the kernel has it. The allocations are those of
// both.
func BenchmarkTCP(b *testing.B) {
	for _, op := range []string{"push", "pull"} {
		for _, size := range []int{4, 64 << 10, 1 << 20, 16 << 20, 100 << 20} {
			for _, kind := range []string{"tcp", "unix"} {
				b.Run(fmt.Sprintf("op=%s/bytes=%d/conn=%s", op, size, kind), func(b *testing.B) {
					b.ReportAllocs()
					race(b, size, plain(b, kind, op, size), ours(b, kind, op, size))
				})
			}
		}
	}
}

// race does both in turns, small ones many times in a row, and reports medians.
func race(b *testing.B, size int, plain, ours func() error) {
	times := min(max(1, 1<<20/size), 64)
	lap := func(do func() error) (took, used float64) {
		cpu, start := cpuTime(), time.Now()
		for range times {
			if err := do(); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start).Seconds(), (cpuTime() - cpu).Seconds()
	}
	var ratio, cpuRatio, took []float64
	round := func(i int) {
		var p, o, pUsed, oUsed float64
		if i%2 == 0 {
			p, pUsed = lap(plain)
			o, oUsed = lap(ours)
		} else {
			o, oUsed = lap(ours)
			p, pUsed = lap(plain)
		}
		ratio, cpuRatio, took = append(ratio, p/o), append(cpuRatio, pUsed/oUsed), append(took, o/float64(times))
	}
	round(0) // takes memory and opens windows
	ratio, cpuRatio, took = nil, nil, nil
	for i := 0; b.Loop(); i++ {
		round(i)
	}
	b.ReportMetric(median(ratio), "of-plain")
	b.ReportMetric(median(cpuRatio), "cpu-of-plain")
	b.ReportMetric(float64(size)/median(took)/1e6, "MB/s")
	b.ReportMetric(median(took)*1e6, "µs/call")
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// ours returns a call over the transport.
func ours(b *testing.B, kind, op string, size int) func() error {
	n := New(Options{}).(*network)
	addr := "127.0.0.1:0"
	if kind == "unix" {
		addr = "unix://" + filepath.Join(b.TempDir(), "ours")
	}
	l, err := n.Listen(addr, still{length: size / 4})
	if err != nil {
		b.Fatal(err)
	}
	c, err := n.Dial(l.Addr())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		l.Close()
	})
	ctx, parts := context.Background(), []transport.Part{{Variable: "v", Data: make([]float32, size/4)}}
	do := func() (err error) {
		if op == "push" {
			_, err = c.Push(ctx, transport.Push{}, parts)
		} else {
			_, err = c.Pull(ctx, 0, parts)
		}
		return err
	}
	if _, err := c.Describe(ctx); err != nil {
		b.Fatal(err)
	}
	for link := range c.(*conn).links {
		setCubic(link.nc)
	}
	for s := range l.(*listener).sessions {
		setCubic(s.link.nc)
	}
	return do
}

// plain returns the same transfer over a bare connection: 64 bytes and the data
// one way, 64 bytes the other. It reads the two apart, which makes it faster than
// reading the data alone: over TCP that takes 1.4 times as long for 64 KiB.
func plain(b *testing.B, kind, op string, size int) func() error {
	addr := "127.0.0.1:0"
	if kind == "unix" {
		addr = filepath.Join(b.TempDir(), "plain")
	}
	l, err := net.Listen(kind, addr)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial(kind, l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	done, buf, head := make(chan struct{}), make([]byte, size), make([]byte, 64)
	for _, c := range []net.Conn{near, far} {
		setCubic(c)
		if u, ok := c.(*net.UnixConn); ok {
			u.SetWriteBuffer(unixBufferBytes)
		}
	}
	go func() {
		defer close(done)
		answerPlain(far, op, size)
	}()
	b.Cleanup(func() {
		near.Close()
		<-done
		far.Close()
	})
	return func() error {
		if op == "push" {
			return errors.Join(give(near, head, buf), take(near, head, nil))
		}
		return errors.Join(give(near, head, nil), take(near, head, buf))
	}
}

// answerPlain is the far end of plain, until that hangs up.
func answerPlain(c net.Conn, op string, size int) {
	head, in, out := make([]byte, 64), make([]byte, size), []byte(nil)
	if op == "pull" {
		in, out = out, in
	}
	for take(c, head, in) == nil && give(c, head, out) == nil {
	}
}

func give(c net.Conn, head, data []byte) error {
	pieces := net.Buffers{head, data}
	_, err := pieces.WriteTo(c)
	return err
}

func take(c net.Conn, head, data []byte) error {
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	_, err := io.ReadFull(c, data)
	return err
}
