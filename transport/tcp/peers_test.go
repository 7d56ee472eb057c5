package tcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pushpull/transport"
	"pushpull/transport/grpc"
	"pushpull/transport/tcp"
)

// stub answers Describe, and everything else as it is told.
type stub struct {
	transport.Service
	pull func(ctx context.Context) error
	push func(grads []transport.Part) error
}

func (stub) Describe(context.Context) (transport.Description, error) {
	return transport.Description{Task: "ps/0"}, nil
}

func (s stub) Pull(ctx context.Context, _ int64, _ []transport.Part) (transport.Status, error) {
	if s.pull == nil {
		return transport.Status{}, nil
	}
	return transport.Status{}, s.pull(ctx)
}

func (s stub) Push(_ context.Context, _ transport.Push, grads []transport.Part) (transport.Verdict, error) {
	if s.push == nil {
		return transport.Applied, nil
	}
	return transport.Applied, s.push(grads)
}

// serve serves s until the test ends.
func serve(t *testing.T, opts tcp.Options, s transport.Service) (addr string) {
	t.Helper()
	l, err := tcp.New(opts).Listen("127.0.0.1:0", s)
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l.Addr()
}

// dial connects to addr until the test ends.
func dial(t *testing.T, opts tcp.Options, addr string) transport.Conn {
	t.Helper()
	c, err := tcp.New(opts).Dial(addr)
	if err != nil {
		t.Fatalf("Dial(%q): %v", addr, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// peer accepts connections until the test ends, and does as it is told with
// each.
func peer(t *testing.T, do func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ended := make(chan struct{})
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				do(c)
				<-ended
			})
		}
	})
	t.Cleanup(func() {
		close(ended)
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

const hello = "pushpull tcp 1\r\n"

// greet does what a server does first.
func greet(c net.Conn) {
	io.ReadFull(c, make([]byte, len(hello)))
	io.WriteString(c, hello)
}

func TestClientSaysWhatItFoundInsteadOfAServer(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	other, err := grpc.New(grpc.Options{}).Listen("127.0.0.1:0", stub{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	says := func(s string) string {
		return peer(t, func(c net.Conn) { io.WriteString(c, s) })
	}
	for _, c := range []struct{ addr, want string }{
		{web.Listener.Addr().String(), `greeted with "HTTP/1.1 400 Bad", which is HTTP`},
		{other.Addr(), "is the far end's transport grpc?"},
		{says("SSH-2.0-OpenSSH_9.2p1\r\n"), `greeted with "SSH-2.0-OpenSSH_"`},
		{says("\x15\x03\x01\x00\x02\x02\x16 and more than sixteen"), "which is TLS"},
		{says("pushpull tcp 2\r\n"), `greeted with "pushpull tcp 2\r\n": the far end has another version`},
		{peer(t, func(c net.Conn) { c.Close() }), "hung up without a greeting"},
		{peer(t, func(c net.Conn) { greet(c); io.WriteString(c, strings.Repeat("garbage ", 10)) }), "no frame begins with the bytes 67617262"},
	} {
		_, err := dial(t, tcp.Options{}, c.addr).Describe(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.addr) {
			t.Errorf("Describe: %v, want %q of %s", err, c.want, c.addr)
		}
		if !errors.Is(err, transport.ErrUnavailable) && !errors.Is(err, transport.ErrInvalid) {
			t.Errorf("Describe: %v, want a sentinel error", err)
		}
	}
}

// record is a logger's output that can be read while it is written.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

func TestServerSaysWhatItFoundInsteadOfAClient(t *testing.T) {
	var log record
	addr := serve(t, tcp.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, stub{})
	for _, c := range []struct{ said, told, logged string }{
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", `greeted with "GET / HTTP/1.1\r\n", which is HTTP, want "pushpull tcp 1\r\n"`, "GET / HTTP/1.1"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "grpc?", "grpc?"},
		{"pushpull tcp 7\r\n", "another version", "another version"},
		{hello + strings.Repeat("?", 16), "no frame begins with the bytes 3f3f3f", "no frame begins with"},
		{hello + "p\x0a" + strings.Repeat("\x00", 14), "kind 10 is no call", "kind 10 is no call"},
	} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(nc, c.said)
		got, err := io.ReadAll(nc)
		if err != nil || !strings.HasPrefix(string(got), hello) || !strings.Contains(string(got), c.told) {
			t.Errorf("%q is answered with %q, %v, want %q", c.said, got, err, c.told)
		}
		nc.Close()
		for end := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), c.logged); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after %q the log is %q, want %q", c.said, log.String(), c.logged)
			}
		}
	}
	before := log.String()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close() // a look at whether anybody listens
	if _, err := dial(t, tcp.Options{}, addr).Describe(t.Context()); err != nil {
		t.Errorf("Describe: %v", err)
	}
	if got := log.String(); got != before {
		t.Errorf("a connection without a word is logged: %s", got[len(before):])
	}
}

