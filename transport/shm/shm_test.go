//go:build linux

package shm_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pushpull/transport"
	"pushpull/transport/shm"
	"pushpull/transport/transporttest"
)

func TestTransport(t *testing.T) {
	transporttest.Test(t, func(*testing.T) (transport.Transport, string) { return shm.New(shm.Options{}), "127.0.0.1:0" })
}

func TestTransportOverSocketFile(t *testing.T) {
	if testing.Short() {
		t.Skip("the same again")
	}
	transporttest.Test(t, func(t *testing.T) (transport.Transport, string) {
		return shm.New(shm.Options{}), "shm://" + filepath.Join(t.TempDir(), "socket")
	})
}

// listen serves s until the test ends.
func listen(tb testing.TB, opts shm.Options, addr string, s transport.Service) transport.Listener {
	tb.Helper()
	l, err := shm.New(opts).Listen(addr, s)
	if err != nil {
		tb.Fatalf("Listen(%q): %v", addr, err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

func TestAddrCanBeDialed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	for addr, want := range map[string]string{
		"":                  "127.0.0.1:",
		":0":                "127.0.0.1:",
		"0.0.0.0:0":         "127.0.0.1:",
		"[::]:0":            "127.0.0.1:",
		"ps0:0":             "ps0:",
		"shm://ps0:0":       "shm://ps0:",
		"unix://" + path:    "unix://" + path,
		"shm://" + path[1:]: "",
	} {
		l, err := shm.New(shm.Options{}).Listen(addr, newStalled())
		if want == "" {
			if err == nil {
				l.Close()
				t.Errorf("Listen(%q) succeeds", addr)
			}
			continue
		}
		if err != nil {
			t.Errorf("Listen(%q): %v", addr, err)
			continue
		}
		if got := l.Addr(); !strings.HasPrefix(got, want) || strings.HasSuffix(got, ":0") {
			t.Errorf("Listen(%q) shows %s, want %s...", addr, got, want)
		}
		if d, err := dial(t, l.Addr()).Describe(context.Background()); err != nil || d.Task != "stalled" {
			t.Errorf("Describe at %s = %v, %v", l.Addr(), d.Task, err)
		}
		l.Close()
	}
}

// TestHostIsNotLookedAt: the socket of a port has the same name for all.
func TestHostIsNotLookedAt(t *testing.T) {
	l := listen(t, shm.Options{}, "0.0.0.0:0", newStalled())
	_, port, err := net.SplitHostPort(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"localhost:" + port, "ps0:" + port, "shm://[::1]:" + port, "unix://@pushpull-" + port} {
		if _, err := dial(t, addr).Describe(context.Background()); err != nil {
			t.Errorf("Describe at %s: %v", addr, err)
		}
	}
}

func TestBadAddressesAreRefused(t *testing.T) {
	tr := shm.New(shm.Options{})
	for _, addr := range []string{
		"nowhere", "127.0.0.1:70000", "127.0.0.1:-1", "127.0.0.1:http", "http://127.0.0.1:80", "unix://",
		"unix:///" + strings.Repeat("x", 107),
	} {
		l, err := tr.Listen(addr, newStalled())
		if err == nil {
			l.Close()
			t.Errorf("Listen(%q) succeeds", addr)
		} else if !strings.Contains(err.Error(), "listen at "+addr) {
			t.Errorf("Listen(%q): error %q does not name the address", addr, err)
		}
		c, err := tr.Dial(addr)
		if err == nil {
			c.Close()
			t.Errorf("Dial(%q) succeeds", addr)
		} else if !strings.Contains(err.Error(), "dial "+addr) {
			t.Errorf("Dial(%q): error %q does not name the address", addr, err)
		}
	}
	if c, err := tr.Dial("localhost:0"); err == nil {
		c.Close()
		t.Errorf("Dial of port 0 succeeds")
	}
}

func TestAbandonedSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as if the process had been killed
	l.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	listen(t, shm.Options{}, "shm://"+path, newStalled())
	if _, err := dial(t, "unix://"+path).Describe(context.Background()); err != nil {
		t.Errorf("Describe: %v", err)
	}
}

func TestFileThatIsNoSocketIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := shm.New(shm.Options{}).Listen("shm://"+path, newStalled())
	if err == nil {
		l.Close()
		t.Errorf("Listen at a file succeeds")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file reads %q, %v", b, err)
	}
}

