package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// The test binary is also the program: with this variable set it is ptb.
const asProgram = "PTB_TEST_RUNS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// A process is the program, running.
type process struct {
	t              testing.TB
	name           string
	cmd            *exec.Cmd
	stdout, stderr output
	ended          chan struct{} // closed when it has
}

// output collects what a process writes. It is safe for concurrent use.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// launch starts the program. What is still running when the test ends is killed.
func launch(t testing.TB, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the status is read from ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.ended
		if t.Failed() {
			t.Logf("%s %q\nstatus %d\nstdout:\n%s\nstderr:\n%s", name, args, p.cmd.ProcessState.ExitCode(), &p.stdout, &p.stderr)
		}
	})
	return p
}

// expect waits for the process to end by itself with the status.
func (p *process) expect(status int, limit time.Duration) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.t.Fatalf("%s still runs after %v", p.name, limit)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != status {
		p.t.Errorf("%s: status %d, want %d", p.name, got, status)
	}
}

// says waits until the process has written text to either output, so many times.
func (p *process) says(text string, times int) {
	p.t.Helper()
	const limit = time.Minute
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if strings.Count(p.stdout.String(), text)+strings.Count(p.stderr.String(), text) >= times {
			return
		}
		select {
		case <-p.ended:
			p.t.Fatalf("%s ended without saying %q", p.name, text)
		default:
		}
	}
	p.t.Fatalf("%s has not said %q in %v", p.name, text, limit)
}

// wrote checks that the outputs contain all texts.
func (p *process) wrote(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.stdout.String(), text) && !strings.Contains(p.stderr.String(), text) {
			p.t.Errorf("%s has not written %q", p.name, text)
		}
	}
}

// A job is the command line of a job in several processes.
type job struct {
	t       testing.TB
	ps      []string // addresses
	workers []string
	flags   []string // of every process
}

// newJob chooses free addresses of this machine.
func newJob(t testing.TB, servers, workers int, flags ...string) *job {
	addrs := freeAddrs(t, servers+workers)
	return &job{t: t, ps: addrs[:servers], workers: addrs[servers:], flags: flags}
}

func (j *job) launch(name string, task int, more ...string) *process {
	j.t.Helper()
	args := append([]string{"--job_name=" + name, fmt.Sprintf("--task_index=%d", task),
		"--ps_hosts=" + strings.Join(j.ps, ","), "--worker_hosts", strings.Join(j.workers, ",")}, j.flags...)
	return launch(j.t, fmt.Sprintf("%s/%d", name, task), append(args, more...)...)
}

// freeAddrs returns addresses of this machine that nobody listens at. The
// kernel does not choose a port again soon after it was closed, but nothing
// keeps another program from asking for it.
func freeAddrs(t testing.TB, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // after all have been chosen, so that they differ
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// someCorpus writes a corpus of so many training words in which a word depends
// on the one before, so that there is something to learn.
func someCorpus(t testing.TB, words int) (dir string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	text := func(words int) string {
		var b strings.Builder
		for last, n := 0, 0; n < words; n++ {
			last = (last*3 + r.IntN(4)) % 40
			fmt.Fprintf(&b, " w%d", last)
			if r.IntN(10) == 0 {
				b.WriteString(" <unk> \n")
				n += 2
			}
		}
		return b.String() + " \n"
	}
	return writeCorpus(t, text(words), text(1000), text(400))
}

// prints checks that standard output is the lines, as regular expressions, and
// nothing else.
func (p *process) prints(lines string) {
	p.t.Helper()
	if !regexp.MustCompile("^" + lines + "$").MatchString(p.stdout.String()) {
		p.t.Errorf("%s: standard output is not %s", p.name, lines)
	}
}

// Lines as people's scripts look for them.
const (
	epochLine    = `Epoch: \d+ Learning rate: \d\.\d{3}\n`
	progressLine = `[01]\.\d{3} perplexity: \d+\.\d{3} speed: \d+ wps\n`
	trainLine    = `Epoch: \d+ Train Perplexity: \d+\.\d{3}\n`
	validLine    = `Epoch: \d+ Valid Perplexity: \d+\.\d{3}\n`
	testLine     = `Test Perplexity: \d+\.\d{3}\n`

	// An asynchronous worker does more epochs than planned if another does fewer.
	chiefLines  = "(" + epochLine + "(" + progressLine + ")*" + trainLine + validLine + ")+" + testLine
	workerLines = "(" + epochLine + "(" + progressLine + ")*" + trainLine + ")+"
)
