package grpc_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	pb "pushpull/proto/pushpull/v1"
	"pushpull/transport"
	pushgrpc "pushpull/transport/grpc"
)

// Clients that know nothing but the service definition: the generated code, and
// gRPC's own codec and defaults.

// table is a shard of one variable of eight rows of three, a row of which has
// ten times its number in every element. Its weights come with the first wait.
type table struct {
	transport.Service
	large  int // elements of another variable, of ones
	ready  bool
	pushed []transport.Part
	push   transport.Push
}

func (s *table) Describe(context.Context) (transport.Description, error) {
	d := transport.Description{Task: "ps/0", Status: transport.Status{Step: 4}}
	if s.ready {
		d.Extents = []transport.Extent{
			{Variable: "embedding", Offset: 6, Length: 24, Width: 3}, {Variable: "large", Length: s.large},
		}
	}
	return d, nil
}

func (s *table) Pull(_ context.Context, minStep int64, dst []transport.Part) (transport.Status, error) {
	if minStep > 4 {
		return transport.Status{}, fmt.Errorf("step %d: waiting for worker/1: %w", minStep, transport.ErrNotReady)
	}
	s.ready = true
	for _, p := range dst {
		for i := range p.Data {
			switch {
			case p.Variable == "large":
				p.Data[i] = 1
			case p.Rows != nil:
				p.Data[i] = 10 * float32(p.Rows[i/3])
			default:
				p.Data[i] = 10 * float32(i/3)
			}
		}
	}
	return transport.Status{Step: 4, LearningRate: 0.5}, nil
}

func (s *table) Push(_ context.Context, push transport.Push, grads []transport.Part) (transport.Verdict, error) {
	s.push, s.pushed = push, slices.Clone(grads)
	for i := range grads {
		s.pushed[i].Data = slices.Clone(grads[i].Data)
	}
	return transport.Gathered, nil
}

