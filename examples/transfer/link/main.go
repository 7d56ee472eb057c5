//go:build linux

// Command link joins two network namespaces by a link with a rate and a delay,
// for kernels that have no qdisc for delays. Frames come out of a TUN device in
// one namespace, wait until the link would have carried them, and go into a TUN
// device in the other; the same the other way. scripts/link starts it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

func main() {
	names := pflag.StringSlice("namespaces", nil, "`name,name` of the network namespaces, as `ip netns` knows them")
	device := pflag.String("device", "wire", "`name` of the device in both")
	rate := pflag.Float64("rate", 0, "`bits` a second, each way")
	delay := pflag.Duration("delay", 0, "`time` each way")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *names, *device, *rate, *delay); err != nil {
		fmt.Fprintln(os.Stderr, "link:", err)
		os.Exit(1)
	}
}

// run carries frames until ctx ends.
func run(ctx context.Context, namespaces []string, device string, rate float64, delay time.Duration) error {
	if len(namespaces) != 2 || !(rate > 0) || delay < 0 {
		return fmt.Errorf("namespaces %q, rate %v, delay %v: want two, more than 0, and at least 0", namespaces, rate, delay)
	}
	var ends [2]int
	for i, name := range namespaces {
		fd, err := openTUN(name, device)
		if err != nil {
			return fmt.Errorf("device %s in namespace %s: %w", device, name, err)
		}
		defer syscall.Close(fd)
		ends[i] = fd
	}
	fmt.Println("ready")
	var wg sync.WaitGroup
	errs := make(chan error, 2)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range ends {
		p := newPipe(ends[i], ends[1-i], rate/8, delay)
		wg.Go(func() {
			defer cancel()
			errs <- p.run(ctx)
		})
	}
	wg.Wait()
	return <-errs
}
