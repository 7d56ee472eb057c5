package lstm

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"pushpull/model"
)

// A network is the graph for one size of batch: memory for a batch and its
// activations, over the weights of a model, and the machine that runs it.
type network struct {
	batch, unroll int
	x, y          []int32 // the batch to run, time-major
	state         []state // of each layer, before the batch

	embedding  *embedding
	dropouts   []*dropout // of the embedding, then of each layer; none if nothing is dropped
	layers     []*layer
	projection *projection

	graph     *gorgonia.ExprGraph
	variables gorgonia.Nodes
	cost      *gorgonia.Node
	gradients gorgonia.Nodes // of the variables; nil in a network that does not train
	machine   gorgonia.VM
}

// A state is what a layer carries from one batch to the next: h and c, [batch,
// hidden].
type state struct{ h, c []float32 }

// newNetwork builds the graph forward. The variables are in the order of
// [newVariables]; keep is dropout's.
func newNetwork(cfg Config, variables []*model.Variable, p *packs, keep float64, batch, unroll int) (*network, error) {
	n := &network{batch: batch, unroll: unroll, graph: gorgonia.NewGraph()}
	n.x, n.y = make([]int32, batch*unroll), make([]int32, batch*unroll)
	for _, v := range variables {
		n.variables = append(n.variables, n.input(v.Name, tensorOf(v.Value, v.Shape...)))
	}
	b := builder{network: n}
	a := arithmetic{cfg.Engine, cfg.Threads}
	rows := batch * unroll
	drop := func(name string, x *gorgonia.Node) *gorgonia.Node {
		if keep == 1 {
			return x
		}
		d := newDropout(a, name, keep, newStream(cfg.Seed, dropoutStream(len(n.dropouts))), rows, cfg.Hidden)
		n.dropouts = append(n.dropouts, d)
		return b.apply(d, x)
	}

	n.embedding = newEmbedding(a, variables[0], rows)
	x := b.apply(n.embedding, n.variables[0], n.input("x", tensorOf(n.x, rows)))
	x = drop("dropout", x)
	for i := range cfg.Layers {
		s := state{make([]float32, batch*cfg.Hidden), make([]float32, batch*cfg.Hidden)}
		h := n.input(fmt.Sprintf("h%d", i), tensorOf(s.h, batch, cfg.Hidden))
		c := n.input(fmt.Sprintf("c%d", i), tensorOf(s.c, batch, cfg.Hidden))
		kernel, bias := 1+2*i, 2+2*i
		l := newLayer(a, fmt.Sprintf("lstm%d", i), variables[kernel], variables[bias], &p.layers[i], cfg.ForgetBias, unroll, batch)
		n.state, n.layers = append(n.state, s), append(n.layers, l)
		x = b.apply(l, x, n.variables[kernel], n.variables[bias], h, c)
		x = drop(fmt.Sprintf("dropout%d", i), x)
	}
	weights, bias := len(variables)-2, len(variables)-1
	n.projection = newProjection(a, variables[weights], variables[bias], &p.projection, rows, batch)
	n.cost = b.apply(n.projection, x, n.variables[weights], n.variables[bias], n.input("y", tensorOf(n.y, rows)))
	if b.err != nil {
		return nil, fmt.Errorf("lstm: graph: %w", b.err)
	}
	return n, nil
}

// input adds a node whose value is the tensor.
func (n *network) input(name string, value *tensor.Dense) *gorgonia.Node {
	return gorgonia.NewTensor(n.graph, value.Dtype(), value.Dims(),
		gorgonia.WithShape(value.Shape()...), gorgonia.WithName(name), gorgonia.WithValue(value))
}

// A builder applies operations until one fails.
type builder struct {
	network *network
	err     error
}

func (b *builder) apply(op gorgonia.Op, inputs ...*gorgonia.Node) *gorgonia.Node {
	if b.err != nil {
		return nil
	}
	n, err := gorgonia.ApplyOp(op, inputs...)
	b.err = err
	return n
}

// differentiate has Gorgonia add the backward pass to the graph.
func (n *network) differentiate() error {
	var err error
	if n.gradients, err = gorgonia.Grad(n.cost, n.variables...); err != nil {
		return fmt.Errorf("lstm: differentiate: %w", err)
	}
	return nil
}

// reserve packs what a step of training packs, for the memory that takes.
func (n *network) reserve() {
	for _, l := range n.layers {
		l.pack(l.kernel.Value)
		l.packBackward(l.kernel.Value)
	}
}

// compile makes the machine, once the graph is complete.
func (n *network) compile() error {
	program, registers, err := gorgonia.Compile(n.graph)
	if err != nil {
		return fmt.Errorf("lstm: compile: %w", err)
	}
	n.machine = gorgonia.NewTapeMachine(n.graph, gorgonia.WithPrecompiled(program, registers))
	return nil
}

// run computes the cost of the batch in x and y, and the gradients if the
// network has them, and carries the state on to the next batch.
func (n *network) run() (cost float64, err error) {
	n.machine.Reset() // else it does nothing
	if err := n.machine.RunAll(); err != nil {
		return 0, fmt.Errorf("lstm: run: %w", err)
	}
	for i, l := range n.layers {
		h, c := l.final()
		copy(n.state[i].h, h)
		copy(n.state[i].c, c)
	}
	return n.cost.Value().Data().(float64), nil
}

// reset sets the state to zero.
func (n *network) reset() {
	for _, s := range n.state {
		clear(s.h)
		clear(s.c)
	}
}
