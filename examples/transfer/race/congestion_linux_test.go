package race_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"pushpull/examples/transfer/race"
)

func TestSetCongestionReachesOpenSocketsAndThoseAcceptedLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other := "reno" // which every Linux has
	if race.DefaultCongestion() == other {
		other = "cubic"
	}
	if n, err := race.SetCongestion(other); err != nil || n < 1 {
		t.Fatalf("SetCongestion(%q) = %d, %v", other, n, err)
	}
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if got := congestion(t, far); got != other {
		t.Errorf("the accepted socket has %s, want its listener's %s", got, other)
	}
	if got := congestion(t, near); got != race.DefaultCongestion() {
		t.Errorf("a socket opened later has %s, want the system's", got)
	}
	if _, err := race.SetCongestion(other); err != nil {
		t.Fatal(err)
	}
	if got := congestion(t, near); got != other {
		t.Errorf("it has %s, want %s", got, other)
	}
	if _, err := race.SetCongestion("no such control"); err == nil {
		t.Error("SetCongestion of what does not exist returned nil")
	}
}

func congestion(t *testing.T, c net.Conn) (name string) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	})
	if err != nil {
		t.Fatal(err)
	}
	return name
}
