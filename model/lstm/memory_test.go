package lstm

import "testing"

func TestAllocatedMemoryIsZeroAndAllThere(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 1<<19 - 1, 1 << 19, 1<<21 + 3} { // 2^19 elements are a large page
		x := allocate(n)
		if len(x) != n {
			t.Fatalf("allocate(%d) has %d elements", n, len(x))
		}
		for i := range x {
			if x[i] != 0 {
				t.Fatalf("allocate(%d)[%d] = %v, want 0", n, i, x[i])
			}
			x[i] = 1
		}
	}
}
