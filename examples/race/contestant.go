package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// How long a race waits for a contestant: to be ready, and for a turn beyond its
// seconds. Slow ones may need minutes for a step.
const (
	readyLimit = 10 * time.Minute
	turnLimit  = 10 * time.Minute
)

// A contestant is a process that trains when told to. It says "ready", and for
// every line of its standard input, a number of seconds, it trains that long, at
// least a step, and answers with its words per second and per second of CPU time.
type contestant struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	said *tail // what it wrote to its standard error
}

// A command is how to start a contestant.
type command struct {
	name string
	args []string
}

// ourCommand returns the command of a contestant of ours: this program.
func ourCommand(n entry) (command, error) {
	self, err := os.Executable()
	return command{n.engine.Name(), []string{
		self, "--serve", "--presets=" + n.preset.Name, "--engines=" + n.engine.Name(), "--threads=" + strconv.Itoa(n.threads),
	}}, err
}

// environment returns the environment of a contestant: ours, but for what limits
// threads, which the race decides, and what chooses kernels, which the
// contestants decide.
func environment(threads int) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "OPENBLAS") && !strings.HasPrefix(e, "OMP_") && !strings.HasPrefix(e, "MKL_") {
			env = append(env, e)
		}
	}
	n := strconv.Itoa(threads)
	return append(env, "GOMAXPROCS="+n, "OPENBLAS_NUM_THREADS="+n, "OMP_NUM_THREADS="+n, "MKL_NUM_THREADS="+n,
		"OMP_WAIT_POLICY=passive") // threads that wait for work must not take the cores from whoever is next
}

// start starts a contestant and waits until it is ready.
func start(ctx context.Context, c command, threads int) (*contestant, error) {
	p := &contestant{name: c.name, cmd: exec.CommandContext(ctx, c.args[0], c.args[1:]...), said: &tail{}}
	p.cmd.Env, p.cmd.Stderr = environment(threads), p.said
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: start: %w", c.name, err)
	}
	p.out = bufio.NewScanner(out)
	line, err := p.read(readyLimit)
	if err == nil && line != "ready" {
		err = fmt.Errorf("%s: it says %q: want %q", c.name, line, "ready")
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// A speed is what a turn measures.
type speed struct {
	Wall float64 `json:"words_per_second"`
	CPU  float64 `json:"words_per_cpu_second"`
}

// turn has the contestant train.
func (p *contestant) turn(d time.Duration) (speed, error) {
	var s speed
	if _, err := fmt.Fprintln(p.in, d.Seconds()); err != nil {
		p.stop()
		return s, fmt.Errorf("%s: it ended: %w: %s", p.name, err, p.said)
	}
	line, err := p.read(d + turnLimit)
	if err != nil {
		return s, err
	}
	if _, err := fmt.Sscan(line, &s.Wall, &s.CPU); err != nil || !(s.Wall > 0 && s.CPU > 0) {
		return s, fmt.Errorf("%s: it says %q: want words per second and words per CPU second", p.name, line)
	}
	return s, nil
}

// read waits for a line.
func (p *contestant) read(limit time.Duration) (string, error) {
	late := make(chan struct{})
	timer := time.AfterFunc(limit, func() { close(late); p.cmd.Process.Kill() })
	defer timer.Stop()
	if p.out.Scan() {
		return p.out.Text(), nil
	}
	p.stop()
	select {
	case <-late:
		return "", fmt.Errorf("%s: no answer within %v", p.name, limit)
	default:
		return "", fmt.Errorf("%s: it ended unasked: %s", p.name, p.said)
	}
}

// stop ends the process and returns the most memory it had, in MB. It may be
// called again.
func (p *contestant) stop() float64 {
	p.in.Close() // at the end of its input it leaves
	timer := time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() })
	defer timer.Stop()
	p.cmd.Wait() // its status tells nothing that its answers did not
	return peakMB(p.cmd.ProcessState)
}

// A tail keeps the last of what is written to it. The goroutine that copies a
// process's output writes; stop joins it, and only then is the tail read.
type tail struct{ data []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 2000
	t.data = append(t.data, p...)
	t.data = t.data[max(0, len(t.data)-most):]
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.data)) }
