package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"pushpull/model/lstm"
	"pushpull/ps"
)

// Tests of jobs in one process, through run.

// ptb runs the program to its end and returns its standard output.
func ptb(t testing.TB, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run(t.Context(), args, &stdout, &stderr); status != done {
		t.Fatalf("ptb %q: status %d\n%s%s", args, status, &stdout, &stderr)
	}
	return stdout.String()
}

// trained runs the program and returns the weights that it saved.
func trained(t testing.TB, args ...string) map[string][]float32 {
	t.Helper()
	dir := t.TempDir()
	out := ptb(t, append(args, "--save_path="+dir)...)
	if want := "Saving model to " + dir + ".\n"; !strings.HasSuffix(out, want) {
		t.Errorf("ptb %q: output ends %q, want %q", args, out[max(0, len(out)-80):], want)
	}
	weights, _ := loadModel(t, filepath.Join(dir, "model.safetensors"))
	return weights
}

func TestHundredStepsReachTheirPerplexity(t *testing.T) {
	out := ptb(t, "--model=test", "--steps=100")
	m := regexp.MustCompile(`Test Perplexity: ([0-9.]+)\n$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("output %q has no test perplexity", out)
	}
	got, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	// Before the first step it is about 3620, the size of the vocabulary.
	if want := 713.9; math.Abs(got-want) > 0.01*want {
		t.Errorf("test perplexity after 100 steps = %v, want within 1%% of %v", got, want)
	}
}

func TestOneReplicaLearnsTheSameHoweverItIsServed(t *testing.T) {
	base := []string{"--data_path=" + someCorpus(t, 6000), "--model=test", "--steps=120", "--threads=1"}
	want := trainedWithoutServer(t, mustParse(t, base...), 120)
	for _, flags := range []string{
		"--transport=grpc", "--transport=tcp", "--transport=shm", "--transport=auto", "--transport=inproc",
		"--transport=inproc --ps=3", "--transport=grpc --ps=3", "--transport=tcp --ps=3", "--transport=shm --ps=3",
		"--ps=2 --partition_bytes=64 --placement=round_robin", "--sync_replicas", "--max_staleness=0",
	} {
		got := trained(t, append(strings.Fields(flags), base...)...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: weights differ from training without a server (-want +got):\n%s", flags, diff)
		}
	}
	if got := trained(t, append(base, "--seed=2")...); cmp.Equal(want, got) {
		t.Error("another seed leads to the same weights")
	}
}

// The directory of --save_path is enough for a job to know that it is done, and
// to go on if more is asked for.
func TestSavePathIsWhereTheSameFlagsGoOn(t *testing.T) {
	args := []string{"--data_path=" + someCorpus(t, 6000), "--model=test", "--threads=1", "--save_path=" + t.TempDir()}
	first := ptb(t, append(args, "--epochs=2")...)
	again := ptb(t, append(args, "--epochs=2")...)
	if strings.Contains(again, "Epoch: ") {
		t.Errorf("a job that is done trains again:\n%s", again)
	}
	if _, want, _ := strings.Cut(first, "Test Perplexity"); !strings.HasSuffix(again, "Test Perplexity"+want) {
		t.Errorf("a job that is done ends otherwise than at first:\n%s%s", first, again)
	}
	more := ptb(t, append(args, "--epochs=3")...)
	if strings.Contains(more, "Epoch: 2 Learning") || !strings.Contains(more, "Epoch: 3 Learning rate: 0.250") {
		t.Errorf("with one epoch more the job does other than the third:\n%s", more)
	}
}

// trainedWithoutServer is the tutorial's program: it applies its own gradients.
func trainedWithoutServer(t testing.TB, o *options, steps int) map[string][]float32 {
	t.Helper()
	c, err := o.loadCorpus()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := o.lstm(0, len(c.Words))
	if err != nil {
		t.Fatal(err)
	}
	m, err := lstm.New(cfg, c.Train)
	if err != nil {
		t.Fatal(err)
	}
	for step := range steps {
		if _, err := m.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, v := range m.Variables() {
			rate := float32(o.schedule().At(0))
			if v.Rows == nil {
				ps.SGD{}.Apply(int64(step+1), rate, v.Value, v.Grad, nil)
				continue
			}
			n := v.Width()
			for i, r := range v.Rows {
				ps.SGD{}.Apply(int64(step+1), rate, v.Value[int(r)*n:][:n], v.Grad[i*n:][:n], nil)
			}
		}
	}
	weights := map[string][]float32{}
	for _, v := range m.Variables() {
		weights[v.Name] = v.Value
	}
	return weights
}

func TestSixteenBitsOnTheWireLearnToo(t *testing.T) {
	base := []string{"--data_path=" + someCorpus(t, 6000), "--model=test", "--steps=120", "--threads=1"}
	exact, rounded := trained(t, base...), trained(t, append(base, "--use_fp16")...)
	if cmp.Equal(exact, rounded) {
		t.Fatal("weights are those of 32 bits: nothing was rounded")
	}
	for name, want := range exact {
		for i, got := range rounded[name] {
			if math.Abs(float64(got-want[i])) > 0.05 {
				t.Fatalf("%s[%d] = %v, want about %v", name, i, got, want[i])
			}
		}
	}
}

func TestWorkersOfOneProcessShareTheEpochs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	for _, flags := range []string{"", "--sync_replicas", "--sync_replicas --replicas_to_aggregate=2", "--max_staleness=1", "--optimizer=adagrad"} {
		out := ptb(t, append(strings.Fields(flags), "--data_path="+someCorpus(t, 5000), "--model=test", "--epochs=2", "--workers=3", "--ps=2",
			"--report="+path)...)
		r := readReport(t, path)
		sum := int64(0)
		for _, v := range r.Verdicts {
			if v.Server == "ps/0" {
				sum += v.Examples
			}
			pushes := int64(0)
			for _, n := range v.Verdicts {
				pushes += n
			}
			if pushes*40 != v.Examples {
				t.Errorf("%q: %s of %s: verdicts on %d pushes, but %d examples", flags, v.Server, v.Worker, pushes, v.Examples)
			}
		}
		plan := int64(2 * 3 * ((5000/3/20 - 1) / 2) * 40)
		if sum < plan*95/100 || sum > plan*105/100 {
			t.Errorf("%q: servers saw %d examples, want about %d", flags, sum, plan)
		}
		for _, want := range []string{"Epoch: 1 Valid Perplexity", "worker/1: Epoch: 1 Train Perplexity", "worker/2: Epoch: 1 Train Perplexity", "\nTest Perplexity"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q: output lacks %q:\n%s", flags, want, out)
			}
		}
	}
}

func readReport(t testing.TB, path string) *report {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return &r
}

func TestReportTellsTheRun(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "r.json")
	ptb(t, "--data_path="+someCorpus(t, 2500), "--model=test", "--epochs=2", "--ps=2", "--report="+path, "--use_fp16", "--threads=1")
	r := readReport(t, path)
	if len(r.Epochs) != 2 {
		t.Fatalf("%d epochs, want 2", len(r.Epochs))
	}
	for i, e := range r.Epochs {
		if e.Epoch != i+1 || e.LearningRate != 1/float64(i+1) || e.Words != e.Steps*40 || e.Steps != 62 || e.Seconds <= 0 ||
			!(e.TrainPerplexity > 1 && e.WordsPerSecond > 0) || e.ValidPerplexity == nil || !(*e.ValidPerplexity > 1) {
			t.Errorf("epoch %d = %+v", i+1, e)
		}
	}
	if r.Test == nil || !(r.Test.Perplexity > 1) {
		t.Errorf("test = %+v", r.Test)
	}
	p := r.Phases
	if p.PullSeconds <= 0 || p.ComputeSeconds <= 0 || p.PushSeconds <= 0 || p.PullBytes <= 0 || p.PushBytes <= 0 {
		t.Errorf("phases = %+v", p)
	}
	if r.Task != "worker/0" || r.Steps != 124 || r.GlobalStep != 124 || r.Examples != 124*40 {
		t.Errorf("task %s, steps %d, global step %d, examples %d", r.Task, r.Steps, r.GlobalStep, r.Examples)
	}
	j := r.Job
	if j.Transport != "grpc" || j.Encoding != "float16" || j.Policy == "" || j.Engine == "" || j.Threads != 1 || len(j.ShardBytes) != 2 ||
		j.MaxOverMean < 1 || j.Settings["model"] != "test" {
		t.Errorf("job = %+v", j)
	}
	if len(r.Verdicts) != 2 || r.Verdicts[1].Verdicts["applied"] != 124 {
		t.Errorf("verdicts = %+v", r.Verdicts)
	}
	if r.Flags["epochs"] != "2" || r.Flags["seed"] != "" {
		t.Errorf("flags = %v", r.Flags)
	}
	if v := r.Versions; v.Go == "" || v.Gorgonia == "unknown" || v.GRPC == "unknown" || r.Machine.CPUs < 1 || r.Machine.CPU == "" {
		t.Errorf("versions %+v, machine %+v", v, r.Machine)
	}
	if c := r.Corpus; c.Vocabulary != 42 || c.Train != c.Share || c.Standard {
		t.Errorf("corpus = %+v", c)
	}
}

func TestUnusablePathsFailBeforeTraining(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	absent := filepath.Join(file, "x")
	for _, flag := range []string{"--save_path=" + absent, "--report=" + filepath.Join(absent, "r.json"), "--data_path=" + absent, "--checkpoint_dir=" + absent} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), []string{"--model=test", "--steps=5", flag}, &stdout, &stderr)
		if status != failed || !strings.Contains(stderr.String(), file) || stdout.Len() > 0 {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want status 1 and the path", flag, status, &stdout, &stderr)
		}
	}
}

func TestCancelEndsAJobAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	var stderr bytes.Buffer
	stdout := &trigger{on: "perplexity", do: func() { cancel(errors.New("enough")) }}
	status := run(ctx, []string{"--model=test", "--epochs=1000", "--workers=2", "--ps=2"}, stdout, &stderr)
	if status != failed || !strings.HasSuffix(stderr.String(), "ptb: stopped: enough\n") {
		t.Errorf("status %d, stderr %q; want 1 and the cause", status, &stderr)
	}
}

// A trigger does something once it sees a text.
type trigger struct {
	on string
	do func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.on) {
		w.do()
	}
	return len(p), nil
}

func TestMetricsOfAJobAreClean(t *testing.T) {
	addr := freeAddrs(t, 1)[0]
	var text []byte
	stdout := &trigger{on: "Test Perplexity", do: func() {
		resp, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if text, err = io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
	}}
	var stderr bytes.Buffer
	args := []string{"--model=test", "--steps=50", "--workers=2", "--ps=2", "--metrics_addr=" + addr}
	if status := run(t.Context(), args, stdout, &stderr); status != done {
		t.Fatalf("status %d: %s", status, &stderr)
	}
	for _, want := range []string{
		`worker_words_total{job="worker",task="0"}`, `worker_words_total{job="worker",task="1"}`,
		`worker_step_seconds_count{job="worker",phase="compute",task="1"}`, `job="ps",task="1"`, `go_goroutines{job="local",task="0"}`,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if ours.MatchString(p.Metric) {
			t.Errorf("promlint: %s: %s", p.Metric, p.Text)
		}
	}

	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		if ours.MatchString(m[1]) {
			served[m[1]] = m[2]
		}
	}
	described := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(doc), -1) {
		described[m[1]] = m[2]
	}
	// A counter or histogram by label has no type line before it first counts.
	delete(described, "ps_checkpoints_total")
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("a job serves other metrics than docs/metrics.md describes (-served +described):\n%s", diff)
	}
}

// ours matches the names of the project's own metrics.
var ours = regexp.MustCompile(`^(ps|worker|transport)_`)

// BenchmarkTrain is a whole job of one server and one worker.
func BenchmarkTrain(b *testing.B) {
	for _, bm := range []struct {
		model string
		steps int
	}{{"test", 200}, {"small", 20}} {
		for _, transport := range []string{"inproc", "grpc"} {
			b.Run(fmt.Sprintf("model=%s/transport=%s", bm.model, transport), func(b *testing.B) {
				path := filepath.Join(b.TempDir(), "r.json")
				b.ReportAllocs()
				words, seconds := 0, 0.0
				for b.Loop() {
					ptb(b, "--model="+bm.model, "--transport="+transport, "--report="+path, fmt.Sprintf("--steps=%d", bm.steps))
					e := readReport(b, path).Epochs[0]
					words, seconds = words+e.Words, seconds+e.Seconds
				}
				b.ReportMetric(float64(words)/seconds, "words/s")
			})
		}
	}
}
