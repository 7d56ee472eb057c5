package ps_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"pushpull/ps"
	"pushpull/transport"
)

func readJSON(t *testing.T, file string, v any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatal(err)
	}
}

// The schedules of the TensorFlow tutorial's PTB presets, epoch by epoch.
func TestDecayFollowsThePTBPresets(t *testing.T) {
	var want map[string][]float64
	readJSON(t, "testdata/schedule.json", &want)
	for preset, decay := range map[string]ps.Decay{
		"small":  {Rate: 1, Factor: 0.5, Hold: 4},
		"medium": {Rate: 1, Factor: 0.8, Hold: 6},
		"large":  {Rate: 1, Factor: 1 / 1.15, Hold: 14},
	} {
		if len(want[preset]) == 0 {
			t.Errorf("%s: no rates to compare with", preset)
		}
		for epoch, want := range want[preset] {
			if got := decay.At(epoch); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: rate of epoch %d = %v, want %v", preset, epoch, got, want)
			}
		}
	}
}

// Two training runs of a small LSTM with three replicas, computed in double
// precision by an independent implementation: one asynchronous, one with two of
// three gradients to an update.
func TestSequencesMatchTheReference(t *testing.T) {
	var sequences map[string]struct {
		Aggregate int
		Rate      float64
		Weights   map[string][]float32
		Pushes    []struct {
			Worker       int
			Step         int64
			Verdict      string
			Grads        map[string][]float32
			WeightsAfter map[string][]float32 `json:"weights_after"`
		}
	}
	readJSON(t, "testdata/sequences.json", &sequences)
	if len(sequences) != 2 {
		t.Fatalf("%d sequences, want 2", len(sequences))
	}
	for name, seq := range sequences {
		t.Run(name, func(t *testing.T) {
			policy := ps.Async()
			if seq.Aggregate > 1 {
				policy = ps.Sync(seq.Aggregate)
			}
			s := newShard(t, ps.Config{Replicas: 3, Policy: policy, Schedule: ps.Constant(seq.Rate)}, asParts(seq.Weights)...)
			for i, push := range seq.Pushes {
				verdict, err := s.Push(transport.Push{
					Replica: transport.Replica{Task: push.Worker, Life: 1}, Seq: uint64(i + 1), Step: push.Step,
				}, asParts(push.Grads))
				if err != nil {
					t.Fatal(err)
				}
				if got, want := verdict.String(), push.Verdict; got != want {
					t.Errorf("verdict on push %d = %s, want %s", i, got, want)
				}
				for _, want := range asParts(push.WeightsAfter) {
					got := weights(t, s, want)
					for j := range got {
						if diff := math.Abs(float64(got[j] - want.Data[j])); diff > 1e-6 {
							t.Fatalf("%s[%d] after push %d = %v, want %v", want.Variable, j, i, got[j], want.Data[j])
						}
					}
				}
			}
		})
	}
}

func asParts(variables map[string][]float32) []transport.Part {
	var parts []transport.Part
	for name, data := range variables {
		parts = append(parts, transport.Part{Variable: name, Data: data})
	}
	return parts
}
