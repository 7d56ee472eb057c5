package grpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "pushpull/proto/pushpull/v1"
	"pushpull/transport"
	"pushpull/transport/internal/pool"
)

// A script is a stream that yields messages, each cut into frames.
type script struct {
	messages [][]byte
	frame    int // bytes in a frame
}

func (s *script) RecvMsg(m any) error {
	if len(s.messages) == 0 {
		return io.EOF
	}
	b := s.messages[0]
	s.messages = s.messages[1:]
	return codec{}.Unmarshal(frames(b, s.frame), m)
}

// frames cuts b.
func frames(b []byte, size int) mem.BufferSlice {
	var out mem.BufferSlice
	for piece := range slices.Chunk(b, max(1, size)) {
		out = append(out, mem.SliceBuffer(piece))
	}
	return out
}

// plainUnmarshal is incoming.unmarshal of one piece, by the book.
func plainUnmarshal(b []byte) (header, data []byte, ok bool) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind == protowire.StartGroupType || kind == protowire.EndGroupType {
			return nil, nil, false
		}
		b = b[n:]
		n = protowire.ConsumeFieldValue(number, kind, b)
		if n < 0 || number <= dataField && kind != protowire.BytesType {
			return nil, nil, false
		}
		value := b[:n]
		b = b[n:]
		if kind != protowire.BytesType {
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		switch number {
		case headerField:
			header = append(append([]byte{}, header...), value...)
		case dataField:
			data = value
		}
	}
	return header, data, true
}

func FuzzIncoming(f *testing.F) {
	push, err := proto.Marshal(&pb.PushRequest{Header: &pb.PushHeader{Seq: 300}, Data: []byte("some data")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(push, 1)
	f.Add(append(push, push...), 7)
	f.Add(push[:len(push)-1], 100)
	f.Add([]byte{0x10, 0x30}, 1) // a number where bytes belong
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 3)
	f.Add([]byte{0x18, 0x80, 0x80, 0x12, 0x00, 0x25, 1, 2, 3, 4, 0x31, 1, 2, 3, 4, 5, 6, 7, 8}, 2)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		var m incoming
		if err := (codec{}).Unmarshal(frames(b, size), &m); err != nil {
			t.Fatalf("Unmarshal: %v", err)
		}
		defer m.release()
		header, data, ok := plainUnmarshal(b)
		if ok != (m.err == nil) {
			t.Fatalf("error %v, want one: %v", m.err, !ok)
		}
		if !ok {
			if !errors.Is(m.err, transport.ErrInvalid) {
				t.Errorf("error %v, want %v", m.err, transport.ErrInvalid)
			}
			return
		}
		if !bytes.Equal(m.header, header) || (m.header == nil) != (header == nil) {
			t.Errorf("header %x, want %x", m.header, header)
		}
		if got := bytes.Join(m.data, nil); !bytes.Equal(got, data) {
			t.Errorf("data %x, want %x", got, data)
		}
	})
}

func TestOutgoingIsTheMessageItStandsFor(t *testing.T) {
	header := &pb.PushHeader{Seq: 5, Parts: []*pb.Part{{Variable: "v"}}}
	b, err := proto.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m    outgoing
		want *pb.PushRequest
	}{
		{outgoing{}, &pb.PushRequest{}},
		{outgoing{header: b}, &pb.PushRequest{Header: header}},
		{outgoing{header: []byte{}}, &pb.PushRequest{Header: &pb.PushHeader{}}},
		{outgoing{data: mem.SliceBuffer("abc")}, &pb.PushRequest{Data: []byte("abc")}},
		{outgoing{header: b, data: mem.SliceBuffer("abc")}, &pb.PushRequest{Header: header, Data: []byte("abc")}},
	} {
		wire, err := codec{}.Marshal(&c.m)
		if err != nil {
			t.Fatalf("Marshal: %v", err)
		}
		var got pb.PushRequest
		if err := (codec{}).Unmarshal(wire, &got); err != nil || !proto.Equal(&got, c.want) {
			t.Errorf("reads as %v, %v, want %v", &got, err, c.want)
		}
	}
}

