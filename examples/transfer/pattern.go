package main

import (
	"fmt"
	"hash/crc32"
	"math"

	"pushpull/transport"
)

// stampEvery is the distance between elements that change with every transfer,
// so that a transfer can be told from the one before at the price of a few
// hundred loads for 100 MB. Between them, and all of them, the pattern is
// checked before and after the timed part.
const stampEvery = 1 << 16

// A pattern is what a tensor's elements should be: numbers from 1 to 2 whose
// bits look random, no matter where one looks, and which survive its encoding.
type pattern struct {
	seed uint32
	mask uint32 // bits of the fraction that survive
	unit uint32 // the lowest of them
}

func newPattern(variable string, e transport.Encoding) pattern {
	p := pattern{seed: crc32.ChecksumIEEE([]byte(variable)), mask: 1<<23 - 1, unit: 1}
	switch e {
	case transport.Float16:
		p.unit = 1 << 13
	case transport.BFloat16:
		p.unit = 1 << 16
	}
	p.mask &^= p.unit - 1
	return p
}

// at returns element i; of stamps, as the transfer of that number has them.
func (p pattern) at(i int, number uint64) float32 {
	x := p.seed ^ uint32(i)*0x9e3779b1
	x = (x ^ x>>15) * 0x85ebca77
	x ^= x >> 13
	return math.Float32frombits(0x3f800000 | (x+uint32(number)*p.unit)&p.mask)
}

// fill writes the whole pattern, with the stamps of transfer 0.
func (p pattern) fill(data []float32) {
	for i := range data {
		data[i] = p.at(i, 0)
	}
}

// stamp writes the elements that change with the number of a transfer.
func (p pattern) stamp(data []float32, number uint64) {
	for i := 0; i < len(data); i += stampEvery {
		data[i] = p.at(i, number)
	}
	if last := len(data) - 1; last >= 0 {
		data[last] = p.at(last, number)
	}
}

// checkStamps returns an error unless data bears the stamps of a transfer.
func (p pattern) checkStamps(data []float32, number uint64) error {
	for i := 0; i < len(data); i += stampEvery {
		if data[i] != p.at(i, number) {
			return p.corrupt(data, i, number)
		}
	}
	if last := len(data) - 1; last >= 0 && data[last] != p.at(last, number) {
		return p.corrupt(data, last, number)
	}
	return nil
}

// checkAll returns an error unless data is all that a transfer sent.
func (p pattern) checkAll(data []float32, number uint64) error {
	for i := range data {
		k := number
		if i%stampEvery != 0 && i != len(data)-1 {
			k = 0
		}
		if data[i] != p.at(i, k) {
			return p.corrupt(data, i, k)
		}
	}
	return nil
}

func (p pattern) corrupt(data []float32, i int, number uint64) error {
	return fmt.Errorf("element %d of %d is %v, want %v: what arrived is not what was sent: %w",
		i, len(data), data[i], p.at(i, number), transport.ErrInvalid)
}
