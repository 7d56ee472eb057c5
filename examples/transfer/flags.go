package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"pushpull/transport"
)

// options are the flags, in groups.
type options struct {
	// Who is in the job.
	job         string // "ps", "worker", or "" for a race
	task        int
	psHosts     []string
	workerHosts []string
	timeout     time.Duration
	attached    bool

	// What is moved.
	dataMB       int
	iters        int
	tensors      int
	direction    string
	encodingName string
	encoding     transport.Encoding // what encodingName says

	// How it is moved.
	transports []string
	congestion string

	// The race.
	psCommand string
	launcher  []string // its words
	sizeTexts []string
	sizes     []int64 // what sizeTexts say
	rounds    int
	seconds   float64
	check     bool

	// Who is told.
	json, plot string
}

// A usageError reports flags that make no sense: the program ends with status 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// A group is some flags under a title.
type group struct {
	title string
	flags *pflag.FlagSet
}

func (o *options) groups() []group {
	var gs []group
	add := func(title string) *pflag.FlagSet {
		fs := pflag.NewFlagSet(title, pflag.ContinueOnError)
		fs.SortFlags = false
		gs = append(gs, group{title, fs})
		return fs
	}
	var names []string
	for _, w := range ways {
		names = append(names, w.name)
	}

	fs := add("Who is in the job")
	fs.StringVar(&o.job, "job", "", "what this process is, `ps|worker`; without it, both sides are started here and all transports raced")
	fs.IntVar(&o.task, "task", 0, "which `task` of its job this process is")
	fs.StringSliceVar(&o.psHosts, "ps_hosts", []string{"localhost:12222"}, "`host:port,...` of the parameter servers, or unix:///path; each listens at its own, and tensors go to them in turn")
	fs.StringSliceVar(&o.workerHosts, "worker_hosts", []string{"localhost:12223"}, "`host:port,...` of the workers; they are counted, but nothing listens there")
	fs.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the other side, to come and to answer")
	fs.BoolVar(&o.attached, "attached", false, "with --job: end when standard input ends; for programs that start this one")

	fs = add("What is moved")
	fs.IntVar(&o.dataMB, "data_mb", 100, "size of all tensors together, in `MB` of 1,000,000 bytes; without --job, the same as --sizes with that many bytes")
	fs.IntVar(&o.iters, "iters", 100, "with --job=worker: `times` to move them")
	fs.IntVar(&o.tensors, "tensors", 1, "`number` of variables that the data is split into")
	fs.StringVar(&o.direction, "direction", push, "which way it goes, `push|pull|both`; push is worker to ps; both measures one after the other")
	fs.StringVar(&o.encodingName, "encoding", transport.Float32.String(), "how it travels, `"+strings.Join(encodings(), "|")+"`; rates count it as it lies in memory, at 4 bytes an element")

	fs = add("How it is moved")
	fs.StringSliceVar(&o.transports, "transport", nil, "`way,...` of "+strings.Join(names, ", ")+"; with --job one, default grpc; without, those to race, default all; "+plainTCP+" always takes part")
	fs.StringVar(&o.congestion, "congestion", "", "congestion `control` for the TCP sockets of this process, and in a race of both; default the system's with --job, cubic without")

	fs = add("The race (without --job)")
	fs.StringSliceVar(&o.sizeTexts, "sizes", []string{"4", "64K", "1M", "16M", "100M"}, "`bytes,...` to move at a time; K is 1024, M 1024², G 1024³")
	fs.IntVar(&o.rounds, "rounds", 5, "`times` to run all of them, in alternating order")
	fs.Float64Var(&o.seconds, "seconds", 0.5, "`seconds` to measure each in every round")
	fs.StringVar(&o.psCommand, "ps_command", "", "`words` to start the ps with, to have it elsewhere, as in \"scripts/link ps\"; it listens at --ps_hosts, where port 0 means any. Network transports race then")
	fs.BoolVar(&o.check, "check", false, "compare the ratios with the marks they should reach, in both directions, and end with status 1 if one falls short by more than its noise")

	fs = add("Who is told")
	fs.StringVar(&o.json, "json", "", "`file` for the figures of every round")
	fs.StringVar(&o.plot, "plot", "", "`file` for a picture, .png or .svg")
	return gs
}

// parse reads the command line. The error is pflag.ErrHelp if it asks for
// help, else a usageError.
func parse(args []string) (*options, error) {
	o := &options{}
	fs := pflag.NewFlagSet("transfer", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	for _, g := range o.groups() {
		fs.AddFlagSet(g.flags)
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, usagef("%v", err)
	}
	if fs.NArg() > 0 {
		return nil, usagef("%q: want flags only, as in --data_mb=100", fs.Arg(0))
	}
	return o, o.validate(fs.Changed)
}

// help returns the text of --help.
func help() string {
	var b strings.Builder
	b.WriteString(`transfer measures how fast tensors go from a worker to a parameter server and back.

  transfer                                        race all transports on this machine, beside plain TCP and memcpy
  transfer --job=ps --task=0 HOSTS                one parameter server; it ends when the workers are done
  transfer --job=worker --task=0 HOSTS            one worker: prints "transfer rate: 173.488801 MB/s"
  transfer --check                                race, and compare with the marks

MB is 1,000,000 bytes. Everything that arrives is checked: every element before and after the timed part, and in it one of
65,536, which changes with every transfer.
It ends with status 0 when all went well, 1 when something failed, 2 when the flags make no sense.
`)
	for _, g := range (&options{}).groups() {
		fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(120))
	}
	return b.String()
}
