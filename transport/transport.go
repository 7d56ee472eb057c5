// Package transport is the contract between workers and parameter servers:
// what may be asked of a shard, and how calls reach it. The subpackages carry
// the calls; everything above depends on this package alone, so that a worker
// cannot tell which transport it has.
//
// Services, connections and transports are safe for concurrent use.
package transport

import (
	"context"
	"errors"
	"io"
)

// Sentinel errors. They mean the same near and far: every transport hands
// them through, so errors.Is works whatever carried the call.
var (
	// ErrUnknownPart reports a part the shard was never initialized with.
	ErrUnknownPart = errors.New("unknown part")
	// ErrLength reports a part whose length, row width or row numbers do not
	// fit the shard's part of that name.
	ErrLength = errors.New("length mismatch")
	// ErrNotReady reports a Pull whose step the shard has not reached within
	// the time one call may wait. The text says for whom the shard waits; the
	// caller asks again for as long as it is willing to.
	ErrNotReady = errors.New("not ready")
	// ErrRolledBack reports a shard further behind its caller than any update
	// in flight explains: it was restored from an older checkpoint.
	ErrRolledBack = errors.New("shard rolled back")
	// ErrJob reports a replica that expects another job than the shard runs.
	// The text names the setting and both values.
	ErrJob = errors.New("job mismatch")
	// ErrNotJoined reports a call of a replica the shard does not know.
	ErrNotJoined = errors.New("not joined")
	// ErrReplaced reports a call of a replica whose task has been taken over by
	// a later process.
	ErrReplaced = errors.New("replica replaced")
	// ErrTooLarge reports a call whose declared size is over the receiver's
	// limit. No memory was taken for it.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid reports a malformed call.
	ErrInvalid = errors.New("invalid call")
	// ErrUnavailable reports a service that could not be reached, or went away
	// during the call: nobody knows whether the call was carried out. Every call
	// of [Service] may be repeated.
	ErrUnavailable = errors.New("unavailable")
)

// A Part is a run of one variable's elements, or some rows of that run: the
// unit of placement and of transfer. Variable and Offset name it.
type Part struct {
	Variable string
	Offset   int      // of the run's first element in the variable
	Width    int      // elements in one of the variable's rows; 0 if it has none
	Encoding Encoding // how the data travels
	// Rows is nil for the whole run. Else it lists the rows that Data holds, in
	// ascending order and each once, counted from the run's start: row r holds
	// the run's elements [r*Width, (r+1)*Width). Rows not listed are zero in a
	// gradient, and are left alone by a Pull. Empty but not nil means no row.
	Rows []int32
	Data []float32 // weights when pulled, a gradient when pushed
}

// A Replica is one worker's copy of the model.
type Replica struct {
	Task int    // the worker's task index
	Life uint64 // drawn when the process starts: tells a restarted worker from the old one
}

// A Setting is one property of a job that all its processes must agree on.
type Setting struct{ Name, Value string }

// A Plan is the work of a job. An example is whatever the model counts; for a
// language model, a predicted word.
type Plan struct {
	EpochExamples int64 // examples in one epoch, over all replicas; 0 if there are no epochs
	Examples      int64 // after which training is over; 0 means no such end
	Steps         int64 // after which training is over; 0 means no such end
}

// Hello is what a replica says when it joins.
type Hello struct {
	Replica  Replica
	Settings []Setting // what it believes of the job, compared name by name
	Plan     Plan      // the first replica's is taken, the others must agree
}

// Welcome is what a shard answers to a [Hello].
type Welcome struct {
	Step int64 // of the shard; -1 before it has weights
	// Saves says that the shard writes checkpoints, so that a push should bear
	// the replica's cursor.
	Saves bool
	// Cursor is that of the replica's last push the shard knows of, nil if none:
	// where to go on.
	Cursor []byte
	Seq    uint64 // of that push
}

// Status is where a shard stands.
type Status struct {
	Step         int64   // updates applied; -1 before there are weights
	Examples     int64   // examples seen, in pushes of whatever verdict
	LearningRate float64 // of the next update
	Done         bool    // training is over: the weights will not change
}

