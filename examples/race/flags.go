package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"pushpull/model/compute"
)

// The kinds of contestant.
const (
	ours         = "ours"
	torchNN      = "torch.nn"
	torchBatched = "torch.batched"
)

var allContestants = []string{torchNN, torchBatched, ours}

// options are the flags.
type options struct {
	presets     []preset
	threads     []int
	engines     []compute.Engine // empty: the fastest, or without PyTorch all
	contestants []string
	rounds      int
	turn        time.Duration
	python      string
	json, plot  string
	profile     bool
	serve       bool
}

// A usageError says which flag makes no sense.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// parse reads the flags.
func parse(args []string) (*options, error) {
	o := &options{}
	f, names := flagSet(o)
	if err := f.Parse(args); err != nil {
		if err == pflag.ErrHelp {
			return nil, err
		}
		return nil, usageError{err}
	}
	if f.NArg() > 0 {
		return nil, usagef("argument %q: want flags only", f.Arg(0))
	}
	for _, name := range names.presets {
		p, err := presetNamed(name)
		if err != nil {
			return nil, err
		}
		o.presets = append(o.presets, p)
	}
	for _, name := range names.engines {
		e, err := compute.ByName(name)
		if err != nil {
			return nil, usageError{fmt.Errorf("--engines: %w", err)}
		}
		o.engines = append(o.engines, e)
	}
	o.turn = time.Duration(names.seconds * float64(time.Second))
	return o, o.check(names.seconds)
}

// check says which value makes no sense.
func (o *options) check(seconds float64) error {
	for _, name := range o.contestants {
		if !slices.Contains(allContestants, name) {
			return usagef("--contestants: %q: want some of %s", name, strings.Join(allContestants, ", "))
		}
	}
	for _, n := range o.threads {
		if n < 1 || n > 1024 {
			return usagef("--threads: %d: want 1 to 1024", n)
		}
	}
	switch {
	case len(o.presets) == 0:
		return usagef("--presets: none: want some of %s", presetNames())
	case len(o.threads) == 0:
		return usagef("--threads: none: want numbers of threads, as in 1,2")
	case len(o.contestants) == 0:
		return usagef("--contestants: none: want some of %s", strings.Join(allContestants, ", "))
	case o.rounds < 1:
		return usagef("--rounds: %d: want at least 1", o.rounds)
	case !(seconds > 0 && seconds <= 3600):
		return usagef("--seconds: %v: want more than 0 and at most 3600", seconds)
	case o.profile && !slices.Equal(o.threads, []int{1}):
		return usagef("--profile: it is of one thread: want --threads=1, not %v", o.threads)
	case o.profile && (o.json != "" || o.plot != ""):
		return usagef("--profile prints a table: want it without --json and --plot")
	case o.serve && (len(o.presets) > 1 || len(o.threads) > 1 || len(o.engines) > 1):
		return usagef("--serve is one contestant: want one preset, one number of threads and one engine")
	}
	return nil
}

// given are flags as they are written.
type given struct {
	presets, engines []string
	seconds          float64
}

func flagSet(o *options) (*pflag.FlagSet, *given) {
	f, g := pflag.NewFlagSet("race", pflag.ContinueOnError), &given{}
	f.SortFlags, f.Usage = false, func() {} // run prints help
	f.StringSliceVar(&g.presets, "presets", strings.Split(presetNames(), ","), "models to train")
	f.IntSliceVar(&o.threads, "threads", []int{1}, "threads that a contestant may use, one race for each")
	f.IntVar(&o.rounds, "rounds", 7, "turns of each contestant")
	f.Float64Var(&g.seconds, "seconds", 4, "length of a turn; it ends with the first step that ends later")
	f.StringSliceVar(&g.engines, "engines", nil, "engines of ours, of "+strings.Join(compute.Names(), ", ")+" (default the first; all if there is no PyTorch)")
	f.StringSliceVar(&o.contestants, "contestants", allContestants, "who races; the first is the base of ratios")
	f.StringVar(&o.python, "python", "/usr/bin/python3", "Python that has PyTorch (Debian: apt-get install python3-torch)")
	f.StringVar(&o.json, "json", "", "write all figures to this file")
	f.StringVar(&o.plot, "plot", "", "draw the ratios to this file, .svg, .png or .pdf")
	f.BoolVar(&o.profile, "profile", false, "say where the time of a step goes, instead of racing")
	f.BoolVar(&o.serve, "serve", false, "be a contestant: say ready, train as many seconds as each line of the standard input says, and answer words per second and per CPU second")
	return f, g
}

// help returns what --help prints.
func help() string {
	f, _ := flagSet(&options{})
	return `Trains the PTB LSTM on random words, by our engines and by PyTorch in turns,
and prints words per second and ratios: medians over the rounds, each ratio
within a round, so that a machine that others use disturbs them little.

  race --presets=small --threads=1,2
  race --engines=avx512,avx2,portable --contestants=ours
  race --profile

` + f.FlagUsages()
}

// An entry is what a contestant of ours trains, and how.
type entry struct {
	preset  preset
	engine  compute.Engine
	threads int
}

// entries returns every entry the flags ask for.
func (o *options) entries() []entry {
	engines := o.engines
	if len(engines) == 0 {
		engines = []compute.Engine{compute.Best()}
	}
	var all []entry
	for _, p := range o.presets {
		for _, n := range o.threads {
			for _, e := range engines {
				all = append(all, entry{p, e, n})
			}
		}
	}
	return all
}
