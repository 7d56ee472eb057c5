// Package corpus reads text for a word-level language model, in the way of the
// Penn Treebank files of the TensorFlow tutorial: three files of sentences, one
// a line, of which the first defines the vocabulary.
//
// A corpus is read once and not changed afterwards, so it is safe for
// concurrent use.
package corpus

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Sentinel errors.
var (
	// ErrMissing reports a directory that lacks one of the files.
	ErrMissing = errors.New("no such corpus")
	// ErrEmpty reports a file without a word.
	ErrEmpty = errors.New("no words")
	// ErrUnknownWord reports a word that is not in the vocabulary, which has no
	// [Unknown] to stand for it.
	ErrUnknownWord = errors.New("unknown word")
)

// Words with a meaning.
const (
	EndOfSentence = "<eos>" // what a newline becomes
	Unknown       = "<unk>" // stands for words that are not in the vocabulary, where the corpus has it
)

// A Corpus is a text as word numbers.
type Corpus struct {
	Name string // what it was read from
	// Words is the vocabulary, by number: most frequent in Train first, words of
	// the same count in the order of their bytes.
	Words              []string
	Train, Valid, Test []int32
	Unknown            int  // words of Valid and Test that were not in the vocabulary
	Standard           bool // the files are the Penn Treebank as Mikolov prepared it
}

// Read makes a corpus of three texts. A newline becomes the word "<eos>"
// without spaces around it, so it joins the words beside it unless the text
// has spaces there, as the Penn Treebank files do. The vocabulary is that of
// train; a word of the others that is not in it becomes "<unk>" and is counted,
// or is an error if train has no "<unk>".
func Read(name string, train, valid, test []byte) (*Corpus, error) {
	c := &Corpus{Name: name, Standard: isStandard(train, valid, test)}
	words := split(train)
	c.Words = vocabulary(words)
	ids := make(map[string]int32, len(c.Words))
	for id, w := range c.Words {
		ids[w] = int32(id)
	}
	for _, part := range []struct {
		split string
		words []string
		dst   *[]int32
	}{{"train", words, &c.Train}, {"valid", split(valid), &c.Valid}, {"test", split(test), &c.Test}} {
		if len(part.words) == 0 {
			return nil, fmt.Errorf("corpus: %s: %s: %w", name, file(part.split), ErrEmpty)
		}
		tokens, unknown, err := number(part.words, ids)
		if err != nil {
			return nil, fmt.Errorf("corpus: %s: %s: %w", name, file(part.split), err)
		}
		*part.dst = tokens
		c.Unknown += unknown
	}
	return c, nil
}

// String tells what the corpus is in one line.
func (c *Corpus) String() string {
	s := fmt.Sprintf("%s: %d train, %d valid, %d test words, vocabulary of %d", c.Name, len(c.Train), len(c.Valid), len(c.Test), len(c.Words))
	if c.Unknown > 0 {
		s += fmt.Sprintf(", %d unknown words of valid and test read as %s", c.Unknown, Unknown)
	}
	if c.Standard {
		return s + " (the standard PTB files)"
	}
	return s + " (not the standard PTB files: do not compare with published perplexities)"
}

// split returns the words of a text. It knows the spaces of Python's
// str.split, which the reference reader uses: Go's, and four separators.
func split(text []byte) []string {
	return strings.FieldsFunc(strings.ReplaceAll(string(text), "\n", EndOfSentence), func(r rune) bool {
		return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
	})
}

// vocabulary returns each word once, sorted by descending count, then by word.
func vocabulary(words []string) []string {
	counts := make(map[string]int)
	for _, w := range words {
		counts[w]++
	}
	v := make([]string, 0, len(counts))
	for w := range counts {
		v = append(v, w)
	}
	slices.SortFunc(v, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	return v
}

// number returns the words' numbers, and how many of them are those of
// [Unknown] for want of their own.
func number(words []string, ids map[string]int32) (tokens []int32, unknown int, err error) {
	unk, hasUnk := ids[Unknown]
	tokens = make([]int32, len(words))
	for i, w := range words {
		id, ok := ids[w]
		if !ok && !hasUnk {
			return nil, 0, fmt.Errorf("word %d is %q: %w: it is not in %s, and neither is %s", i, w, ErrUnknownWord, file("train"), Unknown)
		}
		if !ok {
			id = unk
			unknown++
		}
		tokens[i] = id
	}
	return tokens, unknown, nil
}

// isStandard recognizes the Penn Treebank files that published perplexities
// refer to, by their SHA-256.
func isStandard(train, valid, test []byte) bool {
	for text, want := range map[*[]byte]string{
		&train: "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
		&valid: "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
		&test:  "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
	} {
		sum := sha256.Sum256(*text)
		if hex.EncodeToString(sum[:]) != want {
			return false
		}
	}
	return true
}
