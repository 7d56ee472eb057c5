package grpc

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pushpull/transport"
)

// someFloats returns n floats of any bits.
func someFloats(n int) []float32 {
	r := rand.New(rand.NewPCG(uint64(n), 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(r.Uint32())
	}
	return x
}

func TestViewAgreesWithEncoding(t *testing.T) {
	for _, e := range []transport.Encoding{transport.Float32, transport.Float16, transport.BFloat16} {
		for _, n := range []int{0, 1, 2, 3, 1000} {
			x := someFloats(n)
			got, want := make([]byte, n*e.Size()), make([]byte, n*e.Size())
			encode(e, got, x)
			e.Encode(want, x)
			if !bytes.Equal(got, want) {
				t.Errorf("encode of %d elements as %v = %x, want %x", n, e, got, want)
			}
			back, plain := make([]float32, n), make([]float32, n)
			decode(e, back, got)
			e.Decode(plain, got)
			for i := range back {
				if g, w := math.Float32bits(back[i]), math.Float32bits(plain[i]); g != w {
					t.Errorf("decode of element %d of %d as %v = %#08x, want %#08x", i, n, e, g, w)
				}
			}
		}
	}
}

// BenchmarkView shows what the view gains over the loop.
func BenchmarkView(b *testing.B) {
	const n = chunkBytes / 4
	x, buf := make([]float32, n), make([]byte, 4*n)
	for name, do := range map[string]func(){
		"way=plain/op=encode": func() { transport.Float32.Encode(buf, x) },
		"way=view/op=encode":  func() { encode(transport.Float32, buf, x) },
		"way=plain/op=decode": func() { transport.Float32.Decode(x, buf) },
		"way=view/op=decode":  func() { decode(transport.Float32, x, buf) },
	} {
		b.Run(fmt.Sprintf("%s/bytes=%d", name, 4*n), func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				do()
			}
		})
	}
}
