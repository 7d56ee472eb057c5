package compute_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pushpull/model/compute"
)

// The errors stated for the engines.
const (
	tanhError    = 4e-7 // relative
	sigmoidError = 2e-7 // relative, where σ is a normal number
	expError     = 2e-7 // relative
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())

	negativeZero = float32(math.Copysign(0, -1))
)

// grid returns numbers of all magnitudes and both signs, per octave so many, with
// the special ones.
func grid(perOctave int) []float32 {
	x := []float32{
		0, negativeZero, inf, -inf, math.MaxFloat32, -math.MaxFloat32,
		math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
		9.02, -9.02, 9.0200005, -9.0200005, 88, -88, 88.8, -88.8, 104, -104, 104.1, -104.1, 1e4, -1e4,
	}
	for exponent := -40; exponent <= 7; exponent++ {
		for i := range perOctave {
			v := float32(math.Ldexp(1+(float64(i)+0.37)/float64(perOctave), exponent))
			x = append(x, v, -v)
		}
	}
	return x
}

// activations returns σ and tanh of x, as LSTMForward computes them for gates.
func activations(e compute.Engine, x []float32) (sigmoid, tanh []float32) {
	n := len(x)
	z := slices.Concat(x, x, x, x)
	bias := make([]float32, 4*n)
	for i := range bias {
		bias[i] = negativeZero // which leaves even -0 as it is
	}
	e.LSTMForward(z, bias, make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), 0)
	return z[:n], z[n : 2*n]
}

func TestActivationsAreAccurate(t *testing.T) {
	x := grid(5000)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		sigmoid, tanh := activations(e, x)
		var worst struct{ sigmoid, tanh float64 }
		for i, v := range x {
			v := float64(v)
			want := math.Tanh(v)
			if diff := math.Abs(float64(tanh[i]) - want); diff > tanhError*math.Abs(want) {
				t.Fatalf("tanh(%v) = %v, want %v: relative error %v", v, tanh[i], want, diff/math.Abs(want))
			} else if want != 0 {
				worst.tanh = max(worst.tanh, diff/math.Abs(want))
			}
			if math.Abs(float64(tanh[i])) > 1 || math.Signbit(float64(tanh[i])) != math.Signbit(v) {
				t.Fatalf("tanh(%v) = %v, want at most 1, and of the sign of x", v, tanh[i])
			}
			want = 1 / (1 + math.Exp(-v))
			diff := math.Abs(float64(sigmoid[i]) - want)
			if want > 1.2e-38 {
				worst.sigmoid = max(worst.sigmoid, diff/want)
			}
			if diff > sigmoidError*want+1.2e-38 {
				t.Fatalf("σ(%v) = %v, want %v: relative error %v", v, sigmoid[i], want, diff/want)
			}
		}
		t.Logf("largest relative errors: tanh %.2g, σ %.2g", worst.tanh, worst.sigmoid)
	})
}

func TestSoftmaxIsAccurate(t *testing.T) {
	const target = 3
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		worst := 0.0
		for i := range 40 {
			x := []float32{0, -1, -2, -3}
			for v := float32(-86.9) + float32(i)*0.001; v <= 0; v += 0.041 {
				x = append(x, v)
			}
			sum := 0.0
			for _, v := range x {
				sum += math.Exp(float64(v))
			}
			got := slices.Clone(x)
			loss := e.SoftmaxXent(got, make([]float32, len(x)), target, 1, true)
			if want := math.Log(sum) + 3; math.Abs(float64(loss)-want) > 1e-6*want {
				t.Fatalf("loss = %v, want %v", loss, want)
			}
			for j, v := range x {
				want := math.Exp(float64(v)) / sum
				if j == target {
					want--
				}
				diff := math.Abs(float64(got[j]) - want)
				if math.Abs(want) > 1.2e-38 {
					worst = max(worst, diff/math.Abs(want))
				}
				// The sum, the factor and the product round too.
				if diff > (expError+2e-7)*math.Abs(want)+math.SmallestNonzeroFloat32 {
					t.Fatalf("gradient of logit %v = %v, want %v: relative error %v", v, got[j], want, diff/math.Abs(want))
				}
			}
		}
		t.Logf("largest relative error: %.2g", worst)
	})
}

