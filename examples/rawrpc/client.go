package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pushpull/examples/transfer/race"
)

// A channel is a connection to the server. It is safe for concurrent use, but
// for close.
type channel interface {
	// call sends a request, and hands the answer to check, in pieces that are
	// good until that returns.
	call(ctx context.Context, request []byte, check func(pieces [][]byte) error) error
	close() error
}

// A client sends messages over some channels.
type client struct {
	channels []channel
	request  []byte
	response int // bytes of every answer
	limit    time.Duration
}

// dial makes the channels to the server at addr.
func (o *options) dial(ctx context.Context, addr string) (*client, error) {
	c := &client{request: newPattern(o.messageSize), response: o.responseSize, limit: o.timeout}
	for range o.channels {
		var ch channel
		var err error
		if o.transport == overTCP {
			ch, err = dialTCP(ctx, addr, o.timeout)
		} else {
			ch, err = dialGRPC(addr, o.payload)
		}
		if err != nil {
			c.close()
			return nil, err
		}
		c.channels = append(c.channels, ch)
	}
	return c, nil
}

func (c *client) close() {
	for _, ch := range c.channels {
		ch.close()
	}
}

// cost returns what the server has used so far.
func (c *client) cost(ctx context.Context) (cost race.Cost, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, errSilent(c.limit))
	defer cancel()
	defer context.AfterFunc(ctx, c.close)()
	err = c.channels[0].call(ctx, nil, func(pieces [][]byte) (err error) {
		cost, err = costOf(pieces)
		return err
	})
	return cost, caused(ctx, err)
}

func errSilent(limit time.Duration) error {
	return fmt.Errorf("the server has not answered for %v (--timeout)", limit)
}

// caused returns why ctx ended, if that is why err came.
func caused(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

// measure sends a number of messages, so many at once, and returns what that
// took both sides. Every answer is checked for its length and a sample of its
// bytes, some for all of them. Before it is measured, each channel sends two.
func (c *client) measure(ctx context.Context, total, concurrency int, congestion string) (race.Sample, error) {
	var sample race.Sample
	for range 2 {
		for i := range c.channels {
			if _, err := c.send(ctx, c.channels[i:i+1], 1, 1); err != nil {
				return sample, err
			}
		}
		if congestion != "" {
			if _, err := race.SetCongestion(congestion); err != nil {
				return sample, err
			}
		}
		if _, err := c.cost(ctx); err != nil { // by now the server has seen all channels, too
			return sample, err
		}
	}
	far, err := c.cost(ctx)
	if err != nil {
		return sample, err
	}
	near, start := race.Spent(), time.Now()
	latencies, err := c.send(ctx, c.channels, total, concurrency)
	if err != nil {
		return sample, err
	}
	sample.Seconds = time.Since(start).Seconds()
	near = race.Spent().Since(near)
	farAfter, err := c.cost(ctx)
	if err != nil {
		return sample, err
	}
	sample.Calls = int64(total)
	sample.Bytes = int64(total) * int64(len(c.request))
	sample.Cost = near.Plus(farAfter.Since(far))
	sample.P50, sample.P99 = race.Quantile(latencies, 0.50), race.Quantile(latencies, 0.99)
	return sample, nil
}

// send sends a number of messages over channels in turn, and returns how many
// seconds each took.
func (c *client) send(ctx context.Context, channels []channel, total, concurrency int) ([]float64, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	unstick := context.AfterFunc(ctx, c.close) // calls over TCP take no notice of ctx
	defer unstick()
	silent := time.AfterFunc(c.limit, func() { stop(errSilent(c.limit)) })
	defer silent.Stop()
	latencies := make([]float64, total)
	var next atomic.Int64
	one := func(ch channel, i int64) error {
		start := time.Now()
		err := ch.call(ctx, c.request, func(pieces [][]byte) error { return checkPattern(pieces, c.response, i%checkedWhole == 1) })
		if err != nil {
			err = fmt.Errorf("message %d of %d: %w", i, total, caused(ctx, err))
			stop(err) // the others need not go on
			return err
		}
		latencies[i-1] = time.Since(start).Seconds()
		silent.Reset(c.limit)
		return nil
	}
	var g errgroup.Group
	for k := range concurrency {
		g.Go(func() error {
			for i := next.Add(1); i <= int64(total); i = next.Add(1) {
				if err := one(channels[k%len(channels)], i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return latencies, g.Wait()
}
