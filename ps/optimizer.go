package ps

import "math"

// An Optimizer updates weights in place from a gradient. It holds no state of
// its own: what it must remember lives in slots, which the shard owns, saves
// and restores, so that one Optimizer serves every part. It works element by
// element: updating a run at once or in pieces leaves the same bits.
type Optimizer interface {
	// Name returns the optimizer's name as it stands in checkpoints. Slots of one
	// name mean the same.
	Name() string
	// Slots returns the number of arrays, each as long as the weights, that Apply
	// keeps between steps.
	Slots() int
	// SlotInit returns the value that all elements of a slot begin with.
	SlotInit(slot int) float32
	// Lazy reports whether a gradient of zero changes nothing, so that Apply need
	// not be called for rows without gradient.
	Lazy() bool
	// Apply makes update t, counted from 1, of the weights w. The slices have one
	// length; slots has as many as Slots says. It keeps none of them.
	Apply(t int64, rate float32, w, g []float32, slots [][]float32)
}

// The products below are converted to float32 where a sum follows, which keeps
// the compiler from fusing the two: an update leaves the same bits on every
// architecture.

// SGD is plain gradient descent: w -= rate*g.
type SGD struct{}

// Name returns "sgd".
func (SGD) Name() string { return "sgd" }

// Slots returns 0.
func (SGD) Slots() int { return 0 }

// SlotInit returns 0.
func (SGD) SlotInit(int) float32 { return 0 }

// Lazy returns true.
func (SGD) Lazy() bool { return true }

// Apply makes one update.
func (SGD) Apply(_ int64, rate float32, w, g []float32, _ [][]float32) {
	for len(g) >= 8 && len(w) >= 8 {
		a, b := (*[8]float32)(w), (*[8]float32)(g)
		a[0] -= float32(rate * b[0])
		a[1] -= float32(rate * b[1])
		a[2] -= float32(rate * b[2])
		a[3] -= float32(rate * b[3])
		a[4] -= float32(rate * b[4])
		a[5] -= float32(rate * b[5])
		a[6] -= float32(rate * b[6])
		a[7] -= float32(rate * b[7])
		w, g = w[8:], g[8:]
	}
	for i, x := range g {
		w[i] -= float32(rate * x)
	}
}

// Momentum is gradient descent with a velocity, v = mu*v + g; w -= rate*v, as
// TensorFlow's MomentumOptimizer without Nesterov's correction. Note that the
// rate is outside the velocity.
type Momentum struct {
	Mu float64 // 0 means 0.9
}

// Name returns "momentum".
func (Momentum) Name() string { return "momentum" }

// Slots returns 1, the velocity.
func (Momentum) Slots() int { return 1 }

// SlotInit returns 0.
func (Momentum) SlotInit(int) float32 { return 0 }

// Lazy returns false: the velocity goes on without a gradient.
func (Momentum) Lazy() bool { return false }

// Apply makes one update.
func (o Momentum) Apply(_ int64, rate float32, w, g []float32, slots [][]float32) {
	mu := float32(or(o.Mu, 0.9))
	v := slots[0][:len(g)]
	w = w[:len(g)]
	for i, x := range g {
		vi := float32(mu*v[i]) + x
		v[i] = vi
		w[i] -= float32(rate * vi)
	}
}

// Adagrad divides the rate by the root of the sum of the squares of all
// gradients so far: a += g*g; w -= rate*g/sqrt(a) (Duchi, Hazan, Singer 2011).
// As TensorFlow's AdagradOptimizer it begins with a small sum instead of adding
// an epsilon.
type Adagrad struct {
	Initial float64 // the sum to begin with; 0 means 0.1
}

// Name returns "adagrad".
func (Adagrad) Name() string { return "adagrad" }

// Slots returns 1, the sum of squares.
func (Adagrad) Slots() int { return 1 }

// SlotInit returns the sum to begin with.
func (o Adagrad) SlotInit(int) float32 { return float32(or(o.Initial, 0.1)) }

// Lazy returns true.
func (Adagrad) Lazy() bool { return true }

// Apply makes one update.
func (o Adagrad) Apply(_ int64, rate float32, w, g []float32, slots [][]float32) {
	a := slots[0][:len(g)]
	w = w[:len(g)]
	for i, x := range g {
		ai := a[i] + float32(x*x)
		a[i] = ai
		w[i] -= float32(rate*x) / sqrt(ai)
	}
}

// Adam is the optimizer of Kingma and Ba, "Adam: A Method for Stochastic
// Optimization", 2015, in the order of computation that the end of its section
// 2 proposes and TensorFlow's AdamOptimizer has:
//
//	m += (1-beta1)*(g-m);  v += (1-beta2)*(g*g-v)
//	w -= rate * sqrt(1-beta2^t)/(1-beta1^t) * m / (sqrt(v)+epsilon)
//
// so that epsilon is the paper's "epsilon hat".
type Adam struct {
	Beta1   float64 // 0 means 0.9
	Beta2   float64 // 0 means 0.999
	Epsilon float64 // 0 means 1e-8
}

// Name returns "adam".
func (Adam) Name() string { return "adam" }

// Slots returns 2, the moving averages of the gradient and of its square.
func (Adam) Slots() int { return 2 }

// SlotInit returns 0.
func (Adam) SlotInit(int) float32 { return 0 }

// Lazy returns false: the averages decay without a gradient.
func (Adam) Lazy() bool { return false }

// Apply makes one update.
func (o Adam) Apply(t int64, rate float32, w, g []float32, slots [][]float32) {
	beta1, beta2 := or(o.Beta1, 0.9), or(o.Beta2, 0.999)
	unbias := math.Sqrt(1-math.Pow(beta2, float64(t))) / (1 - math.Pow(beta1, float64(t)))
	alpha := float32(float64(rate) * unbias)
	c1, c2, eps := float32(1-beta1), float32(1-beta2), float32(or(o.Epsilon, 1e-8))
	m, v := slots[0][:len(g)], slots[1][:len(g)]
	w = w[:len(g)]
	for i, x := range g {
		mi := m[i] + float32(c1*(x-m[i]))
		vi := v[i] + float32(c2*(float32(x*x)-v[i]))
		m[i], v[i] = mi, vi
		w[i] -= float32(alpha*mi) / (sqrt(vi) + eps)
	}
}

// sqrt is one instruction: the compiler knows the pattern.
func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// or returns x, or def if x is zero.
func or(x, def float64) float64 {
	if x == 0 {
		return def
	}
	return x
}
