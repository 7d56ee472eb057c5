package compute_test

import (
	"errors"
	"strings"
	"testing"

	"pushpull/model/compute"
)

func TestBestIsTheFirstName(t *testing.T) {
	if got, want := compute.Best().Name(), compute.Names()[0]; got != want {
		t.Errorf("Best() is %s, want the first of Names(), %s", got, want)
	}
}

func TestPortableEngineIsAlwaysThere(t *testing.T) {
	e, err := compute.ByName("portable")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.Name(), "portable"; got != want {
		t.Errorf("Name() = %q, want %q", got, want)
	}
}

func TestUnknownEngineNamesThoseThereAre(t *testing.T) {
	_, err := compute.ByName("abacus")
	if !errors.Is(err, compute.ErrUnavailable) {
		t.Fatalf("ByName(abacus): %v, want ErrUnavailable", err)
	}
	for _, want := range append(compute.Names(), "abacus") {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("ByName(abacus): %q does not name %s", err, want)
		}
	}
}
