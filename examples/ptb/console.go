package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A console is where all tasks of this process speak: results on standard
// output, everything else on standard error. It is safe for concurrent use.
type console struct {
	out, err io.Writer
	shows    bool // a progress bar on err

	mu  sync.Mutex
	bar *progressbar.ProgressBar // guarded by mu; nil if there is none now
}

// newConsole returns a console that has a progress bar if mode is "on", or if
// it is "auto" and stderr is a terminal.
func newConsole(stdout, stderr io.Writer, mode string) *console {
	return &console{out: stdout, err: stderr, shows: mode == "on" || mode == "auto" && isTerminal(stderr)}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// print writes a line of results.
func (c *console) print(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hide()
	fmt.Fprintln(c.out, line)
}

// note writes a line that is no result.
func (c *console) note(line string) {
	fmt.Fprintln(c, line)
}

// Write writes to standard error, past the bar.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hide()
	return c.err.Write(p)
}

// hide takes the bar off the screen until it moves again. The caller holds mu.
func (c *console) hide() {
	if c.bar != nil {
		_ = c.bar.Clear()
	}
}

// begin shows a bar for so many steps.
func (c *console) begin(title string, steps int) {
	if !c.shows {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bar = progressbar.NewOptions(steps, progressbar.OptionSetWriter(c.err), progressbar.OptionSetDescription(title),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("steps"),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
}

// advance moves the bar by one step.
func (c *console) advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		_ = c.bar.Add(1) // its only errors are a bar that is full, and standard error gone
	}
}

// end removes the bar.
func (c *console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hide()
	c.bar = nil
}
