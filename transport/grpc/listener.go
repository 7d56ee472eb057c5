package grpc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
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

// listen opens a socket at addr, and returns the address others can dial.
func listen(addr string) (socket net.Listener, shown string, err error) {
	kind, place := split(addr)
	socket, err = net.Listen(kind, place)
	if kind == "unix" {
		if errors.Is(err, syscall.EADDRINUSE) && abandoned(place) {
			if err := os.Remove(place); err != nil {
				return nil, "", err
			}
			socket, err = net.Listen(kind, place)
		}
		return socket, addr, err
	}
	host, port, _ := net.SplitHostPort(place)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		socket, err = net.Listen(kind, ":"+port)
	}
	if err != nil {
		return nil, "", err
	}
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	_, port, err = net.SplitHostPort(socket.Addr().String())
	return socket, net.JoinHostPort(host, port), err
}

// split tells network and address of addr apart.
func split(addr string) (kind, place string) {
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		return "unix", path
	}
	return "tcp", addr
}

// abandoned reports whether path is a Unix socket at which nobody listens.
func abandoned(path string) bool {
	if f, err := os.Lstat(path); err != nil || f.Mode().Type() != os.ModeSocket {
		return false // connecting to a plain file is refused, too
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
