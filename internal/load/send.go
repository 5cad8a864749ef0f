package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	attemptTimeout = 2 * time.Minute        // of one request; the hub's own limits are shorter
	grace          = 30 * time.Second       // that requests under way have when the load is to end
	firstWait      = 250 * time.Millisecond // before a retry; doubled each time
	longestWait    = 10 * time.Second
	internalTries  = 4 // of a batch that the hub fails on for reasons of its own
)

// batchKeys is the namespace of idempotency keys, which are made of a batch's
// bytes: a retry has the key of the batch, even from another process.
var batchKeys = uuid.MustParse("5c1de10a-ba7c-5e4d-9b0f-6c6f61640001")

// A sender sends batches to the hub. It is safe for concurrent use.
type sender struct {
	c      Config
	events chan event
}

// An event is what a worker tells the loader: what became of a batch or, without
// a result, that it is to be tried again.
type event struct {
	batch  *batch
	result *result
	err    error
	wait   time.Duration
}

// A result is what became of a batch's items.
type result struct {
	outcomes []outcome // by item; nil after an error
	seq      artifact.Seq
	token    string
}

// send sends a batch until each item has an outcome, and tells them.
func (s *sender) send(ctx context.Context, b *batch) {
	if b.after != nil {
		<-b.after
	}
	r := &result{outcomes: make([]outcome, len(b.items))}
	pending := make([]int, len(b.items))
	for i := range pending {
		pending[i] = i
	}
	var err error
	for len(pending) > 0 && err == nil {
		pending, err = s.round(ctx, b, r, pending)
	}
	s.events <- event{batch: b, result: r, err: err}
}

// round sends the items at pending and returns those that are to be sent again.
func (s *sender) round(ctx context.Context, b *batch, r *result, pending []int) ([]int, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	items := make([]verb.BatchItem, len(pending))
	for j, i := range pending {
		items[j] = b.items[i].write
	}
	answer, mayHaveRun, err := s.call(ctx, items)
	if byItem := itemProblems(err, len(pending)); byItem != nil {
		// Refused as a whole for the sake of some: the others go without them.
		var rest []int
		for j, i := range pending {
			if problems := byItem[j]; problems != nil {
				r.outcomes[i] = outcome{fate: rejected, problems: b.items[i].onLine(problems)}
			} else {
				rest = append(rest, i)
			}
		}
		return rest, nil
	}
	if err != nil {
		return nil, err
	}
	if len(answer.Items) != len(pending) {
		return nil, fmt.Errorf("the hub answered %d of %d items of a batch", len(answer.Items), len(pending))
	}
	if answer.Seq > r.seq {
		r.seq, r.token = answer.Seq, answer.ConsistencyToken
	}
	// An answer that was stored before this load: what was written then is there,
	// but what failed may not fail now.
	old := answer.Idempotency == verb.IdempotencyReplayed && !mayHaveRun
	var again []int
	for j, i := range pending {
		if answer.Items[j].Error != nil && old {
			again = append(again, i)
		}
	}
	if len(again) == len(pending) {
		again, old = nil, false
	}
	for j, i := range pending {
		switch a := &answer.Items[j]; {
		case a.Error != nil && old:
		case artifact.IsCode(asError(a.Error), artifact.CodePermissionDenied):
			return nil, a.Error
		default:
			r.outcomes[i] = b.items[i].judge(a, old)
		}
	}
	return again, nil
}

// asError returns a nil error for a nil pointer.
func asError(e *artifact.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// call calls the verb, again and again while the hub is away. It tells whether
// an attempt before the answered one may have run.
func (s *sender) call(ctx context.Context, items []verb.BatchItem) (answer verb.BatchResult, mayHaveRun bool, err error) {
	raw, err := json.Marshal(items)
	if err != nil {
		return answer, false, err
	}
	name := "batch\n"
	if s.c.Import {
		name = "import\n"
	}
	in := verb.BatchRequest{Items: items, Import: s.c.Import, IdempotencyKey: uuid.NewSHA1(batchKeys, append([]byte(name), raw...)).String()}
	var giveUp time.Time
	for try := 1; ; try++ {
		request, end := requestContext(ctx)
		answer, err = verb.Batch.Call(request, s.c.Invoker, in)
		end()
		if err == nil {
			return answer, mayHaveRun, nil
		}
		e := artifact.AsError(err)
		if e.Reason == artifact.ReasonIdempotencyConflict && !mayHaveRun {
			// The hub encodes requests in another way than when it stored the key.
			in.IdempotencyKey = uuid.NewString()
			mayHaveRun = true
			continue
		}
		retry, ran := retryable(err)
		mayHaveRun = mayHaveRun || ran
		if !retry || e.Code == artifact.CodeInternal && try == internalTries {
			return answer, mayHaveRun, err
		}
		if giveUp.IsZero() {
			giveUp = time.Now().Add(s.c.RetryFor)
		}
		left := time.Until(giveUp)
		wait := min(backOff(try, e.RetryAfterMS), left)
		if left <= 0 {
			if s.c.RetryFor > 0 {
				err = fmt.Errorf("tried for %s: %w", s.c.RetryFor, err)
			}
			return answer, mayHaveRun, err
		}
		s.events <- event{err: err, wait: wait}
		select {
		case <-ctx.Done():
			return answer, mayHaveRun, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// requestContext returns the context of one request, which outlives ctx by a
// grace, so that a load that ends knows what became of it.
func requestContext(ctx context.Context) (context.Context, func()) {
	request, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			cancel()
		case <-request.Done():
		}
	})
	return request, func() {
		stop()
		cancel()
	}
}

// retryable reports whether a request is worth sending again, and whether it may
// have run.
func retryable(err error) (retry, mayHaveRun bool) {
	var e *artifact.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return true, true
	case !errors.As(err, &e):
		return false, false
	case e.Code == artifact.CodeInternal:
		return true, true
	case !e.Retryable:
		return false, false
	}
	return true, e.Reason == "" || e.Reason == artifact.ReasonOutcomeUnknown // "" is some proxy's answer
}

// backOff returns how long to wait before a retry: longer each time and never
// the same for two workers.
func backOff(try int, retryAfterMS int64) time.Duration {
	wait := longestWait
	if try < 6 {
		wait = min(wait, firstWait<<(try-1))
	}
	wait = max(wait, min(time.Duration(retryAfterMS)*time.Millisecond, time.Minute))
	return wait + rand.N(wait/2) //nolint:gosec // jitter, not a secret
}
