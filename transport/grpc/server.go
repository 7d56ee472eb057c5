package grpc

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "pushpull/proto/pushpull/v1"
	"pushpull/transport"
)

// server answers gRPC calls with a service.
type server struct {
	pb.UnimplementedParameterServerServer
	service transport.Service
	limit   int64 // MaxCallBytes
	network *network
}

func (s *server) Join(ctx context.Context, req *pb.JoinRequest) (*pb.JoinResponse, error) {
	w, err := s.service.Join(ctx, transport.Hello{
		Replica: fromReplica(req.GetReplica()), Settings: fromSettings(req.GetSettings()), Plan: fromPlan(req.GetPlan()),
	})
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &pb.JoinResponse{Step: w.Step, Saves: w.Saves, Cursor: w.Cursor, Seq: w.Seq}, nil
}

func (s *server) Init(stream grpc.ClientStreamingServer[pb.InitRequest, pb.InitResponse]) error {
	ctx := stream.Context()
	var header pb.InitHeader
	parts, data, err := s.receive(stream, &header, header.GetParts)
	if err != nil {
		return toStatus(ctx, err)
	}
	err = s.service.Init(ctx, parts)
	data.release()
	if err != nil {
		return toStatus(ctx, err)
	}
	return stream.SendAndClose(&pb.InitResponse{})
}

func (s *server) Push(stream grpc.ClientStreamingServer[pb.PushRequest, pb.PushResponse]) error {
	ctx := stream.Context()
	var header pb.PushHeader
	parts, data, err := s.receive(stream, &header, header.GetParts)
	if err != nil {
		return toStatus(ctx, err)
	}
	v, err := s.service.Push(ctx, transport.Push{
		Replica: fromReplica(header.GetReplica()), Seq: header.GetSeq(),
		Step: header.GetStep(), Examples: header.GetExamples(), Cursor: header.Cursor,
	}, parts)
	data.release()
	if err != nil {
		return toStatus(ctx, err)
	}
	return stream.SendAndClose(&pb.PushResponse{Verdict: pb.Verdict(v)})
}

// receive reads a call that brings data: its header, the parts that this then
// has, and the data, for which memory is taken as it arrives. The caller
// releases the slab when it is done with the parts.
func (s *server) receive(stream grpc.ServerStream, header proto.Message, listed func() []*pb.Part) ([]transport.Part, *slab, error) {
	var m incoming
	defer m.release()
	if err := first(stream, &m, header); err != nil {
		return nil, nil, err
	}
	parts, lengths, err := fromParts(listed())
	if err != nil {
		return nil, nil, err
	}
	total, err := checkParts(parts, lengths, s.limit)
	if err != nil {
		return nil, nil, err
	}
	data := newSlab(&s.network.floats, total)
	if err := rest(stream, &m, &sink{parts: parts, lengths: lengths, slab: data}); err != nil {
		data.release()
		return nil, nil, err
	}
	data.share(parts, lengths)
	return parts, data, nil
}

func (s *server) Pull(req *pb.PullRequest, stream grpc.ServerStreamingServer[pb.PullResponse]) error {
	ctx := stream.Context()
	parts, lengths, err := s.asked(ctx, req)
	if err != nil {
		return toStatus(ctx, err)
	}
	data, err := s.room(ctx, req.GetMinStep(), parts, lengths)
	if err != nil {
		return toStatus(ctx, err)
	}
	defer data.release()
	data.share(parts, lengths)
	st, err := s.service.Pull(ctx, req.GetMinStep(), parts)
	if err != nil {
		return toStatus(ctx, err)
	}
	header := &pb.PullHeader{Status: toStanding(st), Lengths: make([]int64, len(lengths))}
	for i, n := range lengths {
		header.Lengths[i] = int64(n)
	}
	if err := send(stream, header, newSource(parts, &s.network.bytes, data)); err != nil {
		return toStatus(ctx, err)
	}
	return nil
}