// generic connects a generated client to s.
func generic(t *testing.T, s transport.Service, opts pushgrpc.Options) (*grpc.ClientConn, pb.ParameterServerClient) {
	t.Helper()
	l, err := pushgrpc.New(opts).Listen("127.0.0.1:0", s)
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	cc, err := grpc.NewClient(l.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	t.Cleanup(func() {
		cc.Close()
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return cc, pb.NewParameterServerClient(cc)
}

// pull returns the header and all data of a pull.
func pull(t *testing.T, c pb.ParameterServerClient, req *pb.PullRequest) (*pb.PullHeader, []byte, error) {
	t.Helper()
	stream, err := c.Pull(t.Context(), req)
	if err != nil {
		t.Fatalf("Pull: %v", err)
	}
	var header *pb.PullHeader
	var data []byte
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return header, data, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if header == nil {
			header = m.Header
		}
		data = append(data, m.Data...)
	}
}

func float32s(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}

func TestAnyClientCanDescribeAndPull(t *testing.T) {
	s := &table{large: 3<<20 + 1, ready: true}
	_, c := generic(t, s, pushgrpc.Options{})
	d, err := c.Describe(t.Context(), &pb.DescribeRequest{})
	if err != nil {
		t.Fatalf("Describe: %v", err)
	}
	req := &pb.PullRequest{}
	for _, e := range d.Extents {
		req.Parts = append(req.Parts, &pb.Part{Variable: e.Variable, Offset: e.Offset, Length: proto.Int64(e.Length), Width: e.Width})
	}
	header, data, err := pull(t, c, req)
	if err != nil {
		t.Fatalf("Pull: %v", err)
	}
	if header.Status.Step != 4 || !slices.Equal(header.Lengths, []int64{24, 3<<20 + 1}) {
		t.Errorf("header %v, want step 4 and lengths 24, %d", header, 3<<20+1)
	}
	want := make([]float32, 24, 25+3<<20)
	for i := range want {
		want[i] = 10 * float32(i/3)
	}
	want = append(want, slices.Repeat([]float32{1}, 3<<20+1)...)
	if got := float32s(data); !slices.Equal(got, want) {
		t.Errorf("%d elements, want %d of other values", len(got), len(want))
	}
}

func TestPullFillsInWhatIsLeftOut(t *testing.T) {
	s := &table{large: 1} // has weights only after someone has waited
	_, c := generic(t, s, pushgrpc.Options{})
	header, data, err := pull(t, c, &pb.PullRequest{Parts: []*pb.Part{
		{Variable: "embedding", Offset: 6},
		{Variable: "large", Encoding: pb.Encoding_ENCODING_FLOAT16},
	}})
	if err != nil {
		t.Fatalf("Pull: %v", err)
	}
	if !slices.Equal(header.Lengths, []int64{24, 1}) {
		t.Errorf("lengths %v, want 24, 1", header.Lengths)
	}
	if got := len(data); got != 4*24+2 {
		t.Errorf("%d bytes, want %d", got, 4*24+2)
	}
	_, data, err = pull(t, c, &pb.PullRequest{Parts: []*pb.Part{
		{Variable: "embedding", Offset: 6, Rows: &pb.Rows{Numbers: []int32{2, 7}}},
	}})
	if got, want := float32s(data), []float32{20, 20, 20, 70, 70, 70}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Pull of rows 2, 7 = %v, %v, want %v", got, err, want)
	}
}

// TestAnyClientCanPush cuts the data in places where our own client never does.
func TestAnyClientCanPush(t *testing.T) {
	s := new(table)
	_, c := generic(t, s, pushgrpc.Options{})
	stream, err := c.Push(t.Context())
	if err != nil {
		t.Fatalf("Push: %v", err)
	}
	data := []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0x3c, 0, 0, 0x40, 0x40}
	for i, m := range []*pb.PushRequest{
		{Header: &pb.PushHeader{
			Replica: &pb.Replica{Task: 3, Life: 1 << 63}, Seq: 9, Step: 8, Examples: 7, Cursor: []byte{1},
			Parts: []*pb.Part{
				{Variable: "a", Offset: 2, Width: 2, Length: proto.Int64(2), Rows: &pb.Rows{Numbers: []int32{5}}},
				{Variable: "b", Length: proto.Int64(1), Encoding: pb.Encoding_ENCODING_FLOAT16},
				{Variable: "c", Length: proto.Int64(0), Width: 1, Rows: &pb.Rows{}},
				{Variable: "d", Length: proto.Int64(1)},
			},
		}, Data: data[:1]},
		{Data: data[1:6]}, {}, {Data: data[6:9]}, {Data: data[9:]},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatalf("Send of message %d: %v", i, err)
		}
	}
	resp, err := stream.CloseAndRecv()
	if err != nil || resp.Verdict != pb.Verdict_VERDICT_GATHERED {
		t.Fatalf("Push = %v, %v, want gathered", resp, err)
	}
	want := "[{a 2 2 float32 [5] [1 2]} {b 0 0 float16 [] [1]} {c 0 1 float32 [] []} {d 0 0 float32 [] [3]}]"
	if got := fmt.Sprint(s.pushed); got != want {
		t.Errorf("pushed %v, want %v", got, want)
	}
	if s.pushed[2].Rows == nil || s.pushed[1].Rows != nil {
		t.Errorf("no row and all rows are mixed up: %#v", s.pushed)
	}
	if got, want := fmt.Sprint(s.push), "{{3 9223372036854775808} 9 8 7 [1]}"; got != want {
		t.Errorf("push %v, want %v", got, want)
	}
}

// failure returns the code and kind of an error as any client sees them.
func failure(err error) string {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if f, ok := d.(*pb.Failure); ok {
			return st.Code().String() + " " + f.Kind.String()
		}
	}
	return st.Code().String()
}

