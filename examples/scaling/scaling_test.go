package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

// The children of a test are the test binary itself.
func TestMain(m *testing.M) {
	for _, arg := range os.Args[1:] {
		if strings.HasPrefix(arg, "--role=") {
			os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(m.Run())
}

func TestAJobOfProcessesIsMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("trains the small model in four processes")
	}
	o := options{presets: []string{"small"}, modes: []string{"sync"}, transports: []string{"grpc"}, encoding: "float32", workers: 2, steps: 2, warm: 1, rounds: 1}
	rows, err := o.measure(t.Context(), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	r := rows[0].Rounds[0]
	if r.speedup() <= 0 || r.predicted() <= 0 || r.Server.CPU <= 0 {
		t.Errorf("round = %+v: want figures above zero everywhere", r)
	}
	for _, w := range r.Workers {
		// Weights but for most of the embedding, and its rows.
		if w.Pulled < 10e6 || w.Pulled > 12e6 || w.Pushed < 10e6 || w.Pushed > 12e6 {
			t.Errorf("a step pulls %.0f bytes and pushes %.0f, want 10 to 12 MB each", w.Pulled, w.Pushed)
		}
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	for arg, want := range map[string]string{
		"--presets=huge": `--presets: "huge": want one of small, medium, large`,
		"--modes=ssp":    `--modes: "ssp"`, "--rounds=0": "--rounds=0: want at least 1", "--steps=x": "--steps",
	} {
		var stderr bytes.Buffer
		if got := run(t.Context(), []string{arg}, &bytes.Buffer{}, &stderr); got != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("scaling %s = %d, %q; want 2, %q", arg, got, &stderr, want)
		}
	}
}

func TestMedianAndSpeedup(t *testing.T) {
	one := func(base, a, b float64) round {
		return round{Base: figures{Words: base, CPU: 1}, Server: figures{CPU: 0.5}, Workers: []figures{{Words: a, CPU: 1}, {Words: b, CPU: 2}}}
	}
	r := row{Rounds: []round{one(10, 5, 5), one(10, 10, 20), one(10, 10, 10)}}
	if got, want := r.median(round.speedup), 2.0; got != want {
		t.Errorf("median speedup = %v, want %v", got, want)
	}
	if got, want := r.Rounds[0].predicted(), 1.0; got != want { // 2·1 / (0.5 + 1.5)
		t.Errorf("predicted = %v, want %v", got, want)
	}
}
