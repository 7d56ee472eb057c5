package grpc

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	pb "pushpull/proto/pushpull/v1"
)

// A listener is a running gRPC server.
type listener struct {
	addr   string
	server *grpc.Server
	health *health.Server
	grace  time.Duration
	served chan error // of the goroutine that accepts, once

	once sync.Once
	err  error // of the first Close; guarded by once
}

// serve starts a server at socket, with health and reflection. Close joins its
// goroutine.
func serve(g *grpc.Server, socket net.Listener, addr string, grace time.Duration) *listener {
	l := &listener{addr: addr, server: g, health: health.NewServer(), grace: grace, served: make(chan error, 1)}
	l.health.SetServingStatus(pb.ParameterServer_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(g, l.health)
	reflection.Register(g)
	go func() { l.served <- g.Serve(socket) }()
	return l
}

func (l *listener) Addr() string { return l.addr }

// Close tells callers to go elsewhere, lets calls under way end for as long as
// the grace, then cuts them. It returns what ended the server, if anything did
// before.
func (l *listener) Close() error {
	l.once.Do(func() { l.err = l.stop() })
	return l.err
}

func (l *listener) stop() error {
	l.health.Shutdown()
	stopped := make(chan struct{})
	go func() {
		l.server.GracefulStop() // returns when the last handler has
		close(stopped)
	}()
	if !closes(stopped, l.grace) {
		l.server.Stop()
		if !closes(stopped, l.grace) {
			return fmt.Errorf("close listener at %s: calls under way do not end though their context is canceled", l.addr)
		}
	}
	if err := <-l.served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve at %s: %w", l.addr, err)
	}
	return nil
}

// closes waits for c to be closed, no longer than limit.
func closes(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
