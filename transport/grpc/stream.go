package grpc

import (
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"pushpull/transport"
)

// A stream of either side of either direction.
type (
	sender   interface{ SendMsg(any) error }
	receiver interface{ RecvMsg(any) error }
)

// send sends a header and the data of src, which may both be in one message.
func send(stream sender, header proto.Message, src *source) error {
	b, err := proto.Marshal(header)
	if err != nil {
		return fmt.Errorf("%w: %w", err, transport.ErrInvalid)
	}
	if err := checkMessage(len(b)); err != nil {
		return err
	}
	m := outgoing{header: b, data: src.next(chunkBytes - len(b))}
	for {
		if err := stream.SendMsg(&m); err != nil || src.left == 0 {
			return err
		}
		m = outgoing{data: src.next(chunkBytes)}
	}
}

// checkMessage tells whether the far end takes a message of n bytes beside
// data, which is to say all but the data of a call.
func checkMessage(n int) error {
	if limit := messageBytes - chunkBytes; n > limit {
		return fmt.Errorf("row numbers, names and cursor of one call take %d bytes, want at most %d: %w", n, limit, transport.ErrTooLarge)
	}
	return nil
}

// next receives a message into m, which has been released. At the end of the
// stream it returns io.EOF.
func next(stream receiver, m *incoming) error {
	if err := stream.RecvMsg(m); err != nil {
		return err
	}
	return m.err
}

// first receives the message that begins a stream, and its header.
func first(stream receiver, m *incoming, header proto.Message) error {
	err := next(stream, m)
	if err == io.EOF {
		return fmt.Errorf("the stream ends before the header: %w", transport.ErrInvalid)
	}
	if err != nil {
		return err
	}
	return unmarshalHeader(m.header, header)
}

// unmarshalHeader decodes a header after a look at how many fields it has: an
// empty part takes fifty times the memory that it takes on the wire.
func unmarshalHeader(b []byte, header proto.Message) error {
	fields := 0
	for rest := b; len(rest) > 0; fields++ {
		_, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return fmt.Errorf("header: %w: %w", protowire.ParseError(n), transport.ErrInvalid)
		}
		rest = rest[n:]
	}
	if limit := maxParts + 16; fields > limit {
		return fmt.Errorf("header of %d fields, want at most %d parts: %w", fields, maxParts, transport.ErrTooLarge)
	}
	if err := proto.Unmarshal(b, header); err != nil {
		return fmt.Errorf("header: %w: %w", err, transport.ErrInvalid)
	}
	return nil
}

// rest takes the data of m, which was received first, and of all messages after
// it, to the end of the stream.
func rest(stream receiver, m *incoming, to *sink) error {
	for {
		for _, piece := range m.data {
			if err := to.write(piece); err != nil {
				return err
			}
		}
		m.release()
		err := next(stream, m)
		switch {
		case err == io.EOF:
			return to.end()
		case err != nil:
			return err
		case m.header != nil:
			return fmt.Errorf("a header in the midst of the stream: %w", transport.ErrInvalid)
		}
	}
}
