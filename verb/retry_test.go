package verb_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A network answers requests in turn and remembers their bodies.
type network struct {
	answers []any // *artifact.Error, or an error of the transport, or an answer
	bodies  []string
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	answer := n.answers[len(n.bodies)]
	n.bodies = append(n.bodies, string(raw))
	status := http.StatusOK
	switch a := answer.(type) {
	case *artifact.Error:
		status = verb.Status(a)
	case error:
		return nil, a
	}
	body, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// TestClientRetries calls with several tries over a network that fails.
func TestClientRetries(t *testing.T) {
	busy := &artifact.Error{Code: artifact.CodeUnavailable, Reason: artifact.ReasonBusy, Retryable: true, RetryAfterMS: 4000}
	limited := &artifact.Error{Code: artifact.CodeRateLimited, Retryable: true, RetryAfterMS: 60_000}
	broken := errors.New("connection reset by peer")
	done := verb.WriteResult{Revision: 1}
	create := verb.CreateRequest{Type: "gene", ID: "APP", Title: "APP", Content: json.RawMessage(`{}`)}
	withKey := create
	withKey.IdempotencyKey = "6e7f0a4e-7a0b-4a63-8f0e-3c1d2b5a9f10"
	tests := []struct {
		name    string
		verb    string
		in      any
		tries   int
		answers []any
		calls   int
		wait    time.Duration // at least, and at most a quarter more
		reason  string        // of the error, "" for none
		key     string        // that each request has; "any" for one that was made
	}{
		{name: "once is enough", in: create, tries: 3, answers: []any{done}, calls: 1, key: "any"},
		{name: "a busy hub, as long as it says", in: create, tries: 3, answers: []any{busy, done}, calls: 2, wait: 4 * time.Second, key: "any"},
		{name: "too many requests", in: create, tries: 3, answers: []any{limited, busy, done}, calls: 3, wait: 64 * time.Second, key: "any"},
		{name: "a write that may have happened, with its key", in: withKey, tries: 3, answers: []any{broken, done}, calls: 2, wait: time.Second, key: withKey.IdempotencyKey},
		{name: "a write that may have happened, with a key made for it", in: create, tries: 2, answers: []any{broken, done}, calls: 2, wait: time.Second, key: "any"},
		{name: "gives up", in: create, tries: 2, answers: []any{busy, busy, done}, calls: 2, wait: 4 * time.Second, reason: artifact.ReasonBusy, key: "any"},
		{name: "one try", in: create, answers: []any{busy, done}, calls: 1, reason: artifact.ReasonBusy},
		{name: "what no try mends", in: create, tries: 3, answers: []any{artifact.NotFound("gene:APP"), done}, calls: 1, reason: "not_found", key: "any"},
		{name: "raw JSON without a key may have happened", in: json.RawMessage(`{"type":"gene"}`), tries: 3, answers: []any{broken, done}, calls: 1, reason: artifact.ReasonOutcomeUnknown},
		{name: "raw JSON with a key", in: json.RawMessage(`{"idempotency_key":"k"}`), tries: 3, answers: []any{broken, done}, calls: 2, wait: time.Second, key: "k"},
		{name: "a read", verb: "get", in: verb.GetRequest{}, tries: 3, answers: []any{broken, done}, calls: 2, wait: time.Second},
		{name: "an invitation, of which two could be made", verb: "nodes/invite", in: verb.NodesInviteRequest{Lab: "l"}, tries: 3, answers: []any{broken, done}, calls: 1, reason: artifact.ReasonOutcomeUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{answers: tt.answers}
				c := &verb.Client{URL: "http://hub", Tries: tt.tries, HTTP: &http.Client{Transport: n}}
				name, start := tt.verb, time.Now()
				if name == "" {
					name = "create"
				}
				var out json.RawMessage
				err := c.Invoke(t.Context(), name, tt.in, &out)
				if reason := reasonOf(err); reason != tt.reason || len(n.bodies) != tt.calls {
					t.Errorf("%d calls, error %v; want %d and %q", len(n.bodies), err, tt.calls, tt.reason)
				}
				if took := time.Since(start); took < tt.wait || took > tt.wait+tt.wait/4 {
					t.Errorf("it took %v, want %v", took, tt.wait)
				}
				for i, body := range n.bodies {
					var sent struct {
						Key string `json:"idempotency_key"`
					}
					if err := json.Unmarshal([]byte(body), &sent); err != nil {
						t.Fatalf("%v: %s", err, body)
					}
					if (tt.key == "any") != (sent.Key != "" && sent.Key != tt.key) || tt.key != "any" && sent.Key != tt.key || body != n.bodies[0] {
						t.Errorf("try %d: %s", i+1, body)
					}
				}
			})
		})
	}
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	f, _ := verb.FailureOf(artifact.AsError(err))
	return f.Reason
}
