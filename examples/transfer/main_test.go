package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pushpull/examples/transfer/race"
)

// The test binary is also the program: whatever it starts has this variable set,
// and is transfer.
const asProgram = "TRANSFER_TEST_RUNS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" && !strings.HasPrefix(os.Args[1], "-test.") { // a fuzz worker is a test, too
		main()
	}
	os.Setenv(asProgram, "1")
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // else each child of a race-detecting test takes a second to end
	os.Exit(m.Run())
}

// runMain runs the program here.
func runMain(t *testing.T, ctx context.Context, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(ctx, args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

func TestRaceOfTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	file, picture := filepath.Join(dir, "race.json"), filepath.Join(dir, "race.svg")
	status, out, errs := runMain(t, t.Context(), "--transport=inproc,memcpy,grpc", "--sizes=4,64K", "--tensors=1", "--rounds=2", "--seconds=0.05",
		"--direction=both", "--json="+file, "--plot="+picture)
	if status != statusDone {
		t.Fatalf("status %d: %s", status, errs)
	}
	for _, want := range []string{
		`(?m)^push 4$`, `(?m)^pull 64K$`, `congestion control \w+`, `(?m)^ +MB/s +ratio +±  µs/call  CPU s/GB  alloc B/B$`,
		`(?m)^plain +\d+(\.\d+)? +1\.000 +0\.000 .*[█-▏]`, `(?m)^memcpy .*\d`, `(?m)^inproc .*\d`, `(?m)^grpc .*\d`,
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
	if len(report.Results) != 4 {
		t.Fatalf("%d results, want two sizes in two directions", len(report.Results))
	}
	for _, r := range report.Results {
		for _, row := range r.Rows {
			if len(row.Samples) != 2 || row.MBs <= 0 || row.Ratio <= 0 {
				t.Errorf("%s: row %+v, want two samples", r.Title, row)
			}
		}
		if grpc := r.Row("grpc"); grpc == nil || grpc.CPUPerGB <= 0 {
			t.Errorf("%s: grpc used no CPU: %+v", r.Title, grpc)
		}
	}
	if b, err := os.ReadFile(picture); err != nil || !bytes.Contains(b, []byte("push 64K")) {
		t.Errorf("picture of %d bytes: %v", len(b), err)
	}
}

func TestRaceWithAPSElsewhere(t *testing.T) {
	status, out, errs := runMain(t, t.Context(), "--ps_command=env "+asProgram+"=elsewhere", "--ps_hosts=127.0.0.2:0", "--transport=grpc,tcp,shm,memcpy",
		"--sizes=4K", "--rounds=1", "--seconds=0.05")
	if status != statusDone || !regexp.MustCompile(`(?m)^grpc +\d`).MatchString(out) || strings.Contains(out, "shm") || strings.Contains(out, "memcpy") {
		t.Errorf("status %d (%s), want grpc and tcp to race, and no way that cannot leave the host:\n%s", status, errs, out)
	}
}

func TestRaceStopsWhenItIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	status, _, errs := runMain(t, ctx, "--transport=grpc", "--sizes=64K", "--seconds=600")
	if took := time.Since(start); status != statusFailed || !strings.Contains(errs, "stopped") || took > 20*time.Second {
		t.Errorf("after %v status %d: %s, want that it stopped", took, status, errs)
	}
}

// aPort returns an address where nobody listens.
func aPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestJobPrintsTheRateAndThePSEndsByItself(t *testing.T) {
	for _, transport := range []string{"grpc", "tcp", plainTCP} {
		t.Run(transport, func(t *testing.T) {
			hosts := []string{"--ps_hosts=" + aPort(t) + "," + aPort(t), "--worker_hosts=localhost:1,localhost:2", "--transport=" + transport, "--timeout=20s"}
			var servers []*exec.Cmd
			for _, task := range []string{"0", "1"} {
				ps := exec.CommandContext(t.Context(), os.Args[0], append(hosts, "--job=ps", "--task="+task)...)
				if err := ps.Start(); err != nil {
					t.Fatal(err)
				}
				servers = append(servers, ps)
			}
			for _, task := range []string{"0", "1"} {
				status, out, errs := runMain(t, t.Context(), append(hosts, "--job=worker", "--task="+task, "--data_mb=2", "--iters=3", "--tensors=5", "--direction=both")...)
				if status != statusDone {
					t.Fatalf("worker %s: status %d: %s", task, status, errs)
				}
				if want := regexp.MustCompile(`^transfer rate: \d+\.\d{6} MB/s \(push\)\ntransfer rate: \d+\.\d{6} MB/s \(pull\)\n$`); !want.MatchString(out) {
					t.Errorf("worker %s prints %q, want %s", task, out, want)
				}
				if !strings.Contains(errs, "3 transfers") {
					t.Errorf("worker %s says %q, want that it made 3 transfers", task, errs)
				}
			}
			for _, ps := range servers {
				if err := ps.Wait(); err != nil {
					t.Errorf("the ps ended with %v", err)
				}
			}
		})
	}
}

func TestWorkerPrintsAsTheOriginal(t *testing.T) {
	addr := aPort(t)
	ps := exec.CommandContext(t.Context(), os.Args[0], "--job=ps", "--task=0", "--ps_hosts="+addr, "--worker_hosts=host2:12222")
	if err := ps.Start(); err != nil {
		t.Fatal(err)
	}
	status, out, errs := runMain(t, t.Context(), "--ps_hosts="+addr, "--worker_hosts=host2:12222", "--data_mb=1", "--job=worker", "--task=0", "--iters=5")
	if want := regexp.MustCompile(`^transfer rate: \d+\.\d{6} MB/s\n$`); status != statusDone || !want.MatchString(out) {
		t.Errorf("status %d, prints %q (%s), want %s", status, out, errs, want)
	}
	if err := ps.Wait(); err != nil {
		t.Errorf("the ps ended with %v", err)
	}
}

func TestNobodyWaitsForever(t *testing.T) {
	for _, args := range [][]string{
		{"--job=ps", "--ps_hosts=127.0.0.1:0", "--timeout=200ms"},
		{"--job=worker", "--ps_hosts=" + aPort(t), "--timeout=200ms"},
	} {
		status, _, errs := runMain(t, t.Context(), args...)
		if status != statusFailed || !strings.Contains(errs, "--timeout") {
			t.Errorf("%v: status %d: %s, want an error that names the limit", args, status, errs)
		}
	}
}

func TestAttachedPSEndsWithStandardInput(t *testing.T) {
	status, _, errs := runMain(t, t.Context(), "--job=ps", "--ps_hosts=127.0.0.1:0", "--attached") // standard input is empty
	if status != statusFailed || !strings.Contains(errs, "stopped") {
		t.Errorf("status %d: %s, want that it stopped", status, errs)
	}
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--job=chief", "--job=chief: want one of ps, worker"},
		{"extra", `"extra": want flags only`},
		{"--ps_hosts=a:1", "--ps_hosts=a:1 without --job: want one, with --ps_command"},
		{"--ps_command=ssh", "--ps_hosts=localhost:12222 without --job"},
		{"--job=ps --ps_command=ssh", "--ps_command with --job=ps"},
		{"--iters=3", "--iters without --job"},
		{"--sizes=5", "--sizes=5: want a multiple of 4"},
		{"--sizes=", "--sizes=: want at least one"},
		{"--sizes=9999G", "--sizes=9999G"},
		{"--sizes=K", "--sizes=K"},
		{"--sizes=64K --data_mb=3", "--data_mb with --sizes"},
		{"--sizes=4,64K --tensors=2", "--tensors=2: want 1 to 1"},
		{"--direction=up", "--direction=up: want one of push, pull, both"},
		{"--encoding=int8", "--encoding=int8: want one of float32, float16"},
		{"--transport=rdma", "--transport=rdma: there is no such way"},
		{"--rounds=0", "--rounds=0: want at least 1"},
		{"--seconds=NaN", "--seconds=NaN: want more than 0"},
		{"--check --direction=push", "--check with"},
		{"--plot=x.gif", "--plot=x.gif: want a file that ends in .png or .svg"},
		{"--timeout=0s", "--timeout=0s: want more than 0"},
		{"--job=ps --iters=3", "--iters with --job=ps"},
		{"--job=ps --rounds=3", "--rounds with --job=ps"},
		{"--job=ps --transport=inproc", "--transport=inproc with --job=ps"},
		{"--job=worker --transport=grpc,tcp", "--transport=grpc,tcp with --job=worker"},
		{"--job=ps --task=1", "--task=1: want 0 to 0"},
		{"--job=ps --ps_hosts=here", `"here": want host:port`},
		{"--job=worker --ps_hosts=a:1,b:1", "--tensors=1 for 2 parameter servers"},
	} {
		status, out, errs := runMain(t, t.Context(), strings.Fields(c.args)...)
		if status != statusUsage || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: status %d, says %q, want status %d and %q", c.args, status, errs, statusUsage, c.want)
		}
	}
}

