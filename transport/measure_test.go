package transport_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"pushpull/transport"
	"pushpull/transport/inproc"
)

// clerk answers every call, or fails it.
type clerk struct{ fail error }

func (c clerk) Join(context.Context, transport.Hello) (transport.Welcome, error) {
	return transport.Welcome{Seq: 1}, c.fail
}
func (c clerk) Init(context.Context, []transport.Part) error { return c.fail }
func (c clerk) Pull(context.Context, int64, []transport.Part) (transport.Status, error) {
	return transport.Status{Step: 2}, c.fail
}
func (c clerk) Push(context.Context, transport.Push, []transport.Part) (transport.Verdict, error) {
	return transport.Stale, c.fail
}
func (c clerk) Finish(context.Context, transport.Replica) error { return c.fail }
func (c clerk) Leave(context.Context, transport.Replica) error  { return c.fail }
func (c clerk) Describe(context.Context) (transport.Description, error) {
	return transport.Description{Task: "ps/3"}, c.fail
}

// callAll makes every call once, with 22 bytes of payload where there can be
// any, and returns what came back.
func callAll(t *testing.T, tr transport.Transport, s transport.Service) (answers []any, errs []error) {
	l, err := tr.Listen("", s)
	if err != nil {
		t.Fatalf("Listen: %v", err)
	}
	defer l.Close()
	c, err := tr.Dial(l.Addr())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer c.Close()
	ctx := context.Background()
	parts := []transport.Part{
		{Variable: "a", Data: make([]float32, 3)},                                                          // 12
		{Variable: "b", Width: 3, Rows: []int32{5}, Data: make([]float32, 3), Encoding: transport.Float16}, // 4 + 6
	}
	note := func(answer any, err error) { answers, errs = append(answers, answer), append(errs, err) }
	w, err := c.Join(ctx, transport.Hello{})
	note(w.Seq, err)
	note(nil, c.Init(ctx, parts))
	st, err := c.Pull(ctx, 0, parts)
	note(st.Step, err)
	v, err := c.Push(ctx, transport.Push{}, parts)
	note(v, err)
	note(nil, c.Finish(ctx, transport.Replica{}))
	note(nil, c.Leave(ctx, transport.Replica{}))
	d, err := c.Describe(ctx)
	note(d.Task, err)
	return answers, errs
}

var methods = []string{"join", "init", "pull", "push", "finish", "leave", "describe"}

func TestMeasureCountsCallsAndBytes(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := transport.Measure(new(inproc.Network), reg)
	answers, errs := callAll(t, m, clerk{})
	for i, want := range []any{uint64(1), nil, int64(2), transport.Stale, nil, nil, "ps/3"} {
		if errs[i] != nil || answers[i] != want {
			t.Errorf("%s = %v, %v, want %v", methods[i], answers[i], errs[i], want)
		}
	}
	broken := errors.New("broken")
	if _, errs = callAll(t, m, clerk{broken}); errs[2] != broken {
		t.Errorf("pull fails with %v, want %v", errs[2], broken)
	}
	for _, method := range methods {
		got := m.Totals()[method]
		want := transport.Totals{Calls: 2, Errors: 1, Seconds: got.Seconds}
		if method == "init" || method == "pull" || method == "push" {
			want.Bytes = 22
		}
		if got != want || got.Seconds <= 0 {
			t.Errorf("Totals of %s = %+v, want %+v and time", method, got, want)
		}
	}
	err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP transport_bytes_total Payload of calls that succeeded, data as encoded and row numbers, by direction; initial weights are pushed.
# TYPE transport_bytes_total counter
transport_bytes_total{direction="pull"} 22
transport_bytes_total{direction="push"} 44
# HELP transport_errors_total Calls that failed, by method.
# TYPE transport_errors_total counter
transport_errors_total{method="describe"} 1
transport_errors_total{method="finish"} 1
transport_errors_total{method="init"} 1
transport_errors_total{method="join"} 1
transport_errors_total{method="leave"} 1
transport_errors_total{method="pull"} 1
transport_errors_total{method="push"} 1
`), "transport_bytes_total", "transport_errors_total")
	if err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(reg, "transport_call_seconds"); n != len(methods) {
		t.Errorf("call_seconds has %d methods, want %d", n, len(methods))
	}
}

func TestMeasureMetricsAreClean(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	transport.Measure(new(inproc.Network), reg) // all label values are there before any call
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 7+7+2 {
		t.Errorf("%d metrics (%v), want 16", n, err)
	}
}

func TestMeasureNeedsNoRegisterer(t *testing.T) {
	m := transport.Measure(new(inproc.Network), nil)
	callAll(t, m, clerk{})
	if got := m.Totals()["push"].Calls; got != 1 {
		t.Errorf("%d pushes counted, want 1", got)
	}
	m.Totals()["push"] = transport.Totals{} // the caller's own map
	if got := m.Totals()["push"].Calls; got != 1 {
		t.Errorf("%d pushes counted after a caller changed its map, want 1", got)
	}
}
