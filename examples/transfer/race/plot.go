package race

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // .png
	_ "gonum.org/v1/plot/vg/vgsvg" // .svg
)

// PlotFormats are the endings of files that [Plot] can write.
var PlotFormats = []string{"png", "svg"}

// Plot draws the rates of all results as bars, a panel for each, into a file
// whose ending is one of [PlotFormats].
func Plot(file, title string, results []Result) error {
	format := strings.TrimPrefix(filepath.Ext(file), ".")
	if !slices.Contains(PlotFormats, format) {
		return fmt.Errorf("plot %s: want a file that ends in .%s", file, strings.Join(PlotFormats, " or ."))
	}
	panels := make([][]*plot.Plot, len(results))
	height := vg.Length(0)
	for i := range results {
		p, err := panel(&results[i])
		if err != nil {
			return fmt.Errorf("plot %s: %s: %w", file, results[i].Title, err)
		}
		if i == 0 {
			p.Title.Text = title + "\n" + p.Title.Text
		}
		panels[i] = []*plot.Plot{p}
		height = max(height, vg.Points(70+20*float64(len(results[i].Rows))))
	}
	canvas, err := draw.NewFormattedCanvas(18*vg.Centimeter, height*vg.Length(max(1, len(results))), format)
	if err != nil {
		return fmt.Errorf("plot %s: %w", file, err)
	}
	tiles := draw.Tiles{Rows: len(results), Cols: 1, PadTop: 6, PadBottom: 6, PadLeft: 6, PadRight: 24, PadY: 8}
	for i, places := range plot.Align(panels, tiles, draw.New(canvas)) {
		panels[i][0].Draw(places[0])
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	if _, err := canvas.WriteTo(f); err != nil {
		f.Close()
		return fmt.Errorf("plot %s: %w", file, err)
	}
	return f.Close()
}

// panel draws one result, the first row on top.
func panel(r *Result) (*plot.Plot, error) {
	n := len(r.Rows)
	if n == 0 {
		return nil, fmt.Errorf("it has no rows")
	}
	rates, names := make(plotter.Values, n), make([]string, n)
	labels := plotter.XYLabels{XYs: make(plotter.XYs, n), Labels: make([]string, n)}
	for i := range r.Rows {
		row := &r.Rows[n-1-i]
		rates[i], names[i] = row.MBs, row.Name
		labels.XYs[i] = plotter.XY{X: row.MBs, Y: float64(i)}
		labels.Labels[i] = " " + Figure(row.MBs)
	}
	bars, err := plotter.NewBarChart(rates, vg.Points(12))
	if err != nil {
		return nil, err
	}
	bars.Horizontal = true
	bars.Color = color.RGBA{R: 70, G: 130, B: 180, A: 255}
	bars.LineStyle.Width = 0
	text, err := plotter.NewLabels(labels)
	if err != nil {
		return nil, err
	}
	for i := range text.TextStyle {
		text.TextStyle[i].YAlign = draw.YCenter
	}
	p := plot.New()
	p.Title.Text = r.Title
	p.X.Label.Text = "MB/s"
	p.X.Min = 0
	p.NominalY(names...)
	p.Add(bars, text)
	p.X.Max = 1.1 * slices.Max(rates)
	return p, nil
}
