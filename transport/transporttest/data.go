package transporttest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pushpull/transport"
)

// odd are values that are easily lost.
var odd = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 1 / 3., math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
	math.Float32frombits(0x7fc12345), math.Float32frombits(0xff800001), math.Float32frombits(0x80000123),
	65504, 65519, 65520, 0x1p-14, 0x1p-24, 0x1p-25, 0x1.8p-25, 1 + 0x1p-11, 1 + 0x3p-11,
}

// values returns n elements, odd ones among them.
func values(n int, seed uint64) []float32 {
	x := make([]float32, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range x {
		x[i] = math.Float32frombits(r.Uint32())
	}
	for i := 0; i < n; i += len(odd) + 1 + n/7 {
		copy(x[i:], odd)
	}
	return x
}

// sameBits tells where got differs from want.
func (b *bench) sameBits(what string, got, want []float32) {
	b.Helper()
	if len(got) != len(want) {
		b.Errorf("%s: %d elements, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
			b.Errorf("%s: element %d of %d is %#08x (%v), want %#08x (%v)", what, i, len(got), g, got[i], w, want[i])
			return
		}
	}
}

// sameParts compares parts, their data bit by bit.
func (b *bench) sameParts(what string, got, want []transport.Part) {
	b.Helper()
	if len(got) != len(want) {
		b.Errorf("%s: %d parts, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		b.sameBits(fmt.Sprintf("%s %d", what, i), got[i].Data, want[i].Data)
		g, w := got[i], want[i]
		g.Data, w.Data = nil, nil
		b.same(what, g, w)
	}
}

// blank returns parts with other data.
func blank(parts []transport.Part) []transport.Part {
	parts = slices.Clone(parts)
	for i := range parts {
		parts[i].Data = slices.Repeat([]float32{-12.5}, len(parts[i].Data))
	}
	return parts
}

// roundTrip offers parts as weights, pulls them and pushes them.
func (b *bench) roundTrip(parts []transport.Part) {
	b.Helper()
	s, c := b.served(parts...)
	dst := blank(parts)
	if _, err := c.Pull(b.context(), 0, dst); err != nil {
		b.Fatalf("Pull: %v", err)
	}
	b.sameParts("pulled part", dst, parts)
	if _, err := c.Push(b.context(), transport.Push{}, parts); err != nil {
		b.Fatalf("Push: %v", err)
	}
	_, got := s.lastPush()
	b.sameParts("pushed part", got, parts)
}

func bitsSurvive(b *bench) {
	var parts []transport.Part
	for i, n := range []int{1, 0, 3, len(odd), 255, 4097, 0, 1<<18 - 1, 1 << 18, 1<<18 + 1, 0} {
		parts = append(parts, transport.Part{Variable: name(i / 2), Offset: i, Data: values(n, uint64(i))})
	}
	b.roundTrip(parts)
}

func manyPartsSurvive(b *bench) {
	var parts []transport.Part
	for i := range 5000 {
		parts = append(parts, transport.Part{Variable: "many", Offset: i, Width: i, Data: values(i%97, uint64(i))})
	}
	b.roundTrip(parts)
}

func rowsSurvive(b *bench) {
	const rows, width = 1000, 7
	weights := values(rows*width, 1)
	s, c := b.served(transport.Part{Variable: "rows", Offset: 14, Width: width, Data: weights})
	for _, numbers := range [][]int32{{}, {0}, {rows - 1}, {0, 1, 2, 500, 998}} {
		part := transport.Part{Variable: "rows", Offset: 14, Width: width, Rows: numbers}
		for _, r := range numbers {
			part.Data = append(part.Data, weights[int(r)*width:(int(r)+1)*width]...)
		}
		dst := blank([]transport.Part{part})
		if _, err := c.Pull(b.context(), 0, dst); err != nil {
			b.Fatalf("Pull of rows %v: %v", numbers, err)
		}
		b.sameParts("pulled rows", dst, []transport.Part{part})
		if _, err := c.Push(b.context(), transport.Push{}, []transport.Part{part}); err != nil {
			b.Fatalf("Push of rows %v: %v", numbers, err)
		}
		_, got := s.lastPush()
		b.sameParts("pushed rows", got, []transport.Part{part})
	}
	beyond := []transport.Part{{Variable: "rows", Offset: 14, Width: width, Rows: []int32{rows}, Data: make([]float32, width)}}
	_, err := c.Pull(b.context(), 0, beyond)
	b.is("Pull of a row beyond the last", err, transport.ErrLength)
}

// everySizeSurvives crosses limits that such systems are known to have.
func everySizeSurvives(b *bench) {
	const mib = 1 << 20
	sizes := []int{4*mib - 4, 4 * mib, 4*mib + 4, 64 * mib, 300 * mib}
	if testing.Short() {
		sizes = sizes[:3]
	}
	for _, size := range sizes {
		b.Run(fmt.Sprintf("bytes=%d", size), func(t *testing.T) {
			(&bench{T: t, transport: b.transport, addr: b.addr}).
				roundTrip([]transport.Part{{Variable: "v", Data: values(size/4, 9)}})
		})
	}
	// Odd numbers of bytes, which take elements of two.
	halves := transport.Part{Variable: "v", Encoding: transport.Float16, Data: values(2*mib-1, 9)}
	halves.Encoding.Round(halves.Data)
	b.roundTrip([]transport.Part{{Variable: "u", Data: values(3, 9)}, halves})
}

func encodingsRound(b *bench) {
	var parts, want []transport.Part
	for i, n := range []int{1, 3, 0, 255, 1<<19 + 1, 1<<19 + 3, 5} {
		p := transport.Part{Variable: name(i), Encoding: transport.Encodings[(i+1)%len(transport.Encodings)], Data: values(n, uint64(i))}
		parts = append(parts, p)
		p.Data = slices.Clone(p.Data)
		p.Encoding.Round(p.Data)
		want = append(want, p)
	}
	s, c := b.served(parts...)
	s.mu.Lock()
	b.sameParts("initial part", s.weights, want)
	s.weights = deep(parts) // as they were, so that the way back must round
	s.mu.Unlock()

	dst := blank(parts)
	if _, err := c.Pull(b.context(), 0, dst); err != nil {
		b.Fatalf("Pull: %v", err)
	}
	b.sameParts("pulled part", dst, want)

	before := deep(parts)
	if _, err := c.Push(b.context(), transport.Push{}, parts); err != nil {
		b.Fatalf("Push: %v", err)
	}
	_, got := s.lastPush()
	b.sameParts("pushed part", got, want)
	b.sameParts("part after it was pushed", parts, before)
}

func malformedPartsAreRefused(b *bench) {
	s, c := b.served(transport.Part{Variable: "v", Width: 2, Data: make([]float32, 8)})
	for _, bad := range []struct {
		part transport.Part
		want error
	}{
		{transport.Part{Variable: "v\xff", Data: make([]float32, 8)}, transport.ErrInvalid},
		{transport.Part{Variable: "v", Offset: -1}, transport.ErrInvalid},
		{transport.Part{Variable: "v", Width: -1}, transport.ErrInvalid},
		{transport.Part{Variable: "v", Encoding: 77}, transport.ErrInvalid},
		{transport.Part{Variable: "v", Rows: []int32{}}, transport.ErrInvalid},
		{transport.Part{Variable: "v", Width: 2, Rows: []int32{-1}, Data: make([]float32, 2)}, transport.ErrInvalid},
		{transport.Part{Variable: "v", Width: 2, Rows: []int32{1, 1}, Data: make([]float32, 4)}, transport.ErrInvalid},
		{transport.Part{Variable: "v", Width: 2, Rows: []int32{2, 1}, Data: make([]float32, 4)}, transport.ErrInvalid},
		{transport.Part{Variable: "v", Width: 2, Rows: []int32{1, 2}, Data: make([]float32, 3)}, transport.ErrLength},
		{transport.Part{Variable: "v", Width: 2, Rows: []int32{}, Data: make([]float32, 2)}, transport.ErrLength},
		{transport.Part{Variable: "v", Data: make([]float32, 7)}, transport.ErrLength},
		{transport.Part{Variable: "w", Data: make([]float32, 8)}, transport.ErrUnknownPart},
		{transport.Part{Variable: "v", Offset: 1, Data: make([]float32, 8)}, transport.ErrUnknownPart},
	} {
		parts := []transport.Part{bad.part}
		_, err := c.Pull(b.context(), 0, parts)
		b.is(fmt.Sprintf("Pull of %+v", bad.part), err, bad.want)
		if err := transport.Check(parts); err == nil {
			continue // it takes the shard to see what is wrong
		}
		_, err = c.Push(b.context(), transport.Push{}, parts)
		b.is(fmt.Sprintf("Push of %+v", bad.part), err, bad.want)
		b.is(fmt.Sprintf("Init with %+v", bad.part), c.Init(b.context(), parts), bad.want)
	}
	if len(s.pushed) != 0 {
		b.Errorf("%d malformed pushes reached the shard", len(s.pushed))
	}
}
