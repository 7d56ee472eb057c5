package ps_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pushpull/ps"
	"pushpull/transport"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestScripts runs the scripts in testdata. A script is a sequence of blocks
// that are separated by empty lines: commands, four dashes, and what they print.
// Lines that begin with # are comments. The commands, with their defaults:
//
//	shard replicas=1 policy=async optimizer=sgd rate=1 set=
//	join TASK life=1 steps=0 examples=0 epoch=0 set=
//	init PART...
//	push TASK life=1 seq=NEXT step=CURRENT examples=1 cursor= PART...
//	pull PART...
//	finish TASK life=1
//	leave TASK life=1
//	describe
//	save NAME
//	restore NAME
//
// A policy is async, sync:N, bounded:K or any:AGGREGATE:STALENESS. A rate is one
// number, or RATE:FACTOR:HOLD. A PART is VARIABLE[@OFFSET][/WIDTH][[ROW,...]]=X,...
// with a number of elements in place of the elements for pull.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// runScript returns a script with what its commands print.
func runScript(t *testing.T, text string) string {
	t.Helper()
	r := &runner{t: t, saved: make(map[string][]byte), seq: make(map[transport.Replica]uint64)}
	var blocks []string
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var b strings.Builder
		printed := false
		var outputs []string
		for line := range strings.SplitSeq(block, "\n") {
			if line == "----" {
				break
			}
			b.WriteString(line + "\n")
			if !strings.HasPrefix(line, "#") {
				outputs = append(outputs, r.run(line))
				printed = true
			}
		}
		if printed {
			b.WriteString("----\n" + strings.Join(outputs, "\n") + "\n")
		}
		blocks = append(blocks, b.String())
	}
	return strings.Join(blocks, "\n")
}

type runner struct {
	t     *testing.T
	cfg   ps.Config
	shard *ps.Shard
	saved map[string][]byte
	seq   map[transport.Replica]uint64
}

// run carries out one command and returns what it prints.
func (r *runner) run(line string) string {
	r.t.Helper()
	words := strings.Fields(line)
	c := command{t: r.t, line: line, options: make(map[string]string)}
	for _, word := range words[1:] {
		name, value, isOption := strings.Cut(word, "=")
		switch {
		case isOption && slices.Contains(optionNames, name):
			c.options[name] = value
		default:
			c.args = append(c.args, word)
		}
	}
	out, err := r.do(words[0], c)
	if err != nil {
		return err.Error()
	}
	return out
}

var optionNames = []string{"replicas", "policy", "optimizer", "rate", "set", "life", "steps", "examples", "epoch", "seq", "step", "cursor"}

func (r *runner) do(verb string, c command) (string, error) {
	if verb == "shard" {
		r.cfg = c.config()
		return r.create()
	}
	if r.shard == nil {
		r.t.Fatalf("%q: no shard yet", c.line)
	}
	before := r.shard.Status()
	switch verb {
	case "join":
		welcome, err := r.shard.Join(transport.Hello{
			Replica:  c.replica(),
			Settings: c.settings(),
			Plan:     transport.Plan{EpochExamples: c.number("epoch", 0), Examples: c.number("examples", 0), Steps: c.number("steps", 0)},
		})
		if err != nil {
			return "", err
		}
		out := fmt.Sprintf("step %d", welcome.Step)
		if welcome.Seq > 0 {
			out += fmt.Sprintf(", go on after push %d at %q", welcome.Seq, welcome.Cursor)
		}
		return out + ended(before, r.shard.Status()), nil
	case "init":
		err := r.shard.Init(c.parts(0))
		return fmt.Sprintf("step %d", r.shard.Status().Step), err
	case "push":
		id := c.replica()
		p := transport.Push{
			Replica:  id,
			Seq:      uint64(c.number("seq", int64(r.seq[id]+1))),
			Step:     c.number("step", before.Step),
			Examples: c.number("examples", 1),
		}
		if cursor, ok := c.options["cursor"]; ok {
			p.Cursor = []byte(cursor)
		}
		verdict, err := r.shard.Push(p, c.parts(1))
		if err != nil {
			return "", err
		}
		r.seq[id] = max(r.seq[id], p.Seq)
		return verdict.String() + moved(before, r.shard.Status()), nil
	case "pull":
		dst := c.parts(0)
		for i := range dst {
			dst[i].Data = make([]float32, int(dst[i].Data[0]))
		}
		status, err := r.shard.Pull(dst)
		if err != nil {
			return "", err
		}
		out := fmt.Sprintf("step %d, rate %g:", status.Step, status.LearningRate)
		for _, p := range dst {
			out += fmt.Sprintf(" %s=%v", p.Variable, p.Data)
		}
		return out, nil
	case "finish":
		err := r.shard.Finish(c.replica())
		return "ok" + moved(before, r.shard.Status()), err
	case "leave":
		err := r.shard.Leave(c.replica())
		return "ok" + moved(before, r.shard.Status()), err
	case "describe":
		return describe(r.shard.Describe()), nil
	case "save":
		var b bytes.Buffer
		err := r.shard.Save(&b)
		r.saved[c.args[0]] = b.Bytes()
		return "ok", err
	case "restore":
		err := r.shard.Restore(bytes.NewReader(r.saved[c.args[0]]))
		return fmt.Sprintf("step %d", r.shard.Status().Step), err
	}
	r.t.Fatalf("%q: unknown command", c.line)
	return "", nil
}

