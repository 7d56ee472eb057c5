package compute

// panels is op(B) in the order in which tiles read it: for each block of k, one
// panel of columns after the other, and in a panel one row of B after the other.
type panels struct {
	engine *assembly
	k, n   int
	data   []float32
}

var _ Packed = (*panels)(nil)

func (e *assembly) NewPacked() Packed { return &panels{engine: e} }

func (p *panels) Pack(threads int, transB bool, k, n int, b []float32, ldb int) {
	stored := operand(transB, k, n, b, ldb)
	stored.check("Pack", "b")
	e := p.engine
	p.k, p.n, p.data = k, n, grow(p.data, k*e.padded(n))
	if threads <= 1 || k*n < smallProduct {
		p.packCols(transB, stored, 0, n)
		return
	}
	width := e.panel()
	Parallel(threads, (n+width-1)/width, func(lo, hi int) {
		p.packCols(transB, stored, lo*width, min(hi*width, n))
	})
}

// packCols packs columns [j0, j1), which begin a panel.
func (p *panels) packCols(transB bool, b matrix, j0, j1 int) {
	if j0 == j1 {
		return
	}
	for l, depth := range depths(p.k) {
		p.engine.pack(p.at(l, depth, j0), transB, b, l, depth, j0, j1)
	}
}

// at returns the panels of a block of k, from column j on.
func (p *panels) at(l, depth, j int) []float32 {
	return p.data[l*p.engine.padded(p.n)+j*depth:]
}

func (p *panels) Mul(threads, m int, a []float32, lda int, accumulate bool, c []float32, ldc int) {
	operand(false, m, p.k, a, lda).check("Mul", "a")
	result := matrix{c, m, p.n, ldc}
	result.check("Mul", "c")
	if m == 0 || p.n == 0 {
		return
	}
	q := products.Get().(*product)
	defer products.Put(q)
	q.engine, q.packed = p.engine, p
	q.m, q.n, q.k = m, p.n, p.k
	q.a, q.c = matrix{a, m, p.k, lda}, result
	q.transA, q.accumulate = false, accumulate
	q.compute(threads)
}

// pack copies a depth of columns [j0, j1) of op(B), from row l on, into panels. What the
// last one has beyond them is zero.
func (e *assembly) pack(dst []float32, transB bool, b matrix, l, depth, j0, j1 int) {
	j := j0
	if full := (j1 - j0) / e.panel(); full > 0 && !transB {
		e.packPanels(&dst[0], bytes(e.panel()*depth), &b.data[l*b.ld+j0], bytes(b.ld), int64(depth), int64(full))
		j += full * e.panel()
	}
	for ; j < j1; j += e.panel() {
		cols := min(e.panel(), j1-j)
		panel := dst[(j-j0)*depth:][:depth*e.padded(cols)]
		if transB {
			e.packTransposed(panel, b, l, depth, j, cols)
		} else {
			packNarrow(panel, b, l, depth, j, cols)
		}
	}
}

// packNarrow packs the last panel of B, from row l and column j on.
func packNarrow(panel []float32, b matrix, l, depth, j, cols int) {
	width := len(panel) / depth
	for row := range depth {
		to := panel[row*width:][:width]
		clear(to[copy(to, b.data[(l+row)*b.ld+j:][:cols]):])
	}
}

// packTransposed packs one panel of op(B), from row l and column j on, out of the rows
// of B.
func (e *assembly) packTransposed(panel []float32, b matrix, l, depth, j, cols int) {
	width := len(panel) / depth
	col := 0
	for ; col+e.lanes <= cols; col += e.lanes {
		row := 0
		for ; row+e.lanes <= depth; row += e.lanes {
			e.transpose(&panel[row*width+col], bytes(width), &b.data[(j+col)*b.ld+l+row], bytes(b.ld))
		}
		if row < depth {
			for q := col; q < col+e.lanes; q++ {
				scatter(panel[row*width+q:], width, b.data[(j+q)*b.ld+l+row:][:depth-row])
			}
		}
	}
	for ; col < cols; col++ {
		scatter(panel[col:], width, b.data[(j+col)*b.ld+l:][:depth])
	}
	for ; col < width; col++ {
		for row := range depth {
			panel[row*width+col] = 0
		}
	}
}

// scatter writes the elements of x step apart.
func scatter(dst []float32, step int, x []float32) {
	for i, v := range x {
		dst[i*step] = v
	}
}
