package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"pushpull/model/compute"
)

// options are the flags, in groups. Every process of a job gets the same, but
// for --job_name and --task_index.
type options struct {
	cluster clusterOptions
	work    workOptions
	update  updateOptions
	state   stateOptions
	machine machineOptions
	output  outputOptions

	preset  preset // chosen by --model, with the flags that change it applied
	version bool
	given   map[string]string // the flags given, for the report
}

// clusterOptions say who is in the job and who this process is.
type clusterOptions struct {
	job         string // "ps", "worker", or "" for all of them in this process
	task        int
	psHosts     []string
	workerHosts []string
	ps, workers int    // how many of each; the length of the hosts' lists if there are any
	transport   string // as in newTransport
	existing    bool
	startup     time.Duration // to wait for the servers
	silence     time.Duration // to wait for a worker
}

// workOptions say what is trained, and for how long.
type workOptions struct {
	model    string
	dataPath string
	epochs   int
	steps    int64
	batch    int
	seed     uint64
	clipNorm string // "dense" or "slices"
}

// updateOptions say how gradients become updates.
type updateOptions struct {
	sync         bool
	aggregate    int
	maxStaleness int64 // -1 means any
	optimizer    string
	rate         float64
	fp16         bool   // short for encoding "float16"
	encoding     string // on the wire
	partition    int    // bytes; 0 means automatic
	placement    string
}

// stateOptions say what outlives the job.
type stateOptions struct {
	savePath string
	dir      string
	every    int64
	keep     int
}

// machineOptions say what a process computes on.
type machineOptions struct {
	gpus    int
	threads int
	engine  string
}

// outputOptions say who is told.
type outputOptions struct {
	metricsAddr string
	report      string
	progress    string // "auto", "on" or "off"
}

// A usageError reports flags that make no sense: the program ends with status 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// hosts is a list of addresses. Unlike pflag's own lists, one that is given
// again replaces the first.
type hosts struct{ list *[]string }

func newHosts(list *[]string, def ...string) hosts {
	*list = def
	return hosts{list}
}

func (h hosts) String() string {
	if h.list == nil {
		return ""
	}
	return strings.Join(*h.list, ",")
}

func (h hosts) Set(s string) error {
	*h.list = nil
	if s != "" {
		*h.list = strings.Split(s, ",")
	}
	return nil
}

func (h hosts) Type() string { return "host:port,..." }

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

	fs, c := add("Who is in the job"), &o.cluster
	fs.StringVar(&c.job, "job_name", "", "what this process is, `ps|worker`; without it, all of the job runs in this process")
	fs.IntVar(&c.task, "task_index", 0, "which `task` of its job this process is; worker 0 is the chief, which offers the initial weights and evaluates")
	fs.Var(newHosts(&c.psHosts, "localhost:2222"), "ps_hosts", "`host:port,...` of the parameter servers; each listens at its own")
	fs.Var(newHosts(&c.workerHosts, "localhost:2223", "localhost:2224"), "worker_hosts", "`host:port,...` of the workers; they are counted, but nothing listens there")
	fs.IntVar(&c.ps, "ps", 1, "without --job_name: `number` of parameter servers")
	fs.IntVar(&c.workers, "workers", 1, "without --job_name: `number` of workers")
	fs.StringVar(&c.transport, "transport", "grpc", "what carries the calls, `grpc|tcp|shm|auto|inproc`; tcp is plain frames, shm memory shared within one host, auto shm within one host and grpc to others, inproc only without --job_name")
	fs.BoolVar(&c.existing, "existing_servers", false, "the servers already hold the variables (from a checkpoint or another chief): do not offer initial weights")
	fs.DurationVar(&c.startup, "startup_timeout", 5*time.Minute, "how long a worker waits for the servers and for the initial weights")
	fs.DurationVar(&c.silence, "worker_timeout", 10*time.Minute, "how long the job waits for a worker that is silent; more than an evaluation takes, for the others wait for the chief's")

	fs, w := add("What is trained"), &o.work
	fs.StringVar(&w.model, "model", "small", "size of the model, `test|small|medium|large`")
	fs.StringVar(&w.dataPath, "data_path", "", "`directory` with ptb.train.txt, ptb.valid.txt and ptb.test.txt; without it, the embedded corpus (Jane Austen)")
	fs.IntVar(&w.epochs, "epochs", 0, "`passes` over the corpus; default the preset's, but 3 on the embedded corpus without --job_name")
	fs.Int64Var(&w.steps, "steps", 0, "stop after this `number` of updates if the epochs last longer; 0 means no such limit")
	fs.IntVar(&w.batch, "batch_size", 0, "`sequences` in a batch of one worker; default the preset's")
	fs.Uint64Var(&w.seed, "seed", 1, "`number` that initial weights and dropout derive from")
	fs.StringVar(&w.clipNorm, "clip_norm", "dense", "norm that a gradient is clipped by, `dense|slices`; slices is TensorFlow's, where a word's repetitions count one by one")

	fs, u := add("How gradients become updates"), &o.update
	fs.BoolVar(&u.sync, "sync_replicas", false, "average one gradient of each replica into one update; otherwise each is applied as it comes")
	fs.IntVar(&u.aggregate, "replicas_to_aggregate", 0, "with --sync_replicas: `gradients` in an update; fewer than workers leaves backups; default all workers")
	fs.Int64Var(&u.maxStaleness, "max_staleness", -1, "without --sync_replicas: `steps` that a gradient may be old, older ones are dropped; -1 means any")
	fs.StringVar(&u.optimizer, "optimizer", "sgd", "what makes an update of a gradient, `sgd|momentum|adagrad|adam`")
	fs.Float64Var(&u.rate, "learning_rate", 0, "`rate` of the first epochs; default the preset's for sgd, 0.1 for momentum and adagrad, 0.001 for adam")
	fs.BoolVar(&u.fp16, "use_fp16", false, "send weights and gradients as 16-bit floats, short for --encoding=float16; the servers keep, and workers compute with, 32 bits")
	fs.StringVar(&u.encoding, "encoding", "float32", "how weights and gradients travel, `float32|float16|bfloat16`; bfloat16 has the range of float32, float16 more digits")
	fs.IntVar(&u.partition, "partition_bytes", 0, "split variables into parts of at most so many `bytes`, or one row; 0 chooses by the number of servers")
	fs.StringVar(&u.placement, "placement", "balanced", "which server gets a part, `balanced|round_robin`; balanced is by bytes, round_robin is TensorFlow's")

	fs, s := add("What is kept"), &o.state
	fs.StringVar(&s.savePath, "save_path", "", "`directory` for the end of training: the chief writes model.safetensors, the servers a checkpoint, unless --checkpoint_dir says where; a restart goes on from that")
	fs.StringVar(&s.dir, "checkpoint_dir", "", "`directory` where servers keep checkpoints, and go on from the newest at start; without it there is only --save_path's")
	fs.Int64Var(&s.every, "checkpoint_every", 1000, "`steps` between checkpoints; one more is written at the end")
	fs.IntVar(&s.keep, "checkpoint_keep", 3, "`checkpoints` to keep; 0 keeps all")

	fs, m := add("What it computes on"), &o.machine
	fs.IntVar(&m.gpus, "num_gpus", 0, "`GPUs` of this machine that the worker uses (TensorFlow's default was 1)")
	fs.IntVar(&m.threads, "threads", 0, "`threads` of each worker; 0 means all CPUs, divided among the workers of this process")
	fs.StringVar(&m.engine, "engine", "auto", "what does the arithmetic, `"+strings.Join(append([]string{"auto"}, compute.Names()...), "|")+"`; auto is the fastest that this CPU can run")

	fs, out := add("Who is told"), &o.output
	fs.StringVar(&out.metricsAddr, "metrics_addr", "", "`host:port` that serves Prometheus metrics at /metrics; without it, nowhere")
	fs.StringVar(&out.report, "report", "", "`file` for a JSON report of the run, written by the chief at the end; worker 1 writes FILE.worker1.json for FILE.json, and so on")
	fs.StringVar(&out.progress, "progress", "auto", "progress bar on standard error, `auto|on|off`; auto shows the chief's if that is a terminal")
	fs.BoolVar(&o.version, "version", false, "print the version and exit")
	return gs
}