func TestSoftmaxOfHugeLogitsIsFinite(t *testing.T) {
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for n := 2; n < 40; n++ {
			x := make([]float32, n)
			for i := range x {
				x[i] = 1e38 - float32(i)*1e36
			}
			loss := e.SoftmaxXent(x, make([]float32, n), 0, 2, true)
			if loss != 0 {
				t.Fatalf("%d logits: loss of the largest = %v, want 0", n, loss)
			}
			for i, got := range x {
				if got != 0 {
					t.Fatalf("%d logits: gradient %d = %v, want 0", n, i, got)
				}
			}
			x[1] = -1e38
			if loss := e.SoftmaxXent(x, make([]float32, n), 1, 2, false); math.Abs(float64(loss)-1e38) > 1e32 {
				t.Fatalf("%d logits: loss of the least = %v, want 1e38", n, loss)
			}
		}
	})
}

func TestSoftmaxGradientIsScaledAndSumsToZero(t *testing.T) {
	r := random(t)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for range 50 {
			n := 1 + r.IntN(200)
			x, bias, target := uniform(r, n), uniform(r, n), r.IntN(n)
			whole, half, none := slices.Clone(x), slices.Clone(x), slices.Clone(x)
			loss := e.SoftmaxXent(whole, bias, target, 1, true)
			e.SoftmaxXent(half, bias, target, 0.5, true)
			if got := e.SoftmaxXent(none, bias, target, 1, false); got != loss {
				t.Fatalf("loss without gradient = %v, want %v as with it", got, loss)
			}
			sum := 0.0
			for i := range whole {
				sum += float64(whole[i])
				if got, want := half[i], whole[i]/2; math.Abs(float64(got-want)) > 1e-7*math.Abs(float64(want)) {
					t.Fatalf("gradient at half the scale = %v, want %v", got, want)
				}
			}
			if math.Abs(sum) > 1e-6 {
				t.Fatalf("gradient of %d logits sums to %v, want 0", n, sum)
			}
		}
	})
}

func TestNaNIsNeverHidden(t *testing.T) {
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for n := 1; n < 40; n++ {
			for at := range n {
				with := func(bad float32) []float32 {
					x := make([]float32, n)
					x[at] = bad
					return x
				}
				wantNaN := func(what string, got float32) {
					t.Helper()
					if got == got {
						t.Fatalf("%s of %d elements, one NaN: got %v, want NaN", what, n, got)
					}
				}
				sigmoid, tanh := activations(e, with(nan))
				wantNaN("σ", sigmoid[at])
				wantNaN("tanh", tanh[at])

				for _, bad := range []float32{nan, inf} { // with infinity, no softmax exists
					x := with(bad)
					wantNaN("loss", e.SoftmaxXent(x, make([]float32, n), 0, 1, true))
					for _, v := range x {
						wantNaN("gradient of logits", v)
					}
				}
				y := with(0)
				e.Axpy(y, with(nan), 0)
				wantNaN("Axpy", y[at])
				y = with(nan)
				e.Scale(y, 0)
				wantNaN("Scale", y[at])
				e.Mul(y, with(0), with(nan))
				wantNaN("Mul", y[at])
				wantNaN("SumSquares", float32(e.SumSquares(with(nan))))
				checkNaNBackward(t, e, n, at)
			}
		}
	})
}

