package tcp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// greeting is what both ends say first.
const greeting = "pushpull tcp 1\r\n"

// greet says the greeting and hears the far end's, within limit of start.
func (l *link) greet(limit time.Duration, start time.Time) error {
	l.nc.SetDeadline(start.Add(limit))
	if _, err := io.WriteString(l.nc, greeting); err != nil {
		return l.fail(fmt.Errorf("greeting: %w", err))
	}
	return l.hear(limit)
}

// errSilent says that the far end hung up without a word.
var errSilent = errors.New("the far end hung up without a greeting")

// hear reads the far end's greeting, as far as it is one, before the deadline
// that limit led to.
func (l *link) hear(limit time.Duration) error {
	var b [len(greeting)]byte
	n := 0
	for n < len(b) && strings.HasPrefix(greeting, string(b[:n])) {
		k, err := l.nc.Read(b[n:])
		n += k
		switch {
		case err == nil || n == len(b):
		case errors.Is(err, os.ErrDeadlineExceeded):
			return l.fail(fmt.Errorf("no greeting within %v, but %q", limit, b[:n]))
		case n == 0:
			return l.fail(errSilent)
		default:
			return l.fail(foreign(string(b[:n])))
		}
	}
	if got := string(b[:n]); got != greeting {
		return l.fail(foreign(got))
	}
	return nil
}

// foreign describes what was said instead of the greeting.
func foreign(got string) error {
	why := ""
	switch {
	case strings.HasPrefix(got, greeting[:len("pushpull tcp ")]):
		why = ": the far end has another version of this transport"
	case strings.HasPrefix(got, "PRI * HTTP/2"), len(got) > 4 && got[0] == 0 && got[3] == 4:
		why = ", which is HTTP/2: is the far end's transport grpc?"
	case strings.Contains(got, "HTTP/"):
		why = ", which is HTTP"
	case strings.HasPrefix(got, "\x16\x03"), strings.HasPrefix(got, "\x15\x03"):
		why = ", which is TLS"
	}
	return fmt.Errorf("greeted with %q%s, want %q", got, why, greeting)
}
