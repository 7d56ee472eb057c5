package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// print writes a table in Markdown, if there was a race.
func (r result) print(w io.Writer) error {
	if len(r.Races) == 0 {
		return nil
	}
	t := table{{"model", "threads", "contestant", "words/s", "words/CPU s", "wall ratio", "CPU ratio", "CPU ratios of rounds", "to batched", "MB"}}
	for _, one := range r.Races {
		base := one.Scores[0]
		i := slices.IndexFunc(one.Scores, func(s *score) bool { return s.Name == torchBatched })
		for _, s := range one.Scores {
			toBatched, memory := "", ""
			if i >= 0 {
				toBatched = fmt.Sprintf("%.2f", median(ratios(s, one.Scores[i], speed.cpu)))
			}
			if s.PeakMB > 0 {
				memory = fmt.Sprintf("%.0f", s.PeakMB)
			}
			cpu := ratios(s, base, speed.cpu)
			t = append(t, []string{
				one.Preset, fmt.Sprint(one.Threads), s.Name,
				fmt.Sprintf("%.0f", median(values(s, speed.wall))), fmt.Sprintf("%.0f", median(values(s, speed.cpu))),
				fmt.Sprintf("%.2f", median(ratios(s, base, speed.wall))), fmt.Sprintf("%.2f", median(cpu)),
				fmt.Sprintf("%.2f to %.2f", slices.Min(cpu), slices.Max(cpu)), toBatched, memory,
			})
		}
	}
	torch := ""
	if r.Torch != "" {
		torch = ", PyTorch " + r.Torch
	}
	_, err := fmt.Fprintf(w, "%s, %s%s. Medians of %d rounds of %v s; ratios are to the first contestant, within a round.\n\n%v",
		r.Machine, r.Go, torch, r.Rounds, r.Seconds, t)
	return err
}

func (s speed) wall() float64 { return s.Wall }
func (s speed) cpu() float64  { return s.CPU }

// values returns what a score has in each round.
func values(s *score, of func(speed) float64) []float64 {
	var v []float64
	for _, turn := range s.Turns {
		v = append(v, of(turn))
	}
	return v
}

// ratios returns the ratio of two scores in each round.
func ratios(s, base *score, of func(speed) float64) []float64 {
	v := values(s, of)
	for i, b := range values(base, of) {
		v[i] /= b
	}
	return v
}

// median returns the middle of values, which there are some of.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// save writes the files asked for.
func (r result) save(jsonPath, plotPath string) error {
	if jsonPath != "" {
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(jsonPath, append(data, '\n'), 0o644); err != nil {
			return fmt.Errorf("--json: %w", err)
		}
	}
	if plotPath != "" {
		if err := r.draw(plotPath); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	return nil
}

// A table is rows of cells, the first of them the head.
type table [][]string

// String returns the table in Markdown, its columns aligned.
func (t table) String() string {
	widths := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)), 3)
		}
	}
	var b strings.Builder
	for i, row := range t {
		for j, cell := range row {
			fmt.Fprintf(&b, "| %-*s ", widths[j], cell)
		}
		b.WriteString("|\n")
		if i == 0 {
			for _, n := range widths {
				fmt.Fprintf(&b, "| %s ", strings.Repeat("-", n))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// machine says what this is measured on.
func machine() string {
	name := runtime.GOARCH
	info, _ := os.ReadFile("/proc/cpuinfo") // not there on other systems
	for line := range bytes.Lines(info) {
		if key, value, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(key)) == "model name" {
			name = string(bytes.TrimSpace(value))
			break
		}
	}
	return fmt.Sprintf("%s, %d CPUs", name, runtime.NumCPU())
}
