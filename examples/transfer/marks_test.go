package main

import (
	"strings"
	"testing"

	"pushpull/examples/transfer/race"
)

// resultOf returns a result with rates, by way and round.
func resultOf(title string, rates map[string][]float64) race.Result {
	r := race.Result{Title: title, Baseline: plainTCP}
	for name, values := range rates {
		var samples []race.Sample
		for _, v := range values {
			samples = append(samples, race.Sample{Bytes: int64(v * 1e6), Calls: 1, Seconds: 1})
		}
		r.Rows = append(r.Rows, race.NewRow(name, samples))
	}
	return r
}

func TestMarksAreMissedByMoreThanTheNoiseOnly(t *testing.T) {
	sizes := []int64{64 << 10, 100 << 20}
	for _, c := range []struct {
		name  string
		grpc  []float64 // rates where plain has 1000
		says  string
		fails bool
	}{
		{"above", []float64{600, 600, 600}, "ok, short of the 0.75", false},
		{"far above", []float64{800, 800, 800}, "ok, even 0.75", false},
		{"below", []float64{500, 500, 500}, "MISSED", true},
		{"below, but noisy", []float64{400, 500, 700}, "within the noise", false},
	} {
		results := []race.Result{resultOf("push 100M", map[string][]float64{plainTCP: {1000, 1000, 1000}, "grpc": c.grpc})}
		var b strings.Builder
		err := judge(&b, verdicts(results, sizes))
		if (err != nil) != c.fails || !strings.Contains(b.String(), c.says) {
			t.Errorf("%s: %v, want an error: %v, and %q in\n%s", c.name, err, c.fails, c.says, b.String())
		}
	}
}

func TestMarksHoldForTheirSizesAndRivals(t *testing.T) {
	rates := map[string][]float64{plainTCP: {1000}, memcpy: {4000}, "shm": {3000}, "grpc": {200}, "inproc": {3900}}
	sizes := []int64{4, 64 << 10, 1 << 20}
	results := []race.Result{resultOf("push 4", rates), resultOf("push 64K", rates), resultOf("pull 1M", rates), resultOf("push 1M", rates)}
	got := map[string]bool{}
	for _, v := range verdicts(results, sizes) {
		got[v.way+" "+v.title+" "+v.against] = v.clear
	}
	want := map[string]bool{
		"grpc push 4 plain": false, "grpc push 64K plain": true, "grpc push 1M plain": true, "grpc pull 1M plain": true,
		"shm push 1M plain": false, "shm push 1M memcpy": true, "inproc push 1M memcpy": false, "inproc pull 1M memcpy": false,
	}
	for name, missed := range want {
		if clear, ok := got[name]; !ok || clear != missed {
			t.Errorf("%s: missed %v (judged: %v), want %v", name, clear, ok, missed)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d verdicts %v, want %d", len(got), got, len(want))
	}
}

func TestIperfsFigures(t *testing.T) {
	sample, err := parseIperf([]byte(`{"end": {"sum_received": {"bytes": 4000000000, "seconds": 2.0},
		"cpu_utilization_percent": {"host_total": 60.5, "remote_total": 39.5}}}`), 1<<20)
	if err != nil || sample.MBs() != 2000 || sample.Cost.CPUSeconds != 2 || sample.Calls != 3814 {
		t.Errorf("%+v, %v, want 2000 MB/s and 2 CPU seconds", sample, err)
	}
	if _, err := parseIperf([]byte(`{"error": "unable to connect"}`), 4); err == nil || !strings.Contains(err.Error(), "unable to connect") {
		t.Errorf("parseIperf of an error = %v", err)
	}
}
