package lstm

import (
	"fmt"
	"hash"
	"hash/fnv"
	"slices"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The types of what flows along the graph's edges.
var (
	wordType   hm.Type = gorgonia.TensorType{Dims: 1, Of: tensor.Int32}
	vectorType hm.Type = gorgonia.TensorType{Dims: 1, Of: tensor.Float32}
	matrixType hm.Type = gorgonia.TensorType{Dims: 2, Of: tensor.Float32}
	costType   hm.Type = tensor.Float64
)

// A signature is what Gorgonia asks of an operation besides its work. All our
// operations write to memory of their own, made before the graph runs, so that
// a run allocates nothing and no value is overwritten by another operation.
type signature struct {
	// name must be unique in its graph: Gorgonia merges operations of equal name
	// and inputs into one.
	name   string
	inputs []hm.Type
	output hm.Type
	shape  tensor.Shape
}

func (s *signature) Arity() int { return len(s.inputs) }
func (s *signature) Type() hm.Type {
	return hm.NewFnType(append(slices.Clone(s.inputs), s.output)...)
}
func (s *signature) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return s.shape.Clone(), nil
}
func (s *signature) ReturnsPtr() bool      { return false }
func (s *signature) CallsExtern() bool     { return false }
func (s *signature) OverwritesInput() int  { return -1 }
func (s *signature) String() string        { return s.name }
func (s *signature) WriteHash(h hash.Hash) { fmt.Fprint(h, s.name) }
func (s *signature) Hashcode() uint32 {
	h := fnv.New32a()
	s.WriteHash(h)
	return h.Sum32()
}

// A function is an operation that nobody differentiates: a backward pass, or,
// without run, the pick of a result that an earlier operation left beside its
// output. An operation has one output; picks are how it has more.
type function struct {
	signature
	run    func(in []gorgonia.Value)
	result gorgonia.Value
}

// Do runs the function.
func (f *function) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	if f.run != nil {
		f.run(in)
	}
	return f.result, nil
}

// backward adds a function to the graph whose result is the gradient named.
func backward(name string, result *tensor.Dense, run func(in []gorgonia.Value), inputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	f := &function{signature{name: name, output: matrixType, shape: result.Shape()}, run, result}
	for _, n := range inputs {
		f.inputs = append(f.inputs, n.Type())
	}
	return gorgonia.ApplyOp(f, inputs...)
}

// pick adds the gradient named, which the function behind from left in result.
func pick(name string, result *tensor.Dense, from *gorgonia.Node) (*gorgonia.Node, error) {
	output := matrixType
	if result.Dims() == 1 {
		output = vectorType
	}
	f := &function{signature{name: name, inputs: []hm.Type{from.Type()}, output: output, shape: result.Shape()}, nil, result}
	return gorgonia.ApplyOp(f, from)
}

// tensorOf returns a tensor whose memory is data.
func tensorOf[E float32 | int32](data []E, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}

// newTensor returns a tensor of zeros.
func newTensor(shape ...int) *tensor.Dense {
	return tensorOf(allocate(tensor.Shape(shape).TotalSize()), shape...)
}

// floats returns a tensor's memory.
func floats(v gorgonia.Value) []float32 { return v.Data().([]float32) }

// words returns the memory of a tensor of words.
func words(v gorgonia.Value) []int32 { return v.Data().([]int32) }
