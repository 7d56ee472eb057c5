package main

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pushpull/examples/ptb/corpus"
	"pushpull/model/compute"
	"pushpull/model/lstm"
	"pushpull/ps"
	"pushpull/transport"
	"pushpull/transport/auto"
	"pushpull/transport/grpc"
	"pushpull/transport/inproc"
	"pushpull/transport/shm"
	"pushpull/transport/tcp"
	"pushpull/worker"
)

// This file is where flags become the configuration of the packages.

// newTransport returns the transport of a name that was checked.
func newTransport(name string) transport.Transport {
	switch name {
	case "inproc":
		return &inproc.Network{}
	case "tcp":
		return tcp.New(tcp.Options{})
	case "shm":
		return shm.New(shm.Options{})
	case "auto":
		return auto.New(shm.New(shm.Options{}), grpc.New(grpc.Options{}))
	}
	return grpc.New(grpc.Options{})
}

// settings are what all processes of a job must agree on. The servers compare
// them name by name with those of each worker, and with a checkpoint's.
func (o *options) settings() []transport.Setting {
	p, u := o.preset, o.update
	return []transport.Setting{
		{Name: "model", Value: p.Name},
		{Name: "batch_size", Value: strconv.Itoa(p.Batch)},
		{Name: "seed", Value: strconv.FormatUint(o.work.seed, 10)},
		{Name: "clip_norm", Value: o.work.clipNorm},
		{Name: "ps", Value: strconv.Itoa(o.cluster.ps)},
		{Name: "workers", Value: strconv.Itoa(o.cluster.workers)},
		{Name: "sync_replicas", Value: strconv.FormatBool(u.sync)},
		{Name: "replicas_to_aggregate", Value: strconv.Itoa(u.aggregate)},
		{Name: "max_staleness", Value: strconv.FormatInt(u.maxStaleness, 10)},
		{Name: "optimizer", Value: u.optimizer},
		{Name: "learning_rate", Value: strconv.FormatFloat(u.rate, 'g', -1, 64)},
		{Name: "encoding", Value: u.encoding},
		{Name: "partition_bytes", Value: strconv.Itoa(u.partition)},
		{Name: "placement", Value: u.placement},
	}
}

// policy says which gradients make an update.
func (o *options) policy() ps.Policy {
	if o.update.sync {
		return ps.Sync(o.update.aggregate)
	}
	p := ps.Async()
	if o.update.maxStaleness >= 0 {
		p.MaxStaleness = o.update.maxStaleness
	}
	return p
}

// optimizer says what an update is.
func (o *options) optimizer() ps.Optimizer {
	return map[string]ps.Optimizer{"sgd": ps.SGD{}, "momentum": ps.Momentum{}, "adagrad": ps.Adagrad{}, "adam": ps.Adam{}}[o.update.optimizer]
}

// schedule is the tutorial's, from the rate of --learning_rate.
func (o *options) schedule() ps.Schedule {
	return ps.Decay{Rate: o.update.rate, Factor: o.preset.Decay, Hold: o.preset.RateEpochs}
}

// server configures one parameter server.
func (o *options) server(task int, reg prometheus.Registerer, log *slog.Logger) ps.Config {
	cfg := ps.Config{
		Task:      task,
		Tasks:     o.cluster.ps,
		Replicas:  o.cluster.workers,
		Settings:  o.settings(),
		Policy:    o.policy(),
		Optimizer: o.optimizer(),
		Schedule:  o.schedule(),
		MaxWait:   min(o.cluster.silence, o.cluster.startup, 10*time.Second), // so that a worker sees its own limit
		Linger:    min(o.cluster.silence, 30*time.Second),                    // a worker that evaluates is heard of more often
		IdleLimit: max(o.cluster.silence, o.cluster.startup),
		Metrics:   reg,
		Log:       log,
	}
	switch s := o.state; {
	case s.dir != "":
		cfg.Checkpoint = ps.Checkpoint{Dir: s.dir, Every: s.every, Keep: s.keep}
	case s.savePath != "":
		cfg.Checkpoint = ps.Checkpoint{Dir: s.savePath, Keep: s.keep} // the end alone
	}
	return cfg
}