func TestMalformedCallsAreRefused(t *testing.T) {
	one := func(p *pb.Part) *pb.PushHeader { return &pb.PushHeader{Parts: []*pb.Part{p}} }
	part := &pb.Part{Variable: "v", Length: proto.Int64(2)}
	for _, c := range []struct {
		name     string
		messages []*pb.PushRequest
		want     string
	}{
		{"nothing at all", nil, "InvalidArgument KIND_INVALID"},
		{"data too short", []*pb.PushRequest{{Header: one(part), Data: make([]byte, 7)}}, "InvalidArgument KIND_INVALID"},
		{"data too long", []*pb.PushRequest{{Header: one(part), Data: make([]byte, 9)}}, "InvalidArgument KIND_INVALID"},
		{"data without a header", []*pb.PushRequest{{Data: make([]byte, 9)}}, "InvalidArgument KIND_INVALID"},
		{"two headers", []*pb.PushRequest{{Header: one(part)}, {Header: one(part), Data: make([]byte, 8)}}, "InvalidArgument KIND_INVALID"},
		{"no length", []*pb.PushRequest{{Header: one(&pb.Part{Variable: "v"})}}, "InvalidArgument KIND_INVALID"},
		{"a length below zero", []*pb.PushRequest{{Header: one(&pb.Part{Length: proto.Int64(-1)})}}, "InvalidArgument KIND_INVALID"},
		{"rows that do not match", []*pb.PushRequest{{Header: one(&pb.Part{Width: 2, Length: proto.Int64(3), Rows: &pb.Rows{Numbers: []int32{1}}})}}, "OutOfRange KIND_LENGTH"},
		{"more than the limit", []*pb.PushRequest{{Header: one(&pb.Part{Length: proto.Int64(1<<18 + 1)})}}, "ResourceExhausted KIND_TOO_LARGE"},
		{"far more than the limit", []*pb.PushRequest{{Header: one(&pb.Part{Length: proto.Int64(math.MaxInt64)})}}, "ResourceExhausted KIND_TOO_LARGE"},
		{"more than the limit together", []*pb.PushRequest{{Header: &pb.PushHeader{Parts: slices.Repeat([]*pb.Part{{Length: proto.Int64(1 << 17)}}, 3)}}}, "ResourceExhausted KIND_TOO_LARGE"},
		{"a huge message", []*pb.PushRequest{{Header: &pb.PushHeader{Cursor: make([]byte, 9<<20)}}}, "ResourceExhausted"}, // gRPC's own limit,
	} {
		t.Run(c.name, func(t *testing.T) {
			s := new(table)
			_, client := generic(t, s, pushgrpc.Options{MaxCallBytes: 1 << 20})
			stream, err := client.Push(t.Context())
			if err != nil {
				t.Fatalf("Push: %v", err)
			}
			for _, m := range c.messages {
				if err := stream.Send(m); err != nil && err != io.EOF {
					t.Fatalf("Send: %v", err)
				}
			}
			_, err = stream.CloseAndRecv()
			if got := failure(err); got != c.want {
				t.Errorf("failure %v (%v), want %v", got, err, c.want)
			}
			if s.pushed != nil {
				t.Errorf("the shard got %v", s.pushed)
			}
		})
	}
}

func TestAnyClientSeesWhatFails(t *testing.T) {
	_, c := generic(t, &table{ready: true}, pushgrpc.Options{MaxCallBytes: 1 << 20})
	for _, pulled := range []struct {
		req  *pb.PullRequest
		want string
	}{
		{&pb.PullRequest{MinStep: 5}, "Aborted KIND_NOT_READY"},
		{&pb.PullRequest{Parts: []*pb.Part{{Variable: "nothing"}}}, "NotFound KIND_UNKNOWN_PART"},
		{&pb.PullRequest{Parts: []*pb.Part{{Variable: "embedding", Offset: 6, Rows: &pb.Rows{Numbers: []int32{8}}}}}, "OutOfRange KIND_LENGTH"},
		{&pb.PullRequest{Parts: []*pb.Part{{Variable: "embedding", Offset: 6, Length: proto.Int64(1 << 50)}}}, "ResourceExhausted KIND_TOO_LARGE"},
		{&pb.PullRequest{Parts: make([]*pb.Part, 1<<18+1)}, "ResourceExhausted KIND_TOO_LARGE"},
	} {
		_, _, err := pull(t, c, pulled.req)
		if got := failure(err); got != pulled.want {
			t.Errorf("Pull of %.60v: %v (%v), want %v", pulled.req, got, err, pulled.want)
		}
	}
	_, _, err := pull(t, c, &pb.PullRequest{MinStep: 5})
	if got, want := status.Convert(err).Message(), "step 5: waiting for worker/1: not ready"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

func TestHealthAndReflectionAnswer(t *testing.T) {
	cc, _ := generic(t, new(table), pushgrpc.Options{})
	health := grpc_health_v1.NewHealthClient(cc)
	for service, want := range map[string]codes.Code{"": codes.OK, "pushpull.v1.ParameterServer": codes.OK, "pushpull.v1.Nothing": codes.NotFound} {
		resp, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if status.Code(err) != want || err == nil && resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v, want %v", service, resp, err, want)
		}
	}

	stream, err := grpc_reflection_v1.NewServerReflectionClient(cc).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	ask := func(req *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		if err := stream.Send(req); err != nil {
			t.Fatalf("reflection: %v", err)
		}
		resp, err := stream.Recv()
		if err != nil {
			t.Fatalf("reflection: %v", err)
		}
		return resp
	}
	services := ask(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	})
	if !strings.Contains(services.String(), "pushpull.v1.ParameterServer") {
		t.Errorf("reflection lists %v", services)
	}
	file := ask(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "pushpull.v1.PullRequest"},
	})
	var d descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal(file.GetFileDescriptorResponse().GetFileDescriptorProto()[0], &d); err != nil || d.GetPackage() != "pushpull.v1" {
		t.Errorf("reflection describes package %q, %v", d.GetPackage(), err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Errorf("CloseSend: %v", err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("reflection ends with %v, want EOF", err)
	}
}
