package main

import (
	"context"
	"errors"
	"math"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const method = "/rawrpc.Raw/Call"

// description is the service, written out by hand: there is one method, and no
// protobuf.
var description = grpc.ServiceDesc{
	ServiceName: "rawrpc.Raw",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(srv any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			r, m := srv.(*responder), new(message)
			if err := decode(m); err != nil {
				return nil, err
			}
			defer m.free()
			response, err := r.respond(m.pieces())
			if err != nil {
				return nil, status.Errorf(codes.DataLoss, "request: %v", err)
			}
			return &message{out: response}, nil
		},
	}},
}

// serveGRPC serves at a socket until ctx ends. Threads above 0 are the
// goroutines that gRPC keeps to serve calls with.
func serveGRPC(ctx context.Context, socket net.Listener, payload string, r *responder, threads int) error {
	opts := []grpc.ServerOption{grpc.ForceServerCodecV2(codecOf(payload)), grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32)}
	if threads > 0 {
		opts = append(opts, grpc.NumStreamWorkers(uint32(threads)))
	}
	s := grpc.NewServer(opts...)
	s.RegisterService(&description, r)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(socket); !errors.Is(err, grpc.ErrServerStopped) {
		return err // nil after Stop
	}
	return nil
}

// A grpcChannel is one connection.
type grpcChannel struct{ cc *grpc.ClientConn }

func dialGRPC(addr, payload string) (channel, error) {
	cc, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codecOf(payload)), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	return &grpcChannel{cc}, nil
}

func (c *grpcChannel) call(ctx context.Context, request []byte, check func(pieces [][]byte) error) error {
	var response message
	if err := c.cc.Invoke(ctx, method, &message{out: request}, &response, grpc.WaitForReady(true)); err != nil {
		return err
	}
	defer response.free()
	return check(response.pieces())
}

func (c *grpcChannel) close() error { return c.cc.Close() }
