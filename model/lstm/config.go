package lstm

import (
	"fmt"
	"math"

	"pushpull/model/compute"
)

// Config describes a model. It is plain data; [New] checks it.
type Config struct {
	Vocab  int // words: token ids are from 0 to Vocab-1
	Layers int // LSTM layers, at least 1
	Hidden int // width of the embedding and of each layer
	Batch  int // sequences read side by side
	Unroll int // time steps of a batch

	InitScale  float64 // initial weights are uniform in ±InitScale; LSTM biases are zero
	ForgetBias float64 // added to the forget gate when computing, not stored; 0 in the tutorial
	Keep       float64 // probability that dropout keeps a value, in (0, 1]; 1 is no dropout
	MaxNorm    float64 // gradients are scaled down to this global norm; 0 leaves them as they are
	Norm       Norm    // how MaxNorm counts the embedding

	// Seed determines initial weights and dropout. Initial weights depend on
	// nothing else.
	Seed    uint64
	Threads int            // goroutines to compute with; 0 means 1
	Engine  compute.Engine // nil means compute.Best()
}

// A Norm is a way to take the norm of all gradients together.
type Norm int

const (
	// DenseNorm is the Euclidean norm of the gradient as it is: a word that
	// occurs twice in a batch has one row, the sum of two.
	DenseNorm Norm = iota
	// SliceNorm is TensorFlow's: it takes the embedding's gradient before rows of
	// the same word are added, so the norm differs where a word repeats. The
	// gradient itself is the same.
	SliceNorm
)

// String returns "dense" or "slices".
func (n Norm) String() string {
	switch n {
	case DenseNorm:
		return "dense"
	case SliceNorm:
		return "slices"
	}
	return fmt.Sprintf("Norm(%d)", int(n))
}

// maxElements bounds the elements of one variable or activation, so that sizes
// cannot overflow and an absurd one is an error rather than a crash.
const maxElements = 1 << 31

// validate checks each field by itself, then the sizes they make together.
func (c Config) validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{{"Vocab", c.Vocab}, {"Layers", c.Layers}, {"Hidden", c.Hidden}, {"Batch", c.Batch}, {"Unroll", c.Unroll}} {
		if f.value < 1 || f.value > math.MaxInt32 {
			return fmt.Errorf("lstm: Config.%s is %d: want at least 1 and at most %d", f.name, f.value, math.MaxInt32)
		}
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"InitScale", c.InitScale}, {"MaxNorm", c.MaxNorm}} {
		if !(f.value >= 0 && f.value <= math.MaxFloat32) {
			return fmt.Errorf("lstm: Config.%s is %v: want a finite number, 0 or more", f.name, f.value)
		}
	}
	switch {
	case !(math.Abs(c.ForgetBias) <= math.MaxFloat32):
		return fmt.Errorf("lstm: Config.ForgetBias is %v: want a finite number", c.ForgetBias)
	case !(c.Keep > 0 && c.Keep <= 1):
		return fmt.Errorf("lstm: Config.Keep is %v: want more than 0 and at most 1, which is no dropout", c.Keep)
	case c.Norm != DenseNorm && c.Norm != SliceNorm:
		return fmt.Errorf("lstm: Config.Norm is %v: want DenseNorm or SliceNorm", c.Norm)
	case c.Threads < 0:
		return fmt.Errorf("lstm: Config.Threads is %d: want 0 or more", c.Threads)
	}
	return c.validateSize(c.Batch, c.Unroll)
}

// validateSize checks that variables and activations of a batch are of a size
// that can be allocated.
func (c Config) validateSize(batch, unroll int) error {
	vocab, hidden, rows := float64(c.Vocab), float64(c.Hidden), float64(batch)*float64(unroll)
	for _, s := range []struct {
		what     string
		elements float64
	}{
		{fmt.Sprintf("a softmax of Vocab %d by Hidden %d", c.Vocab, c.Hidden), vocab * hidden},
		{fmt.Sprintf("a kernel for Hidden %d", c.Hidden), 8 * hidden * hidden},
		{fmt.Sprintf("logits of %d by %d words of Vocab %d", batch, unroll, c.Vocab), rows * vocab},
		{fmt.Sprintf("gates of %d by %d words and Hidden %d", batch, unroll, c.Hidden), rows * 4 * hidden},
	} {
		if s.elements > maxElements {
			return fmt.Errorf("lstm: %s has %.0f elements: want at most %d; choose smaller sizes", s.what, s.elements, maxElements)
		}
	}
	return nil
}
