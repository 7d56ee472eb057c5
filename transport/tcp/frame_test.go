package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pushpull/transport"
	"pushpull/transport/internal/pool"
)

// A script is a connection whose far end says the same whatever it hears.
type script struct {
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(b []byte) (int, error)       { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error)      { return s.out.Write(b) }
func (*script) Close() error                       { return nil }
func (*script) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (*script) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
func (*script) SetDeadline(time.Time) error        { return nil }
func (*script) SetReadDeadline(t time.Time) error  { return nil }
func (*script) SetWriteDeadline(t time.Time) error { return nil }

// holder is a shard of one part of ten elements, in rows of two.
type holder struct {
	transport.Service
	check func([]transport.Part)
}

func (holder) Join(context.Context, transport.Hello) (transport.Welcome, error) {
	return transport.Welcome{}, nil
}

func (h holder) Init(_ context.Context, parts []transport.Part) error {
	h.check(parts)
	return nil
}

func (h holder) Pull(_ context.Context, _ int64, dst []transport.Part) (transport.Status, error) {
	h.check(dst)
	return transport.Status{Step: 3}, nil
}

func (h holder) Push(_ context.Context, _ transport.Push, grads []transport.Part) (transport.Verdict, error) {
	h.check(grads)
	return transport.Applied, nil
}

func (holder) Finish(context.Context, transport.Replica) error { return nil }
func (holder) Leave(context.Context, transport.Replica) error  { return nil }

func (holder) Describe(context.Context) (transport.Description, error) {
	return transport.Description{Extents: []transport.Extent{{Variable: "v", Offset: 4, Length: 10, Width: 2}}}, nil
}

// answerTo lets a server hear what follows the greeting, and returns what it
// says after its own.
func answerTo(limit int64, said io.Reader, check func([]transport.Part)) []byte {
	nc := &script{in: io.MultiReader(bytes.NewReader([]byte(greeting)), said)}
	n := &network{opts: Options{MaxCallBytes: limit}.withDefaults()}
	l := &listener{network: n, service: holder{check: check}, cut: context.Background()}
	newSession(l, nc).run()
	return nc.out.Bytes()[len(greeting):]
}

// newScripted returns a link to a far end that says the same whatever it hears.
func newScripted(said []byte) *link {
	return newLink(&script{in: bytes.NewReader(said)}, time.Second, new(pool.Pool[byte]))
}

// request returns a frame with a header and data.
func request(k kind, data []byte, fields func(*encoder)) []byte {
	e := encoder{make([]byte, frameBytes)}
	fields(&e)
	if len(data) > 0 {
		e.pad()
	}
	frame{k, len(e.b) - frameBytes, int64(len(data))}.put(e.b)
	return append(e.b, data...)
}

// lists are parts, most of them bad.
var lists = [][]transport.Part{
	{},
	{{Variable: "v", Offset: 4, Width: 2, Data: make([]float32, 10)}},
	{{Variable: "v", Offset: 4, Width: 2, Data: make([]float32, 10), Encoding: transport.Float16}},
	{{Variable: "v", Offset: 4, Width: 2, Data: make([]float32, 4), Rows: []int32{1, 4}}},
	{{Variable: "v", Offset: 4, Width: 2, Data: make([]float32, 4), Rows: []int32{4, 1}}},
	{{Variable: "v", Offset: 4, Width: 2, Data: make([]float32, 2), Rows: []int32{math.MaxInt32}}},
	{{Variable: "v", Offset: 4, Width: math.MaxInt, Data: make([]float32, 2), Rows: []int32{0, 1}}},
	{{Variable: "v", Offset: -4, Width: -2, Data: make([]float32, 10), Encoding: 77}},
	{{Variable: "w", Offset: 4, Data: make([]float32, 10)}},
	{{Variable: "v", Offset: 4}, {Variable: "v", Offset: 4, Rows: []int32{}}},
}

// requests are calls of all kinds.
func requests() (all [][]byte) {
	begin := func(e *encoder) {
		e.uint(uint64(time.Minute))
		e.uint(1000)
	}
	for _, parts := range lists {
		data := make([]byte, bytesOf(parts))
		all = append(all,
			request(push, data, func(e *encoder) { begin(e); e.push(transport.Push{Seq: 1, Cursor: []byte{2}}); e.parts(parts) }),
			request(initial, data, func(e *encoder) { begin(e); e.parts(parts) }),
			request(pull, nil, func(e *encoder) { begin(e); e.int(2); e.parts(parts) }))
	}
	hello := transport.Hello{Settings: []transport.Setting{{Name: "a", Value: "b"}}}
	return append(all,
		request(join, nil, func(e *encoder) { begin(e); e.hello(hello) }),
		request(finish, nil, func(e *encoder) { begin(e); e.replica(transport.Replica{Task: 1}) }),
		request(leave, nil, func(e *encoder) { begin(e); e.replica(transport.Replica{Life: 1}) }),
		request(describe, nil, begin))
}

// known tells whether err is one that a malformed call may end with.
func known(err error) bool {
	return errors.Is(err, transport.ErrInvalid) || errors.Is(err, transport.ErrTooLarge) ||
		errors.Is(err, transport.ErrLength) || errors.Is(err, transport.ErrUnknownPart)
}

// FuzzFrame lets a server hear anything. It must answer in well-formed frames,
// and hand on nothing that is malformed.
func FuzzFrame(f *testing.F) {
	for _, r := range requests() {
		f.Add(r)
		f.Add(slices.Concat(r, r))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		heard := answerTo(1<<20, bytes.NewReader(said), func(parts []transport.Part) {
			if err := transport.Check(parts); err != nil {
				t.Errorf("a malformed part is handed on: %v", err)
			}
		})
		for l := newScripted(heard); ; {
			if l.await(0) == io.EOF {
				return
			}
			fr, header, err := l.next()
			if err != nil {
				t.Fatalf("the answer is malformed: %v", err)
			}
			switch fr.kind {
			case failure:
				if err := failureOf(header); err != errLate && !known(err) {
					t.Errorf("fails with %v, want an error of a malformed call", err)
				}
			case answer, working:
			default:
				t.Errorf("answers with %v", fr.kind)
			}
			if err := l.drain(); err != nil {
				t.Errorf("an answer ends early: %v", err)
			}
		}
	})
}

