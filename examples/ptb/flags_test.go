package main

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"pushpull/ps"
	"pushpull/transport"
	"pushpull/worker"
)

func mustParse(t testing.TB, args ...string) *options {
	t.Helper()
	o, err := parse(args)
	if err != nil {
		t.Fatalf("parse(%q): %v", args, err)
	}
	return o
}

func TestFlagsAreRefusedWithFlagValueAndWish(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"small", `"small": want flags only`},
		{"--modle=small", "unknown flag: --modle"},
		{"--model=tiny", "--model=tiny: want test, small, medium or large"},
		{"--seed=-1", "--seed=-1: want a whole number of at least 0"},
		{"--epochs=two", "--epochs=two: want a whole number"},
		{"--epochs=0", "--epochs=0: want at least 1"},
		{"--steps=-1", "--steps=-1: want at least 1, or 0"},
		{"--batch_size=0", "--batch_size=0: want at least 1"},
		{"--data_path=", "--data_path=: want a directory"},
		{"--clip_norm=max", "--clip_norm=max: want one of dense, slices"},
		{"--job_name=chief", "--job_name=chief: want one of ps, worker"},
		{"--job_name=worker", "--job_name=worker without --task_index"},
		{"--job_name=worker --task_index=2", "--task_index=2: want 0 to 1, for --worker_hosts lists 2"},
		{"--job_name=ps --task_index=-1", "--task_index=-1: want 0 to 0, for --ps_hosts lists 1"},
		{"--job_name=ps --task_index=0 --ps_hosts=here", `--ps_hosts=here: "here": want host:port`},
		{"--job_name=ps --task_index=0 --ps_hosts=a:1,a:1", "--ps_hosts=a:1,a:1: a:1 is there twice"},
		{"--job_name=ps --task_index=0 --worker_hosts=", "--worker_hosts=: want at least one"},
		{"--job_name=ps --task_index=0 --workers=2", "--workers with --job_name=ps"},
		{"--job_name=ps --task_index=0 --ps=2", "--ps with --job_name=ps"},
		{"--job_name=ps --task_index=0 --transport=inproc", "--transport=inproc: want one of grpc, tcp, shm, auto"},
		{"--job_name=ps --task_index=0 --existing_servers", "--existing_servers with --job_name=ps"},
		{"--task_index=0", "--task_index without --job_name"},
		{"--ps_hosts=a:1", "--ps_hosts without --job_name"},
		{"--worker_hosts=a:1", "--worker_hosts without --job_name"},
		{"--existing_servers", "--existing_servers without --job_name"},
		{"--ps=0", "--ps=0: want at least 1"},
		{"--workers=0", "--workers=0: want at least 1"},
		{"--transport=udp", "--transport=udp: want one of grpc, tcp, shm, auto, inproc"},
		{"--startup_timeout=0s", "--startup_timeout=0s: want more than 0"},
		{"--worker_timeout=-1s", "--worker_timeout=-1s: want more than 0"},
		{"--worker_timeout=5", "--worker_timeout=5: want a time such as 90s"},
		{"--replicas_to_aggregate=1", "--replicas_to_aggregate=1 without --sync_replicas"},
		{"--sync_replicas --replicas_to_aggregate=2", "--replicas_to_aggregate=2: want 1 to 1"},
		{"--sync_replicas --max_staleness=2", "--max_staleness=2 with --sync_replicas"},
		{"--sync_replicas=perhaps", "--sync_replicas=perhaps: want true or false"},
		{"--max_staleness=-2", "--max_staleness=-2: want at least 0, or -1"},
		{"--optimizer=lion", "--optimizer=lion: want one of sgd, momentum, adagrad, adam"},
		{"--learning_rate=0", "--learning_rate=0: want more than 0"},
		{"--learning_rate=NaN", "--learning_rate=NaN: want more than 0"},
		{"--learning_rate=fast", "--learning_rate=fast: want a number"},
		{"--partition_bytes=-4", "--partition_bytes=-4: want at least 1, or 0"},
		{"--encoding=int8", "--encoding=int8: want one of float32, float16, bfloat16"},
		{"--use_fp16 --encoding=bfloat16", "--use_fp16 with --encoding=bfloat16: want one of them"},
		{"--placement=random", "--placement=random: want one of balanced, round_robin"},
		{"--checkpoint_dir=x --checkpoint_every=0", "--checkpoint_every=0: want at least 1"},
		{"--checkpoint_dir=x --checkpoint_keep=-1", "--checkpoint_keep=-1: want at least 1, or 0"},
		{"--checkpoint_every=5", "--checkpoint_every without --checkpoint_dir"},
		{"--num_gpus=1", "--num_gpus=1: want 0: this build has no CUDA support; a worker needs a build with the tag gpu"},
		{"--threads=-1", "--threads=-1: want at least 1, or 0"},
		{"--engine=cuda", "--engine=cuda: want one of auto, "},
		{"--metrics_addr=9090", "--metrics_addr=9090: want host:port"},
		{"--progress=yes", "--progress=yes: want one of auto, on, off"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), strings.Fields(tc.args), &stdout, &stderr)
		if status != badUsage || !strings.Contains(stderr.String(), tc.want) || stdout.Len() > 0 {
			t.Errorf("ptb %s: status %d, stdout %q, stderr %q; want status 2 and %q", tc.args, status, &stdout, &stderr, tc.want)
		}
	}
}

