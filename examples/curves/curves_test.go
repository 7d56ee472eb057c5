package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCurvesOfReports(t *testing.T) {
	dir := t.TempDir()
	report, picture := filepath.Join(dir, "r.json"), filepath.Join(dir, "c.png")
	text := `{"epochs": [{"examples_seen": 929200, "valid_perplexity": 178.25}, {"examples_seen": 1858400}, {"examples_seen": 2787600, "valid_perplexity": 132}]}`
	if err := os.WriteFile(report, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	if status := run([]string{"--out", picture, "one worker=" + report}, &stdout, &stderr); status != 0 {
		t.Fatalf("status %d: %s", status, &stderr)
	}
	if got, want := stdout.String(), "| one worker | 0.93 M: 178.2 | 2.79 M: 132.0 |\n"; got != want {
		t.Errorf("table = %q, want %q", got, want)
	}
	if b, err := os.ReadFile(picture); err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) {
		t.Errorf("picture: %v, %d bytes", err, len(b))
	}
}

func TestWhatIsNoReportIsNamed(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "e.json")
	if err := os.WriteFile(empty, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 2, "no reports"}, {[]string{"--ou=x"}, 2, "ou"}, {[]string{"a"}, 1, `"a": want LABEL=FILE`},
		{[]string{"a=/nowhere"}, 1, "/nowhere"}, {[]string{"a=" + empty}, 1, "no epoch"},
	} {
		var stderr bytes.Buffer
		if got := run(tc.args, &bytes.Buffer{}, &stderr); got != tc.status || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("curves %q = %d, %q; want %d, %q", tc.args, got, &stderr, tc.status, tc.want)
		}
	}
}
