package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// batch answers the verb of that name. Items that fail before the transaction
// are left out of a batch that is not atomic, like those that fail in it.
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
	var errs []error // by item, of those refused before the transaction
	var place []int  // op → item
	prepare := func() (ops []op, err error) {
		errs, place = make([]error, len(in.Items)), nil
		seen := make(map[string]bool)
		for i := range in.Items {
			o, err := h.itemOp(c, &in.Items[i], in.Import)
			if alias := in.Items[i].RefAlias; err == nil && alias != "" {
				if seen[alias] || !validAlias.MatchString(alias) {
					err = artifact.Invalid(artifact.Problem{
						Path: "/ref_alias", Constraint: "ref_alias", Value: artifact.Received(alias),
						Message: "an alias is 1 to 64 letters, digits, - and _, and stands once in a batch",
					})
				}
				seen[alias] = true
			}
			if err != nil {
				if errs[i] = err; in.Atomic {
					place = append(place, i)
					return nil, &opError{len(ops), err}
				}
				continue
			}
			ops, place = append(ops, o), append(place, i)
		}
		return ops, nil
	}
	w := &writeRequest{
		verb: "batch", request: in, prepare: prepare, partial: !in.Atomic, imported: in.Import,
		options: verb.WriteOptions{IdempotencyKey: in.IdempotencyKey, DryRun: in.DryRun},
	}
	build := func(done *written, seq artifact.Seq) *verb.BatchResult {
		r := &verb.BatchResult{
			Atomic: in.Atomic, Committed: !in.DryRun, Items: make([]verb.BatchItemResult, len(in.Items)),
			RequestID: c.RequestID, Idempotency: verb.IdempotencyNone, Seq: seq, ConsistencyToken: h.token(seq),
		}
		for i, err := range errs {
			if err != nil {
				r.Items[i].Error = stamped(err, c)
			}
		}
		for j, o := range w.ops {
			r.Items[place[j]] = itemResult(c, o, done.errs[j], seq, r.ConsistencyToken)
		}
		return r
	}
	done, err := h.write(ctx, c, w, func(done *written) any { return build(done, 0) })
	var failed *opError
	if errors.As(err, &failed) && artifact.AsError(failed.err).Code != artifact.CodeInternal {
		return abortedBatch(c, &in, place[failed.index], failed.err), nil
	} else if err != nil {
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
	if in.IdempotencyKey != "" {
		r.Idempotency = verb.IdempotencyFresh
	}
	return *r, nil
}

var validAlias = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// mayBatch refuses callers who may not write what a batch writes.
func mayBatch(c *verb.Caller, in *verb.BatchRequest) error {
	if in.Import {
		return c.Need(artifact.Commons, "importing", verb.Admin)
	}
	err := c.NeedSomewhere("writing", verb.Contributor)
	if err != nil && c.Has(verb.Admin, artifact.Commons) {
		e := artifact.Denied("an admin does not write content: use a contributor's token, or import")
		e.Details = map[string]any{"needs": verb.Contributor}
		return e
	}
	return err
}

func (h *Hub) itemOp(c *verb.Caller, item *verb.BatchItem, imported bool) (op, error) {
	switch {
	case item.Create != nil:
		if err := noItemOptions(item.Create.WriteOptions); err != nil {
			return nil, err
		}
		return h.newCreate(c, item.Create, item.RefAlias, "batch", imported)
	case item.Link != nil:
		if err := noItemOptions(item.Link.WriteOptions); err != nil {
			return nil, err
		}
		o, problems := h.newLink(item.Link, "")
		if problems != nil {
			return nil, artifact.Invalid(problems...)
		}
		o.alias, o.requestID = item.RefAlias, c.RequestID
		return o, nil
	case item.Signal != nil:
		if err := noItemOptions(item.Signal.WriteOptions); err != nil {
			return nil, err
		}
		return newSignal(c, item.Signal, imported)
	}
	return nil, artifact.Invalid(artifact.Problem{Constraint: "required", Path: "/op", Message: "an item has an op"})
}

// noItemOptions refuses options that only a whole batch has.
func noItemOptions(o verb.WriteOptions) error {
	switch {
	case o.IdempotencyKey != "":
		return artifact.Invalid(artifact.Problem{Path: "/idempotency_key", Constraint: "batch_option", Message: "the key belongs to the batch"})
	case o.DryRun:
		return artifact.Invalid(artifact.Problem{Path: "/dry_run", Constraint: "batch_option", Message: "dry_run belongs to the batch"})
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

// abortedBatch is the answer of an atomic batch whose item failed: nothing was
// written, and the answer is not kept for its key.
func abortedBatch(c *verb.Caller, in *verb.BatchRequest, failed int, err error) verb.BatchResult {
	r := verb.BatchResult{Atomic: true, Items: make([]verb.BatchItemResult, len(in.Items)), RequestID: c.RequestID, Idempotency: verb.IdempotencyNone}
	for i := range r.Items {
		r.Items[i].Skipped = i != failed
	}
	r.Items[failed].Error = stamped(err, c)
	return r
}

// single runs a request of one op and returns its answer.
func single[T any](ctx context.Context, h *Hub, c *verb.Caller, w *writeRequest) (out T, err error) {
	done, err := h.write(ctx, c, w, func(*written) any { return w.ops[0].answer(0, "") })
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
		answer = w.ops[0].answer(done.seq, h.token(done.seq))
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
