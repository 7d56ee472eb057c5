package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"pushpull/examples/transfer/race"
)

// The test binary is also the program: whatever it starts has this variable set,
// and is rawrpc.
const asProgram = "RAWRPC_TEST_RUNS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" && !strings.HasPrefix(os.Args[1], "-test.") { // a fuzz worker is a test, too
		main()
	}
	os.Setenv(asProgram, "1")
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // else each child of a race-detecting test takes a second to end
	os.Exit(m.Run())
}

// runMain runs the program here.
func runMain(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

func TestRaceShowsAllSideBySide(t *testing.T) {
	dir := t.TempDir()
	file, picture := filepath.Join(dir, "raw.json"), filepath.Join(dir, "raw.png")
	status, out, errs := runMain(t.Context(), "--total_message=130", "--message_size=70001", "--response_size=1003", "--concurrency=4", "--channels=2",
		"--server_threads=2", "--rounds=2", "--json="+file, "--plot="+picture)
	if status != statusDone {
		t.Fatalf("status %d: %s", status, errs)
	}
	for _, want := range []string{
		`(?m)^130 messages of 70001 bytes, responses of 1003, 4 at once over 2 connections$`, `calls/s +MB/s +ratio +± +p50 µs +p99 µs +CPU s/GB +alloc B/B`,
		`(?m)^tcp +\d.* 1\.000 +0\.000 .*[█-▏]`, `(?m)^grpc raw +\d`, `(?m)^grpc bytes +\d`, `(?m)^grpc floats +\d`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the output has no %s:\n%s", want, out)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report race.Report
	if err := json.Unmarshal(b, &report); err != nil {
		t.Fatal(err)
	}
	for _, row := range report.Results[0].Rows {
		s := row.Samples[1]
		if s.Calls != 130 || s.Bytes != 130*70001 || s.P50 <= 0 || s.P99 < s.P50 || s.Cost.CPUSeconds <= 0 {
			t.Errorf("%s: %+v, want 130 calls, latencies and CPU seconds", row.Name, s)
		}
	}
	if info, err := os.Stat(picture); err != nil || info.Size() == 0 {
		t.Errorf("picture: %v", err)
	}
}

// serve starts a server in this process, and returns its address and what
// stops it.
func serve(t *testing.T, args ...string) (addr string, stop func() error) {
	t.Helper()
	o, err := parse(append([]string{"--job_type=server", "--target_ip=127.0.0.1", "--port=0"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	first := &firstLine{line: make(chan string, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.runServer(ctx, first) }()
	stop = func() error { cancel(); return <-ended }
	select {
	case addr = <-first.line:
	case <-time.After(10 * time.Second):
		t.Fatalf("the server did not start: %v", stop())
	}
	return addr, stop
}

type firstLine struct{ line chan string }

func (f *firstLine) Write(p []byte) (int, error) {
	f.line <- strings.TrimSpace(string(p))
	return len(p), nil
}

func TestClientAndServer(t *testing.T) {
	for _, way := range []string{"--transport=grpc", "--transport=tcp", "--payload=bytes", "--payload=floats"} {
		t.Run(way, func(t *testing.T) {
			addr, stop := serve(t, way, "--message_size=10") // as the original's server is told the size of its responses
			status, out, errs := runMain(t.Context(), "--job_type=client", "--target_ip="+addr, way, "--total_message=70", "--message_size=4099", "--concurrency=3")
			if status != statusDone {
				t.Fatalf("status %d: %s", status, errs)
			}
			for _, want := range []string{`70 messages of 4099 bytes`, `rate: \S+ messages/s, \d+\.\d{6} MB/s`, `latency: p50 \S+ µs, p99 \S+ µs`} {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("the client does not print %s:\n%s", want, out)
				}
			}
			if err := stop(); err != nil {
				t.Errorf("the server ended with %v", err)
			}
		})
	}
}

func TestClientChecksTheLengthOfResponses(t *testing.T) {
	for _, way := range []string{"--transport=grpc", "--transport=tcp"} {
		addr, stop := serve(t, way, "--response_size=9")
		status, _, errs := runMain(t.Context(), "--job_type=client", "--target_ip="+addr, way, "--total_message=3", "--concurrency=2")
		if status != statusFailed || !strings.Contains(errs, "9 bytes, want 10") {
			t.Errorf("%s: status %d: %s, want an error about the response", way, status, errs)
		}
		stop()
	}
}

func TestClientDoesNotWaitForever(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, way := range []string{"--transport=grpc", "--transport=tcp"} {
		status, _, errs := runMain(t.Context(), "--job_type=client", "--target_ip="+silent.Addr().String(), way, "--timeout=300ms")
		if status != statusFailed || !strings.Contains(errs, "--timeout") {
			t.Errorf("%s: status %d: %s, want an error that names the limit", way, status, errs)
		}
	}
}

func TestPatternIsChecked(t *testing.T) {
	whole := newPattern(3*sampled + 1)
	for _, cut := range []int{0, 1, sampled - 1, sampled, sampled + 1, 2 * sampled, len(whole)} {
		pieces := [][]byte{whole[:cut], nil, whole[cut:]}
		for _, all := range []bool{false, true} {
			if err := checkPattern(pieces, len(whole), all); err != nil {
				t.Errorf("cut at %d, all %v: %v", cut, all, err)
			}
		}
		for _, c := range []struct {
			at     int
			caught bool // without looking at all bytes
		}{{0, true}, {1, false}, {sampled, true}, {2*sampled + 5, false}, {3 * sampled, true}} {
			whole[c.at] ^= 0x10
			if err := checkPattern(pieces, len(whole), true); err == nil {
				t.Errorf("byte %d is wrong, cut at %d, and nobody noticed", c.at, cut)
			}
			if err := checkPattern(pieces, len(whole), false); (err != nil) != c.caught {
				t.Errorf("byte %d is wrong, cut at %d: the sample says %v, want an error: %v", c.at, cut, err, c.caught)
			}
			whole[c.at] ^= 0x10
		}
		if checkPattern(pieces, len(whole)+1, false) == nil {
			t.Error("a byte is missing, and nobody noticed")
		}
	}
}

func TestServerRefusesWrongBytes(t *testing.T) {
	r := &responder{response: newPattern(10)}
	wrong := newPattern(100)
	wrong[0] ^= 1
	if _, err := r.respond([][]byte{wrong}); err == nil || !strings.Contains(err.Error(), "not what was sent") {
		t.Errorf("respond to wrong bytes = %v", err)
	}
	answer, err := r.respond(nil)
	if err != nil {
		t.Fatal(err)
	}
	if cost, err := costOf([][]byte{answer[:3], answer[3:]}); err != nil || cost.CPUSeconds <= 0 || cost.AllocBytes == 0 {
		t.Errorf("the answer to an empty message is %+v, %v", cost, err)
	}
}

// decode sends a message through a codec, in pieces.
func decode(t *testing.T, payload string, wire []byte) (*message, error) {
	t.Helper()
	var pieces mem.BufferSlice
	for len(wire) > 0 {
		n := min(len(wire), 1000)
		pieces, wire = append(pieces, mem.SliceBuffer(wire[:n])), wire[n:]
	}
	m := new(message)
	return m, codecOf(payload).Unmarshal(pieces, m)
}

func TestCodecsCarryEveryByte(t *testing.T) {
	for _, payload := range payloads {
		for _, n := range []int{0, 1, 3, 4, 10, 4096, 70001} {
			out, err := codecOf(payload).Marshal(&message{out: newPattern(n)})
			if err != nil {
				t.Fatal(err)
			}
			m, err := decode(t, payload, out.Materialize())
			if err != nil {
				t.Fatalf("%s of %d bytes: %v", payload, n, err)
			}
			if err := checkPattern(m.pieces(), n, true); err != nil {
				t.Errorf("%s of %d bytes: %v", payload, n, err)
			}
			m.free()
		}
	}
}

func TestFloatsAreProtobufs(t *testing.T) {
	b := newPattern(8)
	got, err := floatsCodec{}.Marshal(&message{out: b})
	if err != nil {
		t.Fatal(err)
	}
	want := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), 8)
	for _, x := range floatsOf(b) {
		want = protowire.AppendFixed32(want, math.Float32bits(x))
	}
	if !bytes.Equal(got.Materialize(), want) {
		t.Errorf("two floats are %x on the wire, want %x", got.Materialize(), want)
	}
}

func TestCodecsRefuseWhatIsNoMessage(t *testing.T) {
	for _, payload := range []string{payloadBytes, payloadFloats} {
		for _, wire := range [][]byte{{0xff}, {0x08, 1}, {0x0a, 5, 1}, {0x1a, 0}, {0x0a, 0xff}} {
			if _, err := decode(t, payload, wire); err == nil {
				t.Errorf("%s: % x was taken", payload, wire)
			}
		}
	}
	if _, err := decode(t, payloadFloats, []byte{0x0a, 3, 1, 2, 3}); err == nil {
		t.Error("three bytes were taken for floats")
	}
}

func FuzzCodecs(f *testing.F) {
	f.Add([]byte{0x0a, 4, 1, 2, 3, 4, 0x12, 1, 9})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, wire []byte) {
		for _, payload := range payloads {
			if m, err := decode(t, payload, wire); err == nil {
				m.pieces()
				m.free()
			}
		}
	})
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--job_type=proxy", "--job_type=proxy: want one of server, client"},
		{"extra", `"extra": want flags only`},
		{"--transport=tcp", "--transport with --job_type=: it means nothing there"},
		{"--job_type=server --concurrency=2", "--concurrency with --job_type=server"},
		{"--job_type=client --server_threads=2", "--server_threads with --job_type=client"},
		{"--job_type=client --transport=udp", "--transport=udp: want one of grpc, tcp"},
		{"--job_type=client --transport=tcp --payload=bytes", "--payload=bytes with --transport=tcp"},
		{"--job_type=client --payload=xml", "--payload=xml: want one of raw, bytes, floats"},
		{"--message_size=0", "--message_size=0: want at least 1"},
		{"--server_threads=-1", "--server_threads=-1: want at least 0"},
		{"--plot=x.jpg", "--plot=x.jpg: want a file that ends in .png or .svg"},
	} {
		status, _, errs := runMain(t.Context(), strings.Fields(c.args)...)
		if status != statusUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, says %q, want status %d and %q", c.args, status, errs, statusUsage, c.want)
		}
	}
	if status, out, _ := runMain(t.Context(), "--help"); status != statusDone || !strings.Contains(out, "--target_ip") {
		t.Errorf("--help: status %d", status)
	}
}

func TestAddresses(t *testing.T) {
	for args, want := range map[string]string{
		"--job_type=client":                                "localhost:12222",
		"--job_type=client --target_ip=host1":              "host1:12222",
		"--job_type=client --target_ip=host1:7 --port=8":   "host1:7",
		"--job_type=client --target_ip=::1 --port=8":       "[::1]:8",
		"--job_type=server --server_threads=1":             ":12222",
		"--job_type=server --target_ip=10.0.0.1 --port=80": "10.0.0.1:80",
	} {
		o, err := parse(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if got := o.addr(); got != want {
			t.Errorf("%s: address %s, want %s", args, got, want)
		}
	}
}
