//go:build !unix

package race

func cpuSeconds() float64 { return 0 }