// checkNaNBackward puts NaN in each input of LSTMBackward, and expects it in what
// depends on it.
func checkNaNBackward(t *testing.T, e compute.Engine, n, at int) {
	t.Helper()
	const i, j, f, o = 0, 1, 2, 3
	for name, outputs := range map[string][]int{"dh": {i, j, f, o}, "dc": {i, j, f}, "tanhC": {i, j, f, o}, "cPrev": {f}} {
		in := map[string][]float32{"dh": ones(n), "dc": ones(n), "tanhC": ones(n), "cPrev": ones(n)}
		in[name][at] = nan
		dz := make([]float32, 4*n)
		e.LSTMBackward(dz, ones(4*n), in["cPrev"], in["tanhC"], in["dh"], in["dc"])
		for _, gate := range outputs {
			if got := dz[gate*n+at]; got == got {
				t.Fatalf("LSTMBackward of %d cells, %s[%d] NaN: dz of gate %d = %v, want NaN", n, name, at, gate, got)
			}
		}
		if got := in["dc"][at]; name != "cPrev" && got == got {
			t.Fatalf("LSTMBackward of %d cells, %s[%d] NaN: dc = %v, want NaN", n, name, at, got)
		}
	}
}

func ones(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

// cells is the state of one row, forward and backward.
type cells struct{ z, bias, cPrev, c, tanhC, h, dz, dh, dc []float32 }

func newCells(r *rand.Rand, n int) cells {
	return cells{
		z: uniform(r, 4*n), bias: uniform(r, 4*n), cPrev: uniform(r, n),
		c: make([]float32, n), tanhC: make([]float32, n), h: make([]float32, n),
		dz: make([]float32, 4*n), dh: uniform(r, n), dc: uniform(r, n),
	}
}

// plain computes a row, forward and backward, as the contract writes it.
func (s cells) plain(forgetBias float32) (forward [4][]float64, backward [2][]float64) {
	n := len(s.h)
	c, tanhC, h, z := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, 4*n)
	dz, dc := make([]float64, 4*n), make([]float64, n)
	for u := range n {
		pre := func(gate int) float64 { return float64(s.z[gate*n+u]) + float64(s.bias[gate*n+u]) }
		i, j := 1/(1+math.Exp(-pre(0))), math.Tanh(pre(1))
		f, o := 1/(1+math.Exp(-pre(2)-float64(forgetBias))), 1/(1+math.Exp(-pre(3)))
		prev := float64(s.cPrev[u])
		c[u] = f*prev + i*j
		tanhC[u] = math.Tanh(c[u])
		h[u] = o * tanhC[u]
		z[u], z[n+u], z[2*n+u], z[3*n+u] = i, j, f, o

		dh := float64(s.dh[u])
		d := float64(s.dc[u]) + dh*o*(1-tanhC[u]*tanhC[u])
		dz[u], dz[n+u] = d*j*i*(1-i), d*i*(1-j*j)
		dz[2*n+u], dz[3*n+u] = d*prev*f*(1-f), dh*tanhC[u]*o*(1-o)
		dc[u] = d * f
	}
	return [4][]float64{z, c, tanhC, h}, [2][]float64{dz, dc}
}

func TestCellsAgreeWithTheirFormulas(t *testing.T) {
	r := random(t)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for n := 1; n < 80; n++ {
			forgetBias := float32(r.IntN(2))
			s := newCells(r, n)
			forward, backward := s.plain(forgetBias)
			e.LSTMForward(s.z, s.bias, s.cPrev, s.c, s.tanhC, s.h, forgetBias)
			near(t, "z", s.z, forward[0])
			near(t, "c", s.c, forward[1])
			near(t, "tanhC", s.tanhC, forward[2])
			near(t, "h", s.h, forward[3])

			again := slices.Clone(s.dc)
			e.LSTMBackward(s.dz, s.z, s.cPrev, s.tanhC, s.dh, s.dc)
			near(t, "dz", s.dz, backward[0])
			near(t, "dc", s.dc, backward[1])
			e.LSTMBackward(s.z, s.z, s.cPrev, s.tanhC, s.dh, again)
			if !sameBits(s.z, s.dz) || !sameBits(again, s.dc) {
				t.Fatalf("LSTMBackward of %d cells differs if dz is z", n)
			}
		}
	})
}