// FuzzAnswer answers calls with anything.
func FuzzAnswer(f *testing.F) {
	f.Add(request(answer, make([]byte, 16), func(e *encoder) { e.status(transport.Status{Step: 1}) }))
	f.Add(request(answer, nil, func(e *encoder) { e.welcome(transport.Welcome{Cursor: []byte{1}}) }))
	f.Add(request(answer, nil, func(e *encoder) { e.byte(1) }))
	f.Add(request(answer, nil, func(e *encoder) {
		e.description(transport.Description{
			Settings: []transport.Setting{{Name: "a"}}, Extents: make([]transport.Extent, 2),
			Replicas: []transport.ReplicaState{{Verdicts: map[transport.Verdict]int64{transport.Stale: 1}}},
		})
	}))
	f.Add(request(failure, nil, func(e *encoder) { e.b = appendFailure(e.b, 7, transport.ErrReplaced) }))
	f.Add(append(request(working, nil, func(*encoder) {}), request(failure, nil, func(e *encoder) { e.byte(deadline) })...))
	f.Fuzz(func(t *testing.T, said []byte) {
		for k := join; k <= describe; k++ {
			c := newConn(&network{opts: Options{}.withDefaults()}, "there")
			l := newScripted(said)
			c.links[l] = struct{}{}
			c.idle = append(c.idle, l)
			dst := []transport.Part{{Data: make([]float32, 3)}, {Data: make([]float32, 2), Encoding: transport.Float16}}
			ctx, result, err := context.Background(), any(nil), error(nil)
			switch k {
			case join:
				result, err = c.Join(ctx, transport.Hello{})
			case initial:
				err = c.Init(ctx, dst)
			case pull:
				result, err = c.Pull(ctx, 0, dst)
			case push:
				result, err = c.Push(ctx, transport.Push{}, dst)
			case finish:
				err = c.Finish(ctx, transport.Replica{})
			case leave:
				err = c.Leave(ctx, transport.Replica{})
			case describe:
				result, err = c.Describe(ctx)
			}
			var remote *remoteError
			if err != nil && codeOf(err) == other && !errors.As(err, &remote) {
				t.Errorf("%v: error %v, want a sentinel or a service's own", k, err)
			}
			switch result := result.(type) {
			case transport.Verdict:
				if err != nil && result != 0 {
					t.Errorf("push fails with %v and answers %v", err, result)
				}
			case transport.Status:
				if err != nil && result != (transport.Status{}) {
					t.Errorf("pull fails with %v and answers %v", err, result)
				}
			}
		}
	})
}

