package ps_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"pushpull/ps"
	"pushpull/transport"
)

// one returns a part of a single element.
func one(x float32) []transport.Part { return []transport.Part{{Variable: "w", Data: []float32{x}}} }

// exampleShard returns a shard with weight 10 that two replicas have joined.
func exampleShard(policy ps.Policy) *ps.Shard {
	s, err := ps.NewShard(ps.Config{
		Replicas:  2,
		Policy:    policy,
		Optimizer: ps.SGD{},
		Schedule:  ps.Constant(1),
	})
	if err != nil {
		log.Fatal(err)
	}
	for task := range 2 {
		if _, err := s.Join(transport.Hello{Replica: transport.Replica{Task: task, Life: 1}}); err != nil {
			log.Fatal(err)
		}
	}
	if err := s.Init(one(10)); err != nil {
		log.Fatal(err)
	}
	return s
}

// push pushes gradient g, computed from the weights of a step.
func push(s *ps.Shard, task int, seq uint64, step int64, g float32) transport.Verdict {
	verdict, err := s.Push(transport.Push{Replica: transport.Replica{Task: task, Life: 1}, Seq: seq, Step: step}, one(g))
	if err != nil {
		log.Fatal(err)
	}
	return verdict
}

// Two replicas, synchronous: nothing moves until both gradients are in, and one
// that comes after the update is stale.
func ExampleShard() {
	s := exampleShard(ps.Sync(2))
	fmt.Println(push(s, 0, 1, 0, 1), "- step", s.Status().Step)
	fmt.Println(push(s, 1, 1, 0, 3), "- step", s.Status().Step)
	fmt.Println(push(s, 0, 2, 0, 5), "- step", s.Status().Step)

	w := one(0)
	if _, err := s.Pull(w); err != nil {
		log.Fatal(err)
	}
	fmt.Println("w =", w[0].Data)
	// Output:
	// gathered - step 0
	// applied - step 1
	// stale - step 1
	// w = [8]
}

// The same pushes under four policies: both replicas push twice, always from
// the first weights.
func ExamplePolicy() {
	for _, policy := range []ps.Policy{
		ps.Async(),
		{Aggregate: 1, MaxStaleness: 1}, // bounded staleness
		ps.Sync(2),
		ps.Sync(1), // the slower replica is a backup
	} {
		s := exampleShard(policy)
		fmt.Printf("%v:", policy)
		for seq := range uint64(2) {
			for task := range 2 {
				fmt.Print(" ", push(s, task, seq+1, 0, 1))
			}
		}
		fmt.Println()
	}
	// Output:
	// every gradient, any staleness: applied applied applied applied
	// every gradient, staleness 1: applied applied stale stale
	// mean of 2 gradients, staleness 0: gathered applied stale stale
	// every gradient, staleness 0: applied stale stale stale
}

// The rate of the tutorial's small PTB model: four epochs at 1, then halved in
// each.
func ExampleSchedule() {
	var rate ps.Schedule = ps.Decay{Rate: 1, Factor: 0.5, Hold: 4}
	for epoch := 2; epoch < 7; epoch++ {
		fmt.Println("epoch", epoch, "rate", rate.At(epoch))
	}
	// Output:
	// epoch 2 rate 1
	// epoch 3 rate 1
	// epoch 4 rate 0.5
	// epoch 5 rate 0.25
	// epoch 6 rate 0.125
}

// What is saved is restored, where the replicas stand included.
func ExampleShard_Save() {
	s := exampleShard(ps.Async())
	id := transport.Replica{Task: 1, Life: 1}
	if _, err := s.Push(transport.Push{Replica: id, Seq: 1, Cursor: []byte("batch 2")}, one(4)); err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		log.Fatal(err)
	}

	restored := exampleShard(ps.Async())
	if err := restored.Restore(&file); err != nil {
		log.Fatal(err)
	}
	id.Life = 2 // a new process
	welcome, err := restored.Join(transport.Hello{Replica: id})
	if err != nil {
		log.Fatal(err)
	}
	w := one(0)
	if _, err := restored.Pull(w); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("step %d, w = %v, go on at %s\n", welcome.Step, w[0].Data, welcome.Cursor)
	// Output:
	// step 1, w = [6], go on at batch 2
}

// A server, a pull that waits for the next step, and the push that makes it.
func ExampleServer() {
	ctx := context.Background()
	s, err := ps.NewServer(ps.Config{
		Replicas:  1,
		Policy:    ps.Sync(1),
		Optimizer: ps.SGD{},
		Schedule:  ps.Constant(0.5),
	})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()

	id := transport.Replica{Task: 0, Life: 1}
	if _, err := s.Join(ctx, transport.Hello{Replica: id, Plan: transport.Plan{Steps: 1}}); err != nil {
		log.Fatal(err)
	}
	if err := s.Init(ctx, one(10)); err != nil {
		log.Fatal(err)
	}
	pulled := make(chan float32)
	go func() {
		w := one(0)
		if _, err := s.Pull(ctx, 1, w); err != nil {
			log.Fatal(err)
		}
		pulled <- w[0].Data[0]
	}()
	if _, err := s.Push(ctx, transport.Push{Replica: id, Seq: 1}, one(4)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("w =", <-pulled)
	if err := s.Leave(ctx, id); err != nil {
		log.Fatal(err)
	}
	fmt.Println("run:", <-ended)
	// Output:
	// w = 8
	// run: <nil>
}
