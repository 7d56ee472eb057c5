package ps_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pushpull/ps"
)

var optimizers = []ps.Optimizer{ps.SGD{}, ps.Momentum{}, ps.Adagrad{}, ps.Adam{}}

// slotsOf returns fresh slots for n weights.
func slotsOf(opt ps.Optimizer, n int) [][]float32 {
	slots := make([][]float32, opt.Slots())
	for i := range slots {
		slots[i] = slices.Repeat([]float32{opt.SlotInit(i)}, n)
	}
	return slots
}

func normals(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// Two steps from weight 1 with gradients 0.5 and -0.25, computed by hand from
// the formulas in the optimizers' comments.
func TestOptimizerSteps(t *testing.T) {
	for _, test := range []struct {
		name  string
		opt   ps.Optimizer
		rate  float32
		want  [2]float64
		slots [2][]float64
	}{
		{
			// 1 - 0.1*0.5 = 0.95; 0.95 + 0.1*0.25 = 0.975
			"sgd", ps.SGD{}, 0.1, [2]float64{0.95, 0.975}, [2][]float64{{}, {}},
		}, {
			// v = 0.5; v = 0.9*0.5 - 0.25 = 0.2; w = 0.95 - 0.02
			"momentum", ps.Momentum{}, 0.1, [2]float64{0.95, 0.93}, [2][]float64{{0.5}, {0.2}},
		}, {
			// v = 0.5; v = 0.5*0.5 - 0.25 = 0
			"momentum with mu 0.5", ps.Momentum{Mu: 0.5}, 0.1, [2]float64{0.95, 0.95}, [2][]float64{{0.5}, {0}},
		}, {
			// a = 0.1+0.25 = 0.35; w = 1 - 0.05/sqrt(0.35); a = 0.4125; w += 0.025/sqrt(0.4125)
			"adagrad", ps.Adagrad{}, 0.1, [2]float64{0.9154845745, 0.9544094951}, [2][]float64{{0.35}, {0.4125}},
		}, {
			// a = 2+0.25 = 2.25: w = 1 - 0.05/1.5
			"adagrad from 2", ps.Adagrad{Initial: 2}, 0.1, [2]float64{0.9666666667, 0.9831068177}, [2][]float64{{2.25}, {2.3125}},
		}, {
			// m = 0.05, v = 0.00025: the first step is the rate itself. Then
			// m = 0.045-0.025 = 0.02, v = 0.00024975+0.0000625 = 0.00031225;
			// w = 0.9 - 0.1*sqrt(1-0.998001)/(1-0.81)*0.02/sqrt(0.00031225)
			"adam", ps.Adam{}, 0.1, [2]float64{0.9000000632, 0.8733663654}, [2][]float64{{0.05, 0.00025}, {0.02, 0.00031225}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, slots := []float32{1}, slotsOf(test.opt, 1)
			for i, g := range []float32{0.5, -0.25} {
				test.opt.Apply(int64(i+1), test.rate, w, []float32{g}, slots)
				if got, want := float64(w[0]), test.want[i]; math.Abs(got-want) > 2e-6 {
					t.Errorf("weight after step %d = %.9f, want %.9f", i+1, got, want)
				}
				for j, want := range test.slots[i] {
					if got := float64(slots[j][0]); math.Abs(got-want) > 1e-7 {
						t.Errorf("slot %d after step %d = %.9f, want %.9f", j, i+1, got, want)
					}
				}
			}
		})
	}
}

func TestZeroValuesMeanTheDefaults(t *testing.T) {
	for _, pair := range [][2]ps.Optimizer{
		{ps.Momentum{}, ps.Momentum{Mu: 0.9}},
		{ps.Adagrad{}, ps.Adagrad{Initial: 0.1}},
		{ps.Adam{}, ps.Adam{Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}},
	} {
		var w [2][]float32
		for i, opt := range pair {
			w[i] = []float32{1, -2, 3}
			slots := slotsOf(opt, 3)
			for step := range 3 {
				opt.Apply(int64(step+1), 0.1, w[i], []float32{0.1, 2, float32(step)}, slots)
			}
		}
		if diff := cmp.Diff(w[1], w[0]); diff != "" {
			t.Errorf("%T: zero value differs (-want +got):\n%s", pair[0], diff)
		}
	}
}

// Updating a run at once, in pieces, or element by element leaves the same bits.
func TestWholeEqualsParts(t *testing.T) {
	const n = 37
	for _, opt := range optimizers {
		for _, piece := range []int{1, 2, 3, 5, 16, 36} {
			t.Run(fmt.Sprintf("%s/piece=%d", opt.Name(), piece), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 2))
				whole := normals(rng, n)
				parts := slices.Clone(whole)
				wholeSlots, partSlots := slotsOf(opt, n), slotsOf(opt, n)
				for step := int64(1); step <= 5; step++ {
					g := normals(rng, n)
					opt.Apply(step, 0.3, whole, g, wholeSlots)
					for lo := 0; lo < n; lo += piece {
						hi := min(lo+piece, n)
						cut := make([][]float32, len(partSlots))
						for i := range cut {
							cut[i] = partSlots[i][lo:hi]
						}
						opt.Apply(step, 0.3, parts[lo:hi], g[lo:hi], cut)
					}
				}
				if diff := cmp.Diff(bits(whole), bits(parts)); diff != "" {
					t.Errorf("weights differ (-whole +parts):\n%s", diff)
				}
			})
		}
	}
}

