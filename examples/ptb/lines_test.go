package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestLinesAreTheTutorials(t *testing.T) {
	var stdout, stderr bytes.Buffer
	l := lines{console: newConsole(&stdout, &stderr, "off")}
	l.epoch(1, 1)
	l.progress(0.104, 816.7691, 3722.4)
	l.train(1, 265.7514)
	l.valid(1, 177.6909)
	l.test(115.9096)
	l.saving("/tmp/model")
	want := `Epoch: 1 Learning rate: 1.000
0.104 perplexity: 816.769 speed: 3722 wps
Epoch: 1 Train Perplexity: 265.751
Epoch: 1 Valid Perplexity: 177.691
Test Perplexity: 115.910
Saving model to /tmp/model.
`
	if got := stdout.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr = %q, want nothing", &stderr)
	}
	stdout.Reset()
	l.prefix = "worker/1: "
	l.train(2, 3)
	if got, want := stdout.String(), "worker/1: Epoch: 2 Train Perplexity: 3.000\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgressIsPrintedAtTheTutorialsPlaces(t *testing.T) {
	for _, tc := range []struct {
		steps int
		at    []int // steps, from 0
		first float64
	}{
		{2323, []int{10, 242, 474, 706, 938, 1170, 1402, 1634, 1866, 2098}, 10. / 2323},
		{446, []int{10, 54, 98, 142, 186, 230, 274, 318, 362, 406}, 10. / 446},
		{110, []int{10, 21, 32, 43, 54, 65, 76, 87, 98, 109}, 10. / 110},
		{109, []int{9, 19, 29, 39, 49, 59, 69, 79, 89, 99}, 10. / 109},
		{25, []int{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}, 2. / 25},
		{3, []int{0, 1, 2}, 1. / 3},
		{1, []int{0}, 1},
	} {
		var at []int
		var first float64
		for step := range tc.steps {
			if done, ok := milestone(step, tc.steps); ok {
				if at == nil {
					first = done
				}
				at = append(at, step)
			}
		}
		if len(at) != len(tc.at) {
			t.Errorf("%d steps: printed after %v, want %v", tc.steps, at, tc.at)
			continue
		}
		for i := range at {
			if at[i] != tc.at[i] {
				t.Errorf("%d steps: printed after %v, want %v", tc.steps, at, tc.at)
				break
			}
		}
		if first != tc.first {
			t.Errorf("%d steps: the first line says %v, want %v", tc.steps, first, tc.first)
		}
	}
}

func TestEpochsOfAnyLengthPrint(t *testing.T) {
	for steps := 1; steps < 3000; steps++ {
		n := 0
		for step := range steps {
			if done, ok := milestone(step, steps); ok {
				n++
				if done <= 0 || done > 1 {
					t.Fatalf("milestone(%d, %d) = %v, want more than 0 and at most 1", step, steps, done)
				}
			}
		}
		if n < min(steps, 9) || n > 20 {
			t.Fatalf("%d steps: %d lines, want %d to 20", steps, n, min(steps, 9))
		}
	}
}

func TestPlacementWarnsOfAnOverfullServer(t *testing.T) {
	for _, tc := range []struct {
		shards []int
		ratio  float64
		warns  bool
	}{{[]int{5_000_000, 5_500_000}, 1.05, false}, {[]int{1_000_000, 3_000_000}, 1.5, true}} {
		var stdout, stderr bytes.Buffer
		lines{console: newConsole(&stdout, &stderr, "off")}.placement(tc.shards, tc.ratio)
		if !strings.HasPrefix(stderr.String(), "Placement: ps/0 ") || !strings.Contains(stderr.String(), "ps/1 ") {
			t.Errorf("%v: stderr = %q, want both servers", tc.shards, &stderr)
		}
		if got := strings.Contains(stderr.String(), "Warning"); got != tc.warns {
			t.Errorf("%v: warns = %v, want %v", tc.shards, got, tc.warns)
		}
	}
}

func TestProgressBarStaysOutOfTheResults(t *testing.T) {
	var stdout, stderr bytes.Buffer
	l := lines{console: newConsole(&stdout, &stderr, "on"), bar: true}
	l.begin(1, 4)
	for range 4 {
		l.advance()
		l.progress(1, 2, 3)
	}
	l.end()
	if got, want := stdout.String(), strings.Repeat("1.000 perplexity: 2.000 speed: 3 wps\n", 4); got != want {
		t.Errorf("stdout = %q, want %q", got, want)
	}
	if !strings.Contains(stderr.String(), "epoch 1") {
		t.Errorf("stderr = %q, want a bar", &stderr)
	}
}
