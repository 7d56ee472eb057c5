package grpc

import (
	"fmt"
	"math"

	pb "pushpull/proto/pushpull/v1"
	"pushpull/transport"
)

// The messages that bear no data, to and fro. What arrives is checked by the
// service that it is meant for.

func toReplica(r transport.Replica) *pb.Replica {
	return &pb.Replica{Task: int64(r.Task), Life: r.Life}
}

func fromReplica(r *pb.Replica) transport.Replica {
	return transport.Replica{Task: int(r.GetTask()), Life: r.GetLife()}
}

func toSettings(settings []transport.Setting) []*pb.Setting {
	var out []*pb.Setting
	for _, s := range settings {
		out = append(out, &pb.Setting{Name: s.Name, Value: s.Value})
	}
	return out
}

func fromSettings(settings []*pb.Setting) []transport.Setting {
	var out []transport.Setting
	for _, s := range settings {
		out = append(out, transport.Setting{Name: s.GetName(), Value: s.GetValue()})
	}
	return out
}

func toPlan(p transport.Plan) *pb.Plan {
	return &pb.Plan{EpochExamples: p.EpochExamples, Examples: p.Examples, Steps: p.Steps}
}

func fromPlan(p *pb.Plan) transport.Plan {
	return transport.Plan{EpochExamples: p.GetEpochExamples(), Examples: p.GetExamples(), Steps: p.GetSteps()}
}

func toStanding(s transport.Status) *pb.Status {
	return &pb.Status{Step: s.Step, Examples: s.Examples, LearningRate: s.LearningRate, Done: s.Done}
}

func fromStanding(s *pb.Status) transport.Status {
	return transport.Status{
		Step: s.GetStep(), Examples: s.GetExamples(), LearningRate: s.GetLearningRate(), Done: s.GetDone(),
	}
}

func toDescription(d transport.Description) *pb.DescribeResponse {
	out := &pb.DescribeResponse{
		Task: d.Task, Settings: toSettings(d.Settings), Status: toStanding(d.Status), Plan: toPlan(d.Plan),
	}
	for _, e := range d.Extents {
		out.Extents = append(out.Extents, &pb.Extent{
			Variable: e.Variable, Offset: int64(e.Offset), Length: int64(e.Length), Width: int64(e.Width),
		})
	}
	for _, r := range d.Replicas {
		state := &pb.ReplicaState{
			Task: int64(r.Task), Joined: r.Joined, Finished: r.Finished, Left: r.Left, Examples: r.Examples,
		}
		for _, v := range transport.Verdicts {
			if n, ok := r.Verdicts[v]; ok {
				state.Verdicts = append(state.Verdicts, &pb.VerdictCount{Verdict: pb.Verdict(v), Count: n})
			}
		}
		out.Replicas = append(out.Replicas, state)
	}
	return out
}

func fromDescription(d *pb.DescribeResponse) transport.Description {
	out := transport.Description{
		Task: d.GetTask(), Settings: fromSettings(d.GetSettings()), Status: fromStanding(d.GetStatus()), Plan: fromPlan(d.GetPlan()),
	}
	for _, e := range d.GetExtents() {
		out.Extents = append(out.Extents, transport.Extent{
			Variable: e.GetVariable(), Offset: int(e.GetOffset()), Length: int(e.GetLength()), Width: int(e.GetWidth()),
		})
	}
	for _, r := range d.GetReplicas() {
		state := transport.ReplicaState{
			Task: int(r.GetTask()), Joined: r.GetJoined(), Finished: r.GetFinished(), Left: r.GetLeft(), Examples: r.GetExamples(),
		}
		for _, v := range r.GetVerdicts() {
			if state.Verdicts == nil {
				state.Verdicts = make(map[transport.Verdict]int64)
			}
			state.Verdicts[transport.Verdict(v.GetVerdict())] = v.GetCount()
		}
		out.Replicas = append(out.Replicas, state)
	}
	return out
}

// toParts returns parts less their data, which travels apart.
func toParts(parts []transport.Part) []*pb.Part {
	out := make([]*pb.Part, len(parts))
	room := make([]struct {
		part   pb.Part
		rows   pb.Rows
		length int64
	}, len(parts))
	for i := range parts {
		p, r := &parts[i], &room[i]
		r.length = int64(len(p.Data))
		r.part.Variable, r.part.Offset, r.part.Width = p.Variable, int64(p.Offset), int64(p.Width)
		r.part.Encoding, r.part.Length = pb.Encoding(p.Encoding), &r.length
		if p.Rows != nil {
			r.rows.Numbers = p.Rows
			r.part.Rows = &r.rows
		}
		out[i] = &r.part
	}
	return out
}

// open stands for a length that the far end left to the shard.
const open = -1

// fromParts returns parts without data, and the elements of data that each is
// to have. Nothing about them has been checked, but that the numbers fit.
func fromParts(parts []*pb.Part) ([]transport.Part, []int, error) {
	out, lengths := make([]transport.Part, len(parts)), make([]int, len(parts))
	for i, p := range parts {
		length := int64(open)
		if p.Length != nil {
			if length = p.GetLength(); length < 0 {
				return nil, nil, fmt.Errorf("%q[%d:]: %d elements: %w", p.Variable, p.Offset, length, transport.ErrInvalid)
			}
		}
		if max(p.Offset, p.Width, length) > math.MaxInt || min(p.Offset, p.Width) < math.MinInt ||
			p.Encoding < 0 || p.Encoding > math.MaxUint8 {
			return nil, nil, fmt.Errorf("%q[%d:]: width %d, %d elements, encoding %d: out of range: %w",
				p.Variable, p.Offset, p.Width, length, p.Encoding, transport.ErrInvalid)
		}
		out[i] = transport.Part{
			Variable: p.Variable, Offset: int(p.Offset), Width: int(p.Width), Encoding: transport.Encoding(p.Encoding),
		}
		if p.Rows != nil {
			if out[i].Rows = p.Rows.Numbers; out[i].Rows == nil {
				out[i].Rows = []int32{}
			}
		}
		lengths[i] = int(length)
	}
	return out, lengths, nil
}

// checkParts tells whether parts of these lengths are well formed and may take
// the memory they need: at most limit bytes. It returns their elements.
func checkParts(parts []transport.Part, lengths []int, limit int64) (total int, err error) {
	left := limit
	for i, n := range lengths {
		if err := parts[i].Check(n); err != nil {
			return 0, err
		}
		left -= 4 * int64(len(parts[i].Rows))
		if left < 0 || int64(n) > left/4 {
			return 0, fmt.Errorf("%q[%d:]: %d elements and what was declared before are more than the limit of %d bytes: %w",
				parts[i].Variable, parts[i].Offset, n, limit, transport.ErrTooLarge)
		}
		left -= 4 * int64(n)
		total += n
	}
	return total, nil
}
