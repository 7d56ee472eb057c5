package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime returns the CPU time that this process has used, so that
// what others do on the machine meanwhile does not count.
func processTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic("race: the system has no clock for CPU time: " + err.Error())
	}
	return time.Duration(t.Nano())
}
