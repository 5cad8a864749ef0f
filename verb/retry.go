package verb

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
)

// keyless is the verb whose answer holds a secret: it is not kept, so no key makes
// a second request harmless.
var keyless = NodesInvite.Name

// keyed returns a request that may be sent more than once, and whether what it does
// happens once all the same: it reads, or it has an idempotency key. One without is
// given one, where its type has room for it.
func keyed(name string, in any, body []byte) (_ []byte, once bool) {
	v := reflect.Indirect(reflect.ValueOf(in))
	if v.Kind() != reflect.Struct { // JSON as it is: the key alone tells
		var known struct {
			Key string `json:"idempotency_key"`
		}
		return body, json.Unmarshal(body, &known) == nil && known.Key != ""
	}
	key := v.FieldByName("IdempotencyKey")
	switch {
	case name == keyless:
		return body, false
	case !key.IsValid() || key.String() != "":
		return body, true
	}
	with := append([]byte(`{"idempotency_key":"`+uuid.NewString()+`"`), ',')
	return append(with, body[1:]...), true // a write names something: its body is not empty
}

// mayRetry reports whether a call may be made again after this error.
func mayRetry(err error, once bool) bool {
	e, ok := errors.AsType[*artifact.Error](err)
	return ok && e.Retryable && (once || e.Reason != artifact.ReasonOutcomeUnknown)
}

// Bounds of the wait between tries when the error does not say.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
)

// pause waits as long as an error says, and a little more by chance, lest those who
// were refused together come back together. It reports false when ctx ended first.
func pause(ctx context.Context, err error, try int) bool {
	wait := min(firstPause<<min(try-1, 10), maxPause)
	if e := artifact.AsError(err); e.RetryAfterMS > 0 {
		wait = time.Duration(e.RetryAfterMS) * time.Millisecond
	}
	timer := time.NewTimer(wait + rand.N(wait/4+1)) //nolint:gosec // jitter, not a secret
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
