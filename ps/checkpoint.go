package ps

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/nlpodyssey/safetensors"

	"pushpull/transport"
)

// The format is described in docs/checkpoint.md.
const (
	formatName    = "pushpull-checkpoint"
	formatVersion = "1"
)

// Save writes the shard as of its last update. Gradients gathered since are not
// part of it; the replicas that gave them are saved as before, so that they
// compute them again.
//
// A shard without weights cannot be saved: [transport.ErrNotReady].
func (s *Shard) Save(w io.Writer) error {
	if s.step < 0 {
		return fmt.Errorf("%s: save: no weights yet: %w", s.task, transport.ErrNotReady)
	}
	if err := s.snapshot().write(w); err != nil {
		return fmt.Errorf("%s: save: %w", s.task, err)
	}
	return nil
}

// snapshot is the state that a checkpoint holds.
type snapshot struct {
	task, tasks     int
	optimizer       string
	step            int64
	seen, stepStart int64 // examples
	plan            transport.Plan
	settings        []transport.Setting
	replicas        []savedReplica
	parts           []*part // weights and slots only
}

// savedReplica is a replica's progress in a checkpoint, as JSON.
type savedReplica struct {
	Task     int              `json:"task"`
	Seq      uint64           `json:"seq"`
	Cursor   []byte           `json:"cursor"` // base64; null if none
	Examples int64            `json:"examples"`
	Verdicts map[string]int64 `json:"verdicts"`
}

// savedPart is a part in a checkpoint, as JSON.
type savedPart struct {
	Variable string `json:"variable"`
	Offset   int    `json:"offset"`
	Width    int    `json:"width"`
}

// savedPlan is a plan in a checkpoint, as JSON.
type savedPlan struct {
	EpochExamples int64 `json:"epoch_examples"`
	Examples      int64 `json:"examples"`
	Steps         int64 `json:"steps"`
}

// savedSetting is a setting in a checkpoint, as JSON.
type savedSetting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// snapshot returns the shard's state. Its weights, slots and settings are the
// shard's own; all else is copied.
func (s *Shard) snapshot() *snapshot {
	snap := &snapshot{
		task: s.cfg.Task, tasks: s.cfg.Tasks,
		optimizer: s.cfg.Optimizer.Name(),
		step:      s.step,
		seen:      s.seen,
		stepStart: s.stepStart,
		plan:      s.plan,
		settings:  s.cfg.Settings,
		parts:     s.parts,
		replicas:  []savedReplica{},
	}
	for task := range s.replicas {
		r := &s.replicas[task]
		p := r.settled()
		snap.seen -= r.examples - p.examples
		if p.last == 0 {
			continue
		}
		verdicts := make(map[string]int64)
		for v, n := range p.verdicts.toMap() {
			verdicts[v.String()] = n
		}
		snap.replicas = append(snap.replicas, savedReplica{
			Task: task, Seq: p.last, Cursor: slices.Clone(p.cursor), Examples: p.examples, Verdicts: verdicts,
		})
	}
	return snap
}

// detach copies the weights and slots, so that the shard may go on.
func (snap *snapshot) detach() {
	snap.parts = slices.Clone(snap.parts)
	for i, h := range snap.parts {
		c := &part{partName: h.partName, width: h.width, w: slices.Clone(h.w)}
		for _, slot := range h.slots {
			c.slots = append(c.slots, slices.Clone(slot))
		}
		snap.parts[i] = c
	}
}

// bytes returns about how long the checkpoint is.
func (snap *snapshot) bytes() int64 {
	var n int64
	for _, h := range snap.parts {
		n += 4 * int64(len(h.w)) * int64(1+len(h.slots))
	}
	return n
}

// write writes the snapshot as a checkpoint.
func (snap *snapshot) write(w io.Writer) error {
	meta, err := snap.metadata()
	if err != nil {
		return err
	}
	tensors := snap.tensors()
	sum := newChecksum(meta)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		sum.tensor(name, t.DType(), t.Shape(), t.Data())
	}
	meta[checksumKey] = sum.String()
	return safetensors.SerializeToWriter(tensors, meta, w)
}

