package compute_test

import (
	"sync/atomic"
	"testing"

	"pushpull/model/compute"
)

func TestParallelCoversEachIndexOnce(t *testing.T) {
	for threads := -1; threads <= 5; threads++ {
		for n := range 12 {
			seen := make([]atomic.Int32, n)
			var calls atomic.Int32
			compute.Parallel(threads, n, func(lo, hi int) {
				calls.Add(1)
				if hi-lo < n/max(threads, 1) {
					t.Errorf("Parallel(%d, %d): piece [%d, %d) is too small", threads, n, lo, hi)
				}
				for i := lo; i < hi; i++ {
					seen[i].Add(1)
				}
			})
			for i := range seen {
				if got := seen[i].Load(); got != 1 {
					t.Errorf("Parallel(%d, %d) covers %d %d times, want once", threads, n, i, got)
				}
			}
			if got, most := int(calls.Load()), max(threads, 1); got > most {
				t.Errorf("Parallel(%d, %d) makes %d pieces, want at most %d", threads, n, got, most)
			}
		}
	}
}

func TestParallelOnOneThreadDoesNotAllocate(t *testing.T) {
	sum := 0
	f := func(lo, hi int) { sum += hi - lo }
	if got := testing.AllocsPerRun(10, func() { compute.Parallel(1, 100, f) }); got != 0 {
		t.Errorf("Parallel(1, 100) allocates %v times, want 0", got)
	}
}