// Push identifies a gradient.
type Push struct {
	Replica  Replica
	Seq      uint64 // counts the replica's pushes from 1; a repeated push bears the same
	Step     int64  // of the weights that the gradient was computed from
	Examples int64  // that the gradient was computed from
	Cursor   []byte // where the replica goes on after this push; nil if nobody asked for it
}

// A Verdict says what became of a gradient.
type Verdict uint8

// Verdicts. A push that fails (returns an error) has none.
const (
	Applied   Verdict = iota + 1 // it completed an update, alone or with those gathered
	Gathered                     // it is part of an update that waits for others
	Stale                        // too old for the policy; dropped
	Surplus                      // the step has this replica's gradient, or training is over; dropped
	NotFinite                    // it holds a NaN or an infinity; dropped
	Duplicate                    // an earlier push of this replica; dropped
)

// Verdicts lists all verdicts in order.
var Verdicts = []Verdict{Applied, Gathered, Stale, Surplus, NotFinite, Duplicate}

// String returns the verdict's name as it appears in metrics and reports.
func (v Verdict) String() string {
	switch v {
	case Applied:
		return "applied"
	case Gathered:
		return "gathered"
	case Stale:
		return "stale"
	case Surplus:
		return "surplus"
	case NotFinite:
		return "not_finite"
	case Duplicate:
		return "duplicate"
	}
	return "invalid"
}

// An Extent says which elements of a variable a shard holds.
type Extent struct {
	Variable string
	Offset   int // of the first element
	Length   int // in elements
	Width    int // elements in a row; 0 if the variable has none
}

// A ReplicaState is what a shard knows of one replica.
type ReplicaState struct {
	Task     int
	Joined   bool
	Finished bool              // it pushes no more
	Left     bool              // it is gone
	Examples int64             // in all its pushes
	Verdicts map[Verdict]int64 // on its pushes
}

// A Description is what a shard tells about itself.
type Description struct {
	Task     string // as in "ps/0"
	Settings []Setting
	Status   Status
	Plan     Plan
	Extents  []Extent       // sorted by variable and offset; empty before there are weights
	Replicas []ReplicaState // by task
}

// Service is what one shard answers. The parameter server implements it, and
// so does every connection to one, so a caller cannot tell them apart.
//
// Every call may be repeated: the second one changes nothing and answers the
// same. A call keeps no reference to its arguments after it has returned.
type Service interface {
	// Join announces a replica and what it expects of the job. A shard that
	// runs another job refuses with ErrJob, and names both values.
	Join(ctx context.Context, hello Hello) (Welcome, error)

	// Init offers initial weights. The first offer wins; later ones change
	// nothing.
	Init(ctx context.Context, parts []Part) error

	// Pull waits until the shard has reached minStep or training is over, then
	// fills dst with its weights. The weights of all parts are exactly those of
	// the step it returns. The wait is bounded: see [ErrNotReady]. A Pull
	// without parts only waits.
	Pull(ctx context.Context, minStep int64, dst []Part) (Status, error)

	// Push hands over a gradient and says what became of it. If it repeats the
	// replica's last push, the answer is the one given then.
	Push(ctx context.Context, push Push, grads []Part) (Verdict, error)

	// Finish says that a replica will push no more, so that nobody waits for its
	// gradients. It may still pull.
	Finish(ctx context.Context, r Replica) error

	// Leave says that a replica is gone: it has finished, and needs nothing more.
	Leave(ctx context.Context, r Replica) error

	// Describe tells what the shard holds and whom it has heard of.
	Describe(ctx context.Context) (Description, error)
}

// Conn is a Service at the far end of a transport. Close ends calls under way
// with ErrUnavailable.
type Conn interface {
	Service
	io.Closer
}

// Listener is a Service being served. Close stops it: it lets calls under way
// end, but cuts those that take longer than a few seconds.
type Listener interface {
	Addr() string // that others can dial, with the port that was chosen for ":0"
	io.Closer
}

// Transport carries Service calls.
type Transport interface {
	// Listen serves s at addr until the listener is closed.
	Listen(addr string, s Service) (Listener, error)
	// Dial returns a connection to the service at addr. It does not wait for the
	// far end: calls made before that listens fail with ErrUnavailable.
	Dial(addr string) (Conn, error)
}
