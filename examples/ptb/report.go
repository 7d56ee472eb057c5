package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// A report is what --report writes at the end: the run as one worker saw it.
type report struct {
	Started    time.Time         `json:"started"`
	Seconds    float64           `json:"seconds"`
	Flags      map[string]string `json:"flags"` // as given
	Versions   versions          `json:"versions"`
	Machine    machine           `json:"machine"`
	Task       string            `json:"task"` // as in "worker/0"
	Job        jobReport         `json:"job"`
	Corpus     corpusReport      `json:"corpus"`
	Epochs     []epochReport     `json:"epochs"` // of this process; those before a restart are missing
	Test       *testReport       `json:"test,omitempty"`
	Phases     phases            `json:"phases"`
	Steps      int64             `json:"steps"`       // the worker's
	GlobalStep int64             `json:"global_step"` // the servers'
	Examples   int64             `json:"examples"`    // words seen by the servers, from all workers
	Verdicts   []verdictReport   `json:"verdicts"`
}

type versions struct {
	Pushpull string `json:"pushpull"` // version control revision, or "unknown"
	Go       string `json:"go"`
	Gorgonia string `json:"gorgonia"`
	GRPC     string `json:"grpc"`
}

type machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPU  string `json:"cpu"` // its model, or "unknown"
	CPUs int    `json:"cpus"`
}

type jobReport struct {
	Policy      string            `json:"policy"`
	Transport   string            `json:"transport"`
	Encoding    string            `json:"encoding"`
	Engine      string            `json:"engine"`
	Threads     int               `json:"threads"`
	Settings    map[string]string `json:"settings"`      // what all processes agreed on
	ShardBytes  []int             `json:"shard_bytes"`   // weights, by server
	MaxOverMean float64           `json:"max_over_mean"` // of the shards' bytes
}

type corpusReport struct {
	Name       string `json:"name"`
	Standard   bool   `json:"standard_ptb"`
	Train      int    `json:"train_words"` // of all workers
	Share      int    `json:"share_words"` // of this one
	Valid      int    `json:"valid_words"`
	Test       int    `json:"test_words"`
	Vocabulary int    `json:"vocabulary"`
	Unknown    int    `json:"unknown_words"`
}

type epochReport struct {
	Epoch           int     `json:"epoch"` // from 1
	LearningRate    float64 `json:"learning_rate"`
	TrainPerplexity number  `json:"train_perplexity"`
	ValidPerplexity *number `json:"valid_perplexity,omitempty"` // the chief's
	Steps           int     `json:"steps"`
	Words           int     `json:"words"`
	Examples        int64   `json:"examples_seen"` // by the servers, from all workers, at the end of the epoch
	Seconds         float64 `json:"seconds"`       // without evaluation
	WordsPerSecond  number  `json:"words_per_second"`
	ValidSeconds    float64 `json:"valid_seconds,omitempty"`
}

type testReport struct {
	Perplexity number  `json:"perplexity"`
	Seconds    float64 `json:"seconds"`
}

// phases are where the worker's time and bytes went.
type phases struct {
	PullSeconds    float64 `json:"pull_seconds"` // waiting for other replicas included
	ComputeSeconds float64 `json:"compute_seconds"`
	PushSeconds    float64 `json:"push_seconds"`
	PullBytes      int64   `json:"pull_bytes"` // of data and row numbers
	PushBytes      int64   `json:"push_bytes"`
}

// A verdictReport counts what one server said to the pushes of one worker.
type verdictReport struct {
	Server   string           `json:"server"` // as in "ps/0"
	Worker   string           `json:"worker"`
	Examples int64            `json:"examples"`
	Verdicts map[string]int64 `json:"verdicts"`
}

// A number is a float64 that JSON may not be able to hold: it has no infinity
// and no NaN, which become null.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// write puts the report into a file.
func (r *report) write(path string) error {
	return writeFile(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	})
}

func readVersions() versions {
	v := versions{Pushpull: "unknown", Go: runtime.Version(), Gorgonia: "unknown", GRPC: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Pushpull = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			v.Pushpull += " and changes" // comes after the revision
		}
	}
	for _, d := range info.Deps {
		switch d.Path {
		case "gorgonia.org/gorgonia":
			v.Gorgonia = d.Version
		case "google.golang.org/grpc":
			v.GRPC = d.Version
		}
	}
	return v
}

// String is what --version prints.
func (v versions) String() string {
	return fmt.Sprintf("ptb (pushpull %s), %s, gorgonia %s, grpc %s", v.Pushpull, v.Go, v.Gorgonia, v.GRPC)
}

func readMachine() machine {
	return machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.NumCPU()}
}

// cpuModel returns what the system calls its CPU, where it says so in a file.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