// within makes sure that do fails with ErrUnavailable and says what, in about
// limit.
func within(t *testing.T, limit time.Duration, what string, do func() error) {
	t.Helper()
	start := time.Now()
	err := do()
	if !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), what) {
		t.Errorf("%v, want %v and %q", err, transport.ErrUnavailable, what)
	}
	if d := time.Since(start); d < limit-limit/10 || d > limit+5*time.Second {
		t.Errorf("it takes %v, want about %v", d, limit)
	}
}

func TestFrozenPeerIsGivenUp(t *testing.T) {
	const limit = 200 * time.Millisecond
	opts := tcp.Options{ConnectTimeout: limit, StallTimeout: 2 * limit}
	describe := func(c transport.Conn) func() error {
		return func() error { _, err := c.Describe(t.Context()); return err }
	}
	silent := dial(t, opts, peer(t, func(net.Conn) {}))
	within(t, limit, "no greeting within 200ms", describe(silent))

	greets := dial(t, opts, peer(t, greet))
	within(t, 2*limit, "no sign of life for 400ms", describe(greets))

	large := []transport.Part{{Variable: "v", Data: make([]float32, 16<<20)}} // more than sockets hold
	within(t, 2*limit, "no sign of life for 400ms", func() error {
		_, err := greets.Push(t.Context(), transport.Push{}, large)
		return err
	})
}

func TestFrozenCallerIsGivenUp(t *testing.T) {
	var log record
	addr := serve(t, tcp.Options{StallTimeout: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))}, stub{})
	before := runtime.NumGoroutine()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(nc, hello+"p\x04") // the beginning of a frame
	if got, err := io.ReadAll(nc); err != nil || string(got) != hello {
		t.Errorf("answered with %q, %v, want only the greeting", got, err)
	}
	eventually(t, "the session ends", func() bool { return runtime.NumGoroutine() <= before })
}

func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after 20 s: %s", what)
		}
	}
}

