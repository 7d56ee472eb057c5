package grpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "pushpull/proto/pushpull/v1"
	"pushpull/transport"
)

// failures pairs each sentinel with what stands for it on the wire. The kind
// tells them apart; the code is for clients that know no kinds.
var failures = []struct {
	sentinel error
	kind     pb.Failure_Kind
	code     codes.Code
}{
	{transport.ErrUnknownPart, pb.Failure_KIND_UNKNOWN_PART, codes.NotFound},
	{transport.ErrLength, pb.Failure_KIND_LENGTH, codes.OutOfRange},
	{transport.ErrNotReady, pb.Failure_KIND_NOT_READY, codes.Aborted},
	{transport.ErrRolledBack, pb.Failure_KIND_ROLLED_BACK, codes.DataLoss},
	{transport.ErrJob, pb.Failure_KIND_JOB, codes.FailedPrecondition},
	{transport.ErrNotJoined, pb.Failure_KIND_NOT_JOINED, codes.FailedPrecondition},
	{transport.ErrReplaced, pb.Failure_KIND_REPLACED, codes.FailedPrecondition},
	{transport.ErrTooLarge, pb.Failure_KIND_TOO_LARGE, codes.ResourceExhausted},
	{transport.ErrInvalid, pb.Failure_KIND_INVALID, codes.InvalidArgument},
	{transport.ErrUnavailable, pb.Failure_KIND_UNAVAILABLE, codes.Unavailable},
}

// toStatus returns a service's error as the status that carries it. Anything
// but a sentinel becomes a Failure of no kind.
func toStatus(ctx context.Context, err error) error {
	if ctx.Err() != nil { // nobody listens anymore, or the far end knows it first
		return status.FromContextError(ctx.Err()).Err()
	}
	if _, ok := status.FromError(err); ok { // gRPC's own, from receiving or sending, and sent already
		return err
	}
	kind, code := pb.Failure_KIND_UNSPECIFIED, codes.Unknown
	for _, f := range failures {
		if errors.Is(err, f.sentinel) {
			kind, code = f.kind, f.code
			break
		}
	}
	st, detailErr := status.New(code, strings.ToValidUTF8(err.Error(), "\uFFFD")).WithDetails(&pb.Failure{Kind: kind})
	if detailErr != nil {
		return detailErr
	}
	return st.Err()
}

// A remoteError is a service's error that has crossed the wire.
type remoteError struct {
	sentinel error // nil if it wrapped none
	text     string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.sentinel }

// fromStatus returns what went wrong with a call of method at addr: the
// service's own error; else the caller's context's; else ErrUnavailable.
func fromStatus(ctx context.Context, method, addr string, err error) error {
	st := status.Convert(err)
	for _, d := range st.Details() {
		if f, ok := d.(*pb.Failure); ok {
			return &remoteError{sentinelOf(f.Kind), st.Message()}
		}
	}
	_, limited := ctx.Deadline()
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case limited && st.Code() == codes.DeadlineExceeded: // the far end's clock is ahead of ours
		err = context.DeadlineExceeded
	case st.Code() == codes.ResourceExhausted: // a message is
		err = fmt.Errorf("%s: %w", st.Message(), transport.ErrTooLarge)
	default:
		err = fmt.Errorf("%s: %w", st.Message(), transport.ErrUnavailable)
	}
	return fmt.Errorf("%s at %s: %w", method, addr, err)
}

func sentinelOf(k pb.Failure_Kind) error {
	for _, f := range failures {
		if f.kind == k {
			return f.sentinel
		}
	}
	return nil
}
