package tcp_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"pushpull/transport"
	"pushpull/transport/tcp"
)

// Listen, dial, call: the same three steps as over any transport, here over a
// Unix socket.
func Example() {
	folder, err := os.MkdirTemp("", "pushpull")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)

	network := tcp.New(tcp.Options{})
	listener, err := network.Listen("unix://"+filepath.Join(folder, "ps0"), stub{push: func(grads []transport.Part) error {
		fmt.Println(grads[0].Variable, "holds", grads[0].Data)
		return nil
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer listener.Close()
	conn, err := network.Dial(listener.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	gradient := transport.Part{Variable: "w", Encoding: transport.Float16, Data: []float32{1, 0.1}}
	fmt.Println(conn.Push(context.Background(), transport.Push{Seq: 1}, []transport.Part{gradient}))
	// Output:
	// w holds [1 0.099975586]
	// applied <nil>
}