func (r *runner) create() (string, error) {
	shard, err := ps.NewShard(r.cfg)
	if err != nil {
		return "", err
	}
	r.shard = shard
	return fmt.Sprintf("step %d", shard.Status().Step), nil
}

// moved says what a call changed in the shard's step.
func moved(before, after transport.Status) string {
	var out string
	if after.Step != before.Step {
		out = fmt.Sprintf(", step %d", after.Step)
	}
	return out + ended(before, after)
}

func ended(before, after transport.Status) string {
	if after.Done && !before.Done {
		return ", training is over"
	}
	return ""
}

func describe(d transport.Description) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: step %d, %d examples, done %v", d.Task, d.Status.Step, d.Status.Examples, d.Status.Done)
	for _, s := range d.Settings {
		fmt.Fprintf(&b, "\nsetting %s=%s", s.Name, s.Value)
	}
	for _, e := range d.Extents {
		fmt.Fprintf(&b, "\n%s[%d:%d] width %d", e.Variable, e.Offset, e.Offset+e.Length, e.Width)
	}
	for _, r := range d.Replicas {
		fmt.Fprintf(&b, "\nworker/%d: joined %v, finished %v, left %v, %d examples", r.Task, r.Joined, r.Finished, r.Left, r.Examples)
		for _, v := range slices.Sorted(maps.Keys(r.Verdicts)) {
			fmt.Fprintf(&b, ", %d %s", r.Verdicts[v], v)
		}
	}
	return b.String()
}

// command is one line of a script.
type command struct {
	t       *testing.T
	line    string
	args    []string
	options map[string]string
}

func (c command) number(option string, def int64) int64 {
	text, ok := c.options[option]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		c.t.Fatalf("%q: %v", c.line, err)
	}
	return n
}

func (c command) replica() transport.Replica {
	task, err := strconv.Atoi(c.args[0])
	if err != nil {
		c.t.Fatalf("%q: %v", c.line, err)
	}
	return transport.Replica{Task: task, Life: uint64(c.number("life", 1))}
}

func (c command) settings() []transport.Setting {
	var settings []transport.Setting
	for word := range strings.SplitSeq(c.options["set"], ",") {
		if name, value, ok := strings.Cut(word, ":"); ok {
			settings = append(settings, transport.Setting{Name: name, Value: value})
		}
	}
	return settings
}

func (c command) config() ps.Config {
	cfg := ps.Config{
		Replicas:  int(c.number("replicas", 1)),
		Settings:  c.settings(),
		Policy:    ps.Async(),
		Optimizer: ps.SGD{},
		Schedule:  ps.Constant(1),
	}
	if policy, ok := c.options["policy"]; ok {
		words := strings.Split(policy, ":")
		var n [2]int64
		for i, word := range words[1:] {
			n[i], _ = strconv.ParseInt(word, 10, 64)
		}
		switch words[0] {
		case "sync":
			cfg.Policy = ps.Sync(int(n[0]))
		case "bounded":
			cfg.Policy = ps.Policy{Aggregate: 1, MaxStaleness: n[0]}
		case "any":
			cfg.Policy = ps.Policy{Aggregate: int(n[0]), MaxStaleness: n[1]}
		}
	}
	for _, opt := range optimizers {
		if opt.Name() == c.options["optimizer"] {
			cfg.Optimizer = opt
		}
	}
	if rate, ok := c.options["rate"]; ok {
		var d ps.Decay
		if n, _ := fmt.Sscanf(rate, "%g:%g:%d", &d.Rate, &d.Factor, &d.Hold); n == 3 {
			cfg.Schedule = d
		} else {
			cfg.Schedule = ps.Constant(d.Rate)
		}
	}
	return cfg
}

// parts parses the arguments from number from on.
func (c command) parts(from int) []transport.Part {
	var parts []transport.Part
	for _, word := range c.args[from:] {
		name, data, _ := strings.Cut(word, "=")
		var p transport.Part
		if before, rows, ok := strings.Cut(name, "["); ok {
			name, p.Rows = before, []int32{}
			for row := range strings.SplitSeq(strings.TrimSuffix(rows, "]"), ",") {
				n, err := strconv.Atoi(row)
				if err != nil {
					c.t.Fatalf("%q: %v", c.line, err)
				}
				p.Rows = append(p.Rows, int32(n))
			}
		}
		if before, width, ok := strings.Cut(name, "/"); ok {
			name = before
			p.Width, _ = strconv.Atoi(width)
		}
		if before, offset, ok := strings.Cut(name, "@"); ok {
			name = before
			p.Offset, _ = strconv.Atoi(offset)
		}
		p.Variable = name
		for x := range strings.SplitSeq(data, ",") {
			f, err := strconv.ParseFloat(x, 32)
			if err != nil {
				c.t.Fatalf("%q: %v", c.line, err)
			}
			p.Data = append(p.Data, float32(f))
		}
		parts = append(parts, p)
	}
	return parts
}
