package tcp

import (
	"errors"
	"fmt"

	"pushpull/transport"
)

// Codes of failures that are not a service's sentinel error.
const (
	other    = 0
	deadline = 255 // the call's time is up
)

// codes pairs each sentinel with the byte that stands for it on the wire.
var codes = []struct {
	sentinel error
	code     byte
}{
	{transport.ErrUnknownPart, 1},
	{transport.ErrLength, 2},
	{transport.ErrNotReady, 3},
	{transport.ErrRolledBack, 4},
	{transport.ErrJob, 5},
	{transport.ErrNotJoined, 6},
	{transport.ErrReplaced, 7},
	{transport.ErrTooLarge, 8},
	{transport.ErrInvalid, 9},
	{transport.ErrUnavailable, 10},
}

// codeOf returns the code of the sentinel that err is, else other.
func codeOf(err error) byte {
	for _, c := range codes {
		if errors.Is(err, c.sentinel) {
			return c.code
		}
	}
	return other
}

// A remoteError is a service's error that has crossed the wire.
type remoteError struct {
	sentinel error // nil if it wrapped none
	text     string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.sentinel }

// errLate is how a server says that a call's time is up.
var errLate = errors.New("the time for the call is up at the far end")

// failureOf returns the error that a failure frame brings.
func failureOf(header []byte) error {
	if len(header) == 0 {
		return fmt.Errorf("a failure without a code: %w", transport.ErrInvalid)
	}
	code, text := header[0], string(header[1:])
	if code == deadline {
		return errLate
	}
	for _, c := range codes {
		if c.code == code {
			return &remoteError{c.sentinel, text}
		}
	}
	return &remoteError{nil, text}
}

// textBytes is how much of an error's text travels.
const textBytes = 16 << 10

// appendFailure appends the header of a failure frame that brings err.
func appendFailure(b []byte, code byte, err error) []byte {
	text := err.Error()
	return append(append(b, code), text[:min(len(text), textBytes)]...)
}
