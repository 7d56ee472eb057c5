package lstm

// allocate returns n zeros for what is as large as a batch or a weight.
func allocate(n int) []float32 {
	x := make([]float32, n)
	adviseHuge(x)
	return x
}
