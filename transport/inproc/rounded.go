package inproc

import (
	"slices"

	"pushpull/transport"
)

// rounded returns parts as the far end would see them: themselves if they
// travel as they are, else with rounded copies of the data of those that do
// not. The copies are good until free is called.
func (n *Network) rounded(parts []transport.Part) (_ []transport.Part, free func()) {
	total := 0
	for _, p := range parts {
		if p.Encoding != transport.Float32 {
			total += len(p.Data)
		}
	}
	if total == 0 {
		return parts, func() {}
	}
	buf := n.floats.Get(total)
	rest := *buf
	parts = slices.Clone(parts)
	for i := range parts {
		if p := &parts[i]; p.Encoding != transport.Float32 {
			k := copy(rest, p.Data)
			p.Data, rest = rest[:k:k], rest[k:]
			p.Encoding.Round(p.Data)
		}
	}
	return parts, func() { n.floats.Put(buf) }
}
