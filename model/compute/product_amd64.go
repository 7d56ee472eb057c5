package compute

import (
	"iter"
	"sync"
)

const (
	// blockDepth is how much of k is summed in registers before C is touched: a strip
	// of A this long stays in the first-level cache while panels of B pass.
	blockDepth = 400
	// blockCols is how many columns of B are packed at a time: with blockDepth, they
	// stay in the second-level cache while all of A passes.
	blockCols = 256
	// directStrips is the most strips of A for which packing B costs more than it saves.
	directStrips = 16
	// samePlace is a row length whose multiples put all rows in the same places of
	// a cache: B in that form is packed even for few strips of A.
	samePlace = 1024
	// smallProduct is the number of multiply-adds that are done before goroutines
	// have started.
	smallProduct = 1 << 19
)

// A tile computes a few rows of one panel of C from as many rows of A and one
// panel of B, adding to C or not. Steps are in bytes, from row to row, or from k to k.
type tile = func(k int64, a *float32, aStep int64, b *float32, bStep int64, c *float32, cStep int64, accumulate int64)

// A tileTable has the tiles by how A is stored (0: in rows, 1: in a strip), the
// vectors in a row of the panel less one, and the rows.
type tileTable [2][2][]tile

// panel is the width of a panel, in columns of B and C.
func (e *assembly) panel() int { return 2 * e.lanes }

// stripRows is the most rows a tile has.
func (e *assembly) stripRows() int { return len(e.tiles[0][0]) - 1 }

// strips returns the number of strips that m rows of A and C make. They are as
// even as can be.
func (e *assembly) strips(m int) int { return (m + e.stripRows() - 1) / e.stripRows() }

// padded returns the width of n columns of B in panels. The last panel is a full
// one or a half one.
func (e *assembly) padded(n int) int { return (n + e.lanes - 1) / e.lanes * e.lanes }

func (e *assembly) Gemm(threads int, transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	if !checkProduct("Gemm", transA, transB, m, n, k, a, lda, b, ldb, c, ldc) {
		return
	}
	p := products.Get().(*product)
	defer products.Put(p)
	p.engine = e
	p.m, p.n, p.k = m, n, k
	p.a, p.b, p.c = operand(transA, m, k, a, lda), operand(transB, k, n, b, ldb), matrix{c, m, n, ldc}
	p.transA, p.transB, p.accumulate = transA, transB, accumulate
	strips := e.strips(m)
	p.direct = !transB && (strips == 1 || strips <= directStrips && ldb%samePlace != 0)
	p.compute(threads)
}

// A product is one C = op(A) op(B) under way. It is reused, with its memory.
type product struct {
	engine                     *assembly
	transA, transB, accumulate bool
	m, n, k                    int
	a, b, c                    matrix  // as stored
	packed                     *panels // op(B), if it is packed already
	direct                     bool    // whether tiles read B where it is

	strips                     []float32 // op(A), if A is transposed
	packStrips, byRows, byCols func(lo, hi int)
}

var products = sync.Pool{New: func() any {
	p := new(product)
	p.packStrips = p.packStripsOf
	p.byRows = func(lo, hi int) { p.block(lo, hi, 0, p.n) }
	p.byCols = func(lo, hi int) {
		w := p.engine.panel()
		p.block(0, p.engine.strips(p.m), lo*w, min(hi*w, p.n))
	}
	return p
}}

// compute splits the product over whole panels of columns, or over strips of rows if
// there are few panels, and drops the operands.
func (p *product) compute(threads int) {
	if p.k == 0 {
		p.clear()
	} else {
		if p.m*p.n*p.k < smallProduct {
			threads = 1
		}
		strips, panels := p.engine.strips(p.m), (p.n+p.engine.panel()-1)/p.engine.panel()
		if p.transA {
			p.strips = grow(p.strips, p.m*p.k+strips*p.engine.lanes)
			Parallel(threads, strips, p.packStrips)
		}
		if panels < 8*threads && strips >= 2*threads {
			Parallel(threads, strips, p.byRows)
		} else {
			Parallel(threads, panels, p.byCols)
		}
	}
	p.a, p.b, p.c, p.packed, p.direct = matrix{}, matrix{}, matrix{}, nil, false
}

// clear is a product with nothing to sum.
func (p *product) clear() {
	if p.accumulate {
		return
	}
	for i := range p.m {
		clear(p.c.data[i*p.c.ld:][:p.n])
	}
}

// rows returns the rows of strip s: as even as can be.
func (p *product) rows(s int) (lo, hi int) {
	strips := p.engine.strips(p.m)
	return s * p.m / strips, (s + 1) * p.m / strips
}

// strip returns the packed strip s. Each has room for a vector more, which packStrip
// writes beyond its end.
func (p *product) strip(s int) []float32 {
	lo, _ := p.rows(s)
	return p.strips[lo*p.k+s*p.engine.lanes:]
}

