package main

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// draw writes bars of each contestant's words per second, over the first one's,
// to a file of the format that its name ends with.
func (r result) draw(path string) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("words per second, %s = 1", r.Races[0].Scores[0].Name)
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	width := vg.Points(18)
	names := make([]string, len(r.Races))
	for j, one := range r.Races {
		names[j] = fmt.Sprintf("%s, %d threads", one.Preset, one.Threads)
	}
	contestants := r.Races[0].Scores
	for i, s := range contestants {
		values := make(plotter.Values, len(r.Races))
		for j, one := range r.Races {
			values[j] = median(ratios(one.Scores[i], one.Scores[0], speed.wall))
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = plotutil.Color(i), 0
		bars.Offset = width * vg.Length(float64(i)-float64(len(contestants)-1)/2)
		p.Add(bars)
		p.Legend.Add(s.Name, bars)
	}
	p.NominalX(names...)
	p.Y.Max *= 1.2 // room for the legend
	return p.Save(vg.Length(4+2*len(r.Races))*vg.Inch, 4*vg.Inch, path)
}
