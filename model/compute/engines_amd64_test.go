package compute

import (
	"slices"
	"testing"
)

func TestLackingFeaturesAreNamed(t *testing.T) {
	got := lacking([]feature{{"AVX2", true}, {"FMA", false}, {"AVX512F", false}})
	if want := []string{"FMA", "AVX512F"}; !slices.Equal(got, want) {
		t.Errorf("lacking = %v, want %v", got, want)
	}
}

// Whatever the CPU: the assembly engines come first, and each says what it lacks.
func TestCandidatesAreOrderedBySpeed(t *testing.T) {
	var got []string
	for _, c := range candidates() {
		got = append(got, c.engine.Name())
	}
	if want := []string{"avx512", "avx2", "portable"}; !slices.Equal(got, want) {
		t.Errorf("candidates = %v, want %v", got, want)
	}
}
