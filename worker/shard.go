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
	pieces []piece
	parts  []transport.Part // of one call, as the pieces make them
	status transport.Status // of the weights last pulled
	want   int64            // least step the next pull accepts
	saves  bool             // it wants cursors
}

// A piece is what one shard has of one variable.
type piece struct {
	Range
	encoding transport.Encoding
	rows     []int32   // room for the row numbers of a part
	data     []float32 // room for the rows of a pull, which lie apart in the variable
}

func newShard(conn transport.Conn, name string, rs []Range, e transport.Encoding) *shard {
	sh := &shard{Conn: conn, name: name, status: transport.Status{Step: -1}, parts: make([]transport.Part, len(rs))}
	for _, r := range rs {
		sh.pieces = append(sh.pieces, piece{Range: r, encoding: e})
	}
	return sh
}

// initial returns the parts that offer the weights: never rounded, whatever the
// encoding of the parts that follow.
func (sh *shard) initial() []transport.Part {
	for i := range sh.pieces {
		sh.parts[i] = sh.pieces[i].weights(nil)
		sh.parts[i].Encoding = transport.Float32
	}
	return sh.parts
}

// wanted returns the parts that the next step of the model reads, or all. Once
// they are filled, scatter puts into place what was pulled in rows.
func (sh *shard) wanted(all bool) []transport.Part {
	for i := range sh.pieces {
		p := &sh.pieces[i]
		rows := p.Variable.Next
		if all {
			rows = nil
		}
		sh.parts[i] = p.weights(rows)
	}
	return sh.parts
}

func (sh *shard) scatter(parts []transport.Part) {
	for i, part := range parts {
		value := sh.pieces[i].Variable.Value[part.Offset:]
		for k, r := range part.Rows {
			copy(value[int(r)*part.Width:][:part.Width], part.Data[k*part.Width:])
		}
	}
}

// gradients returns the parts of the gradient that the last step left, valid
// until the next call.
func (sh *shard) gradients() []transport.Part {
	for i := range sh.pieces {
		sh.parts[i] = sh.pieces[i].gradient()
	}
	return sh.parts
}

func (p *piece) part() transport.Part {
	return transport.Part{Variable: p.Variable.Name, Offset: p.Lo, Width: p.Variable.Width(), Encoding: p.encoding}
}

// weights returns the part that brings the given rows of the variable, or the
// whole run.
func (p *piece) weights(rows []int32) transport.Part {
	part := p.part()
	if rows == nil {
		part.Data = p.Variable.Value[p.Lo:p.Hi]
		return part
	}
	lo, hi := p.take(rows, part.Width)
	n := (hi - lo) * part.Width
	if cap(p.data) < n {
		p.data = make([]float32, n+n/4) // batches differ a little
	}
	part.Rows, part.Data = p.rows, p.data[:n]
	return part
}

// gradient returns the part as the last step left it: the whole run, or those
// rows of the variable that fall into it.
func (p *piece) gradient() transport.Part {
	v, part := p.Variable, p.part()
	if v.Rows == nil {
		part.Data = v.Grad[p.Lo:p.Hi]
		return part
	}
	lo, hi := p.take(v.Rows, part.Width)
	part.Rows, part.Data = p.rows, v.Grad[lo*part.Width:hi*part.Width]
	return part
}

// take leaves in p.rows those of the variable's rows that fall into the run,
// counted from its start, and returns which they are of rows: [lo, hi).
func (p *piece) take(rows []int32, width int) (lo, hi int) {
	first, end := int32(p.Lo/width), int32(p.Hi/width)
	lo = sort.Search(len(rows), func(i int) bool { return rows[i] >= first })
	hi = lo + sort.Search(len(rows)-lo, func(i int) bool { return rows[lo+i] >= end })
	if p.rows == nil {
		p.rows = make([]int32, 0, 64) // not nil, which would mean the whole run
	}
	p.rows = p.rows[:0]
	for _, r := range rows[lo:hi] {
		p.rows = append(p.rows, r-first)
	}
	return lo, hi
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
	switch {
	case err == nil:
		return out, nil
	case errors.Is(err, transport.ErrUnavailable):
		return out, fmt.Errorf("%s: gave up after %v: %w", sh.name, time.Since(start).Round(time.Millisecond), err)
	case errors.Is(err, transport.ErrNotJoined), errors.Is(err, transport.ErrRolledBack):
		return out, fmt.Errorf("%s: it was restarted after this worker joined; start the worker again, and it goes on from the server's checkpoint: %w", sh.name, err)
	}
	return out, fmt.Errorf("%s: %w", sh.name, err)
}

var errLimit = errors.New("limit")

// pull fills dst with weights of step want or later, waiting for it as long as
// the limit allows.
func (sh *shard) pull(ctx context.Context, call, wait limit, dst []transport.Part) (transport.Status, error) {
	start := time.Now()
	for {
		attempt := call
		attempt.total = min(call.total, wait.total-time.Since(start))
		status, err := retry(ctx, sh, attempt, func(ctx context.Context) (transport.Status, error) {
			return sh.Pull(ctx, sh.want, dst)
		})
		if !errors.Is(err, transport.ErrNotReady) {
			return status, err
		}
		if waited := time.Since(start); waited >= wait.total-time.Second {
			return status, fmt.Errorf("gave up after %v: %w", waited.Round(time.Second), err)
		}
		wait.tell(fmt.Sprintf("waiting since %v: %v", time.Since(start).Round(time.Second), err))
	}
}
