package verb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

const (
	maxKeySet    = 1 << 20 // bytes
	keysTimeout  = 5 * time.Second
	keysRefresh  = 5 * time.Minute
	keysInterval = time.Second
)

// RemoteKeys is a KeySource that reads an issuer's key set over HTTP and keeps
// it. It asks again for a key that it has not seen, and, while [RemoteKeys.Run]
// runs, now and then, so that a key taken out of the set verifies no more. A
// known key never waits for the issuer.
type RemoteKeys struct {
	URL          string        // of the key set
	HTTP         *http.Client  // nil means http.DefaultClient; no redirects are followed
	MinInterval  time.Duration // between two requests for unknown keys; the default is 1 s
	RefreshEvery time.Duration // the default is 5 min
	Log          *slog.Logger  // nil discards
	// Load and Store keep the last set over restarts, so that tokens verify
	// while the issuer is away. Either may be nil.
	Load  func(context.Context) (JWKS, error)
	Store func(context.Context, JWKS) error

	set    atomic.Pointer[StaticKeys] // nil: none was read yet
	loaded atomic.Bool

	mu     sync.Mutex // guards what follows
	asking *keyQuery  // nil while nobody asks
	last   *keyQuery
}

// A keyQuery is one request for the set, and all who wait for it.
type keyQuery struct {
	began time.Time
	done  chan struct{}
	err   error // set before done is closed
}

// PublicKey implements [KeySource].
func (r *RemoteKeys) PublicKey(ctx context.Context, kid string) (*PublicKey, error) {
	r.load(ctx)
	if k := r.known(kid); k != nil {
		return k, nil
	}
	err := r.ask(ctx, cmp.Or(r.MinInterval, keysInterval))
	if k := r.known(kid); k != nil {
		return k, nil
	}
	if err != nil {
		return nil, &artifact.Error{
			Code: artifact.CodeUnavailable, Reason: artifact.ReasonUnknownKey, Retryable: true, RetryAfterMS: 1000,
			Message: "the token's key is not known here and its issuer cannot be asked; retry once it answers",
		}
	}
	return nil, UnknownKey()
}

// Holds implements [KeySource].
func (r *RemoteKeys) Holds(k *PublicKey) bool { return k.equal(r.known(k.ID)) }

// Run reads the set at once and again every RefreshEvery until ctx ends. When
// that fails the old set stays.
func (r *RemoteKeys) Run(ctx context.Context) error {
	r.load(ctx)
	tick := time.NewTicker(cmp.Or(r.RefreshEvery, keysRefresh))
	defer tick.Stop()
	for {
		if err := r.ask(ctx, 0); err != nil && ctx.Err() == nil {
			r.logger().WarnContext(ctx, "key set not refreshed", "url", r.URL, "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (r *RemoteKeys) known(kid string) *PublicKey {
	if set := r.set.Load(); set != nil {
		return (*set)[kid]
	}
	return nil
}

// load reads the kept set unless there is one. Two may do so at once, to the same
// effect.
func (r *RemoteKeys) load(ctx context.Context) {
	if r.Load == nil || r.loaded.Load() {
		return
	}
	if set, err := r.Load(ctx); err == nil {
		keys := KeysOf(set)
		r.set.CompareAndSwap(nil, &keys)
	}
	r.loaded.Store(true)
}

// ask reads the set from its issuer, or waits for whoever does. When that was
// tried within the interval, it returns what came of it.
func (r *RemoteKeys) ask(ctx context.Context, interval time.Duration) error {
	q, mine := r.query(interval)
	if !mine {
		select {
		case <-q.done:
			return q.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// Others wait for the answer too, so it does not end with this request.
	fetch, cancel := context.WithTimeout(context.WithoutCancel(ctx), keysTimeout)
	defer cancel()
	q.err = errors.New("key set: the request was abandoned")
	defer func() {
		r.mu.Lock()
		r.asking, r.last = nil, q
		r.mu.Unlock()
		close(q.done)
	}()
	q.err = r.fetch(fetch)
	return q.err
}

// query returns the query to wait for, or a new one that the caller answers.
func (r *RemoteKeys) query(interval time.Duration) (q *keyQuery, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.asking != nil:
		return r.asking, false
	case r.last != nil && time.Since(r.last.began) < interval:
		return r.last, false
	}
	r.asking = &keyQuery{began: time.Now(), done: make(chan struct{})}
	return r.asking, true
}

func (r *RemoteKeys) fetch(ctx context.Context) error {
	raw, err := r.read(ctx)
	if err != nil {
		return err
	}
	var set JWKS
	if err := json.Unmarshal(raw, &set); err != nil {
		return fmt.Errorf("key set: %w", err)
	}
	if set.Keys == nil { // no key at all is an empty list
		return errors.New("key set: it has no member keys")
	}
	keys := KeysOf(set)
	r.set.Store(&keys)
	if r.Store != nil {
		if err := r.Store(ctx, set); err != nil {
			r.logger().WarnContext(ctx, "key set not kept for a restart", "url", r.URL, "err", err)
		}
	}
	return nil
}

func (r *RemoteKeys) read(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL, http.NoBody) //nolint:gosec // the URL is the operator's
	if err != nil {
		return nil, err
	}
	if s := req.URL.Scheme; s != "https" && s != "http" {
		return nil, fmt.Errorf("key set: %q is no http or https URL", r.URL)
	}
	client := *cmp.Or(r.HTTP, http.DefaultClient)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := client.Do(req) //nolint:gosec // the URL is the operator's
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("key set: %s", strings.TrimSpace(resp.Status))
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySet+1))
	if err == nil && len(raw) > maxKeySet {
		err = fmt.Errorf("key set: it is longer than %d bytes", maxKeySet)
	}
	return raw, err
}

func (r *RemoteKeys) logger() *slog.Logger { return cmp.Or(r.Log, slog.New(slog.DiscardHandler)) }