// parse reads the command line. The error is pflag.ErrHelp if it asks for
// help, else a usageError.
func parse(args []string) (*options, error) {
	o := &options{given: map[string]string{}}
	fs := pflag.NewFlagSet("ptb", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	for _, g := range o.groups() {
		fs.AddFlagSet(g.flags)
	}
	if err := fs.Parse(joinBools(fs, args)); err != nil {
		return nil, parseError(err)
	}
	if fs.NArg() > 0 {
		return nil, usagef("%q: want flags only, as in --model=small", fs.Arg(0))
	}
	fs.Visit(func(f *pflag.Flag) { o.given[f.Name] = f.Value.String() })
	if o.version {
		return o, nil
	}
	return o, o.check(fs.Changed)
}

// joinBools lets a boolean's value be a word of its own, as scripts written for
// TensorFlow have it: "--sync_replicas True" becomes "--sync_replicas=True".
func joinBools(fs *pflag.FlagSet, args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		f := fs.Lookup(strings.TrimPrefix(arg, "--"))
		if strings.HasPrefix(arg, "--") && f != nil && f.Value.Type() == "bool" && i+1 < len(args) {
			if v := strings.ToLower(args[i+1]); v == "true" || v == "false" {
				arg += "=" + v
				i++
			}
		}
		out = append(out, arg)
	}
	return out
}

// parseError says what pflag found in our words.
func parseError(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if errors.As(err, &invalid) {
		want := map[string]string{"int": "a whole number", "int64": "a whole number", "uint64": "a whole number of at least 0",
			"float64": "a number", "bool": "true or false", "duration": "a time such as 90s or 5m"}[invalid.GetFlag().Value.Type()]
		if want != "" {
			return usagef("--%s=%s: want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
		}
	}
	return usagef("%v", err)
}

// help returns the text of --help.
func help() string {
	var b strings.Builder
	b.WriteString(`ptb trains the LSTM language model of the TensorFlow PTB tutorial through parameter servers.

  ptb                                        everything in one process, on the embedded corpus
  ptb --job_name=ps --task_index=0 FLAGS     one parameter server
  ptb --job_name=worker --task_index=0 FLAGS one worker; give all processes of a job the same FLAGS

It ends with status 0 when training is done, 1 when it failed, 2 when the flags make no sense.
`)
	for _, g := range (&options{}).groups() {
		fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(120))
	}
	return b.String()
}