// TestWaitingIsNotStalling waits for ten times as long as the caller would put
// up with silence.
func TestWaitingIsNotStalling(t *testing.T) {
	addr := serve(t, tcp.Options{}, stub{pull: func(ctx context.Context) error {
		select {
		case <-time.After(time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	c := dial(t, tcp.Options{StallTimeout: 100 * time.Millisecond}, addr)
	for range 2 {
		if _, err := c.Pull(t.Context(), 0, nil); err != nil {
			t.Errorf("Pull: %v", err)
		}
	}
}

// waiting is a stub whose pulls wait for the end of their context and then say
// what it was.
func waiting() (stub, chan struct{}, chan error) {
	entered, ended := make(chan struct{}), make(chan error, 1)
	return stub{pull: func(ctx context.Context) error {
		entered <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}}, entered, ended
}

func TestCancelFreesTheServer(t *testing.T) {
	s, entered, ended := waiting()
	addr := serve(t, tcp.Options{}, s)
	before := runtime.NumGoroutine()
	c := dial(t, tcp.Options{}, addr)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Pull(ctx, 1, nil)
		done <- err
	}()
	<-entered
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Pull: %v, want %v", err, context.Canceled)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "hung up during the call") {
			t.Errorf("the service's context ends with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the service still waits for a caller that has gone")
	}
	eventually(t, "the session ends", func() bool { return runtime.NumGoroutine() <= before })
}

func TestDeadlineReachesTheServer(t *testing.T) {
	s, entered, ended := waiting()
	addr := serve(t, tcp.Options{}, s)
	nc, err := net.Dial("tcp", addr) // which does not hang up when the time is up
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	header := binary.AppendUvarint(nil, uint64(100*time.Millisecond))
	header = append(header, 0, 2, 0) // patience, step 1, no parts
	io.WriteString(nc, hello+"p\x03\x00\x00"+string(binary.LittleEndian.AppendUint32(nil, uint32(len(header))))+strings.Repeat("\x00", 8)+string(header))
	<-entered
	if err := <-ended; err != context.DeadlineExceeded {
		t.Errorf("the service's context ends with %v, want %v", err, context.DeadlineExceeded)
	}
	io.ReadFull(nc, make([]byte, len(hello)))
	for r := bufio.NewReader(nc); ; {
		var frame [16]byte
		if _, err := io.ReadFull(r, frame[:]); err != nil {
			t.Fatalf("no answer: %v", err)
		}
		body := make([]byte, binary.LittleEndian.Uint32(frame[4:]))
		io.ReadFull(r, body)
		if frame[1] == 10 { // the call goes on
			continue
		}
		if frame[1] != 9 || body[0] != 255 {
			t.Errorf("answered with %x %q, want a failure for want of time", frame, body)
		}
		return
	}
}

func TestCloseOfListenerSaysSo(t *testing.T) {
	s, entered, _ := waiting()
	l, err := tcp.New(tcp.Options{Grace: 50 * time.Millisecond}).Listen("127.0.0.1:0", s)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, tcp.Options{}, l.Addr())
	done := make(chan error, 1)
	go func() {
		_, err := c.Pull(t.Context(), 1, nil)
		done <- err
	}()
	<-entered
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	err = <-done
	if want := fmt.Sprintf("the listener at %s was closed during the call", l.Addr()); !errors.Is(err, transport.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("Pull: %v, want %v: %s", err, transport.ErrUnavailable, want)
	}
}

// TestCloseDoesNotWaitForever for a service that minds no context.
func TestCloseDoesNotWaitForever(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := stub{pull: func(context.Context) error {
		close(entered)
		<-leave
		return nil
	}}
	l, err := tcp.New(tcp.Options{Grace: 50 * time.Millisecond}).Listen("127.0.0.1:0", s)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, tcp.Options{}, l.Addr())
	before := runtime.NumGoroutine()
	done := make(chan error, 1)
	go func() {
		_, err := c.Pull(t.Context(), 1, nil)
		done <- err
	}()
	<-entered
	if err := l.Close(); err == nil || !strings.Contains(err.Error(), l.Addr()) {
		t.Errorf("Close: %v, want an error that names %s", err, l.Addr())
	}
	if err := <-done; !errors.Is(err, transport.ErrUnavailable) {
		t.Errorf("Pull: %v, want %v", err, transport.ErrUnavailable)
	}
	close(leave)
	eventually(t, "the session ends", func() bool { return runtime.NumGoroutine() < before })
}

// TestRestartIsNotNoticed by a caller between two calls: it does not use a
// connection that the far end has closed.
func TestRestartIsNotNoticed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("nobody can tell here, but by a call")
	}
	tr := tcp.New(tcp.Options{})
	addr := "127.0.0.1:0"
	var c transport.Conn
	for range 5 {
		l, err := tr.Listen(addr, stub{})
		if err != nil {
			t.Fatalf("Listen: %v", err)
		}
		if addr = l.Addr(); c == nil {
			c = dial(t, tcp.Options{}, addr)
		}
		if _, err := c.Describe(t.Context()); err != nil {
			t.Errorf("Describe: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}
