package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// This file is the parent: it starts the children, in turns, and makes the table.

// A round is one measurement of a job.
type round struct {
	Base    figures   `json:"base"`
	Server  figures   `json:"ps"`
	Workers []figures `json:"workers"`
}

// speedup is all workers' words per second over the base's.
func (r round) speedup() (x float64) {
	for _, w := range r.Workers {
		x += w.Words / r.Base.Words
	}
	return x
}

// predicted is the speedup that the CPU times allow, if all of two cores were
// used all the time: the base's over what a step costs all processes together.
func (r round) predicted() float64 {
	cost := r.Server.CPU
	for _, w := range r.Workers {
		cost += w.CPU / float64(len(r.Workers))
	}
	return 2 * r.Base.CPU / cost
}

// A row is a line of the table.
type row struct {
	Preset    string  `json:"preset"`
	Mode      string  `json:"mode"`
	Transport string  `json:"transport"`
	Encoding  string  `json:"encoding"`
	Rounds    []round `json:"rounds"`
}

func (o *options) measure(ctx context.Context, stdout io.Writer) ([]row, error) {
	fmt.Fprintf(stdout, "%d workers of one thread, one server; base: one worker of one thread, no server; medians of %d rounds\n", o.workers, o.rounds)
	fmt.Fprintf(stdout, "CPU is in milliseconds for one step of one worker; speedup is all workers' wps over the base's\n\n")
	fmt.Fprintf(stdout, "%-7s %-6s %-9s %9s %9s %8s %8s | %6s %6s %8s %6s %6s | %9s %9s %10s\n",
		"model", "mode", "transport", "base wps", "job wps", "speedup", "spread", "base", "pull", "compute", "push", "ps", "pulled MB", "pushed MB", "CPU allows")
	var rows []row
	for _, name := range o.presets {
		var batch []row
		for _, via := range o.transports {
			for _, mode := range o.modes {
				batch = append(batch, row{Preset: name, Mode: mode, Transport: via, Encoding: o.encoding})
			}
		}
		for range o.rounds {
			base, err := o.runBase(ctx, name)
			if err != nil {
				return nil, err
			}
			for i := range batch {
				r, err := o.runJob(ctx, batch[i])
				if err != nil {
					return nil, err
				}
				r.Base = base
				batch[i].Rounds = append(batch[i].Rounds, r)
			}
		}
		for _, r := range batch {
			fmt.Fprintln(stdout, r)
		}
		rows = append(rows, batch...)
	}
	return rows, nil
}

// median returns the median over rounds of what f says.
func (r row) median(f func(round) float64) float64 {
	x := r.values(f)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

func (r row) values(f func(round) float64) (x []float64) {
	for _, one := range r.Rounds {
		x = append(x, f(one))
	}
	slices.Sort(x)
	return x
}

// mean returns the mean over the workers of what f says.
func mean(f func(figures) float64) func(round) float64 {
	return func(r round) (x float64) {
		for _, w := range r.Workers {
			x += f(w) / float64(len(r.Workers))
		}
		return x
	}
}

// String returns the row's line.
func (r row) String() string {
	speedups := r.values(round.speedup)
	ms := func(f func(round) float64) float64 { return 1000 * r.median(f) }
	return fmt.Sprintf("%-7s %-6s %-9s %9.0f %9.0f %8.2f %3.2f-%3.2f | %6.1f %6.1f %8.1f %6.1f %6.1f | %9.1f %9.1f %10.2f",
		r.Preset, r.Mode, r.Transport,
		r.median(func(r round) float64 { return r.Base.Words }),
		r.median(func(r round) float64 { return r.speedup() * r.Base.Words }),
		r.median(round.speedup), speedups[0], speedups[len(speedups)-1],
		ms(func(r round) float64 { return r.Base.CPU }),
		ms(mean(func(f figures) float64 { return f.Pull })), ms(mean(func(f figures) float64 { return f.Compute })),
		ms(mean(func(f figures) float64 { return f.Push })), ms(func(r round) float64 { return r.Server.CPU }),
		r.median(mean(func(f figures) float64 { return f.Pulled }))/1e6, r.median(mean(func(f figures) float64 { return f.Pushed }))/1e6,
		r.median(round.predicted))
}

// child returns the command of a child process.
func (o *options) child(ctx context.Context, role string, r row, more ...string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	steps := o.steps
	if steps == 0 {
		steps = presetByName(r.Preset).steps
	}
	args := []string{
		"--role=" + role, "--preset=" + r.Preset, "--mode=" + r.Mode, "--transport=" + r.Transport, "--encoding=" + o.encoding,
		"--workers=" + strconv.Itoa(o.workers), "--steps=" + strconv.Itoa(steps), "--warm=" + strconv.Itoa(o.warm),
		"--whole_pull=" + strconv.FormatBool(o.wholePull),
	}
	cmd := exec.CommandContext(ctx, exe, append(args, more...)...)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	return cmd, nil
}

func (o *options) runBase(ctx context.Context, preset string) (f figures, err error) {
	cmd, err := o.child(ctx, "base", row{Preset: preset})
	if err != nil {
		return f, err
	}
	out, err := cmd.Output()
	if err != nil {
		return f, fmt.Errorf("base: %w", err)
	}
	return f, json.Unmarshal(out, &f)
}

// runJob runs a server and its workers once.
func (o *options) runJob(ctx context.Context, r row) (round, error) {
	out := round{Workers: make([]figures, o.workers)}
	g, ctx := errgroup.WithContext(ctx) // the first failure ends all children
	server, err := o.child(ctx, "ps", r)
	if err != nil {
		return out, err
	}
	pipe, err := server.StdoutPipe()
	if err != nil {
		return out, err
	}
	if err := server.Start(); err != nil {
		return out, err
	}
	lines := bufio.NewReader(pipe)
	addr, err := lines.ReadString('\n')
	if err != nil {
		return out, fmt.Errorf("ps: it printed no address: %w", errorsOf(err, server.Wait()))
	}
	g.Go(func() error {
		rest, err := io.ReadAll(lines)
		if err := errorsOf(err, server.Wait()); err != nil {
			return fmt.Errorf("ps: %w", err)
		}
		return json.Unmarshal(rest, &out.Server)
	})
	for task := range o.workers {
		g.Go(func() error {
			cmd, err := o.child(ctx, "worker", r, "--addr="+strings.TrimSpace(addr), "--task="+strconv.Itoa(task))
			if err != nil {
				return err
			}
			var b bytes.Buffer
			cmd.Stdout = &b
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("worker/%d: %w", task, err)
			}
			return json.Unmarshal(b.Bytes(), &out.Workers[task])
		})
	}
	return out, g.Wait()
}

// errorsOf returns the error of a process, or else of reading what it wrote.
func errorsOf(read, wait error) error {
	if wait != nil {
		return wait
	}
	return read
}
