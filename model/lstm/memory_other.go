//go:build !linux

package lstm

// adviseHuge does nothing: no advice is known for this system.
func adviseHuge([]float32) {}
