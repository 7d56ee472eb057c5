package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pushpull/examples/ptb/corpus"
	"pushpull/model"
	"pushpull/model/lstm"
	"pushpull/transport"
	"pushpull/worker"
)

// A trainer is one worker of the job.
type trainer struct {
	o         *options
	task      int
	corpus    *corpus.Corpus
	transport transport.Transport
	servers   []string // addresses, by task
	say       lines
	reg       prometheus.Registerer

	plan    transport.Plan
	meter   *transport.Meter
	metrics *workerMetrics
	report  *report
	warned  bool // of gradients that are not finite
}

// run trains until the servers say that training is over. The chief evaluates
// after each epoch, and tests and saves the model at the end.
func (t *trainer) run(ctx context.Context) error {
	if err := t.prepare(); err != nil {
		return err
	}
	m, err := t.newModel()
	if err != nil {
		return err
	}
	s, err := worker.Open(ctx, t.o.session(t.task, t.meter, t.servers, t.plan, t.reg, t.say.note), m)
	if err != nil {
		return err
	}
	defer s.Close()
	t.introduce(s)

	if err := s.Pull(ctx); err != nil { // waits for the chief's weights
		return err
	}
	t.restored(s.Status())
	for epoch, _ := m.Position(); !s.Done(); epoch++ {
		e, err := t.trainEpoch(ctx, s, m, epoch)
		if err != nil {
			return err
		}
		if e.Steps == 0 && s.Done() {
			break // the others did the rest meanwhile
		}
		t.say.train(e.Epoch, float64(e.TrainPerplexity))
		if t.chief() {
			err := s.KeepAlive(ctx, func() error { return t.validate(ctx, m, &e) })
			if err != nil {
				return err
			}
		}
		t.report.Epochs = append(t.report.Epochs, e)
		if err := s.Pull(ctx); err != nil { // the others may have gone on
			return err
		}
	}
	if err := s.WaitDone(ctx); err != nil { // brings the final weights
		return err
	}
	if err := t.account(ctx, s); err != nil {
		return err
	}
	if err := s.Leave(ctx); err != nil { // from here on the servers are free to exit
		return err
	}
	if t.chief() {
		if err := t.finish(ctx, m); err != nil {
			return err
		}
	}
	return t.writeReport()
}

func (t *trainer) chief() bool { return t.task == 0 }

// prepare does what can fail before anything is computed.
func (t *trainer) prepare() (err error) {
	if dir := t.o.state.savePath; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("--save_path=%s: %w", dir, err)
		}
	}
	if path := t.reportPath(); path != "" {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return fmt.Errorf("--report=%s: it is a directory: want a file", t.o.output.report)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("--report=%s: %w", t.o.output.report, err)
		}
	}
	if t.plan, err = t.o.plan(t.corpus); err != nil {
		return err
	}
	t.meter, t.metrics = transport.Measure(t.transport, t.reg), newWorkerMetrics(t.reg)
	t.report = &report{Started: time.Now(), Epochs: []epochReport{}, Task: t.name(), Flags: t.o.given, Versions: readVersions(), Machine: readMachine()}
	return nil
}

func (t *trainer) name() string { return "worker/" + strconv.Itoa(t.task) }

// newModel makes the model that reads this worker's share of the corpus.
func (t *trainer) newModel() (*lstm.Model, error) {
	c := t.corpus
	share, err := lstm.Share(c.Train, t.task, t.o.cluster.workers)
	if err != nil {
		return nil, err
	}
	cfg, err := t.o.lstm(t.task, len(c.Words))
	if err != nil {
		return nil, err
	}
	t.report.Corpus = corpusReport{
		Name: c.Name, Standard: c.Standard, Vocabulary: len(c.Words), Unknown: c.Unknown,
		Train: len(c.Train), Share: len(share), Valid: len(c.Valid), Test: len(c.Test),
	}
	t.report.Job.Engine, t.report.Job.Threads = cfg.Engine.Name(), cfg.Threads
	return lstm.New(cfg, share)
}

