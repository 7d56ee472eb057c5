package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pushpull/model/compute"
)

// TestMain is a contestant if it is started as one: a race starts its own program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--serve" {
		main()
		return
	}
	// The presets are too large for a test, and a child must find the same.
	os.Exit(m.Run())
}

func init() {
	presets = append(presets, preset{"tiny", 50, 2, 8, 3, 4, 0.1, 5, 0.5, 0.1})
}

// call runs the program.
func call(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return status, out.String(), errs.String()
}

func TestUsageErrorsNameTheFlagAndWhatIsWanted(t *testing.T) {
	for _, c := range []struct {
		args, want string
	}{
		{"--presets=huge", `--presets: "huge": want some of small,medium,large`},
		{"--presets=", "--presets: none"},
		{"--threads=0", "--threads: 0: want 1 to 1024"},
		{"--threads=", "--threads"},
		{"--rounds=0", "--rounds: 0: want at least 1"},
		{"--seconds=0", "--seconds: 0: want more than 0"},
		{"--seconds=NaN", "--seconds: NaN: want more than 0"},
		{"--engines=fast", `--engines: compute: engine unavailable: "fast"`},
		{"--contestants=tensorflow", `--contestants: "tensorflow": want some of torch.nn`},
		{"--profile --threads=2", "want --threads=1"},
		{"--profile --json=x", "without --json"},
		{"--serve", "one preset"},
		{"--serve --presets=tiny --threads=1,2", "one number of threads"},
		{"--fast", "unknown flag: --fast"},
		{"fast", `argument "fast"`},
	} {
		t.Run(c.args, func(t *testing.T) {
			status, _, stderr := call(t, "", strings.Fields(c.args)...)
			if status != badUsage {
				t.Errorf("status %d, want %d", status, badUsage)
			}
			if !strings.Contains(stderr, c.want) {
				t.Errorf("it says %q, want %q in it", stderr, c.want)
			}
		})
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	status, out, _ := call(t, "", "--help")
	if status != done {
		t.Errorf("status %d, want %d", status, done)
	}
	for _, flag := range []string{"presets", "threads", "rounds", "seconds", "engines", "contestants", "python", "json", "plot", "profile", "serve"} {
		if !strings.Contains(out, "--"+flag) {
			t.Errorf("--help does not name --%s", flag)
		}
	}
}

func TestAContestantAnswersEachLine(t *testing.T) {
	status, out, stderr := call(t, "0.01\n0.02\n", "--serve", "--presets=tiny")
	if status != done {
		t.Fatalf("status %d: %s", status, stderr)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 || lines[0] != "ready" {
		t.Fatalf("it says %q, want ready and two answers", out)
	}
	for _, line := range lines[1:] {
		var s speed
		if _, err := fmt.Sscan(line, &s.Wall, &s.CPU); err != nil || s.Wall <= 0 || s.CPU <= 0 {
			t.Errorf("answer %q: want two speeds (%v)", line, err)
		}
	}
}

func TestAContestantRefusesALineThatIsNoNumber(t *testing.T) {
	status, _, stderr := call(t, "soon\n", "--serve", "--presets=tiny")
	if status != badUsage || !strings.Contains(stderr, `"soon": want a number of seconds`) {
		t.Errorf("status %d, %q: want %d and what was wrong", status, stderr, badUsage)
	}
}

// Without PyTorch every engine of ours races.
func TestWithoutTorchOurEnginesRaceAmongThemselves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "race.json")
	plot := filepath.Join(t.TempDir(), "race.svg")
	status, out, stderr := call(t, "", "--presets=tiny", "--threads=1,2", "--rounds=3", "--seconds=0.02",
		"--python="+filepath.Join(t.TempDir(), "python"), "--json="+path, "--plot="+plot)
	if status != done {
		t.Fatalf("status %d: %s", status, stderr)
	}
	if !strings.Contains(stderr, "no PyTorch") {
		t.Errorf("it says %q: want that there is no PyTorch", stderr)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if got, want := len(r.Races), 2; got != want {
		t.Fatalf("%d races, want %d", got, want)
	}
	for _, one := range r.Races {
		var names []string
		for _, s := range one.Scores {
			names = append(names, s.Name)
			if len(s.Turns) != 3 {
				t.Errorf("%s has %d turns, want 3", s.Name, len(s.Turns))
			}
			if !strings.Contains(out, s.Name) {
				t.Errorf("the table does not name %s", s.Name)
			}
			if s.PeakMB <= 0 {
				t.Errorf("%s had %v MB", s.Name, s.PeakMB)
			}
		}
		if diff := cmp.Diff(compute.Names(), names); diff != "" {
			t.Errorf("contestants (-want +got):\n%s", diff)
		}
	}
	if svg, err := os.ReadFile(plot); err != nil || !bytes.Contains(svg, []byte("<svg")) {
		t.Errorf("the plot is no SVG (%v)", err)
	}
}

func TestTorchRacesWhereItIsInstalled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts PyTorch")
	}
	const python = "/usr/bin/python3"
	if _, err := findTorch(t.Context(), python); errors.Is(err, errNoTorch) {
		t.Skip(err)
	}
	status, out, stderr := call(t, "", "--presets=tiny", "--rounds=2", "--seconds=0.05", "--python="+python)
	if status != done {
		t.Fatalf("status %d: %s", status, stderr)
	}
	for _, name := range []string{torchNN, torchBatched, compute.Best().Name()} {
		if !strings.Contains(out, "| "+name) {
			t.Errorf("the table does not name %s:\n%s", name, out)
		}
	}
}

