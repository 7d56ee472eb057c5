package main

import (
	"slices"
	"strings"
)

// A preset is one of the models of Zaremba, Sutskever and Vinyals, "Recurrent
// Neural Network Regularization" (2014), as a race trains it. The JSON is what
// PyTorch's contestants are told.
type preset struct {
	Name   string `json:"name"`
	Vocab  int    `json:"vocab"`
	Layers int    `json:"layers"`
	Hidden int    `json:"hidden"`
	Batch  int    `json:"batch"`
	Unroll int    `json:"unroll"`

	InitScale float64 `json:"init_scale"`
	MaxNorm   float64 `json:"max_norm"`
	Keep      float64 `json:"keep"`
	Rate      float64 `json:"rate"`
}

// presets are the tutorial's but for the rate: random words teach nothing, and
// a small one keeps the weights where they are.
var presets = []preset{
	{"small", 10000, 2, 200, 20, 20, 0.1, 5, 1, 0.1},
	{"medium", 10000, 2, 650, 20, 35, 0.05, 5, 0.5, 0.1},
	{"large", 10000, 2, 1500, 20, 35, 0.04, 10, 0.35, 0.1},
}

// words returns the words of a step.
func (p preset) words() int { return p.Batch * p.Unroll }

func presetNames() string {
	var names []string
	for _, p := range presets {
		names = append(names, p.Name)
	}
	return strings.Join(names, ",")
}

// presetNamed returns a preset, or an error if there is none of that name.
func presetNamed(name string) (preset, error) {
	i := slices.IndexFunc(presets, func(p preset) bool { return p.Name == name })
	if i < 0 {
		return preset{}, usagef("--presets: %q: want some of %s", name, presetNames())
	}
	return presets[i], nil
}