// FuzzHeader reads a header as the arguments and results of everything. What can
// be read must be the same when it is written and read again.
func FuzzHeader(f *testing.F) {
	for _, r := range requests() {
		f.Add(r[frameBytes:])
		f.Add(r[min(len(r), frameBytes+8):])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again(t, b, (*decoder).hello, (*encoder).hello)
		again(t, b, (*decoder).welcome, (*encoder).welcome)
		again(t, b, (*decoder).status, (*encoder).status)
		again(t, b, (*decoder).push, (*encoder).push)
		again(t, b, (*decoder).description, (*encoder).description)
		again(t, b, (*decoder).replica, (*encoder).replica)
		var l list
		d := decoder{b: b}
		d.parts(&l)
		if d.err != nil {
			return
		}
		if len(l.parts) != len(l.lengths) || len(l.parts)*6 > len(b) || cap(l.rows) > len(b) {
			t.Errorf("%d bytes become %d parts, %d lengths and room for %d rows", len(b), len(l.parts), len(l.lengths), cap(l.rows))
		}
	})
}

func again[T any](t *testing.T, b []byte, read func(*decoder) T, write func(*encoder, T)) {
	t.Helper()
	d := decoder{b: b}
	want := read(&d)
	if d.err != nil {
		if !known(d.err) {
			t.Errorf("%T: error %v", want, d.err)
		}
		return
	}
	var e encoder
	write(&e, want)
	d = decoder{b: e.b}
	if got := read(&d); d.end() != nil || !cmp.Equal(got, want, cmpopts.EquateNaNs()) {
		t.Errorf("%T: %+v, %v, want %+v", want, got, d.end(), want)
	}
}

