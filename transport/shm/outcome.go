//go:build linux

package shm

import (
	"context"
	"errors"

	"pushpull/transport"
)

// Methods, as requests bear them; the last announces a region.
const (
	join uint8 = iota + 1
	initial
	pull
	push
	finish
	leave
	describe
	share
)

// outcomes pairs each error that means the same near and far with what stands
// for it in a reply. Anything else is an error that means nothing: failed.
var outcomes = []struct {
	kind uint8
	err  error
}{
	{2, transport.ErrUnknownPart},
	{3, transport.ErrLength},
	{4, transport.ErrNotReady},
	{5, transport.ErrRolledBack},
	{6, transport.ErrJob},
	{7, transport.ErrNotJoined},
	{8, transport.ErrReplaced},
	{9, transport.ErrTooLarge},
	{10, transport.ErrInvalid},
	{11, transport.ErrUnavailable},
	{12, context.DeadlineExceeded},
}

// Outcomes of calls without an error, and with one that outcomes does not list.
const (
	done   uint8 = 0
	failed uint8 = 1
)

// outcomeOf returns what stands for err.
func outcomeOf(err error) uint8 {
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.kind
		}
	}
	return failed
}

// A remoteError is a service's error that has crossed the socket.
type remoteError struct {
	err  error // what it means; nil if nothing
	text string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.err }

// errorOf returns the error that a reply of that kind, with that text, stands
// for.
func errorOf(kind uint8, text []byte) error {
	for _, o := range outcomes {
		if o.kind == kind {
			return &remoteError{o.err, string(text)}
		}
	}
	return &remoteError{nil, string(text)}
}
