package compute

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrUnavailable reports an engine that this CPU cannot run, or a name that no
// engine has.
var ErrUnavailable = errors.New("engine unavailable")

// A candidate is an engine this program has, and what the CPU lacks to run it.
type candidate struct {
	engine  Engine
	lacking []string // empty if the engine can run here
}

// Best returns the fastest engine this CPU can run.
func Best() Engine {
	for _, c := range candidates() {
		if len(c.lacking) == 0 {
			return c.engine
		}
	}
	return portable{}
}

// ByName returns the engine of the given name. If there is none, or the CPU
// cannot run it, the error says why, names those that can be had, and wraps
// [ErrUnavailable].
func ByName(name string) (Engine, error) {
	all := candidates()
	i := slices.IndexFunc(all, func(c candidate) bool { return c.engine.Name() == name })
	if i >= 0 && len(all[i].lacking) == 0 {
		return all[i].engine, nil
	}
	reason := "there is none of that name in this program"
	if i >= 0 {
		reason = "the CPU lacks " + strings.Join(all[i].lacking, ", ")
	}
	return nil, fmt.Errorf("compute: %w: %q: %s; use one of %s", ErrUnavailable, name, reason, strings.Join(Names(), ", "))
}

// Names returns the names of the engines this CPU can run, the fastest first.
func Names() []string {
	var names []string
	for _, c := range candidates() {
		if len(c.lacking) == 0 {
			names = append(names, c.engine.Name())
		}
	}
	return names
}
