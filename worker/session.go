package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"pushpull/model"
	"pushpull/transport"
)

// Config says how a replica takes part in a job. Every worker of a job must
// have the same, but for Task.
type Config struct {
	Transport transport.Transport
	Addrs     []string // of the parameter servers, by task
	Task      int      // of this worker; 0 is the chief
	Settings  []transport.Setting
	Plan      transport.Plan
	Encoding  transport.Encoding // of weights and gradients on the wire
	Partition Partitioner        // nil means Automatic
	Placement Placement          // nil means Greedy
	// Existing keeps a chief from offering initial weights: the servers have
	// them, or get them from somebody else.
	Existing bool

	// StartLimit is how long Open waits for the servers, and the first Pull for
	// initial weights. Default 5 minutes.
	StartLimit time.Duration
	// StepLimit is how long a Pull waits for other replicas. Default 10 minutes:
	// in a synchronous job everybody waits while the chief evaluates.
	StepLimit time.Duration
	// CallLimit is how long a call may take, retries included, and how long the
	// session tries to reach a server that went away. Default 1 minute.
	CallLimit time.Duration
	// WaitEvery is the time between two lines of OnWait about a server that does
	// not answer. Default 10 seconds.
	WaitEvery time.Duration
	// OnWait is told, while the session waits, for whom and since when. It may
	// be called from several goroutines, one at a time. May be nil.
	OnWait func(line string)

	Metrics prometheus.Registerer // may be nil
}

// A Session is a replica's open connection to every shard. Its methods must
// not be called concurrently, except Close.
type Session struct {
	cfg     Config
	model   model.Model
	layout  Layout
	shards  []*shard
	replica transport.Replica
	seq     uint64
	started bool // the first pull is done
	stats   Stats
	metrics *metrics
	telling sync.Mutex // held while OnWait runs
}

// Stats is what a session has done so far.
type Stats struct {
	Steps               int64 // pushed
	Pull, Compute, Push time.Duration
	// Verdicts counts what became of the gradients, shard by shard.
	Verdicts []map[transport.Verdict]int64
}

// Open joins the job: it waits until every server answers, tells each what the
// replica expects of the job, and lets the chief offer m's weights to those
// that have none. If the servers know where the replica stopped, m goes on
// from there. The session keeps m's variables.
//
// The error wraps transport.ErrJob if the servers run another job.
func Open(ctx context.Context, cfg Config, m model.Model) (_ *Session, err error) {
	cfg = cfg.withDefaults(m)
	layout, err := NewLayout(m.Variables(), len(cfg.Addrs), cfg.Partition, cfg.Placement)
	if err != nil {
		return nil, err
	}
	s := &Session{
		cfg:     cfg,
		model:   m,
		layout:  layout,
		replica: transport.Replica{Task: cfg.Task, Life: rand.Uint64()},
		metrics: newMetrics(cfg.Metrics),
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	for i, addr := range cfg.Addrs {
		name := fmt.Sprintf("ps/%d (%s)", i, addr)
		conn, err := cfg.Transport.Dial(addr)
		if err != nil {
			return nil, fmt.Errorf("worker/%d: dial %s: %w", cfg.Task, name, err)
		}
		s.shards = append(s.shards, newShard(conn, name, layout[i], cfg.Encoding))
		s.stats.Verdicts = append(s.stats.Verdicts, make(map[transport.Verdict]int64))
	}
	if err := s.join(ctx); err != nil {
		return nil, fmt.Errorf("worker/%d: join: %w", cfg.Task, err)
	}
	return s, nil
}

func (cfg Config) withDefaults(m model.Model) Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&cfg.StartLimit, 5*time.Minute)
	set(&cfg.StepLimit, 10*time.Minute)
	set(&cfg.CallLimit, time.Minute)
	set(&cfg.WaitEvery, 10*time.Second)
	if cfg.Partition == nil {
		cfg.Partition = Automatic(m.Variables(), len(cfg.Addrs))
	}
	if cfg.Placement == nil {
		cfg.Placement = Greedy
	}
	return cfg
}

