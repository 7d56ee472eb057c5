package ps

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"pushpull/transport"
)

// Config says what a shard is and how its server behaves. A [Shard] alone
// reads the fields down to Schedule, and whether checkpoints are written.
type Config struct {
	Task  int // index of this parameter server, from 0
	Tasks int // parameter servers in the job; 0 means 1

	// Replicas is the number of expected replicas: the worker tasks 0 to
	// Replicas-1.
	Replicas int
	// Settings are what every replica and every checkpoint must agree on, name by
	// name.
	Settings  []transport.Setting
	Policy    Policy
	Optimizer Optimizer
	Schedule  Schedule

	Checkpoint Checkpoint

	// MaxWait is how long one Pull may wait. 0 means 10 s.
	MaxWait time.Duration
	// Linger is how long Run waits, once training is over, for a call of a replica
	// that has not left: one that says it is still there is waited for again.
	// 0 means 30 s.
	Linger time.Duration
	// IdleLimit is how long Run bears that nobody calls before training is over.
	// 0 means 10 min, negative means for ever.
	IdleLimit time.Duration

	// Metrics takes the server's metrics. Servers of one process need registerers
	// that tell them apart, as by prometheus.WrapRegistererWith. Nil means that
	// nobody collects them.
	Metrics prometheus.Registerer
	Log     *slog.Logger // nil means that nobody reads it
}

// Checkpoint says where and how often a server saves its shard. The zero value
// saves nothing.
type Checkpoint struct {
	// Dir holds the files of all parameter servers of one job; it is made if it
	// does not exist. Empty means that nothing is saved or restored.
	Dir string
	// Every is the number of steps between saves. 0 means that only the end is
	// saved.
	Every int64
	// Keep is how many of a server's checkpoints stay in Dir, the newest. 0 keeps
	// all.
	Keep int
}

const (
	defaultMaxWait   = 10 * time.Second
	defaultLinger    = 30 * time.Second
	defaultIdleLimit = 10 * time.Minute
)

// withDefaults returns cfg with the documented values in place of zeros, or
// what is wrong with it.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Tasks == 0 {
		cfg.Tasks = 1
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = defaultMaxWait
	}
	if cfg.Linger == 0 {
		cfg.Linger = defaultLinger
	}
	if cfg.IdleLimit == 0 {
		cfg.IdleLimit = defaultIdleLimit
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return cfg, cfg.validate()
}

func (cfg Config) validate() error {
	switch {
	case cfg.Tasks < 1:
		return fmt.Errorf("ps: Tasks is %d: want at least 1", cfg.Tasks)
	case cfg.Task < 0 || cfg.Task >= cfg.Tasks:
		return fmt.Errorf("ps: Task is %d: want 0 to %d", cfg.Task, cfg.Tasks-1)
	case cfg.Replicas < 1:
		return fmt.Errorf("ps: Replicas is %d: want at least 1", cfg.Replicas)
	case cfg.Optimizer == nil:
		return errors.New("ps: Optimizer is nil: want one, as SGD{}")
	case cfg.Schedule == nil:
		return errors.New("ps: Schedule is nil: want one, as Constant(1)")
	case cfg.Checkpoint.Every < 0:
		return fmt.Errorf("ps: Checkpoint.Every is %d: want at least 0", cfg.Checkpoint.Every)
	case cfg.Checkpoint.Keep < 0:
		return fmt.Errorf("ps: Checkpoint.Keep is %d: want at least 0", cfg.Checkpoint.Keep)
	case cfg.Checkpoint.Every > 0 && cfg.Checkpoint.Dir == "":
		return fmt.Errorf("ps: Checkpoint.Every is %d but Checkpoint.Dir is empty: want a directory", cfg.Checkpoint.Every)
	case cfg.MaxWait < 0:
		return fmt.Errorf("ps: MaxWait is %v: want at least 0", cfg.MaxWait)
	case cfg.Linger < 0:
		return fmt.Errorf("ps: Linger is %v: want at least 0", cfg.Linger)
	}
	if r := cfg.Schedule.At(0); !(r >= 0 && r <= math.MaxFloat32) {
		return fmt.Errorf("ps: Schedule gives a learning rate of %v: want a finite one, not negative", r)
	}
	if name := repeatedName(cfg.Settings); name != "" {
		return fmt.Errorf("ps: Settings has %q twice: want each name once", name)
	}
	for _, s := range cfg.Settings {
		if !utf8.ValidString(s.Name) || !utf8.ValidString(s.Value) {
			return fmt.Errorf("ps: Settings has %q=%q: want valid UTF-8", s.Name, s.Value)
		}
	}
	return cfg.Policy.validate()
}

// repeatedName returns a name that settings has more than once, "" if none.
func repeatedName(settings []transport.Setting) string {
	seen := make(map[string]bool, len(settings))
	for _, s := range settings {
		if seen[s.Name] {
			return s.Name
		}
		seen[s.Name] = true
	}
	return ""
}

// mismatch compares settings name by name. It returns the first name on which
// they differ and both values, quoted or "nothing"; ok is true if they agree.
func mismatch(ours, theirs []transport.Setting) (name, our, their string, ok bool) {
	value := func(in []transport.Setting, name string) string {
		for _, s := range in {
			if s.Name == name {
				return fmt.Sprintf("%q", s.Value)
			}
		}
		return "nothing"
	}
	for _, in := range [][]transport.Setting{ours, theirs} {
		for _, s := range in {
			our, their := value(ours, s.Name), value(theirs, s.Name)
			if our != their {
				return s.Name, our, their, false
			}
		}
	}
	return "", "", "", true
}