// packStripsOf packs strips [s0, s1) of a transposed A.
func (p *product) packStripsOf(s0, s1 int) {
	for s := s0; s < s1; s++ {
		lo, hi := p.rows(s)
		p.engine.packStrip(&p.strip(s)[0], &p.a.data[lo], bytes(p.a.ld), int64(p.k), int64(hi-lo))
	}
}

// block computes strips [s0, s1) of columns [j0, j1).
func (p *product) block(s0, s1, j0, j1 int) {
	room := scratches.Get().(*scratch)
	defer scratches.Put(room)
	width := p.engine.panel()
	for j := j0; j < j1; j += blockCols {
		end := min(j+blockCols, j1)
		for l, depth := range depths(p.k) {
			rest := j
			if p.direct {
				rest = end - (end-j)%width
				b := view{p.b.data[l*p.b.ld+j:], width, p.b.ld}
				p.stripsTimesPanels(room, s0, s1, l, depth, b, j, rest)
			}
			if rest < end {
				b := view{p.panels(room, l, depth, rest, end), width * depth, 0}
				p.stripsTimesPanels(room, s0, s1, l, depth, b, rest, end)
			}
		}
	}
}

// depths yields where the blocks of k begin and how long they are: as few as can
// be, and as even.
func depths(k int) iter.Seq2[int, int] {
	return func(yield func(l, depth int) bool) {
		blocks := (k + blockDepth - 1) / blockDepth
		for i := range blocks {
			l := i * k / blocks
			if !yield(l, (i+1)*k/blocks-l) {
				return
			}
		}
	}
}

// panels returns packed columns [j0, j1) of op(B), from row l on.
func (p *product) panels(room *scratch, l, depth, j0, j1 int) []float32 {
	if p.packed != nil {
		return p.packed.at(l, depth, j0)
	}
	p.engine.pack(room.b, p.transB, p.b, l, depth, j0, j1)
	return room.b
}

// A view is how tiles reach consecutive panels of B.
type view struct {
	data      []float32
	panelStep int // from panel to panel
	rowStep   int // from row to row of a panel; 0 if one follows the other
}

// stripsTimesPanels multiplies a depth of strips [s0, s1), from l on, with the
// panels of columns [j0, j1), and stores to C or adds to it.
func (p *product) stripsTimesPanels(room *scratch, s0, s1, l, depth int, b view, j0, j1 int) {
	if j0 == j1 {
		return
	}
	e, add := p.engine, int64(0)
	if p.accumulate || l > 0 {
		add = 1
	}
	for s := s0; s < s1; s++ {
		lo, hi := p.rows(s)
		rows := hi - lo
		a, aStep, tiles := p.left(s, l)
		for j := j0; j < j1; j += e.panel() {
			width := min(e.panel(), e.padded(j1-j))
			bStep := bytes(width)
			if b.rowStep != 0 {
				bStep = bytes(b.rowStep)
			}
			t, panel := tiles[width/e.lanes-1][rows], &b.data[(j-j0)/e.panel()*b.panelStep]
			if c := p.c.data[lo*p.c.ld+j:]; j+width <= j1 {
				t(int64(depth), a, aStep, panel, bStep, &c[0], bytes(p.c.ld), add)
			} else {
				t(int64(depth), a, aStep, panel, bStep, &room.c[0], bytes(width), 0)
				room.addTo(c, p.c.ld, rows, j1-j, width, add != 0)
			}
		}
	}
}

// left returns where strip s of op(A) begins at l, the step between its rows or, packed,
// between one k and the next, and the tiles that read it so.
func (p *product) left(s, l int) (a *float32, step int64, tiles *[2][]tile) {
	lo, hi := p.rows(s)
	if p.transA {
		return &p.strip(s)[l*(hi-lo)], bytes(hi - lo), &p.engine.tiles[1]
	}
	return &p.a.data[lo*p.a.ld+l], bytes(p.a.ld), &p.engine.tiles[0]
}

// scratch is room for one goroutine of a product.
type scratch struct {
	b []float32 // panels of B
	c []float32 // one tile, where C has no room for a full one
}

var scratches = sync.Pool{New: func() any {
	const largestTile = 14 * 32
	return &scratch{make([]float32, blockDepth*blockCols), make([]float32, largestTile)}
}}

// addTo stores the first cols columns of the tile in the scratch to c, or adds them.
func (s *scratch) addTo(c []float32, ldc, rows, cols, width int, add bool) {
	for r := range rows {
		to, from := c[r*ldc:][:cols], s.c[r*width:][:cols]
		if !add {
			copy(to, from)
			continue
		}
		for j, v := range from {
			to[j] += v
		}
	}
}

// bytes returns the size of n elements.
func bytes(n int) int64 { return 4 * int64(n) }
