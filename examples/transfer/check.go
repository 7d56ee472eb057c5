package main

import (
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pushpull/examples/transfer/race"
	"pushpull/transport"
)

// validate refuses flags that make no sense, alone or together, and fills in
// what was left to a default. given says whether a flag was on the command line.
func (o *options) validate(given func(flag string) bool) error {
	if err := oneOf("job", o.job, "", "ps", "worker"); err != nil {
		return err
	}
	if err := oneOf("direction", o.direction, push, pull, both); err != nil {
		return err
	}
	if err := oneOf("encoding", o.encodingName, encodings()...); err != nil {
		return err
	}
	o.encoding = transport.Encodings[slices.Index(encodings(), o.encodingName)]
	if o.timeout <= 0 {
		return usagef("--timeout=%v: want more than 0", o.timeout)
	}
	for _, name := range o.transports {
		if wayOf(name) == nil {
			return usagef("--transport=%s: there is no such way; --help lists them", name)
		}
	}
	if err := o.validateData(given); err != nil {
		return err
	}
	if ending := strings.TrimPrefix(filepath.Ext(o.plot), "."); o.plot != "" && !slices.Contains(race.PlotFormats, ending) {
		return usagef("--plot=%s: want a file that ends in .%s", o.plot, strings.Join(race.PlotFormats, " or ."))
	}
	if o.job == "" {
		return o.validateRace(given)
	}
	return o.validateJob(given)
}

func (o *options) validateData(given func(string) bool) error {
	if o.dataMB < 1 {
		return usagef("--data_mb=%d: want at least 1", o.dataMB)
	}
	if o.iters < 1 {
		return usagef("--iters=%d: want at least 1", o.iters)
	}
	switch {
	case o.job != "" || given("data_mb") && !given("sizes"):
		o.sizes = []int64{int64(o.dataMB) * 1e6}
	case given("data_mb"):
		return usagef("--data_mb with --sizes: want one of them")
	case len(o.sizeTexts) == 0:
		return usagef("--sizes=: want at least one")
	default:
		for _, text := range o.sizeTexts {
			n, err := parseSize(text)
			if err != nil {
				return err
			}
			o.sizes = append(o.sizes, n)
		}
	}
	for _, n := range o.sizes {
		if o.tensors < 1 || int64(o.tensors) > n/4 {
			return usagef("--tensors=%d: want 1 to %d, the elements of %d bytes", o.tensors, n/4, n)
		}
	}
	return nil
}

// parseSize reads a number of bytes.
func parseSize(text string) (int64, error) {
	digits, shift := text, 0
	if i := strings.IndexByte("KMG", (text + " ")[max(0, len(text)-1)]); i >= 0 {
		digits, shift = text[:len(text)-1], 10*(i+1)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > 1<<40>>shift || n<<shift%4 != 0 {
		return 0, usagef("--sizes=%s: want a multiple of 4 bytes up to 1024G, as in 64K or 100M", text)
	}
	return n << shift, nil
}

func (o *options) validateRace(given func(string) bool) error {
	for _, name := range []string{"task", "worker_hosts", "iters", "attached"} {
		if given(name) {
			return usagef("--%s without --job: want --job=ps or --job=worker beside it", name)
		}
	}
	o.launcher = strings.Fields(o.psCommand)
	if given("ps_hosts") != (len(o.launcher) > 0) || len(o.launcher) > 0 && len(o.psHosts) != 1 {
		return usagef("--ps_hosts=%s without --job: want one, with --ps_command, and that only with --ps_hosts", strings.Join(o.psHosts, ","))
	}
	if o.rounds < 1 {
		return usagef("--rounds=%d: want at least 1", o.rounds)
	}
	if !(o.seconds > 0) || o.seconds > 3600 {
		return usagef("--seconds=%v: want more than 0, and no more than an hour", o.seconds)
	}
	if o.check {
		if o.encoding != transport.Float32 || given("direction") && o.direction != both {
			return usagef("--check with --encoding=%v --direction=%s: the marks are for float32 in both directions", o.encoding, o.direction)
		}
		o.direction = both
	}
	if !given("congestion") && race.DefaultCongestion() != "" {
		o.congestion = "cubic"
	}
	return nil
}

func (o *options) validateJob(given func(string) bool) error {
	for _, name := range []string{"sizes", "rounds", "seconds", "check", "ps_command"} {
		if given(name) {
			return usagef("--%s with --job=%s: want it only without --job", name, o.job)
		}
	}
	if o.job == "ps" {
		for _, name := range []string{"data_mb", "iters", "tensors", "direction", "encoding", "json", "plot"} {
			if given(name) {
				return usagef("--%s with --job=ps: want it with --job=worker, which tells the ps", name)
			}
		}
	}
	if len(o.transports) == 0 {
		o.transports = []string{"grpc"}
	}
	if w := wayOf(o.transports[0]); len(o.transports) > 1 || w.make == nil || w.reach == sameProcess {
		return usagef("--transport=%s with --job=%s: want one that goes from process to process", strings.Join(o.transports, ","), o.job)
	}
	for name, hosts := range map[string][]string{"ps_hosts": o.psHosts, "worker_hosts": o.workerHosts} {
		for _, h := range hosts {
			if _, port, err := net.SplitHostPort(h); (err != nil || port == "") && !strings.HasPrefix(h, "unix:///") {
				return usagef("--%s=%s: %q: want host:port, or unix:///path for a socket", name, strings.Join(hosts, ","), h)
			}
		}
	}
	hosts := map[string][]string{"ps": o.psHosts, "worker": o.workerHosts}[o.job]
	if o.task < 0 || o.task >= len(hosts) {
		return usagef("--task=%d: want 0 to %d, for --%s_hosts lists %d", o.task, len(hosts)-1, o.job, len(hosts))
	}
	if o.job == "worker" && o.tensors < len(o.psHosts) {
		return usagef("--tensors=%d for %d parameter servers: want at least one for each", o.tensors, len(o.psHosts))
	}
	return nil
}

// encodings lists the names of all there are.
func encodings() []string {
	var names []string
	for _, e := range transport.Encodings {
		names = append(names, e.String())
	}
	return names
}

// directions lists what --direction asks for.
func (o *options) directions() []string {
	if o.direction == both {
		return []string{push, pull}
	}
	return []string{o.direction}
}

// oneOf checks a flag whose values are few.
func oneOf(flag, value string, want ...string) error {
	if slices.Contains(want, value) {
		return nil
	}
	named := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return s == "" })
	return usagef("--%s=%s: want one of %s", flag, value, strings.Join(named, ", "))
}
