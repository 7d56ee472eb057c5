package worker_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"

	"pushpull/model"
)

// toy is linear least squares on a table and a bias: example e looks up row
// ids[e] of the table and wants table[id]·x + bias = y. The table's gradient is
// sent as rows, the bias's whole.
type toy struct {
	table, bias *model.Variable
	data        []example
	batch       int
	epoch, at   int64 // position: batches read in this epoch
	cursor      [16]byte
	poison      int64 // batch number that gives a NaN; 0 for none
}

type example struct {
	id   int32
	x, y float32
}

// examples draws n examples of a table of v rows whose truth is row i = i, bias 1.
func examples(n, v int, seed uint64) []example {
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make([]example, n)
	for i := range out {
		id, x := rng.Int32N(int32(v)), rng.Float32()+0.5
		out[i] = example{id, x, float32(id)*x + 1}
	}
	return out
}

func newToy(v, batch int, data []example) *toy {
	m := &toy{
		table: &model.Variable{Name: "table", Shape: []int{v, 1}, Value: make([]float32, v), Grad: make([]float32, v)},
		bias:  &model.Variable{Name: "bias", Shape: []int{1}, Value: make([]float32, 1), Grad: make([]float32, 1)},
		batch: batch,
		data:  data,
	}
	m.look()
	return m
}

func (m *toy) Variables() []*model.Variable { return []*model.Variable{m.table, m.bias} }

func (m *toy) Step(ctx context.Context) (model.Result, error) {
	if err := ctx.Err(); err != nil {
		return model.Result{}, err
	}
	if int(m.at+1)*m.batch > len(m.data) {
		m.epoch, m.at = m.epoch+1, 0
		m.look()
		return model.Result{}, io.EOF
	}
	batch := m.data[int(m.at)*m.batch:][:m.batch]
	m.at++
	sums := map[int32]float32{}
	m.bias.Grad[0] = 0
	var loss float64
	for _, e := range batch {
		d := m.table.Value[e.id]*e.x + m.bias.Value[0] - e.y
		loss += float64(d * d)
		sums[e.id] += 2 * d * e.x / float32(m.batch)
		m.bias.Grad[0] += 2 * d / float32(m.batch)
	}
	m.table.Rows = m.table.Rows[:0]
	for id := range sums {
		m.table.Rows = append(m.table.Rows, id)
	}
	slices.Sort(m.table.Rows)
	for i, id := range m.table.Rows {
		m.table.Grad[i] = sums[id]
	}
	if m.at == m.poison {
		m.bias.Grad[0] /= 0
	}
	m.look()
	return model.Result{Loss: loss / float64(m.batch), Examples: m.batch}, nil
}

func (m *toy) Cursor() []byte {
	binary.LittleEndian.PutUint64(m.cursor[:], uint64(m.epoch))
	binary.LittleEndian.PutUint64(m.cursor[8:], uint64(m.at))
	return m.cursor[:]
}

func (m *toy) Seek(cursor []byte) error {
	if len(cursor) != 16 {
		return errors.New("toy: cursor of another model")
	}
	m.epoch, m.at = int64(binary.LittleEndian.Uint64(cursor)), int64(binary.LittleEndian.Uint64(cursor[8:]))
	m.look()
	return nil
}

// look says which rows of the table the next batch looks up.
func (m *toy) look() {
	m.table.Next = nil
	if int(m.at+1)*m.batch > len(m.data) {
		return
	}
	m.table.Next = []int32{}
	for _, e := range m.data[int(m.at)*m.batch:][:m.batch] {
		m.table.Next = append(m.table.Next, e.id)
	}
	slices.Sort(m.table.Next)
	m.table.Next = slices.Compact(m.table.Next)
}

// weights returns all weights, table first.
func (m *toy) weights() []float32 {
	return append(slices.Clone(m.table.Value), m.bias.Value...)
}

// dense is a toy that sends its table's gradient whole.
type dense struct{ *toy }

func (m dense) Step(ctx context.Context) (model.Result, error) {
	r, err := m.toy.Step(ctx)
	if err != nil {
		return r, err
	}
	full := make([]float32, len(m.table.Grad))
	for i, id := range m.table.Rows {
		full[id] = m.table.Grad[i]
	}
	copy(m.table.Grad, full)
	m.table.Rows = nil
	return r, nil
}

// loss returns the mean squared error over all data; about 8 with zero weights.
func (m *toy) loss() float64 {
	var sum float64
	for _, e := range m.data {
		d := float64(m.table.Value[e.id]*e.x + m.bias.Value[0] - e.y)
		sum += d * d
	}
	return sum / float64(len(m.data))
}
