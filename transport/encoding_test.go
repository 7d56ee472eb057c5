package transport_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"pushpull/transport"
)

// toHalf and fromHalf are Float16 of one element.
func toHalf(x float32) uint16 {
	var b [2]byte
	transport.Float16.Encode(b[:], []float32{x})
	return binary.LittleEndian.Uint16(b[:])
}

func fromHalf(h uint16) float32 {
	var x [1]float32
	transport.Float16.Decode(x[:], binary.LittleEndian.AppendUint16(nil, h))
	return x[0]
}

// plainFromHalf is what the standard says a binary16 is worth.
func plainFromHalf(h uint16) float64 {
	sign := 1 - 2*float64(h>>15)
	exponent, fraction := int(h>>10&0x1f), float64(h&0x3ff)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 0x1f:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

// plainToHalf looks for the nearest binary16, and of two takes the even one.
func plainToHalf(x float32) uint16 {
	sign := uint16(math.Float32bits(x) >> 31 << 15)
	size := math.Abs(float64(x))
	lo, hi := uint16(0), uint16(0x7c00) // of the values from zero to infinity
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; plainFromHalf(mid) <= size {
			lo = mid
		} else {
			hi = mid
		}
	}
	above := plainFromHalf(hi)
	if hi == 0x7c00 {
		above = 65536 // where the next value would be, had the exponent room
	}
	below := plainFromHalf(lo)
	if size-below > above-size || size-below == above-size && lo%2 == 1 {
		return sign | hi
	}
	return sign | lo
}

func TestEveryFloat16SurvivesAsFloat32(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		x := fromHalf(h)
		want := plainFromHalf(h)
		if math.IsNaN(want) {
			if !math.IsNaN(float64(x)) || toHalf(x)&0x7c00 != 0x7c00 || toHalf(x)&0x3ff == 0 {
				t.Fatalf("%#04x decodes to %v and is %#04x again, want NaN", h, x, toHalf(x))
			}
			continue
		}
		if float64(x) != want || math.Signbit(float64(x)) != (h>>15 == 1) {
			t.Fatalf("%#04x decodes to %v, want %v", h, x, want)
		}
		if got := toHalf(x); got != h {
			t.Fatalf("%#04x decodes to %v and encodes to %#04x", h, x, got)
		}
	}
}

func TestFloat16RoundsToNearestEven(t *testing.T) {
	for _, c := range []struct {
		name string
		x    float32
		want uint16
	}{
		{"zero", 0, 0x0000},
		{"negative zero", float32(math.Copysign(0, -1)), 0x8000},
		{"one", 1, 0x3c00},
		{"a third", 1. / 3, 0x3555},
		{"a tie to the even value below", 1 + 0x1p-11, 0x3c00},
		{"a tie to the even value above", 1 + 0x3p-11, 0x3c02},
		{"just above a tie", 1 + 0x1p-11 + 0x1p-23, 0x3c01},
		{"just below a tie", 1 + 0x3p-11 - 0x1p-23, 0x3c01},
		{"a carry into the exponent", 2 - 0x1p-12, 0x4000},
		{"the largest", 65504, 0x7bff},
		{"the last that rounds to the largest", 65519.996, 0x7bff},
		{"the tie above the largest", 65520, 0x7c00},
		{"beyond", 1e30, 0x7c00},
		{"beyond, negative", -1e30, 0xfc00},
		{"infinity", float32(math.Inf(1)), 0x7c00},
		{"negative infinity", float32(math.Inf(-1)), 0xfc00},
		{"the smallest normal", 0x1p-14, 0x0400},
		{"just below the smallest normal", 0x1p-14 - 0x1p-26, 0x0400},
		{"the largest subnormal", 0x1p-14 - 0x1p-24, 0x03ff},
		{"the smallest subnormal", 0x1p-24, 0x0001},
		{"the smallest subnormal, negative", -0x1p-24, 0x8001},
		{"the tie below the smallest", 0x1p-25, 0x0000},
		{"just above that tie", 0x1p-25 + 0x1p-48, 0x0001},
		{"a tie between subnormals", 0x3p-25, 0x0002},
		{"a subnormal float32", math.SmallestNonzeroFloat32, 0x0000},
		{"a subnormal float32, negative", -math.SmallestNonzeroFloat32, 0x8000},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := toHalf(c.x); got != c.want {
				t.Errorf("%v encodes to %#04x, want %#04x", c.x, got, c.want)
			}
			if got := plainToHalf(c.x); got != c.want {
				t.Errorf("the plain way encodes %v to %#04x, want %#04x", c.x, got, c.want)
			}
		})
	}
}

