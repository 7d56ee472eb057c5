package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"pushpull/examples/transfer/race"
)

// Transports.
const (
	overGRPC = "grpc"
	overTCP  = "tcp"
)

// options are the flags, in groups.
type options struct {
	// Who and where.
	jobType   string // "server", "client", or "" for a race of both sides
	targetIP  string
	port      int
	transport string
	payload   string
	timeout   time.Duration
	attached  bool

	// What is sent.
	totalMessage  int
	messageSize   int
	responseSize  int
	concurrency   int
	channels      int
	serverThreads int
	congestion    string
	rounds        int

	// Who is told.
	json, plot string
}

// A usageError reports flags that make no sense: the program ends with status 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// A group is some flags under a title.
type group struct {
	title string
	flags *pflag.FlagSet
}

func (o *options) groups() []group {
	var gs []group
	add := func(title string) *pflag.FlagSet {
		fs := pflag.NewFlagSet(title, pflag.ContinueOnError)
		fs.SortFlags = false
		gs = append(gs, group{title, fs})
		return fs
	}

	fs := add("Who and where")
	fs.StringVar(&o.jobType, "job_type", "", "what this process is, `server|client`; without it, both sides are started here, over every transport in turn")
	fs.StringVar(&o.targetIP, "target_ip", "localhost", "`host` or host:port of the server; with --job_type=server, where to listen, default all interfaces")
	fs.IntVar(&o.port, "port", 12222, "`port` of the server, where --target_ip has none")
	fs.StringVar(&o.transport, "transport", overGRPC, "what carries messages, `grpc|tcp`; tcp is the plain baseline. Both sides need the same")
	fs.StringVar(&o.payload, "payload", payloadRaw, "how a message's bytes stand in gRPC's, `raw|bytes|floats`: as they are, or in a protobuf field of type bytes or repeated float. Both sides need the same")
	fs.DurationVar(&o.timeout, "timeout", time.Minute, "how long the client waits for the server, to come and to answer")
	fs.BoolVar(&o.attached, "attached", false, "with --job_type: end when standard input ends; for programs that start this one")

	fs = add("What is sent")
	fs.IntVar(&o.totalMessage, "total_message", 200, "`messages` to send")
	fs.IntVar(&o.messageSize, "message_size", 1<<20, "`bytes` in each; with --job_type=server the same as --response_size")
	fs.IntVar(&o.responseSize, "response_size", 10, "`bytes` in each response. The server sends so many, the client checks it: give both the same")
	fs.IntVar(&o.concurrency, "concurrency", 1, "`calls` under way at once")
	fs.IntVar(&o.channels, "channels", 1, "`connections` that the calls are spread over")
	fs.IntVar(&o.serverThreads, "server_threads", 0, "`threads` that run the server's code, and with gRPC the goroutines kept to serve calls; 0 means one for each CPU, and a goroutine for each call")
	fs.StringVar(&o.congestion, "congestion", "", "congestion `control` for the TCP sockets; default the system's with --job_type, cubic without")
	fs.IntVar(&o.rounds, "rounds", 3, "without --job_type: `times` to run all of them, in alternating order")

	fs = add("Who is told")
	fs.StringVar(&o.json, "json", "", "`file` for the figures of every round")
	fs.StringVar(&o.plot, "plot", "", "`file` for a picture, .png or .svg")
	return gs
}

// parse reads the command line. The error is pflag.ErrHelp if it asks for
// help, else a usageError.
func parse(args []string) (*options, error) {
	o := &options{}
	fs := pflag.NewFlagSet("rawrpc", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	for _, g := range o.groups() {
		fs.AddFlagSet(g.flags)
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, usagef("%v", err)
	}
	if fs.NArg() > 0 {
		return nil, usagef("%q: want flags only, as in --message_size=1048576", fs.Arg(0))
	}
	return o, o.validate(fs.Changed)
}

// validate refuses flags that make no sense, alone or together, and fills in
// what was left to a default. given says whether a flag was on the command line.
func (o *options) validate(given func(flag string) bool) error {
	for _, f := range []struct {
		flag, value string
		want        []string
	}{
		{"job_type", o.jobType, []string{"", "server", "client"}},
		{"transport", o.transport, []string{overGRPC, overTCP}},
		{"payload", o.payload, payloads},
	} {
		if !slices.Contains(f.want, f.value) {
			return usagef("--%s=%s: want one of %s", f.flag, f.value, strings.TrimPrefix(strings.Join(f.want, ", "), ", "))
		}
	}
	for _, f := range []struct {
		flag        string
		value, want int
	}{
		{"total_message", o.totalMessage, 1}, {"message_size", o.messageSize, 1}, {"response_size", o.responseSize, 1}, {"concurrency", o.concurrency, 1},
		{"channels", o.channels, 1}, {"rounds", o.rounds, 1}, {"port", o.port, 0}, {"server_threads", o.serverThreads, 0},
	} {
		if f.value < f.want {
			return usagef("--%s=%d: want at least %d", f.flag, f.value, f.want)
		}
	}
	if o.transport == overTCP && o.payload != payloadRaw {
		return usagef("--payload=%s with --transport=tcp: want raw, which is all that plain TCP knows", o.payload)
	}
	if o.timeout <= 0 {
		return usagef("--timeout=%v: want more than 0", o.timeout)
	}
	if ending := strings.TrimPrefix(filepath.Ext(o.plot), "."); o.plot != "" && !slices.Contains(race.PlotFormats, ending) {
		return usagef("--plot=%s: want a file that ends in .%s", o.plot, strings.Join(race.PlotFormats, " or ."))
	}
	refuse := map[string][]string{
		"":       {"target_ip", "port", "transport", "payload", "attached"},
		"server": {"total_message", "concurrency", "channels", "timeout", "rounds", "json", "plot"},
		"client": {"server_threads", "rounds"},
	}
	for _, flag := range refuse[o.jobType] {
		if given(flag) {
			return usagef("--%s with --job_type=%s: it means nothing there", flag, o.jobType)
		}
	}
	if o.jobType == "server" && given("message_size") && !given("response_size") {
		o.responseSize = o.messageSize
	}
	if o.jobType == "server" && !given("target_ip") {
		o.targetIP = ""
	}
	if o.jobType == "" && !given("congestion") && race.DefaultCongestion() != "" {
		o.congestion = "cubic"
	}
	return nil
}

// addr returns where the server is, or listens.
func (o *options) addr() string {
	if _, _, err := net.SplitHostPort(o.targetIP); err == nil {
		return o.targetIP
	}
	return net.JoinHostPort(o.targetIP, fmt.Sprint(o.port))
}

// help returns the text of --help.
func help() string {
	var b strings.Builder
	b.WriteString(`rawrpc measures how fast gRPC moves bare bytes, and plain TCP the same bytes, with nothing of pushpull above them. gRPC
has its default options, but for the largest message.

  rawrpc                                        both sides on this machine, over every transport
  rawrpc --job_type=server                      the server; it runs until it is interrupted
  rawrpc --job_type=client --target_ip=HOST     the client

MB is 1,000,000 bytes, of requests. Lengths and a sample of the bytes are checked in every message, all bytes in one of 64.
It ends with status 0 when all went well, 1 when something failed, 2 when the flags make no sense.
`)
	for _, g := range (&options{}).groups() {
		fmt.Fprintf(&b, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(120))
	}
	return b.String()
}
