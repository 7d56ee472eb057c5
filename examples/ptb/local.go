package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// runLocal is a whole job in this process: its servers and workers differ from
// those of several processes in nothing but their addresses.
func (o *options) runLocal(ctx context.Context, c *console, reg prometheus.Registerer) error {
	text, err := o.loadCorpus()
	if err != nil {
		return err
	}
	c.note(fmt.Sprintf("Corpus: %v", text))

	t := newTransport(o.cluster.transport)
	log := slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var servers []*shardServer
	var addrs []string
	for i := range o.cluster.ps {
		s, err := listen(o, i, t, "localhost:0", labeled(reg, "ps", i), log)
		if err != nil {
			for _, s := range servers {
				s.Close()
			}
			return err
		}
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}

	g, ctx := errgroup.WithContext(ctx) // the first failure stops everybody
	for _, s := range servers {
		g.Go(func() error { return s.run(ctx) })
	}
	for i := range o.cluster.workers {
		w := &trainer{
			o: o, task: i, corpus: text, transport: t, servers: addrs,
			say: lines{console: c, bar: i == 0}, reg: labeled(reg, "worker", i),
		}
		if i > 0 {
			w.say.prefix = w.name() + ": "
		}
		g.Go(func() error { return w.run(ctx) })
	}
	return g.Wait()
}
