package main

import (
	"fmt"
	"io"

	"pushpull/examples/transfer/race"
)

// A mark is a ratio that a way should reach.
type mark struct {
	way        string
	directions []string
	least      int64 // bytes of the smallest transfer it holds for
	most       int64 // and of the largest
	against    string
	ratio      float64
	stretch    float64 // that it would better reach; 0 if there is none
}

const (
	kilo = 1 << 10
	mega = 1 << 20
	more = 1 << 40 // than any transfer
)

// marks lists what --check demands. A push ends when the ps has read the data
// where it arrived; a pull begins with a copy out of the ps's variables, which
// every way has to wait for, the baseline included. Through shared memory that
// makes two copies of a pull.
var marks = []mark{
	{"grpc", []string{push, pull}, 100 * mega, more, plainTCP, 0.55, 0.75},
	{"grpc", []string{push, pull}, mega, 100*mega - 1, plainTCP, 0.40, 0},
	{"grpc", []string{push, pull}, 64 * kilo, mega - 1, plainTCP, 0.25, 0},
	{"grpc", []string{push}, 4, 4, plainTCP, 1. / 6, 0}, // a round trip of at most six times the baseline's
	{"tcp", []string{push, pull}, mega, more, plainTCP, 0.95, 0},
	{"shm", []string{push}, mega, more, plainTCP, 2.5, 0},
	{"shm", []string{push}, mega, more, memcpy, 0.85, 0},
	{"inproc", []string{push, pull}, mega, more, memcpy, 0.95, 0},
}

// A verdict is how a way stands to a mark at one size.
type verdict struct {
	mark
	title        string
	got, noise   float64
	below, clear bool // below the mark; by more than the noise
}

// verdicts compares results with marks where they have the rows for it.
func verdicts(results []race.Result, sizes []int64) []verdict {
	var vs []verdict
	for _, m := range marks {
		for _, d := range m.directions {
			for _, size := range sizes {
				if size < m.least || size > m.most {
					continue
				}
				for i := range results {
					r := &results[i]
					row, base := r.Row(m.way), r.Row(m.against)
					if r.Title != title(d, size) || row == nil || base == nil {
						continue
					}
					v := verdict{mark: m, title: r.Title}
					v.got, v.noise = race.Ratio(row, base)
					v.below, v.clear = v.got < m.ratio, v.got+v.noise < m.ratio
					vs = append(vs, v)
				}
			}
		}
	}
	return vs
}

// judge prints how results stand to the marks. It returns an error if one is
// missed by more than its noise.
func judge(w io.Writer, vs []verdict) error {
	missed := 0
	fmt.Fprintf(w, "%-10s  %-10s  %-8s  %6s  %6s  %6s\n", "mark", "transfer", "against", "want", "got", "±")
	for _, v := range vs {
		says := "ok"
		switch {
		case v.clear:
			says = "MISSED"
			missed++
		case v.below:
			says = "within the noise"
		case v.stretch > 0 && v.got < v.stretch:
			says = fmt.Sprintf("ok, short of the %.2f it might reach", v.stretch)
		case v.stretch > 0:
			says = fmt.Sprintf("ok, even %.2f", v.stretch)
		}
		fmt.Fprintf(w, "%-10s  %-10s  %-8s  %6.3f  %6.3f  %6.3f  %s\n", v.way, v.title, v.against, v.ratio, v.got, v.noise, says)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d marks missed by more than the noise of the rounds", missed, len(vs))
	}
	return nil
}
