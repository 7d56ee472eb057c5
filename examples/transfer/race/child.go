package race

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	startLimit = 20 * time.Second // for a child to say its first line
	endLimit   = 5 * time.Second  // for it to end by itself when it is told to
)

// A Child is another process of this same program, so that the far side has a
// process of its own. It is killed when its context ends, and it can tell by
// the end of its standard input that this process is gone.
type Child struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr tail
	output chan struct{} // closed when its standard output has ended

	once sync.Once
	err  error // of the first Close; guarded by once
}

// Start starts a child with the arguments, and returns the first line it
// prints. The words of launcher, if there are any, come before the program and
// its arguments: a command that runs it elsewhere. Close must be called.
func Start(ctx context.Context, name string, launcher []string, args ...string) (c *Child, line string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	words := slices.Concat(launcher, []string{self}, args)
	c = &Child{name: name, cmd: exec.CommandContext(ctx, words[0], words[1:]...), output: make(chan struct{})}
	c.cmd.Stderr = &c.stderr
	c.cmd.WaitDelay = endLimit
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	first := make(chan string, 1)
	go func() { // Close joins it
		defer close(c.output)
		defer close(first)
		r := bufio.NewReader(stdout)
		if s, err := r.ReadString('\n'); err == nil {
			first <- strings.TrimSpace(s)
		}
		io.Copy(io.Discard, r)
	}()
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case line, ok := <-first:
		if ok {
			return c, line, nil
		}
		err = errors.New("it ended before it was ready")
	case <-limit.C:
		err = fmt.Errorf("it was not ready after %v", startLimit)
	}
	c.cmd.Process.Kill()
	return nil, "", fmt.Errorf("start %s: %w", name, errors.Join(err, c.Close()))
}

// Close waits until the child has ended; if it does not by itself, it is
// killed. It returns how the child failed, if it did.
func (c *Child) Close() error {
	c.once.Do(func() { c.err = c.end() })
	return c.err
}

func (c *Child) end() error {
	c.stdin.Close()
	kill := time.AfterFunc(endLimit, func() { c.cmd.Process.Kill() })
	<-c.output
	err := c.cmd.Wait()
	killed := !kill.Stop()
	switch text := c.stderr.String(); {
	case err == nil:
		return nil
	case killed:
		return fmt.Errorf("%s (process %d) did not end within %v of being told to, and was killed", c.name, c.cmd.Process.Pid, endLimit)
	case text != "":
		return fmt.Errorf("%s (process %d): %w: %s", c.name, c.cmd.Process.Pid, err, text)
	default:
		return fmt.Errorf("%s (process %d): %w", c.name, c.cmd.Process.Pid, err)
	}
}

// tail keeps the end of what is written to it. Only one goroutine writes, and
// it is read after that has ended.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.kept = append(t.kept, p...)
	if n := len(t.kept); n > most {
		t.kept = append(t.kept[:0], t.kept[n-most:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(bytes.TrimSpace(t.kept)) }

// UntilEOF returns a context that is canceled when in ends: what a child runs
// under, with its standard input.
func UntilEOF(ctx context.Context, in io.Reader) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with the process at the latest: a read cannot be canceled
		io.Copy(io.Discard, in)
		cancel(errors.New("the process that started this one has ended or closed its side"))
	}()
	return ctx
}
