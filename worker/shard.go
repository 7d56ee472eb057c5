package worker

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/cenkalti/backoff/v5"

	"pushpull/transport"
)

// A shard pairs one connection with the parts of the model that live there.
// The parts alias the variables' own memory: nothing is copied to send it.
type shard struct {
	transport.Conn
	name   string // as in "ps/0 (host:2222)"
	values []transport.Part
	grads  []gradient
	sent   []transport.Part // room for the parts of one push
	status transport.Status // of the weights last pulled
	want   int64            // least step the next pull accepts
	saves  bool             // it wants cursors
}

// A gradient is the part of a variable's gradient that goes to one shard.
type gradient struct {
	Range
	part transport.Part
	rows []int32 // memory for part.Rows
}

func newShard(conn transport.Conn, name string, rs []Range, e transport.Encoding) *shard {
	sh := &shard{Conn: conn, name: name, status: transport.Status{Step: -1}}
	for _, r := range rs {
		part := transport.Part{Variable: r.Variable.Name, Offset: r.Lo, Width: r.Variable.Width(), Encoding: e}
		sh.grads = append(sh.grads, gradient{Range: r, part: part})
		part.Data = r.Variable.Value[r.Lo:r.Hi]
		sh.values = append(sh.values, part)
	}
	sh.sent = make([]transport.Part, len(rs))
	return sh
}

// initial returns the parts that offer the weights: never rounded, whatever the
// encoding of the parts that follow.
func (sh *shard) initial() []transport.Part {
	parts := append([]transport.Part(nil), sh.values...)
	for i := range parts {
		parts[i].Encoding = transport.Float32
	}
	return parts
}

// gradients returns the parts of the gradient that the last step left, valid
// until the next call.
func (sh *shard) gradients() []transport.Part {
	for i := range sh.grads {
		sh.sent[i] = sh.grads[i].current()
	}
	return sh.sent
}

// current returns the part as the last step left it: the whole run, or those
// rows of the variable that fall into it, counted from the run's start.
func (g *gradient) current() transport.Part {
	v, part := g.Variable, g.part
	if v.Rows == nil {
		part.Data = v.Grad[g.Lo:g.Hi]
		return part
	}
	first, end := int32(g.Lo/part.Width), int32(g.Hi/part.Width)
	lo := sort.Search(len(v.Rows), func(i int) bool { return v.Rows[i] >= first })
	hi := lo + sort.Search(len(v.Rows)-lo, func(i int) bool { return v.Rows[lo+i] >= end })
	if g.rows == nil {
		g.rows = make([]int32, 0, 64)
	}
	g.rows = g.rows[:0]
	for _, r := range v.Rows[lo:hi] {
		g.rows = append(g.rows, r-first)
	}
	part.Rows, part.Data = g.rows, v.Grad[lo*part.Width:hi*part.Width]
	return part
}

// A limit bounds a wait, and tells about it while it lasts.
type limit struct {
	every time.Duration // between two tellings
	total time.Duration
	tell  func(string)
}

// retry carries out one call to the shard, again and again while the shard
// cannot be reached and the limit allows. This is the only place that retries:
// every call may be repeated.
func retry[T any](ctx context.Context, sh *shard, l limit, call func(context.Context) (T, error)) (T, error) {
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval = 50*time.Millisecond, time.Second
	start := time.Now()
	told := start
	out, err := backoff.Retry(ctx, func() (T, error) {
		attempt, cancel := context.WithTimeoutCause(ctx, l.total, errLimit)
		defer cancel()
		out, err := call(attempt)
		if err != nil && context.Cause(attempt) == errLimit {
			err = fmt.Errorf("no answer within %v: %w", l.total, transport.ErrUnavailable)
		}
		if err != nil && !errors.Is(err, transport.ErrUnavailable) {
			return out, backoff.Permanent(err)
		}
		return out, err
	}, backoff.WithBackOff(pace), backoff.WithMaxElapsedTime(l.total), backoff.WithNotify(func(err error, _ time.Duration) {
		if time.Since(told) >= l.every {
			told = time.Now()
			l.tell(fmt.Sprintf("waiting for %s since %v: %v", sh.name, time.Since(start).Round(time.Second), err))
		}
	}))
	if err != nil && errors.Is(err, transport.ErrUnavailable) {
		return out, fmt.Errorf("%s: gave up after %v: %w", sh.name, time.Since(start).Round(time.Millisecond), err)
	}
	if err != nil {
		return out, fmt.Errorf("%s: %w", sh.name, err)
	}
	return out, nil
}

var errLimit = errors.New("limit")

// pull fills dst with weights of step want or later, waiting for it as long as
// the limit allows.
func (sh *shard) pull(ctx context.Context, call, wait limit, dst []transport.Part) (transport.Status, error) {
	start := time.Now()
	for {
		status, err := retry(ctx, sh, call, func(ctx context.Context) (transport.Status, error) {
			return sh.Pull(ctx, sh.want, dst)
		})
		if !errors.Is(err, transport.ErrNotReady) {
			return status, err
		}
		if waited := time.Since(start); waited >= wait.total {
			return status, fmt.Errorf("gave up after %v: %w", waited.Round(time.Second), err)
		}
		wait.tell(fmt.Sprintf("waiting since %v: %v", time.Since(start).Round(time.Second), err))
	}
}
