package lstm_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pushpull/model/lstm"
)

// counting returns the tokens 0, 1, ... n-1.
func counting(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	return tokens
}

// readerGolden is what the tests read of testdata/reader.json, which comes from
// the tutorial's own reader.
type readerGolden struct {
	Cases []struct {
		Len      int `json:"data_len"`
		Batch    int `json:"batch_size"`
		Unroll   int `json:"num_steps"`
		BatchLen int `json:"batch_len"`
		Size     int `json:"epoch_size"`
		Batches  []struct{ X, Y [][]int32 }
		Error    *string
	} `json:"producer_cases"`
	Sizes map[string]struct {
		BatchLen    int `json:"batch_len"`
		Size        int `json:"epoch_size"`
		Predictions int
	} `json:"ptb_epoch_sizes"`
}

func readReaderGolden(t *testing.T) readerGolden {
	t.Helper()
	b, err := os.ReadFile("testdata/reader.json")
	if err != nil {
		t.Fatal(err)
	}
	var g readerGolden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Cases) == 0 || len(g.Sizes) == 0 {
		t.Fatal("testdata/reader.json has no cases")
	}
	return g
}

func TestBatchesAreThoseOfTheTutorial(t *testing.T) {
	for _, c := range readReaderGolden(t).Cases {
		t.Run(fmt.Sprintf("tokens=%d/batch=%d/unroll=%d", c.Len, c.Batch, c.Unroll), func(t *testing.T) {
			b, err := lstm.NewBatches(counting(c.Len), c.Batch, c.Unroll)
			if c.Error != nil {
				if err == nil {
					t.Fatalf("NewBatches succeeds, want an error as the tutorial's: %s", *c.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := b.Len(), c.Size; got != want {
				t.Fatalf("Len() = %d, want %d", got, want)
			}
			x, y := make([]int32, c.Batch*c.Unroll), make([]int32, c.Batch*c.Unroll)
			for i, want := range c.Batches {
				b.Read(i, x, y)
				if diff := cmp.Diff(want.X, rows(x, c.Batch, c.Unroll)); diff != "" {
					t.Errorf("x of batch %d (-want +got):\n%s", i, diff)
				}
				if diff := cmp.Diff(want.Y, rows(y, c.Batch, c.Unroll)); diff != "" {
					t.Errorf("y of batch %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// rows returns a time-major batch as a list of rows.
func rows(x []int32, batch, unroll int) [][]int32 {
	r := make([][]int32, batch)
	for b := range r {
		for t := range unroll {
			r[b] = append(r[b], x[t*batch+b])
		}
	}
	return r
}

func TestEpochsAreAsLongAsTheTutorials(t *testing.T) {
	tokens := map[string]int{"train": 929_589, "valid": 73_760, "test": 82_430}
	for name, want := range readReaderGolden(t).Sizes {
		var split string
		var batch, unroll int
		if _, err := fmt.Sscanf(name, "%s b%d s%d", &split, &batch, &unroll); err != nil {
			t.Fatal(err)
		}
		b, err := lstm.NewBatches(make([]int32, tokens[split]), batch, unroll)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := b.Len(), want.Size; got != want {
			t.Errorf("%s: Len() = %d, want %d", name, got, want)
		}
	}
}

func TestTooShortATextSaysWhatItTakes(t *testing.T) {
	for _, c := range []struct{ tokens, batch, unroll, need int }{
		{0, 1, 1, 2}, {1, 1, 1, 2}, {6, 3, 2, 9}, {8, 3, 2, 9}, {419, 20, 20, 420}, {5, 1 << 40, 1 << 40, 0},
	} {
		_, err := lstm.NewBatches(make([]int32, c.tokens), c.batch, c.unroll)
		if err == nil {
			t.Errorf("NewBatches of %d tokens in %d by %d succeeds, want an error", c.tokens, c.batch, c.unroll)
			continue
		}
		has, needs := fmt.Sprintf("%d tokens", c.tokens), fmt.Sprintf("needs %d;", c.need)
		if !strings.Contains(err.Error(), has) || c.need > 0 && !strings.Contains(err.Error(), needs) {
			t.Errorf("NewBatches says %q, want it to contain %q and %q", err, has, needs)
		}
		if c.need > 0 {
			if _, err := lstm.NewBatches(make([]int32, c.need), c.batch, c.unroll); err != nil {
				t.Errorf("NewBatches of the %d tokens it asked for: %v", c.need, err)
			}
		}
	}
	for _, c := range [][2]int{{0, 1}, {1, 0}, {-1, 1}, {1, -1}} {
		if _, err := lstm.NewBatches(counting(10), c[0], c[1]); err == nil {
			t.Errorf("NewBatches in %d by %d succeeds, want an error", c[0], c[1])
		}
	}
}

func TestSharesPartitionTheText(t *testing.T) {
	for tasks := 1; tasks <= 16; tasks++ {
		for _, n := range []int{0, 1, 2, 15, 16, 17, 100, 1023, 929_589} {
			tokens := counting(n)
			next := int32(0) // the first token no share has had
			for task := range tasks {
				share, err := lstm.Share(tokens, task, tasks)
				if err != nil {
					t.Fatal(err)
				}
				if d := len(share) - n/tasks; d != 0 && d != 1 {
					t.Errorf("Share(%d tokens, %d, %d) has %d, want %d or one more", n, task, tasks, len(share), n/tasks)
				}
				if cap(share) != len(share) {
					t.Errorf("Share(%d tokens, %d, %d) has a capacity of %d, want its length %d: appending would write into the next share", n, task, tasks, cap(share), len(share))
				}
				for _, token := range share {
					if token != next {
						t.Fatalf("Share(%d tokens, %d, %d) has token %d where %d is next", n, task, tasks, token, next)
					}
					next++
				}
			}
			if int(next) != n {
				t.Errorf("%d shares have %d of %d tokens", tasks, next, n)
			}
		}
	}
}

func TestAShareOfNoTaskIsAnError(t *testing.T) {
	for _, c := range [][2]int{{-1, 2}, {2, 2}, {0, 0}, {0, -1}} {
		if _, err := lstm.Share(counting(10), c[0], c[1]); err == nil {
			t.Errorf("Share of task %d of %d succeeds, want an error", c[0], c[1])
		}
	}
}
