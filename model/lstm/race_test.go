//go:build race

package lstm_test

const raceDetector = true
