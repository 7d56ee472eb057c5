// Package grpc is the transport over gRPC: the service pushpull.v1.ParameterServer
// of proto/, with health and server reflection beside it. Any gRPC client can
// call it; ours differs only in that it copies less.
//
// Data crosses in messages of about a megabyte, whatever the size of a call,
// and goes from the frames of a connection straight into its destination.
package grpc

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"

	pb "pushpull/proto/pushpull/v1"
	"pushpull/transport"
	"pushpull/transport/internal/address"
	"pushpull/transport/internal/pool"
)

// Sizes of the wire. By BenchmarkConn a quarter or four times as much of the
// first, third and fourth costs about as much.
const (
	chunkBytes   = 1 << 20   // of data in one message
	messageBytes = 8 << 20   // the largest message that is received
	bufferBytes  = 512 << 10 // read and written at once
	windowBytes  = 8 << 20   // sent ahead of what the far end has taken in
	maxParts     = 1 << 18   // in one call
)

// Options are the settings of a transport. The zero value is good.
type Options struct {
	// MaxCallBytes is the most memory that the parts of one call may take where
	// they arrive, at four bytes for an element and four for a row number. A
	// call that declares more fails with ErrTooLarge. 0 means 64 GiB.
	MaxCallBytes int64

	// KeepaliveTime is how long a connection with calls under way may be silent
	// before it is probed, at least 10 s. A lower value means that; 0 means 20 s.
	KeepaliveTime time.Duration
	// KeepaliveTimeout is how long a probe may go unanswered before the
	// connection counts as dead. 0 means 10 s.
	KeepaliveTimeout time.Duration

	// ConnectTimeout is how long a call may wait for a connection to be made,
	// before it fails with ErrUnavailable. 0 means 3 s.
	ConnectTimeout time.Duration
	// RetryTime is the longest pause between two attempts to connect, and with
	// it the time in which a server that comes up is found. 0 means 1 s.
	RetryTime time.Duration

	// Grace is how long Close of a listener lets calls under way go on.
	// 0 means 3 s.
	Grace time.Duration
}

// withDefaults returns o with every zero replaced by what it stands for.
func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if o.MaxCallBytes <= 0 {
		o.MaxCallBytes = 64 << 30
	}
	set(&o.KeepaliveTime, 20*time.Second)
	set(&o.KeepaliveTimeout, 10*time.Second)
	set(&o.ConnectTimeout, 3*time.Second)
	set(&o.RetryTime, time.Second)
	set(&o.Grace, 3*time.Second)
	return o
}

// New returns a transport whose addresses are host:port of TCP, or
// unix:///path for a Unix socket. Connections are neither encrypted nor
// authenticated.
func New(opts Options) transport.Transport {
	return &network{opts: opts.withDefaults()}
}

// network makes listeners and connections.
type network struct {
	opts   Options
	bytes  pool.Pool[byte]    // messages, and frames of them
	floats pool.Pool[float32] // data of calls being served
}

// Listen serves s at addr. For port 0, or no address at all, it chooses a port. If the host is a name
// or address of another machine's, as a cluster's list of tasks may have it
// behind address translation, it listens on all interfaces. Of a Unix socket
// nobody listens at anymore it takes the place.
func (n *network) Listen(addr string, s transport.Service) (transport.Listener, error) {
	sock, shown, err := address.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", addr, err)
	}
	g := grpc.NewServer(
		grpc.ForceServerCodecV2(codec{}),
		experimental.BufferPool(&n.bytes),
		grpc.MaxRecvMsgSize(messageBytes),
		grpc.ReadBufferSize(bufferBytes),
		grpc.WriteBufferSize(bufferBytes),
		grpc.StaticStreamWindowSize(windowBytes),
		grpc.StaticConnWindowSize(2*windowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: n.opts.KeepaliveTime, Timeout: n.opts.KeepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	pb.RegisterParameterServerServer(g, &server{service: s, limit: n.opts.MaxCallBytes, network: n})
	return serve(g, sock, shown, n.opts.Grace), nil
}

// Dial returns a connection to the service at addr. It connects with the first
// call, and again after it has lost the far end.
func (n *network) Dial(addr string) (transport.Conn, error) {
	dialer := net.Dialer{Timeout: n.opts.ConnectTimeout}
	cc, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			kind, place := address.Split(addr)
			return dialer.DialContext(ctx, kind, place)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(messageBytes)),
		experimental.WithBufferPool(&n.bytes),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithStaticStreamWindowSize(windowBytes),
		grpc.WithStaticConnWindowSize(2*windowBytes),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: n.opts.KeepaliveTime, Timeout: n.opts.KeepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: n.opts.RetryTime},
			MinConnectTimeout: n.opts.ConnectTimeout,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	c := &conn{addr: addr, cc: cc, client: pb.NewParameterServerClient(cc), bytes: &n.bytes}
	c.closed, c.close = context.WithCancel(context.Background())
	return c, nil
}
