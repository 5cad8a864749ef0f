package verb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// A Class is what is counted together against one limit.
type Class string

// The classes: reads and writes of an agent, and what an address sends without a
// valid token.
const (
	ClassRead            = Class(Read)
	ClassWrite           = Class(Write)
	ClassUnauthenticated = Class("unauthenticated")
)

// A Rate is how often something may be done in the long run, and how often at
// once. A negative number means no limit. In flags it is written 500/s or off.
type Rate struct {
	PerSecond float64 // zero for the default
	Burst     int     // zero for as many seconds' worth as the default has
}

// or fills in what is zero.
func (r Rate) or(standard Rate) Rate {
	if r.PerSecond == 0 {
		r.PerSecond = standard.PerSecond
	}
	if r.Burst == 0 {
		r.Burst = max(1, int(math.Ceil(r.PerSecond*float64(standard.Burst)/standard.PerSecond)))
	}
	return r
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*r = Rate{PerSecond: -1}
		return nil
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(string(text), "/s"), 64)
	if err != nil || n == 0 || math.IsNaN(n) || math.Abs(n) > 1e9 || n > 0 && n < 1e-3 {
		return fmt.Errorf("%q is no rate: give one such as 500/s, or off", text)
	}
	*r = Rate{PerSecond: n}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) {
	if r.PerSecond < 0 {
		return []byte("off"), nil
	}
	return []byte(strconv.FormatFloat(r.PerSecond, 'g', -1, 64) + "/s"), nil
}

// Limits are the rates of a server. Zero rates are those of [StandardLimits].
type Limits struct {
	Read, Write     Rate // of each agent
	Unauthenticated Rate // of each client address; for IPv6 of its /64
}

// StandardLimits stop what runs wild; nobody at work comes near them.
var StandardLimits = Limits{
	Read:            Rate{PerSecond: 2000, Burst: 4000},
	Write:           Rate{PerSecond: 500, Burst: 2000},
	Unauthenticated: Rate{PerSecond: 50, Burst: 500},
}

// A Limiter counts what agents and client addresses do against their limits. It
// is safe for concurrent use; a nil Limiter lets everything pass.
type Limiter struct {
	read, write *buckets[string]
	address     *buckets[netip.Addr]
	proxies     []netip.Prefix
}

// NewLimiter returns a Limiter whose buckets are full. Of requests that come from
// the proxies it takes the client's address from X-Forwarded-For.
func NewLimiter(l Limits, proxies []netip.Prefix) *Limiter {
	return &Limiter{
		read:    newBuckets[string](ClassRead, l.Read, StandardLimits.Read),
		write:   newBuckets[string](ClassWrite, l.Write, StandardLimits.Write),
		address: newBuckets[netip.Addr](ClassUnauthenticated, l.Unauthenticated, StandardLimits.Unauthenticated),
		proxies: proxies,
	}
}

type quotaHeaderKey struct{}

// WithQuotaHeader returns a context in which [Limiter.Allow] says in head how much
// is left. One goroutine may use it.
func WithQuotaHeader(ctx context.Context, head http.Header) context.Context {
	return context.WithValue(ctx, quotaHeaderKey{}, head)
}

// Allow counts n reads or writes of c, at most a full bucket's, and returns a
// rate_limited error, counting none, if they are too many by now.
func (l *Limiter) Allow(ctx context.Context, c *Caller, class Class, n int) error {
	if l == nil || c.Anonymous { // who was counted by the address
		return nil
	}
	b := l.read
	if class == ClassWrite {
		b = l.write
	}
	if b == nil {
		return nil
	}
	q := b.take(c.Actor.ID, n)
	head, shown := ctx.Value(quotaHeaderKey{}).(http.Header)
	if shown {
		b.show(head, q)
	}
	if q.ok {
		return nil
	}
	err := b.refusal(q)
	if shown {
		head.Set("Retry-After", retryAfter(err))
	}
	return err
}

// AllowAddress counts a request without a token against its client's address.
func (l *Limiter) AllowAddress(w http.ResponseWriter, req *http.Request) error {
	if l == nil || l.address == nil {
		return nil
	}
	q := l.address.take(network(ClientAddress(req, l.proxies)), 1)
	l.address.show(w.Header(), q)
	if q.ok {
		return nil
	}
	return l.address.refusal(q)
}

// Refuse counts a failed authentication against the client's address. It returns
// what to answer: err, or rate_limited when there were too many.
func (l *Limiter) Refuse(w http.ResponseWriter, req *http.Request, err error) error {
	if e, ok := errors.AsType[*artifact.Error](err); !ok || e.Reason != artifact.ReasonUnauthenticated {
		return err
	}
	if limited := l.AllowAddress(w, req); limited != nil {
		return limited
	}
	return err
}

// ByAddress limits a door that takes no token.
func (l *Limiter) ByAddress(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := l.AllowAddress(w, req); err != nil {
			WriteError(withRequestID(req.Context(), w, req.Header), w, log, err)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// weight returns how many writes a request counts as. An admin's import, of which
// any number of items may come, is one.
func weight(in any) int {
	if b, ok := in.(BatchRequest); ok && !b.Import {
		return len(b.Items)
	}
	return 1
}