func TestDefaults(t *testing.T) {
	o, err := parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{4, 64 << 10, 1 << 20, 16 << 20, 100 << 20}; !slices.Equal(o.sizes, want) {
		t.Errorf("sizes %v, want %v", o.sizes, want)
	}
	o, err = parse([]string{"--job=worker", "--ps_hosts=host1:12222"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{100_000_000}; !slices.Equal(o.sizes, want) || o.iters != 100 || o.congestion != "" || o.transports[0] != "grpc" {
		t.Errorf("sizes %v, iters %d, congestion %q, transports %v, want the original's 100 MB 100 times, over grpc", o.sizes, o.iters, o.congestion, o.transports)
	}
	if o, err = parse([]string{"--check"}); err != nil || o.direction != both {
		t.Errorf("--check goes %s (%v), want both", o.direction, err)
	}
}

func TestHelpNamesEveryFlagAndWay(t *testing.T) {
	status, out, _ := runMain(t, t.Context(), "--help")
	if status != statusDone {
		t.Errorf("status %d", status)
	}
	for _, want := range append([]string{"--ps_hosts", "--data_mb", "--iters", "--check"}, "plain", "memcpy", "inproc", "grpc-unix", "shm", "iperf3") {
		if !strings.Contains(out, want) {
			t.Errorf("help does not say %s", want)
		}
	}
}