// asked returns the parts that a pull asks for and their lengths, those that
// it left open from the shard.
func (s *server) asked(ctx context.Context, req *pb.PullRequest) ([]transport.Part, []int, error) {
	if n := len(req.GetParts()); n > maxParts {
		return nil, nil, fmt.Errorf("%d parts, want at most %d: %w", n, maxParts, transport.ErrTooLarge)
	}
	parts, lengths, err := fromParts(req.GetParts())
	if err == nil && slices.Contains(lengths, open) {
		err = s.survey(ctx, req.GetMinStep(), parts, lengths)
	}
	return parts, lengths, err
}

// room returns a slab for the weights of parts. Before it takes memory for more
// than a message it makes sure that the shard holds them.
func (s *server) room(ctx context.Context, minStep int64, parts []transport.Part, lengths []int) (*slab, error) {
	total, err := checkParts(parts, lengths, s.limit)
	if err != nil {
		return nil, err
	}
	floats := &s.network.floats
	buf := floats.Reuse(total)
	if buf == nil {
		if total > chunkBytes/4 {
			if err := s.survey(ctx, minStep, parts, lengths); err != nil {
				return nil, err
			}
		}
		buf = floats.Get(total)
	}
	return &slab{floats: floats, buf: buf, total: total}, nil
}

// survey compares parts with what the shard holds, once it holds anything, and
// fills in what was left open.
func (s *server) survey(ctx context.Context, minStep int64, parts []transport.Part, lengths []int) error {
	d, err := s.service.Describe(ctx)
	if err == nil && len(d.Extents) == 0 {
		if _, err = s.service.Pull(ctx, minStep, nil); err == nil {
			d, err = s.service.Describe(ctx)
		}
	}
	if err != nil {
		return err
	}
	return fit(d.Extents, parts, lengths)
}

// fit compares parts with extents, and fills in what was left open.
func fit(extents []transport.Extent, parts []transport.Part, lengths []int) error {
	type name struct {
		variable string
		offset   int
	}
	held, left := make(map[name]transport.Extent, len(extents)), 0
	for _, e := range extents {
		held[name{e.Variable, e.Offset}] = e
		left += e.Length
	}
	for i := range parts {
		p := &parts[i]
		e, ok := held[name{p.Variable, p.Offset}]
		if !ok {
			return fmt.Errorf("%q[%d:]: %w", p.Variable, p.Offset, transport.ErrUnknownPart)
		}
		want := e.Length
		if p.Rows != nil {
			want = len(p.Rows) * e.Width
			for _, r := range p.Rows {
				if (int64(r)+1)*int64(e.Width) > int64(e.Length) {
					return fmt.Errorf("%q[%d:]: row %d of a run of %d elements in rows of %d: %w",
						p.Variable, p.Offset, r, e.Length, e.Width, transport.ErrLength)
				}
			}
		}
		if lengths[i] == open {
			p.Width, lengths[i] = e.Width, want
		}
		if lengths[i] != want {
			return fmt.Errorf("%q[%d:]: %d elements, want the shard's %d: %w", p.Variable, p.Offset, lengths[i], want, transport.ErrLength)
		}
		if left -= want; left < 0 {
			return fmt.Errorf("the parts up to %q[%d:] are more than the shard holds: %w", p.Variable, p.Offset, transport.ErrTooLarge)
		}
	}
	return nil
}

func (s *server) Finish(ctx context.Context, req *pb.FinishRequest) (*pb.FinishResponse, error) {
	if err := s.service.Finish(ctx, fromReplica(req.GetReplica())); err != nil {
		return nil, toStatus(ctx, err)
	}
	return &pb.FinishResponse{}, nil
}

func (s *server) Leave(ctx context.Context, req *pb.LeaveRequest) (*pb.LeaveResponse, error) {
	if err := s.service.Leave(ctx, fromReplica(req.GetReplica())); err != nil {
		return nil, toStatus(ctx, err)
	}
	return &pb.LeaveResponse{}, nil
}

func (s *server) Describe(ctx context.Context, _ *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	d, err := s.service.Describe(ctx)
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return toDescription(d), nil
}