// metadata returns the strings of the header, less the checksum.
func (snap *snapshot) metadata() (map[string]string, error) {
	parts := []savedPart{} // not nil, so that it is [] and not null in JSON
	for _, h := range snap.parts {
		parts = append(parts, savedPart{h.variable, h.offset, h.width})
	}
	settings := []savedSetting{}
	for _, set := range snap.settings {
		settings = append(settings, savedSetting(set))
	}
	meta := map[string]string{
		"format":        formatName,
		"version":       formatVersion,
		"task":          strconv.Itoa(snap.task),
		"tasks":         strconv.Itoa(snap.tasks),
		"optimizer":     snap.optimizer,
		"step":          strconv.FormatInt(snap.step, 10),
		"examples":      strconv.FormatInt(snap.seen, 10),
		"step_examples": strconv.FormatInt(snap.stepStart, 10),
	}
	for name, v := range map[string]any{
		"parts":    parts,
		"plan":     savedPlan(snap.plan),
		"replicas": snap.replicas,
		"settings": settings,
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		meta[name] = string(text)
	}
	return meta, nil
}

// tensors returns weights and slots under their names. The Data of one is valid
// until that of the next is asked for.
func (snap *snapshot) tensors() map[string]tensor {
	tensors := make(map[string]tensor)
	var buf []byte
	for _, h := range snap.parts {
		shape := []uint64{uint64(len(h.w))}
		if h.width > 1 && h.rows() > 0 {
			shape = []uint64{uint64(h.rows()), uint64(h.width)}
		}
		tensors[weightsName(h.partName)] = tensor{shape, h.w, &buf}
		for i, slot := range h.slots {
			tensors[slotName(i, h.partName)] = tensor{shape, slot, &buf}
		}
	}
	return tensors
}

func weightsName(n partName) string { return fmt.Sprintf("w:%s@%d", n.variable, n.offset) }

func slotName(slot int, n partName) string {
	return fmt.Sprintf("slot%d:%s@%d", slot, n.variable, n.offset)
}

// tensor is a safetensors.View of floats, which makes their bytes when asked.
type tensor struct {
	shape []uint64
	x     []float32
	buf   *[]byte // scratch, shared by all tensors of a file
}

func (t tensor) DType() safetensors.DType { return safetensors.F32 }
func (t tensor) Shape() []uint64          { return t.shape }
func (t tensor) DataLen() uint64          { return 4 * uint64(len(t.x)) }

func (t tensor) Data() []byte {
	n := 4 * len(t.x)
	*t.buf = slices.Grow((*t.buf)[:0], n)[:n]
	transport.Float32.Encode(*t.buf, t.x)
	return *t.buf
}

// checksumKey is the metadata string that holds the checksum.
const checksumKey = "crc32c"

// checksum is a CRC-32C over all that a file says, in an order that does not
// depend on how its header is written.
type checksum struct{ hash.Hash32 }

// newChecksum returns the checksum of metadata, to which the tensors are to be
// added in the order of their names.
func newChecksum(meta map[string]string) checksum {
	c := checksum{crc32.New(crc32.MakeTable(crc32.Castagnoli))}
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		if name != checksumKey {
			c.text(name)
			c.text(meta[name])
		}
	}
	return c
}

func (c checksum) tensor(name string, dtype safetensors.DType, shape []uint64, data []byte) {
	c.text(name)
	c.text(dtype.String())
	c.number(uint64(len(shape)))
	for _, n := range shape {
		c.number(n)
	}
	c.number(uint64(len(data)))
	c.Write(data)
}

func (c checksum) text(s string) {
	c.number(uint64(len(s)))
	io.WriteString(c, s)
}

func (c checksum) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	c.Write(b[:])
}

func (c checksum) String() string { return fmt.Sprintf("%08x", c.Sum32()) }
