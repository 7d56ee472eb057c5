package ps_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"pushpull/ps"
	"pushpull/transport"
)

func newServer(t testing.TB, cfg ps.Config) *ps.Server {
	t.Helper()
	s, err := ps.NewServer(complete(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// must fails the test if a call failed.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wpart(x ...float32) []transport.Part { return []transport.Part{{Variable: "w", Data: x}} }

func hello(task int, plan transport.Plan) transport.Hello {
	return transport.Hello{Replica: transport.Replica{Task: task, Life: 1}, Plan: plan}
}

func pushTo(t testing.TB, s transport.Service, task int, seq uint64, step int64, grads []transport.Part) transport.Verdict {
	t.Helper()
	verdict, err := s.Push(t.Context(), transport.Push{
		Replica: transport.Replica{Task: task, Life: 1}, Seq: seq, Step: step, Examples: 10,
	}, grads)
	must(t, err)
	return verdict
}

// pulling calls Pull in the background.
type pulling struct {
	done   bool
	status transport.Status
	err    error
	dst    []transport.Part
}

func pull(ctx context.Context, wg *sync.WaitGroup, s *ps.Server, minStep int64) *pulling {
	p := &pulling{dst: wpart(0)}
	wg.Go(func() {
		p.status, p.err = s.Pull(ctx, minStep, p.dst)
		p.done = true
	})
	return p
}

func TestPullWaitsForItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		s := newServer(t, ps.Config{Replicas: 2, Policy: ps.Sync(2)})
		for task := range 2 {
			_, err := s.Join(t.Context(), hello(task, transport.Plan{}))
			must(t, err)
		}

		first := pull(t.Context(), &wg, s, 0)
		synctest.Wait()
		if first.done {
			t.Fatalf("Pull returned before there are weights: %v, %v", first.status, first.err)
		}
		must(t, s.Init(t.Context(), wpart(10)))
		synctest.Wait()
		if !first.done || first.err != nil || first.dst[0].Data[0] != 10 {
			t.Fatalf("Pull after Init = %+v, want weight 10", first)
		}

		next := pull(t.Context(), &wg, s, 1)
		pushTo(t, s, 0, 1, 0, wpart(1))
		synctest.Wait()
		if next.done {
			t.Fatalf("Pull returned after one gradient of two: %v, %v", next.status, next.err)
		}
		pushTo(t, s, 1, 1, 0, wpart(3))
		synctest.Wait()
		if !next.done || next.err != nil || next.dst[0].Data[0] != 8 || next.status.Step != 1 {
			t.Fatalf("Pull after both gradients = %+v, want weight 8 of step 1", next)
		}
	})
}

func TestFinishAndLeaveWakePulls(t *testing.T) {
	for name, end := range map[string]func(*ps.Server, context.Context, transport.Replica) error{
		"finish": (*ps.Server).Finish, "leave": (*ps.Server).Leave,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var wg sync.WaitGroup
				defer wg.Wait()
				s := newServer(t, ps.Config{Replicas: 2, Policy: ps.Sync(2)})
				for task := range 2 {
					_, err := s.Join(t.Context(), hello(task, transport.Plan{}))
					must(t, err)
				}
				must(t, s.Init(t.Context(), wpart(10)))
				pushTo(t, s, 0, 1, 0, wpart(1))
				update := pull(t.Context(), &wg, s, 1)
				synctest.Wait()
				must(t, end(s, t.Context(), transport.Replica{Task: 1, Life: 1}))
				synctest.Wait()
				if !update.done || update.err != nil || update.dst[0].Data[0] != 9 {
					t.Errorf("Pull after the other has ended = %+v, want weight 9", update)
				}
				over := pull(t.Context(), &wg, s, 2)
				synctest.Wait()
				must(t, end(s, t.Context(), transport.Replica{Task: 0, Life: 1}))
				synctest.Wait()
				if !over.done || over.err != nil || !over.status.Done || over.status.Step != 1 {
					t.Errorf("Pull after all have ended = %+v, want step 1, done", over)
				}
			})
		})
	}
}

func TestPullSaysForWhomItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, ps.Config{Replicas: 4, Policy: ps.Sync(4), MaxWait: 5 * time.Second})
		check := func(minStep int64, want string, after time.Duration) {
			t.Helper()
			start := time.Now()
			_, err := s.Pull(t.Context(), minStep, nil)
			if !errors.Is(err, transport.ErrNotReady) || err.Error() != want {
				t.Errorf("Pull of step %d: %v\nwant %s", minStep, err, want)
			}
			if got := time.Since(start); got != after {
				t.Errorf("Pull of step %d waited %v, want %v", minStep, got, after)
			}
		}
		check(0, "ps/0: pull: not ready: the shard waits for the initial weights of the chief, worker/0 (not joined)", 5*time.Second)
		for _, task := range []int{0, 1, 2} {
			_, err := s.Join(t.Context(), hello(task, transport.Plan{}))
			must(t, err)
		}
		check(0, "ps/0: pull: not ready: the shard waits for the initial weights of the chief, worker/0 (last call 5s ago)", 5*time.Second)
		must(t, s.Init(t.Context(), wpart(10)))
		time.Sleep(51 * time.Second)
		must(t, s.Finish(t.Context(), transport.Replica{Task: 2, Life: 1}))
		check(1, "ps/0: pull: not ready: step 1 waits for gradients of worker/0 (last call 1m1s ago), worker/1 (last call 1m1s ago), worker/3 (not joined)", 5*time.Second)
		pushTo(t, s, 0, 1, 0, wpart(1))
		check(1, "ps/0: pull: not ready: step 1 has 1 of 4 gradients and waits for worker/1 (last call 1m6s ago), worker/3 (not joined)", 5*time.Second)

		if _, err := s.Pull(t.Context(), 2, nil); !errors.Is(err, transport.ErrRolledBack) {
			t.Errorf("Pull of step 2 at step 0: %v, want ErrRolledBack", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Pull(ctx, 1, nil); !errors.Is(err, transport.ErrNotReady) || !strings.Contains(err.Error(), "worker/3 (not joined)") {
			t.Errorf("Pull with a deadline of 1s: %v, want ErrNotReady before that, and worker/3 named", err)
		}
		if ctx.Err() != nil {
			t.Error("Pull answered after its deadline")
		}
	})
}

// run calls Run in the background.
type running struct {
	done bool
	err  error
	took time.Duration
}

func run(ctx context.Context, wg *sync.WaitGroup, s *ps.Server) *running {
	r := new(running)
	start := time.Now()
	wg.Go(func() {
		r.err = s.Run(ctx)
		r.done, r.took = true, time.Since(start)
	})
	return r
}

func TestRunEndsWhenAllHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		s := newServer(t, ps.Config{Replicas: 2})
		r := run(t.Context(), &wg, s)
		for task := range 2 {
			_, err := s.Join(t.Context(), hello(task, transport.Plan{Steps: 1}))
			must(t, err)
		}
		must(t, s.Init(t.Context(), wpart(1)))
		pushTo(t, s, 0, 1, 0, wpart(1))
		must(t, s.Finish(t.Context(), transport.Replica{Task: 0, Life: 1}))
		must(t, s.Leave(t.Context(), transport.Replica{Task: 1, Life: 1}))
		time.Sleep(time.Second)
		synctest.Wait()
		if r.done {
			t.Fatalf("Run returned before worker/0 has left: %v", r.err)
		}
		must(t, s.Leave(t.Context(), transport.Replica{Task: 0, Life: 1}))
		synctest.Wait()
		if !r.done || r.err != nil || r.took != time.Second {
			t.Errorf("Run after all have left = %+v, want no error after 1s", *r)
		}
	})
}

func TestRunDoesNotWaitForWhoNeverJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		s := newServer(t, ps.Config{Replicas: 3})
		r := run(t.Context(), &wg, s)
		_, err := s.Join(t.Context(), hello(0, transport.Plan{Steps: 1}))
		must(t, err)
		must(t, s.Init(t.Context(), wpart(1)))
		pushTo(t, s, 0, 1, 0, wpart(1))
		must(t, s.Leave(t.Context(), transport.Replica{Task: 0, Life: 1}))
		synctest.Wait()
		if !r.done || r.err != nil {
			t.Errorf("Run = %+v, want it to have ended", *r)
		}
	})
}

func TestRunLingersForThoseWhoDoNotLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		var log bytes.Buffer
		s := newServer(t, ps.Config{Replicas: 2, Linger: 7 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
		r := run(t.Context(), &wg, s)
		for task := range 2 {
			_, err := s.Join(t.Context(), hello(task, transport.Plan{Steps: 1}))
			must(t, err)
		}
		must(t, s.Init(t.Context(), wpart(1)))
		pushTo(t, s, 0, 1, 0, wpart(1))
		must(t, s.Leave(t.Context(), transport.Replica{Task: 0, Life: 1}))
		wg.Wait()
		if r.err != nil || r.took != 7*time.Second {
			t.Errorf("Run = %+v, want no error after 7s", *r)
		}
		if got, want := log.String(), `workers="worker/1 (last call 7s ago)"`; !strings.Contains(got, want) {
			t.Errorf("log = %s, want %s", got, want)
		}
	})
}

// A chief that evaluates for long says now and then that it is there.
func TestRunLingersAsLongAsAReplicaIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		s := newServer(t, ps.Config{Replicas: 1, Linger: 7 * time.Second})
		r := run(t.Context(), &wg, s)
		for range 10 {
			_, err := s.Join(t.Context(), hello(0, transport.Plan{Steps: 1}))
			must(t, err)
			must(t, s.Init(t.Context(), wpart(1)))
			pushTo(t, s, 0, 1, 0, wpart(1))
			time.Sleep(5 * time.Second)
		}
		wg.Wait()
		if r.err != nil || r.took != 52*time.Second {
			t.Errorf("Run = %+v, want no error 7s after the last call at 45s", *r)
		}
	})
}

// The weights of a training that is done are the workers', even if they cannot be saved.
func TestLastCheckpointThatFailsFailsRunAfterAllHaveLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	s := newServer(t, ps.Config{Replicas: 1, Checkpoint: ps.Checkpoint{Dir: dir}})
	must(t, os.RemoveAll(dir))
	must(t, os.WriteFile(dir, nil, 0o600))
	var wg sync.WaitGroup
	r := run(t.Context(), &wg, s)
	_, err := s.Join(t.Context(), hello(0, transport.Plan{Steps: 1}))
	must(t, err)
	must(t, s.Init(t.Context(), wpart(1)))
	pushTo(t, s, 0, 1, 0, wpart(1))
	time.Sleep(50 * time.Millisecond) // in which a Run that does not wait would end
	w := wpart(0)
	if status, err := s.Pull(t.Context(), 1, w); err != nil || !status.Done {
		t.Fatalf("Pull of the final weights = %+v, %v", status, err)
	}
	must(t, s.Leave(t.Context(), transport.Replica{Task: 0, Life: 1}))
	wg.Wait()
	if r.err == nil || !strings.Contains(r.err.Error(), "last checkpoint") {
		t.Errorf("Run = %v, want the last checkpoint's error", r.err)
	}
	if r.took < 50*time.Millisecond {
		t.Errorf("Run ended after %v, before its worker had left", r.took)
	}
}

func TestRunGivesUpWhenNobodyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		s := newServer(t, ps.Config{Replicas: 3, IdleLimit: time.Minute})
		r := run(t.Context(), &wg, s)
		time.Sleep(30 * time.Second)
		for task := range 2 {
			_, err := s.Join(t.Context(), hello(task, transport.Plan{}))
			must(t, err)
		}
		must(t, s.Init(t.Context(), wpart(1)))
		time.Sleep(40 * time.Second)
		must(t, s.Finish(t.Context(), transport.Replica{Task: 0, Life: 1}))
		time.Sleep(55 * time.Second) // who only watches does not count
		_, err := s.Describe(t.Context())
		must(t, err)
		wg.Wait()
		if !errors.Is(r.err, ps.ErrIdle) || r.took != 130*time.Second {
			t.Errorf("Run = %v after %v, want ErrIdle after 2m10s", r.err, r.took)
		}
		want := "none in 1m0s, at step 0 of training; missing are worker/1 (last call 1m40s ago), worker/2 (not joined);"
		if r.err == nil || !strings.Contains(r.err.Error(), want) {
			t.Errorf("Run: %v, want %q in it", r.err, want)
		}
	})
}

func TestWaitingPullsKeepAServerAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		s := newServer(t, ps.Config{IdleLimit: 15 * time.Second})
		r := run(ctx, &wg, s)
		for range 10 {
			if _, err := s.Pull(ctx, 0, nil); !errors.Is(err, transport.ErrNotReady) {
				t.Errorf("Pull: %v, want ErrNotReady", err)
			}
		}
		synctest.Wait()
		if r.done {
			t.Errorf("Run = %+v, want it to go on", *r)
		}
		cancel()
		wg.Wait()
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("Run after cancel = %v, want canceled", r.err)
		}
	})
}

func TestNegativeIdleLimitMeansForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
		defer cancel()
		if err := newServer(t, ps.Config{IdleLimit: -1}).Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run = %v, want the deadline exceeded", err)
		}
	})
}

// Run saves on the way and at the end, keeps the newest, and another server goes
// on from there.
func TestRunSavesAndNewServerRestores(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	cfg := ps.Config{Checkpoint: ps.Checkpoint{Dir: dir, Every: 2, Keep: 2}, Optimizer: ps.Adam{}}
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		reg := prometheus.NewRegistry()
		cfg := cfg
		cfg.Metrics = reg
		s := newServer(t, cfg)
		r := run(t.Context(), &wg, s)
		welcome, err := s.Join(t.Context(), hello(0, transport.Plan{Steps: 7}))
		must(t, err)
		if !welcome.Saves {
			t.Error("Welcome.Saves = false, want true")
		}
		must(t, s.Init(t.Context(), wpart(1)))
		for step := range int64(7) {
			pushTo(t, s, 0, uint64(step+1), step, wpart(1))
			synctest.Wait() // for Run
		}
		must(t, s.Leave(t.Context(), transport.Replica{Task: 0, Life: 1}))
		wg.Wait()
		must(t, r.err)
		want := `# HELP ps_checkpoints_total Checkpoints written since the server started, by result: saved or failed.
# TYPE ps_checkpoints_total counter
ps_checkpoints_total{result="saved"} 4
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ps_checkpoints_total"); err != nil {
			t.Error(err)
		}
	})
	if got, want := fmt.Sprint(names(t, dir)), "[ps-0-of-1-step-000000006.safetensors ps-0-of-1-step-000000007.safetensors]"; got != want {
		t.Errorf("files = %s, want %s", got, want)
	}

	s := newServer(t, cfg)
	status, err := s.Pull(t.Context(), 7, nil)
	must(t, err)
	if status.Step != 7 || status.Examples != 70 || status.Done {
		t.Errorf("restored status = %+v, want step 7, 70 examples, not done", status)
	}
	welcome, err := s.Join(t.Context(), hello(0, transport.Plan{Steps: 8}))
	must(t, err)
	if welcome.Step != 7 || welcome.Seq != 7 {
		t.Errorf("welcome = %+v, want step 7, push 7", welcome)
	}
}

// A save that fails on the way is counted, and training goes on; the last one
// failing is an error.
func TestFailedSaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		reg := prometheus.NewRegistry()
		dir := filepath.Join(t.TempDir(), "gone")
		s := newServer(t, ps.Config{Checkpoint: ps.Checkpoint{Dir: dir, Every: 1}, Metrics: reg})
		must(t, os.Remove(dir))
		r := run(t.Context(), &wg, s)
		_, err := s.Join(t.Context(), hello(0, transport.Plan{Steps: 2}))
		must(t, err)
		must(t, s.Init(t.Context(), wpart(1)))
		pushTo(t, s, 0, 1, 0, wpart(1))
		synctest.Wait()
		if r.done {
			t.Fatalf("Run = %v, want it to go on after a failed save", r.err)
		}
		pushTo(t, s, 0, 2, 1, wpart(1))
		wg.Wait()
		if !errors.Is(r.err, os.ErrNotExist) || !strings.Contains(r.err.Error(), "ps-0-of-1-step-000000002.safetensors") {
			t.Errorf("Run = %v, want that the file of step 2 cannot be made", r.err)
		}
		want := `# HELP ps_checkpoints_total Checkpoints written since the server started, by result: saved or failed.
# TYPE ps_checkpoints_total counter
ps_checkpoints_total{result="failed"} 2
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ps_checkpoints_total"); err != nil {
			t.Error(err)
		}
	})
}

