package lstm

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"pushpull/model"
	"pushpull/model/compute"
)

// A dot is the operation whose cost is the inner product with g: it makes a
// cost of any operation's output.
type dot struct {
	signature
	g []float32
}

func newDot(shape tensor.Shape) *dot {
	return &dot{signature{"dot", []hm.Type{matrixType}, costType, tensor.ScalarShape()}, random(7, shape.TotalSize())}
}

func (d *dot) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	sum := 0.0
	for i, x := range floats(in[0]) {
		sum += float64(x) * float64(d.g[i])
	}
	return gorgonia.NewF64(sum), nil
}

func (d *dot) DiffWRT(int) []bool { return []bool{true} }

func (d *dot) SymDiff(in gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	dx, err := backward("d(dot)", tensorOf(d.g, in[0].Shape()...), nil, in[0], grad)
	return gorgonia.Nodes{dx}, err
}

// random returns n numbers in ±1.
func random(seed uint64, n int) []float32 {
	x := make([]float32, n)
	newStream(seed, 0).uniform(x, 1)
	return x
}

// variable returns a variable of numbers in ±1.
func variable(seed uint64, name string, shape ...int) *model.Variable {
	n := tensor.Shape(shape).TotalSize()
	return &model.Variable{Name: name, Shape: shape, Value: random(seed, n), Grad: make([]float32, n)}
}

// A gradientCase is an operation, its inputs in order, and what must be done
// before each run.
type gradientCase struct {
	op     gorgonia.SDOp
	inputs []*tensor.Dense
	before func()
}

func gradientCases(e compute.Engine, threads int) map[string]gradientCase {
	a := arithmetic{e, threads}
	const steps, batch, in, width, vocab = 3, 2, 3, 5, 7
	p := newPacks(e, 1)
	table := variable(1, "embedding", vocab, width)
	kernel, bias := variable(2, "lstm0_kernel", in+width, 4*width), variable(3, "lstm0_bias", 4*width)
	weights, wordBias := variable(4, "softmax_w", width, vocab), variable(5, "softmax_b", vocab)
	drop := newDropout(a, "dropout", 0.6, newStream(1, 1), steps*batch, width)
	drop.sample()
	drop.draw = func() {} // the same mask for every run
	tensorOfVariable := func(v *model.Variable) *tensor.Dense { return tensorOf(v.Value, v.Shape...) }
	matrix := func(seed uint64, rows, cols int) *tensor.Dense { return tensorOf(random(seed, rows*cols), rows, cols) }
	return map[string]gradientCase{
		"embedding": {
			op:     newEmbedding(a, table, 5),
			inputs: []*tensor.Dense{tensorOfVariable(table), tensorOf([]int32{6, 1, 6, 0, 1}, 5)},
		},
		"dropout": {
			op:     drop,
			inputs: []*tensor.Dense{matrix(6, steps*batch, width)},
		},
		"layer": {
			op: newLayer(a, "lstm0", kernel, bias, &p.layers[0], 0.3, steps, batch),
			inputs: []*tensor.Dense{
				matrix(6, steps*batch, in), tensorOfVariable(kernel), tensorOfVariable(bias),
				matrix(7, batch, width), matrix(8, batch, width),
			},
			before: p.expire,
		},
		"projection": {
			op: newProjection(a, weights, wordBias, &p.projection, steps*batch, batch),
			inputs: []*tensor.Dense{
				matrix(6, steps*batch, width), tensorOfVariable(weights), tensorOfVariable(wordBias),
				tensorOf([]int32{0, 6, 3, 3, 1, 2}, steps*batch),
			},
			before: p.expire,
		},
	}
}

func TestEachOperationHasTheGradientOfFiniteDifferences(t *testing.T) {
	for _, engine := range engines(t) {
		for _, threads := range []int{1, 2} {
			for name, c := range gradientCases(engine, threads) {
				t.Run(fmt.Sprintf("engine=%s/threads=%d/op=%s", engine.Name(), threads, name), func(t *testing.T) {
					c.check(t)
				})
			}
		}
	}
}

// check compares the gradients by all inputs that have one with central
// differences of the cost.
func (c gradientCase) check(t *testing.T) {
	n := &network{graph: gorgonia.NewGraph()}
	var inputs, wrt gorgonia.Nodes
	var values [][]float32
	for i, v := range c.inputs {
		node := n.input(fmt.Sprintf("in%d", i), v)
		inputs = append(inputs, node)
		if c.op.DiffWRT(len(c.inputs))[i] {
			wrt, values = append(wrt, node), append(values, floats(v))
		}
	}
	b := builder{network: n}
	n.cost = b.apply(c.op, inputs...)
	if n.cost != nil && !n.cost.IsScalar() {
		n.cost = b.apply(newDot(n.cost.Shape()), n.cost)
	}
	if b.err != nil {
		t.Fatal(b.err)
	}
	n.variables = wrt
	if err := n.differentiate(); err != nil {
		t.Fatal(err)
	}
	if err := n.compile(); err != nil {
		t.Fatal(err)
	}
	cost := func() float64 {
		if c.before != nil {
			c.before()
		}
		cost, err := n.run()
		if err != nil {
			t.Fatal(err)
		}
		return cost
	}
	cost()
	var gradients [][]float32 // copies, since finding differences runs the graph
	for _, node := range n.gradients {
		g := slices.Clone(floats(node.Value()))
		if e, ok := c.op.(*embedding); ok {
			g = dense(e.table)
		}
		gradients = append(gradients, g)
	}
	for i, got := range gradients {
		want := differences(values[i], cost)
		if d := deviation(got, want); !(d < 2e-4) {
			t.Errorf("gradient of %v deviates by %.2g: got %v, want %v", n.variables[i], d, got, want)
		}
	}
}

