//go:build !amd64

package compute

// candidates returns the engines of this architecture, the fastest first.
func candidates() []candidate { return []candidate{{engine: portable{}}} }
