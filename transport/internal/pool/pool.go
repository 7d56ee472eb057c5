// Package pool keeps slices for reuse by size. Unlike grpc's pool it does not
// clear what it hands out, and unlike a bare sync.Pool it does not hand out a
// slice much larger than was asked for.
package pool

import (
	"math/bits"
	"sync"
)

// smallest is the capacity below which slices are not told apart.
const smallest = 256

// A Pool keeps slices of T for reuse. The zero value is ready. What is kept
// and not used goes to the garbage collector after a while. A Pool of bytes is
// a mem.BufferPool of grpc. It is safe for concurrent use.
type Pool[T byte | float32] struct {
	classes [4 * bits.UintSize]sync.Pool // of *[]T, by class
}

// Get returns a slice of n elements with any content.
func (p *Pool[T]) Get(n int) *[]T {
	if s := p.Reuse(n); s != nil {
		return s
	}
	_, size := class(n)
	s := make([]T, n, size)
	return &s
}

// Reuse returns a slice of n elements with any content if the pool has one
// that is not much larger, else nil.
func (p *Pool[T]) Reuse(n int) *[]T {
	c, _ := class(n)
	s, _ := p.classes[c].Get().(*[]T)
	if s != nil {
		*s = (*s)[:n]
	}
	return s
}

// Put hands back a slice that came from the pool and that nobody uses anymore.
func (p *Pool[T]) Put(s *[]T) {
	if c, size := class(cap(*s)); size == cap(*s) {
		p.classes[c].Put(s)
	}
}

// class returns the class of slices that have room for n elements, and their
// capacity: n rounded up to three significant bits, so at most a quarter
// larger.
func class(n int) (c, size int) {
	n = max(n, smallest)
	shift := bits.Len(uint(n-1)) - 3
	top := (n-1)>>shift + 1 // 5 to 8
	return 4*shift + top - 5, top << shift
}