// somePart returns a part whose data does not change on the way.
func somePart(n int, e transport.Encoding) transport.Part {
	p := transport.Part{Variable: "v", Encoding: e, Data: someFloats(n)}
	e.Round(p.Data)
	return p
}

func TestDataSurvivesAnyCut(t *testing.T) {
	parts := []transport.Part{
		somePart(0, transport.Float32), somePart(3, transport.Float16), somePart(5, transport.Float32), somePart(1, transport.Float16),
		somePart(0, transport.Float16), somePart(2, transport.Float32), somePart(0, transport.Float32),
	}
	lengths := make([]int, len(parts))
	want := []byte{}
	for i, p := range parts {
		lengths[i] = len(p.Data)
		b := make([]byte, len(p.Data)*p.Encoding.Size())
		p.Encoding.Encode(b, p.Data)
		want = append(want, b...)
	}
	for size := 1; size <= len(want)+1; size++ {
		var bytePool pool.Pool[byte]
		src, got := newSource(parts, &bytePool, nil), []byte{}
		for src.left > 0 {
			if b := src.next(max(4, size)); b != nil {
				got = append(got, b.ReadOnlyData()...)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("in pieces of %d: data %x, want %x", size, got, want)
		}
		for _, withSlab := range []bool{true, false} {
			dst := slices.Clone(parts)
			to := sink{parts: dst, lengths: lengths}
			var floats pool.Pool[float32]
			if withSlab {
				to.slab = newSlab(&floats, 11)
			} else {
				for i := range dst {
					dst[i].Data = make([]float32, lengths[i])
				}
			}
			slab := to.slab
			for piece := range slices.Chunk(want, size) {
				if err := to.end(); !errors.Is(err, transport.ErrInvalid) {
					t.Fatalf("end before the end: %v, want %v", err, transport.ErrInvalid)
				}
				if err := to.write(piece); err != nil {
					t.Fatalf("write: %v", err)
				}
			}
			if err := to.end(); err != nil {
				t.Fatalf("end: %v", err)
			}
			if err := to.write([]byte{1}); !errors.Is(err, transport.ErrInvalid) {
				t.Fatalf("write after the end: %v, want %v", err, transport.ErrInvalid)
			}
			if withSlab {
				slab.share(dst, lengths)
			}
			for i := range dst {
				if !bytes.Equal(view(dst[i].Data), view(parts[i].Data)) {
					t.Fatalf("in pieces of %d: part %d is %v, want %v", size, i, dst[i].Data, parts[i].Data)
				}
			}
		}
	}
}

// reach returns a server in front of holder.
func reach(limit int64) *server {
	return &server{service: holder{}, limit: limit, network: &network{opts: Options{}.withDefaults()}}
}

// holder is a shard of one part of ten elements, in rows of two.
type holder struct{ transport.Service }

func (holder) Describe(context.Context) (transport.Description, error) {
	return transport.Description{Extents: []transport.Extent{{Variable: "v", Offset: 4, Length: 10, Width: 2}}}, nil
}

func (holder) Pull(context.Context, int64, []transport.Part) (transport.Status, error) {
	return transport.Status{}, nil
}

// known tells whether err is one that a malformed call may end with.
func known(err error) bool {
	return errors.Is(err, transport.ErrInvalid) || errors.Is(err, transport.ErrTooLarge) || errors.Is(err, transport.ErrLength)
}

// FuzzReceive feeds a push of any bytes to the server, first as one message,
// then with its data in a second one.
func FuzzReceive(f *testing.F) {
	for _, h := range headers {
		b, err := proto.Marshal(&pb.PushHeader{Parts: h})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, make([]byte, 40), 16)
		f.Add(b, []byte{}, 1)
	}
	f.Fuzz(func(t *testing.T, header, data []byte, size int) {
		m := outgoing{header: append([]byte{}, header...)}
		one, two := m.marshal().Materialize(), (&outgoing{data: mem.SliceBuffer(data)}).marshal().Materialize()
		for _, messages := range [][][]byte{{append(slices.Clone(one), two...)}, {one, two}, {one, two, two}, {one, one}, {two}, {}} {
			var h pb.PushHeader
			s := &script{messages: messages, frame: size}
			parts, slab, err := reach(1<<20).receive(stream{script: s}, &h, h.GetParts)
			if err != nil {
				if !known(err) {
					t.Errorf("error %v, want one of a malformed call", err)
				}
				continue
			}
			if err := transport.Check(parts); err != nil {
				t.Errorf("a malformed part is handed on: %v", err)
			}
			slab.release()
		}
	})
}

