package grpc_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pushpull/transport"
	"pushpull/transport/grpc"
	"pushpull/transport/transporttest"
)

func TestTransport(t *testing.T) {
	transporttest.Test(t, func(*testing.T) (transport.Transport, string) { return grpc.New(grpc.Options{}), "127.0.0.1:0" })
}

func TestTransportOverUnixSocket(t *testing.T) {
	if testing.Short() {
		t.Skip("the same again")
	}
	transporttest.Test(t, func(t *testing.T) (transport.Transport, string) {
		return grpc.New(grpc.Options{}), "unix://" + filepath.Join(t.TempDir(), "socket")
	})
}

// reach listens at addr and describes what is there through what Addr says.
func reach(t *testing.T, addr string) (shown string) {
	t.Helper()
	tr := grpc.New(grpc.Options{})
	l, err := tr.Listen(addr, &table{})
	if err != nil {
		t.Fatalf("Listen(%q): %v", addr, err)
	}
	t.Cleanup(func() { l.Close() })
	describe(t, tr, l.Addr())
	return l.Addr()
}

func describe(t *testing.T, tr transport.Transport, addr string) {
	t.Helper()
	c, err := tr.Dial(addr)
	if err != nil {
		t.Fatalf("Dial(%q): %v", addr, err)
	}
	defer c.Close()
	if d, err := c.Describe(context.Background()); err != nil || d.Task != "ps/0" {
		t.Errorf("Describe at %s = %v, %v, want ps/0", addr, d.Task, err)
	}
}

func TestAddrCanBeDialed(t *testing.T) {
	for addr, host := range map[string]string{
		":0": "127.0.0.1", "0.0.0.0:0": "127.0.0.1", "127.0.0.1:0": "127.0.0.1", "localhost:0": "localhost",
	} {
		got, _, err := net.SplitHostPort(reach(t, addr))
		if err != nil || got != host {
			t.Errorf("Listen(%q) shows host %q, %v, want %q", addr, got, err, host)
		}
	}
}

func TestAddressOfAnotherMachineListensEverywhere(t *testing.T) {
	tr := grpc.New(grpc.Options{})
	l, err := tr.Listen("192.0.2.1:0", &table{}) // of nobody's network
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	defer l.Close()
	host, port, err := net.SplitHostPort(l.Addr())
	if err != nil || host != "192.0.2.1" {
		t.Errorf("Addr = %s, %v, want the host that was given", l.Addr(), err)
	}
	describe(t, tr, "127.0.0.1:"+port)
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
		l, err := grpc.New(grpc.Options{}).Listen(addr, &table{})
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

// TestSilentHostIsGivenUp dials a server that accepts connections and says
// nothing.
func TestSilentHostIsGivenUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := grpc.New(grpc.Options{ConnectTimeout: 200 * time.Millisecond}).Dial(l.Addr().String())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer c.Close()
	start := time.Now()
	_, err = c.Describe(context.Background())
	if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("Describe: %v, want %v with the address", err, transport.ErrUnavailable)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Describe takes %v, want about 200ms", d)
	}
}

func TestLimitHoldsForEveryCallWithParts(t *testing.T) {
	tr := grpc.New(grpc.Options{MaxCallBytes: 1000})
	l, err := tr.Listen("127.0.0.1:0", &table{ready: true, large: 250})
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	defer l.Close()
	c, err := tr.Dial(l.Addr())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer c.Close()
	ctx := context.Background()
	for _, n := range []int{250, 251, 1 << 24} {
		want := transport.ErrTooLarge
		if n == 250 {
			want = nil
		}
		parts := []transport.Part{{Variable: "large", Encoding: transport.Float16, Data: make([]float32, n)}}
		if _, err := c.Push(ctx, transport.Push{}, parts); !errors.Is(err, want) {
			t.Errorf("Push of %d elements: %v, want %v", n, err, want)
		}
		if _, err := c.Pull(ctx, 0, parts); !errors.Is(err, want) {
			t.Errorf("Pull of %d elements: %v, want %v", n, err, want)
		}
		if n > 250 {
			if err := c.Init(ctx, parts); !errors.Is(err, want) {
				t.Errorf("Init of %d elements: %v, want %v", n, err, want)
			}
		}
	}
}

// TestNamesAndRowsHaveALimit of their own, because they travel in one message.
func TestNamesAndRowsHaveALimit(t *testing.T) {
	tr := grpc.New(grpc.Options{})
	l, err := tr.Listen("127.0.0.1:0", &table{ready: true})
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	defer l.Close()
	c, err := tr.Dial(l.Addr())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer c.Close()
	rows := make([]int32, 3<<20)
	for i := range rows {
		rows[i] = 1<<28 + int32(i) // five bytes each
	}
	parts := []transport.Part{{Variable: "v", Width: 1, Rows: rows, Data: make([]float32, len(rows))}}
	ctx := context.Background()
	if _, err := c.Push(ctx, transport.Push{}, parts); !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("Push of %d rows: %v, want %v", len(rows), err, transport.ErrTooLarge)
	}
	if _, err := c.Pull(ctx, 0, parts); !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("Pull of %d rows: %v, want %v", len(rows), err, transport.ErrTooLarge)
	}
	many := make([]transport.Part, 1<<18+1)
	if _, err := c.Pull(ctx, 0, many); !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("Pull of %d parts: %v, want %v", len(many), err, transport.ErrTooLarge)
	}
}

func TestFileAtTheSocketsPathIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := grpc.New(grpc.Options{}).Listen("unix://"+path, nil); err == nil {
		l.Close()
		t.Error("Listen where a file is: no error")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("after Listen the file holds %q, %v", b, err)
	}
}
