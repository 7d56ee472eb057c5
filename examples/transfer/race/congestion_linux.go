package race

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SetCongestion gives every TCP socket of this process the named congestion
// control, and returns their number. It changes nothing outside the process,
// and reaches sockets of libraries that have no hook for it. Sockets opened
// later are not changed, but those accepted inherit from their listener's.
func SetCongestion(name string) (sockets int, err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, fmt.Errorf("congestion control: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if _, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
			continue // no TCP socket
		}
		err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		if errors.Is(err, unix.EBADF) || errors.Is(err, unix.ENOTSOCK) {
			continue // closed since
		}
		if err != nil {
			return sockets, fmt.Errorf("congestion control %s: %w; /proc/sys/net/ipv4/tcp_allowed_congestion_control lists what there is", name, err)
		}
		sockets++
	}
	return sockets, nil
}

// DefaultCongestion returns the congestion control that this system gives new
// TCP sockets, "" if it does not tell.
func DefaultCongestion() string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