// headers are lists of parts, most of them bad.
var headers = [][]*pb.Part{
	{},
	{{Variable: "v", Offset: 4, Width: 2, Length: proto.Int64(10)}},
	{{Variable: "v", Offset: 4, Width: 2, Length: proto.Int64(10), Encoding: pb.Encoding_ENCODING_FLOAT16}},
	{{Variable: "v", Offset: 4, Width: 2, Length: proto.Int64(4), Rows: &pb.Rows{Numbers: []int32{1, 4}}}},
	{{Variable: "v", Offset: 4, Width: 2, Rows: &pb.Rows{Numbers: []int32{1, 4}}}},
	{{Variable: "v", Offset: 4, Width: 2, Length: proto.Int64(4), Rows: &pb.Rows{Numbers: []int32{4, 1}}}},
	{{Variable: "v", Offset: 4, Width: 2, Length: proto.Int64(2), Rows: &pb.Rows{Numbers: []int32{math.MaxInt32}}}},
	{{Variable: "v", Offset: 4, Width: math.MaxInt64, Length: proto.Int64(2), Rows: &pb.Rows{Numbers: []int32{0, 1}}}},
	{{Variable: "v", Offset: 4, Length: proto.Int64(-1)}},
	{{Variable: "v", Offset: 4, Length: proto.Int64(math.MaxInt64)}},
	{{Variable: "v", Offset: 4, Length: proto.Int64(1 << 61)}, {Variable: "v", Length: proto.Int64(1 << 61)}},
	{{Variable: "v", Offset: -4, Width: -2, Length: proto.Int64(10), Encoding: -1}},
	{{Variable: "v", Offset: 4, Length: proto.Int64(10), Encoding: 77}},
	{{Variable: "w", Offset: 4, Length: proto.Int64(10)}},
	{{Variable: "v", Offset: 4}, {Variable: "v", Offset: 4}},
}

// stream makes a script a stream of the server's.
type stream struct {
	grpc.ServerStream
	script *script
}

func (s stream) RecvMsg(m any) error { return s.script.RecvMsg(m) }

// FuzzPullRequest asks the server for parts of any kind.
func FuzzPullRequest(f *testing.F) {
	for _, h := range headers {
		b, err := proto.Marshal(&pb.PullRequest{Parts: h})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var req pb.PullRequest
		if proto.Unmarshal(b, &req) != nil {
			return
		}
		s, ctx := reach(1<<20), t.Context()
		parts, lengths, err := s.asked(ctx, &req)
		var data *slab
		if err == nil {
			data, err = s.room(ctx, 0, parts, lengths)
		}
		if err != nil {
			if !known(err) && !errors.Is(err, transport.ErrUnknownPart) {
				t.Errorf("error %v, want one of a malformed call", err)
			}
			return
		}
		data.share(parts, lengths)
		if err := transport.Check(parts); err != nil {
			t.Errorf("a malformed part is handed on: %v", err)
		}
		data.release()
	})
}

// FuzzPullResponse answers a client's pull with any bytes.
func FuzzPullResponse(f *testing.F) {
	for _, lengths := range [][]int64{{}, {3, 2}, {3}, {2, 3}, {-1, math.MaxInt64}} {
		b, err := proto.Marshal(&pb.PullHeader{Lengths: lengths})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, make([]byte, 16), 5)
		f.Add(b, make([]byte, 17), 100)
	}
	f.Fuzz(func(t *testing.T, header, data []byte, size int) {
		one := (&outgoing{header: append([]byte{}, header...)}).marshal().Materialize()
		two := (&outgoing{data: mem.SliceBuffer(data)}).marshal().Materialize()
		for _, messages := range [][][]byte{{append(slices.Clone(one), two...)}, {one, two}, {two, one}, {}} {
			dst := []transport.Part{{Data: make([]float32, 3)}, {Data: make([]float32, 2), Encoding: transport.Float16}}
			_, err := read(&script{messages: messages, frame: size}, dst)
			if err != nil && !known(err) {
				t.Errorf("error %v, want one of a malformed answer", err)
			}
		}
	})
}

