package transport

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Totals says what the calls of one method have come to.
type Totals struct {
	Calls   int64   // that have ended
	Errors  int64   // of them, those that failed
	Seconds float64 // all calls together, their waiting included
	// Bytes of payload that the calls without error took: data as it is encoded,
	// and four for each row number.
	Bytes int64
}

// A Meter is a transport whose calls are timed and whose bytes are counted, at
// the end that dials.
type Meter struct {
	t       Transport
	seconds *prometheus.HistogramVec // by method
	errors  *prometheus.CounterVec   // by method
	bytes   *prometheus.CounterVec   // by direction

	mu     sync.Mutex
	totals map[string]Totals // guarded by mu; by method
}

var _ Transport = (*Meter)(nil)

// The methods of Service, as metrics and totals name them, and which way their
// payload goes.
const (
	join     = "join"
	initial  = "init"
	pull     = "pull"
	push     = "push"
	finish   = "finish"
	leave    = "leave"
	describe = "describe"
)

// Measure returns t with its calls timed and its bytes counted, in metrics of
// reg and in [Meter.Totals]. A nil reg makes metrics that nobody collects; any
// other takes the metrics once.
func Measure(t Transport, reg prometheus.Registerer) *Meter {
	f := promauto.With(reg)
	m := &Meter{
		t:      t,
		totals: make(map[string]Totals),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "transport_call_seconds",
			Help:    "Time a call took where it was made, by method; a pull's includes its wait for the step.",
			Buckets: prometheus.ExponentialBuckets(100e-6, 2.5, 14), // to 15 s
		}, []string{"method"}),
		errors: f.NewCounterVec(prometheus.CounterOpts{
			Name: "transport_errors_total",
			Help: "Calls that failed, by method.",
		}, []string{"method"}),
		bytes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "transport_bytes_total",
			Help: "Payload of calls that succeeded, data as encoded and row numbers, by direction; initial weights are pushed.",
		}, []string{"direction"}),
	}
	for _, method := range []string{join, initial, pull, push, finish, leave, describe} {
		m.seconds.WithLabelValues(method)
		m.errors.WithLabelValues(method)
	}
	m.bytes.WithLabelValues(pull)
	m.bytes.WithLabelValues(push)
	return m
}

// Totals returns what all calls have come to that have ended, by method: join,
// init, pull, push, finish, leave, describe. A method that was not called is
// missing. The map is the caller's.
func (m *Meter) Totals() map[string]Totals {
	m.mu.Lock()
	defer m.mu.Unlock()
	totals := make(map[string]Totals, len(m.totals))
	for method, t := range m.totals {
		totals[method] = t
	}
	return totals
}

// Listen serves s at addr. Calls are not measured at this end.
func (m *Meter) Listen(addr string, s Service) (Listener, error) { return m.t.Listen(addr, s) }

// Dial returns a connection whose calls are measured.
func (m *Meter) Dial(addr string) (Conn, error) {
	c, err := m.t.Dial(addr)
	if err != nil {
		return nil, err
	}
	return &meteredConn{Conn: c, meter: m}, nil
}

// ended counts a call that began at start and bore n bytes of payload.
func (m *Meter) ended(method string, start time.Time, n int64, err error) {
	took := time.Since(start).Seconds()
	m.seconds.WithLabelValues(method).Observe(took)
	switch {
	case err != nil:
		m.errors.WithLabelValues(method).Inc()
		n = 0
	case method == pull:
		m.bytes.WithLabelValues(pull).Add(float64(n))
	case n > 0:
		m.bytes.WithLabelValues(push).Add(float64(n))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.totals[method]
	t.Calls++
	t.Seconds += took
	t.Bytes += n
	if err != nil {
		t.Errors++
	}
	m.totals[method] = t
}

// A meteredConn is a connection whose calls are measured.
type meteredConn struct {
	Conn
	meter *Meter
}

func (c *meteredConn) Join(ctx context.Context, hello Hello) (_ Welcome, err error) {
	defer func(start time.Time) { c.meter.ended(join, start, 0, err) }(time.Now())
	return c.Conn.Join(ctx, hello)
}

func (c *meteredConn) Init(ctx context.Context, parts []Part) (err error) {
	defer func(start time.Time) { c.meter.ended(initial, start, payload(parts), err) }(time.Now())
	return c.Conn.Init(ctx, parts)
}

func (c *meteredConn) Pull(ctx context.Context, minStep int64, dst []Part) (_ Status, err error) {
	defer func(start time.Time) { c.meter.ended(pull, start, payload(dst), err) }(time.Now())
	return c.Conn.Pull(ctx, minStep, dst)
}

func (c *meteredConn) Push(ctx context.Context, p Push, grads []Part) (_ Verdict, err error) {
	defer func(start time.Time) { c.meter.ended(push, start, payload(grads), err) }(time.Now())
	return c.Conn.Push(ctx, p, grads)
}

func (c *meteredConn) Finish(ctx context.Context, r Replica) (err error) {
	defer func(start time.Time) { c.meter.ended(finish, start, 0, err) }(time.Now())
	return c.Conn.Finish(ctx, r)
}

func (c *meteredConn) Leave(ctx context.Context, r Replica) (err error) {
	defer func(start time.Time) { c.meter.ended(leave, start, 0, err) }(time.Now())
	return c.Conn.Leave(ctx, r)
}

func (c *meteredConn) Describe(ctx context.Context) (_ Description, err error) {
	defer func(start time.Time) { c.meter.ended(describe, start, 0, err) }(time.Now())
	return c.Conn.Describe(ctx)
}
