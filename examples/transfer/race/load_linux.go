package race

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// busySeconds returns the CPU seconds that the whole machine has spent, and of
// these the ones of this process and of children it has waited for; 0 and 0 if
// the system does not tell. Niced work does not count: it yields to us.
func busySeconds() (all, own float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	var user, nice, system, idle, wait, irq, soft, steal float64
	if _, err := fmt.Sscanf(string(line), "cpu %g %g %g %g %g %g %g %g", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal); err != nil {
		return 0, 0
	}
	var children unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &children) != nil {
		return 0, 0
	}
	const ticks = 100 // a second, on every Linux
	return (user + system + irq + soft + steal) / ticks, cpuSeconds() + float64(children.Utime.Nano()+children.Stime.Nano())/1e9
}
