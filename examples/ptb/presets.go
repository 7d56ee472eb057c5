package main

// A preset is one of the models of Zaremba, Sutskever and Vinyals, "Recurrent
// Neural Network Regularization" (2014), with the training that goes with it,
// as the TensorFlow tutorial has them.
type preset struct {
	Name   string
	Layers int
	Hidden int
	Unroll int // time steps in a batch
	Batch  int // sequences in a batch

	InitScale float64 // weights start uniform in ±InitScale
	MaxNorm   float64 // a gradient's norm is clipped to it
	Keep      float64 // of the activations that dropout looks at, the share it keeps

	Rate       float64 // learning rate of the first epochs
	RateEpochs int     // epochs at that rate
	Decay      float64 // factor on the rate for each epoch after those
	Epochs     int
}

var presets = []preset{
	{"test", 1, 2, 2, 20, 0.1, 1, 1, 1, 1, 0.5, 1},
	{"small", 2, 200, 20, 20, 0.1, 5, 1, 1, 4, 0.5, 13},
	{"medium", 2, 650, 35, 20, 0.05, 5, 0.5, 1, 6, 0.8, 39},
	{"large", 2, 1500, 35, 20, 0.04, 10, 0.35, 1, 14, 1 / 1.15, 55},
}
