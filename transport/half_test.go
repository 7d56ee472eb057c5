package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// someHalves returns elements of every kind: ordinary, subnormal, huge, ties,
// zeros, infinities, NaNs with all sorts of payloads.
func someHalves(n int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	x := make([]float32, n)
	for i := range x {
		switch i % 4 {
		case 0:
			x[i] = math.Float32frombits(rng.Uint32())
		case 1:
			x[i] = float32(rng.NormFloat64())
		case 2: // near a tie
			x[i] = math.Float32frombits(rng.Uint32()&0xffffe000 | 0x1000 + rng.Uint32N(3) - 1)
		case 3:
			x[i] = math.Float32frombits(rng.Uint32()&0x807fffff | rng.Uint32N(40)<<23) // tiny
		}
	}
	copy(x, []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.MaxFloat32})
	return x
}

// The plain loops beside the fast ones, bit for bit, at every length and offset.
func TestFastHalvesAgreeWithThePlainOnes(t *testing.T) {
	for _, e := range []Encoding{Float16, BFloat16} {
		for n := range 67 {
			x := someHalves(n + 3)[n%4:]
			plain := make([]byte, 2*len(x))
			for i, v := range x {
				binary.LittleEndian.PutUint16(plain[2*i:], e.toHalf(v))
			}
			fast := make([]byte, 2*len(x))
			e.Encode(fast, x)
			if !bytes.Equal(fast, plain) {
				t.Fatalf("%v of %x\n is %x\nwant %x", e, bits(x), fast, plain)
			}
			decoded := make([]float32, len(x))
			e.Decode(decoded, plain)
			e.Round(x)
			for i := range x {
				want := math.Float32bits(e.fromHalf(binary.LittleEndian.Uint16(plain[2*i:])))
				if got := math.Float32bits(decoded[i]); got != want {
					t.Fatalf("%v: element %d decodes to %#x, want %#x", e, i, got, want)
				}
				if got := math.Float32bits(x[i]); got != want {
					t.Fatalf("%v: element %d is rounded to %#x, want %#x", e, i, got, want)
				}
			}
		}
	}
}

func bits(x []float32) (b []uint32) {
	for _, v := range x {
		b = append(b, math.Float32bits(v))
	}
	return b
}

func TestBFloat16RoundsToNearestEven(t *testing.T) {
	for _, c := range []struct {
		x    uint32
		want uint16
	}{
		{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
		{0x3fffffff, 0x4000}, {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x80000000, 0x8000},
		{0x00000001, 0x0000}, {0x00018000, 0x0002}, {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff},
	} {
		if got := toBFloat16(math.Float32frombits(c.x)); got != c.want {
			t.Errorf("%#x encodes to %#x, want %#x", c.x, got, c.want)
		}
	}
}

func BenchmarkHalf(b *testing.B) {
	x := make([]float32, 1<<18)
	for i := range x {
		x[i] = float32(i%1000) / 997
	}
	buf := make([]byte, 2*len(x))
	plain := func(e Encoding) {
		for i, v := range x {
			binary.LittleEndian.PutUint16(buf[2*i:], e.toHalf(v))
		}
	}
	for _, e := range []Encoding{Float16, BFloat16} {
		for op, f := range map[string]func(){
			"encode": func() { e.Encode(buf, x) }, "decode": func() { e.Decode(x, buf) }, "plain": func() { plain(e) },
		} {
			b.Run(fmt.Sprintf("encoding=%v/op=%s", e, op), func(b *testing.B) {
				b.SetBytes(int64(4 * len(x)))
				for b.Loop() {
					f()
				}
			})
		}
	}
}
