package race_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pushpull/examples/transfer/race"
)

// The test binary is also the child: with this variable set its first argument
// says what to do.
const asChild = "RACE_TEST_IS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Setenv(asChild, "1")
		os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")) // else each child of a race-detecting test takes a second to end
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "obedient":
		fmt.Println("ready", os.Getpid())
		<-race.UntilEOF(context.Background(), os.Stdin).Done()
	case "failing":
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		fmt.Fprintln(os.Stderr, "element 7 is wrong")
		os.Exit(3)
	case "stubborn":
		fmt.Println("ready", os.Getpid())
		time.Sleep(time.Minute)
	case "dying":
		fmt.Fprintln(os.Stderr, "no such address")
		os.Exit(1)
	}
}

// pid returns the process that a child's first line names.
func pid(t *testing.T, line string) (pid int) {
	t.Helper()
	if _, err := fmt.Sscanf(line, "ready %d", &pid); err != nil {
		t.Fatalf("the child says %q: %v", line, err)
	}
	return pid
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestChildEndsWhenItIsTold(t *testing.T) {
	c, line, err := race.Start(t.Context(), "the ps", nil, "obedient")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if !gone(pid(t, line)) {
		t.Error("the child is still there")
	}
}

func TestChildIsStartedByItsLauncher(t *testing.T) {
	c, line, err := race.Start(t.Context(), "the ps", []string{"env", asChild + "=2"}, "obedient")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if !gone(pid(t, line)) {
		t.Error("the child is still there")
	}
	if _, _, err := race.Start(t.Context(), "the ps", []string{"/no/such/launcher"}, "obedient"); err == nil || !strings.Contains(err.Error(), "/no/such/launcher") {
		t.Errorf("Start with a launcher that is missing: %v", err)
	}
}

func TestChildTellsHowItFailed(t *testing.T) {
	c, _, err := race.Start(t.Context(), "the ps", nil, "failing")
	if err != nil {
		t.Fatal(err)
	}
	err = c.Close()
	for _, want := range []string{"the ps", "exit status 3", "element 7 is wrong"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Close = %v, want it to say %q", err, want)
		}
	}
}

func TestChildThatNeverGetsReadyIsAnError(t *testing.T) {
	_, _, err := race.Start(t.Context(), "the ps", nil, "dying")
	if err == nil || !strings.Contains(err.Error(), "before it was ready") || !strings.Contains(err.Error(), "no such address") {
		t.Errorf("Start = %v, want an error with what it said", err)
	}
}

func TestChildIsKilledWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, line, err := race.Start(ctx, "the ps", nil, "stubborn")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	cancel()
	if err := c.Close(); err == nil {
		t.Error("Close of a killed child returned nil")
	}
	if took := time.Since(start); took > 3*time.Second || !gone(pid(t, line)) {
		t.Errorf("after %v the child is gone: %v", took, gone(pid(t, line)))
	}
}

func TestStubbornChildIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	c, line, err := race.Start(t.Context(), "the ps", nil, "stubborn")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("Close = %v, want an error that says so", err)
	}
	if !gone(pid(t, line)) {
		t.Error("the child is still there")
	}
}
