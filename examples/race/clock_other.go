//go:build !linux

package main

import "time"

// epoch is when this process began to count.
var epoch = time.Now()

// processTime returns the time that has passed: CPU time is read finely on Linux
// only, so profile elsewhere on a machine that nobody else uses.
func processTime() time.Duration { return time.Since(epoch) }