// A server that is stopped early saves where it stands.
func TestRunSavesWhenItIsStopped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		s := newServer(t, ps.Config{Checkpoint: ps.Checkpoint{Dir: dir}})
		r := run(ctx, &wg, s)
		_, err := s.Join(t.Context(), hello(0, transport.Plan{}))
		must(t, err)
		must(t, s.Init(t.Context(), wpart(1)))
		pushTo(t, s, 0, 1, 0, wpart(1))
		cancel()
		wg.Wait()
		if !errors.Is(r.err, context.Canceled) {
			t.Errorf("Run = %v, want canceled", r.err)
		}
	})
	if got, want := fmt.Sprint(names(t, dir)), "[ps-0-of-1-step-000000001.safetensors]"; got != want {
		t.Errorf("files = %s, want %s", got, want)
	}
}

// names lists a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Every push has a gradient of one value in all elements, so that weights which
// differ within one pull, or one checkpoint, are of different steps.
func TestPullsAndCheckpointsAreNotTorn(t *testing.T) {
	const n, pushes = 4096, 200
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	s := newServer(t, ps.Config{Replicas: 2, Checkpoint: ps.Checkpoint{Dir: dir, Every: 20}, Linger: time.Nanosecond})
	constant := func(x float32) []transport.Part {
		a, b := make([]float32, n), make([]float32, n/2)
		for i := range a {
			a[i], b[i/2] = x, x
		}
		return []transport.Part{{Variable: "a", Width: 64, Data: a}, {Variable: "b", Data: b}}
	}
	for task := range 2 {
		_, err := s.Join(t.Context(), hello(task, transport.Plan{Steps: 2 * pushes}))
		must(t, err)
	}
	must(t, s.Init(t.Context(), constant(0)))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for task := range 2 {
		wg.Go(func() {
			for seq := range uint64(pushes) {
				if seq == pushes/2 {
					awaitFile(ctx, t, filepath.Join(dir, "ps-*"))
				}
				id := transport.Replica{Task: task, Life: 1}
				if _, err := s.Push(t.Context(), transport.Push{Replica: id, Seq: seq + 1}, constant(-1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			dst := constant(0)
			dst = append(dst, transport.Part{Variable: "a", Width: 64, Rows: []int32{0, 7, 63}, Data: make([]float32, 3*64)})
			for {
				status, err := s.Pull(ctx, 0, dst)
				if err != nil {
					t.Error(err)
					return
				}
				for _, p := range dst {
					for i, x := range p.Data {
						if x != float32(status.Step) {
							t.Errorf("%s[%d] = %v in a pull of step %d", p.Variable, i, x, status.Step)
							return
						}
					}
				}
				if status.Done {
					return
				}
			}
		})
	}
	wg.Wait()
	files := names(t, dir)
	if len(files) < 2 {
		t.Errorf("checkpoints %v, want some on the way", files)
	}
	for _, name := range files {
		file, err := os.Open(filepath.Join(dir, name))
		must(t, err)
		saved, err := ps.NewShard(complete(ps.Config{Replicas: 2}))
		must(t, err)
		must(t, saved.Restore(file))
		must(t, file.Close())
		for _, p := range constant(0) {
			for i, x := range weights(t, saved, p) {
				if x != float32(saved.Status().Step) {
					t.Fatalf("%s: %s[%d] = %v", name, p.Variable, i, x)
				}
			}
		}
	}
}

// awaitFile waits until there is a file of a pattern.
func awaitFile(ctx context.Context, t *testing.T, pattern string) {
	for ctx.Err() == nil {
		if files, _ := filepath.Glob(pattern); len(files) > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("no file %s: %v", pattern, ctx.Err())
}

func TestCallsEndWithTheirContext(t *testing.T) {
	s := newServer(t, ps.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	id := transport.Replica{Life: 1}
	_, join := s.Join(ctx, transport.Hello{Replica: id})
	_, pull := s.Pull(ctx, 0, nil)
	_, push := s.Push(ctx, transport.Push{Replica: id, Seq: 1}, nil)
	_, describe := s.Describe(ctx)
	for name, err := range map[string]error{
		"Join": join, "Init": s.Init(ctx, nil), "Pull": pull, "Push": push,
		"Finish": s.Finish(ctx, id), "Leave": s.Leave(ctx, id), "Describe": describe,
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a canceled context: %v, want canceled", name, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := newServer(t, ps.Config{Replicas: 3, Policy: ps.Policy{Aggregate: 1, MaxStaleness: 1}, Schedule: ps.Decay{Rate: 1, Factor: 0.5, Hold: 1}, Metrics: reg})
	for task := range 2 {
		_, err := s.Join(t.Context(), hello(task, transport.Plan{EpochExamples: 20}))
		must(t, err)
	}
	must(t, s.Init(t.Context(), wpart(1, 2, 3)))
	pushTo(t, s, 0, 1, 0, wpart(1, 1, 1))
	pushTo(t, s, 0, 1, 0, wpart(1, 1, 1))
	pushTo(t, s, 0, 2, 1, wpart(1, 1, 1))
	pushTo(t, s, 1, 1, 0, wpart(1, 1, 1))
	must(t, s.Finish(t.Context(), transport.Replica{Task: 1, Life: 1}))
	_, err := s.Pull(t.Context(), 0, nil)
	must(t, err)

	want := `# HELP ps_examples_total Examples in the gradients pushed since the server started, whatever the verdict.
# TYPE ps_examples_total counter
ps_examples_total 30
# HELP ps_gradients_total Gradients pushed since the server started, by worker task and verdict.
# TYPE ps_gradients_total counter
ps_gradients_total{result="applied",worker="0"} 2
ps_gradients_total{result="duplicate",worker="0"} 1
ps_gradients_total{result="stale",worker="1"} 1
# HELP ps_learning_rate Learning rate of the next update.
# TYPE ps_learning_rate gauge
ps_learning_rate 0.5
# HELP ps_replicas Expected replicas by state: missing (not joined), joined, finished or left.
# TYPE ps_replicas gauge
ps_replicas{state="finished"} 1
ps_replicas{state="joined"} 1
ps_replicas{state="left"} 0
ps_replicas{state="missing"} 1
# HELP ps_shard_bytes Bytes of the weights on the shard, without the optimizer's slots.
# TYPE ps_shard_bytes gauge
ps_shard_bytes 12
# HELP ps_step Updates applied to the shard; -1 before it has weights.
# TYPE ps_step gauge
ps_step 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "ps_examples_total", "ps_gradients_total",
		"ps_learning_rate", "ps_replicas", "ps_shard_bytes", "ps_step"); err != nil {
		t.Error(err)
	}
	if got, want := histogram(t, reg, "ps_staleness_steps"), "3 observations, sum 2"; got != want {
		t.Errorf("staleness: %s, want %s", got, want)
	}
	if got, want := histogram(t, reg, "ps_pull_wait_seconds"), "1 observations"; !strings.HasPrefix(got, want) {
		t.Errorf("pull wait: %s, want %s", got, want)
	}
	problems, err := testutil.GatherAndLint(reg)
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}

	if _, err := ps.NewServer(complete(ps.Config{Metrics: reg})); err == nil || !strings.Contains(err.Error(), "want a registerer for each server") {
		t.Errorf("NewServer with a registerer in use: %v, want an error that says so", err)
	}
}

func histogram(t *testing.T, reg *prometheus.Registry, name string) string {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return fmt.Sprintf("%d observations, sum %v", h.GetSampleCount(), h.GetSampleSum())
		}
	}
	return "none"
}
