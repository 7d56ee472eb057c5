package tcp

import (
	"fmt"

	"pushpull/transport"
)

// The messages without data, to and fro. What arrives is checked by the service
// that it is meant for.

// The most entries of lists that take more memory than room on the wire.
const (
	maxSettings = 1 << 12
	maxReplicas = 1 << 16
)

func (e *encoder) replica(r transport.Replica) {
	e.int(int64(r.Task))
	e.uint(r.Life)
}

func (d *decoder) replica() transport.Replica {
	return transport.Replica{Task: d.index(), Life: d.uint()}
}

func (e *encoder) settings(settings []transport.Setting) {
	e.uint(uint64(len(settings)))
	for _, s := range settings {
		e.text(s.Name)
		e.text(s.Value)
	}
}

func (d *decoder) settings() (settings []transport.Setting) {
	for range d.count(2, maxSettings) {
		settings = append(settings, transport.Setting{Name: d.text(""), Value: d.text("")})
	}
	return settings
}

func (e *encoder) plan(p transport.Plan) {
	e.int(p.EpochExamples)
	e.int(p.Examples)
	e.int(p.Steps)
}

func (d *decoder) plan() transport.Plan {
	return transport.Plan{EpochExamples: d.int(), Examples: d.int(), Steps: d.int()}
}

func (e *encoder) hello(h transport.Hello) {
	e.replica(h.Replica)
	e.settings(h.Settings)
	e.plan(h.Plan)
}

func (d *decoder) hello() transport.Hello {
	return transport.Hello{Replica: d.replica(), Settings: d.settings(), Plan: d.plan()}
}

func (e *encoder) welcome(w transport.Welcome) {
	e.int(w.Step)
	e.flag(w.Saves)
	e.blob(w.Cursor)
	e.uint(w.Seq)
}

func (d *decoder) welcome() transport.Welcome {
	return transport.Welcome{Step: d.int(), Saves: d.flag(), Cursor: d.blob(), Seq: d.uint()}
}

func (e *encoder) status(s transport.Status) {
	e.int(s.Step)
	e.int(s.Examples)
	e.float(s.LearningRate)
	e.flag(s.Done)
}

func (d *decoder) status() transport.Status {
	return transport.Status{Step: d.int(), Examples: d.int(), LearningRate: d.float(), Done: d.flag()}
}

func (e *encoder) push(p transport.Push) {
	e.replica(p.Replica)
	e.uint(p.Seq)
	e.int(p.Step)
	e.int(p.Examples)
	e.blob(p.Cursor)
}

func (d *decoder) push() transport.Push {
	return transport.Push{Replica: d.replica(), Seq: d.uint(), Step: d.int(), Examples: d.int(), Cursor: d.blob()}
}

func (e *encoder) description(d transport.Description) {
	e.text(d.Task)
	e.settings(d.Settings)
	e.status(d.Status)
	e.plan(d.Plan)
	e.uint(uint64(len(d.Extents)))
	for _, x := range d.Extents {
		e.text(x.Variable)
		e.int(int64(x.Offset))
		e.int(int64(x.Length))
		e.int(int64(x.Width))
	}
	e.uint(uint64(len(d.Replicas)))
	for _, r := range d.Replicas {
		e.int(int64(r.Task))
		e.flag(r.Joined)
		e.flag(r.Finished)
		e.flag(r.Left)
		e.int(r.Examples)
		e.uint(uint64(len(r.Verdicts)))
		for v, n := range r.Verdicts {
			e.byte(byte(v))
			e.int(n)
		}
	}
}

func (d *decoder) description() transport.Description {
	out := transport.Description{Task: d.text(""), Settings: d.settings(), Status: d.status(), Plan: d.plan()}
	for range d.count(4, maxParts) {
		out.Extents = append(out.Extents, transport.Extent{
			Variable: d.text(""), Offset: d.index(), Length: d.index(), Width: d.index(),
		})
	}
	for range d.count(6, maxReplicas) {
		r := transport.ReplicaState{
			Task: d.index(), Joined: d.flag(), Finished: d.flag(), Left: d.flag(), Examples: d.int(),
		}
		for range d.count(2, 256) {
			if r.Verdicts == nil {
				r.Verdicts = make(map[transport.Verdict]int64)
			}
			v := transport.Verdict(d.byte())
			r.Verdicts[v] = d.int()
		}
		out.Replicas = append(out.Replicas, r)
	}
	return out
}

// parts appends parts less their data, which travels apart.
func (e *encoder) parts(parts []transport.Part) {
	e.uint(uint64(len(parts)))
	for i := range parts {
		p := &parts[i]
		e.text(p.Variable)
		e.int(int64(p.Offset))
		e.int(int64(p.Width))
		e.byte(byte(p.Encoding))
		e.int(int64(len(p.Data)))
		e.rows(p.Rows)
	}
}

// A list is the parts of a call being served, and memory that is used again by
// the next call on the connection.
type list struct {
	parts   []transport.Part
	lengths []int   // of the parts' data, in elements
	rows    []int32 // of all parts
}

// listBytes is how much memory of its lists a connection keeps.
const listBytes = 1 << 20

// clear forgets what the call was about.
func (l *list) clear() {
	for i := range l.parts { // the names may come again
		l.parts[i].Rows, l.parts[i].Data = nil, nil
	}
	if cap(l.parts)+len(l.rows)/32 > listBytes/128 {
		*l = list{}
	}
}

// parts reads parts without their data into l. Nothing about them has been
// checked, but that the numbers fit.
func (d *decoder) parts(l *list) {
	n := d.count(6, maxParts)
	l.parts, l.lengths, l.rows = l.parts[:0], l.lengths[:0], l.rows[:0]
	for range n {
		var p transport.Part
		if at := len(l.parts); at < cap(l.parts) {
			p.Variable = l.parts[:at+1][at].Variable
		}
		p.Variable = d.text(p.Variable)
		p.Offset, p.Width, p.Encoding = d.index(), d.index(), transport.Encoding(d.byte())
		length := d.index()
		p.Rows, l.rows = d.rows(l.rows)
		l.parts, l.lengths = append(l.parts, p), append(l.lengths, length)
	}
}

// check tells whether the parts are well formed and may take the memory that
// they need: at most limit bytes. It returns the elements of all, and the bytes
// that they take on the way.
func (l *list) check(limit int64) (total int, bytes int64, err error) {
	left := limit
	for i, n := range l.lengths {
		p := &l.parts[i]
		if err := p.Check(n); err != nil {
			return 0, 0, err
		}
		left -= 4 * int64(len(p.Rows))
		if left < 0 || int64(n) > left/4 {
			return 0, 0, fmt.Errorf("%q[%d:]: %d elements and what was declared before are more than the limit of %d bytes: %w",
				p.Variable, p.Offset, n, limit, transport.ErrTooLarge)
		}
		left -= 4 * int64(n)
		total += n
		bytes += int64(n) * int64(p.Encoding.Size())
	}
	return total, bytes, nil
}

// bytesOf returns what the data of parts takes on the way.
func bytesOf(parts []transport.Part) (n int64) {
	for i := range parts {
		n += int64(len(parts[i].Data)) * int64(parts[i].Encoding.Size())
	}
	return n
}