func TestBooleansTakeTheirValueInAnyForm(t *testing.T) {
	const job = "--job_name=worker --task_index=0 "
	for args, want := range map[string]bool{
		job + "--sync_replicas":                    true,
		job + "--sync_replicas=true":               true,
		job + "--sync_replicas True":               true,
		job + "--sync_replicas=False":              false,
		job + "--sync_replicas False --model test": false,
		job + "--sync_replicas --model test":       true,
		job + "--model test":                       false,
	} {
		if got := mustParse(t, strings.Fields(args)...).update.sync; got != want {
			t.Errorf("%s: sync = %v, want %v", args, got, want)
		}
	}
}

func TestDefaultsFollowTheMode(t *testing.T) {
	job := []string{"--job_name=worker", "--task_index=1"}
	for _, tc := range []struct {
		name string
		args []string
		got  func(o *options) any
		want any
	}{
		{"embedded corpus in one process: 3 epochs", nil, func(o *options) any { return o.preset.Epochs }, 3},
		{"never more epochs than the preset's", []string{"--model=test"}, func(o *options) any { return o.preset.Epochs }, 1},
		{"own corpus: the preset's epochs", []string{"--data_path=x"}, func(o *options) any { return o.preset.Epochs }, 13},
		{"several processes: the preset's epochs", job, func(o *options) any { return o.preset.Epochs }, 13},
		{"--epochs wins", []string{"--epochs=7"}, func(o *options) any { return o.preset.Epochs }, 7},
		{"--batch_size wins", []string{"--batch_size=5"}, func(o *options) any { return o.preset.Batch }, 5},
		{"workers are counted from their hosts", job, func(o *options) any { return o.cluster.workers }, 2},
		{"servers are counted from their hosts", append(job, "--ps_hosts=a:1,b:1,c:1"), func(o *options) any { return o.cluster.ps }, 3},
		{"sync aggregates all", append(job, "--sync_replicas"), func(o *options) any { return o.policy() }, ps.Sync(2)},
		{"sync may leave backups", append(job, "--sync_replicas", "--replicas_to_aggregate", "1"), func(o *options) any { return o.policy() }, ps.Sync(1)},
		{"async bears any staleness", job, func(o *options) any { return o.policy() }, ps.Async()},
		{"bounded staleness", append(job, "--max_staleness=3"), func(o *options) any { return o.policy() }, ps.Policy{Aggregate: 1, MaxStaleness: 3}},
		{"bounded to fresh", append(job, "--max_staleness=0"), func(o *options) any { return o.policy() }, ps.Policy{Aggregate: 1}},
		{"sgd at the preset's rate", nil, func(o *options) any { return o.update.rate }, 1.0},
		{"adam at its own rate", []string{"--optimizer=adam"}, func(o *options) any { return o.update.rate }, 0.001},
		{"--learning_rate wins", []string{"--optimizer=adam", "--learning_rate=0.5"}, func(o *options) any { return o.update.rate }, 0.5},
		{"32 bits on the wire", nil, func(o *options) any { return o.encoding() }, transport.Float32},
		{"16 bits on the wire", []string{"--use_fp16"}, func(o *options) any { return o.encoding() }, transport.Float16},
		{"16 bits of another kind", []string{"--encoding=bfloat16"}, func(o *options) any { return o.encoding() }, transport.BFloat16},
		{"all CPUs", job, func(o *options) any { return o.machine.threads }, runtime.GOMAXPROCS(0)},
		{"all CPUs shared in one process", []string{"--workers=1000"}, func(o *options) any { return o.machine.threads }, 1},
		{"--threads wins", []string{"--threads=7"}, func(o *options) any { return o.machine.threads }, 7},
	} {
		if got := tc.got(mustParse(t, tc.args...)); got != tc.want {
			t.Errorf("%s: %q: got %v, want %v", tc.name, tc.args, got, tc.want)
		}
	}
}

