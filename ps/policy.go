package ps

import (
	"fmt"
	"math"
)

// Unbounded is the MaxStaleness that keeps every gradient.
const Unbounded = math.MaxInt64

// A Policy says which gradients make an update. It is the whole difference
// between the modes of training.
type Policy struct {
	// Aggregate is how many gradients are averaged into one update, at least 1.
	// More than there are replicas means one of each.
	Aggregate int
	// MaxStaleness is how many steps old a gradient may be and still be used.
	// With Aggregate 1 it makes bounded staleness.
	MaxStaleness int64
}

// Async makes an update of every gradient as it comes, however stale.
func Async() Policy { return Policy{Aggregate: 1, MaxStaleness: Unbounded} }

// Sync averages n fresh gradients, at most one of each replica, into every
// update. With more than n replicas the slowest are backups.
func Sync(n int) Policy { return Policy{Aggregate: n} }

// String returns the policy in words, as in "mean of 2 gradients, staleness 0".
func (p Policy) String() string {
	what := "every gradient"
	if p.Aggregate != 1 {
		what = fmt.Sprintf("mean of %d gradients", p.Aggregate)
	}
	if p.MaxStaleness == Unbounded {
		return what + ", any staleness"
	}
	return fmt.Sprintf("%s, staleness %d", what, p.MaxStaleness)
}

func (p Policy) validate() error {
	if p.Aggregate < 1 {
		return fmt.Errorf("ps: Policy.Aggregate is %d: want at least 1", p.Aggregate)
	}
	if p.MaxStaleness < 0 {
		return fmt.Errorf("ps: Policy.MaxStaleness is %d: want at least 0, or Unbounded", p.MaxStaleness)
	}
	return nil
}
