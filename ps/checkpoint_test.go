package ps_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nlpodyssey/safetensors"

	"pushpull/ps"
	"pushpull/transport"
)

// saved returns a checkpoint of s.
func saved(t testing.TB, s *ps.Shard) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, s.Save(&b))
	return b.Bytes()
}

// trained returns a shard that has made some steps of random training, and the
// random numbers to go on with.
func trained(t testing.TB, cfg ps.Config, steps int) (*ps.Shard, *rand.Rand) {
	t.Helper()
	rng := rand.New(rand.NewPCG(11, 12))
	s := newShard(t, cfg,
		transport.Part{Variable: "e", Width: 3, Data: normals(rng, 21)},
		transport.Part{Variable: "w", Offset: 4, Data: normals(rng, 5)},
		transport.Part{Variable: "empty", Data: []float32{}})
	train(t, s, rng, 1, 0, steps)
	return s, rng
}

// train makes steps in which all replicas push, with sequence numbers from
// after on.
func train(t testing.TB, s *ps.Shard, rng *rand.Rand, life, after uint64, steps int) {
	t.Helper()
	replicas := len(s.Describe().Replicas)
	for step := range steps {
		for task := range replicas {
			some, _ := gradient(rng, transport.Part{Variable: "e", Width: 3, Data: make([]float32, 21)})
			_, err := s.Push(transport.Push{
				Replica:  transport.Replica{Task: task, Life: life},
				Seq:      after + uint64(step) + 1,
				Step:     s.Status().Step,
				Examples: int64(task + 1),
				Cursor:   fmt.Appendf(nil, "worker/%d after %d", task, after+uint64(step)+1),
			}, []transport.Part{some, {Variable: "w", Offset: 4, Data: normals(rng, 5)}})
			must(t, err)
		}
	}
}

// Stop, restore and go on leaves the same bits as never having stopped: weights
// and slots (both files are compared whole), examples, rate, ledger and cursors.
func TestRestoreAndGoOnEqualsNeverStopping(t *testing.T) {
	plan := transport.Plan{EpochExamples: 7, Steps: 1000}
	for _, opt := range optimizers {
		for _, replicas := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/replicas=%d", opt.Name(), replicas), func(t *testing.T) {
				cfg := complete(ps.Config{
					Replicas: replicas, Policy: ps.Sync(replicas), Optimizer: opt,
					Schedule: ps.Decay{Rate: 0.5, Factor: 0.9, Hold: 1},
					Settings: []transport.Setting{{Name: "hidden", Value: "3"}},
				})
				start := func(life uint64, restore []byte) *ps.Shard {
					s, err := ps.NewShard(cfg)
					must(t, err)
					if restore != nil {
						must(t, s.Restore(bytes.NewReader(restore)))
					}
					for task := range replicas {
						welcome, err := s.Join(transport.Hello{Replica: transport.Replica{Task: task, Life: life}, Settings: cfg.Settings, Plan: plan})
						must(t, err)
						if want := fmt.Sprintf("worker/%d after 6", task); restore != nil && (string(welcome.Cursor) != want || welcome.Seq != 6) {
							t.Errorf("cursor = %q after push %d, want %q after 6", welcome.Cursor, welcome.Seq, want)
						}
					}
					return s
				}
				rng := rand.New(rand.NewPCG(13, 14))
				s := start(1, nil)
				must(t, s.Init([]transport.Part{
					{Variable: "e", Width: 3, Data: normals(rng, 21)}, {Variable: "w", Offset: 4, Data: normals(rng, 5)},
				}))
				train(t, s, rng, 1, 0, 6)
				stopped := start(2, saved(t, s))
				if diff := cmp.Diff(s.Status(), stopped.Status()); diff != "" {
					t.Errorf("status after restore (-stopped +restored):\n%s", diff)
				}
				train(t, s, rand.New(rand.NewPCG(15, 16)), 1, 6, 9)
				train(t, stopped, rand.New(rand.NewPCG(15, 16)), 2, 6, 9)
				if !bytes.Equal(saved(t, s), saved(t, stopped)) {
					t.Errorf("checkpoints differ:\n%+v\n%+v", s.Describe(), stopped.Describe())
				}
			})
		}
	}
}

// A checkpoint is a safetensors file whose tensors hold the weights and slots.
func TestCheckpointIsSafetensors(t *testing.T) {
	s, _ := trained(t, ps.Config{Optimizer: ps.Adam{}}, 3)
	file, err := safetensors.Deserialize(saved(t, s))
	must(t, err)
	if got, want := file.Len(), 9; got != want {
		t.Errorf("%d tensors, want %d: %v", got, want, file.Names())
	}
	for _, p := range []transport.Part{{Variable: "e", Data: make([]float32, 21)}, {Variable: "w", Offset: 4, Data: make([]float32, 5)}} {
		name := fmt.Sprintf("w:%s@%d", p.Variable, p.Offset)
		tensor, ok := file.Tensor(name)
		if !ok || tensor.DType() != safetensors.F32 {
			t.Fatalf("no tensor %q of floats in %v", name, file.Names())
		}
		for i, want := range weights(t, s, p) {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(tensor.Data()[4*i:])); got != want {
				t.Errorf("%s[%d] = %v, want %v", name, i, got, want)
			}
		}
	}
	if tensor, _ := file.Tensor("slot1:e@0"); fmt.Sprint(tensor.Shape()) != "[7 3]" {
		t.Errorf("shape of slot1:e@0 = %v, want [7 3]", tensor.Shape())
	}
}

