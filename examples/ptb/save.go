package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nlpodyssey/safetensors"

	"pushpull/model"
	"pushpull/transport"
)

// saveModel writes the variables, float32 in their shapes, and metadata to a
// safetensors file.
func saveModel(path string, vars []*model.Variable, metadata map[string]string) error {
	tensors := make(map[string]safetensors.TensorView, len(vars))
	for _, v := range vars {
		shape := make([]uint64, len(v.Shape))
		for i, n := range v.Shape {
			shape[i] = uint64(n)
		}
		data := make([]byte, 4*len(v.Value))
		transport.Float32.Encode(data, v.Value)
		t, err := safetensors.NewTensorView(safetensors.F32, shape, data)
		if err != nil {
			return fmt.Errorf("save %s: variable %s: %w", path, v.Name, err)
		}
		tensors[v.Name] = t
	}
	return writeFile(path, func(w io.Writer) error { return safetensors.SerializeToWriter(tensors, metadata, w) })
}

// writeFile writes a file that is either complete or not there, or is what it
// was before.
func writeFile(path string, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("save %s: %w", path, err)
		}
	}()
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once the file has its name
	defer f.Close()           // fails once it has been closed
	w := bufio.NewWriter(f)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