// taken returns the bytes that do allocates.
func taken(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// head returns a frame that announces more than there is.
func head(k kind, header int, data int64, b []byte) []byte {
	out := make([]byte, frameBytes, frameBytes+len(b))
	frame{k, header, data}.put(out)
	return append(out, b...)
}

func TestMemoryIsTakenAsDataArrives(t *testing.T) {
	const declared = 8 << 30
	e := encoder{[]byte{0, 0}} // no deadline, no patience
	e.push(transport.Push{})
	e.uint(1)
	e.text("v")
	e.int(0)
	e.int(0)
	e.byte(0)
	e.int(declared / 4)
	e.rows(nil)
	for _, c := range []struct {
		said   []byte
		chunks int
	}{
		{head(push, len(e.b), declared, e.b), 0},
		{head(push, len(e.b), declared, e.b), 1},
		{head(push, len(e.b), declared, e.b), 5},
		{head(push, maxHeaderBytes, 0, []byte{0, 0}), 0},
		{head(push, maxHeaderBytes, 0, []byte{0, 0}), 5},
	} {
		more := io.LimitReader(zeros{}, int64(c.chunks<<20))
		var heard []byte
		got := taken(func() {
			heard = answerTo(64<<30, io.MultiReader(bytes.NewReader(c.said), more), func([]transport.Part) {})
		})
		if len(heard) > 0 {
			t.Errorf("a call that ends early is answered with %q", heard)
		}
		if limit := uint64(2+6*c.chunks) << 20; got > limit {
			t.Errorf("%d MiB of %d GiB arrived: %d bytes taken, want at most %d", c.chunks, declared>>30, got, limit)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func TestPullTakesNoMemoryForWhatTheShardLacks(t *testing.T) {
	for _, c := range []struct {
		variable string
		offset   int
		length   int64
		want     error
	}{
		{"w", 0, 1 << 30, transport.ErrUnknownPart},
		{"v", 4, 1 << 30, transport.ErrLength},
		{"v", 4, 1 << 40, transport.ErrTooLarge},
	} {
		said := request(pull, nil, func(e *encoder) {
			e.uint(0)
			e.uint(0)
			e.int(0)
			e.uint(1)
			e.text(c.variable)
			e.int(int64(c.offset))
			e.int(0)
			e.byte(0)
			e.int(c.length)
			e.rows(nil)
		})
		var heard []byte
		got := taken(func() { heard = answerTo(64<<30, bytes.NewReader(said), func([]transport.Part) {}) })
		f, header, err := newScripted(heard).next()
		if err != nil || f.kind != failure || !errors.Is(failureOf(header), c.want) {
			t.Errorf("pull of %+v is answered with %v %q, %v, want %v", c, f.kind, header, err, c.want)
		}
		if got > 1<<20 {
			t.Errorf("pull of %+v: %d bytes taken, want at most %d", c, got, 1<<20)
		}
	}
}

// plainBytes is what sent is by way of memory, element by element.
func plainBytes(parts []transport.Part) []byte {
	b := make([]byte, 0, bytesOf(parts))
	for _, p := range parts {
		for _, x := range p.Data {
			if p.Encoding == transport.Float32 {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
				continue
			}
			b = append(b, 0, 0)
			p.Encoding.Encode(b[len(b)-2:], []float32{x})
		}
	}
	return b
}

// TestDataIsCutAnywhere sends parts of sizes around all that data is cut at,
// from where it lies and, as on machines that are not little-endian, by way of
// other memory.
func TestDataIsCutAnywhere(t *testing.T) {
	t.Run("as=it_lies", dataIsCutAnywhere)
	defer func(was bool) { littleEndian = was }(littleEndian)
	littleEndian = false
	t.Run("as=encoded", dataIsCutAnywhere)
}

func dataIsCutAnywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	around := []int{0, 1, 2, readBytes, chunkBytes / 2, chunkBytes/2 + 1, writeBytes / 4, writeBytes/4 + 1, writeBytes/4 + writeBytes/16}
	for range 30 {
		var parts []transport.Part
		for range r.IntN(12) {
			p := transport.Part{Encoding: transport.Encoding(r.IntN(2)), Data: make([]float32, max(0, around[r.IntN(len(around))]-r.IntN(20)))}
			for i := range p.Data {
				p.Data[i] = float32(r.IntN(1 << 11)) // which both encodings keep
			}
			parts = append(parts, p)
		}
		nc := new(script)
		l := newLink(nc, time.Second, new(pool.Pool[byte]))
		l.header()
		if err := l.send(answer, parts); err != nil {
			t.Fatalf("send: %v", err)
		}
		sent := nc.out.Bytes()
		f, err := parseFrame(sent)
		if err != nil {
			t.Fatalf("parseFrame: %v", err)
		}
		if got, want := sent[frameBytes+f.header:], plainBytes(parts); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes are sent, want %d others", len(got), len(want))
		}
		far := newScripted(sent)
		if _, _, err := far.next(); err != nil {
			t.Fatalf("next: %v", err)
		}
		for i, p := range parts {
			got := make([]float32, len(p.Data))
			if err := far.readData(p.Encoding, got); err != nil || !slices.Equal(got, p.Data) {
				t.Fatalf("part %d arrives as others, %v", i, err)
			}
		}
		if far.left != 0 {
			t.Errorf("%d bytes are left", far.left)
		}
	}
}

func TestConnKeepsAFewLinks(t *testing.T) {
	const calls, kept = 12, 3
	entered, leave := make(chan struct{}), make(chan struct{})
	n := New(Options{IdleConns: kept}).(*network)
	l, err := n.Listen("127.0.0.1:0", still{describe: func() {
		entered <- struct{}{}
		<-leave
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tc, err := n.Dial(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer tc.Close()
	c := tc.(*conn)
	counts := func() (links, idle int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.links), len(c.idle)
	}
	for round := range 2 {
		var running sync.WaitGroup
		for range calls {
			running.Go(func() {
				if _, err := c.Describe(t.Context()); err != nil {
					t.Errorf("Describe: %v", err)
				}
			})
		}
		for range calls {
			<-entered
		}
		if links, _ := counts(); links != calls {
			t.Errorf("round %d: %d links with %d calls under way", round, links, calls)
		}
		for range calls {
			leave <- struct{}{}
		}
		running.Wait()
		if links, idle := counts(); links != kept || idle != kept {
			t.Errorf("round %d: %d links, %d of them idle, want %d", round, links, idle, kept)
		}
	}
}

// TestAwaitCanBeRepeated after it was in vain.
func TestAwaitCanBeRepeated(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	l := newLink(near, 20*time.Second, new(pool.Pool[byte]))
	for range 2 {
		if err := l.await(time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) || l.broken != nil {
			t.Errorf("await: %v, and broken for %v, want %v", err, l.broken, os.ErrDeadlineExceeded)
		}
	}
	go func() {
		far.Write(request(finish, nil, func(*encoder) {}))
		far.Close()
	}()
	if err := l.await(0); err != nil {
		t.Errorf("await: %v", err)
	}
	if f, _, err := l.next(); f.kind != finish || err != nil {
		t.Errorf("next: %v, %v, want %v", f.kind, err, finish)
	}
}

func TestCodesAreDifferent(t *testing.T) {
	seen := map[byte]error{other: nil, deadline: nil}
	for _, c := range codes {
		if _, ok := seen[c.code]; ok {
			t.Errorf("code %d stands for %v and for something else", c.code, c.sentinel)
		}
		seen[c.code] = c.sentinel
	}
}

func TestLongErrorsAreCut(t *testing.T) {
	long := errors.New(string(bytes.Repeat([]byte("x"), 2*textBytes)))
	if got := len(failureOf(appendFailure(nil, other, long)).Error()); got != textBytes {
		t.Errorf("%d bytes of the text arrive, want %d", got, textBytes)
	}
}