// session configures one worker's.
func (o *options) session(task int, t transport.Transport, servers []string, plan transport.Plan, reg prometheus.Registerer, onWait func(string)) worker.Config {
	cfg := worker.Config{
		Transport:  t,
		Addrs:      servers,
		Task:       task,
		Settings:   o.settings(),
		Plan:       plan,
		Encoding:   o.encoding(),
		Placement:  map[string]worker.Placement{"balanced": worker.Greedy, "round_robin": worker.RoundRobin}[o.update.placement],
		Existing:   o.cluster.existing,
		StartLimit: o.cluster.startup,
		StepLimit:  o.cluster.silence,
		OnWait:     onWait,
		Metrics:    reg,
	}
	if o.update.partition > 0 {
		cfg.Partition = worker.FixedSize(o.update.partition)
	}
	return cfg
}

func (o *options) encoding() transport.Encoding {
	return transport.Encoding(slices.Index(encodingNames(), o.update.encoding))
}

// encodingNames are the values of --encoding.
func encodingNames() (names []string) {
	for _, e := range transport.Encodings {
		names = append(names, e.String())
	}
	return names
}

// lstm configures one worker's model. The weights that count are the chief's;
// what the seed gives the others is their dropout, which must differ.
func (o *options) lstm(task, vocabulary int) (lstm.Config, error) {
	p := o.preset
	cfg := lstm.Config{
		Vocab: vocabulary, Layers: p.Layers, Hidden: p.Hidden, Batch: p.Batch, Unroll: p.Unroll,
		InitScale: p.InitScale, Keep: p.Keep, MaxNorm: p.MaxNorm,
		Norm:    map[string]lstm.Norm{"dense": lstm.DenseNorm, "slices": lstm.SliceNorm}[o.work.clipNorm],
		Seed:    o.work.seed + uint64(task),
		Threads: o.machine.threads,
		Engine:  compute.Best(),
	}
	if o.machine.engine != "auto" {
		var err error
		if cfg.Engine, err = compute.ByName(o.machine.engine); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
}

// loadCorpus reads the corpus and checks that it has a batch for everybody.
func (o *options) loadCorpus() (*corpus.Corpus, error) {
	load := corpus.Embedded
	if o.work.dataPath != "" {
		load = func() (*corpus.Corpus, error) { return corpus.Load(o.work.dataPath) }
	}
	c, err := load()
	if err != nil {
		return nil, err
	}
	if _, err := o.plan(c); err != nil {
		return nil, err
	}
	if _, err := lstm.NewBatches(c.Valid, o.preset.Batch, o.preset.Unroll); err != nil {
		return nil, fmt.Errorf("%s: ptb.valid.txt: %w", c.Name, err)
	}
	if _, err := lstm.NewBatches(c.Test, 1, 1); err != nil {
		return nil, fmt.Errorf("%s: ptb.test.txt: %w", c.Name, err)
	}
	return c, nil
}

// plan is the work of the job: so many epochs, each over the shares of all
// workers, or so many steps.
func (o *options) plan(c *corpus.Corpus) (transport.Plan, error) {
	p := o.preset
	plan := transport.Plan{Steps: o.work.steps}
	for task := range o.cluster.workers {
		share, err := lstm.Share(c.Train, task, o.cluster.workers)
		if err != nil {
			return plan, err
		}
		batches, err := lstm.NewBatches(share, p.Batch, p.Unroll)
		if err != nil {
			return plan, fmt.Errorf("%s: ptb.train.txt, the share of worker %d of %d: %w", c.Name, task, o.cluster.workers, err)
		}
		plan.EpochExamples += int64(batches.Len()) * int64(p.Batch) * int64(p.Unroll)
	}
	if int64(p.Epochs) > math.MaxInt64/plan.EpochExamples {
		return plan, usagef("--epochs=%d: want at most %d, for an epoch has %d words", p.Epochs, math.MaxInt64/plan.EpochExamples, plan.EpochExamples)
	}
	plan.Examples = int64(p.Epochs) * plan.EpochExamples
	return plan, nil
}
