//go:build race

package compute_test

// raceDetector says whether the race detector is on, which makes sync.Pool forget on
// purpose.
const raceDetector = true
