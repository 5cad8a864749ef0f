package verb

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/scidex-ai/substrate/artifact"
)

// maxBuckets bounds the callers of one class that are counted apart.
const maxBuckets = 50_000

// sweepEvery is how often buckets that are full again are looked for.
const sweepEvery = time.Second

// buckets hold a token bucket for each caller of a class. A full bucket says no
// more than none does, so it may go; no other is dropped for a newcomer. When there
// are too many, newcomers share one, so that whoever comes from many addresses
// slows other newcomers but costs no memory and resets nobody's count.
type buckets[K comparable] struct {
	class  Class
	rate   Rate
	policy []string // header values
	burst  []string

	mu     sync.Mutex // guards what follows
	byKey  map[K]*rate.Limiter
	shared *rate.Limiter
	swept  time.Time
}

// newBuckets returns nil, which limits nothing, for a negative rate.
func newBuckets[K comparable](class Class, r, standard Rate) *buckets[K] {
	r = r.or(standard)
	if r.PerSecond < 0 || r.Burst < 0 {
		return nil
	}
	burst := strconv.Itoa(r.Burst)
	window := strconv.Itoa(max(1, int(math.Ceil(float64(r.Burst)/r.PerSecond))))
	return &buckets[K]{
		class: class, rate: r,
		policy: []string{strconv.Quote(string(class)) + ";q=" + burst + ";w=" + window}, burst: []string{burst},
		byKey:  make(map[K]*rate.Limiter),
		shared: rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst),
	}
}

// take takes n tokens, at most a full bucket, or none if there are fewer.
func (b *buckets[K]) take(key K, n int) quota {
	n = min(n, b.rate.Burst)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.of(key, now)
	ok := l.AllowN(now, n)
	return quota{wanted: float64(n), left: l.TokensAt(now), ok: ok}
}

// of returns key's bucket. The caller holds mu.
func (b *buckets[K]) of(key K, now time.Time) *rate.Limiter {
	if l, ok := b.byKey[key]; ok {
		return l
	}
	if now.Sub(b.swept) >= sweepEvery {
		b.swept = now
		for k, l := range b.byKey {
			if l.TokensAt(now) >= float64(b.rate.Burst) {
				delete(b.byKey, k)
			}
		}
	}
	if len(b.byKey) >= maxBuckets {
		return b.shared
	}
	l := rate.NewLimiter(rate.Limit(b.rate.PerSecond), b.rate.Burst)
	b.byKey[key] = l
	return l
}

// A quota is what taking from a bucket came to.
type quota struct {
	wanted, left float64 // tokens
	ok           bool
}

// show tells the caller what is left, as draft-ietf-httpapi-ratelimit-headers-10
// has it and in the three headers of its early versions, which clients know.
func (b *buckets[K]) show(head http.Header, q quota) {
	remaining := strconv.Itoa(int(q.left))
	reset := strconv.Itoa(int(math.Ceil((float64(b.rate.Burst) - q.left) / b.rate.PerSecond)))
	values := [...]string{`"` + string(b.class) + `";r=` + remaining + ";t=" + reset, remaining, reset}
	// As Header.Set writes the names, which would take longer than all else here.
	head["Ratelimit-Policy"], head["Ratelimit-Limit"] = b.policy, b.burst
	head["Ratelimit"], head["Ratelimit-Remaining"], head["Ratelimit-Reset"] = values[0:1:1], values[1:2:2], values[2:3:3]
}

func (b *buckets[K]) refusal(q quota) *artifact.Error {
	wait := (q.wanted - q.left) / b.rate.PerSecond
	return &artifact.Error{
		Code: artifact.CodeRateLimited, Retryable: true, RetryAfterMS: max(1, int64(math.Ceil(wait*1000))),
		Message: "too many requests; wait as long as retry_after_ms says",
		Details: map[string]any{"class": b.class, "limit": b.rate.PerSecond, "burst": b.rate.Burst},
	}
}