// near fails unless got is want, to rounding of numbers about 1.
func near(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	for i := range want {
		if diff := math.Abs(float64(got[i]) - want[i]); !(diff <= 5e-7) {
			t.Fatalf("%s[%d] of %d = %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
}

func TestVectorFunctionsAgreeWithTheirFormulas(t *testing.T) {
	r := random(t)
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		for n := range 80 {
			x, y, s := uniform(r, n), uniform(r, n), r.Float32()
			axpy, scaled, product, square := make([]float64, n), make([]float64, n), make([]float64, n), 0.0
			for i := range x {
				xi, yi := float64(x[i]), float64(y[i])
				axpy[i], scaled[i], product[i] = yi+float64(s)*xi, float64(s)*xi, xi*yi
				square += xi * xi
			}
			if got := e.SumSquares(x); math.Abs(got-square) > 1e-14*square {
				t.Fatalf("SumSquares of %d = %v, want %v", n, got, square)
			}
			got := slices.Clone(y)
			e.Axpy(got, x, s)
			near(t, "Axpy", got, axpy)
			got = slices.Clone(x)
			e.Scale(got, s)
			near(t, "Scale", got, scaled)
			for form := range 3 {
				x, y := slices.Clone(x), slices.Clone(y)
				dst := [][]float32{make([]float32, n), x, y}[form]
				e.Mul(dst, x, y)
				near(t, "Mul", dst, product)
			}
		}
	})
}

// In float32, a sum of this many squares would stop growing.
func TestSumOfSquaresIsExactWhereFloat32IsNot(t *testing.T) {
	x := ones(1<<24 + 5)
	x[0] = 1e6
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		if got, want := e.SumSquares(x), 1e12+float64(len(x)-1); got != want {
			t.Errorf("SumSquares = %v, want %v", got, want)
		}
	})
}

func TestElementwiseFunctionsOfShortSlicesPanic(t *testing.T) {
	eachEngine(t, func(t *testing.T, e compute.Engine) {
		x := func(n int) []float32 { return make([]float32, n) }
		for name, call := range map[string]func(){
			"z of LSTMForward":      func() { e.LSTMForward(x(7), x(8), x(2), x(2), x(2), x(2), 0) },
			"bias of LSTMForward":   func() { e.LSTMForward(x(8), x(7), x(2), x(2), x(2), x(2), 0) },
			"cPrev of LSTMForward":  func() { e.LSTMForward(x(8), x(8), x(1), x(2), x(2), x(2), 0) },
			"c of LSTMForward":      func() { e.LSTMForward(x(8), x(8), x(2), x(1), x(2), x(2), 0) },
			"tanhC of LSTMForward":  func() { e.LSTMForward(x(8), x(8), x(2), x(2), x(1), x(2), 0) },
			"dz of LSTMBackward":    func() { e.LSTMBackward(x(7), x(8), x(2), x(2), x(2), x(2)) },
			"z of LSTMBackward":     func() { e.LSTMBackward(x(8), x(7), x(2), x(2), x(2), x(2)) },
			"cPrev of LSTMBackward": func() { e.LSTMBackward(x(8), x(8), x(1), x(2), x(2), x(2)) },
			"tanhC of LSTMBackward": func() { e.LSTMBackward(x(8), x(8), x(2), x(1), x(2), x(2)) },
			"dc of LSTMBackward":    func() { e.LSTMBackward(x(8), x(8), x(2), x(2), x(2), x(1)) },
			"bias of SoftmaxXent":   func() { e.SoftmaxXent(x(3), x(2), 0, 1, true) },
			"target of SoftmaxXent": func() { e.SoftmaxXent(x(3), x(3), 3, 1, true) },
			"no logits":             func() { e.SoftmaxXent(nil, nil, 0, 1, true) },
			"y of Axpy":             func() { e.Axpy(x(2), x(3), 1) },
			"x of Mul":              func() { e.Mul(x(3), x(2), x(3)) },
			"y of Mul":              func() { e.Mul(x(3), x(3), x(2)) },
		} {
			wantPanic(t, name, call)
		}
	})
}
