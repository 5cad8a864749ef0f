package verb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/scidex-ai/substrate/artifact"
)

// A Client runs verbs on a hub or node over HTTP: [Verb.Call] with a Client is a typed
// call. Its errors are the server's, as [artifact.Error]s. A node forwards writes with
// one: calls made for a [Caller] carry the caller's own token and request id.
type Client struct {
	URL   string       // base URL, without a trailing slash
	Token string       // used when the context carries no caller
	HTTP  *http.Client // nil means http.DefaultClient
	// Tries is how often a call is made while its error is retryable, waiting as long
	// as the error says in between; zero means once. A typed write without an
	// idempotency key is given one, so that it happens once however often it is sent.
	// What has no key and may have happened is not sent again.
	Tries int
	// Credential, when set, returns the credential of the node that forwards
	// calls, such as [NodeKey.Credential].
	Credential func() (string, error)
}

// Invoke implements [Invoker]. When the server could not be reached the error is
// unavailable; it has the reason outcome_unknown when the request may have run.
func (c *Client) Invoke(ctx context.Context, name string, in, out any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // which could make a content six times larger
	if err := e.Encode(in); err != nil {
		return err
	}
	body := b.Bytes()
	if c.Tries <= 1 {
		return c.send(ctx, name, body, out)
	}
	body, once := keyed(name, in, body)
	for try := 1; ; try++ {
		err := c.send(ctx, name, body, out)
		if try == c.Tries || !mayRetry(err, once) || !pause(ctx, err, try) {
			return err
		}
	}
}

// newRequest returns a call as the context's caller makes it.
func (c *Client) newRequest(ctx context.Context, name string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+PathPrefix+name, bytes.NewReader(body)) //nolint:gosec // the URL is the operator's
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	token := c.Token
	if caller, err := CallerFrom(ctx); err == nil {
		token = caller.Token
		req.Header.Set("X-Request-Id", caller.RequestID)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if c.Credential != nil {
		credential, err := c.Credential()
		if err != nil {
			return nil, fmt.Errorf("sign the node's credential: %w", err)
		}
		req.Header.Set(NodeHeader, credential)
	}
	return req, nil
}

// Stream begins a stream of events, through a client that sets no limit to how long
// it lasts. The caller closes what it returns.
func (c *Client) Stream(ctx context.Context, in SubscribeRequest, through *http.Client) (io.ReadCloser, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	req, err := c.newRequest(ctx, strings.TrimPrefix(SubscribePath, PathPrefix), body)
	if err != nil {
		return nil, err
	}
	resp, err := through.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, MaxRequestBytes))
	if err != nil {
		return nil, unreachable(err)
	}
	return nil, readError(resp, raw)
}

// send makes one try.
func (c *Client) send(ctx context.Context, name string, body []byte, out any) error {
	req, err := c.newRequest(ctx, name, body)
	if err != nil {
		return err
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req) //nolint:gosec // the URL is the operator's
	if err != nil {
		return unreachable(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		return readError(resp, raw)
	}
	if err := json.Unmarshal(raw, out); err != nil {
		e := outcomeUnknown()
		e.Message = "the hub's answer is no JSON; retry with the same idempotency key"
		return e
	}
	return nil
}

// unreachable turns a transport error into unavailable. Only a connection that
// was never made proves that the request did not run.
func unreachable(err error) error {
	e := outcomeUnknown()
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED) {
		e.Reason, e.Message = artifact.ReasonHubUnreachable, "the hub cannot be reached"
		e.Details = map[string]any{"outcome_unknown": false}
	}
	return e
}

func outcomeUnknown() *artifact.Error {
	return &artifact.Error{
		Code: artifact.CodeUnavailable, Reason: artifact.ReasonOutcomeUnknown, Retryable: true, RetryAfterMS: 1000,
		Message: "the hub did not answer; retry with the same idempotency key",
		Details: map[string]any{"outcome_unknown": true},
	}
}

// readError turns an error response back into the error that the server returned.
// Where a proxy answered for it, the request may have run.
func readError(resp *http.Response, raw []byte) error {
	e := new(artifact.Error)
	if err := json.Unmarshal(raw, e); err == nil && e.Code != "" {
		return e
	}
	if resp.StatusCode < http.StatusInternalServerError {
		return &artifact.Error{
			Code: artifact.CodeUnavailable, Reason: artifact.ReasonUnexpectedAnswer,
			Message: "the server answered " + resp.Status + ": it is no hub and no node",
		}
	}
	e = outcomeUnknown()
	e.Message = "the server answered " + resp.Status + "; retry with the same idempotency key"
	return e
}
