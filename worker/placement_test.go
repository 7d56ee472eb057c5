package worker_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pushpull/model"
	"pushpull/worker"
)

// variables returns variables of the given shapes, named v0, v1, ...
func variables(shapes ...[]int) []*model.Variable {
	var vars []*model.Variable
	for i, shape := range shapes {
		n := 1
		for _, d := range shape {
			n *= d
		}
		vars = append(vars, &model.Variable{Name: fmt.Sprint("v", i), Shape: shape, Value: make([]float32, n), Grad: make([]float32, n)})
	}
	return vars
}

// ptb returns the variables of the PTB language model with two layers.
func ptb(vocab, hidden int) []*model.Variable {
	kernel, bias := []int{2 * hidden, 4 * hidden}, []int{4 * hidden}
	return variables([]int{vocab, hidden}, kernel, bias, kernel, bias, []int{hidden, vocab}, []int{vocab})
}

func TestBalancedByDefaultForPTB(t *testing.T) {
	for name, hidden := range map[string]int{"small": 200, "medium": 650, "large": 1500} {
		vars := ptb(10000, hidden)
		for shards := 1; shards <= 8; shards++ {
			l, err := worker.NewLayout(vars, shards, worker.Automatic(vars, shards), worker.Greedy)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := l.Imbalance(), 1.1; got > want {
				t.Errorf("%s over %d shards: largest/mean = %.3f, want at most %.1f; bytes %v", name, shards, got, want, l.Bytes())
			}
		}
	}
}

func TestRoundRobinOfWholeVariablesIsUneven(t *testing.T) {
	vars := ptb(10000, 200)
	l, err := worker.NewLayout(vars, 4, worker.Whole, worker.RoundRobin)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := l.Imbalance(), 1.5; got < want {
		t.Errorf("largest/mean = %.3f, want over %.1f: the case that Greedy is there for", got, want)
	}
}

func TestLayoutRefusesAVariableWhoseShapeLies(t *testing.T) {
	vars := variables([]int{2, 3})
	vars[0].Grad = vars[0].Grad[:5]
	if l, err := worker.NewLayout(vars, 1, worker.Whole, worker.Greedy); err == nil {
		t.Errorf("NewLayout with 6 values and 5 gradients = %v, want an error", l)
	}
	if l, err := worker.NewLayout(vars, 0, worker.Whole, worker.Greedy); err == nil {
		t.Errorf("NewLayout over 0 shards = %v, want an error", l)
	}
}

// FuzzLayout checks what every layout promises: each element once, cuts between
// rows, the same answer twice, and shards that differ by one range at most.
func FuzzLayout(f *testing.F) {
	f.Add(uint16(10), uint8(3), uint16(1), uint8(1), uint16(40), uint8(2))
	f.Add(uint16(1), uint8(1), uint16(300), uint8(7), uint16(1), uint8(8))
	f.Fuzz(func(t *testing.T, rows uint16, width uint8, length uint16, layers uint8, bytes uint16, shards uint8) {
		shapes := [][]int{{int(rows%500) + 1, int(width%50) + 1}}
		for range layers % 5 {
			shapes = append(shapes, []int{int(length%1000) + 1})
		}
		vars, n := variables(shapes...), int(shards%8)+1
		for _, split := range []worker.Partitioner{worker.Whole, worker.FixedSize(int(bytes)), worker.Automatic(vars, n)} {
			l, err := worker.NewLayout(vars, n, split, worker.Greedy)
			if err != nil {
				t.Fatal(err)
			}
			again, err := worker.NewLayout(vars, n, split, worker.Greedy)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(l.Bytes(), again.Bytes()); diff != "" {
				t.Errorf("a second call places otherwise: %s", diff)
			}
			seen, largest := map[*model.Variable][]bool{}, 0
			for _, v := range vars {
				seen[v] = make([]bool, len(v.Value))
			}
			for _, rs := range l {
				for _, r := range rs {
					largest = max(largest, r.Bytes())
					if w := r.Variable.Width(); r.Lo%w != 0 || r.Hi%w != 0 {
						t.Errorf("range [%d, %d) cuts a row of %d", r.Lo, r.Hi, w)
					}
					for i := r.Lo; i < r.Hi; i++ {
						if seen[r.Variable][i] {
							t.Fatalf("%s[%d] is placed twice", r.Variable.Name, i)
						}
						seen[r.Variable][i] = true
					}
				}
			}
			for v, all := range seen {
				if i := slices.Index(all, false); i >= 0 {
					t.Fatalf("%s[%d] is placed nowhere", v.Name, i)
				}
			}
			b := l.Bytes()
			if most, least := slices.Max(b), slices.Min(b); most-least > largest {
				t.Errorf("shards of %v bytes differ by more than the largest range, %d", b, largest)
			}
		}
	})
}

func ExampleGreedy() {
	vars := ptb(10000, 200)
	l, err := worker.NewLayout(vars, 4, worker.Automatic(vars, 4), worker.Greedy)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("largest shard over the mean: %.2f\n", l.Imbalance())
	// Output:
	// largest shard over the mean: 1.00
}

func ExampleFixedSize() {
	v := variables([]int{5, 100})[0]
	for _, r := range worker.FixedSize(1000)(v) {
		fmt.Printf("[%d, %d)\n", r.Lo, r.Hi)
	}
	// Output:
	// [0, 200)
	// [200, 400)
	// [400, 500)
}
