package graph

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/graph/internal/generated"
	"github.com/scidex-ai/substrate/graph/view"
	"github.com/scidex-ai/substrate/verb"
)

// A Replica is what a node knows of its copy. Its store implements it.
type Replica interface {
	// Status returns how the copy stands to the hub.
	Status(ctx context.Context) (view.Replica, error)

	// WaitApplied returns nil once the copy has come to a position, or ctx's
	// error.
	WaitApplied(ctx context.Context, seq artifact.Seq) error

	// Subscribe returns a reader of the events after a position, or from now on
	// when it is nil.
	Subscribe(ctx context.Context, after *artifact.Seq, types []string, maxBatch int) (Events, error)
}

// Events reads events forward.
type Events interface {
	// Next returns the next batch. It waits for one until ctx ends, and then
	// returns ctx's error.
	Next(ctx context.Context) (EventPage, error)
	Close()
}

// An EventPage is events in order, and where they lead.
type EventPage struct {
	Events   []artifact.Event
	Cursor   artifact.Seq
	CaughtUp bool
	Backlog  int64
}

// A Resolver answers every field of the schema. All its fields but WriteWait are
// required.
type Resolver struct {
	Replica Replica
	Reads   verb.Invoker // read verbs, on the replica
	Hub     verb.Invoker // write verbs, and reads of what the replica lacks yet
	Log     *slog.Logger

	// WriteWait bounds how long a mutation waits for the replica to have what it
	// wrote. After it the answer comes from the hub. The default is 2 seconds.
	WriteWait time.Duration
}

// NewSchema returns the executable schema that r answers.
func NewSchema(r *Resolver) graphql.ExecutableSchema {
	return generated.NewExecutableSchema(generated.Config{Resolvers: r})
}

// Limits of arguments.
const (
	maxFirst      = 100
	maxBatchLimit = 1000
)

// unwritten returns the answer of a dry run: the version that would have been.
func unwritten(ctx context.Context, res verb.WriteResult, a artifact.Artifact) *view.WriteResult {
	a.Ref, a.Type, a.ID, a.ContentHash, a.Revision = res.Ref, res.Ref.Type, res.Ref.ID, res.ContentHash, res.Revision
	a.UpdatedAt, a.IsLatest = artifact.Now(), true
	if a.CreatedAt.IsZero() {
		a.CreatedAt = a.UpdatedAt
	}
	if c, err := verb.CallerFrom(ctx); err == nil {
		a.UpdatedBy = c.Actor.ID
		a.CreatedBy = cmp.Or(a.CreatedBy, c.Actor.ID)
	}
	return view.NewWriteResult(res, a)
}

// written returns a write's answer with the artifact that it wrote, from the
// replica once that has it, else from the hub.
func (r *Resolver) written(ctx context.Context, res verb.WriteResult) (*view.WriteResult, error) {
	wait := r.WriteWait
	if wait == 0 {
		wait = 2 * time.Second
	}
	waited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := r.Replica.WaitApplied(waited, res.Seq); err == nil {
		if got, err := verb.Get.Call(ctx, r.Reads, verb.GetRequest{Ref: res.Ref}); err == nil {
			return view.NewWriteResult(res, got.Artifact), nil
		}
	}
	got, err := verb.Get.Call(ctx, r.Hub, verb.GetRequest{Ref: res.Ref})
	if err != nil {
		return nil, err
	}
	return view.NewWriteResult(res, got.Artifact), nil
}

// problem returns what a failed write answers as data, or the error when no
// caller can act on it.
func (r *Resolver) problem(ctx context.Context, err error) (view.WriteProblem, error) {
	e := *artifact.AsError(err)
	if e.Reason == artifact.ReasonUnauthenticated {
		return nil, err
	}
	if c, cerr := verb.CallerFrom(ctx); cerr == nil && e.RequestID == "" {
		e.RequestID = c.RequestID
	}
	if p := view.NewProblem(&e); p != nil {
		return p, nil
	}
	return nil, err
}

// ErrorPresenter returns what a caller sees of a top-level error: our typed
// errors with their code, the engine's own about the document, and for all else
// internal_error with the request's id; the cause goes to the log.
func ErrorPresenter(log *slog.Logger) graphql.ErrorPresenterFunc {
	return func(ctx context.Context, err error) *gqlerror.Error {
		shown := graphql.DefaultErrorPresenter(ctx, err)
		if shown.Err == nil {
			return shown // of parsing, validation or transport
		}
		var own *artifact.Error
		requestID := ""
		if c, cerr := verb.CallerFrom(ctx); cerr == nil {
			requestID = c.RequestID
		}
		if !errors.As(err, &own) || own.Code == artifact.CodeInternal {
			if ctx.Err() == nil {
				log.ErrorContext(ctx, "resolver failed", "request_id", requestID, "path", shown.Path.String(), "err", err)
			}
			own = artifact.AsError(nil)
		}
		message := own.Message
		if len(own.Problems) == 1 {
			message = own.Problems[0].Message
		}
		out := &gqlerror.Error{Message: message, Path: shown.Path, Locations: shown.Locations, Extensions: map[string]any{
			"code": string(own.Code), "requestId": requestID, "retryable": own.Retryable,
		}}
		if own.Reason != "" {
			out.Extensions["reason"] = own.Reason
		}
		if own.RetryAfterMS > 0 {
			out.Extensions["retryAfterMs"] = own.RetryAfterMS
		}
		if len(own.Problems) > 0 {
			out.Extensions["problems"] = own.Problems
		}
		return out
	}
}

// ReplicaExtension adds extensions.replica to each response: where the copy
// stands, so that a client sees how fresh its data is. It also gives each response
// its budget of contents.
type ReplicaExtension struct {
	Freshness func() (seq artifact.Seq, lagMs int64, stale bool)
}

var _ graphql.ResponseInterceptor = ReplicaExtension{}

// ExtensionName implements graphql.HandlerExtension.
func (ReplicaExtension) ExtensionName() string { return "Replica" }

// Validate implements graphql.HandlerExtension.
func (ReplicaExtension) Validate(graphql.ExecutableSchema) error { return nil }

// InterceptResponse implements graphql.ResponseInterceptor.
func (e ReplicaExtension) InterceptResponse(ctx context.Context, next graphql.ResponseHandler) *graphql.Response {
	resp := next(view.WithBudget(ctx))
	if resp == nil || len(resp.Data) == 0 {
		return resp
	}
	seq, lag, stale := e.Freshness()
	if resp.Extensions == nil {
		resp.Extensions = make(map[string]any, 1)
	}
	resp.Extensions["replica"] = freshness{seq, lag, stale}
	return resp
}

type freshness struct {
	Seq   artifact.Seq `json:"seq,string"`
	LagMs int64        `json:"lagMs"`
	Stale bool         `json:"stale"`
}
