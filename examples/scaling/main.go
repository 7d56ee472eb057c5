// Command scaling measures what a second worker brings: words per second of a
// job of several processes, over those of one worker that trains by itself, with
// no parameter server at all. Every figure is a median over rounds in which the
// contestants take turns. Run it with --help.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// options are the flags. A child process gets the same as its parent, and the
// hidden ones.
type options struct {
	presets    []string
	modes      []string
	transports []string
	encoding   string
	workers    int
	steps      int
	warm       int
	rounds     int
	wholePull  bool
	json       string

	role   string // of a child process
	preset string
	mode   string
	via    string
	addr   string
	task   int
}

func (o *options) flags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("scaling", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	fs.StringSliceVar(&o.presets, "presets", []string{"small"}, "models, `small|medium|large,...`")
	fs.StringSliceVar(&o.modes, "modes", []string{"async", "sync"}, "how gradients become updates, `async|sync,...`")
	fs.StringSliceVar(&o.transports, "transports", []string{"grpc"}, "what carries the calls, `"+strings.Join(transportNames(), "|")+",...`")
	fs.StringVar(&o.encoding, "encoding", "float32", "how weights and gradients travel, `"+strings.Join(encodingNames(), "|")+"`")
	fs.IntVar(&o.workers, "workers", 2, "`number` of workers, one thread each")
	fs.IntVar(&o.steps, "steps", 0, "measured `steps` of each worker in a round; default 60 for small, 12 for medium, 5 for large")
	fs.IntVar(&o.warm, "warm", 3, "`steps` before those")
	fs.IntVar(&o.rounds, "rounds", 5, "`rounds` in which base and jobs take turns")
	fs.BoolVar(&o.wholePull, "whole_pull", false, "pull the whole embedding, not the rows that the next batch reads")
	fs.StringVar(&o.json, "json", "", "`file` for the figures of every round")
	fs.StringVar(&o.role, "role", "", "")
	fs.StringVar(&o.preset, "preset", "", "")
	fs.StringVar(&o.mode, "mode", "", "")
	fs.StringVar(&o.via, "transport", "", "")
	fs.StringVar(&o.addr, "addr", "", "")
	fs.IntVar(&o.task, "task", 0, "")
	for _, name := range []string{"role", "preset", "mode", "transport", "addr", "task"} {
		fs.Lookup(name).Hidden = true
	}
	return fs
}

// A usageError reports flags that make no sense.
type usageError struct{ error }

func (o *options) check() error {
	for _, l := range []struct {
		flag      string
		got, want []string
	}{
		{"presets", o.presets, presetNames()}, {"modes", o.modes, []string{"async", "sync"}},
		{"transports", o.transports, transportNames()}, {"encoding", []string{o.encoding}, encodingNames()},
	} {
		for _, v := range l.got {
			if !slices.Contains(l.want, v) {
				return usageError{fmt.Errorf("--%s: %q: want one of %s", l.flag, v, strings.Join(l.want, ", "))}
			}
		}
	}
	for _, n := range []struct {
		flag     string
		got, min int
	}{{"workers", o.workers, 1}, {"steps", o.steps, 0}, {"warm", o.warm, 1}, {"rounds", o.rounds, 1}} {
		if n.got < n.min {
			return usageError{fmt.Errorf("--%s=%d: want at least %d", n.flag, n.got, n.min)}
		}
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status: 0 done, 1 failed, 2 bad usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	fs := o.flags()
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(stdout, "scaling measures what a second worker brings.\n\n%s", fs.FlagUsages())
		return 0
	}
	if err != nil {
		err = usageError{err}
	} else if err = o.check(); err == nil {
		err = o.run(ctx, stdout)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "scaling: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

func (o *options) run(ctx context.Context, stdout io.Writer) error {
	switch o.role {
	case "base":
		return o.base(ctx, stdout)
	case "ps":
		return o.serve(ctx, stdout)
	case "worker":
		return o.work(ctx, stdout)
	}
	rows, err := o.measure(ctx, stdout)
	if err != nil || o.json == "" {
		return err
	}
	b, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(b, '\n'), 0o644)
}
