// Package model says what a trainable model is, without saying how it is
// computed.
package model

import "context"

// A Variable is a trainable tensor: its weights, and the gradient the last step
// left. The model allocates Value and Grad once; whoever trains it reads and
// writes them between steps, never during one.
type Variable struct {
	Name  string
	Shape []int
	Value []float32 // row-major, as long as the product of Shape
	// Grad is as long as Value. If Rows is nil all of it is the gradient; else
	// its first len(Rows)*Width() elements are: the rows of the gradient that are
	// not zero, one after another.
	Grad []float32
	// Rows lists the rows a step touched, in ascending order and each once. A
	// model that leaves rows does so in every step. Empty but not nil means none.
	Rows []int32
	// Next lists the rows that the next step will read, in the same way; nil means
	// all. Who brings weights for that step need bring no others. At the end of an
	// epoch it is nil, so that whoever evaluates the model then has all of them.
	Next []int32
}

// Width returns the number of elements in a row of the variable: those under
// one index of its first dimension.
func (v *Variable) Width() int {
	w := 1
	for _, n := range v.Shape[min(1, len(v.Shape)):] {
		w *= n
	}
	return w
}

// A Result is what one step tells about itself.
type Result struct {
	Loss     float64 // as the model defines it
	Examples int     // examples in the batch
}

// A Model computes one replica's share of training. It owns its input, because
// a recurrent model carries state from one batch to the next.
type Model interface {
	// Variables returns the trainable variables, always the same and in the same
	// order.
	Variables() []*Variable
	// Step reads the next batch, runs forward and backward from every variable's
	// Value, and leaves the gradient in its Grad. At the end of the epoch it
	// returns io.EOF; the step after that begins the next epoch.
	Step(ctx context.Context) (Result, error)
	// Cursor returns what the model needs besides its weights to go on from
	// here: its place in the input, the state it carries, its random numbers.
	// The slice is the model's, valid until the next Step.
	Cursor() []byte
	// Seek goes on from a cursor that a model of the same make returned.
	Seek(cursor []byte) error
}
