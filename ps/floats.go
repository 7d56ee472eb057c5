package ps

// The loops below take eight elements at a time through array pointers, which
// spares the bounds checks. The plain loops, and proof that they agree, are in
// the tests.

// add adds g to s, which is as long.
func add(s, g []float32) {
	for len(g) >= 8 && len(s) >= 8 {
		a, b := (*[8]float32)(s), (*[8]float32)(g)
		a[0] += b[0]
		a[1] += b[1]
		a[2] += b[2]
		a[3] += b[3]
		a[4] += b[4]
		a[5] += b[5]
		a[6] += b[6]
		a[7] += b[7]
		s, g = s[8:], g[8:]
	}
	for i, x := range g {
		s[i] += x
	}
}

// addToZero sets s to 0 + g, which differs from g in that no zero is negative.
func addToZero(s, g []float32) {
	for len(g) >= 8 && len(s) >= 8 {
		a, b := (*[8]float32)(s), (*[8]float32)(g)
		a[0] = 0 + b[0]
		a[1] = 0 + b[1]
		a[2] = 0 + b[2]
		a[3] = 0 + b[3]
		a[4] = 0 + b[4]
		a[5] = 0 + b[5]
		a[6] = 0 + b[6]
		a[7] = 0 + b[7]
		s, g = s[8:], g[8:]
	}
	for i, x := range g {
		s[i] = 0 + x
	}
}

// mean divides s by n.
func mean(s []float32, n int) {
	if n == 1 {
		return
	}
	d := float32(n)
	for i := range s {
		s[i] /= d
	}
}

// finite reports whether x holds no NaN and no infinity: x-x is zero for all
// other numbers and NaN for these, and NaN stays in a sum.
func finite(x []float32) bool {
	var a, b, c, d float32
	for len(x) >= 8 {
		y := (*[8]float32)(x)
		a += y[0] - y[0]
		b += y[1] - y[1]
		c += y[2] - y[2]
		d += y[3] - y[3]
		a += y[4] - y[4]
		b += y[5] - y[5]
		c += y[6] - y[6]
		d += y[7] - y[7]
		x = x[8:]
	}
	for _, y := range x {
		a += y - y
	}
	return a+b+c+d == 0
}
