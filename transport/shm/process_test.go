//go:build linux

package shm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pushpull/transport"
	"pushpull/transport/shm"
)

// A process of the test binary with a role is not the one that tests, but
// another that this one needs.
const roleVariable, addrVariable = "SHM_TEST_ROLE", "SHM_TEST_ADDR"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role, os.Getenv(addrVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// play says a line and goes on until the standard input ends.
func play(role, addr string) error {
	tr := shm.New(shm.Options{})
	switch role {
	case "serve", "stall":
		l, err := tr.Listen(addr, map[string]transport.Service{"serve": newStill(), "stall": newStalled()}[role])
		if err != nil {
			return err
		}
		fmt.Println(l.Addr())
	case "race":
		l, err := tr.Listen(addr, newStill())
		if err != nil {
			return err
		}
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		unix, err := net.Listen("unix", fmt.Sprintf("@shm-test-%d", os.Getpid()))
		if err != nil {
			return err
		}
		go servePlain(tcp)
		go servePlain(unix)
		fmt.Println(l.Addr(), tcp.Addr(), unix.Addr())
	case "pull", "push":
		c, err := tr.Dial(addr)
		if err != nil {
			return err
		}
		parts := []transport.Part{{Variable: "v", Data: make([]float32, 5<<20)}}
		if role == "pull" {
			_, err = c.Pull(context.Background(), 1, parts)
		} else {
			_, err = c.Push(context.Background(), transport.Push{}, parts)
		}
		return fmt.Errorf("%s ends with %v", role, err)
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// stalled is a shard whose pushes and pulls last until nobody waits for them.
type stalled struct {
	transport.Service
	began, ended chan string
}

func newStalled() *stalled {
	return &stalled{began: make(chan string, 10), ended: make(chan string, 10)}
}

func (s *stalled) stall(ctx context.Context, what string) error {
	s.began <- what
	<-ctx.Done()
	s.ended <- what
	return ctx.Err()
}

func (s *stalled) Pull(ctx context.Context, _ int64, _ []transport.Part) (transport.Status, error) {
	return transport.Status{}, s.stall(ctx, "pull")
}

func (s *stalled) Push(ctx context.Context, _ transport.Push, _ []transport.Part) (transport.Verdict, error) {
	return 0, s.stall(ctx, "push")
}

func (*stalled) Describe(context.Context) (transport.Description, error) {
	return transport.Description{Task: "stalled"}, nil
}

// A process is another process of the test binary.
type process struct {
	cmd  *exec.Cmd
	said []string // the words of its first line
}

// start starts a process that plays a role, and waits for its first line if it
// has one.
func start(tb testing.TB, role, addr string) *process {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), roleVariable+"="+role, addrVariable+"="+addr)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		p.cmd.Wait()
	})
	if role == "pull" || role == "push" {
		return p
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	p.said = strings.Fields(line)
	return p
}

// kill ends the process at once, and forever.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

func dial(tb testing.TB, addr string) transport.Conn {
	tb.Helper()
	c, err := shm.New(shm.Options{}).Dial(addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// TestKilledServerIsNoticed and another takes its place at the same address.
func TestKilledServerIsNoticed(t *testing.T) {
	for _, addr := range []string{"shm://" + filepath.Join(t.TempDir(), "socket"), "localhost:0"} {
		before := held(t)
		server := start(t, "stall", addr)
		addr = server.said[0]
		c := dial(t, addr)
		for _, op := range []string{"pull", "push"} {
			failed := make(chan error, 1)
			go func() {
				var err error
				parts := []transport.Part{{Variable: "v", Data: make([]float32, 5<<20)}}
				if op == "pull" {
					_, err = c.Pull(context.Background(), 1, parts)
				} else {
					_, err = c.Push(context.Background(), transport.Push{}, parts)
				}
				failed <- err
			}()
			select {
			case err := <-failed:
				t.Fatalf("%s of a stalled server: %v", op, err)
			case <-time.After(300 * time.Millisecond): // by now it has reached the server, mostly
			}
			server.kill()
			select {
			case err := <-failed:
				if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), addr) {
					t.Errorf("%s when the server is killed: %v, want %v with the address", op, err, transport.ErrUnavailable)
				}
			case <-time.After(time.Second):
				t.Fatalf("%s goes on a second after the server was killed", op)
			}
			server = start(t, "stall", addr)
			if d, err := c.Describe(context.Background()); err != nil || d.Task != "stalled" {
				t.Errorf("Describe of the next server at %s = %v, %v", addr, d.Task, err)
			}
		}
		server.kill()
		server = start(t, "stall", addr)
		if _, err := c.Describe(context.Background()); err != nil {
			t.Errorf("Describe after the server was killed and started while no call was under way: %v", err)
		}
		server.kill()
		c.Close()
		released(t, before)
	}
}

// TestKilledCallerIsNoticed by the server, which lets go of its memory and goes
// on.
func TestKilledCallerIsNoticed(t *testing.T) {
	s := newStalled()
	l, err := shm.New(shm.Options{}).Listen(":0", s)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, op := range []string{"pull", "push"} {
		before := held(t)
		caller := start(t, op, l.Addr())
		if got := <-s.began; got != op {
			t.Fatalf("the other process calls %s, want %s", got, op)
		}
		if now := held(t); now.mappings != before.mappings+1 {
			t.Errorf("%d regions are mapped during a call, want one more than %d", now.mappings, before.mappings)
		}
		caller.kill()
		select {
		case <-s.ended:
		case <-time.After(time.Second):
			t.Fatalf("the %s is not canceled a second after its caller was killed", op)
		}
		released(t, before)
	}
	if d, err := dial(t, l.Addr()).Describe(context.Background()); err != nil || d.Task != "stalled" {
		t.Errorf("Describe afterwards = %v, %v", d.Task, err)
	}
}

// What a process holds of the kernel.
type holding struct{ files, mappings int }

func held(tb testing.TB) holding {
	tb.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		tb.Fatal(err)
	}
	return holding{len(files), strings.Count(string(maps), "memfd:pushpull")}
}

// released waits until no more is held than before.
func released(tb testing.TB, before holding) {
	tb.Helper()
	var now holding
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if now = held(tb); now.files <= before.files && now.mappings <= before.mappings {
			return
		}
	}
	tb.Errorf("%d files and %d regions are held, %d and %d before", now.files, now.mappings, before.files, before.mappings)
}
