package race

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A Report is what a race leaves for other programs, and for those who ask
// later where a figure came from.
type Report struct {
	Command    []string  `json:"command"`
	Started    time.Time `json:"started"`
	Version    string    `json:"version"` // version control revision, or "unknown"
	Go         string    `json:"go"`
	GRPC       string    `json:"grpc"`
	OS         string    `json:"os"`
	Arch       string    `json:"arch"`
	CPU        string    `json:"cpu"` // its model, or "unknown"
	CPUs       int       `json:"cpus"`
	Congestion string    `json:"congestion"` // control of TCP sockets
	// Foreign is how many CPUs other processes kept busy meanwhile: what more
	// than a few hundredths of one makes of the figures is chance.
	Foreign float64  `json:"foreign_cpus"`
	Results []Result `json:"results"`

	all, own float64 // CPU seconds spent at the start, by the machine and by this process
}

// NewReport returns a report of a race of this process that starts now.
func NewReport(congestion string) *Report {
	r := &Report{
		Command: os.Args, Started: time.Now(), Version: "unknown", Go: runtime.Version(), GRPC: "unknown",
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.NumCPU(), Congestion: congestion,
	}
	r.all, r.own = busySeconds()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return r
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			r.Version = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			r.Version += " and changes" // comes after the revision
		}
	}
	for _, d := range info.Deps {
		if d.Path == "google.golang.org/grpc" {
			r.GRPC = d.Version
		}
	}
	return r
}

// Control says what congestion control the TCP sockets of a race have, if they
// were given that of this name, or none.
func Control(set string) string {
	is := DefaultCongestion()
	if set == "" || set == is {
		return is
	}
	return fmt.Sprintf("%s (set on every socket; the system's is %s)", set, is)
}

// End takes the results, and notes what other processes did meanwhile.
func (r *Report) End(results []Result) {
	r.Results = results
	all, own := busySeconds()
	r.Foreign = max(0, (all-r.all)-(own-r.own)) / time.Since(r.Started).Seconds()
}

// Machine says in two lines what the race ran on, and beside what.
func (r *Report) Machine() string {
	return fmt.Sprintf("%s, %d CPUs, %s/%s, %s, grpc %s\ncongestion control %s; other processes kept %.2f CPUs busy meanwhile",
		r.CPU, r.CPUs, r.OS, r.Arch, r.Go, r.GRPC, r.Congestion, r.Foreign)
}

// Write puts the report into a file, as JSON.
func (r *Report) Write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report %s: %w", file, err)
	}
	return os.WriteFile(file, append(text, '\n'), 0o666)
}

// cpuModel returns what the system calls its CPU, where it says so in a file.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
