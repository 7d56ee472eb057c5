package ps

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The plain versions of the loops in floats.go.

func plainAdd(s, g []float32) {
	for i := range g {
		s[i] += g[i]
	}
}

func plainFinite(x []float32) bool {
	for _, y := range x {
		if math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
			return false
		}
	}
	return true
}

func TestAddAgreesWithThePlainLoop(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		got, g := make([]float32, n), make([]float32, n)
		for i := range g {
			got[i], g[i] = rng.Float32(), rng.Float32()
		}
		want := slices.Clone(got)
		add(got, g)
		plainAdd(want, g)
		if !slices.Equal(got, want) {
			t.Errorf("add of %d elements = %v, want %v", n, got, want)
		}
		clear(want)
		addToZero(got, g)
		plainAdd(want, g)
		if !slices.Equal(got, want) {
			t.Errorf("addToZero of %d elements = %v, want %v", n, got, want)
		}
	}
}

func TestAddToZeroLeavesNoNegativeZero(t *testing.T) {
	for _, n := range []int{1, 8, 11} {
		s, g := make([]float32, n), make([]float32, n)
		for i := range g {
			g[i] = float32(math.Copysign(0, -1))
		}
		addToZero(s, g)
		for i, x := range s {
			if math.Float32bits(x) != 0 {
				t.Errorf("element %d of %d = %v with bits %x, want 0", i, n, x, math.Float32bits(x))
			}
		}
	}
}

func TestFiniteFindsTheOne(t *testing.T) {
	bad := []float32{
		float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
		math.Float32frombits(0x7f800001), math.Float32frombits(0xffffffff),
	}
	good := []float32{0, 1, -1, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Copysign(0, -1))}
	for n := range 40 {
		x := make([]float32, n)
		for i := range x {
			x[i] = good[i%len(good)]
		}
		if !finite(x) || !plainFinite(x) {
			t.Errorf("finite(%v) = false, want true", x)
		}
		for i := range x {
			for _, y := range bad {
				x[i] = y
				if finite(x) || plainFinite(x) {
					t.Errorf("finite of %d elements with %v at %d = true, want false", n, y, i)
				}
			}
			x[i] = 1
		}
	}
}

// A row costs nothing in the updates after the one it was part of.
func TestSumForgetsItsRows(t *testing.T) {
	var s sum
	for range 3 {
		s.addRows(6, 2, []int32{0, 2}, []float32{1, 2, 3, 4})
		s.addRows(6, 2, []int32{2}, []float32{5, 6})
		if got, want := s.g, []float32{1, 2, 0, 0, 8, 10}; !slices.Equal(got, want) || !slices.Equal(s.rows, []int32{0, 2}) {
			t.Errorf("sum = %v of rows %v, want %v of rows 0 and 2", got, s.rows, want)
		}
		s.reset(2)
		if len(s.rows) != 0 || s.dirty || slices.Max(s.g) != 0 {
			t.Errorf("sum after reset = %+v, want it empty", s)
		}
		s.add([]float32{1, 1, 1, 1, 1, 1})
		s.addRows(6, 2, []int32{1}, []float32{1, 1})
		if got, want := s.g, []float32{1, 1, 2, 2, 1, 1}; !slices.Equal(got, want) || len(s.rows) != 0 {
			t.Errorf("sum = %v of rows %v, want %v, dense", got, s.rows, want)
		}
		s.reset(2)
	}
}

func BenchmarkFinite(b *testing.B) {
	x := make([]float32, 1<<18)
	for _, loop := range []struct {
		name string
		f    func([]float32) bool
	}{{"unrolled", finite}, {"plain", plainFinite}} {
		b.Run("loop="+loop.name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(x)))
			b.ReportAllocs()
			for b.Loop() {
				if !loop.f(x) {
					b.Fatal("not finite")
				}
			}
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	s, g := make([]float32, 1<<18), make([]float32, 1<<18)
	for _, loop := range []struct {
		name string
		f    func(s, g []float32)
	}{{"unrolled", add}, {"plain", plainAdd}} {
		b.Run("loop="+loop.name, func(b *testing.B) {
			b.SetBytes(int64(4 * len(g)))
			b.ReportAllocs()
			for b.Loop() {
				loop.f(s, g)
			}
		})
	}
}
