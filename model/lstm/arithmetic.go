package lstm

import "pushpull/model/compute"

// arithmetic is the engine and how many goroutines may use it.
type arithmetic struct {
	compute.Engine
	threads int
}

// parallel calls f on pieces of [0, n), at the same time if there are threads.
func (a arithmetic) parallel(n int, f func(lo, hi int)) { compute.Parallel(a.threads, n, f) }

// A packed is a weight matrix made ready for products.
type packed struct {
	compute.Packed
	fresh bool // it holds the weights as they are now
}

// pack copies the k by n matrix op(w) unless that is what it holds.
func (p *packed) pack(threads int, trans bool, k, n int, w []float32, ld int) {
	if !p.fresh {
		p.Pack(threads, trans, k, n, w, ld)
		p.fresh = true
	}
}

// packs is the memory that weights are packed into. The networks of a model
// share it, as they run one after another.
type packs struct {
	layers     []layerPacks
	projection packed
}

// layerPacks is a layer's kernel: the rows for its input, which only an
// evaluation packs, those for h, and those for h transposed.
type layerPacks struct{ input, hidden, hiddenT packed }

func newPacks(e compute.Engine, layers int) *packs {
	p := &packs{layers: make([]layerPacks, layers), projection: packed{Packed: e.NewPacked()}}
	for i := range p.layers {
		l := &p.layers[i]
		l.input.Packed, l.hidden.Packed, l.hiddenT.Packed = e.NewPacked(), e.NewPacked(), e.NewPacked()
	}
	return p
}

// expire says that weights may have changed.
func (p *packs) expire() {
	for i := range p.layers {
		l := &p.layers[i]
		l.input.fresh, l.hidden.fresh, l.hiddenT.fresh = false, false, false
	}
	p.projection.fresh = false
}
