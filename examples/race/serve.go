package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// warmup is the number of steps before a contestant says that it is ready.
const warmup = 2

// serve is a contestant of ours. It speaks what [contestant] listens to.
func serve(ctx context.Context, n entry, in io.Reader, out io.Writer) error {
	t, err := newTrainer(n, n.engine)
	if err != nil {
		return err
	}
	for range warmup {
		if err := t.train(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "ready")
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(lines.Text()), 64)
		if err != nil {
			return usagef("standard input: %q: want a number of seconds", lines.Text())
		}
		wall, cpu, err := t.speed(ctx, time.Duration(seconds*float64(time.Second)))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%.4f %.4f\n", wall, cpu)
	}
	return lines.Err()
}

// speed trains for at least d and one step, and returns words per second and
// words per second of CPU time.
func (t *trainer) speed(ctx context.Context, d time.Duration) (wall, cpu float64, err error) {
	start, startCPU := time.Now(), cpuTime()
	words := 0.0
	for words == 0 || time.Since(start) < d {
		if err := t.train(ctx); err != nil {
			return 0, 0, err
		}
		words += float64(t.preset.words())
	}
	return words / time.Since(start).Seconds(), words / (cpuTime() - startCPU).Seconds(), nil
}
