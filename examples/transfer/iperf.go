package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"pushpull/examples/transfer/race"
)

const (
	iperfLeast = 64 << 10 // smaller transfers are not what iperf3 measures
	iperfMost  = 1 << 20  // bytes that iperf3 writes at once at most
)

// runIperf runs the program iperf3, where it is installed. It
// has no answers to wait for and checks nothing, and its buffers of at most a
// megabyte stay in the caches: a bound, not a contestant.
func (o *options) runIperf(ctx context.Context, direction string, size int64) (race.Sample, error) {
	if _, err := exec.LookPath(iperf); err != nil {
		return race.Sample{}, fmt.Errorf("%w: the program %s is not installed", race.ErrSkip, iperf)
	}
	port, err := freePort()
	if err != nil {
		return race.Sample{}, err
	}
	seconds := math.Ceil(o.seconds)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+20*time.Second)
	defer cancel() // kills the server, which Wait then joins
	host := "127.0.0.1"
	if len(o.launcher) > 0 {
		if host, _, err = net.SplitHostPort(o.psHosts[0]); err != nil {
			return race.Sample{}, err
		}
	}
	words := slices.Concat(o.launcher, []string{iperf, "-s", "-1", "-B", host, "-p", port})
	server := exec.CommandContext(ctx, words[0], words[1:]...)
	if err := server.Start(); err != nil {
		return race.Sample{}, err
	}
	defer server.Wait()
	defer cancel()
	args := []string{"-J", "-c", host, "-p", port, "-t", fmt.Sprint(seconds), "-l", fmt.Sprint(min(size, iperfMost))}
	if o.congestion != "" {
		args = append(args, "-C", o.congestion)
	}
	if direction == pull {
		args = append(args, "-R")
	}
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		out, err := exec.CommandContext(ctx, iperf, args...).Output()
		sample, parseErr := parseIperf(out, size)
		err = errors.Join(err, parseErr)
		if err == nil || ctx.Err() != nil || time.Since(start) > 5*time.Second { // the server may be slow to come
			return sample, err
		}
	}
}

// parseIperf reads what iperf3 -J prints.
func parseIperf(out []byte, size int64) (race.Sample, error) {
	var r struct {
		Error string
		End   struct {
			Received struct {
				Bytes   int64
				Seconds float64
			} `json:"sum_received"`
			CPU struct {
				Host   float64 `json:"host_total"`
				Remote float64 `json:"remote_total"`
			} `json:"cpu_utilization_percent"`
		}
	}
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&r); err != nil {
		return race.Sample{}, fmt.Errorf("%s: %w", iperf, err)
	}
	if r.Error != "" {
		return race.Sample{}, fmt.Errorf("%s: %s", iperf, r.Error)
	}
	got := r.End.Received
	return race.Sample{
		Bytes: got.Bytes, Calls: max(1, got.Bytes/size), Seconds: got.Seconds,
		Cost: race.Cost{CPUSeconds: (r.End.CPU.Host + r.End.CPU.Remote) / 100 * got.Seconds},
	}, nil
}

// freePort returns a TCP port that nobody listened at a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return strconv.Itoa(port), l.Close()
}
