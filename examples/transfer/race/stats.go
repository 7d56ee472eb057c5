package race

import (
	"math"
	"slices"
)

// Median returns the middle of values, NaN if there are none.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Noise returns half the distance between the quartiles of values: half of
// them lie within it of the middle. Of one value it is 0.
func Noise(values []float64) float64 {
	return (Quantile(values, 0.75) - Quantile(values, 0.25)) / 2
}

// Quantile returns the value below which a share q of values lies, 0 to 1,
// interpolated between neighbors; NaN if there are no values. It leaves values
// as they are.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	lo := int(at)
	hi := min(lo+1, len(sorted)-1)
	return sorted[lo] + (at-float64(lo))*(sorted[hi]-sorted[lo])
}