// join introduces the replica to every shard, settles who offers weights, and
// moves the model to where the replica stopped.
func (s *Session) join(ctx context.Context) error {
	hello := s.hello()
	welcomes := make([]transport.Welcome, len(s.shards))
	err := s.each(func(i int, sh *shard) (err error) {
		welcomes[i], err = retry(ctx, sh, s.limit(s.cfg.StartLimit), func(ctx context.Context) (transport.Welcome, error) {
			return sh.Join(ctx, hello)
		})
		sh.saves = welcomes[i].Saves
		return err
	})
	if err != nil {
		return err
	}
	if s.cfg.Task == 0 && !s.cfg.Existing {
		if err := s.agree(welcomes); err != nil {
			return err
		}
		err := s.each(func(i int, sh *shard) error {
			if welcomes[i].Step >= 0 {
				return nil
			}
			_, err := retry(ctx, sh, s.limit(s.cfg.CallLimit), func(ctx context.Context) (struct{}, error) {
				return struct{}{}, sh.Init(ctx, sh.initial())
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	// Every shard knows the replica's pushes; the first keeps the cursor.
	for _, w := range welcomes {
		s.seq = max(s.seq, w.Seq)
	}
	if cursor := welcomes[0].Cursor; cursor != nil {
		if err := s.model.Seek(cursor); err != nil {
			return fmt.Errorf("go on from %s: %w", s.shards[0].name, err)
		}
	}
	return nil
}

// hello is what the replica says of itself, in its first call and whenever it is
// to be heard of.
func (s *Session) hello() transport.Hello {
	return transport.Hello{Replica: s.replica, Settings: s.cfg.Settings, Plan: s.cfg.Plan}
}

// agree keeps the chief from offering weights to a job of which some shards have
// been trained: fresh weights must not be mixed with trained ones.
func (s *Session) agree(welcomes []transport.Welcome) error {
	for i, w := range welcomes {
		for j, v := range welcomes {
			if w.Step > 0 && v.Step < 0 {
				return fmt.Errorf("%s is at step %d, but %s has no weights: give it its checkpoint, or remove those of the others: %w",
					s.shards[i].name, w.Step, s.shards[j].name, transport.ErrJob)
			}
		}
	}
	return nil
}

// Layout says which shard holds what.
func (s *Session) Layout() Layout { return s.layout }

// Stats returns what the session has done so far. The maps are the session's.
func (s *Session) Stats() Stats { return s.stats }

// Status tells where the shards stood at the last Pull: the least step and
// examples of any, the learning rate of the first, and whether training is over
// on all of them.
func (s *Session) Status() transport.Status {
	out := s.shards[0].status
	for _, sh := range s.shards[1:] {
		out.Step = min(out.Step, sh.status.Step)
		out.Examples = min(out.Examples, sh.status.Examples)
		out.Done = out.Done && sh.status.Done
	}
	return out
}

// Done reports whether training was over on every shard at the last Pull.
func (s *Session) Done() bool { return s.Status().Done }

// Pull brings the weights up to date that the model's next step reads: from
// every shard those of the step that follows the replica's last push there, or
// newer. Once training is over it brings all.
func (s *Session) Pull(ctx context.Context) error {
	if err := s.pull(ctx, false); err != nil {
		return err
	}
	if s.Done() {
		return s.pull(ctx, true)
	}
	return nil
}

func (s *Session) pull(ctx context.Context, all bool) error {
	start := time.Now()
	err := s.each(func(_ int, sh *shard) (err error) {
		parts := sh.wanted(all)
		sh.status, err = sh.pull(ctx, s.limit(s.cfg.CallLimit), s.waitLimit(), parts)
		if err == nil {
			sh.scatter(parts)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("worker/%d: pull: %w", s.cfg.Task, err)
	}
	s.started = true
	s.stats.Pull += s.metrics.observe("pull", start)
	return nil
}

// Push sends the gradient that a step of the model left. Its verdicts are in
// Stats: a gradient that was dropped is no error.
func (s *Session) Push(ctx context.Context, r model.Result) error {
	start := time.Now()
	s.seq++
	verdicts := make([]transport.Verdict, len(s.shards))
	err := s.each(func(i int, sh *shard) (err error) {
		push := transport.Push{Replica: s.replica, Seq: s.seq, Step: sh.status.Step, Examples: int64(r.Examples)}
		if i == 0 && sh.saves {
			push.Cursor = s.model.Cursor()
		}
		parts := sh.gradients()
		verdicts[i], err = retry(ctx, sh, s.limit(s.cfg.CallLimit), func(ctx context.Context) (transport.Verdict, error) {
			return sh.Push(ctx, push, parts)
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("worker/%d: push: %w", s.cfg.Task, err)
	}
	for i, v := range verdicts {
		s.stats.Verdicts[i][v]++
		// A gradient that was refused for a NaN leaves the replica its turn in the
		// step; after any other there will be a next step.
		if v != transport.NotFinite {
			s.shards[i].want = s.shards[i].status.Step + 1
		}
	}
	s.stats.Steps++
	s.stats.Push += s.metrics.observe("push", start)
	return nil
}

// WaitDone says that the replica will push no more, waits until training is
// over on every shard, and pulls the final weights. As long as the shards make
// steps it waits; if they make none for StepLimit it fails.
func (s *Session) WaitDone(ctx context.Context) error {
	err := s.each(func(_ int, sh *shard) (err error) {
		err = s.tell(ctx, sh, s.limit(s.cfg.CallLimit), sh.Finish)
		for !sh.status.Done && err == nil {
			sh.want = sh.status.Step + 1
			sh.status, err = sh.pull(ctx, s.limit(s.cfg.CallLimit), s.waitLimit(), nil)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("worker/%d: wait for the end of training: %w", s.cfg.Task, err)
	}
	return s.pull(ctx, true)
}

// KeepAlive runs f, which makes no calls of the session, and meanwhile tells the
// shards now and then that the replica is still there. A server that would not
// wait any longer for a silent replica to leave then does.
func (s *Session) KeepAlive(ctx context.Context, f func() error) error {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-done:
				return
			case <-ctx.Done():
				return
			}
			hello := s.hello()
			_ = s.each(func(_ int, sh *shard) error { // what fails here fails again when it matters
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				_, err := sh.Join(ctx, hello)
				return err
			})
		}
	})
	err := f()
	close(done)
	wg.Wait()
	return err
}

// Leave says goodbye to every shard: the replica will make no more calls. A
// server that has heard it from all replicas can exit, so once training is over
// a server that is gone has heard it, or no longer cares.
func (s *Session) Leave(ctx context.Context) error {
	err := s.each(func(_ int, sh *shard) error {
		l := s.limit(s.cfg.CallLimit)
		if sh.status.Done {
			l.total = min(l.total, 2*time.Second)
		}
		err := s.tell(ctx, sh, l, sh.Leave)
		if sh.status.Done && errors.Is(err, transport.ErrUnavailable) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("worker/%d: leave: %w", s.cfg.Task, err)
	}
	return nil
}

// tell makes a call that bears nothing but the replica.
func (s *Session) tell(ctx context.Context, sh *shard, l limit, call func(context.Context, transport.Replica) error) error {
	_, err := retry(ctx, sh, l, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, call(ctx, s.replica)
	})
	return err
}

// Describe asks every shard what it holds and whom it has heard of.
func (s *Session) Describe(ctx context.Context) ([]transport.Description, error) {
	out := make([]transport.Description, len(s.shards))
	err := s.each(func(i int, sh *shard) (err error) {
		out[i], err = retry(ctx, sh, s.limit(s.cfg.CallLimit), sh.Describe)
		return err
	})
	return out, err
}

// Close closes the connections. It does not say goodbye: see Leave.
func (s *Session) Close() error {
	var errs []error
	for _, sh := range s.shards {
		errs = append(errs, sh.Close())
	}
	return errors.Join(errs...)
}

// each runs f on every shard at once and returns their errors.
func (s *Session) each(f func(i int, sh *shard) error) error {
	if len(s.shards) == 1 {
		return f(0, s.shards[0])
	}
	errs := make([]error, len(s.shards))
	var wg sync.WaitGroup
	for i, sh := range s.shards {
		wg.Go(func() { errs[i] = f(i, sh) })
	}
	wg.Wait()
	var err error
	for _, e := range errs {
		switch {
		case err == nil:
			err = e
		case e != nil:
			err = fmt.Errorf("%w; %w", err, e)
		}
	}
	return err
}

func (s *Session) limit(total time.Duration) limit {
	return limit{every: s.cfg.WaitEvery, total: total, tell: s.say}
}

// waitLimit bounds the wait for other replicas: the first time, for the chief.
func (s *Session) waitLimit() limit {
	if !s.started {
		return s.limit(s.cfg.StartLimit)
	}
	return s.limit(s.cfg.StepLimit)
}

// say passes a line to OnWait.
func (s *Session) say(line string) {
	if s.cfg.OnWait == nil {
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	s.cfg.OnWait(line)
}
