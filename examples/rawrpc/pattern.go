package main

import (
	"fmt"
	"unsafe"
)

// sampled is how far apart the bytes are that are checked in every message. All
// bytes are checked in the first message of a process and then in one of
// checkedWhole.
const (
	sampled      = 4099 // a prime: it does not fall in with sizes of buffers
	checkedWhole = 64
)

// patternAt returns byte i of every message.
func patternAt(i int) byte { return byte(uint32(i) * 0x9e3779b1 >> 23) }

// newPattern returns a message of n bytes, that lies where floats may.
func newPattern(n int) []byte {
	words := make([]uint64, n/8+1)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))[:n:n]
	for i := range b {
		b[i] = patternAt(i)
	}
	return b
}

// checkPattern returns an error unless pieces, one after another, are a message
// of n bytes. It looks at a sample of the bytes, or at all of them.
func checkPattern(pieces [][]byte, n int, all bool) error {
	total := 0
	for _, p := range pieces {
		total += len(p)
	}
	if total != n {
		return fmt.Errorf("%d bytes, want %d", total, n)
	}
	at, step := 0, sampled
	if all {
		step = 1
	}
	for _, p := range pieces {
		first := (step - at%step) % step
		for i := first; i < len(p); i += step {
			if p[i] != patternAt(at+i) {
				return fmt.Errorf("byte %d of %d is %#02x, want %#02x: what arrived is not what was sent", at+i, n, p[i], patternAt(at+i))
			}
		}
		at += len(p)
	}
	return nil
}
