//go:build !linux

package shm_test

import (
	"errors"
	"testing"

	"pushpull/transport/shm"
)

func TestUnsupportedSystemsSaySo(t *testing.T) {
	tr := shm.New(shm.Options{})
	if _, err := tr.Listen(":0", nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Listen: %v, want %v", err, errors.ErrUnsupported)
	}
	if _, err := tr.Dial(":1"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Dial: %v, want %v", err, errors.ErrUnsupported)
	}
}
