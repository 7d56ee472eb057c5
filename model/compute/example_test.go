package compute_test

import (
	"errors"
	"fmt"

	"pushpull/model/compute"
)

// Two rows times a matrix that is packed once, then added to the result again.
func Example() {
	e := compute.Best()
	b := e.NewPacked()
	b.Pack(1, false, 3, 2, []float32{
		1, 2,
		3, 4,
		5, 6,
	}, 2)
	a := []float32{
		1, 0, 0,
		1, 1, 1,
	}
	c := make([]float32, 4)
	b.Mul(1, 2, a, 3, false, c, 2)
	fmt.Println(c)
	b.Mul(1, 2, a, 3, true, c, 2)
	fmt.Println(c)
	// Output:
	// [1 2 9 12]
	// [2 4 18 24]
}

func ExampleByName() {
	e, err := compute.ByName("portable")
	fmt.Println(e.Name(), err)
	_, err = compute.ByName("abacus")
	fmt.Println(errors.Is(err, compute.ErrUnavailable))
	// Output:
	// portable <nil>
	// true
}

func ExampleParallel() {
	squares := make([]int, 6)
	compute.Parallel(3, len(squares), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			squares[i] = i * i
		}
	})
	fmt.Println(squares)
	// Output: [0 1 4 9 16 25]
}