// introduce notes the job, and lets the chief show which server has how much.
func (t *trainer) introduce(s *worker.Session) {
	job, layout := &t.report.Job, s.Layout()
	job.Policy = t.o.policy().String()
	job.Transport, job.Encoding = t.o.cluster.transport, t.o.encoding().String()
	job.ShardBytes, job.MaxOverMean = layout.Bytes(), layout.Imbalance()
	job.Settings = map[string]string{}
	for _, s := range t.o.settings() {
		job.Settings[s.Name] = s.Value
	}
	if t.chief() {
		t.say.placement(job.ShardBytes, job.MaxOverMean)
	}
}

// trainEpoch trains for one pass over this worker's share, or until training is
// over. If little is then left for all workers together, it goes on to the end,
// rather than begin an epoch that ends after a few steps.
func (t *trainer) trainEpoch(ctx context.Context, s *worker.Session, m *lstm.Model, epoch int) (epochReport, error) {
	e := epochReport{Epoch: epoch + 1, LearningRate: s.Status().LearningRate}
	t.say.begin(e.Epoch, m.EpochSize())
	defer t.say.end()

	start := time.Now()
	onStep := func(r model.Result) {
		if e.Steps == 0 { // not before: training may be over, or the epoch, if this is a restart
			e.LearningRate = s.Status().LearningRate
			t.say.epoch(e.Epoch, e.LearningRate)
		}
		e.Steps++
		e.Words += r.Examples
		e.Seconds = time.Since(start).Seconds()
		e.WordsPerSecond = number(float64(e.Words) / e.Seconds)
		t.metrics.observe(r, t.o.preset.Unroll, float64(e.WordsPerSecond), s.Status().LearningRate)
		t.refused(s.Stats())
	}
	err := worker.Train(ctx, s, m, worker.TrainConfig{OnStep: func(r model.Result) {
		onStep(r)
		t.say.advance()
		_, step := m.Position()
		if done, ok := milestone(step-1, m.EpochSize()); ok {
			t.say.progress(done, m.Perplexity(), float64(e.WordsPerSecond))
		}
	}})
	e.TrainPerplexity = number(m.Perplexity())
	for err == nil && !s.Done() && nearlyOver(t.plan, s.Status()) {
		err = worker.Train(ctx, s, m, worker.TrainConfig{OnStep: onStep})
	}
	e.Examples = s.Status().Examples
	return e, err
}

// restored notes that the servers had weights before this job.
func (t *trainer) restored(at transport.Status) {
	switch {
	case !t.chief() || at.Step == 0:
	case at.Done:
		t.say.notef("Training was over before, at step %d; this only evaluates. To train anew, use another --save_path or --checkpoint_dir", at.Step)
	default:
		t.say.notef("Goes on from step %d, where the servers have trained to", at.Step)
	}
}

// refused notes the first gradient that was not finite: the weights or the rate
// have got out of hand.
func (t *trainer) refused(stats worker.Stats) {
	for shard, verdicts := range stats.Verdicts {
		if n := verdicts[transport.NotFinite]; n > 0 && !t.warned {
			t.warned = true
			t.say.notef("Warning: ps/%d refuses gradients of %s that are not finite; lower --learning_rate. The report and ps_gradients_total count them", shard, t.name())
		}
	}
}

// nearlyOver reports whether less than a tenth of an epoch is left, of all
// workers together.
func nearlyOver(plan transport.Plan, at transport.Status) bool {
	return (plan.Examples-at.Examples)*10 < plan.EpochExamples
}

// validate evaluates the weights that the epoch ended with.
func (t *trainer) validate(ctx context.Context, m *lstm.Model, e *epochReport) error {
	start := time.Now()
	perplexity, err := m.Evaluate(ctx, t.corpus.Valid, t.o.preset.Batch, t.o.preset.Unroll)
	if err != nil {
		return err
	}
	e.ValidPerplexity = new(number(perplexity))
	e.ValidSeconds = time.Since(start).Seconds()
	t.say.valid(e.Epoch, perplexity)
	return nil
}

