// Command race measures how fast one worker trains the PTB LSTM on a CPU: our
// engines against PyTorch, in turns, on the machine at hand. With --profile it
// says instead where the time of a step goes. Run it with --help.
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
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, help())
		return done
	case err == nil && o.serve:
		err = serve(ctx, o.entries()[0], stdin, stdout)
	case err == nil && o.profile:
		err = o.runProfile(ctx, stdout)
	case err == nil:
		err = o.runRace(ctx, stdout, stderr)
	}
	if err == nil {
		return done
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("stopped: %w", context.Cause(ctx))
	}
	fmt.Fprintf(stderr, "race: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		return badUsage
	}
	return failed
}
