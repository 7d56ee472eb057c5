package main

import (
	"math"
	"net"
	"runtime"
	"slices"
	"strings"

	"pushpull/model/compute"
)

// check refuses flags that make no sense, alone or together, and fills in what
// was left to a default. given says whether a flag was on the command line.
func (o *options) check(given func(flag string) bool) error {
	for _, check := range []func(func(string) bool) error{
		o.checkCluster, o.checkWork, o.checkUpdate, o.checkState, o.checkMachine, o.checkOutput,
	} {
		if err := check(given); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) checkCluster(given func(string) bool) error {
	c := &o.cluster
	if err := oneOf("job_name", c.job, "", "ps", "worker"); err != nil {
		return err
	}
	if c.startup <= 0 {
		return usagef("--startup_timeout=%v: want more than 0", c.startup)
	}
	if c.silence <= 0 {
		return usagef("--worker_timeout=%v: want more than 0", c.silence)
	}
	if c.job == "" {
		return o.checkLocal(given)
	}
	if err := oneOf("transport", c.transport, "grpc", "tcp", "shm", "auto"); err != nil {
		return err // inproc reaches no other process
	}
	for _, name := range []string{"ps", "workers"} {
		if given(name) {
			return usagef("--%s with --job_name=%s: want it only without --job_name; --ps_hosts and --worker_hosts say who is in the job", name, c.job)
		}
	}
	if err := checkHosts("ps_hosts", c.psHosts); err != nil {
		return err
	}
	if err := checkHosts("worker_hosts", c.workerHosts); err != nil {
		return err
	}
	c.ps, c.workers = len(c.psHosts), len(c.workerHosts)
	if !given("task_index") {
		return usagef("--job_name=%s without --task_index: want the number of this process among --%s_hosts, from 0", c.job, c.job)
	}
	n := map[string]int{"ps": c.ps, "worker": c.workers}[c.job]
	if c.task < 0 || c.task >= n {
		return usagef("--task_index=%d: want 0 to %d, for --%s_hosts lists %d", c.task, n-1, c.job, n)
	}
	if c.existing && c.job == "ps" {
		return usagef("--existing_servers with --job_name=ps: want it with --job_name=worker; this process would be the server")
	}
	return nil
}

// checkLocal checks the flags of a job in one process.
func (o *options) checkLocal(given func(string) bool) error {
	c := &o.cluster
	for _, name := range []string{"task_index", "ps_hosts", "worker_hosts", "existing_servers"} {
		if given(name) {
			return usagef("--%s without --job_name: want --job_name=ps or --job_name=worker beside it", name)
		}
	}
	if c.ps < 1 {
		return usagef("--ps=%d: want at least 1", c.ps)
	}
	if c.workers < 1 {
		return usagef("--workers=%d: want at least 1", c.workers)
	}
	c.psHosts, c.workerHosts = nil, nil
	return oneOf("transport", c.transport, "grpc", "tcp", "shm", "auto", "inproc")
}

func checkHosts(name string, hosts []string) error {
	if len(hosts) == 0 {
		return usagef("--%s=: want at least one host:port", name)
	}
	for i, h := range hosts {
		if _, port, err := net.SplitHostPort(h); (err != nil || port == "") && !strings.HasPrefix(h, "unix:///") {
			return usagef("--%s=%s: %q: want host:port, or unix:///path for a socket", name, strings.Join(hosts, ","), h)
		}
		if slices.Contains(hosts[:i], h) {
			return usagef("--%s=%s: %s is there twice: want different addresses", name, strings.Join(hosts, ","), h)
		}
	}
	return nil
}

func (o *options) checkWork(given func(string) bool) error {
	w := &o.work
	i := slices.IndexFunc(presets, func(p preset) bool { return p.Name == w.model })
	if i < 0 {
		return usagef("--model=%s: want test, small, medium or large", w.model)
	}
	o.preset = presets[i]
	if given("batch_size") {
		if w.batch < 1 {
			return usagef("--batch_size=%d: want at least 1", w.batch)
		}
		o.preset.Batch = w.batch
	}
	switch {
	case given("epochs"):
		if w.epochs < 1 {
			return usagef("--epochs=%d: want at least 1", w.epochs)
		}
		o.preset.Epochs = w.epochs
	case o.cluster.job == "" && w.dataPath == "":
		o.preset.Epochs = min(o.preset.Epochs, 3) // a first run ends within minutes
	}
	if w.steps < 0 {
		return usagef("--steps=%d: want at least 1, or 0 for no limit", w.steps)
	}
	if given("data_path") && w.dataPath == "" {
		return usagef("--data_path=: want a directory, or no such flag for the embedded corpus")
	}
	return oneOf("clip_norm", w.clipNorm, "dense", "slices")
}

func (o *options) checkUpdate(given func(string) bool) error {
	u := &o.update
	switch {
	case !u.sync && given("replicas_to_aggregate"):
		return usagef("--replicas_to_aggregate=%d without --sync_replicas: want both, or neither", u.aggregate)
	case u.sync && given("max_staleness"):
		return usagef("--max_staleness=%d with --sync_replicas: want one of them; synchronous gradients are never stale", u.maxStaleness)
	case u.sync && !given("replicas_to_aggregate"):
		u.aggregate = o.cluster.workers
	case u.sync && (u.aggregate < 1 || u.aggregate > o.cluster.workers):
		return usagef("--replicas_to_aggregate=%d: want 1 to %d, the number of workers: a replica gives an update one gradient",
			u.aggregate, o.cluster.workers)
	case !u.sync:
		u.aggregate = 1
	}
	if u.maxStaleness < -1 {
		return usagef("--max_staleness=%d: want at least 0, or -1 for any", u.maxStaleness)
	}
	if err := oneOf("optimizer", u.optimizer, "sgd", "momentum", "adagrad", "adam"); err != nil {
		return err
	}
	if !given("learning_rate") {
		u.rate = map[string]float64{"sgd": o.preset.Rate, "momentum": 0.1, "adagrad": 0.1, "adam": 0.001}[u.optimizer]
	}
	if !(u.rate > 0) || math.IsInf(u.rate, 0) {
		return usagef("--learning_rate=%v: want more than 0", u.rate)
	}
	if u.fp16 {
		if given("encoding") && u.encoding != "float16" {
			return usagef("--use_fp16 with --encoding=%s: want one of them", u.encoding)
		}
		u.encoding = "float16"
	}
	if err := oneOf("encoding", u.encoding, encodingNames()...); err != nil {
		return err
	}
	if u.partition < 0 {
		return usagef("--partition_bytes=%d: want at least 1, or 0 to have it chosen", u.partition)
	}
	return oneOf("placement", u.placement, "balanced", "round_robin")
}

func (o *options) checkState(given func(string) bool) error {
	s := &o.state
	if s.dir == "" {
		for _, name := range []string{"checkpoint_every", "checkpoint_keep"} {
			if given(name) {
				return usagef("--%s without --checkpoint_dir: want both", name)
			}
		}
	}
	if s.every < 1 {
		return usagef("--checkpoint_every=%d: want at least 1", s.every)
	}
	if s.keep < 0 {
		return usagef("--checkpoint_keep=%d: want at least 1, or 0 to keep all", s.keep)
	}
	return nil
}

func (o *options) checkMachine(func(string) bool) error {
	m := &o.machine
	if m.gpus != 0 {
		return usagef("--num_gpus=%d: want 0: this build has no CUDA support; a worker needs a build with the tag gpu, which is still to come", m.gpus)
	}
	if m.threads < 0 {
		return usagef("--threads=%d: want at least 1, or 0 for all CPUs", m.threads)
	}
	if m.threads == 0 {
		m.threads = runtime.GOMAXPROCS(0)
		if o.cluster.job == "" {
			m.threads = max(1, m.threads/o.cluster.workers)
		}
	}
	return oneOf("engine", m.engine, append([]string{"auto"}, compute.Names()...)...)
}

func (o *options) checkOutput(given func(string) bool) error {
	out := &o.output
	if out.metricsAddr != "" {
		if _, port, err := net.SplitHostPort(out.metricsAddr); err != nil || port == "" {
			return usagef("--metrics_addr=%s: want host:port", out.metricsAddr)
		}
	}
	return oneOf("progress", out.progress, "auto", "on", "off")
}

// oneOf checks a flag whose values are few.
func oneOf(flag, value string, want ...string) error {
	if slices.Contains(want, value) {
		return nil
	}
	named := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return s == "" })
	return usagef("--%s=%s: want one of %s", flag, value, strings.Join(named, ", "))
}