// Every truncation and every changed byte of a checkpoint is found, unless the
// change has no meaning (as that of a blank in the header).
func TestDamageIsFound(t *testing.T) {
	s, _ := trained(t, ps.Config{Replicas: 2, Policy: ps.Sync(2), Optimizer: ps.Momentum{}}, 2)
	good := saved(t, s)
	restored := func(data []byte) ([]byte, error) {
		s, err := ps.NewShard(complete(ps.Config{Replicas: 2, Policy: ps.Sync(2), Optimizer: ps.Momentum{}}))
		must(t, err)
		if err := s.Restore(bytes.NewReader(data)); err != nil {
			if s.Status().Step != -1 {
				t.Fatalf("a failed Restore left step %d", s.Status().Step)
			}
			return nil, err
		}
		return saved(t, s), nil
	}
	if again, err := restored(good); err != nil || !bytes.Equal(again, good) {
		t.Fatalf("restoring and saving does not give the same file: %v", err)
	}
	for n := range good {
		if _, err := restored(good[:n]); !errors.Is(err, ps.ErrDamaged) {
			t.Fatalf("the first %d of %d bytes: %v, want ErrDamaged", n, len(good), err)
		}
	}
	if _, err := restored(append(bytes.Clone(good), 0)); !errors.Is(err, ps.ErrDamaged) {
		t.Errorf("a byte more: %v, want ErrDamaged", err)
	}
	for i := range good {
		for _, flip := range []byte{1, 0x20, 0x80, 0xff} {
			bad := bytes.Clone(good)
			bad[i] ^= flip
			if again, err := restored(bad); err == nil && !bytes.Equal(again, good) {
				t.Fatalf("byte %d changed from %q to %q: restored something else", i, good[i], bad[i])
			}
		}
	}
}

