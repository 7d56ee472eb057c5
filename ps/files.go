package ps

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"pushpull/transport"
)

// fileName tells the files of a checkpoint directory apart.
type fileName struct {
	task, tasks int
	step        int64
}

// String returns the name, as in "ps-0-of-2-step-000000123.safetensors".
func (n fileName) String() string {
	return fmt.Sprintf("ps-%d-of-%d-step-%09d.safetensors", n.task, n.tasks, n.step)
}

// parseFileName returns what a file's name says; ok is false if it is not that
// of a checkpoint.
func parseFileName(name string) (n fileName, ok bool) {
	_, err := fmt.Sscanf(name, "ps-%d-of-%d-step-%d.safetensors", &n.task, &n.tasks, &n.step)
	return n, err == nil && n.String() == name
}

// list returns the checkpoints of a task in dir, the newest first, and those of
// the same task of a job with another number of parameter servers.
func list(dir string, task, tasks int) (own, other []fileName, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		switch n, ok := parseFileName(e.Name()); {
		case !ok:
		case n.task == task && n.tasks == tasks:
			own = append(own, n)
		case n.tasks != tasks:
			other = append(other, n)
		}
	}
	slices.SortFunc(own, func(a, b fileName) int { return cmp.Compare(b.step, a.step) })
	return own, other, nil
}

// restoreNewest restores the newest whole checkpoint of the shard's task. It
// makes the directory if there is none.
func restoreNewest(s *Shard) error {
	dir, log := s.cfg.Checkpoint.Dir, s.cfg.Log
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%s: checkpoint directory: %w", s.task, err)
	}
	removeLeftovers(s)
	own, other, err := list(dir, s.cfg.Task, s.cfg.Tasks)
	if err != nil {
		return fmt.Errorf("%s: checkpoint directory: %w", s.task, err)
	}
	if len(own) == 0 && len(other) > 0 {
		return fmt.Errorf("%s: restore: %s is of a job with %d parameter servers, this one has %d; start as many, or use another checkpoint directory: %w",
			s.task, filepath.Join(dir, other[0].String()), other[0].tasks, s.cfg.Tasks, transport.ErrJob)
	}
	for i, n := range own {
		path := filepath.Join(dir, n.String())
		data, err := os.ReadFile(path)
		if err == nil {
			err = s.restore(data)
		}
		if err == nil {
			log.Info("restored checkpoint", "task", s.task, "file", path, "step", s.step, "examples", s.seen)
			return setAside(dir, own[:i])
		}
		if !errors.Is(err, ErrDamaged) {
			return fmt.Errorf("%s: restore %s: %w", s.task, path, err)
		}
		log.Warn("skipped checkpoint", "task", s.task, "file", path, "error", err)
	}
	if len(own) > 0 {
		return fmt.Errorf("%s: restore: none of the checkpoints in %s is whole, the newest is %s; move them away to begin from the start: %w",
			s.task, dir, own[0], ErrDamaged)
	}
	return nil
}

// setAside renames damaged checkpoints, so that they do not count among those
// to keep.
func setAside(dir string, damaged []fileName) error {
	for _, n := range damaged {
		path := filepath.Join(dir, n.String())
		if err := os.Rename(path, path+".damaged"); err != nil {
			return fmt.Errorf("ps: set aside a damaged checkpoint: %w", err)
		}
	}
	return nil
}

// tempPattern is that of a task's unfinished files, for os.CreateTemp and
// filepath.Glob.
func tempPattern(task, tasks int) string { return fmt.Sprintf(".ps-%d-of-%d-*.tmp", task, tasks) }

// removeLeftovers removes files that a process of the same task, which ended
// while it saved, has not finished.
func removeLeftovers(s *Shard) {
	names, err := filepath.Glob(filepath.Join(s.cfg.Checkpoint.Dir, tempPattern(s.cfg.Task, s.cfg.Tasks)))
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		s.cfg.Log.Warn("unfinished checkpoint stays", "task", s.task, "error", err)
	}
}

// writeCheckpoint writes snap into dir, whole or not at all, and returns its
// name.
func writeCheckpoint(dir string, snap *snapshot) (fileName, error) {
	name := fileName{snap.task, snap.tasks, snap.step}
	temp, err := writeTemp(dir, snap)
	if err == nil {
		err = os.Rename(temp, filepath.Join(dir, name.String()))
	}
	if err == nil {
		return name, syncDir(dir)
	}
	if temp != "" {
		err = errors.Join(err, os.Remove(temp))
	}
	return name, err
}

// writeTemp writes snap to a temporary file, down to the disk, and returns the
// file's path; "" if there is no file.
func writeTemp(dir string, snap *snapshot) (path string, err error) {
	f, err := os.CreateTemp(dir, tempPattern(snap.task, snap.tasks))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := snap.write(w); err != nil {
		return f.Name(), err
	}
	if err := w.Flush(); err != nil {
		return f.Name(), err
	}
	if err := f.Chmod(0o644); err != nil {
		return f.Name(), err
	}
	return f.Name(), f.Sync()
}

// syncDir makes a rename in dir survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// retain removes all checkpoints of the task of saved but the newest keep and
// saved itself. If keep is 0 it removes none.
func retain(dir string, saved fileName, keep int) error {
	if keep == 0 {
		return nil
	}
	own, _, err := list(dir, saved.task, saved.tasks)
	if err != nil {
		return err
	}
	for i, n := range own {
		if i < keep || n == saved {
			continue
		}
		if rmErr := os.Remove(filepath.Join(dir, n.String())); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}
