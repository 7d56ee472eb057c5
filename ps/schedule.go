package ps

import "math"

// A Schedule gives the learning rate of an epoch, counted from 0. The rate must
// be finite and not negative.
type Schedule interface {
	At(epoch int) float64
}

// Constant is the Schedule that never changes.
type Constant float64

// At returns the rate.
func (c Constant) At(int) float64 { return float64(c) }

// Decay keeps its rate for some epochs and multiplies it by a factor in each
// one after: Rate * Factor^max(epoch+1-Hold, 0), which is the rule of the
// TensorFlow tutorial's PTB model (its max_epoch is Hold).
type Decay struct {
	Rate   float64
	Factor float64
	Hold   int // epochs at Rate
}

// At returns the rate of an epoch.
func (d Decay) At(epoch int) float64 {
	return d.Rate * math.Pow(d.Factor, float64(max(epoch+1-d.Hold, 0)))
}
