// Package race compares ways of moving bytes. Contestants run in alternating
// rounds, each against a baseline of the same round, so that what disturbs the
// machine for a while disturbs all of them. What comes of it is a table with
// bars, a picture, and JSON.
package race

import (
	"context"
	"errors"
	"fmt"
)

// ErrSkip is what a contestant's error wraps if it cannot run on this machine.
// It is left out, and the race goes on.
var ErrSkip = errors.New("left out")

// A Sample is one run of one contestant.
type Sample struct {
	Bytes   int64   `json:"bytes"`   // moved, as they lie in memory
	Calls   int64   `json:"calls"`   // that moved them
	Seconds float64 `json:"seconds"` // it took
	P50     float64 `json:"p50,omitempty"`
	P99     float64 `json:"p99,omitempty"` // percentiles of a call's seconds; 0 if they were not taken
	Cost    Cost    `json:"cost"`          // of both sides
}

// MBs returns the sample's rate in millions of bytes a second.
func (s Sample) MBs() float64 { return float64(s.Bytes) / 1e6 / s.Seconds }

// A Contestant is one way to move bytes.
type Contestant struct {
	Name string
	Run  func(context.Context) (Sample, error)
}

// A Heat is contestants that do the same work.
type Heat struct {
	Title       string
	Baseline    string // the contestant that the others are compared with
	Contestants []Contestant
}

// A Row is what one contestant's samples come to. All figures but Noise are
// medians of the rounds.
type Row struct {
	Name         string   `json:"name"`
	MBs          float64  `json:"mb_per_s"`
	Ratio        float64  `json:"ratio"` // of its rate to the baseline's in the same round
	Noise        float64  `json:"noise"` // half the distance between the ratios' quartiles
	CallSeconds  float64  `json:"call_seconds"`
	P50          float64  `json:"p50,omitempty"`
	P99          float64  `json:"p99,omitempty"`
	CPUPerGB     float64  `json:"cpu_seconds_per_gb,omitempty"` // both sides together; 0 if unknown
	AllocPerByte float64  `json:"alloc_bytes_per_byte"`
	Samples      []Sample `json:"samples"` // by round
}

// A Result is how a heat ended.
type Result struct {
	Title    string   `json:"title"`
	Baseline string   `json:"baseline"`
	Rows     []Row    `json:"rows"`              // as the contestants were listed
	Skipped  []string `json:"skipped,omitempty"` // who was left out, and why
}

// Row returns the row of that name, nil if there is none.
func (r *Result) Row(name string) *Row {
	for i := range r.Rows {
		if r.Rows[i].Name == name {
			return &r.Rows[i]
		}
	}
	return nil
}

// Run runs all heats for a number of rounds. Every other round goes through a
// heat's contestants backward. It calls step before each run. The first error
// that is not [ErrSkip] ends the race.
func Run(ctx context.Context, heats []Heat, rounds int, step func(what string)) ([]Result, error) {
	samples := make([][][]Sample, len(heats))
	skipped := make([][]error, len(heats))
	for h := range heats {
		samples[h] = make([][]Sample, len(heats[h].Contestants))
		skipped[h] = make([]error, len(heats[h].Contestants))
	}
	for round := range rounds {
		for h, heat := range heats {
			for i := range heat.Contestants {
				if round%2 == 1 {
					i = len(heat.Contestants) - 1 - i
				}
				c := heat.Contestants[i]
				step(fmt.Sprintf("%s: %s, round %d of %d", heat.Title, c.Name, round+1, rounds))
				if skipped[h][i] != nil {
					continue
				}
				s, err := c.Run(ctx)
				switch {
				case errors.Is(err, ErrSkip):
					skipped[h][i] = err
				case err != nil:
					return nil, fmt.Errorf("%s: %s, round %d of %d: %w", heat.Title, c.Name, round+1, rounds, err)
				case s.Bytes <= 0 || s.Calls <= 0 || !(s.Seconds > 0):
					return nil, fmt.Errorf("%s: %s: %d bytes in %d calls of %v s: want more than nothing", heat.Title, c.Name, s.Bytes, s.Calls, s.Seconds)
				default:
					samples[h][i] = append(samples[h][i], s)
				}
			}
		}
	}
	results := make([]Result, len(heats))
	for h, heat := range heats {
		results[h] = result(heat, samples[h], skipped[h])
	}
	return results, nil
}

func result(heat Heat, samples [][]Sample, skipped []error) Result {
	r := Result{Title: heat.Title, Baseline: heat.Baseline}
	for i, c := range heat.Contestants {
		if skipped[i] != nil {
			r.Skipped = append(r.Skipped, fmt.Sprintf("%s: %v", c.Name, skipped[i]))
			continue
		}
		r.Rows = append(r.Rows, NewRow(c.Name, samples[i]))
	}
	if base := r.Row(r.Baseline); base != nil {
		for i := range r.Rows {
			r.Rows[i].Ratio, r.Rows[i].Noise = Ratio(&r.Rows[i], base)
		}
	}
	return r
}

// NewRow returns what samples come to, compared with nothing.
func NewRow(name string, samples []Sample) Row {
	of := func(f func(Sample) float64) float64 {
		values := make([]float64, len(samples))
		for i, s := range samples {
			values[i] = f(s)
		}
		return Median(values)
	}
	return Row{
		Name:         name,
		MBs:          of(Sample.MBs),
		CallSeconds:  of(func(s Sample) float64 { return s.Seconds / float64(s.Calls) }),
		P50:          of(func(s Sample) float64 { return s.P50 }),
		P99:          of(func(s Sample) float64 { return s.P99 }),
		CPUPerGB:     of(func(s Sample) float64 { return s.Cost.CPUSeconds / (float64(s.Bytes) / 1e9) }),
		AllocPerByte: of(func(s Sample) float64 { return float64(s.Cost.AllocBytes) / float64(s.Bytes) }),
		Samples:      samples,
	}
}

// Ratio returns the median of the ratios of row's rate to base's, round by
// round, and their noise: half the distance between their quartiles.
func Ratio(row, base *Row) (ratio, noise float64) {
	n := min(len(row.Samples), len(base.Samples))
	ratios := make([]float64, n)
	for i := range ratios {
		ratios[i] = row.Samples[i].MBs() / base.Samples[i].MBs()
	}
	return Median(ratios), Noise(ratios)
}
