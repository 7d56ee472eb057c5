package tcp_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pushpull/transport"
	"pushpull/transport/tcp"
	"pushpull/transport/transporttest"
)

func TestTransport(t *testing.T) {
	transporttest.Test(t, func(*testing.T) (transport.Transport, string) { return tcp.New(tcp.Options{}), "127.0.0.1:0" })
}

func TestTransportOverUnixSocket(t *testing.T) {
	if testing.Short() {
		t.Skip("the same again")
	}
	transporttest.Test(t, func(t *testing.T) (transport.Transport, string) {
		return tcp.New(tcp.Options{}), "unix://" + filepath.Join(t.TempDir(), "socket")
	})
}

// reach listens at addr and describes what is there through what Addr says.
func reach(t *testing.T, addr string) (shown string) {
	t.Helper()
	l, err := tcp.New(tcp.Options{}).Listen(addr, stub{})
	if err != nil {
		t.Fatalf("Listen(%q): %v", addr, err)
	}
	t.Cleanup(func() { l.Close() })
	if d, err := dial(t, tcp.Options{}, l.Addr()).Describe(t.Context()); err != nil || d.Task != "ps/0" {
		t.Errorf("Describe at %s = %v, %v, want ps/0", l.Addr(), d.Task, err)
	}
	return l.Addr()
}

func TestAddrCanBeDialed(t *testing.T) {
	for addr, host := range map[string]string{
		"": "127.0.0.1", ":0": "127.0.0.1", "0.0.0.0:0": "127.0.0.1", "127.0.0.1:0": "127.0.0.1", "localhost:0": "localhost",
	} {
		got, _, err := net.SplitHostPort(reach(t, addr))
		if err != nil || got != host {
			t.Errorf("Listen(%q) shows host %q, %v, want %q", addr, got, err, host)
		}
	}
}

func TestAddressOfAnotherMachineListensEverywhere(t *testing.T) {
	l, err := tcp.New(tcp.Options{}).Listen("192.0.2.1:0", stub{}) // of nobody's network
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	defer l.Close()
	host, port, err := net.SplitHostPort(l.Addr())
	if err != nil || host != "192.0.2.1" {
		t.Errorf("Addr = %s, %v, want the host that was given", l.Addr(), err)
	}
	if _, err := dial(t, tcp.Options{}, "127.0.0.1:"+port).Describe(t.Context()); err != nil {
		t.Errorf("Describe: %v", err)
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
	reach(t, "unix://"+path)
}

func TestBadAddressesAreRefused(t *testing.T) {
	for _, addr := range []string{"nowhere", "127.0.0.1:70000", "unix:///no/such/folder/socket"} {
		l, err := tcp.New(tcp.Options{}).Listen(addr, stub{})
		if err == nil {
			l.Close()
			t.Errorf("Listen(%q) succeeds", addr)
			continue
		}
		if !strings.Contains(err.Error(), "listen at "+addr) {
			t.Errorf("Listen(%q): error %q does not name the address", addr, err)
		}
	}
}

func TestLimitHoldsForEveryCallWithParts(t *testing.T) {
	addr := serve(t, tcp.Options{MaxCallBytes: 1000}, stub{})
	c := dial(t, tcp.Options{}, addr)
	for _, n := range []int{250, 251, 1 << 24} {
		want := transport.ErrTooLarge
		if n == 250 {
			want = nil
		}
		parts := []transport.Part{{Variable: "large", Encoding: transport.Float16, Data: make([]float32, n)}}
		if _, err := c.Push(t.Context(), transport.Push{}, parts); !errors.Is(err, want) {
			t.Errorf("Push of %d elements: %v, want %v", n, err, want)
		}
		if _, err := c.Pull(t.Context(), 0, parts); !errors.Is(err, want) {
			t.Errorf("Pull of %d elements: %v, want %v", n, err, want)
		}
		if n > 250 {
			if err := c.Init(t.Context(), parts); !errors.Is(err, want) {
				t.Errorf("Init of %d elements: %v, want %v", n, err, want)
			}
		}
	}
}

// TestRefusedPushEndsEarly pushes what would take minutes if it were sent.
func TestRefusedPushEndsEarly(t *testing.T) {
	addr := serve(t, tcp.Options{MaxCallBytes: 1000}, stub{})
	c := dial(t, tcp.Options{}, addr)
	run := transport.Part{Variable: "v", Data: make([]float32, 16<<20)}
	parts := make([]transport.Part, 10_000)
	for i := range parts {
		parts[i] = run
	}
	start := time.Now()
	if _, err := c.Push(t.Context(), transport.Push{}, parts); !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("Push of 640 GB: %v, want %v", err, transport.ErrTooLarge)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it takes %v to be refused", d)
	}
	if _, err := c.Push(t.Context(), transport.Push{}, nil); err != nil {
		t.Errorf("the next push: %v", err)
	}
}

// TestHeadersHaveALimit of their own, because they are read before anything can
// be said about them.
func TestHeadersHaveALimit(t *testing.T) {
	c := dial(t, tcp.Options{}, serve(t, tcp.Options{}, stub{}))
	_, err := c.Push(t.Context(), transport.Push{Cursor: make([]byte, 64<<20)}, nil)
	if !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("Push with a cursor of 64 MiB: %v, want %v", err, transport.ErrTooLarge)
	}
	_, err = c.Push(t.Context(), transport.Push{Cursor: make([]byte, 63<<20)}, nil)
	if err != nil {
		t.Errorf("Push with a cursor of 63 MiB: %v", err)
	}
	many := make([]transport.Part, 1<<18+1)
	if _, err := c.Pull(t.Context(), 0, many); !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("Pull of %d parts: %v, want %v", len(many), err, transport.ErrTooLarge)
	}
	if _, err := c.Pull(t.Context(), 0, many[1:]); err != nil {
		t.Errorf("Pull of %d parts: %v", len(many)-1, err)
	}
}
