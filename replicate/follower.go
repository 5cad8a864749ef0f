package replicate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// A Follower copies a source's log to a sink.
type Follower struct {
	Source Source
	Sink   Sink
	Log    *slog.Logger
	// MinWait and MaxWait bound the pause after a broken stream, which doubles
	// and is jittered. The defaults are 100 ms and 5 s.
	MinWait, MaxWait time.Duration
	// SeldomWait is the least pause after what asking again soon would bring again:
	// a row that the sink refuses. The default is 20 s.
	SeldomWait time.Duration
	// Status, when set, is told of each change: connected or not and why, and
	// the head as last heard.
	Status func(Status)
}

// A Status is what a follower knows of its source.
type Status struct {
	Connected bool
	Head      artifact.Seq // last seq of the source's log, as last heard
	Heard     time.Time    // when a frame last came
	Err       error        // why the stream broke
}

// Run follows the source until ctx ends, and then returns nil. It outlives a
// source that fails: it waits and asks again. It returns an error when going on
// could only do harm: the sink failed or refused the source, or the source does
// not know the sink's position. A stream with a gap is begun anew once; when it
// has one again at the same position, that is an error too.
func (f *Follower) Run(ctx context.Context) error {
	least, most := f.MinWait, f.MaxWait
	if least == 0 {
		least = 100 * time.Millisecond
	}
	if most == 0 {
		most = 5 * time.Second
	}
	wait := least
	var status Status
	gapAt := artifact.Seq(-1) // where the stream last had a gap
	for {
		before := status.Heard
		err := f.follow(ctx, &status)
		f.Sink.Abort(context.WithoutCancel(ctx))
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopped, as was asked
		}
		var own *handleError
		gap, isGap := errors.AsType[*GapError](err)
		passing, passes := errors.AsType[*TransientError](err)
		switch {
		case passes:
		case isGap:
			at, perr := f.Sink.Position(ctx)
			if perr != nil || at.Seq == gapAt {
				return cmp.Or(perr, fmt.Errorf("the hub and this replica have diverged: %w", gap))
			}
			gapAt, err = at.Seq, gap
		case errors.As(err, &own):
			return own.error
		case final(err):
			return fmt.Errorf("the hub cannot resume this replica: %w", err)
		}
		status.Connected, status.Err = false, err
		f.tell(status)
		if status.Heard != before && !passes {
			wait = least // it worked for a while
		}
		if passes && passing.Seldom {
			wait = max(wait, cmp.Or(f.SeldomWait, Silence))
		}
		f.Log.WarnContext(ctx, "feed interrupted", "err", err, "retry_in", wait, "next", hint(err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + rand.N(wait)): //nolint:gosec // jitter, not a secret
		}
		wait = min(2*wait, max(wait, most))
	}
}

// A TransientError is a sink's that may pass by itself. Nothing of what it was to
// apply was kept; the follower brings it again.
type TransientError struct {
	Err    error
	Seldom bool   // asking again soon would bring the same again
	Next   string // what a person may do
}

func (e *TransientError) Error() string { return e.Err.Error() }

// Unwrap returns what e marks.
func (e *TransientError) Unwrap() error { return e.Err }

// hint says what a person may do about a broken stream; often nothing.
func hint(err error) string {
	if passing, ok := errors.AsType[*TransientError](err); ok {
		return passing.Next
	}
	e, ok := errors.AsType[*artifact.Error](err)
	switch {
	case !ok:
		return "none: it connects again by itself"
	case strings.Contains(e.Message, "credential"):
		return "was the node revoked? ask the hub's operator; a new code enrols it anew: scidex node join"
	case e.Reason == artifact.ReasonUnauthenticated || e.Code == artifact.CodePermissionDenied:
		return "the hub refuses the node's token: give another as SCIDEX_TOKEN; scidex token makes one"
	case e.Reason == "unknown_path":
		return "the URL is no hub's: is it a node's?"
	}
	return "none: it connects again by itself"
}

// final reports whether the source refused the position for good.
func final(err error) bool {
	var e *artifact.Error
	return errors.As(err, &e) && strings.HasPrefix(e.Reason, "cursor_")
}

func (f *Follower) follow(ctx context.Context, status *Status) error {
	from, err := f.Sink.Position(ctx)
	if err != nil {
		return &handleError{err}
	}
	var own error // of the sink, whatever the source makes of it
	err = f.Source.Follow(ctx, from, func(frame Frame) error {
		status.Connected, status.Heard, status.Err = true, time.Now(), nil
		if frame.Head > status.Head {
			status.Head = frame.Head
		}
		var err error
		switch frame.Type {
		case FrameHello:
			status.Head = frame.Hello.Head
			err = f.Sink.Hello(ctx, *frame.Hello)
		case FramePage, FramePart, FrameBeat:
			err = f.Sink.Apply(ctx, Batch{
				Rows: frame.Rows, To: frame.To, Chain: frame.Chain, Partial: frame.Type == FramePart,
			})
		}
		if err != nil {
			own = &handleError{err}
			return own
		}
		f.tell(*status)
		return nil
	})
	return cmp.Or(own, err)
}

// A handleError is an error of the sink, not of the stream.
type handleError struct{ error }

func (e *handleError) Unwrap() error { return e.error }

func (f *Follower) tell(s Status) {
	if f.Status != nil {
		f.Status(s)
	}
}
