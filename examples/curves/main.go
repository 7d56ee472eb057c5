// Command curves draws how jobs of the PTB program learned, from the reports that
// its --report wrote: validation perplexity by the words that all workers had
// seen. It prints the same as a table.
//
//	curves --out curves.png "one worker=one.json" "two, async=async.json"
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// A curve is what we read of one report.
type curve struct {
	label  string
	Epochs []struct {
		Examples float64  `json:"examples_seen"`
		Valid    *float64 `json:"valid_perplexity"`
	} `json:"epochs"`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program. It returns the exit status: 0 done, 1 failed, 2 bad usage.
func run(args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("curves", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	out := fs.String("out", "", "`file` for the picture, .png or .svg; without it there is only the table")
	title := fs.String("title", "PTB small: validation perplexity", "`text` above the picture")
	err := fs.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, "curves [flags] LABEL=REPORT.json ...\n\n%s", fs.FlagUsages())
		return 0
	case err == nil && fs.NArg() == 0:
		err = errors.New("no reports: want LABEL=FILE, as written by ptb --report=FILE")
	}
	if err != nil {
		fmt.Fprintf(stderr, "curves: %v\n", err)
		return 2
	}
	curves, err := read(fs.Args())
	if err == nil {
		table(stdout, curves)
		if *out != "" {
			err = draw(*out, *title, curves)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "curves: %v\n", err)
		return 1
	}
	return 0
}

func read(args []string) (curves []curve, err error) {
	for _, arg := range args {
		label, path, ok := strings.Cut(arg, "=")
		if !ok {
			return nil, fmt.Errorf("%q: want LABEL=FILE", arg)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		c := curve{label: label}
		if err := json.Unmarshal(b, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(c.points()) == 0 {
			return nil, fmt.Errorf("%s: no epoch has a validation perplexity: want the chief's report", path)
		}
		curves = append(curves, c)
	}
	return curves, nil
}

// points are the epochs that were evaluated: millions of words, and perplexity.
func (c curve) points() (xy plotter.XYs) {
	for _, e := range c.Epochs {
		if e.Valid != nil {
			xy = append(xy, plotter.XY{X: e.Examples / 1e6, Y: *e.Valid})
		}
	}
	return xy
}

func table(w io.Writer, curves []curve) {
	for _, c := range curves {
		fmt.Fprintf(w, "| %s |", c.label)
		for _, p := range c.points() {
			fmt.Fprintf(w, " %.2f M: %.1f |", p.X, p.Y)
		}
		fmt.Fprintln(w)
	}
}

func draw(path, title string, curves []curve) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text, p.Y.Label.Text = "words seen by all workers, millions", "perplexity"
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, c := range curves {
		line, dots, err := plotter.NewLinePoints(c.points())
		if err != nil {
			return fmt.Errorf("%s: %w", c.label, err)
		}
		line.Color, dots.Color = plotutil.Color(i), plotutil.Color(i)
		line.Dashes, dots.Shape = plotutil.Dashes(i), plotutil.Shape(i)
		p.Add(line, dots)
		p.Legend.Add(c.label, line, dots)
	}
	return p.Save(7*vg.Inch, 4*vg.Inch, path)
}