// account asks the servers what became of everybody's gradients. It must come
// before Leave.
func (t *trainer) account(ctx context.Context, s *worker.Session) error {
	descriptions, err := s.Describe(ctx)
	if err != nil {
		return err
	}
	for _, d := range descriptions {
		for _, r := range d.Replicas {
			v := verdictReport{Server: d.Task, Worker: "worker/" + strconv.Itoa(r.Task), Examples: r.Examples, Verdicts: map[string]int64{}}
			for verdict, n := range r.Verdicts {
				v.Verdicts[verdict.String()] = n
			}
			t.report.Verdicts = append(t.report.Verdicts, v)
		}
	}
	status, stats, calls := s.Status(), s.Stats(), t.meter.Totals()
	t.report.GlobalStep, t.report.Examples, t.report.Steps = status.Step, status.Examples, stats.Steps
	t.report.Phases = phases{
		PullSeconds: stats.Pull.Seconds(), ComputeSeconds: stats.Compute.Seconds(), PushSeconds: stats.Push.Seconds(),
		PullBytes: calls["pull"].Bytes, PushBytes: calls["push"].Bytes,
	}
	return nil
}

// finish tests the final weights and saves them.
func (t *trainer) finish(ctx context.Context, m *lstm.Model) error {
	start := time.Now()
	perplexity, err := m.Evaluate(ctx, t.corpus.Test, 1, 1)
	if err != nil {
		return err
	}
	t.report.Test = &testReport{Perplexity: number(perplexity), Seconds: time.Since(start).Seconds()}
	t.say.test(perplexity)
	if t.o.state.savePath == "" {
		return nil
	}
	t.say.saving(t.o.state.savePath)
	return saveModel(filepath.Join(t.o.state.savePath, "model.safetensors"), m.Variables(), t.metadata())
}

// metadata says in the model's file what the model is.
func (t *trainer) metadata() map[string]string {
	p, r := t.o.preset, t.report
	md := map[string]string{
		"model":            p.Name,
		"layers":           strconv.Itoa(p.Layers),
		"hidden":           strconv.Itoa(p.Hidden),
		"unroll":           strconv.Itoa(p.Unroll),
		"batch_size":       strconv.Itoa(p.Batch),
		"forget_bias":      "0",
		"vocabulary":       strconv.Itoa(r.Corpus.Vocabulary),
		"corpus":           r.Corpus.Name,
		"global_step":      strconv.FormatInt(r.GlobalStep, 10),
		"epochs":           strconv.Itoa(p.Epochs),
		"examples":         strconv.FormatInt(r.Examples, 10),
		"test_perplexity":  fmt.Sprintf("%.3f", r.Test.Perplexity),
		"pushpull_version": r.Versions.Pushpull,
	}
	if n := len(r.Epochs); n > 0 {
		md["train_perplexity"] = fmt.Sprintf("%.3f", r.Epochs[n-1].TrainPerplexity)
		md["valid_perplexity"] = fmt.Sprintf("%.3f", *r.Epochs[n-1].ValidPerplexity)
	}
	return md
}

// reportPath is --report, for workers other than the chief with their number
// before the extension. It is empty if nobody wants a report.
func (t *trainer) reportPath() string {
	path := t.o.output.report
	if path == "" || t.chief() {
		return path
	}
	ext := filepath.Ext(path)
	return fmt.Sprintf("%s.worker%d%s", strings.TrimSuffix(path, ext), t.task, ext)
}

func (t *trainer) writeReport() error {
	if t.reportPath() == "" {
		return nil
	}
	t.report.Seconds = time.Since(t.report.Started).Seconds()
	return t.report.write(t.reportPath())
}
