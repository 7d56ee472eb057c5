package transport_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"pushpull/transport"
	"pushpull/transport/grpc"
	"pushpull/transport/inproc"
)

// still is a service whose weights are there at once and whose gradients are
// lost: what is left is the way.
type still struct {
	transport.Service
	length int
}

func (still) Pull(context.Context, int64, []transport.Part) (transport.Status, error) {
	return transport.Status{}, nil
}

func (still) Push(context.Context, transport.Push, []transport.Part) (transport.Verdict, error) {
	return transport.Applied, nil
}

func (s still) Describe(context.Context) (transport.Description, error) {
	return transport.Description{Extents: []transport.Extent{{Variable: "v", Length: s.length}}}, nil
}

var sizes = []int{4, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20}

func BenchmarkConn(b *testing.B) {
	for _, tr := range []struct {
		name      string
		transport transport.Transport
		addr      string
	}{
		{"grpc", grpc.New(grpc.Options{}), "127.0.0.1:0"},
		{"grpc_unix", grpc.New(grpc.Options{}), "unix://" + b.TempDir() + "/socket"},
		{"inproc", new(inproc.Network), ":0"},
	} {
		for _, e := range []transport.Encoding{transport.Float32, transport.Float16, transport.BFloat16} {
			for _, op := range []string{"push", "pull"} {
				for _, size := range sizes {
					b.Run(fmt.Sprintf("transport=%s/encoding=%v/op=%s/bytes=%d", tr.name, e, op, size), func(b *testing.B) {
						benchmarkConn(b, tr.transport, tr.addr, op, transport.Part{Variable: "v", Encoding: e, Data: make([]float32, size/4)})
					})
				}
			}
		}
	}
}

// benchmarkConn moves a part to and fro. Its bytes are those in memory,
// whatever the encoding.
func benchmarkConn(b *testing.B, tr transport.Transport, addr, op string, part transport.Part) {
	l, err := tr.Listen(addr, still{length: len(part.Data)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	c, err := tr.Dial(l.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ctx, parts := context.Background(), []transport.Part{part}
	b.SetBytes(int64(4 * len(part.Data)))
	b.ReportAllocs()
	for b.Loop() {
		if op == "push" {
			_, err = c.Push(ctx, transport.Push{}, parts)
		} else {
			_, err = c.Pull(ctx, 0, parts)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTCP is what a plain connection makes of the same machine: bytes one
// way, an answer of one byte the other.
func BenchmarkTCP(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			done := make(chan error, 1)
			go func() { done <- answer(l, size) }()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, buf[:1]); err != nil {
					b.Fatal(err)
				}
			}
			c.Close()
			if err := <-done; err != io.EOF {
				b.Errorf("far end: %v", err)
			}
		})
	}
}

// answer reads messages of size from the first connection, and answers each
// with a byte.
func answer(l net.Listener, size int) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	for buf := make([]byte, size); ; {
		if _, err := io.ReadFull(c, buf); err != nil {
			return err
		}
		if _, err := c.Write(buf[:1]); err != nil {
			return err
		}
	}
}
