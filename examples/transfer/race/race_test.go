package race_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pushpull/examples/transfer/race"
)

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		values             []float64
		median, p25, noise float64
	}{
		{[]float64{7}, 7, 7, 0},
		{[]float64{4, 1}, 2.5, 1.75, 0.75},
		{[]float64{5, 1, 3}, 3, 2, 1},
		{[]float64{9, 1, 5, 3, 7}, 5, 3, 2},
		{[]float64{1, 1, 1, 1, 1000}, 1, 1, 0}, // one disturbed round is no noise
	} {
		given := slices.Clone(c.values)
		if got := race.Median(c.values); got != c.median {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.median)
		}
		if got := race.Quantile(c.values, 0.25); got != c.p25 {
			t.Errorf("Quantile(%v, 0.25) = %v, want %v", c.values, got, c.p25)
		}
		if got := race.Noise(c.values); got != c.noise {
			t.Errorf("Noise(%v) = %v, want %v", c.values, got, c.noise)
		}
		if diff := cmp.Diff(given, c.values); diff != "" {
			t.Errorf("the values were changed:\n%s", diff)
		}
	}
	if got := race.Median(nil); !math.IsNaN(got) {
		t.Errorf("Median(nil) = %v, want NaN", got)
	}
}

// at returns a sample of so many MB/s.
func at(rate float64) race.Sample {
	return race.Sample{Bytes: int64(rate * 1e6), Calls: 4, Seconds: 1, Cost: race.Cost{CPUSeconds: 0.5, AllocBytes: uint64(rate * 1e5)}}
}

func TestRatioIsOfTheSameRound(t *testing.T) {
	// The machine is ten times slower in the second round: the ratios do not show it.
	base := race.NewRow("base", []race.Sample{at(1000), at(100), at(1000)})
	row := race.NewRow("row", []race.Sample{at(500), at(50), at(600)})
	ratio, noise := race.Ratio(&row, &base)
	if ratio != 0.5 || math.Abs(noise-0.025) > 1e-9 {
		t.Errorf("Ratio = %v ± %v, want 0.5 ± 0.025", ratio, noise)
	}
}

// contestants returns some that only note that they have run.
func contestants(ran *[]string, rates map[string]float64, names ...string) []race.Contestant {
	var cs []race.Contestant
	for _, name := range names {
		cs = append(cs, race.Contestant{Name: name, Run: func(context.Context) (race.Sample, error) {
			*ran = append(*ran, name)
			return at(rates[name]), nil
		}})
	}
	return cs
}

