package compute

import "golang.org/x/sys/cpu"

// candidates returns the engines of this architecture, the fastest first.
func candidates() []candidate {
	return []candidate{
		{engine: &avx512, lacking: lacking([]feature{
			{"AVX512F", cpu.X86.HasAVX512F},
			{"AVX512DQ", cpu.X86.HasAVX512DQ},
			{"AVX512BW", cpu.X86.HasAVX512BW},
			{"AVX512VL", cpu.X86.HasAVX512VL},
			{"AVX2", cpu.X86.HasAVX2},
			{"FMA", cpu.X86.HasFMA},
		})},
		{engine: &avx2, lacking: lacking([]feature{
			{"AVX2", cpu.X86.HasAVX2},
			{"FMA", cpu.X86.HasFMA},
		})},
		{engine: portable{}},
	}
}

// A feature is an extension of the instruction set that an engine needs.
type feature struct {
	name string
	has  bool
}

// lacking returns the names of the features the CPU does not have.
func lacking(needed []feature) []string {
	var names []string
	for _, f := range needed {
		if !f.has {
			names = append(names, f.name)
		}
	}
	return names
}
