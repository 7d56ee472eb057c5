package worker_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"pushpull/model"
	"pushpull/ps"
	"pushpull/transport"
	"pushpull/transport/inproc"
	"pushpull/worker"
)

// line fits y = a·x + b by least squares. It reads one share of the points, all
// of them in each step.
type line struct {
	ab    *model.Variable
	xs    []float32
	steps uint64
}

func newLine(xs ...float32) *line {
	return &line{xs: xs, ab: &model.Variable{Name: "ab", Shape: []int{2}, Value: make([]float32, 2), Grad: make([]float32, 2)}}
}

func (l *line) Variables() []*model.Variable { return []*model.Variable{l.ab} }

func (l *line) Step(context.Context) (model.Result, error) {
	if l.steps == 1000 {
		return model.Result{}, io.EOF
	}
	l.steps++
	var loss float64
	clear(l.ab.Grad)
	for _, x := range l.xs {
		d := l.ab.Value[0]*x + l.ab.Value[1] - (3*x - 2) // the truth is a = 3, b = -2
		loss += float64(d*d) / float64(len(l.xs))
		l.ab.Grad[0] += 2 * d * x / float32(len(l.xs))
		l.ab.Grad[1] += 2 * d / float32(len(l.xs))
	}
	return model.Result{Loss: loss, Examples: len(l.xs)}, nil
}

func (l *line) Cursor() []byte      { return binary.AppendUvarint(nil, l.steps) }
func (l *line) Seek(c []byte) error { l.steps, _ = binary.Uvarint(c); return nil }

// A straight line, fitted by four synchronous replicas over two parameter
// servers: a whole job in one process.
func Example() {
	ctx := context.Background()
	var net inproc.Network
	var job sync.WaitGroup
	addrs := []string{"ps0", "ps1"}
	for i, addr := range addrs {
		srv, err := ps.NewServer(ps.Config{
			Task: i, Tasks: len(addrs), Replicas: 4,
			Policy: ps.Sync(4), Optimizer: ps.SGD{}, Schedule: ps.Constant(0.1),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := net.Listen(addr, srv); err != nil {
			fmt.Println(err)
			return
		}
		job.Go(func() { fmt.Print(errorLine(srv.Run(ctx))) })
	}
	for task, m := range []*line{newLine(0, 1), newLine(2), newLine(-1, 0.5), newLine(-2)} {
		job.Go(func() {
			cfg := worker.Config{Transport: &net, Addrs: addrs, Task: task, Plan: transport.Plan{Steps: 200}, Partition: worker.FixedSize(4)}
			s, err := worker.Open(ctx, cfg, m)
			if err != nil {
				fmt.Println(err)
				return
			}
			defer s.Close()
			fmt.Print(errorLine(worker.Train(ctx, s, m, worker.TrainConfig{})))
			fmt.Print(errorLine(s.Leave(ctx)))
			if task == 0 {
				fmt.Printf("after %d steps: a = %.2f, b = %.2f\n", s.Status().Step, m.ab.Value[0], m.ab.Value[1])
			}
		})
	}
	job.Wait()
	// Output:
	// after 200 steps: a = 3.00, b = -2.00
}

func errorLine(err error) string {
	if err == nil {
		return ""
	}
	return err.Error() + "\n"
}