type fullDisk struct{ room int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.room -= len(b); d.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

var errFull = errors.New("disk full")

func TestSaveReportsWriteErrors(t *testing.T) {
	s, _ := trained(t, ps.Config{}, 1)
	size := len(saved(t, s))
	for _, room := range []int{0, 8, 100, size - 1} {
		if err := s.Save(&fullDisk{room}); !errors.Is(err, errFull) {
			t.Errorf("Save with room for %d bytes: %v, want disk full", room, err)
		}
	}
	must(t, s.Save(&fullDisk{size}))
}

// write puts checkpoints of the given steps into dir, as a server does.
func write(t *testing.T, dir string, cfg ps.Config, steps int) {
	t.Helper()
	cfg.Checkpoint.Dir = ""
	s, rng := trained(t, cfg, 0)
	for step := range steps {
		train(t, s, rng, 1, uint64(step), 1)
		name := fmt.Sprintf("ps-%d-of-%d-step-%09d.safetensors", cfg.Task, max(cfg.Tasks, 1), step+1)
		must(t, os.WriteFile(filepath.Join(dir, name), saved(t, s), 0o644))
	}
}

func TestNewServerSkipsDamagedCheckpoints(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ps.Config{}, 4)
	path := func(step int) string {
		return filepath.Join(dir, fmt.Sprintf("ps-0-of-1-step-%09d.safetensors", step))
	}
	must(t, os.Truncate(path(4), 300))
	data, err := os.ReadFile(path(3))
	must(t, err)
	data[len(data)-1] ^= 1
	must(t, os.WriteFile(path(3), data, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, ".ps-0-of-1-123.tmp"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "ps-0-of-1-step-9.safetensors"), nil, 0o600)) // no name of ours

	var log bytes.Buffer
	s := newServer(t, ps.Config{Checkpoint: ps.Checkpoint{Dir: dir}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	status, err := s.Pull(t.Context(), 0, nil)
	must(t, err)
	if got, want := status.Step, int64(2); got != want {
		t.Errorf("restored step %d, want %d", got, want)
	}
	for _, want := range []string{path(4), "300 bytes", path(3), "checksum", path(2)} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log does not name %q:\n%s", want, log.String())
		}
	}
	want := []string{
		"ps-0-of-1-step-000000001.safetensors", "ps-0-of-1-step-000000002.safetensors",
		"ps-0-of-1-step-000000003.safetensors.damaged", "ps-0-of-1-step-000000004.safetensors.damaged",
		"ps-0-of-1-step-9.safetensors",
	}
	if diff := cmp.Diff(want, names(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestNewServerDoesNotBeginAnewOverCheckpoints(t *testing.T) {
	setting := func(value string) []transport.Setting { return []transport.Setting{{Name: "hidden", Value: value}} }
	for _, test := range []struct {
		name string
		dir  func(dir string)
		cfg  ps.Config
		want error
		text string
	}{
		{
			"all damaged", func(dir string) {
				must(t, os.WriteFile(filepath.Join(dir, "ps-0-of-1-step-000000007.safetensors"), []byte("no"), 0o644))
			}, ps.Config{}, ps.ErrDamaged, "the newest is ps-0-of-1-step-000000007.safetensors",
		}, {
			"another setting", func(dir string) { write(t, dir, ps.Config{}, 1) },
			ps.Config{Settings: setting("650")}, transport.ErrJob, `hidden: the checkpoint says nothing, this server runs "650"`,
		}, {
			"another number of servers", func(dir string) { write(t, dir, ps.Config{Task: 0, Tasks: 2}, 1) },
			ps.Config{}, transport.ErrJob, "a job with 2 parameter servers, this one has 1",
		}, {
			"renamed", func(dir string) {
				write(t, dir, ps.Config{Task: 1, Tasks: 2}, 1)
				must(t, os.Rename(filepath.Join(dir, "ps-1-of-2-step-000000001.safetensors"), filepath.Join(dir, "ps-0-of-2-step-000000001.safetensors")))
			}, ps.Config{Tasks: 2}, transport.ErrJob, `task: the checkpoint says "1", this server runs "0"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			test.dir(dir)
			before := names(t, dir)
			test.cfg.Checkpoint.Dir = dir
			_, err := ps.NewServer(complete(test.cfg))
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), dir) {
				t.Errorf("NewServer: %v, want %v with %q", err, test.want, test.text)
			}
			if diff := cmp.Diff(before, names(t, dir)); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
		})
	}
}

// Only the newest are kept, all if Keep is 0. Damaged ones and those of other
// servers do not count.
func TestOldCheckpointsAreRemoved(t *testing.T) {
	for keep, want := range map[int]string{0: "[1 2 3 5]", 1: "[5]", 2: "[3 5]", 9: "[1 2 3 5]"} {
		dir := t.TempDir()
		write(t, dir, ps.Config{Tasks: 2}, 4)
		write(t, dir, ps.Config{Task: 1, Tasks: 2}, 1)
		must(t, os.Truncate(filepath.Join(dir, "ps-0-of-2-step-000000004.safetensors"), 9))
		s := newServer(t, ps.Config{Tasks: 2, Checkpoint: ps.Checkpoint{Dir: dir, Keep: keep}})
		_, err := s.Join(t.Context(), hello(0, transport.Plan{Steps: 5}))
		must(t, err)
		for seq := range uint64(2) {
			pushTo(t, s, 0, seq+1, 3+int64(seq), nil)
		}
		must(t, s.Leave(t.Context(), transport.Replica{Task: 0, Life: 1}))
		must(t, s.Run(t.Context()))
		var steps []int64
		others := 0
		for _, name := range names(t, dir) {
			var step int64
			if _, err := fmt.Sscanf(name, "ps-0-of-2-step-%d.safetensors", &step); err == nil && !strings.HasSuffix(name, ".damaged") {
				steps = append(steps, step)
			} else {
				others++
			}
		}
		if got := fmt.Sprint(steps); got != want || others != 2 {
			t.Errorf("keep %d: steps %s and %d others, want %s and 2", keep, got, others, want)
		}
	}
}

func TestServersOfOneJobShareADirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, ps.Config{Task: 0, Tasks: 2}, 1)
	write(t, dir, ps.Config{Task: 1, Tasks: 2}, 3)
	for task, want := range []int64{1, 3} {
		s := newServer(t, ps.Config{Task: task, Tasks: 2, Checkpoint: ps.Checkpoint{Dir: dir}})
		if d, err := s.Describe(t.Context()); err != nil || d.Status.Step != want {
			t.Errorf("ps/%d restored step %d (%v), want %d", task, d.Status.Step, err, want)
		}
	}
}

var writeV1 = flag.Bool("write-v1", false, "write testdata/v1.safetensors anew; never after a release")

// Files of every format version still read.
func TestStoredFileOfVersion1Reads(t *testing.T) {
	cfg := ps.Config{Replicas: 2, Policy: ps.Sync(2), Optimizer: ps.Adam{}}
	want, _ := trained(t, cfg, 3)
	const file = "testdata/v1.safetensors"
	if *writeV1 {
		must(t, os.WriteFile(file, saved(t, want), 0o644))
	}
	data, err := os.ReadFile(file)
	must(t, err)
	got, err := ps.NewShard(complete(cfg))
	must(t, err)
	must(t, got.Restore(bytes.NewReader(data)))
	if !bytes.Equal(saved(t, got), saved(t, want)) {
		t.Errorf("%s holds %+v, want %+v", file, got.Describe(), want.Describe())
	}
}
