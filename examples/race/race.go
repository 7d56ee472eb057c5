package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"pushpull/model/compute"
)

// A result is what the races measured, and where.
type result struct {
	Machine string  `json:"machine"`
	Go      string  `json:"go"`
	Torch   string  `json:"torch,omitempty"` // its version and its BLAS; empty if it did not race
	Rounds  int     `json:"rounds"`
	Seconds float64 `json:"seconds"`
	Races   []race  `json:"races"`
}

// A race is one preset on one number of threads.
type race struct {
	Preset  string   `json:"preset"`
	Threads int      `json:"threads"`
	Scores  []*score `json:"contestants"` // the first is the base of ratios
}

// A score is what a contestant did in each round.
type score struct {
	Name   string  `json:"name"`
	Turns  []speed `json:"turns"`
	PeakMB float64 `json:"peak_mb"`
}

// runRace races whom the flags name and prints the table.
func (o *options) runRace(ctx context.Context, stdout, stderr io.Writer) error {
	r := result{Machine: machine(), Go: runtime.Version(), Rounds: o.rounds, Seconds: o.turn.Seconds()}
	if slices.ContainsFunc(o.contestants, isTorch) {
		if err := o.findTorch(ctx, &r, stderr); err != nil {
			return err
		}
	}
	if len(o.contestants) == 0 {
		return fmt.Errorf("nobody is left to race: add %s to --contestants", ours)
	}
	for _, p := range o.presets {
		for _, n := range o.threads {
			fmt.Fprintf(stderr, "race: %s on %d threads, %d rounds of %v each\n", p.Name, n, o.rounds, o.turn)
			one, err := o.race(ctx, p, n)
			if err != nil {
				return errors.Join(fmt.Errorf("%s on %d threads: %w", p.Name, n, err), r.print(stdout)) // what there is
			}
			r.Races = append(r.Races, one)
		}
	}
	if err := r.print(stdout); err != nil {
		return err
	}
	return r.save(o.json, o.plot)
}

func isTorch(name string) bool { return name != ours }

// findTorch notes which PyTorch races. If there is none it says so, and our
// engines race among themselves.
func (o *options) findTorch(ctx context.Context, r *result, stderr io.Writer) error {
	t, err := findTorch(ctx, o.python)
	if ctx.Err() != nil {
		return err
	}
	if err == nil {
		r.Torch = t.String()
		if t.slow() {
			fmt.Fprintf(stderr, "race: PyTorch multiplies with %s, the reference, many times slower than others: install libopenblas0-pthread\n", t.blas)
		}
		return nil
	}
	fmt.Fprintf(stderr, "race: %v; racing without it\n", err)
	o.contestants = slices.DeleteFunc(slices.Clone(o.contestants), isTorch)
	if len(o.engines) > 0 {
		return nil
	}
	for _, name := range compute.Names() {
		e, err := compute.ByName(name)
		if err != nil {
			return err
		}
		o.engines = append(o.engines, e)
	}
	return nil
}

// race starts everybody, then lets them take turns.
func (o *options) race(ctx context.Context, p preset, threads int) (race, error) {
	r := race{Preset: p.Name, Threads: threads}
	program, remove, err := torchFile()
	if err != nil {
		return r, err
	}
	defer remove()
	commands, err := o.commands(program, p, threads)
	if err != nil {
		return r, err
	}
	var all []*contestant
	defer func() {
		for _, c := range all {
			c.stop()
		}
	}()
	for _, c := range commands {
		s, err := start(ctx, c, threads)
		if err != nil {
			return r, err
		}
		all, r.Scores = append(all, s), append(r.Scores, &score{Name: c.name})
	}
	for range o.rounds {
		for i, c := range all {
			s, err := c.turn(o.turn)
			if err != nil {
				return r, err
			}
			r.Scores[i].Turns = append(r.Scores[i].Turns, s)
		}
	}
	for i, c := range all {
		r.Scores[i].PeakMB = c.stop()
	}
	return r, nil
}

// commands returns how to start whom the flags name, PyTorch with the program in
// a file.
func (o *options) commands(program string, p preset, threads int) ([]command, error) {
	var all []command
	add := func(c command, err error) error {
		all = append(all, c)
		return err
	}
	for _, name := range o.contestants {
		if isTorch(name) {
			if err := add(torchCommand(o.python, program, name, p, threads)); err != nil {
				return nil, err
			}
			continue
		}
		one := options{presets: []preset{p}, threads: []int{threads}, engines: o.engines}
		for _, n := range one.entries() {
			if err := add(ourCommand(n)); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}
