// Command ptb trains the LSTM language model of the TensorFlow PTB tutorial
// through parameter servers. One binary is all of a job: a parameter server, a
// worker, or everything in one process. Run it with --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"pushpull/transport"
)

// Exit statuses.
const (
	done = iota
	failed
	badUsage
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, help())
		return done
	case err == nil && o.version:
		fmt.Fprintln(stdout, readVersions())
		return done
	case err == nil:
		err = o.run(ctx, newConsole(stdout, stderr, o.output.progress))
	}
	if err == nil {
		return done
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	fmt.Fprintf(stderr, "ptb: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) || errors.Is(err, transport.ErrJob) {
		return badUsage
	}
	return failed
}

// run does what the flags say, as the task they say.
func (o *options) run(ctx context.Context, c *console) (err error) {
	job := o.cluster.job
	if job == "" {
		job = "local"
	}
	reg := newRegistry(job, o.cluster.task)
	if addr := o.output.metricsAddr; addr != "" {
		stop, err := serveMetrics(addr, reg)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	switch o.cluster.job {
	case "ps":
		return o.runServer(ctx, c, reg)
	case "worker":
		return o.runWorker(ctx, c, reg)
	}
	return o.runLocal(ctx, c, reg)
}

// runServer is --job_name=ps.
func (o *options) runServer(ctx context.Context, c *console, reg prometheus.Registerer) error {
	index := o.cluster.task
	log := slog.New(slog.NewTextHandler(c, nil))
	s, err := listen(o, index, newTransport(o.cluster.transport), o.cluster.psHosts[index], labeled(reg, "ps", index), log)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// runWorker is --job_name=worker.
func (o *options) runWorker(ctx context.Context, c *console, reg prometheus.Registerer) error {
	text, err := o.loadCorpus()
	if err != nil {
		return err
	}
	index := o.cluster.task
	t := &trainer{
		o: o, task: index, corpus: text, transport: newTransport(o.cluster.transport), servers: o.cluster.psHosts,
		say: lines{console: c, bar: index == 0 || o.output.progress == "on"}, reg: labeled(reg, "worker", index),
	}
	t.say.notef("Corpus: %v", text)
	return t.run(ctx)
}
