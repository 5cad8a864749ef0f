package embed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// Limits of a call.
const (
	maxAnswer  = 64 << 20 // bytes
	maxTries   = 5
	leastPause = 250 * time.Millisecond
	mostPause  = time.Minute
)

// An Endpoint is where a model is asked. Its Key is never logged and in no error.
type Endpoint struct {
	URL   string // as given: the API's base, or the whole URL of the call
	Model string
	Key   string // sent as a bearer token; "" for none
	// PerMinute bounds the calls a minute; 0 is no bound.
	PerMinute int
	// Timeout bounds one try. The default is 30 seconds.
	Timeout time.Duration
	// HTTP is the client. The default is one of its own, which follows no redirects:
	// texts go nowhere else.
	HTTP *http.Client
}

// caller posts JSON to one URL.
type caller struct {
	Endpoint
	limiter *rate.Limiter
}

// maxModel bounds the name of a model.
const maxModel = 200

func newCaller(e Endpoint, path string) (*caller, error) {
	u, err := url.Parse(e.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the URL of the endpoint is http:// or https:// with a host, and has neither user nor query")
	}
	if len(e.Model) > maxModel || strings.ContainsFunc(e.Model, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("a model's name is at most 200 printable characters of ASCII without space")
	}
	if u.Path = strings.TrimSuffix(u.Path, "/"); !strings.HasSuffix(u.Path, path) {
		u.Path += path
	}
	e.URL = u.String()
	if e.Timeout <= 0 {
		e.Timeout = 30 * time.Second
	}
	if e.HTTP == nil {
		e.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	c := &caller{Endpoint: e, limiter: rate.NewLimiter(rate.Inf, 1)}
	if e.PerMinute > 0 {
		c.limiter = rate.NewLimiter(rate.Limit(float64(e.PerMinute)/60), max(1, e.PerMinute/60))
	}
	return c, nil
}

// A RefusedError is what the endpoint will refuse again. What it said is not kept: it
// may name the key, or the text.
type RefusedError struct{ Status int }

// ForAll reports whether it refuses any text: the key, the model or the URL is wrong.
func (e *RefusedError) ForAll() bool {
	switch e.Status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return e.Status < 400
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the endpoint refuses with status %d", e.Status)
}

// post sends a request and reads the answer. Patient calls try again what may pass,
// as late as the endpoint asks for.
func (c *caller) post(ctx context.Context, request, answer any, patient bool) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		if err := c.limiter.Wait(ctx); err != nil {
			return err
		}
		pause, err := c.once(ctx, body, answer)
		if _, refused := errors.AsType[*RefusedError](err); err == nil || refused || !patient || try == maxTries || ctx.Err() != nil {
			return err
		}
		if pause == 0 {
			pause = leastPause << try
			pause = pause/2 + rand.N(pause) //nolint:gosec // jitter, not a secret
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(pause, mostPause)):
		}
	}
}

// once tries once. The pause is what the endpoint asks for; 0 for nothing.
func (c *caller) once(ctx context.Context, body []byte, answer any) (pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask the endpoint: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, fmt.Errorf("read the endpoint's answer: %w", err)
	case len(raw) > maxAnswer:
		return 0, errors.New("the endpoint's answer is too long")
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return retryAfter(resp.Header.Get("Retry-After"), time.Now()), fmt.Errorf("the endpoint answers with status %d", resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		return 0, &RefusedError{resp.StatusCode}
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return 0, fmt.Errorf("the endpoint's answer is not what was asked for: %w", err)
	}
	return 0, nil
}

// retryAfter reads a Retry-After (RFC 9110): seconds, or a date.
func retryAfter(value string, now time.Time) time.Duration {
	if s, err := strconv.Atoi(value); err == nil && s > 0 {
		return time.Duration(min(s, 3600)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
