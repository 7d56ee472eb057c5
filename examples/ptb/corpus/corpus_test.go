package corpus_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pushpull/examples/ptb/corpus"
)

// A vocabCase is a reading by the reference reader. That reader drops the words
// of valid that it does not know; ours must not, so valid_tokens decides.
type vocabCase struct {
	Name        string
	Train       string
	TrainTokens []string `json:"train_tokens"`
	Vocab       [][2]any `json:"vocab_in_id_order"`
	TrainIDs    []int32  `json:"train_ids"`
	Valid       string
	ValidTokens []string `json:"valid_tokens"`
	ValidIDs    []int32  `json:"valid_ids"`
}

func golden(t testing.TB) []vocabCase {
	text, err := os.ReadFile("testdata/reader.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases struct {
		Vocab []vocabCase `json:"vocab_cases"`
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases.Vocab) == 0 {
		t.Fatal("testdata/reader.json: no vocab_cases")
	}
	return cases.Vocab
}

func TestReadAgreesWithReferenceReader(t *testing.T) {
	for _, tc := range golden(t) {
		t.Run(tc.Name, func(t *testing.T) {
			c, err := corpus.Read("golden", []byte(tc.Train), []byte(tc.Train), []byte(tc.Train))
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, entry := range tc.Vocab {
				words = append(words, entry[0].(string))
			}
			if diff := cmp.Diff(words, c.Words); diff != "" {
				t.Errorf("vocabulary (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.TrainIDs, c.Train); diff != "" {
				t.Errorf("train (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.TrainTokens, spell(c, c.Train)); diff != "" {
				t.Errorf("train in words (-want +got):\n%s", diff)
			}
			checkValid(t, tc)
		})
	}
}

// checkValid reads the case's valid text and compares it with the reference
// reader's, into which it puts back what that drops.
func checkValid(t *testing.T, tc vocabCase) {
	t.Helper()
	c, err := corpus.Read("golden", []byte(tc.Train), []byte(tc.Valid), []byte(tc.Train))
	dropped := len(tc.ValidTokens) - len(tc.ValidIDs)
	if dropped > 0 && !slices.Contains(tc.TrainTokens, corpus.Unknown) {
		if !errors.Is(err, corpus.ErrUnknownWord) {
			t.Errorf("valid with %d unknown words and no <unk>: error %v, want ErrUnknownWord", dropped, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Unknown, dropped; got != want {
		t.Errorf("Unknown = %d, want %d", got, want)
	}
	known := tc.ValidIDs
	for i, w := range tc.ValidTokens {
		want := int32(slices.Index(c.Words, corpus.Unknown))
		if slices.Contains(c.Words, w) {
			want, known = known[0], known[1:]
		}
		if got := c.Valid[i]; got != want {
			t.Errorf("valid[%d] (%q) = %d, want %d", i, w, got, want)
		}
	}
}

func spell(c *corpus.Corpus, tokens []int32) []string {
	words := make([]string, len(tokens))
	for i, id := range tokens {
		words[i] = c.Words[id]
	}
	return words
}

func TestEmbeddedCorpusIsTheOneDescribed(t *testing.T) {
	c, err := corpus.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	got := []int{len(c.Train), len(c.Valid), len(c.Test), len(c.Words), c.Unknown}
	if want := []int{178616, 18173, 18841, 3620, 0}; !slices.Equal(got, want) {
		t.Errorf("train, valid, test, vocabulary, unknown = %v, want %v", got, want)
	}
	if c.Standard {
		t.Error("Standard = true, want false")
	}
	if got, want := strings.Join(spell(c, c.Train[:8]), " "), "it is a truth universally acknowledged that a"; got != want {
		t.Errorf("train begins %q, want %q", got, want)
	}
}

func TestLoadReadsPlainAndCompressedFiles(t *testing.T) {
	dir := t.TempDir()
	for _, split := range []string{"train", "test"} {
		write(t, filepath.Join(dir, "ptb."+split+".txt"), " some one <unk> \n")
	}
	packed, err := os.ReadFile("ptb.valid.txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "ptb.valid.txt.gz"), string(packed))
	c, err := corpus.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(c.Valid), 18173; got != want {
		t.Errorf("len(Valid) = %d, want %d", got, want)
	}
	if c.Unknown == 0 || c.Unknown >= len(c.Valid) {
		t.Errorf("Unknown = %d, want between 1 and %d", c.Unknown, len(c.Valid)-1)
	}
}

func TestLoadSaysWhatIsMissingAndWhere(t *testing.T) {
	empty, partial, above := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(partial, "ptb.train.txt"), " a \n")
	write(t, filepath.Join(partial, "ptb.test.txt"), "")
	write(t, filepath.Join(above, "simple-examples", "data", "ptb.train.txt"), " a \n")
	for name, tc := range map[string]struct {
		dir  string
		want []string
	}{
		"no directory":    {filepath.Join(empty, "absent"), []string{"ptb.train.txt, ptb.valid.txt, ptb.test.txt not in", "absent"}},
		"empty directory": {empty, []string{"ptb.train.txt, ptb.valid.txt, ptb.test.txt not in " + empty}},
		"one file":        {partial, []string{"ptb.valid.txt not in " + partial}},
		"a level too high": {above, []string{"ptb.train.txt, ptb.valid.txt, ptb.test.txt not in " + above,
			"they are in " + filepath.Join(above, "simple-examples", "data")}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := corpus.Load(tc.dir)
			if !errors.Is(err, corpus.ErrMissing) {
				t.Fatalf("Load(%s): error %v, want ErrMissing", tc.dir, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Load(%s): error %q, want it to contain %q", tc.dir, err, want)
				}
			}
		})
	}
}

func TestLoadNamesAnUnusableFile(t *testing.T) {
	for name, tc := range map[string]struct {
		file, text string
		want       error
	}{
		"empty":      {"ptb.valid.txt", "", corpus.ErrEmpty},
		"blank":      {"ptb.valid.txt", " \t ", corpus.ErrEmpty},
		"new word":   {"ptb.valid.txt", " b \n", corpus.ErrUnknownWord},
		"not a gzip": {"ptb.valid.txt.gz", " a \n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "ptb.train.txt"), " a \n")
			write(t, filepath.Join(dir, "ptb.test.txt"), " a \n")
			write(t, filepath.Join(dir, tc.file), tc.text)
			_, err := corpus.Load(dir)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Fatalf("Load: error %v, want %v", err, tc.want)
			}
			for _, part := range []string{dir, "ptb.valid.txt"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Load: error %q, want it to name %s", err, part)
				}
			}
		})
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func FuzzRead(f *testing.F) {
	for _, tc := range golden(f) {
		f.Add([]byte(tc.Train), []byte(tc.Valid))
	}
	f.Add([]byte("\x1c\xff\xc2\x85 a\r\n"), []byte("\x00"))
	f.Fuzz(func(t *testing.T, train, valid []byte) {
		c, err := corpus.Read("fuzz", train, valid, train)
		if err != nil {
			if !errors.Is(err, corpus.ErrEmpty) && !errors.Is(err, corpus.ErrUnknownWord) {
				t.Fatalf("Read: error %v, want ErrEmpty or ErrUnknownWord", err)
			}
			return
		}
		counts := make([]int, len(c.Words))
		for _, id := range c.Train {
			counts[id]++
		}
		for i := 1; i < len(c.Words); i++ {
			if counts[i-1] < counts[i] || counts[i-1] == counts[i] && c.Words[i-1] >= c.Words[i] {
				t.Fatalf("words %q (%d times) and %q (%d times) are out of order", c.Words[i-1], counts[i-1], c.Words[i], counts[i])
			}
		}
		unknown := slices.Index(c.Words, corpus.Unknown)
		seen := 0
		for _, id := range c.Valid {
			if int(id) == unknown {
				seen++
			}
		}
		if c.Unknown > seen {
			t.Fatalf("Unknown = %d, but valid has <unk> %d times", c.Unknown, seen)
		}
		if !slices.Equal(c.Train, c.Test) {
			t.Fatal("the same text read differently")
		}
	})
}
