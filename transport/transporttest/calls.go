package transporttest

import (
	"errors"
	"fmt"
	"math"

	"pushpull/transport"
)

// sentinels are the errors that mean the same near and far.
var sentinels = []error{
	transport.ErrUnknownPart, transport.ErrLength, transport.ErrNotReady, transport.ErrRolledBack, transport.ErrJob,
	transport.ErrNotJoined, transport.ErrReplaced, transport.ErrTooLarge, transport.ErrInvalid, transport.ErrUnavailable,
}

var somebody = transport.Replica{Task: 7, Life: math.MaxUint64 - 1}

func joinArrives(b *bench) {
	s, c := b.serve()
	hello := transport.Hello{
		Replica:  somebody,
		Settings: []transport.Setting{{Name: "policy", Value: "sync 3 of 4"}, {Name: "", Value: "ä\n\x00"}},
		Plan:     transport.Plan{EpochExamples: 1, Examples: math.MaxInt64, Steps: 3},
	}
	for _, want := range []transport.Welcome{
		{},
		{Step: -1, Saves: true},
		{Step: math.MaxInt64, Cursor: []byte{}, Seq: math.MaxUint64},
		{Cursor: []byte{0, 1, 0xff}, Seq: 1},
		{Cursor: make([]byte, 3<<20)},
	} {
		s.welcome = want
		got, err := c.Join(b.context(), hello)
		if err != nil {
			b.Fatalf("Join: %v", err)
		}
		b.same("Welcome", got, want)
	}
	b.same("Hello", s.hello, hello)
}

func descriptionArrives(b *bench) {
	s, c := b.serve()
	for _, want := range []transport.Description{
		{},
		{
			Task:     "ps/3",
			Settings: []transport.Setting{{Name: "a", Value: "b"}},
			Status:   transport.Status{Step: 5, Examples: 6, LearningRate: 0.1, Done: true},
			Plan:     transport.Plan{EpochExamples: 7, Examples: 8, Steps: 9},
			Extents:  []transport.Extent{{Variable: "a", Offset: 1, Length: 2, Width: 1}, {Variable: "b", Offset: math.MaxInt}},
			Replicas: []transport.ReplicaState{
				{Task: 0, Joined: true, Examples: 10, Verdicts: map[transport.Verdict]int64{transport.Applied: 1, transport.Duplicate: 2}},
				{Task: 1, Finished: true},
				{Task: 2, Left: true},
			},
		},
	} {
		s.about = want
		got, err := c.Describe(b.context())
		if err != nil {
			b.Fatalf("Describe: %v", err)
		}
		b.same("Description", got, want)
	}
}

func finishAndLeaveArrive(b *bench) {
	s, c := b.serve()
	if err := c.Finish(b.context(), somebody); err != nil {
		b.Errorf("Finish: %v", err)
	}
	other := transport.Replica{Task: 0, Life: 1}
	if err := c.Leave(b.context(), other); err != nil {
		b.Errorf("Leave: %v", err)
	}
	b.same("who ended", s.ended, map[string][]transport.Replica{"finish": {somebody}, "leave": {other}})
}

func pushArrives(b *bench) {
	s, c := b.serve()
	for _, cursor := range [][]byte{nil, {}, {0, 1, 0xff}, make([]byte, 3<<20)} {
		want := transport.Push{Replica: somebody, Seq: math.MaxUint64, Step: math.MaxInt64, Examples: 11, Cursor: cursor}
		if _, err := c.Push(b.context(), want, nil); err != nil {
			b.Fatalf("Push: %v", err)
		}
		got, grads := s.lastPush()
		b.same("Push", got, want)
		if len(grads) != 0 {
			b.Errorf("Push without parts arrives with %d", len(grads))
		}
	}
}

func everyVerdictArrives(b *bench) {
	s, c := b.serve()
	for _, want := range transport.Verdicts {
		s.verdict = want
		got, err := c.Push(b.context(), transport.Push{}, nil)
		if err != nil || got != want {
			b.Errorf("Push = %v, %v, want %v", got, err, want)
		}
	}
}

func statusArrives(b *bench) {
	s, c := b.serve()
	for _, want := range []transport.Status{
		{}, {Step: -1}, {Step: math.MaxInt64, Examples: math.MaxInt64 - 1, LearningRate: 1 / 3., Done: true},
	} {
		s.set(want)
		got, err := c.Pull(b.context(), -1, nil)
		if err != nil {
			b.Fatalf("Pull: %v", err)
		}
		b.same("Status", got, want)
	}
}

// everyErrorArrives with its text, and is what it was and nothing else.
func everyErrorArrives(b *bench) {
	s, c := b.serve()
	strange := errors.New("something else: 100% äöü\n\x00 \xff")
	for _, want := range append(sentinels, strange) {
		err := fmt.Errorf("worker/1 expects what ps/0 has not, of 3 \"replicas\": %w", want)
		s.failWith(err)
		all(b.context(), c, func(method string, got error) {
			if got == nil {
				b.Errorf("%s succeeds, want %v", method, err)
				return
			}
			for _, sentinel := range sentinels {
				if is := errors.Is(got, sentinel); is != (sentinel == want) {
					b.Errorf("%s: errors.Is(%v, %v) = %v", method, got, sentinel, is)
				}
			}
			if want != strange && got.Error() != err.Error() {
				b.Errorf("%s: error reads %q, want %q", method, got, err)
			}
		})
	}
}
