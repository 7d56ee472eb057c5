package grpc

import (
	"context"
	"fmt"
	"io"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "pushpull/proto/pushpull/v1"
	"pushpull/transport"
	"pushpull/transport/internal/pool"
)

// A conn calls the service at an address.
type conn struct {
	addr   string
	cc     *grpc.ClientConn
	client pb.ParameterServerClient
	bytes  *pool.Pool[byte]
	closed context.Context // done after Close
	close  context.CancelFunc
}

var _ transport.Conn = (*conn)(nil)

func (c *conn) Close() error {
	c.close() // ends calls at once, however stuck the connection is
	return c.cc.Close()
}

// begin returns the context for a call: it ends with the caller's, and with the
// connection. The call ends it, too.
func (c *conn) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.closed, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// fail returns what the caller with context ctx is to know of err.
func (c *conn) fail(ctx context.Context, method string, err error) error {
	if _, ok := status.FromError(err); ok {
		return fromStatus(ctx, method, c.addr, err)
	}
	return fmt.Errorf("%s at %s: %w", method, c.addr, err)
}

// unary makes a call without data.
func unary[Req, Resp proto.Message](
	ctx context.Context, c *conn, method string, req Req, do func(context.Context, Req, ...grpc.CallOption) (Resp, error),
) (Resp, error) {
	inner, end := c.begin(ctx)
	defer end()
	resp, err := do(inner, req)
	if err != nil {
		return resp, c.fail(ctx, method, err)
	}
	return resp, nil
}

func (c *conn) Join(ctx context.Context, hello transport.Hello) (transport.Welcome, error) {
	for _, s := range hello.Settings {
		if !utf8.ValidString(s.Name + s.Value) {
			return transport.Welcome{}, c.fail(ctx, "join", fmt.Errorf("setting %q is %q, not UTF-8: %w", s.Name, s.Value, transport.ErrInvalid))
		}
	}
	req := &pb.JoinRequest{Replica: toReplica(hello.Replica), Settings: toSettings(hello.Settings), Plan: toPlan(hello.Plan)}
	resp, err := unary(ctx, c, "join", req, c.client.Join)
	if err != nil {
		return transport.Welcome{}, err
	}
	return transport.Welcome{Step: resp.GetStep(), Saves: resp.GetSaves(), Cursor: resp.Cursor, Seq: resp.GetSeq()}, nil
}

func (c *conn) Init(ctx context.Context, parts []transport.Part) error {
	_, err := transfer(ctx, c, "init", parts, func() proto.Message { return &pb.InitHeader{Parts: toParts(parts)} }, c.client.Init)
	return err
}

func (c *conn) Push(ctx context.Context, push transport.Push, grads []transport.Part) (transport.Verdict, error) {
	resp, err := transfer(ctx, c, "push", grads, func() proto.Message {
		return &pb.PushHeader{
			Replica: toReplica(push.Replica), Seq: push.Seq, Step: push.Step, Examples: push.Examples, Cursor: push.Cursor,
			Parts: toParts(grads),
		}
	}, c.client.Push)
	if err != nil {
		return 0, err
	}
	return transport.Verdict(resp.GetVerdict()), nil
}

// transfer makes a call that brings data.
func transfer[Req, Resp any](
	ctx context.Context, c *conn, method string, parts []transport.Part, header func() proto.Message,
	do func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Req, Resp], error),
) (*Resp, error) {
	if err := checkSent(parts); err != nil {
		return nil, c.fail(ctx, method, err)
	}
	inner, end := c.begin(ctx)
	defer end()
	stream, err := do(inner)
	if err != nil {
		return nil, c.fail(ctx, method, err)
	}
	if err := send(stream, header(), newSource(parts, c.bytes, nil)); err != nil && err != io.EOF {
		return nil, c.fail(ctx, method, err)
	}
	resp, err := stream.CloseAndRecv() // says why if the far end has stopped listening
	if err != nil {
		return nil, c.fail(ctx, method, err)
	}
	return resp, nil
}

// checkSent checks parts before anything is sent.
func checkSent(parts []transport.Part) error {
	if len(parts) > maxParts {
		return fmt.Errorf("%d parts, want at most %d: %w", len(parts), maxParts, transport.ErrTooLarge)
	}
	return transport.Check(parts)
}

func (c *conn) Pull(ctx context.Context, minStep int64, dst []transport.Part) (transport.Status, error) {
	inner, end := c.begin(ctx)
	defer end()
	st, err := c.pull(inner, minStep, dst)
	if err != nil {
		return transport.Status{}, c.fail(ctx, "pull", err)
	}
	return st, nil
}

func (c *conn) pull(ctx context.Context, minStep int64, dst []transport.Part) (st transport.Status, err error) {
	if err := checkSent(dst); err != nil {
		return st, err
	}
	req := &pb.PullRequest{MinStep: minStep, Parts: toParts(dst)}
	if err := checkMessage(proto.Size(req)); err != nil {
		return st, err
	}
	stream, err := c.client.Pull(ctx, req)
	if err != nil {
		return st, err
	}
	return read(stream, dst)
}

// read fills dst with the answer to a pull.
func read(stream receiver, dst []transport.Part) (st transport.Status, err error) {
	var m incoming
	defer m.release()
	var header pb.PullHeader
	if err := first(stream, &m, &header); err != nil {
		return st, err
	}
	lengths, err := agreed(dst, header.GetLengths())
	if err != nil {
		return st, err
	}
	if err := rest(stream, &m, &sink{parts: dst, lengths: lengths}); err != nil {
		return st, err
	}
	return fromStanding(header.GetStatus()), nil
}

// agreed returns the lengths of dst, if they are what is announced.
func agreed(dst []transport.Part, announced []int64) ([]int, error) {
	if len(announced) != len(dst) {
		return nil, fmt.Errorf("the answer has %d parts, want %d: %w", len(announced), len(dst), transport.ErrInvalid)
	}
	lengths := make([]int, len(dst))
	for i := range dst {
		lengths[i] = len(dst[i].Data)
		if announced[i] != int64(lengths[i]) {
			return nil, fmt.Errorf("%q[%d:]: the answer has %d elements, want %d: %w",
				dst[i].Variable, dst[i].Offset, announced[i], lengths[i], transport.ErrLength)
		}
	}
	return lengths, nil
}

func (c *conn) Finish(ctx context.Context, r transport.Replica) error {
	_, err := unary(ctx, c, "finish", &pb.FinishRequest{Replica: toReplica(r)}, c.client.Finish)
	return err
}

func (c *conn) Leave(ctx context.Context, r transport.Replica) error {
	_, err := unary(ctx, c, "leave", &pb.LeaveRequest{Replica: toReplica(r)}, c.client.Leave)
	return err
}

func (c *conn) Describe(ctx context.Context) (transport.Description, error) {
	resp, err := unary(ctx, c, "describe", &pb.DescribeRequest{}, c.client.Describe)
	if err != nil {
		return transport.Description{}, err
	}
	return fromDescription(resp), nil
}
