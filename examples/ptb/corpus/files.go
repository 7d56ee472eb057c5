package corpus

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed ptb.train.txt.gz ptb.valid.txt.gz ptb.test.txt.gz
var embedded embed.FS

// Embedded returns the corpus that is part of the program: two novels of Jane
// Austen in the form of the Penn Treebank files. PROVENANCE.md tells more.
func Embedded() (*Corpus, error) { return load("embedded corpus (Jane Austen)", embedded) }

// Load reads the corpus in a directory: the files ptb.train.txt, ptb.valid.txt
// and ptb.test.txt, each plain or, with .gz added to its name, compressed.
func Load(dir string) (*Corpus, error) {
	c, err := load(dir, os.DirFS(dir))
	if errors.Is(err, ErrMissing) {
		if hint := below(dir); hint != "" {
			return nil, fmt.Errorf("%w; they are in %s", err, hint)
		}
	}
	return c, err
}

// load reads all three files, and says of all that are missing.
func load(name string, files fs.FS) (*Corpus, error) {
	var texts [3][]byte
	var missing []string
	for i, split := range []string{"train", "valid", "test"} {
		text, err := readText(files, file(split))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, file(split))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("corpus: %s: %w", name, err)
		}
		texts[i] = text
	}
	if missing != nil {
		return nil, fmt.Errorf("corpus: %w: %s not in %s (want %s, %s and %s there, plain or as .gz)",
			ErrMissing, strings.Join(missing, ", "), name, file("train"), file("valid"), file("test"))
	}
	return Read(name, texts[0], texts[1], texts[2])
}

// readText reads the named file, or else that name with .gz.
func readText(files fs.FS, name string) ([]byte, error) {
	text, err := fs.ReadFile(files, name)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	name += ".gz"
	packed, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if text, err = io.ReadAll(r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}

// below finds the files where the tutorial's archive has them, under dir.
func below(dir string) string {
	for _, sub := range []string{"data", filepath.Join("simple-examples", "data")} {
		at := filepath.Join(dir, sub)
		if _, err := os.Stat(filepath.Join(at, file("train"))); err == nil {
			return at
		}
	}
	return ""
}

// file returns the name of a split's file.
func file(split string) string { return "ptb." + split + ".txt" }
