package main

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Tests of jobs in several processes, as a user starts them.

func TestJobOfThreeProcessesEndsByItself(t *testing.T) {
	data := someCorpus(t, 20_000)
	for _, mode := range []string{"async", "sync"} {
		for _, size := range []string{"test", "small"} {
			t.Run("mode="+mode+"/model="+size, func(t *testing.T) {
				flags := []string{"--data_path=" + data, "--model", size, "--threads=1", "--epochs=2"}
				if size == "small" {
					if testing.Short() {
						t.Skip("takes seconds")
					}
					flags = append(flags, "--steps=20")
				}
				if mode == "sync" {
					flags = append(flags, "--sync_replicas")
				}
				j := newJob(t, 1, 2, flags...)
				ps, other := j.launch("ps", 0), j.launch("worker", 1)
				ps.says("joined", 1) // else an asynchronous chief may be done before it can train
				chief := j.launch("worker", 0)
				for _, p := range []*process{chief, other, ps} {
					p.expect(done, time.Minute)
				}
				chief.prints(chiefLines)
				chief.wrote("wps")
				other.prints(workerLines)
				ps.prints("")
				ps.wrote("listening", "worker=0", "worker=1", "holds weights", "left", "goodbye")
				chief.wrote("Corpus: "+data, "Placement: ps/0")
			})
		}
	}
}

func TestProcessesMayStartInAnyOrder(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 3 {
		// Synchronous, so that nobody can be done before all have started.
		j := newJob(t, 2, 2, "--data_path="+someCorpus(t, 2000), "--model=test", "--sync_replicas", "--threads=1")
		var all []*process
		for _, i := range r.Perm(4) {
			all = append(all, j.launch([]string{"ps", "worker"}[i/2], i%2))
			time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
		}
		for _, p := range all {
			p.expect(done, time.Minute)
		}
	}
}

func TestLateWorkerFindsTrainingOver(t *testing.T) {
	j := newJob(t, 1, 2, "--data_path="+someCorpus(t, 2000), "--model=test")
	ps, chief := j.launch("ps", 0), j.launch("worker", 0)
	chief.expect(done, time.Minute)
	ps.says("have not come", 1)
	late := j.launch("worker", 1)
	late.expect(done, time.Minute)
	late.prints("")
	ps.expect(done, time.Minute)
}

func TestServerDoesNotWaitForeverForAWorker(t *testing.T) {
	j := newJob(t, 1, 2, "--data_path="+someCorpus(t, 2000), "--model=test", "--worker_timeout=1s")
	ps, chief := j.launch("ps", 0), j.launch("worker", 0)
	chief.expect(done, time.Minute)
	ps.expect(done, 10*time.Second)
}

func TestAbsentServerIsNamedAfterTheTimeout(t *testing.T) {
	j := newJob(t, 2, 1, "--data_path="+someCorpus(t, 2000), "--model=test", "--startup_timeout=2s")
	j.launch("ps", 0)
	start := time.Now()
	worker := j.launch("worker", 0)
	worker.expect(failed, 30*time.Second)
	if waited := time.Since(start); waited < time.Second {
		t.Errorf("worker gave up after %v, want about 2 s", waited)
	}
	worker.wrote("ps/1 (" + j.ps[1] + ")")
	worker.prints("")
}

func TestWorkerOfAnotherJobIsRefusedWithBothValues(t *testing.T) {
	j := newJob(t, 1, 2, "--data_path="+someCorpus(t, 2000), "--model=test")
	ps := j.launch("ps", 0)
	worker := j.launch("worker", 0, "--sync_replicas")
	worker.expect(badUsage, 30*time.Second)
	worker.wrote("sync_replicas", "true", "false")

	if err := ps.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ps.expect(failed, 10*time.Second)
	ps.wrote("ptb: stopped: ")
}

func TestPortInUseIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ps := launch(t, "ps/0", "--job_name=ps", "--task_index=0", "--ps_hosts="+l.Addr().String())
	ps.expect(failed, 10*time.Second)
	ps.wrote(l.Addr().String(), "address already in use")
}