func TestNaNsKeepSignAndPayload(t *testing.T) {
	for _, c := range []struct{ in, out uint32 }{
		{0x7fc00000, 0x7fc00000}, // quiet
		{0xffc00000, 0xffc00000},
		{0x7fc02000, 0x7fc02000}, // payload within the ten bits that travel
		{0x7fffe000, 0x7fffe000},
		{0x7f800001, 0x7fc00000}, // signaling becomes quiet, not infinite
		{0xffa00000, 0xffe00000},
	} {
		x := []float32{math.Float32frombits(c.in)}
		transport.Float16.Round(x)
		if got := math.Float32bits(x[0]); got != c.out {
			t.Errorf("NaN %#08x rounds to %#08x, want %#08x", c.in, got, c.out)
		}
	}
}

func TestFloat32IsLittleEndianAndExact(t *testing.T) {
	x := []float32{1, math.Float32frombits(0x7f800001), math.Float32frombits(0x80000001)}
	b := make([]byte, 12)
	transport.Float32.Encode(b, x)
	if got, want := fmt.Sprintf("%x", b), "0000803f"+"0100807f"+"01000080"; got != want {
		t.Errorf("encoded %v to %s, want %s", x, got, want)
	}
	back := make([]float32, 3)
	transport.Float32.Decode(back, b)
	transport.Float32.Round(back)
	for i := range x {
		if got, want := math.Float32bits(back[i]), math.Float32bits(x[i]); got != want {
			t.Errorf("element %d comes back as %#08x, want %#08x", i, got, want)
		}
	}
}

func TestEncodingsTellWhatTheyAre(t *testing.T) {
	for _, c := range []struct {
		e     transport.Encoding
		name  string
		size  int
		valid bool
	}{{transport.Float32, "float32", 4, true}, {transport.Float16, "float16", 2, true}, {transport.BFloat16, "bfloat16", 2, true}, {3, "encoding(3)", 2, false}} {
		if c.e.String() != c.name || c.e.Valid() != c.valid || c.valid && c.e.Size() != c.size {
			t.Errorf("encoding %d: %v, %d bytes, valid %v; want %+v", uint8(c.e), c.e, c.e.Size(), c.e.Valid(), c)
		}
	}
}

// FuzzEncoding compares Float16 with the plain way, and Round with the way
// there and back.
func FuzzEncoding(f *testing.F) {
	for _, bits := range []uint32{0, 1, 0x80000000, 0x33000000, 0x33000001, 0x387fe000, 0x38800000, 0x477fefff, 0x477ff000, 0x7f800000, 0x7f800001, 0xffffffff} {
		f.Add(bits)
	}
	f.Fuzz(func(t *testing.T, bits uint32) {
		x := math.Float32frombits(bits)
		h := toHalf(x)
		switch want := plainToHalf(x); {
		case x != x:
			if h&0x7c00 != 0x7c00 || h&0x3ff == 0 || h>>15 != uint16(bits>>31) {
				t.Errorf("NaN %#08x encodes to %#04x, want a NaN of its sign", bits, h)
			}
		case h != want:
			t.Errorf("%v encodes to %#04x, want %#04x", x, h, want)
		}
		rounded := []float32{x}
		transport.Float16.Round(rounded)
		if got, want := math.Float32bits(rounded[0]), math.Float32bits(fromHalf(h)); got != want {
			t.Errorf("%v rounds to %#08x, but comes back as %#08x", x, got, want)
		}
		if back := toHalf(fromHalf(h)); back != h {
			t.Errorf("%#04x comes back as %#04x", h, back)
		}
	})
}

func BenchmarkEncoding(b *testing.B) {
	const n = 1 << 18
	x, buf := make([]float32, n), make([]byte, 4*n)
	for i := range x {
		x[i] = float32(i)/n - 0.5
	}
	for _, e := range []transport.Encoding{transport.Float32, transport.Float16} {
		for op, do := range map[string]func(){
			"encode": func() { e.Encode(buf, x) }, "decode": func() { e.Decode(x, buf) }, "round": func() { e.Round(x) },
		} {
			b.Run(fmt.Sprintf("encoding=%v/op=%s", e, op), func(b *testing.B) {
				b.SetBytes(4 * n)
				b.ReportAllocs()
				for b.Loop() {
					do()
				}
			})
		}
	}
}
