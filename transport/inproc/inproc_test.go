package inproc_test

import (
	"testing"

	"pushpull/transport"
	"pushpull/transport/inproc"
	"pushpull/transport/transporttest"
)

func TestTransport(t *testing.T) {
	transporttest.Test(t, func(*testing.T) (transport.Transport, string) { return new(inproc.Network), ":0" })
}