func TestAsynchronousJobOutlivesAWorker(t *testing.T) {
	j := newJob(t, 1, 2, "--data_path="+someCorpus(t, 40_000), "--model=test", "--epochs=2", "--worker_timeout=2s", "--threads=1")
	ps, other := j.launch("ps", 0), j.launch("worker", 1)
	ps.says("joined", 1)
	chief := j.launch("worker", 0)
	other.says("perplexity", 1)
	if err := other.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	chief.expect(done, time.Minute)
	ps.expect(done, time.Minute)
	chief.wrote("Epoch: 2 Valid Perplexity", "Test Perplexity")
	ps.wrote("some workers have not left", "worker/1")
}

func TestSynchronousJobNamesTheDeadWorker(t *testing.T) {
	j := newJob(t, 1, 2, "--data_path="+someCorpus(t, 40_000), "--model=test", "--sync_replicas", "--worker_timeout=2s", "--threads=1")
	j.launch("ps", 0)
	other, chief := j.launch("worker", 1), j.launch("worker", 0)
	other.says("perplexity", 1)
	if err := other.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	chief.expect(failed, time.Minute)
	chief.wrote("worker/1")
}

func TestRestartedJobEndsWithTheSameWeights(t *testing.T) {
	data := someCorpus(t, 60_000)
	flags := func(dir string) []string {
		return []string{"--data_path=" + data, "--model=test", "--epochs=2", "--optimizer=momentum", "--learning_rate=0.2", "--batch_size=10",
			"--threads=1", "--checkpoint_dir=" + filepath.Join(dir, "checkpoints"), "--checkpoint_every=100", "--save_path=" + dir}
	}
	whole, parts := t.TempDir(), t.TempDir()
	j := newJob(t, 1, 1, flags(whole)...)
	ps, worker := j.launch("ps", 0), j.launch("worker", 0)
	worker.expect(done, time.Minute)
	ps.expect(done, time.Minute)

	for _, stop := range []struct {
		saves  int
		signal syscall.Signal
	}{{2, syscall.SIGKILL}, {3, syscall.SIGTERM}, {4, syscall.SIGKILL}} {
		j := newJob(t, 1, 1, flags(parts)...)
		ps, worker := j.launch("ps", 0), j.launch("worker", 0)
		ps.says("saved checkpoint", stop.saves)
		for _, p := range []*process{ps, worker} {
			if err := p.cmd.Process.Signal(stop.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			<-p.ended
		}
	}
	j = newJob(t, 1, 1, flags(parts)...)
	ps, worker = j.launch("ps", 0), j.launch("worker", 0)
	worker.expect(done, time.Minute)
	ps.expect(done, time.Minute)

	want, metadata := loadModel(t, filepath.Join(whole, "model.safetensors"))
	got, gotMetadata := loadModel(t, filepath.Join(parts, "model.safetensors"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("weights after restarts (-whole +parts):\n%s", diff)
	}
	if diff := cmp.Diff(metadata, gotMetadata); diff != "" {
		t.Errorf("metadata after restarts (-whole +parts):\n%s", diff)
	}
}

func TestExistingServersKeepTheirWeights(t *testing.T) {
	dir := t.TempDir()
	data := someCorpus(t, 2000)
	flags := []string{"--data_path=" + data, "--model=test", "--checkpoint_dir=" + dir, "--startup_timeout=2s"}

	j := newJob(t, 1, 1, flags...)
	ps := j.launch("ps", 0)
	worker := j.launch("worker", 0, "--existing_servers", "True")
	worker.expect(failed, 30*time.Second) // nobody has offered weights
	worker.wrote("weights")

	chief := j.launch("worker", 0)
	chief.expect(done, 30*time.Second)
	ps.expect(done, 30*time.Second)

	j = newJob(t, 1, 1, flags...) // of the checkpoint, which is of the end
	ps = j.launch("ps", 0)
	worker = j.launch("worker", 0, "--existing_servers", "True")
	worker.expect(done, 30*time.Second)
	ps.expect(done, 30*time.Second)
	worker.prints(testLine)
	if want := chief.stdout.String(); !strings.HasSuffix(want, worker.stdout.String()) {
		t.Errorf("the worker at existing servers says %q, want the end of %q", &worker.stdout, want)
	}
}