// differences returns the derivative of f by each element of x, by central
// differences.
func differences(x []float32, f func() float64) []float64 {
	const h = 1.0 / 128
	d := make([]float64, len(x))
	for i, v := range x {
		x[i] = v + h
		up := f()
		x[i] = v - h
		down := f()
		x[i] = v
		d[i] = (up - down) / (2 * h)
	}
	return d
}

func TestATinyModelHasTheGradientOfFiniteDifferences(t *testing.T) {
	for _, engine := range engines(t) {
		t.Run("engine="+engine.Name(), func(t *testing.T) {
			m, err := New(Config{Vocab: 6, Layers: 2, Hidden: 3, Batch: 2, Unroll: 3, InitScale: 0.8, ForgetBias: 0.5, Keep: 0.7, Engine: engine}, []int32{5, 1, 2, 5, 0, 3, 3, 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range m.training.dropouts {
				d.sample()
				d.draw = func() {}
			}
			start := m.training.state
			cost := func() float64 {
				for i, s := range start {
					copy(s.h, random(uint64(i), len(s.h)))
					copy(s.c, random(uint64(i+9), len(s.c)))
				}
				m.packs.expire()
				c, err := m.training.run()
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			m.batches.Read(0, m.training.x, m.training.y)
			cost()
			var gradients [][]float32 // copies, since finding differences runs the graph
			for _, v := range m.Variables() {
				gradients = append(gradients, slices.Clone(dense(v)))
			}
			for i, v := range m.Variables() {
				if d := deviation(gradients[i], differences(v.Value, cost)); !(d < 2e-3) {
					t.Errorf("gradient of %s deviates by %.2g", v.Name, d)
				}
			}
		})
	}
}

func TestAProjectionScalesItsGradientByThatOfTheCost(t *testing.T) {
	c := gradientCases(compute.Best(), 1)["projection"]
	p := c.op.(*projection)
	grads := func(seed float64) [][]float32 {
		c.before()
		in := make([]gorgonia.Value, len(c.inputs))
		for i, v := range c.inputs {
			in[i] = v
		}
		p.partial, p.dh = make([]float32, blocks*p.vocab), newTensor(p.rows, p.width)
		if _, err := p.Do(in...); err != nil {
			t.Fatal(err)
		}
		p.backward([]gorgonia.Value{in[0], in[1], p.cost, gorgonia.NewF64(seed)})
		var all [][]float32
		for _, g := range [][]float32{floats(p.dh), p.weights.Grad, p.bias.Grad} {
			all = append(all, slices.Clone(g))
		}
		return all
	}
	once, thrice := grads(1), grads(3)
	for i := range once {
		var want []float64
		for _, v := range once[i] {
			want = append(want, 3*float64(v))
		}
		if d := deviation(thrice[i], want); !(d < 1e-6) {
			t.Errorf("gradient %d for a cost that counts threefold deviates by %.2g", i, d)
		}
	}
}

func TestDropoutKeepsWhatItSays(t *testing.T) {
	const keep, n = 0.35, 200_000
	var masks [2][]float32
	for i, threads := range []int{1, 3} {
		d := newDropout(arithmetic{compute.Best(), threads}, "dropout", keep, newStream(5, 1), n/100, 100)
		d.draw()
		first := slices.Clone(d.mask)
		d.draw()
		if sum(first) == sum(d.mask) {
			t.Errorf("two draws keep the same number of values, %v: want different masks", sum(first)*keep)
		}
		masks[i] = first
		got, want := sum(first)*keep/n, keep
		if math.Abs(got-want) > 5*math.Sqrt(keep*(1-keep)/n) {
			t.Errorf("%d threads: dropout keeps %.4f of %d values, want %.4f", threads, got, n, want)
		}
		for _, v := range first {
			if v != 0 && v != float32(1/float64(keep)) {
				t.Fatalf("a mask has a %v: want 0 or %v", v, 1/keep)
			}
		}
	}
	for i, v := range masks[0] {
		if masks[1][i] != v {
			t.Fatalf("mask[%d] = %v with one thread, %v with three", i, v, masks[1][i])
		}
	}
}

func sum(x []float32) float64 {
	s := 0.0
	for _, v := range x {
		s += float64(v)
	}
	return s
}

func TestPassesOfAGraphHaveNamesOfTheirOwn(t *testing.T) {
	m, err := New(Config{Vocab: 5, Layers: 3, Hidden: 2, Batch: 1, Unroll: 2, InitScale: 0.1, Keep: 0.5}, []int32{0, 1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	operations := 0
	for _, n := range m.training.graph.AllNodes() {
		op, ok := n.Op().(fmt.Stringer)
		if !ok || n.Op() == nil {
			continue
		}
		operations++
		if seen[op.String()] {
			t.Errorf("two operations are named %q: the graph would merge them", op)
		}
		seen[op.String()] = true
	}
	// Forward and backward: embedding, 4 dropouts, 3 layers, projection; two picks for each layer and the projection.
	if got, want := operations, 2*9+2*4+1; got != want { // and the 1 that the backward pass begins with
		t.Errorf("the graph has %d operations, want %d: %v", got, want, seen)
	}
}
