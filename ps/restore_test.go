package ps

import (
	"bytes"
	"testing"

	"github.com/nlpodyssey/safetensors"

	"pushpull/transport"
)

func fuzzShard(t testing.TB, opt Optimizer) *Shard {
	t.Helper()
	s, err := NewShard(Config{Replicas: 2, Policy: Sync(2), Optimizer: opt, Schedule: Constant(1)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seal gives a file the right checksum, if it can be taken apart at all, so
// that the fuzzer gets past that.
func seal(data []byte) []byte {
	tensors, err := safetensors.Deserialize(data)
	if err != nil {
		return nil
	}
	_, header, err := safetensors.ReadMetadata(data)
	if err != nil {
		return nil
	}
	f := &file{meta: header.Metadata(), tensors: tensors}
	if f.meta == nil {
		f.meta = make(map[string]string)
	}
	f.meta["format"], f.meta["version"] = formatName, formatVersion
	f.meta[checksumKey] = f.checksum().String()
	views := make(map[string]safetensors.TensorView)
	for _, t := range tensors.Tensors() {
		views[t.Name] = t.TensorView
	}
	sealed, err := safetensors.Serialize(views, f.meta)
	if err != nil {
		return nil
	}
	return sealed
}

// FuzzRestore restores any bytes, as they are and with the right checksum.
// Nothing may panic, and what can be restored can be saved and trained.
func FuzzRestore(f *testing.F) {
	for _, opt := range []Optimizer{SGD{}, Momentum{}} {
		s := fuzzShard(f, opt)
		for task := range 2 {
			if _, err := s.Join(transport.Hello{Replica: transport.Replica{Task: task, Life: 1}}); err != nil {
				f.Fatal(err)
			}
		}
		if err := s.Init([]transport.Part{{Variable: "e", Width: 2, Data: make([]float32, 6)}, {Variable: "w", Offset: 3, Data: make([]float32, 2)}}); err != nil {
			f.Fatal(err)
		}
		push := transport.Push{Replica: transport.Replica{Task: 1, Life: 1}, Seq: 1, Cursor: []byte("x")}
		for range 2 {
			if _, err := s.Push(push, nil); err != nil {
				f.Fatal(err)
			}
			push.Replica.Task = 0
		}
		var b bytes.Buffer
		if err := s.Save(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, seal(data)} {
			for _, opt := range []Optimizer{SGD{}, Momentum{}} {
				s := fuzzShard(t, opt)
				if err := s.Restore(bytes.NewReader(data)); err != nil {
					if s.step != -1 {
						t.Fatalf("a failed Restore left step %d", s.step)
					}
					continue
				}
				if _, err := s.Join(transport.Hello{}); err != nil {
					t.Fatalf("join after restore: %v", err)
				}
				var grads []transport.Part
				for _, e := range s.Describe().Extents {
					grads = append(grads, transport.Part{Variable: e.Variable, Offset: e.Offset, Width: e.Width, Data: make([]float32, e.Length)})
				}
				if _, err := s.Push(transport.Push{Seq: 1, Step: s.step}, grads); err != nil {
					t.Fatalf("push after restore: %v", err)
				}
				if err := s.Save(new(bytes.Buffer)); err != nil {
					t.Fatalf("save after restore: %v", err)
				}
			}
		}
	})
}
