package main

import (
	"path/filepath"

	"pushpull/transport"
	"pushpull/transport/auto"
	"pushpull/transport/grpc"
	"pushpull/transport/inproc"
	"pushpull/transport/shm"
	"pushpull/transport/tcp"
)

// Names of ways that are no transports.
const (
	plainTCP = "plain"  // the baseline
	memcpy   = "memcpy" // copying from one piece of memory to another
	iperf    = "iperf3" // the program of that name, where it is installed
)

// A way is one means of moving tensors, by the name that --transport has for
// it.
type way struct {
	name  string
	reach reach
	addr  func(dir string) string    // where a ps listens in a race
	make  func() transport.Transport // nil for the program iperf3
}

// A reach is how far apart worker and ps can be.
type reach int

const (
	sameProcess reach = iota
	sameHost
	anyHost
)

// ways lists all there are, in the order of the table.
var ways = []way{
	{plainTCP, anyHost, port, func() transport.Transport { return plain{} }},
	{iperf, anyHost, nil, nil},
	{memcpy, sameProcess, port, func() transport.Transport { return &direct{} }},
	{"inproc", sameProcess, port, func() transport.Transport { return new(inproc.Network) }},
	{"grpc", anyHost, port, func() transport.Transport { return grpc.New(grpc.Options{}) }},
	{"grpc-unix", sameHost, socket, func() transport.Transport { return grpc.New(grpc.Options{}) }},
	{"tcp", anyHost, port, func() transport.Transport { return tcp.New(tcp.Options{}) }},
	{"tcp-unix", sameHost, socket, func() transport.Transport { return tcp.New(tcp.Options{}) }},
	{"shm", sameHost, socket, func() transport.Transport { return shm.New(shm.Options{}) }},
	{"auto", anyHost, port, func() transport.Transport { return auto.New(shm.New(shm.Options{}), grpc.New(grpc.Options{})) }},
}

func port(string) string       { return "127.0.0.1:0" }
func socket(dir string) string { return "unix://" + filepath.Join(dir, "socket") }

// wayOf returns the way of that name, nil if there is none.
func wayOf(name string) *way {
	for i := range ways {
		if ways[i].name == name {
			return &ways[i]
		}
	}
	return nil
}

// direct is no transport at all: a call of a connection is a call of the one
// service that was listened for.
type direct struct{ service transport.Service }

func (d *direct) Listen(_ string, s transport.Service) (transport.Listener, error) {
	d.service = s
	return d, nil
}

func (d *direct) Dial(string) (transport.Conn, error) { return directConn{d.service}, nil }
func (d *direct) Addr() string                        { return "direct" }
func (d *direct) Close() error                        { return nil }

type directConn struct{ transport.Service }

func (directConn) Close() error { return nil }
