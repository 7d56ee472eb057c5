package pool

import (
	"math"
	"testing"
)

func TestClassesHaveRoomAndAreTight(t *testing.T) {
	sizes := []int{0, 1, smallest, math.MaxInt/2 + 1}
	for n := smallest; n < 1<<40; n += n/7 + 1 {
		sizes = append(sizes, n-1, n, n+1)
	}
	for _, n := range sizes {
		c, size := class(n)
		if size < n || size > max(smallest, n+n/4) {
			t.Errorf("class(%d) has room for %d, want %d to a quarter more", n, size, n)
		}
		if again, same := class(size); again != c || same != size {
			t.Errorf("class(%d) = %d, %d, but class(%d) = %d, %d", n, c, size, size, again, same)
		}
		if c < 0 || c >= len(new(Pool[byte]).classes) {
			t.Errorf("class(%d) = %d, out of range", n, c)
		}
	}
}

func TestGetHasTheLengthAskedFor(t *testing.T) {
	var p Pool[float32]
	for range 3 { // the later rounds reuse
		for _, n := range []int{0, 1, 255, 256, 257, 1000, 1023, 1024} {
			s := p.Get(n)
			if got, want := len(*s), n; got != want {
				t.Errorf("len(*Get(%d)) = %d, want %d", n, got, want)
			}
			p.Put(s)
		}
	}
}

func TestForeignSlicesAreNotKept(t *testing.T) {
	var p Pool[byte]
	s := make([]byte, 300) // no class has this capacity
	p.Put(&s)
	if got := p.Reuse(260); got != nil {
		t.Errorf("Reuse(260) after Put of a foreign slice has capacity %d, want nil", cap(*got))
	}
}

func TestReuseNeverAllocates(t *testing.T) {
	var p Pool[byte]
	if got := p.Reuse(1 << 50); got != nil {
		t.Errorf("Reuse of an empty pool = %d bytes, want nil", len(*got))
	}
}