func TestTooManyPartsAreRefusedBeforeTheyAreRead(t *testing.T) {
	b := bytes.Repeat([]byte{6<<3 | 2, 0}, maxParts+17) // empty parts
	var h pb.PushHeader
	if err := unmarshalHeader(b, &h); !errors.Is(err, transport.ErrTooLarge) {
		t.Errorf("a header of %d parts: %v, want %v", maxParts+17, err, transport.ErrTooLarge)
	}
	if len(h.Parts) > 0 {
		t.Errorf("%d of the parts were read", len(h.Parts))
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

func TestMemoryIsTakenAsDataArrives(t *testing.T) {
	const declared = 8 << 30
	header := &pb.PushHeader{Parts: []*pb.Part{{Variable: "v", Length: proto.Int64(declared / 4)}}}
	b, err := proto.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, chunkBytes)
	for _, chunks := range []int{0, 1, 5} {
		messages := [][]byte{(&outgoing{header: b}).marshal().Materialize()}
		for range chunks {
			messages = append(messages, (&outgoing{data: mem.SliceBuffer(chunk)}).marshal().Materialize())
		}
		got := taken(func() {
			var h pb.PushHeader
			_, _, err = reach(64<<30).receive(stream{script: &script{messages: messages, frame: 16 << 10}}, &h, h.GetParts)
		})
		if !errors.Is(err, transport.ErrInvalid) {
			t.Errorf("a push that ends early: %v, want %v", err, transport.ErrInvalid)
		}
		if limit := uint64(4+4*chunks) * chunkBytes; got > limit {
			t.Errorf("%d MiB of %d GiB arrived: %d bytes taken, want at most %d", chunks, declared>>30, got, limit)
		}
	}
}

func TestPullTakesNoMemoryForWhatTheShardLacks(t *testing.T) {
	for _, c := range []struct {
		part *pb.Part
		want error
	}{
		{&pb.Part{Variable: "w", Length: proto.Int64(1 << 30)}, transport.ErrUnknownPart},
		{&pb.Part{Variable: "v", Offset: 4, Length: proto.Int64(1 << 30)}, transport.ErrLength},
		{&pb.Part{Variable: "v", Offset: 4, Length: proto.Int64(1 << 40)}, transport.ErrTooLarge},
	} {
		var err error
		got := taken(func() {
			s, req := reach(64<<30), &pb.PullRequest{Parts: []*pb.Part{c.part}}
			parts, lengths, e := s.asked(t.Context(), req)
			if err = e; err == nil {
				_, err = s.room(t.Context(), 0, parts, lengths)
			}
		})
		if !errors.Is(err, c.want) {
			t.Errorf("pull of %v: %v, want %v", c.part, err, c.want)
		}
		if got > chunkBytes {
			t.Errorf("pull of %v: %d bytes taken, want at most %d", c.part, got, chunkBytes)
		}
	}
}

// TestSlabIsReusedOnce makes sure that memory a message still refers to is not
// handed out again.
func TestSlabIsReusedOnce(t *testing.T) {
	var floats pool.Pool[float32]
	var bytePool pool.Pool[byte]
	s := newSlab(&floats, 1<<16)
	parts := []transport.Part{{Data: *s.buf}}
	src := newSource(parts, &bytePool, s)
	if src.slab == nil {
		t.Skip("memory is not as on the wire here")
	}
	b := src.next(1 << 18)
	s.release()
	if floats.Reuse(1<<16) != nil || s.refs.Load() < 0 {
		t.Errorf("the memory is reused while a message refers to it")
	}
	b.Free()
	if s.refs.Load() >= 0 {
		t.Errorf("the memory is not given back after the message is sent")
	}
}
