// Package lstm is the LSTM language model of the TensorFlow PTB tutorial, after
// Zaremba, Sutskever and Vinyals, "Recurrent Neural Network Regularization"
// (2014): an embedding, layers of LSTM with dropout between them, and a softmax
// over the vocabulary, trained by backpropagation through a fixed number of
// time steps.
//
// A [Model] implements model.Model. It is a Gorgonia graph of a few fused
// operations: an embedding, a dropout, an LSTM layer over all time steps, and a
// projection with its softmax cross entropy. Gorgonia differentiates the graph
// and its TapeMachine runs it; a compute.Engine does the arithmetic. Whatever
// is as large as a batch or a weight is allocated when the model is made.
//
// # What is computed
//
// With x the words of a batch and y the words that follow them, for each layer
//
//	z = [x, h] K + b                      columns of z: i | j | f | o
//	c' = c·σ(f + ForgetBias) + σ(i)·tanh(j)
//	h' = tanh(c')·σ(o)
//
// Dropout is applied to the output of the embedding and of each layer, never to
// the h that a layer hands to its next time step. The cost is the cross entropy
// in nats, summed over time and averaged over the batch, so gradients are
// Unroll times those of the mean word. State is zero at the start of an epoch
// and carried from batch to batch; no gradient flows across batches.
//
// # Memory and time order
//
// Inside the package a batch is time-major: row t·Batch+b of an activation
// belongs to time step t of sequence b.
//
// # Concurrency
//
// A Model must be used by one goroutine at a time. Different models share
// nothing and may run at the same time.
package lstm

// Gorgonia depends on this module, which refuses Go versions that it does not
// know. Importing it here keeps go.mod at a version that knows ours.
import _ "go4.org/unsafe/assume-no-moving-gc"
