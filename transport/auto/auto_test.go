package auto_test

import (
	"context"
	"errors"
	"testing"

	"pushpull/transport"
	"pushpull/transport/auto"
	"pushpull/transport/grpc"
	"pushpull/transport/inproc"
	"pushpull/transport/shm"
	"pushpull/transport/transporttest"
)

func TestTransport(t *testing.T) {
	transporttest.Test(t, func(*testing.T) (transport.Transport, string) {
		return auto.New(shm.New(shm.Options{}), grpc.New(grpc.Options{})), "127.0.0.1:0"
	})
}

// recorder notes the addresses that are dialed.
type recorder struct {
	transport.Transport
	dialed []string
}

func (r *recorder) Dial(addr string) (transport.Conn, error) {
	r.dialed = append(r.dialed, addr)
	return r.Transport.Dial(addr)
}

func TestEachAddressGetsTheTransportThatSuitsIt(t *testing.T) {
	near, far := &recorder{Transport: &inproc.Network{}}, &recorder{Transport: &inproc.Network{}}
	net := auto.New(near, far)
	for addr, want := range map[string]*recorder{
		"127.0.0.1:2222": near, "localhost:2222": near, "[::1]:2222": near, "192.0.2.7:2222": far, "nowhere.invalid:2222": far,
	} {
		near.dialed, far.dialed = nil, nil
		if _, err := net.Dial(addr); err != nil {
			t.Fatal(err)
		}
		if len(want.dialed) != 1 {
			t.Errorf("Dial(%s): near %v, far %v", addr, near.dialed, far.dialed)
		}
	}
	if _, err := net.Dial("2222"); err == nil {
		t.Error("Dial(2222): no error, want one that asks for host:port")
	}
}

// unsupported is a near transport on a system that has none.
type unsupported struct{}

func (unsupported) Listen(string, transport.Service) (transport.Listener, error) {
	return nil, errors.ErrUnsupported
}
func (unsupported) Dial(string) (transport.Conn, error) { return nil, errors.ErrUnsupported }

func TestWithoutANearTransportTheFarOneDoes(t *testing.T) {
	net := auto.New(unsupported{}, &inproc.Network{})
	l, err := net.Listen("127.0.0.1:0", service{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial(l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if d, err := c.Describe(t.Context()); err != nil || d.Task != "ps/0" {
		t.Errorf("Describe = %+v, %v", d, err)
	}
}

type service struct{ transport.Service }

func (service) Describe(context.Context) (transport.Description, error) {
	return transport.Description{Task: "ps/0"}, nil
}
