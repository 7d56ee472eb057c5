//go:build linux

package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pushpull/transport"
)

// adder is a shard that reads every gradient and writes every weight, from a
// sum to which hostile callers must not be able to do worse than to spoil it.
type adder struct {
	transport.Service
	sum float32
}

func (a *adder) Push(_ context.Context, _ transport.Push, grads []transport.Part) (transport.Verdict, error) {
	for _, p := range grads {
		for _, x := range p.Data {
			a.sum += x
		}
	}
	return transport.Applied, nil
}

func (a *adder) Pull(_ context.Context, _ int64, dst []transport.Part) (transport.Status, error) {
	for _, p := range dst {
		for i := range p.Data {
			p.Data[i] = a.sum
		}
	}
	return transport.Status{}, nil
}

// A stranger speaks to a listener without keeping to the rules.
type stranger struct {
	testing.TB
	socket
}

func (s *stranger) ask(h header, body ...byte) {
	s.Helper()
	if err := s.send(append(s.compose(), body...), h); err != nil {
		s.Errorf("send: %v", err)
	}
}

// told waits for a reply of success.
func (s *stranger) told() {
	s.Helper()
	if h, body, err := s.receive(); err != nil || h.kind != done {
		s.Errorf("reply: kind %d %q, %v, want success", h.kind, body, err)
	}
}

// share hands over a file as a region of that size.
func (s *stranger) share(file, size int) {
	s.Helper()
	s.ask(header{kind: share}, appendInt(nil, size)...)
	s.told()
	if err := s.sendFile(file); err != nil {
		s.Errorf("send a file: %v", err)
	}
}

// file makes a memory file of size bytes, with the first filled bytes there.
func (s *stranger) file(size, filled int64, flags, seals int) int {
	s.Helper()
	f, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|flags)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { unix.Close(f) })
	if err := unix.Ftruncate(f, size); err != nil {
		s.Fatal(err)
	}
	if filled > 0 {
		if err := unix.Fallocate(f, 0, 0, filled); err != nil {
			s.Fatal(err)
		}
	}
	if seals != 0 {
		if _, err := unix.FcntlInt(uintptr(f), unix.F_ADD_SEALS, seals); err != nil {
			s.Fatal(err)
		}
	}
	return f
}

// onePart is a push of one part of n elements.
func onePart(n int) []byte {
	b := appendPush(nil, transport.Push{})
	b = appendInt(appendInt(appendText(appendLength(b, 1), "v"), 0), 0)
	return appendLength(appendLength(append(b, 0), n), 0)
}

