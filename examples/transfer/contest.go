package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"pushpull/examples/transfer/race"
	"pushpull/transport"
)

// shownColumns are those of the tables.
var shownColumns = []string{"MB/s", "ratio", "±", "µs/call", "CPU s/GB", "alloc B/B"}

// runRace runs all ways against each other, and with --check compares them with
// their marks.
func (o *options) runRace(ctx context.Context, stdout, stderr io.Writer) error {
	report := race.NewReport(race.Control(o.congestion))
	heats := o.heats()
	step, done := progress(stderr, heats, o.rounds)
	results, err := race.Run(ctx, heats, o.rounds, step)
	done()
	if err != nil {
		return err
	}
	report.End(results)
	fmt.Fprintf(stdout, "%s\n", report.Machine())
	fmt.Fprintf(stdout, "%d rounds of %v s; MB/s are medians, ratios medians of each round's ratio to %s, ± half their quartiles' distance\n", o.rounds, o.seconds, plainTCP)
	for i := range results {
		fmt.Fprintln(stdout)
		if err := results[i].Table(stdout, shownColumns...); err != nil {
			return err
		}
	}
	if err := o.tell(report); err != nil || !o.check {
		return err
	}
	fmt.Fprintln(stdout)
	return judge(stdout, verdicts(results, o.sizes))
}

// heats makes one of every direction and size.
func (o *options) heats() []race.Heat {
	var heats []race.Heat
	for _, direction := range o.directions() {
		for _, size := range o.sizes {
			h := race.Heat{Title: title(direction, size), Baseline: plainTCP}
			for i := range ways {
				w := &ways[i]
				if !o.races(w) {
					continue
				}
				c := race.Contestant{Name: w.name, Run: func(ctx context.Context) (race.Sample, error) {
					return o.contest(ctx, w, direction, size)
				}}
				if w.name == iperf {
					if size < iperfLeast {
						continue
					}
					c.Run = func(ctx context.Context) (race.Sample, error) { return o.runIperf(ctx, direction, size) }
				}
				h.Contestants = append(h.Contestants, c)
			}
			heats = append(heats, h)
		}
	}
	return heats
}

func title(direction string, size int64) string { return direction + " " + sizeText(size) }

// sizeText writes a number of bytes as --sizes has it.
func sizeText(n int64) string {
	for i, unit := range []string{"G", "M", "K"} {
		if shift := 30 - 10*i; n >= 1<<shift && n%(1<<shift) == 0 {
			return fmt.Sprintf("%d%s", n>>shift, unit)
		}
	}
	return fmt.Sprint(n)
}

// races tells whether a way takes part.
func (o *options) races(w *way) bool {
	switch {
	case w.name == plainTCP:
		return true
	case len(o.launcher) > 0 && w.reach != anyHost:
		return false
	}
	return len(o.transports) == 0 || slices.Contains(o.transports, w.name)
}

// addr returns where the ps of a race is to listen.
func (o *options) addr(w *way, dir string) string {
	if len(o.launcher) > 0 {
		return o.psHosts[0]
	}
	return w.addr(dir)
}

// contest is one run of one way: with a ps in a process of its own, unless the
// way cannot leave this one.
func (o *options) contest(ctx context.Context, w *way, direction string, size int64) (sample race.Sample, err error) {
	dir, err := os.MkdirTemp("", "transfer")
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	runtime.GC() // what earlier runs have left is not collected at this one's expense
	tr, limit := w.make(), min(o.timeout, time.Minute)
	addr := ""
	if w.reach == sameProcess {
		l, err := tr.Listen(w.addr(dir), newStore(1, true, "", func(string, ...any) {}))
		if err != nil {
			return sample, err
		}
		defer l.Close()
		addr = l.Addr()
	} else {
		child, line, err2 := race.Start(ctx, "the ps", o.launcher, "--job=ps", "--attached", "--transport="+w.name, "--ps_hosts="+o.addr(w, dir),
			"--congestion="+o.congestion, fmt.Sprintf("--timeout=%v", limit))
		if err2 != nil {
			return sample, errors.Join(err2, unsupported(tr, o.addr(w, dir)))
		}
		defer func() { err = errors.Join(err, child.Close()) }()
		addr = line
	}
	s, ctx, err := dial(ctx, tr, []string{addr}, 0, o.load(size), limit)
	if err != nil {
		return sample, err
	}
	defer s.close()
	if err := s.join(ctx, 1, o.congestion); err != nil {
		return sample, err
	}
	for start := time.Now(); time.Since(start).Seconds() < o.seconds/4; { // until pools and windows have their sizes
		if err := s.move(ctx, direction, false); err != nil {
			return sample, err
		}
	}
	sample, err = s.measure(ctx, direction, w.reach == sameProcess, func(calls int64, took time.Duration) bool {
		return calls > 0 && took.Seconds() >= o.seconds
	})
	return sample, errors.Join(err, s.leave(ctx))
}

// unsupported returns an error that leaves a way out of the race if this system
// has nothing to listen with.
func unsupported(tr transport.Transport, addr string) error {
	l, err := tr.Listen(addr, newStore(1, false, "", func(string, ...any) {}))
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%w: %w", race.ErrSkip, err)
	}
	return nil
}

// progress returns what shows each step of a race on a terminal, and what ends
// that. Elsewhere nothing is shown.
func progress(w io.Writer, heats []race.Heat, rounds int) (step func(what string), done func()) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func(string) {}, func() {}
	}
	n, width := 0, 0
	for _, h := range heats {
		n += rounds * len(h.Contestants)
		for _, c := range h.Contestants {
			width = max(width, len(h.Title)+len(c.Name))
		}
	}
	bar := progressbar.NewOptions(n, progressbar.OptionSetWriter(w), progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true), progressbar.OptionSetWidth(20))
	width += len(", round 00 of 00: ")
	return func(what string) {
			bar.Describe(what + strings.Repeat(" ", max(0, width-len(what))))
			bar.Add(1)
		}, func() {
			bar.Finish()
			bar.Clear()
		}
}
