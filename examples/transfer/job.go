package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"

	"pushpull/examples/transfer/race"
	"pushpull/transport"
)

// runPS is --job=ps. Its first line says where it listens.
func (o *options) runPS(ctx context.Context, stdout, stderr io.Writer) error {
	log := func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	s := newStore(len(o.workerHosts), false, o.congestion, log)
	l, err := wayOf(o.transports[0]).make().Listen(o.psHosts[o.task], s)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, l.Addr())
	err = s.wait(ctx, o.timeout)
	return errors.Join(err, l.Close())
}

// runWorker is --job=worker.
func (o *options) runWorker(ctx context.Context, stdout, stderr io.Writer) error {
	w := wayOf(o.transports[0])
	s, ctx, err := dial(ctx, w.make(), o.psHosts, o.task, o.load(o.sizes[0]), o.timeout)
	if err != nil {
		return err
	}
	defer s.close()
	fmt.Fprintf(stderr, "%d tensors of %d bytes altogether, over %s\n", o.tensors, s.bytes(), w.name)
	if err := s.join(ctx, len(o.workerHosts), o.congestion); err != nil {
		return err
	}
	report := race.NewReport(race.Control(o.congestion))
	enough := func(calls int64, _ time.Duration) bool { return calls >= int64(o.iters) }
	var results []race.Result
	for _, direction := range o.directions() {
		sample, err := s.measure(ctx, direction, false, enough)
		if err != nil {
			return err
		}
		row := race.NewRow(w.name, []race.Sample{sample})
		fmt.Fprintf(stderr, "%s: %d transfers in %.3f s, CPU %s s/GB and %s bytes allocated a byte, both sides\n",
			direction, sample.Calls, sample.Seconds, race.Figure(row.CPUPerGB), race.Figure(row.AllocPerByte))
		fmt.Fprintf(stdout, "transfer rate: %f MB/s%s\n", row.MBs, map[bool]string{true: " (" + direction + ")"}[o.direction == both])
		results = append(results, race.Result{Title: title(direction, o.sizes[0]), Rows: []race.Row{row}})
	}
	report.End(results)
	return errors.Join(s.leave(ctx), o.tell(report))
}

// load returns what a session is to move.
func (o *options) load(bytes int64) load {
	return load{bytes: bytes, tensors: o.tensors, encoding: o.encoding}
}

// tell writes the files that were asked for.
func (o *options) tell(report *race.Report) error {
	var err error
	if o.json != "" {
		err = report.Write(o.json)
	}
	if o.plot != "" {
		err = errors.Join(err, race.Plot(o.plot, "Transfer rate, "+report.CPU, report.Results))
	}
	return err
}

// dial returns a session with every ps at addrs, once they are there. All its
// calls must have the context it returns.
func dial(ctx context.Context, tr transport.Transport, addrs []string, task int, l load, limit time.Duration) (*session, context.Context, error) {
	var conns []transport.Conn
	for _, addr := range addrs {
		c, err := connect(ctx, tr, addr, limit)
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			return nil, nil, err
		}
		conns = append(conns, c)
	}
	s, ctx := newSession(ctx, conns, task, l, limit)
	context.AfterFunc(ctx, func() { // ends calls that take no notice of their context
		for _, c := range conns {
			c.Close()
		}
	})
	return s, ctx, nil
}

// connect returns a connection to the ps at addr once that answers, within limit.
func connect(ctx context.Context, tr transport.Transport, addr string, limit time.Duration) (transport.Conn, error) {
	c, err := tr.Dial(addr)
	if err != nil {
		return nil, err
	}
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval, policy.MaxInterval = 10*time.Millisecond, time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the ps at %s has not answered for %v (--timeout)", addr, limit))
	defer cancel()
	_, err = backoff.Retry(ctx, func() (transport.Description, error) {
		d, err := c.Describe(ctx)
		if err != nil && !errors.Is(err, transport.ErrUnavailable) {
			err = backoff.Permanent(err)
		}
		return d, err
	}, backoff.WithBackOff(policy), backoff.WithMaxElapsedTime(0)) // ctx has the limit
	if err != nil {
		c.Close()
		return nil, caused(ctx, err)
	}
	return c, nil
}
