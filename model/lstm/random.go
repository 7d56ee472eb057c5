package lstm

// A stream is a sequence of random numbers: the SplitMix64 generator (Steele,
// Lea and Flood 2014). Its state is its place, so any number of it can be had
// at once and eight bytes save it.
type stream uint64

const gamma = 0x9e3779b97f4a7c15 // 2^64 divided by the gamma ratio, odd

// newStream returns the n-th stream of a seed.
func newStream(seed, n uint64) stream { return stream(mix(mix(seed+gamma) + n*gamma)) }

// at returns the i-th number from here.
func (s stream) at(i int) uint64 { return mix(uint64(s) + uint64(i+1)*gamma) }

// skip returns the stream n numbers on.
func (s stream) skip(n int) stream { return s + stream(n)*gamma }

// mix is SplitMix64's output function: a bijection that spreads every bit.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// uniform fills dst with numbers from the stream, uniform in [-scale, scale).
func (s stream) uniform(dst []float32, scale float32) {
	for i := range dst {
		unit := float32(s.at(i)>>40) / (1 << 24) // every 24-bit number is a float32
		dst[i] = (2*unit - 1) * scale
	}
}
