package race

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// columns lists what a table can show.
var columns = []struct {
	title string
	text  func(Row) string
}{
	{"MB/s", func(r Row) string { return Figure(r.MBs) }},
	{"ratio", func(r Row) string { return fmt.Sprintf("%.3f", r.Ratio) }},
	{"±", func(r Row) string { return fmt.Sprintf("%.3f", r.Noise) }},
	{"calls/s", func(r Row) string { return Figure(1 / r.CallSeconds) }},
	{"µs/call", func(r Row) string { return Figure(1e6 * r.CallSeconds) }},
	{"p50 µs", func(r Row) string { return Figure(1e6 * r.P50) }},
	{"p99 µs", func(r Row) string { return Figure(1e6 * r.P99) }},
	{"CPU s/GB", func(r Row) string { return Figure(r.CPUPerGB) }},
	{"alloc B/B", func(r Row) string { return Figure(r.AllocPerByte) }},
}

// Figure writes x with three figures, or all of those before the point.
func Figure(x float64) string {
	switch size := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return "-"
	case size == 0:
		return "0"
	case size >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case size >= 9.995:
		return fmt.Sprintf("%.1f", x)
	case size >= 0.0995:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.4f", x)
}

// Table writes the result as a table with the titled columns, a bar for each
// rate, and who was left out. It panics for a title that no column has.
func (r *Result) Table(w io.Writer, titles ...string) error {
	cells := [][]string{append([]string{""}, titles...)}
	most := 0.0
	for _, row := range r.Rows {
		line := []string{row.Name}
		for _, title := range titles {
			line = append(line, cell(row, title))
		}
		cells = append(cells, line)
		most = max(most, row.MBs)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Title)
	for i, line := range align(cells) {
		if i > 0 {
			line += "  " + Bar(r.Rows[i-1].MBs, most)
		}
		fmt.Fprintf(&b, "%s\n", strings.TrimRight(line, " "))
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "%s\n", s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell returns a row's figure under a title. It panics for a title that no
// column has.
func cell(r Row, title string) string {
	for _, c := range columns {
		if c.title == title {
			return c.text(r)
		}
	}
	panic(fmt.Sprintf("race: a table has no column %q", title))
}

// align makes a line of every row of cells: the first to the left, the others
// to the right.
func align(cells [][]string) []string {
	var widths []int
	for _, row := range cells {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(cells))
	for i, row := range cells {
		var b strings.Builder
		for j, cell := range row {
			pad := strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell))
			if j == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		lines[i] = b.String()
	}
	return lines
}

// barWidth is the length of the longest bar, in characters.
const barWidth = 32

// Bar returns a bar of block characters, in eighths, for value where most is
// the largest.
func Bar(value, most float64) string {
	if !(value > 0) || !(most > 0) {
		return ""
	}
	eighths := int(math.Round(barWidth * 8 * min(1, value/most)))
	bar := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		bar += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return bar
}