func TestLimitHoldsAtBothEnds(t *testing.T) {
	small := shm.Options{MaxCallBytes: 1000}
	for _, ends := range []struct {
		name             string
		serving, calling shm.Options
	}{{"server", small, shm.Options{}}, {"caller", shm.Options{}, small}} {
		l := listen(t, ends.serving, ":0", newStill())
		c, err := shm.New(ends.calling).Dial(l.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx := context.Background()
		for _, n := range []int{250, 251, 1 << 24} {
			want := transport.ErrTooLarge
			if n == 250 {
				want = nil
			}
			parts := []transport.Part{{Variable: "v", Encoding: transport.Float16, Data: make([]float32, n)}}
			if err := c.Init(ctx, parts); !errors.Is(err, want) {
				t.Errorf("limit of the %s: Init of %d elements: %v, want %v", ends.name, n, err, want)
			}
			if _, err := c.Push(ctx, transport.Push{}, parts); !errors.Is(err, want) {
				t.Errorf("limit of the %s: Push of %d elements: %v, want %v", ends.name, n, err, want)
			}
			if _, err := c.Pull(ctx, 0, parts); !errors.Is(err, want) {
				t.Errorf("limit of the %s: Pull of %d elements: %v, want %v", ends.name, n, err, want)
			}
		}
	}
}

func TestOverlongHeaderIsRefused(t *testing.T) {
	c := dial(t, listen(t, shm.Options{}, ":0", newStill()).Addr())
	ctx := context.Background()
	_, err := c.Push(ctx, transport.Push{Cursor: make([]byte, 64<<20)}, nil)
	if !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("Push with a cursor of 64 MiB: %v, want %v", err, transport.ErrTooLarge)
	}
	if _, err = c.Push(ctx, transport.Push{}, make([]transport.Part, 1<<18+1)); !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("Push of %d parts: %v, want %v", 1<<18+1, err, transport.ErrTooLarge)
	}
	if _, err = c.Push(ctx, transport.Push{}, nil); err != nil {
		t.Errorf("Push afterwards: %v", err)
	}
}

// TestNothingIsLeft of calls of all sizes, of calls that were canceled, of
// connections and listeners.
func TestNothingIsLeft(t *testing.T) {
	before := held(t)
	for range 3 {
		s := newStalled()
		l := listen(t, shm.Options{}, ":0", s)
		c := dial(t, l.Addr())
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				go func() { <-s.began; cancel() }()
				parts := []transport.Part{{Variable: "v", Data: make([]float32, i<<16)}}
				if _, err := c.Pull(ctx, 1, parts); !errors.Is(err, context.Canceled) {
					t.Errorf("Pull that is canceled: %v, want %v", err, context.Canceled)
				}
			})
			<-s.ended
		}
		wg.Wait()
		c.Close()
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	released(t, before)
}

// asked is a shard that tells until when a pull may take.
type asked struct {
	transport.Service
	end   time.Time
	limit bool
}

func (s *asked) Pull(ctx context.Context, _ int64, _ []transport.Part) (transport.Status, error) {
	s.end, s.limit = ctx.Deadline()
	return transport.Status{}, nil
}

func TestDeadlineIsSentAlong(t *testing.T) {
	s := new(asked)
	c := dial(t, listen(t, shm.Options{}, ":0", s).Addr())
	want := time.Now().Add(time.Minute)
	ctx, cancel := context.WithDeadline(context.Background(), want)
	defer cancel()
	if _, err := c.Pull(ctx, 0, nil); err != nil {
		t.Fatal(err)
	}
	if d := s.end.Sub(want).Abs(); !s.limit || d > 5*time.Second {
		t.Errorf("the deadline arrives as %v, %v, want %v", s.end, s.limit, want)
	}
	if _, err := c.Pull(context.Background(), 0, nil); err != nil || s.limit {
		t.Errorf("a pull without a deadline arrives with %v, %v", s.end, err)
	}
}

// TestTurnsAreTaken by calls for which there is no lane.
func TestTurnsAreTaken(t *testing.T) {
	s := newStalled()
	l := listen(t, shm.Options{}, ":0", s)
	c, err := shm.New(shm.Options{MaxCalls: 1}).Dial(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() { _, err := c.Pull(first, 1, nil); failed <- err }()
	<-s.began
	second, giveUp := context.WithCancel(context.Background())
	waiting := make(chan error, 1)
	go func() { _, err := c.Describe(second); waiting <- err }()
	giveUp()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("Describe that does not get its turn: %v, want %v", err, context.Canceled)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("Pull: %v, want %v", err, context.Canceled)
	}
	if _, err := c.Describe(context.Background()); err != nil {
		t.Errorf("Describe in its turn: %v", err)
	}
}

// TestSteadyCallsTakeNoMemory that grows with the tensor.
func TestSteadyCallsTakeNoMemory(t *testing.T) {
	c := dial(t, listen(t, shm.Options{}, ":0", newStill()).Addr())
	ctx := context.Background()
	parts := []transport.Part{
		{Variable: "v", Data: make([]float32, 4<<20)}, {Variable: "w", Encoding: transport.Float16, Data: make([]float32, 1<<16)},
	}
	const rounds, most = 20, 8 << 10
	var before, after runtime.MemStats
	for i := range rounds + 1 {
		if i == 1 {
			runtime.ReadMemStats(&before)
		}
		if _, err := c.Push(ctx, transport.Push{}, parts); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Pull(ctx, 0, parts); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / rounds; got > most {
		t.Errorf("a push and a pull of 17 MB take %d bytes of memory at both ends, want at most %d", got, most)
	}
}
