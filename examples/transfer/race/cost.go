package race

import "runtime"

// A Cost is what a process has used since it started.
type Cost struct {
	CPUSeconds float64 `json:"cpu_seconds"` // user and system; 0 where the system does not tell
	AllocBytes uint64  `json:"alloc_bytes"` // taken from Go's heap, freed or not
}

// Spent returns the cost of this process so far.
func Spent() Cost {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Cost{CPUSeconds: cpuSeconds(), AllocBytes: m.TotalAlloc}
}

// Plus returns the sum of both.
func (c Cost) Plus(d Cost) Cost {
	return Cost{c.CPUSeconds + d.CPUSeconds, c.AllocBytes + d.AllocBytes}
}

// Since returns what was used after earlier.
func (c Cost) Since(earlier Cost) Cost {
	return Cost{c.CPUSeconds - earlier.CPUSeconds, c.AllocBytes - earlier.AllocBytes}
}
