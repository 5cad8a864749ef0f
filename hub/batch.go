package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// batch answers the verb of that name. Items that fail before the transaction are
// treated like those that fail in it.
func (h *Hub) batch(ctx context.Context, in verb.BatchRequest) (out verb.BatchResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if err := mayBatch(c, &in); err != nil {
		return out, err
	}
	if n := len(in.Items); n < 1 || n > verb.MaxBatchItems {
		return out, artifact.Invalid(artifact.Problem{
			Path: "/items", Constraint: "items", Message: fmt.Sprintf("a batch has 1 to %d items, not %d", verb.MaxBatchItems, n),
		})
	}
	types := []string{}
	for i := range in.Items {
		if create := in.Items[i].Create; create != nil {
			types = append(types, create.Type)
		}
	}
	if err := h.schemas.ensure(ctx, h.db, types...); err != nil {
		return out, err
	}
	w := &writeRequest{
		verb: verb.Batch.Name, request: in, partial: !in.Atomic, keeps: true, imported: in.Import,
		options: verb.WriteOptions{IdempotencyKey: in.IdempotencyKey, DryRun: in.DryRun},
	}
	w.prepare = func() ([]op, error) {
		b := newItems(ctx, h, c, &in)
		w.names = b.names
		return b.ops, nil
	}
	build := func(done *written, seq artifact.Seq) *verb.BatchResult {
		r := &verb.BatchResult{
			Atomic: in.Atomic, Committed: !in.DryRun && slices.Contains(done.errs, nil), Items: make([]verb.BatchItemResult, len(in.Items)),
			RequestID: c.RequestID, Idempotency: verb.IdempotencyNone, Seq: seq, ConsistencyToken: h.token(seq),
		}
		if done.failed != nil {
			r.Committed = false
			for i := range r.Items {
				r.Items[i].Skipped = i != done.failed.index
			}
			r.Items[done.failed.index].Error = stamped(done.failed.err, c)
			return stamp(c, w, r)
		}
		for i, o := range w.ops {
			r.Items[i] = itemResult(c, o, done.errs[i], seq, r.ConsistencyToken)
		}
		return stamp(c, w, r)
	}
	done, err := h.write(ctx, c, w, func(done *written) any { return build(done, 0) })
	if err != nil {
		return out, err
	}
	if done.replayed != nil {
		if err := json.Unmarshal(done.replayed, &out); err != nil {
			return out, fmt.Errorf("stored answer: %w", err)
		}
		out.Place(done.seq, h.token(done.seq), verb.IdempotencyReplayed)
		return out, nil
	}
	r := build(done, done.seq)
	if in.IdempotencyKey != "" && !in.DryRun {
		r.Idempotency = verb.IdempotencyFresh
	}
	return *r, nil
}

// mayBatch refuses callers who may not write what a batch writes. What each item
// takes, its op asks.
func mayBatch(c *verb.Caller, in *verb.BatchRequest) error {
	if in.Import {
		return c.Need(artifact.Commons, "importing", verb.Admin)
	}
	return nil
}

// stamped returns an item's error with the request's id.
func stamped(err error, c *verb.Caller) *artifact.Error {
	e := *artifact.AsError(err)
	e.RequestID = c.RequestID
	return &e
}

func itemResult(c *verb.Caller, o op, err error, seq artifact.Seq, token string) (r verb.BatchItemResult) {
	if err != nil {
		r.Error = stamped(err, c)
		return r
	}
	switch a := o.answer(seq, token).(type) {
	case *verb.WriteResult:
		r.Write = a
	case *verb.LinkResult:
		r.Link = a
	case *verb.SignalResult:
		r.Signal = a
	}
	return r
}

// stamp makes an answer tell on whose behalf was written.
func stamp[T any](c *verb.Caller, w *writeRequest, answer T) T {
	if s, ok := any(answer).(verb.Stamped); ok {
		if raw, _, err := replicate.Encode(provenance(c, w.verb, w.imported)); err == nil { // it is text alone
			s.Stamp(raw)
		}
	}
	return answer
}

// single runs a request of one op and returns its answer.
func single[T any](ctx context.Context, h *Hub, c *verb.Caller, w *writeRequest) (out T, err error) {
	done, err := h.write(ctx, c, w, func(*written) any { return stamp(c, w, w.ops[0].answer(0, "")) })
	if failed, ok := errors.AsType[*opError](err); ok {
		return out, failed.err
	} else if err != nil {
		return out, err
	}
	outcome := ""
	var answer any
	if done.replayed != nil {
		if err := json.Unmarshal(done.replayed, &out); err != nil {
			return out, fmt.Errorf("stored answer: %w", err)
		}
		outcome, answer = verb.IdempotencyReplayed, &out
	} else {
		answer = stamp(c, w, w.ops[0].answer(done.seq, h.token(done.seq)))
		if w.options.IdempotencyKey != "" && done.seq > 0 {
			outcome = verb.IdempotencyFresh
		}
	}
	if p, ok := answer.(verb.Placed); ok {
		p.Place(done.seq, h.token(done.seq), outcome)
	}
	typed, ok := answer.(*T)
	if !ok {
		return out, fmt.Errorf("%s answered %T", w.verb, answer)
	}
	return *typed, nil
}
