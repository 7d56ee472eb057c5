//go:build linux

package shm_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"pushpull/transport"
)

// still is a shard whose gradients are lost and whose weights are there at
// once: what is left is the way. If it has weights it copies them, as a shard
// does.
type still struct {
	transport.Service
	weights []float32
}

func (s *still) Pull(_ context.Context, minStep int64, dst []transport.Part) (transport.Status, error) {
	if minStep > 0 {
		for _, p := range dst {
			copy(p.Data, s.weights)
		}
	}
	return transport.Status{Step: minStep}, nil
}

func (*still) Push(context.Context, transport.Push, []transport.Part) (transport.Verdict, error) {
	return transport.Applied, nil
}

func (*still) Init(context.Context, []transport.Part) error { return nil }

func newStill() *still { return &still{weights: make([]float32, sizes[len(sizes)-1]/4)} }

// sizes are those of the tensors, in bytes.
var sizes = []int{4, 64 << 10, 1 << 20, 16 << 20, 100 << 20}

// A plain connection moves n bytes one way, and is answered with one. It is
// what there is without us.
type plain struct {
	conn net.Conn
	buf  []byte
}

func (p *plain) push(n int) error { return p.ask(n, 0) }
func (p *plain) pull(n int) error { return p.ask(0, n) }

func (p *plain) ask(out, in int) error {
	var h [16]byte
	binary.LittleEndian.PutUint64(h[:], uint64(out))
	binary.LittleEndian.PutUint64(h[8:], uint64(max(in, 1)))
	message := net.Buffers{h[:], p.buf[:out]} // in one system call
	if _, err := message.WriteTo(p.conn); err != nil {
		return err
	}
	_, err := io.ReadFull(p.conn, p.buf[:max(in, 1)])
	return err
}

func dialPlain(tb testing.TB, kind, addr string) *plain {
	tb.Helper()
	c, err := net.DialTimeout(kind, addr, time.Second)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return &plain{conn: c, buf: make([]byte, sizes[len(sizes)-1])}
}

// servePlain answers plain connections until the listener is closed.
func servePlain(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			buf, h := make([]byte, sizes[len(sizes)-1]), make([]byte, 16)
			for {
				if _, err := io.ReadFull(c, h); err != nil {
					return
				}
				if _, err := io.ReadFull(c, buf[:binary.LittleEndian.Uint64(h)]); err != nil {
					return
				}
				if _, err := c.Write(buf[:binary.LittleEndian.Uint64(h[8:])]); err != nil {
					return
				}
			}
		}()
	}
}

// BenchmarkSHM moves a tensor to and from a shard in another process, beside
// plain connections to the same process and a copy within this one, in turns.
// It reports medians. op=pull is of a shard that fills in nothing, so that the
// way alone is timed, and op=pull_copy of one that copies its weights.
func BenchmarkSHM(b *testing.B) {
	far := start(b, "race", ":0")
	c, tcp, unix := dial(b, far.said[0]), dialPlain(b, "tcp", far.said[1]), dialPlain(b, "unix", far.said[2])
	ctx := context.Background()
	for _, op := range []string{"push", "pull", "pull_copy"} {
		for _, size := range sizes {
			b.Run(fmt.Sprintf("op=%s/bytes=%d", op, size), func(b *testing.B) {
				parts := []transport.Part{{Variable: "v", Data: make([]float32, size/4)}}
				from := make([]float32, size/4)
				for i := range from {
					from[i], parts[0].Data[i] = float32(i), float32(i)
				}
				plainly := (*plain).push
				ours := func() error { _, err := c.Push(ctx, transport.Push{}, parts); return err }
				if op != "push" {
					plainly = (*plain).pull
					var minStep int64
					if op == "pull_copy" {
						minStep = 1
					}
					ours = func() error { _, err := c.Pull(ctx, minStep, parts); return err }
				}
				race(b, size, []contestant{
					{"shm", ours},
					{"tcp", func() error { return plainly(tcp, size) }},
					{"unix", func() error { return plainly(unix, size) }},
					{"memcpy", func() error { copy(parts[0].Data, from); return nil }},
				})
			})
		}
	}
}

type contestant struct {
	name string
	do   func() error
}

// race lets contestants move size bytes in turns, and reports the first one's
// rate and time, and how many times the rate of the others that is.
func race(b *testing.B, size int, contestants []contestant) {
	batch := max(1, min(200, 8<<20/size))
	took := make([][]float64, len(contestants))
	for _, c := range contestants {
		if err := c.do(); err != nil {
			b.Fatalf("%s: %v", c.name, err)
		}
	}
	for b.Loop() {
		for i, c := range contestants {
			begin := time.Now()
			for range batch {
				if err := c.do(); err != nil {
					b.Fatalf("%s: %v", c.name, err)
				}
			}
			took[i] = append(took[i], time.Since(begin).Seconds()/float64(batch))
		}
	}
	first := median(took[0])
	b.ReportMetric(0, "ns/op") // of all together means nothing
	b.ReportMetric(float64(size)/first/1e6, "MB/s")
	b.ReportMetric(first*1e6, "us")
	for i, c := range contestants[1:] {
		b.ReportMetric(median(took[i+1])/first, "x/"+c.name)
	}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
