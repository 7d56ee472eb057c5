// Command rawrpc measures how fast bare gRPC moves bytes, beside plain TCP:
// what is left of a link before anything of this project is above it. Run it
// with --help.
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
		err = o.run(ctx, stdout)
	}
	if err == nil {
		return statusDone
	}
	fmt.Fprintf(stderr, "rawrpc: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		return statusUsage
	}
	return statusFailed
}

// run does what the flags say.
func (o *options) run(ctx context.Context, stdout io.Writer) error {
	switch o.jobType {
	case "server":
		return o.runServer(ctx, stdout)
	case "client":
		return o.runClient(ctx, stdout)
	}
	return o.runRace(ctx, stdout)
}

// title says what is sent.
func (o *options) title() string {
	return fmt.Sprintf("%d messages of %d bytes, responses of %d, %d at once over %d connections",
		o.totalMessage, o.messageSize, o.responseSize, o.concurrency, o.channels)
}

// runClient is --job_type=client.
func (o *options) runClient(ctx context.Context, stdout io.Writer) error {
	report := race.NewReport(race.Control(o.congestion))
	sample, err := o.once(ctx, o.addr())
	if err != nil {
		return err
	}
	row := race.NewRow(o.transport+" "+o.payload, []race.Sample{sample})
	fmt.Fprintf(stdout, "%s, over %s\n", o.title(), row.Name)
	fmt.Fprintf(stdout, "rate: %s messages/s, %f MB/s\n", race.Figure(1/row.CallSeconds), row.MBs)
	fmt.Fprintf(stdout, "latency: p50 %s µs, p99 %s µs\n", race.Figure(1e6*row.P50), race.Figure(1e6*row.P99))
	fmt.Fprintf(stdout, "both sides: CPU %s s/GB, %s bytes allocated a byte\n", race.Figure(row.CPUPerGB), race.Figure(row.AllocPerByte))
	report.End([]race.Result{{Title: o.title(), Rows: []race.Row{row}}})
	return o.tell(report)
}

// once sends all messages to the server at addr.
func (o *options) once(ctx context.Context, addr string) (race.Sample, error) {
	c, err := o.dial(ctx, addr)
	if err != nil {
		return race.Sample{}, err
	}
	defer c.close()
	return c.measure(ctx, o.totalMessage, o.concurrency, o.congestion)
}

// runRace runs every transport and payload in turn, with a server in a process
// of its own.
func (o *options) runRace(ctx context.Context, stdout io.Writer) error {
	report := race.NewReport(race.Control(o.congestion))
	heat := race.Heat{Title: o.title(), Baseline: overTCP}
	add := func(name, transport, payload string) {
		way := *o
		way.transport, way.payload = transport, payload
		heat.Contestants = append(heat.Contestants, race.Contestant{Name: name, Run: way.contest})
	}
	add(overTCP, overTCP, payloadRaw)
	for _, p := range payloads {
		add(overGRPC+" "+p, overGRPC, p)
	}
	results, err := race.Run(ctx, []race.Heat{heat}, o.rounds, func(string) {})
	if err != nil {
		return err
	}
	report.End(results)
	fmt.Fprintf(stdout, "%s\n%d rounds; figures are medians, ratios medians of each round's ratio to tcp, ± half their quartiles' distance\n\n", report.Machine(), o.rounds)
	if err := results[0].Table(stdout, "calls/s", "MB/s", "ratio", "±", "p50 µs", "p99 µs", "CPU s/GB", "alloc B/B"); err != nil {
		return err
	}
	return o.tell(report)
}

// contest is one run against a child.
func (o *options) contest(ctx context.Context) (sample race.Sample, err error) {
	child, addr, err := race.Start(ctx, "the server", nil, "--job_type=server", "--attached", "--target_ip=127.0.0.1:0", "--transport="+o.transport,
		"--payload="+o.payload, fmt.Sprintf("--response_size=%d", o.responseSize), fmt.Sprintf("--server_threads=%d", o.serverThreads), "--congestion="+o.congestion)
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	return o.once(ctx, addr)
}

// tell writes the files that were asked for.
func (o *options) tell(report *race.Report) error {
	var err error
	if o.json != "" {
		err = report.Write(o.json)
	}
	if o.plot != "" {
		err = errors.Join(err, race.Plot(o.plot, "Bare bytes, "+report.CPU, report.Results))
	}
	return err
}
