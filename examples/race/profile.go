package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"pushpull/model/compute"
)

// profileTime is how long a profile watches steps, at least profileSteps of them.
const (
	profileTime  = 10 * time.Second
	profileSteps = 7
)

// runProfile prints where the time of a step goes, for each entry.
func (o *options) runProfile(ctx context.Context, w io.Writer) error {
	head := []string{"model", "engine", "step ms", "products"}
	for k := range kinds {
		head = append(head, k.String())
	}
	t := table{append(head, "GFLOP", "GFLOP/s", "kernel alone", "of it")}
	for _, n := range o.entries() {
		p, err := profileOf(ctx, n)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", n.preset.Name, n.engine.Name(), err)
		}
		t = append(t, p.row(n))
	}
	_, err := fmt.Fprintf(w, "%s, 1 thread. CPU time: medians of steps, and shares of their sum in %%. Products are multiply and pack;\n"+
		"GFLOP/s is the rate there, and beside it that of the kernel on operands in cache, in the same run.\n\n%v", machine(), t)
	return err
}

// A profile is what the median step spends on each kind.
type profile struct {
	spent [kinds]float64 // seconds
	flop  float64        // of a step
	peak  float64        // flop a second, in the kernel alone
}

// profileOf trains and watches.
func profileOf(ctx context.Context, n entry) (profile, error) {
	// The CPU time counted is the process's, since Gorgonia's machine has a thread
	// of its own; so no other thread may look for work meanwhile.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	book := &ledger{clock: clockCost()}
	t, err := newTrainer(n, measured{n.engine, n.preset.Hidden, n.preset.Vocab, book})
	if err != nil {
		return profile{}, err
	}
	for range warmup {
		if err := t.train(ctx); err != nil {
			return profile{}, err
		}
	}
	kernel := newKernel(n.engine)
	var spent [kinds][]float64
	var peaks []float64
	for start := time.Now(); time.Since(start) < profileTime || len(peaks) < profileSteps; {
		if err := t.watch(ctx, book); err != nil {
			return profile{}, err
		}
		for k, d := range book.spent {
			spent[k] = append(spent[k], d.Seconds())
		}
		peaks = append(peaks, kernel.rate())
	}
	p := profile{flop: book.flop, peak: median(peaks)}
	for k := range spent {
		p.spent[k] = median(spent[k])
	}
	return p, nil
}

// watch makes a step and leaves in the book what it spent.
func (t *trainer) watch(ctx context.Context, book *ledger) error {
	book.spent, book.flop, book.calls = [kinds]time.Duration{}, 0, 0
	start := processTime()
	if err := t.compute(ctx); err != nil {
		return err
	}
	book.spent[rest] = processTime() - start - time.Duration(2*book.calls)*book.clock
	for _, d := range book.spent[:rest] {
		book.spent[rest] -= d
	}
	defer book.book(update, processTime())
	t.update()
	return nil
}

// row returns a line of the table.
func (p profile) row(n entry) []string {
	step := 0.0
	for _, s := range p.spent {
		step += s
	}
	percent := func(s float64) string { return fmt.Sprintf("%.1f", 100*s/step) }
	products := p.spent[multiply] + p.spent[pack]
	row := []string{n.preset.Name, n.engine.Name(), fmt.Sprintf("%.1f", 1000*step), percent(products)}
	for _, s := range p.spent {
		row = append(row, percent(s))
	}
	rate := p.flop / products
	return append(row, fmt.Sprintf("%.2f", p.flop/1e9), fmt.Sprintf("%.1f", rate/1e9),
		fmt.Sprintf("%.1f", p.peak/1e9), fmt.Sprintf("%.0f%%", 100*rate/p.peak))
}

// A kernel is a product whose operands all stay in a core's own cache, and whose
// sizes leave no tile or vector part empty: as fast as the machine multiplies.
type kernel struct {
	packed compute.Packed
	a, c   []float32
}

// Sizes of the kernel's product. 84 is a multiple of the rows of every engine's tile.
const kernelRows, kernelDepth, kernelCols = 84, 384, 256

func newKernel(e compute.Engine) *kernel {
	k := &kernel{e.NewPacked(), make([]float32, kernelRows*kernelDepth), make([]float32, kernelRows*kernelCols)}
	k.packed.Pack(1, false, kernelDepth, kernelCols, make([]float32, kernelDepth*kernelCols), kernelCols)
	return k
}

// rate returns the best of a few milliseconds, in flop a second.
func (k *kernel) rate() float64 {
	best := 0.0
	for start := processTime(); processTime()-start < 3*time.Millisecond; {
		t := processTime()
		k.packed.Mul(1, kernelRows, k.a, kernelDepth, false, k.c, kernelCols)
		best = max(best, flop(kernelRows, kernelCols, kernelDepth)/(processTime()-t).Seconds())
	}
	return best
}
