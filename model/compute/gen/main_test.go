package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// To be run with -count=1: go test does not notice changes outside this module, and
// would answer from its cache.
func TestCommittedFilesAreWhatTheGeneratorMakes(t *testing.T) {
	dir := t.TempDir()
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(made), 5; got != want {
		t.Fatalf("%d files, want %d", got, want)
	}
	for _, path := range made {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		committed := filepath.Join("..", filepath.Base(path))
		if got, err := os.ReadFile(committed); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale (%v): run go run . -out ..", committed, err)
		}
	}
}