func TestAContestantThatEndsIsNamed(t *testing.T) {
	for name, c := range map[string]command{
		"at once":       {"quitter", []string{"sh", "-c", "echo no room >&2; exit 1"}},
		"with nonsense": {"quitter", []string{"sh", "-c", "echo no room"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := start(t.Context(), c, 1)
			if err == nil || !strings.Contains(err.Error(), "quitter: ") || !strings.Contains(err.Error(), "no room") {
				t.Errorf("error %v: want who ended, and what it said", err)
			}
		})
	}
	p, err := start(t.Context(), command{"quitter", []string{"sh", "-c", "echo ready; read x; echo tired >&2"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.turn(time.Millisecond); err == nil || !strings.Contains(err.Error(), "quitter: it ended unasked: tired") {
		t.Errorf("error %v: want who ended, and what it said", err)
	}
}

func TestARaceThatIsStoppedSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	var out, errs bytes.Buffer
	if got, want := run(ctx, []string{"--presets=tiny", "--contestants=ours"}, strings.NewReader(""), &out, &errs), failed; got != want {
		t.Errorf("status %d, want %d", got, want)
	}
	if !strings.Contains(errs.String(), "stopped: enough") {
		t.Errorf("it says %q, want why it stopped", errs.String())
	}
}

// Ratios are taken within a round: a machine twice as slow in one changes none.
func TestRatiosAreWithinARound(t *testing.T) {
	base := &score{Turns: []speed{{Wall: 100}, {Wall: 50}, {Wall: 100}}}
	s := &score{Turns: []speed{{Wall: 150}, {Wall: 75}, {Wall: 150}}}
	if diff := cmp.Diff([]float64{1.5, 1.5, 1.5}, ratios(s, base, speed.wall)); diff != "" {
		t.Errorf("ratios (-want +got):\n%s", diff)
	}
	if got, want := median([]float64{4, 1, 3, 2}), 2.5; got != want {
		t.Errorf("median %v, want %v", got, want)
	}
}

func TestAProfileAddsUpToAHundred(t *testing.T) {
	tiny, err := presetNamed("tiny")
	if err != nil {
		t.Fatal(err)
	}
	n := entry{tiny, compute.Best(), 1}
	book := &ledger{}
	tr, err := newTrainer(n, measured{n.engine, tiny.Hidden, tiny.Vocab, book})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.watch(t.Context(), book); err != nil {
		t.Fatal(err)
	}
	// By hand: forward, and twice as much backward. At the first time step of the
	// backward pass there is no step before it to go on to.
	h, rows := tiny.Hidden, tiny.words()
	layer := 3*flop(rows, 4*h, h) + 3*flop(rows, 4*h, h) - flop(tiny.Batch, 4*h, h)
	if got, want := book.flop, float64(tiny.Layers)*layer+3*flop(rows, tiny.Vocab, h); got != want {
		t.Errorf("a step has %v flop, want %v", got, want)
	}
	for _, k := range []kind{multiply, pack, cells, softmax, biases, lookup, dropout, clip, update} {
		if book.spent[k] <= 0 {
			t.Errorf("nothing is booked on %v", k)
		}
	}
}