func TestRunAlternates(t *testing.T) {
	var ran, steps []string
	rates := map[string]float64{"base": 200, "a": 100, "b": 400}
	heats := []race.Heat{{Title: "x", Baseline: "base", Contestants: contestants(&ran, rates, "base", "a", "b")}}
	results, err := race.Run(t.Context(), heats, 3, func(what string) { steps = append(steps, what) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields("base a b b a base base a b"), ran); diff != "" {
		t.Errorf("order:\n%s", diff)
	}
	if got, want := steps[3], "x: b, round 2 of 3"; got != want || len(steps) != 9 {
		t.Errorf("step 4 of %d is %q, want %q of 9", len(steps), got, want)
	}
	got := results[0].Row("b")
	if got == nil || got.Ratio != 2 || got.MBs != 400 || got.CallSeconds != 0.25 || got.CPUPerGB != 1.25 || got.AllocPerByte != 0.1 || len(got.Samples) != 3 {
		t.Errorf("row b = %+v, want ratio 2, 400 MB/s, 0.25 s a call, 1.25 s/GB, 0.1 B/B, three samples", got)
	}
}

func TestRunLeavesOutWhoCannotRun(t *testing.T) {
	var ran []string
	cs := contestants(&ran, map[string]float64{"base": 1}, "base")
	tried := 0
	cs = append(cs, race.Contestant{Name: "missing", Run: func(context.Context) (race.Sample, error) {
		tried++
		return race.Sample{}, fmt.Errorf("%w: not installed", race.ErrSkip)
	}})
	results, err := race.Run(t.Context(), []race.Heat{{Baseline: "base", Contestants: cs}}, 3, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if r := results[0]; r.Row("missing") != nil || !slices.Equal(r.Skipped, []string{"missing: left out: not installed"}) || tried != 1 {
		t.Errorf("after %d tries: %+v, want it left out after one", tried, r)
	}
}

func TestRunEndsWithTheFirstError(t *testing.T) {
	wrong := errors.New("what arrived is not what was sent")
	for _, c := range []struct {
		name   string
		sample race.Sample
		err    error
	}{{"an error", at(1), wrong}, {"nothing moved", race.Sample{Calls: 1, Seconds: 1}, nil}} {
		heat := race.Heat{Title: "push 4", Contestants: []race.Contestant{{Name: "bad", Run: func(context.Context) (race.Sample, error) { return c.sample, c.err }}}}
		_, err := race.Run(t.Context(), []race.Heat{heat}, 1, func(string) {})
		if err == nil || !strings.Contains(err.Error(), "push 4: bad") || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: Run = %v, want an error that names the contestant", c.name, err)
		}
	}
}

// someResult is one with a row that wins and one that was left out.
func someResult(t *testing.T) race.Result {
	var ran []string
	heats := []race.Heat{{Title: "push 1M", Baseline: "plain", Contestants: contestants(&ran, map[string]float64{"plain": 4000, "grpc": 1500}, "plain", "grpc")}}
	results, err := race.Run(t.Context(), heats, 2, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	results[0].Skipped = []string{"iperf3: left out: not installed"}
	return results[0]
}

func TestTable(t *testing.T) {
	r := someResult(t)
	var b strings.Builder
	if err := r.Table(&b, "MB/s", "ratio", "±", "µs/call", "CPU s/GB", "alloc B/B"); err != nil {
		t.Fatal(err)
	}
	want := `push 1M
       MB/s  ratio      ±  µs/call  CPU s/GB  alloc B/B
plain  4000  1.000  0.000   250000      0.12       0.10  ████████████████████████████████
grpc   1500  0.375  0.000   250000      0.33       0.10  ████████████
iperf3: left out: not installed
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("Table:\n%s", diff)
	}
}

func TestBarsGrowByEighths(t *testing.T) {
	for _, c := range []struct {
		value, most float64
		want        string
	}{
		{0, 32, ""}, {math.NaN(), 32, ""}, {1, 0, ""},
		{1. / 8, 32, "▏"}, {1.5, 32, "█▌"}, {32, 32, strings.Repeat("█", 32)}, {99, 32, strings.Repeat("█", 32)},
	} {
		if got := race.Bar(c.value, c.most); got != c.want {
			t.Errorf("Bar(%v, %v) = %q, want %q", c.value, c.most, got, c.want)
		}
	}
}

func TestFigures(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.00012: "0.0001", 0.0123: "0.0123", 0.375: "0.38", 1: "1.00", 9.99: "9.99", 42.04: "42.0", 1234.4: "1234", math.NaN(): "-", math.Inf(1): "-"} {
		if got := race.Figure(x); got != want {
			t.Errorf("Figure(%v) = %q, want %q", x, got, want)
		}
	}
}

func TestPlotDrawsAPictureOfEachFormat(t *testing.T) {
	results := []race.Result{someResult(t), someResult(t)}
	for _, format := range race.PlotFormats {
		file := filepath.Join(t.TempDir(), "race."+format)
		if err := race.Plot(file, "a title", results); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		switch format {
		case "svg":
			for _, want := range []string{"<svg", "a title", "push 1M", "grpc", "4000", "MB/s"} {
				if !strings.Contains(string(b), want) {
					t.Errorf("the picture does not say %q", want)
				}
			}
		case "png":
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := png.Decode(f); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if err := race.Plot(filepath.Join(t.TempDir(), "race.gif"), "", results); err == nil || !strings.Contains(err.Error(), ".png or .svg") {
		t.Errorf("Plot to a .gif: %v, want an error that says what there is", err)
	}
}

func TestReportIsJSONWithEveryRound(t *testing.T) {
	r := race.NewReport("cubic")
	r.End([]race.Result{someResult(t)})
	file := filepath.Join(t.TempDir(), "report.json")
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got race.Report
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Results, got.Results); diff != "" {
		t.Errorf("results after writing and reading:\n%s", diff)
	}
	if got.Congestion != "cubic" || got.CPUs < 1 || got.Foreign < 0 || !strings.Contains(got.Machine(), "congestion control cubic") {
		t.Errorf("report = %+v", got)
	}
}

func TestSpentCountsWorkAndMemory(t *testing.T) {
	before := race.Spent()
	var kept [][]byte
	for range 64 {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = byte(i)
		}
		kept = append(kept, b)
	}
	got := race.Spent().Since(before)
	if got.AllocBytes < 64<<20 || len(kept) != 64 {
		t.Errorf("%d bytes allocated, want at least %d", got.AllocBytes, 64<<20)
	}
	if got.CPUSeconds <= 0 {
		t.Errorf("%v CPU seconds, want more than 0", got.CPUSeconds)
	}
}
