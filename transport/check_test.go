package transport_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pushpull/transport"
)

func TestCheckAcceptsWhatIsWellFormed(t *testing.T) {
	for _, p := range []transport.Part{
		{},
		{Variable: "lstm/bias", Offset: 3, Data: make([]float32, 2)},
		{Variable: "v", Width: 4, Data: make([]float32, 3)}, // a run may begin and end within a row
		{Variable: "v", Width: 4, Rows: []int32{}},
		{Variable: "v", Width: 2, Rows: []int32{0, 7, math.MaxInt32}, Data: make([]float32, 6)},
		{Variable: "v", Encoding: transport.Float16},
	} {
		if err := transport.Check([]transport.Part{p, p}); err != nil {
			t.Errorf("Check(%+v): %v", p, err)
		}
	}
}

func TestCheckNamesThePart(t *testing.T) {
	parts := []transport.Part{{Variable: "good"}, {Variable: "embedding", Offset: 12, Width: 2, Rows: []int32{3, 3}, Data: make([]float32, 4)}}
	err := transport.Check(parts)
	if !errors.Is(err, transport.ErrInvalid) {
		t.Fatalf("Check = %v, want %v", err, transport.ErrInvalid)
	}
	if want := `"embedding"[12:]: row 3 at place 1 of 2`; !strings.Contains(err.Error(), want) {
		t.Errorf("Check = %q, want it to say %q", err, want)
	}
}
