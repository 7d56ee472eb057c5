package inproc_test

import (
	"context"
	"fmt"

	"pushpull/transport"
	"pushpull/transport/inproc"
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

// Listen, dial, call: the same three steps as over any transport.
func Example() {
	var network inproc.Network
	listener, err := network.Listen("ps0:2222", new(counter))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	conn, err := network.Dial("ps0:2222")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	gradient := transport.Part{Variable: "w", Encoding: transport.Float16, Data: []float32{1, 0.1}}
	fmt.Println(conn.Push(context.Background(), transport.Push{Seq: 1}, []transport.Part{gradient}))

	lost, _ := network.Dial("ps1:2222")
	_, err = lost.Push(context.Background(), transport.Push{Seq: 2}, []transport.Part{gradient})
	fmt.Println(err)
	// Output:
	// push 1: w holds [1 0.099975586]
	// applied <nil>
	// push at ps1:2222: nobody listens there: unavailable
}
