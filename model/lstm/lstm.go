package lstm

import (
	"context"
	"fmt"
	"io"
	"math"

	"pushpull/model"
	"pushpull/model/compute"
)

// A Model is one replica's language model: its weights and gradients, its text,
// and its place in it. One goroutine at a time may use it.
type Model struct {
	cfg       Config
	batches   Batches
	variables []*model.Variable
	packs     *packs
	training  *network
	clipper   clipper
	next      lookahead

	evaluations map[evaluation]*network

	epoch, step int // of the next batch

	// Summed since the first batch of the epoch that was last trained on.
	cost float64 // nats
	time int     // time steps

	cursor []byte // reused from one Cursor to the next
}

var _ model.Model = (*Model)(nil)

// New returns a model with initial weights that reads tokens, batch after batch.
// It keeps tokens, which must not change. A config that makes no sense, a text
// too short for one batch, and a token that is no word of the vocabulary are
// errors that name the value.
func New(cfg Config, tokens []int32) (*Model, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Threads = max(cfg.Threads, 1)
	if cfg.Engine == nil {
		cfg.Engine = compute.Best()
	}
	batches, err := NewBatches(tokens, cfg.Batch, cfg.Unroll)
	if err != nil {
		return nil, err
	}
	if err := checkTokens(tokens, cfg.Vocab); err != nil {
		return nil, err
	}
	m := &Model{
		cfg: cfg, batches: batches,
		variables:   newVariables(cfg),
		packs:       newPacks(cfg.Engine, cfg.Layers),
		evaluations: map[evaluation]*network{},
	}
	if m.training, err = newNetwork(cfg, m.variables, m.packs, cfg.Keep, cfg.Batch, cfg.Unroll); err != nil {
		return nil, err
	}
	if err := m.training.differentiate(); err != nil {
		return nil, err
	}
	if err := m.training.compile(); err != nil {
		return nil, err
	}
	m.training.reserve()
	m.clipper = newClipper(arithmetic{cfg.Engine, cfg.Threads}, m.variables)
	m.cursor = make([]byte, 0, m.cursorSize())
	m.next = newLookahead(m.variables[0], batches)
	m.next.look(batches, 0)
	return m, nil
}

// Variables returns, in this order, embedding [Vocab, Hidden]; for each layer l,
// lstml_kernel [2·Hidden, 4·Hidden], the rows for its input before those for h,
// and lstml_bias [4·Hidden]; softmax_w [Hidden, Vocab] and softmax_b [Vocab].
// Their memory is what the graph itself reads and writes. The embedding's
// gradient is in rows: those of the words in the batch.
func (m *Model) Variables() []*model.Variable { return m.variables }

// EpochSize returns the number of batches in an epoch.
func (m *Model) EpochSize() int { return m.batches.Len() }

// Position returns where the next batch is: the epoch, from 0, and the step in it.
// At the end of an epoch, once Step has returned io.EOF, that is the start of
// the next; before, step is EpochSize.
func (m *Model) Position() (epoch, step int) { return m.epoch, m.step }

// Step trains on the next batch; the loss is its cost in nats, summed over time
// and averaged over the batch, and the examples are its words. Gradients are
// clipped to Config.MaxNorm. A weight that is not a number makes a loss or
// gradient that is none, not an error. If ctx is done Step returns its error, and
// the next Step reads the same batch.
func (m *Model) Step(ctx context.Context) (model.Result, error) {
	if err := ctx.Err(); err != nil {
		return model.Result{}, fmt.Errorf("lstm: step %d of epoch %d: %w", m.step, m.epoch, err)
	}
	if m.step == m.batches.Len() {
		m.epoch, m.step = m.epoch+1, 0
		m.next.look(m.batches, 0)
		return model.Result{}, io.EOF
	}
	if m.step == 0 {
		m.training.reset()
		m.cost, m.time = 0, 0
	}
	m.batches.Read(m.step, m.training.x, m.training.y)
	m.packs.expire()
	cost, err := m.training.run()
	if err != nil {
		return model.Result{}, err
	}
	m.clip()
	m.step++
	m.next.look(m.batches, m.step)
	m.cost += cost
	m.time += m.cfg.Unroll
	return model.Result{Loss: cost, Examples: m.cfg.Batch * m.cfg.Unroll}, nil
}

// Perplexity returns the perplexity of the batches trained on in this epoch so
// far, each with the weights of its step: exp of the mean cost of a word. At the
// end of an epoch it is still that epoch's, until the next Step. It is NaN if no
// batch was trained on.
func (m *Model) Perplexity() float64 { return math.Exp(m.cost / float64(m.time)) }

// newVariables returns the variables of a model, initialized.
func newVariables(cfg Config) []*model.Variable {
	h := cfg.Hidden
	var vs []*model.Variable
	add := func(scale float64, name string, shape ...int) {
		v := &model.Variable{Name: name, Shape: shape}
		n := shape[0] * v.Width()
		v.Value, v.Grad = allocate(n), allocate(n)
		newStream(cfg.Seed, variableStream(len(vs))).uniform(v.Value, float32(scale))
		vs = append(vs, v)
	}
	add(cfg.InitScale, "embedding", cfg.Vocab, h)
	for i := range cfg.Layers {
		add(cfg.InitScale, fmt.Sprintf("lstm%d_kernel", i), 2*h, 4*h)
		add(0, fmt.Sprintf("lstm%d_bias", i), 4*h)
	}
	add(cfg.InitScale, "softmax_w", h, cfg.Vocab)
	add(cfg.InitScale, "softmax_b", cfg.Vocab)
	return vs
}

// The streams of a seed: one for each variable, and one for each dropout.
func variableStream(i int) uint64 { return uint64(2 * i) }
func dropoutStream(i int) uint64  { return uint64(2*i + 1) }
