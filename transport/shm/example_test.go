//go:build linux

package shm_test

import (
	"context"
	"fmt"

	"pushpull/transport"
	"pushpull/transport/shm"
)

// counter is a shard that only counts pushes.
type counter struct {
	transport.Service
	pushes int
}

func (c *counter) Push(_ context.Context, p transport.Push, grads []transport.Part) (transport.Verdict, error) {
	c.pushes++
	fmt.Printf("push %d: %s holds %v\n", p.Seq, grads[0].Variable, grads[0].Data)
	return transport.Applied, nil
}

// The two ends, which are mostly two processes, need nothing of each other but
// the address.
func Example() {
	listener, err := shm.New(shm.Options{}).Listen("localhost:0", new(counter))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	conn, err := shm.New(shm.Options{}).Dial(listener.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	gradient := transport.Part{Variable: "w", Encoding: transport.Float16, Data: []float32{1, 0.1}}
	fmt.Println(conn.Push(context.Background(), transport.Push{Seq: 1}, []transport.Part{gradient}))
	// Output:
	// push 1: w holds [1 0.099975586]
	// applied <nil>
}
