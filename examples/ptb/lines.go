package main

import (
	"fmt"
	"strings"
)

// lines are the tutorial's lines, as people's scripts know them. Those of a
// worker that shares its process with the chief bear a prefix.
type lines struct {
	*console
	prefix string
	bar    bool // this worker has the progress bar
}

func (l lines) printf(format string, args ...any) { l.print(l.prefix + fmt.Sprintf(format, args...)) }

func (l lines) notef(format string, args ...any) { l.note(fmt.Sprintf(format, args...)) }

// epoch says that an epoch begins. Epochs count from 1 in all lines.
func (l lines) epoch(epoch int, rate float64) {
	l.printf("Epoch: %d Learning rate: %.3f", epoch, rate)
}

// progress says how far an epoch is, between 0 and 1.
func (l lines) progress(done, perplexity, wordsPerSecond float64) {
	l.printf("%.3f perplexity: %.3f speed: %.0f wps", done, perplexity, wordsPerSecond)
}

func (l lines) train(epoch int, perplexity float64) {
	l.printf("Epoch: %d Train Perplexity: %.3f", epoch, perplexity)
}

func (l lines) valid(epoch int, perplexity float64) {
	l.printf("Epoch: %d Valid Perplexity: %.3f", epoch, perplexity)
}

func (l lines) test(perplexity float64) { l.printf("Test Perplexity: %.3f", perplexity) }

func (l lines) saving(path string) { l.printf("Saving model to %s.", path) }

// placement tells how many bytes of weights each server holds, and warns if one
// has much more than the others: it will be what everybody waits for.
func (l lines) placement(shards []int, maxOverMean float64) {
	total := 0
	for _, n := range shards {
		total += n
	}
	var of []string
	for i, n := range shards {
		of = append(of, fmt.Sprintf("ps/%d %s (%.0f%%)", i, size(n), 100*float64(n)/float64(total)))
	}
	l.notef("Placement: %s; largest over mean %.2f", strings.Join(of, ", "), maxOverMean)
	if maxOverMean > 1.2 {
		l.notef("Warning: the largest server holds %.2f times the mean; --placement=balanced without --partition_bytes does what whole rows allow", maxOverMean)
	}
}

// size returns bytes in words.
func size(bytes int) string {
	if bytes < 1e6 {
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}

// begin shows a bar for the epoch, unless it would be another worker's beside the chief's.
func (l lines) begin(epoch, steps int) {
	if l.bar {
		l.console.begin(fmt.Sprintf("epoch %d", epoch), steps)
	}
}

func (l lines) advance() {
	if l.bar {
		l.console.advance()
	}
}

func (l lines) end() {
	if l.bar {
		l.console.end()
	}
}

// milestone says whether progress is printed after a step, counted from 0, of
// an epoch of so many steps, and what share of the epoch it reports. Long
// epochs have ten such lines at the tutorial's places, where the share is that
// before the step. The tutorial prints nothing in short ones; we print after
// every tenth of those, or after every step if there are fewer than ten.
func milestone(step, steps int) (done float64, ok bool) {
	every := steps / 10
	if every > 10 {
		return float64(step) / float64(steps), step%every == 10
	}
	every = max(every, 1)
	return float64(step+1) / float64(steps), (step+1)%every == 0
}
