package ps

// sum is the sum of the gradients gathered for one part. It begins with zero,
// to which every gradient is added, so that a row not mentioned and a row of
// zeros leave the same bits (a first gradient that was copied as it is could
// leave a negative zero). It is as long as the part, but only what was touched
// is cleared between updates.
type sum struct {
	g     []float32 // nil until needed
	dense bool      // a gradient of the whole part is in it
	rows  []int32   // that are in it, each once, if it is not dense
	mark  []bool    // by row: is it in rows
	dirty bool      // g holds leftovers of the update before, not zeros
}

// add adds a dense gradient.
func (s *sum) add(g []float32) {
	if s.g == nil {
		s.g = make([]float32, len(g))
	}
	if s.dense || len(s.rows) > 0 {
		add(s.g, g)
	} else {
		addToZero(s.g, g)
	}
	s.unmark()
	s.dense, s.dirty = true, false
}

// addRows adds a gradient of some rows of a part that has n elements.
func (s *sum) addRows(n, width int, rows []int32, g []float32) {
	if len(rows) == 0 {
		return
	}
	if !s.dense {
		s.zeros(n)
		if s.mark == nil {
			s.mark = make([]bool, n/width)
		}
	}
	for j, row := range rows {
		lo := int(row) * width
		add(s.g[lo:lo+width], g[j*width:(j+1)*width])
		if !s.dense && !s.mark[row] {
			s.mark[row] = true
			s.rows = append(s.rows, row)
		}
	}
}

// zeros returns the n elements of a sum that is not dense, zero but for its
// rows. Who writes to them while the sum is empty clears them again.
func (s *sum) zeros(n int) []float32 {
	if s.g == nil {
		s.g = make([]float32, n)
	} else if s.dirty {
		clear(s.g)
	}
	s.dirty = false
	return s.g
}

// reset empties the sum.
func (s *sum) reset(width int) {
	s.dirty = s.dirty || s.dense
	if !s.dense {
		for _, row := range s.rows {
			clear(s.g[int(row)*width : (int(row)+1)*width])
		}
	}
	s.unmark()
	s.dense = false
}

func (s *sum) unmark() {
	for _, row := range s.rows {
		s.mark[row] = false
	}
	s.rows = s.rows[:0]
}
