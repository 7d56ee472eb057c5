package compute

import "sync"

// Parallel calls f on at most threads contiguous pieces [lo, hi) that together
// are [0, n), of sizes that differ by no more than one, and returns when all
// calls have. The caller's goroutine takes the first piece. With one thread, or
// n < 2, it only calls f(0, n) (not at all if n is 0): no goroutine, and no memory
// beyond what making f took. Make f once if it is needed often: a closure that
// captures variables is allocated where it is written.
func Parallel(threads, n int, f func(lo, hi int)) {
	pieces := min(threads, n)
	if pieces <= 1 {
		if n > 0 {
			f(0, n)
		}
		return
	}
	var wg sync.WaitGroup
	for i := 1; i < pieces; i++ {
		wg.Go(func() { f(i*n/pieces, (i+1)*n/pieces) })
	}
	f(0, n/pieces)
	wg.Wait()
}
