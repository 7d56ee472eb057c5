package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync/atomic"

	"pushpull/examples/transfer/race"
)

// A responder answers messages. It is safe for concurrent use.
type responder struct {
	response   []byte
	congestion string // control for the sockets of this process; "" leaves them
	served     atomic.Int64
}

// respond checks a message, and returns the answer to it. The answer to an
// empty one is what this process has used so far.
func (r *responder) respond(pieces [][]byte) ([]byte, error) {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	if n > 0 {
		return r.response, checkPattern(pieces, n, r.served.Add(1)%checkedWhole == 1)
	}
	if r.congestion != "" {
		if _, err := race.SetCongestion(r.congestion); err != nil {
			return nil, err
		}
	}
	spent := race.Spent()
	answer := binary.LittleEndian.AppendUint64(nil, uint64(1e9*spent.CPUSeconds))
	return binary.LittleEndian.AppendUint64(answer, spent.AllocBytes), nil
}

// costOf reads the answer to an empty message.
func costOf(pieces [][]byte) (race.Cost, error) {
	var b []byte
	for _, p := range pieces {
		b = append(b, p...)
	}
	if len(b) != 16 {
		return race.Cost{}, fmt.Errorf("the answer to an empty message has %d bytes, want 16", len(b))
	}
	return race.Cost{
		CPUSeconds: float64(binary.LittleEndian.Uint64(b)) / 1e9,
		AllocBytes: binary.LittleEndian.Uint64(b[8:]),
	}, nil
}

// runServer is --job_type=server. Its first line says where it listens. It ends
// when ctx does.
func (o *options) runServer(ctx context.Context, stdout io.Writer) error {
	if o.serverThreads > 0 {
		runtime.GOMAXPROCS(o.serverThreads)
	}
	socket, err := net.Listen("tcp", o.addr())
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, socket.Addr())
	r := &responder{response: newPattern(o.responseSize), congestion: o.congestion}
	if o.transport == overTCP {
		return serveTCP(ctx, socket, r)
	}
	return serveGRPC(ctx, socket, o.payload, r, o.serverThreads)
}
