package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed torch_ptb.py
var torchProgram string

// torchFile writes torchProgram to a file and returns its path, and how to remove it.
func torchFile() (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "race")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, "torch_ptb.py")
	if err := os.WriteFile(path, []byte(torchProgram), 0o600); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

// torchCommand returns the command of PyTorch, in the mode that the name says.
// The program is torchProgram in a file.
func torchCommand(python, program, name string, p preset, threads int) (command, error) {
	spec, err := json.Marshal(struct {
		preset
		Mode    string `json:"mode"`
		Threads int    `json:"threads"`
		Warmup  int    `json:"warmup"`
		Batches int    `json:"batches"`
	}{p, strings.TrimPrefix(name, "torch."), threads, warmup, batches})
	return command{name, []string{python, program, string(spec)}}, err
}

// errNoTorch reports a Python without PyTorch.
var errNoTorch = errors.New("no PyTorch")

// A torch is the PyTorch that a Python has.
type torch struct {
	version string
	blas    string // path of the library that multiplies its matrices; empty if not known
}

// askTorch has a Python describe its PyTorch.
const askTorch = `
import os, sys, torch
print(torch.__version__)
torch.mm(torch.zeros(2, 2), torch.zeros(2, 2))
for line in open("/proc/self/maps") if os.path.exists("/proc/self/maps") else []:
    path = line.split()[-1]
    if os.path.basename(path).startswith(("libblas.so", "libopenblas", "libblis", "libmkl_rt")):
        print(path)
        break
`

// findTorch asks a Python for its PyTorch.
func findTorch(ctx context.Context, python string) (torch, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", askTorch)
	cmd.Env = environment(1)
	out, err := cmd.Output()
	if err != nil {
		return torch{}, fmt.Errorf("%w: %s cannot import torch (%v); install python3-torch, or name another Python with --python", errNoTorch, python, err)
	}
	version, blas, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return torch{version, blas}, nil
}

// slow reports whether the library is the reference BLAS, which no race is worth.
func (t torch) slow() bool { return strings.Contains(t.blas, "/blas/libblas.so") }

func (t torch) String() string {
	if t.blas == "" {
		return t.version
	}
	return t.version + " with " + t.blas
}
