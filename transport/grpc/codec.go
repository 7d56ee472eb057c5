package grpc

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"pushpull/transport"
)

// Field numbers that InitRequest, PushRequest and PullResponse share.
const (
	headerField protowire.Number = 1
	dataField   protowire.Number = 2
)

// plain is gRPC's codec for protobuf.
var plain = encoding.GetCodecV2(proto.Name)

// A codec is gRPC's codec for protobuf, and knows outgoing and incoming too.
// They are the messages with data, the same on the wire, but the data is not
// copied through a message.
type codec struct{}

func (codec) Name() string { return proto.Name }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*outgoing); ok {
		return m.marshal(), nil
	}
	return plain.Marshal(v)
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*incoming); ok {
		m.unmarshal(data)
		return nil
	}
	return plain.Unmarshal(data, v)
}

// outgoing is a message to be sent.
type outgoing struct {
	header []byte     // the encoded header; nil for none
	data   mem.Buffer // handed over with the message; nil for none
}

func (m *outgoing) marshal() mem.BufferSlice {
	var b []byte
	if m.header != nil {
		b = protowire.AppendTag(b, headerField, protowire.BytesType)
		b = protowire.AppendBytes(b, m.header)
	}
	if m.data == nil {
		return mem.BufferSlice{mem.SliceBuffer(b)}
	}
	b = protowire.AppendTag(b, dataField, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(m.data.Len()))
	return mem.BufferSlice{mem.SliceBuffer(b), m.data}
}

// incoming is a message that was received. It refers to the frames it came in
// until it is released.
type incoming struct {
	header []byte   // the encoded header; nil for none
	data   [][]byte // in pieces
	err    error    // if the message is malformed

	frames mem.BufferSlice
}

var errMalformed = fmt.Errorf("the message is not protobuf of the expected type: %w", transport.ErrInvalid)

func (m *incoming) unmarshal(frames mem.BufferSlice) {
	frames.Ref()
	*m = incoming{data: m.data[:0], frames: frames}
	c := cursor{rest: frames, left: frames.Len()}
	for c.left > 0 && m.err == nil {
		m.err = m.field(&c)
	}
}

// field reads the next field. As protobuf has it, of a message sent in pieces
// all count, and of bytes the last.
func (m *incoming) field(c *cursor) error {
	tag, err := c.varint()
	if err != nil {
		return err
	}
	number, kind := protowire.DecodeTag(tag)
	if number < 1 || number <= dataField && kind != protowire.BytesType {
		return errMalformed
	}
	size := uint64(0)
	switch kind {
	case protowire.VarintType:
		_, err := c.varint()
		return err
	case protowire.Fixed32Type:
		size = 4
	case protowire.Fixed64Type:
		size = 8
	case protowire.BytesType:
		if size, err = c.varint(); err != nil {
			return err
		}
	default:
		return errMalformed
	}
	switch number {
	case headerField:
		if m.header == nil {
			m.header = []byte{}
		}
		return c.take(size, func(b []byte) { m.header = append(m.header, b...) })
	case dataField:
		m.data = m.data[:0]
		return c.take(size, func(b []byte) { m.data = append(m.data, b) })
	}
	return c.take(size, func([]byte) {})
}

// release lets go of the frames. The data is not valid afterwards.
func (m *incoming) release() {
	m.frames.Free()
	clear(m.data)
	m.frames, m.data = nil, m.data[:0]
}

// A cursor reads what lies in several buffers.
type cursor struct {
	rest mem.BufferSlice
	here []byte // of the buffer before rest
	left int    // bytes in here and rest
}

// take hands over the next n bytes in pieces.
func (c *cursor) take(n uint64, piece func([]byte)) error {
	if n > uint64(c.left) {
		return errMalformed
	}
	c.left -= int(n)
	for n > 0 {
		if len(c.here) == 0 {
			c.here, c.rest = c.rest[0].ReadOnlyData(), c.rest[1:]
			continue
		}
		k := min(n, uint64(len(c.here)))
		piece(c.here[:k])
		c.here = c.here[k:]
		n -= k
	}
	return nil
}

func (c *cursor) varint() (uint64, error) {
	var b []byte
	for len(b) < 10 {
		if err := c.take(1, func(p []byte) { b = append(b, p...) }); err != nil {
			return 0, err
		}
		if b[len(b)-1] < 0x80 {
			if v, n := protowire.ConsumeVarint(b); n > 0 {
				return v, nil
			}
			break
		}
	}
	return 0, errMalformed
}
