// Package transporttest holds what every transport must pass, and a transport
// on which calls fail.
package transporttest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pushpull/transport"
)

// patience is how long the suite waits for what should happen at once.
const patience = 20 * time.Second

// Test runs the suite. Each part of it asks for a transport of its own and an
// address to listen at, of which nobody else makes use.
func Test(t *testing.T, new func(t *testing.T) (transport.Transport, string)) {
	for _, c := range []struct {
		name string
		test func(*bench)
	}{
		{"JoinArrives", joinArrives},
		{"DescriptionArrives", descriptionArrives},
		{"FinishAndLeaveArrive", finishAndLeaveArrive},
		{"PushArrives", pushArrives},
		{"EveryVerdictArrives", everyVerdictArrives},
		{"StatusArrives", statusArrives},
		{"EveryErrorArrives", everyErrorArrives},
		{"BitsSurvive", bitsSurvive},
		{"RowsSurvive", rowsSurvive},
		{"ManyPartsSurvive", manyPartsSurvive},
		{"EverySizeSurvives", everySizeSurvives},
		{"EncodingsRound", encodingsRound},
		{"MalformedPartsAreRefused", malformedPartsAreRefused},
		{"PullWithoutPartsWaits", pullWithoutPartsWaits},
		{"CancelEndsPull", cancelEndsPull},
		{"DeadlineEndsPull", deadlineEndsPull},
		{"CanceledCallsFail", canceledCallsFail},
		{"CloseOfConnEndsPull", closeOfConnEndsPull},
		{"CloseOfListenerEndsPull", closeOfListenerEndsPull},
		{"CloseOfListenerLetsCallsEnd", closeOfListenerLetsCallsEnd},
		{"NobodyListens", nobodyListens},
		{"ListenerComesBack", listenerComesBack},
		{"AddressInUse", addressInUse},
		{"ManyCallers", manyCallers},
		{"ArgumentsAreNotKept", argumentsAreNotKept},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			t.Cleanup(func() { noMoreGoroutines(t, before) }) // runs last
			tr, addr := new(t)
			c.test(&bench{T: t, transport: tr, addr: addr})
		})
	}
}

// noMoreGoroutines waits until there are no more goroutines than before.
func noMoreGoroutines(t *testing.T, before int) {
	for limit := time.Now().Add(patience); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			buf := make([]byte, 1<<20)
			t.Errorf("%d goroutines, %d before the test:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
			return
		}
	}
}

// A bench is a transport being tested.
type bench struct {
	*testing.T
	transport transport.Transport
	addr      string
}

// context returns one that ends when the test should long be over.
func (b *bench) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 6*patience)
	b.Cleanup(cancel)
	return ctx
}

// listen serves s until the test ends.
func (b *bench) listen(addr string, s transport.Service) transport.Listener {
	b.Helper()
	l, err := b.transport.Listen(addr, s)
	if err != nil {
		b.Fatalf("Listen(%q): %v", addr, err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Errorf("Close of the listener: %v", err)
		}
	})
	return l
}

// dial connects to addr until the test ends.
func (b *bench) dial(addr string) transport.Conn {
	b.Helper()
	c, err := b.transport.Dial(addr)
	if err != nil {
		b.Fatalf("Dial(%q): %v", addr, err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// serve serves a new shard and connects to it.
func (b *bench) serve() (*shard, transport.Conn) {
	b.Helper()
	s := newShard()
	return s, b.dial(b.listen(b.addr, s).Addr())
}

// served is serve of a shard that has weights.
func (b *bench) served(weights ...transport.Part) (*shard, transport.Conn) {
	b.Helper()
	s, c := b.serve()
	if err := c.Init(b.context(), weights); err != nil {
		b.Fatalf("Init: %v", err)
	}
	s.set(transport.Status{})
	return s, c
}

// same reports what differs between got and want.
func (b *bench) same(what string, got, want any) {
	b.Helper()
	if reflect.DeepEqual(got, want) {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("%s: (-want +got)\n%s", what, diff)
	}
}

func (b *bench) is(what string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Errorf("%s: %v, want %v", what, err, want)
	}
}

// all makes every call once, and hands over what each returned.
func all(ctx context.Context, s transport.Service, each func(method string, err error)) {
	_, err := s.Join(ctx, transport.Hello{})
	each("Join", err)
	each("Init", s.Init(ctx, nil))
	_, err = s.Pull(ctx, -1, nil)
	each("Pull", err)
	_, err = s.Push(ctx, transport.Push{}, nil)
	each("Push", err)
	each("Finish", s.Finish(ctx, transport.Replica{}))
	each("Leave", s.Leave(ctx, transport.Replica{}))
	_, err = s.Describe(ctx)
	each("Describe", err)
}

// async runs do beside the test, and returns what it returned.
func async(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

// soon waits for what async does.
func (b *bench) soon(what string, done <-chan error) error {
	b.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		b.Fatalf("%s is still not done after %v", what, patience)
	}
	return nil
}

// eventually repeats do until it succeeds.
func (b *bench) eventually(what string, limit time.Duration, do func() error) {
	b.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	b.Errorf("%s fails for %v: %v", what, limit, err)
}

func name(i int) string { return fmt.Sprintf("variable/%d", i) }
