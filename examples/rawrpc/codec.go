package main

import (
	"fmt"
	"math"
	"unsafe"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Payloads: how a message's bytes stand in what gRPC sends.
const (
	payloadRaw    = "raw"    // as they are
	payloadBytes  = "bytes"  // as protobuf's field 1, of type bytes
	payloadFloats = "floats" // as protobuf's field 1, of type repeated float
)

var payloads = []string{payloadRaw, payloadBytes, payloadFloats}

// A message is bytes to be sent, or bytes that have come. What has come is good
// until free is called.
type message struct {
	out []byte          // to be sent, if there are any
	raw mem.BufferSlice // that have come raw: parts of the connection's own buffers
	in  []byte          // that have come otherwise: decoded into memory of their own
}

func (m *message) free() {
	m.raw.Free()
	m.raw, m.in = nil, nil
}

// pieces returns what has come, in order.
func (m *message) pieces() [][]byte {
	if m.in != nil {
		return [][]byte{m.in}
	}
	var all [][]byte
	for _, b := range m.raw {
		all = append(all, b.ReadOnlyData())
	}
	return all
}

// codecOf returns the codec of a payload.
func codecOf(payload string) encoding.CodecV2 {
	return map[string]encoding.CodecV2{payloadRaw: rawCodec{}, payloadBytes: bytesCodec{}, payloadFloats: floatsCodec{}}[payload]
}

// rawCodec passes bytes through, and copies none of them.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*message).out)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	v.(*message).raw = data
	return nil
}

// bytesCodec does what generated code does for "bytes data = 1": it copies them
// behind a tag, and out from behind it.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	out := v.(*message).out
	b := make([]byte, 0, protowire.SizeTag(1)+protowire.SizeBytes(len(out)))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	return mem.BufferSlice{mem.SliceBuffer(protowire.AppendBytes(b, out))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	fields, free, err := fieldsOf(data)
	if err != nil {
		return err
	}
	defer free()
	v.(*message).in = append(make([]byte, 0, len(fields[1])), fields[1]...)
	return nil
}

// floatsCodec does what generated code does for "repeated float data = 1": it
// appends one element after the other, and parses them so. Bytes beyond the last
// whole element are field 2.
type floatsCodec struct{}

func (floatsCodec) Name() string { return "proto" }

func (floatsCodec) Marshal(v any) (mem.BufferSlice, error) {
	out := v.(*message).out
	whole, tail := len(out)/4*4, len(out)%4
	b := make([]byte, 0, 2*protowire.SizeTag(1)+protowire.SizeBytes(whole)+protowire.SizeBytes(tail))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(whole))
	for _, x := range floatsOf(out[:whole]) {
		b = protowire.AppendFixed32(b, math.Float32bits(x))
	}
	if tail > 0 {
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendBytes(b, out[whole:])
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (floatsCodec) Unmarshal(data mem.BufferSlice, v any) error {
	fields, free, err := fieldsOf(data)
	if err != nil {
		return err
	}
	defer free()
	field := fields[1]
	floats := make([]float32, 0, len(field)/4+1) // with room for what is no whole element
	for len(field) > 0 {
		bits, n := protowire.ConsumeFixed32(field)
		if n < 0 {
			return protowire.ParseError(n)
		}
		floats, field = append(floats, math.Float32frombits(bits)), field[n:]
	}
	v.(*message).in = append(bytesOf(floats), fields[2]...)
	return nil
}

// fieldsOf returns the bytes of a message's fields 1 and 2, good until free is
// called.
func fieldsOf(data mem.BufferSlice) (fields [3][]byte, free func(), err error) {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	for b := buf.ReadOnlyData(); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 || number < 1 || number > 2 || kind != protowire.BytesType {
			buf.Free()
			return fields, nil, fmt.Errorf("%d bytes before the end of a message: want field 1 or 2, of type bytes", len(b))
		}
		field, m := protowire.ConsumeBytes(b[n:])
		if m < 0 {
			buf.Free()
			return fields, nil, protowire.ParseError(m)
		}
		fields[number], b = field, b[n+m:]
	}
	return fields, buf.Free, nil
}

// floatsOf returns whole elements as floats, in place. They must lie where
// floats may.
func floatsOf(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// bytesOf returns floats as bytes, in place, with the capacity they have.
func bytesOf(floats []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(floats))), 4*cap(floats))[:4*len(floats)]
}