// A lazy optimizer may skip zeros; one that is not must not.
func TestLazyMeansThatZeroChangesNothing(t *testing.T) {
	for _, opt := range optimizers {
		w, slots := []float32{1, -2, 0, float32(math.Copysign(0, -1))}, slotsOf(opt, 4)
		opt.Apply(1, 0.1, w, []float32{1, 2, 3, 4}, slots)
		w[3] = float32(math.Copysign(0, -1))
		wantW, wantSlots := slices.Clone(w), make([][]float32, len(slots))
		for i := range slots {
			wantSlots[i] = slices.Clone(slots[i])
		}
		opt.Apply(2, 0.1, w, make([]float32, 4), slots)
		same := cmp.Equal(bits(w), bits(wantW)) && cmp.Equal(slots, wantSlots)
		if got, want := same, opt.Lazy(); got != want {
			t.Errorf("%s: a gradient of zero changed nothing: %v, Lazy: %v", opt.Name(), got, want)
		}
	}
}

// f(w) = sum of curvature/2 * (w-target)^2, minimized from zero.
func TestOptimizersMinimizeAQuadratic(t *testing.T) {
	target := []float32{3, -1, 0.5}
	curvature := []float32{1, 0.5, 2}
	for _, test := range []struct {
		opt   ps.Optimizer
		rate  float32
		steps int64
	}{
		{ps.SGD{}, 0.4, 100}, {ps.Momentum{}, 0.05, 400}, {ps.Adagrad{}, 1, 400}, {ps.Adam{}, 0.05, 2000},
	} {
		w, g, slots := make([]float32, 3), make([]float32, 3), slotsOf(test.opt, 3)
		for step := range test.steps {
			for i := range g {
				g[i] = curvature[i] * (w[i] - target[i])
			}
			test.opt.Apply(step+1, test.rate, w, g, slots)
		}
		for i := range w {
			if math.Abs(float64(w[i]-target[i])) > 1e-3 {
				t.Errorf("%s: after %d steps w = %v, want %v", test.opt.Name(), test.steps, w, target)
				break
			}
		}
	}
}

func bits(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i := range x {
		b[i] = math.Float32bits(x[i])
	}
	return b
}

func BenchmarkApply(b *testing.B) {
	const n = 1 << 20
	for _, opt := range optimizers {
		b.Run(fmt.Sprintf("optimizer=%s/elems=%d", opt.Name(), n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			w, g, slots := normals(rng, n), normals(rng, n), slotsOf(opt, n)
			b.SetBytes(4 * n)
			b.ReportAllocs()
			for b.Loop() {
				opt.Apply(10, 1e-6, w, g, slots)
			}
		})
	}
}
