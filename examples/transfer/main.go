// Command transfer measures how fast tensors go from a worker to a parameter
// server and back, over every transport. One binary is a parameter server, a
// worker, or a race of all transports on one machine. Run it with --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"pushpull/examples/transfer/race"
)

// Exit statuses.
const (
	statusDone = iota
	statusFailed
	statusUsage
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, help())
		return statusDone
	case err == nil:
		if o.attached {
			ctx = race.UntilEOF(ctx, stdin)
		}
		err = o.run(ctx, stdout, stderr)
	}
	if err == nil {
		return statusDone
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	fmt.Fprintf(stderr, "transfer: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		return statusUsage
	}
	return statusFailed
}

// run does what the flags say.
func (o *options) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch o.job {
	case "ps":
		return o.runPS(ctx, stdout, stderr)
	case "worker":
		return o.runWorker(ctx, stdout, stderr)
	}
	return o.runRace(ctx, stdout, stderr)
}