func TestFlagsReachServerSessionAndModel(t *testing.T) {
	o := mustParse(t, strings.Fields(`--job_name=worker --task_index=1 --ps_hosts=a:1,b:1 --existing_servers
		--startup_timeout=7s --worker_timeout=9s --optimizer=adagrad --learning_rate=0.25 --use_fp16 --partition_bytes=64
		--placement=round_robin --checkpoint_dir=kept --checkpoint_every=5 --checkpoint_keep=0 --seed=40 --threads=3
		--engine=portable --clip_norm=slices --model=medium`)...)
	s := o.server(1, nil, nil)
	if got, want := s.Checkpoint, (ps.Checkpoint{Dir: "kept", Every: 5, Keep: 0}); got != want {
		t.Errorf("checkpoint = %v, want %v", got, want)
	}
	if s.Task != 1 || s.Tasks != 2 || s.Replicas != 2 || s.Optimizer != (ps.Adagrad{}) || s.Linger != 9*time.Second || s.IdleLimit != 9*time.Second {
		t.Errorf("server = %+v", s)
	}
	if got, want := s.Schedule, (ps.Decay{Rate: 0.25, Factor: 0.8, Hold: 6}); got != want {
		t.Errorf("schedule = %v, want %v", got, want)
	}
	c := o.session(1, nil, o.cluster.psHosts, transport.Plan{}, nil, nil)
	if !c.Existing || c.Task != 1 || c.StartLimit != 7*time.Second || c.StepLimit != 9*time.Second || c.Encoding != transport.Float16 {
		t.Errorf("session = %+v", c)
	}
	ranges := make([]worker.Range, 3)
	if got, want := c.Placement(ranges, 2), worker.RoundRobin(ranges, 2); len(got) != 3 || got[2] != want[2] {
		t.Errorf("placement = %v, want %v", got, want)
	}
	if c.Partition == nil {
		t.Error("partition = nil, want 64 bytes")
	}
	m, err := o.lstm(1, 100)
	if err != nil {
		t.Fatal(err)
	}
	if m.Vocab != 100 || m.Hidden != 650 || m.Keep != 0.5 || m.Seed != 41 || m.Threads != 3 || m.Engine.Name() != "portable" || m.Norm.String() != "slices" {
		t.Errorf("model = %+v", m)
	}
}

func TestHelpNamesEveryFlagAndVersionEveryPart(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if status := run(context.Background(), []string{"--help"}, &stdout, &stderr); status != done {
		t.Fatalf("--help: status %d, want 0", status)
	}
	for _, g := range (&options{}).groups() {
		if !strings.Contains(stdout.String(), g.title+":\n") {
			t.Errorf("--help lacks %q", g.title)
		}
	}
	for _, flag := range strings.Fields(`job_name task_index ps_hosts worker_hosts model data_path save_path sync_replicas
		replicas_to_aggregate num_gpus use_fp16 encoding existing_servers seed epochs steps batch_size optimizer learning_rate
		metrics_addr checkpoint_dir checkpoint_every checkpoint_keep threads engine max_staleness partition_bytes
		placement startup_timeout worker_timeout clip_norm report progress version workers ps transport`) {
		if !strings.Contains(stdout.String(), "--"+flag+" ") && !strings.Contains(stdout.String(), "--"+flag+"[=true|false] ") {
			t.Errorf("--help lacks --%s", flag)
		}
	}
	stdout.Reset()
	if status := run(context.Background(), []string{"--version"}, &stdout, &stderr); status != done {
		t.Fatalf("--version: status %d, want 0", status)
	}
	for _, want := range []string{"pushpull ", runtime.Version(), "gorgonia v", "grpc v"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("--version prints %q, want it to contain %q", &stdout, want)
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr = %q, want nothing", &stderr)
	}
}
