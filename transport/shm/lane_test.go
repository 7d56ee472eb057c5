//go:build linux

package shm

import "testing"

// TestSmallCallsLeaveLargeRegionsAlone, so that there need not be many.
func TestSmallCallsLeaveLargeRegionsAlone(t *testing.T) {
	lanes := map[int]*lane{0: {}}
	for _, size := range []int{10, 20, 30} {
		lanes[size] = &lane{region: &region{mem: make([]byte, size)}}
	}
	for bytes, want := range map[int]int{0: 0, 1: 10, 10: 10, 11: 20, 30: 30, 31: 20} {
		c := &conn{idle: []*lane{lanes[30], lanes[10], lanes[0], lanes[20]}, busy: make(map[*lane]struct{})}
		l := c.pick(bytes)
		if got := l.region.size(); got != want {
			t.Errorf("a call of %d bytes gets a region of %d, want %d", bytes, got, want)
		}
		if _, busy := c.busy[l]; !busy || len(c.idle) != 3 {
			t.Errorf("the lane taken is not busy")
		}
	}
	if l := (&conn{}).pick(1); l != nil {
		t.Errorf("a connection without lanes has one")
	}
}