// TestStrangersAreRefused with an error that says why, and others go on being
// served.
func TestStrangersAreRefused(t *testing.T) {
	const mib = 1 << 20
	const sealable = unix.MFD_ALLOW_SEALING
	for _, c := range []struct {
		name string
		do   func(*stranger)
		want error // nil: hung up on without a word
		text string
	}{
		{"garbage", func(s *stranger) { s.conn.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")) }, transport.ErrInvalid, "none of ours"},
		{"half a message", func(s *stranger) { s.conn.Write(make([]byte, 5)); s.conn.CloseWrite() }, nil, ""},
		{"kind out of range", func(s *stranger) {
			b := s.compose()
			header{}.put(b)
			b[6] = 1
			s.conn.Write(b)
		}, transport.ErrInvalid, "kind 0x10000"},
		{"endless message", func(s *stranger) {
			b := s.compose()
			header{kind: push, body: maxBody + 1}.put(b)
			s.conn.Write(b)
		}, transport.ErrTooLarge, "want at most"},
		{"two messages", func(s *stranger) {
			b := s.compose()
			header{kind: describe}.put(b)
			s.conn.Write(append(b, b...))
		}, transport.ErrInvalid, "not answered yet"},
		{"unknown method", func(s *stranger) { s.ask(header{kind: 99}) }, transport.ErrInvalid, "method 99"},
		{"empty push", func(s *stranger) { s.ask(header{kind: push}) }, transport.ErrInvalid, "does not end"},
		{"push without a region", func(s *stranger) { s.ask(header{kind: push}, onePart(1)...) }, transport.ErrInvalid, "a region of 0"},
		{"push beyond the region", func(s *stranger) {
			s.share(s.file(mib, mib, sealable, seals), mib)
			s.told()
			s.ask(header{kind: push}, onePart(mib/4+1)...)
		}, transport.ErrInvalid, "a region of 1048576"},
		{"push of far too much", func(s *stranger) { s.ask(header{kind: push}, onePart(math.MaxInt/4)...) }, transport.ErrTooLarge, "limit"},
		{"push of no number", func(s *stranger) { s.ask(header{kind: push}, onePart(math.MaxInt)...) }, transport.ErrInvalid, "do not fit"},
		{"region of no size", func(s *stranger) { s.ask(header{kind: share}) }, transport.ErrInvalid, "does not end"},
		{"region of size 0", func(s *stranger) { s.ask(header{kind: share}, appendInt(nil, 0)...) }, transport.ErrTooLarge, "a region of 0"},
		{"endless region", func(s *stranger) { s.ask(header{kind: share}, appendInt(nil, math.MaxInt)...) }, transport.ErrTooLarge, "want 1 to"},
		{"no file", func(s *stranger) {
			s.ask(header{kind: share}, appendInt(nil, mib)...)
			s.told()
			s.conn.Write([]byte{0})
		}, transport.ErrInvalid, "0 files"},
		{"two files", func(s *stranger) {
			f := s.file(mib, mib, sealable, seals)
			s.ask(header{kind: share}, appendInt(nil, mib)...)
			s.told()
			s.conn.WriteMsgUnix([]byte{0}, unix.UnixRights(f, f), nil)
		}, transport.ErrInvalid, "2 files"},
		{"more than the file", func(s *stranger) {
			f := s.file(mib, mib, sealable, seals)
			s.ask(header{kind: share}, appendInt(nil, mib)...)
			s.told()
			s.conn.WriteMsgUnix([]byte{0, 0}, unix.UnixRights(f), nil)
		}, transport.ErrInvalid, "2 bytes"},
		{"file that can shrink", func(s *stranger) { s.share(s.file(mib, mib, sealable, unix.F_SEAL_GROW), mib) }, transport.ErrInvalid, "cannot shrink"},
		{"file that cannot be sealed", func(s *stranger) { s.share(s.file(mib, mib, 0, 0), mib) }, transport.ErrInvalid, "cannot shrink"},
		{"file that is too small", func(s *stranger) { s.share(s.file(mib/2, mib/2, sealable, seals), mib) }, transport.ErrInvalid, "of 524288 bytes"},
		{"file without memory", func(s *stranger) { s.share(s.file(mib, mib/2, sealable, seals), mib) }, transport.ErrInvalid, "524288 bytes of memory"},
		{"file of a disk", func(s *stranger) {
			f, err := os.Open("/proc/self/exe")
			if err != nil {
				s.Fatal(err)
			}
			s.share(int(f.Fd()), 4096)
			f.Close()
		}, transport.ErrInvalid, "file"},
		{"device", func(s *stranger) {
			f, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
			if err != nil {
				s.Fatal(err)
			}
			s.share(int(f.Fd()), 4096)
			f.Close()
		}, transport.ErrInvalid, "file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := New(Options{}).Listen(":0", &adder{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			p, _ := parse(l.Addr())
			conn, err := net.DialUnix("unix", nil, p.socket())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			s := &stranger{t, newSocket(conn)}
			c.do(s)
			h, body, err := s.receive()
			switch {
			case c.want == nil:
				if err == nil {
					t.Errorf("reply: kind %d %q, want none", h.kind, body)
				}
			case err != nil:
				t.Errorf("reply: %v, want one of %v", err, c.want)
			default:
				got := errorOf(h.kind, body)
				if h.kind == done || !errors.Is(got, c.want) || !strings.Contains(got.Error(), c.text) {
					t.Errorf("reply: kind %d %q, want %v with %q", h.kind, got, c.want, c.text)
				}
			}
			good, err := New(Options{}).Dial(l.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer good.Close()
			if _, err := good.Push(context.Background(), transport.Push{}, []transport.Part{{Data: make([]float32, 10)}}); err != nil {
				t.Errorf("Push of another: %v", err)
			}
		})
	}
}

// TestRegionsCannotShrink, whoever tries, and lose their pages without harm:
// a page found missing would be a fault that ends the process.
func TestRegionsCannotShrink(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	ours, file, err := newRegion(1)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(file)
	defer ours.close()
	theirs, err := acceptRegion(file, ours.size())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.close()
	if err := unix.Ftruncate(file, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("Ftruncate of a region: %v, want %v", err, unix.EPERM)
	}
	n := ours.size() / 4
	ours.floats(0, n)[n-1] = 3
	if got := theirs.floats(0, n)[n-1]; got != 3 {
		t.Errorf("the last element is %v at the other end, want 3", got)
	}
	if err := unix.Fallocate(file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(ours.size())); err != nil {
		t.Fatalf("punch a hole: %v", err)
	}
	for _, x := range theirs.floats(0, n) {
		if x != 0 {
			t.Fatalf("a punched page reads %v, want 0", x)
		}
	}
}

func TestRegionsFitWhatIsAsked(t *testing.T) {
	for _, n := range []int{1, smallest, smallest + 1, 3*smallest + 5, 100 << 20, 1<<30 + 1} {
		got := roundUp(n)
		if got < max(n, smallest) || got > max(n+n/8, smallest) || got%4096 != 0 {
			t.Errorf("roundUp(%d) = %d, want whole pages, at most an eighth more", n, got)
		}
	}
}

// TestFalseAnswersAreErrors of a server that is none of ours.
func TestFalseAnswersAreErrors(t *testing.T) {
	status := appendStatus(nil, transport.Status{})
	message := func(kind uint8, body ...byte) []byte {
		b := append(make([]byte, headerBytes), body...)
		header{kind: kind, body: len(body)}.put(b)
		return b
	}
	for _, c := range []struct {
		name   string
		answer []byte
		want   error
	}{
		{"none", nil, transport.ErrUnavailable},
		{"half", message(done, status...)[:20], transport.ErrUnavailable},
		{"garbage", []byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"), transport.ErrInvalid},
		{"too short", message(done, status[:3]...), transport.ErrInvalid},
		{"too long", message(done, append(status, 0)...), transport.ErrInvalid},
		{"twice", append(message(done, status...), message(done, status...)...), transport.ErrInvalid},
		{"right", message(done, status...), nil},
	} {
		path := filepath.Join(t.TempDir(), "socket")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			conn.Read(make([]byte, 1000))
			conn.Write(c.answer)
		}()
		conn, err := New(Options{}).Dial("shm://" + path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Pull(context.Background(), 0, nil); !errors.Is(err, c.want) {
			t.Errorf("answer %s: Pull: %v, want %v", c.name, err, c.want)
		}
		<-served
		conn.Close()
		l.Close()
	}
}

// TestChangedDataHarmsNobody: the caller writes to the region while the shard
// reads and writes it.
func TestChangedDataHarmsNobody(t *testing.T) {
	l, err := New(Options{}).Listen(":0", &adder{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, _ := parse(l.Addr())
	conn, err := net.DialUnix("unix", nil, p.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := &stranger{t, newSocket(conn)}
	r, file, err := newRegion(smallest)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(file)
	s.share(file, r.size())
	s.told()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		words := r.mem
		for i := uint32(0); ; i++ {
			select {
			case <-stop:
				return
			default:
				binary.LittleEndian.PutUint32(words[4*(i*7919%uint32(len(words)/4)):], i*2654435761)
			}
		}
	}()
	for range 20 {
		s.ask(header{kind: push}, onePart(smallest/4)...)
		s.told()
	}
	close(stop)
	<-stopped
	r.close()
}

// FuzzHeader reads bytes as a header and its body, as every message there is:
// what can be read reads the same once it is written again.
func FuzzHeader(f *testing.F) {
	message := func(kind uint8, body []byte) {
		b := append(make([]byte, headerBytes), body...)
		header{kind: kind, body: len(body), limit: time.Second}.put(b)
		f.Add(b)
	}
	rows := []transport.Part{
		{Variable: "v", Offset: 3, Data: make([]float32, 3)},
		{Variable: "w", Width: 2, Encoding: transport.Float16, Rows: []int32{1, 5}, Data: make([]float32, 4)},
		{Variable: "w", Width: 2, Rows: []int32{}},
	}
	message(join, appendHello(nil, transport.Hello{Settings: []transport.Setting{{Name: "a", Value: "b"}}}))
	message(initial, appendParts(nil, rows))
	message(pull, appendParts(appendInt(nil, 3), rows))
	message(push, appendParts(appendPush(nil, transport.Push{Cursor: []byte{1}}), rows))
	message(finish, appendReplica(nil, transport.Replica{Task: 1, Life: math.MaxUint64}))
	message(describe, appendDescription(nil, transport.Description{
		Task: "ps/0", Extents: []transport.Extent{{Variable: "v", Length: 3}},
		Replicas: []transport.ReplicaState{{Verdicts: map[transport.Verdict]int64{transport.Applied: 1}}},
	}))
	message(share, appendInt(nil, 1<<20))
	message(done, appendWelcome(nil, transport.Welcome{Cursor: []byte{}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerBytes {
			return
		}
		h, err := parseHeader(b)
		if err == nil {
			again := make([]byte, headerBytes)
			h.put(again)
			if string(again) != string(b[:headerBytes]) {
				t.Errorf("header %x is written as %x", b[:headerBytes], again)
			}
		}
		body := b[headerBytes:]
		for name, m := range map[string]func(*decoder) []byte{
			"hello":       func(d *decoder) []byte { return appendHello(nil, d.hello()) },
			"welcome":     func(d *decoder) []byte { return appendWelcome(nil, d.welcome()) },
			"status":      func(d *decoder) []byte { return appendStatus(nil, d.status()) },
			"push":        func(d *decoder) []byte { return appendPush(nil, d.push()) },
			"description": func(d *decoder) []byte { d.description(); return nil }, // its verdicts are in any order
			"parts":       rewriteParts,
		} {
			d := &decoder{b: body}
			written := m(d)
			if err := d.end(); err != nil {
				if !errors.Is(err, transport.ErrInvalid) && !errors.Is(err, transport.ErrTooLarge) {
					t.Errorf("%s %x: %v, want %v", name, body, err, transport.ErrInvalid)
				}
				continue
			}
			if written == nil {
				continue
			}
			d = &decoder{b: written}
			again := m(d)
			if err := d.end(); err != nil || string(again) != string(written) {
				t.Errorf("%s is written as %x, and again as %x, %v", name, written, again, err)
			}
		}
	})
}

var zeros = make([]float32, 1<<16)

// rewriteParts reads parts, twice into the same memory, and writes them.
func rewriteParts(d *decoder) []byte {
	twice := *d
	var in inbox
	in.read(&twice)
	in.read(d)
	for i, n := range in.lengths {
		in.parts[i].Data = zeros[:n%len(zeros)]
	}
	return appendParts(nil, in.parts)
}
