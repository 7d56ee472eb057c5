package ps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/nlpodyssey/safetensors"

	"pushpull/transport"
)

// ErrDamaged reports a checkpoint that is truncated, was changed after it was
// written, or is none.
var ErrDamaged = errors.New("damaged checkpoint")

// Restore replaces the shard's state by what Save wrote. No replica has joined
// then; the first to do so gives the plan anew. On an error the shard is as
// before: [ErrDamaged] if the bytes are not a whole checkpoint,
// [transport.ErrJob] if it is that of another job. It reads r to its end and
// takes memory in proportion to what it reads.
func (s *Shard) Restore(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("%s: restore: %w", s.task, err)
	}
	if err := s.restore(data); err != nil {
		return fmt.Errorf("%s: restore: %w", s.task, err)
	}
	return nil
}

func (s *Shard) restore(data []byte) error {
	file, err := parse(data)
	if err != nil {
		return err
	}
	if err := s.sameJob(file); err != nil {
		return err
	}
	snap, err := file.snapshot(s.cfg.Optimizer)
	if err != nil {
		return err
	}
	restored := newShard(s.cfg)
	restored.step, restored.seen, restored.stepStart = snap.step, snap.seen, snap.stepStart
	restored.plan = snap.plan
	restored.hold(snap.parts)
	for _, saved := range snap.replicas {
		if saved.Task >= len(restored.replicas) {
			continue // the job has fewer replicas than when it was saved
		}
		p := &restored.replicas[saved.Task].progress
		p.last, p.cursor, p.examples = saved.Seq, saved.Cursor, saved.Examples
		for _, v := range transport.Verdicts {
			p.verdicts[v] = saved.Verdicts[v.String()]
		}
	}
	*s = *restored
	return nil
}

// A file is a checkpoint whose checksum is right.
type file struct {
	meta    map[string]string
	tensors safetensors.SafeTensors
}

// parse takes a checkpoint apart and verifies its checksum. The file aliases
// data.
func parse(data []byte) (*file, error) {
	tensors, err := safetensors.Deserialize(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %d bytes: %w", ErrDamaged, len(data), err)
	}
	_, header, err := safetensors.ReadMetadata(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %d bytes: %w", ErrDamaged, len(data), err)
	}
	f := &file{meta: header.Metadata(), tensors: tensors}
	if f.meta["format"] != formatName {
		return nil, fmt.Errorf("%w: format %q: want %q", ErrDamaged, f.meta["format"], formatName)
	}
	if got, want := f.checksum().String(), f.meta[checksumKey]; got != want {
		return nil, fmt.Errorf("%w: checksum %s: want %q", ErrDamaged, got, want)
	}
	if f.meta["version"] != formatVersion {
		return nil, fmt.Errorf("format version %q: this program reads %q; use the program that wrote it", f.meta["version"], formatVersion)
	}
	return f, nil
}

func (f *file) checksum() checksum {
	c := newChecksum(f.meta)
	for _, name := range slices.Sorted(slices.Values(f.tensors.Names())) {
		t, _ := f.tensors.Tensor(name)
		c.tensor(name, t.DType(), t.Shape(), t.Data())
	}
	return c
}

// sameJob returns on what the file and the shard disagree, nil if nothing.
func (s *Shard) sameJob(f *file) error {
	const advice = "start with the flags it was saved with, or use another checkpoint directory"
	var saved []savedSetting
	if err := f.decode("settings", &saved); err != nil {
		return err
	}
	settings := make([]transport.Setting, len(saved))
	for i, set := range saved {
		settings[i] = transport.Setting(set)
	}
	if name, our, their, ok := mismatch(s.cfg.Settings, settings); !ok {
		return fmt.Errorf("%w: %s: the checkpoint says %s, this server runs %s; %s", transport.ErrJob, name, their, our, advice)
	}
	for _, field := range []struct{ name, our string }{
		{"task", strconv.Itoa(s.cfg.Task)},
		{"tasks", strconv.Itoa(s.cfg.Tasks)},
		{"optimizer", s.cfg.Optimizer.Name()},
	} {
		if their := f.meta[field.name]; their != field.our {
			return fmt.Errorf("%w: %s: the checkpoint says %q, this server runs %q; %s",
				transport.ErrJob, field.name, their, field.our, advice)
		}
	}
	return nil
}

// snapshot returns what the file holds, checked, in memory of its own.
func (f *file) snapshot(opt Optimizer) (*snapshot, error) {
	snap := new(snapshot)
	for _, field := range []struct {
		name string
		n    *int64
	}{{"step", &snap.step}, {"examples", &snap.seen}, {"step_examples", &snap.stepStart}} {
		n, err := strconv.ParseInt(f.meta[field.name], 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%w: %s is %q: want a number", ErrDamaged, field.name, f.meta[field.name])
		}
		*field.n = n
	}
	if err := f.decode("plan", (*savedPlan)(&snap.plan)); err != nil {
		return nil, err
	}
	if err := f.decode("replicas", &snap.replicas); err != nil {
		return nil, err
	}
	for _, r := range snap.replicas {
		if r.Task < 0 || r.Examples < 0 {
			return nil, fmt.Errorf("%w: replica %+v out of range", ErrDamaged, r)
		}
	}
	var parts []savedPart
	if err := f.decode("parts", &parts); err != nil {
		return nil, err
	}
	if got, want := f.tensors.Len(), len(parts)*(1+opt.Slots()); got != want {
		return nil, fmt.Errorf("%w: %d tensors for %d parts: want %d", ErrDamaged, got, len(parts), want)
	}
	for _, p := range parts {
		h, err := f.part(p, opt)
		if err != nil {
			return nil, err
		}
		snap.parts = append(snap.parts, h)
	}
	if err := sortParts(snap.parts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return snap, nil
}

// part returns the weights and slots of a part.
func (f *file) part(p savedPart, opt Optimizer) (*part, error) {
	w, err := f.floats(weightsName(partName{p.Variable, p.Offset}))
	if err != nil {
		return nil, err
	}
	h, err := newPart(transport.Part{Variable: p.Variable, Offset: p.Offset, Width: p.Width, Data: w})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	for i := range opt.Slots() {
		slot, err := f.floats(slotName(i, h.partName))
		if err != nil {
			return nil, err
		}
		if len(slot) != len(w) {
			return nil, fmt.Errorf("%w: %s has %d elements: want %d", ErrDamaged, slotName(i, h.partName), len(slot), len(w))
		}
		h.slots = append(h.slots, slot)
	}
	return h, nil
}

// floats returns a copy of a tensor.
func (f *file) floats(name string) ([]float32, error) {
	t, ok := f.tensors.Tensor(name)
	if !ok || t.DType() != safetensors.F32 {
		return nil, fmt.Errorf("%w: no tensor %q of type F32", ErrDamaged, name)
	}
	x := make([]float32, t.DataLen()/4)
	transport.Float32.Decode(x, t.Data())
	return x, nil
}

// decode reads a metadata string that holds JSON.
func (f *file) decode(name string, v any) error {
	if err := json.Unmarshal([]byte(f.meta[name]), v); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return nil
}
