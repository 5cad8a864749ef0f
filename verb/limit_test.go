package verb_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

func agent(id string) *verb.Caller { return &verb.Caller{Actor: artifact.Actor{ID: id}} }

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := verb.NewLimiter(verb.Limits{Read: verb.Rate{PerSecond: 10, Burst: 20}, Write: verb.Rate{PerSecond: 2, Burst: 4}}, nil)
		head := http.Header{}
		ctx := verb.WithQuotaHeader(t.Context(), head)
		allow := func(id string, class verb.Class, n int) error { return l.Allow(ctx, agent(id), class, n) }
		want := func(values map[string]string) {
			t.Helper()
			for name, value := range values {
				if got := head.Get(name); got != value {
					t.Errorf("%s: %s, want %s", name, got, value)
				}
			}
		}
		for i := range 20 {
			if err := allow("ada", verb.ClassRead, 1); err != nil {
				t.Fatalf("read %d: %v", i+1, err)
			}
			if i == 0 {
				want(map[string]string{
					"RateLimit-Policy": `"read";q=20;w=2`, "RateLimit": `"read";r=19;t=1`,
					"RateLimit-Limit": "20", "RateLimit-Remaining": "19", "RateLimit-Reset": "1",
				})
			}
		}
		e := artifact.AsError(allow("ada", verb.ClassRead, 1))
		if e.Code != artifact.CodeRateLimited || !e.Retryable || e.RetryAfterMS != 100 || fmt.Sprint(e.Details) != "map[burst:20 class:read limit:10]" {
			t.Errorf("the 21st read = %+v", e)
		}
		want(map[string]string{"RateLimit": `"read";r=0;t=2`, "RateLimit-Remaining": "0", "RateLimit-Reset": "2"})
		if err := allow("ada", verb.ClassWrite, 1); err != nil {
			t.Errorf("reads count as writes: %v", err)
		}
		if err := allow("bob", verb.ClassRead, 1); err != nil {
			t.Errorf("ada's reads count as bob's: %v", err)
		}
		time.Sleep(time.Duration(e.RetryAfterMS) * time.Millisecond)
		if err := allow("ada", verb.ClassRead, 1); err != nil {
			t.Errorf("a read after retry_after_ms: %v", err)
		}
		if err := allow("ada", verb.ClassRead, 1); err == nil {
			t.Error("two reads after the time for one")
		}
		if err := allow("eve", verb.ClassWrite, 1000); err != nil {
			t.Errorf("more writes at once than a full bucket: %v, want them to take it all", err)
		}
		if e := artifact.AsError(allow("eve", verb.ClassWrite, 1000)); e.RetryAfterMS != 2000 {
			t.Errorf("retry_after_ms = %d, want the time to fill the bucket", e.RetryAfterMS)
		}
		time.Sleep(2 * time.Second)
		if err := allow("eve", verb.ClassWrite, 1000); err != nil {
			t.Errorf("after retry_after_ms: %v", err)
		}
	})
}

func TestNoLimit(t *testing.T) {
	off := verb.NewLimiter(verb.Limits{Read: verb.Rate{PerSecond: -1}, Write: verb.Rate{Burst: -1}, Unauthenticated: verb.Rate{PerSecond: -1}}, nil)
	for name, l := range map[string]*verb.Limiter{"none": nil, "off": off} {
		head := http.Header{}
		w := httptest.NewRecorder()
		for range 5000 {
			for _, class := range []verb.Class{verb.ClassRead, verb.ClassWrite} {
				if err := l.Allow(verb.WithQuotaHeader(t.Context(), head), agent("ada"), class, 1000); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if err := l.AllowAddress(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if len(head)+len(w.Header()) > 0 {
			t.Errorf("%s: headers %v %v", name, head, w.Header())
		}
	}
}

func TestRateText(t *testing.T) {
	for text, want := range map[string]float64{"500/s": 500, "500": 500, "0.5/s": 0.5, "off": -1, "-1": -1} {
		var r verb.Rate
		if err := r.UnmarshalText([]byte(text)); err != nil || r.PerSecond != want {
			t.Errorf("%q = %+v, %v", text, r, err)
		}
	}
	for _, bad := range []string{"", "0", "fast", "1/m", "NaN", "Inf", "1e-9", "1e99"} {
		if err := new(verb.Rate).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a rate", bad)
		}
	}
}

// TestServerLimits checks what counts as how much over HTTP.
func TestServerLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessionRig(t)
		s.verbs.Limiter = verb.NewLimiter(verb.Limits{
			Read: verb.Rate{PerSecond: 1, Burst: 3}, Write: verb.Rate{PerSecond: 1, Burst: 10}, Unauthenticated: verb.Rate{PerSecond: 1, Burst: 2},
		}, nil)
		token := s.sign(t, "ada", time.Hour)
		call := func(name, body, token, peer string) *httptest.ResponseRecorder {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, verb.PathPrefix+name, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+token)
			req.RemoteAddr = peer
			w := httptest.NewRecorder()
			s.verbs.Handler().ServeHTTP(w, req)
			return w
		}
		remaining := func(w *httptest.ResponseRecorder, status int, policy, want string) {
			t.Helper()
			head := w.Header()
			if w.Code != status || head.Get("RateLimit-Remaining") != want || !strings.HasPrefix(head.Get("RateLimit-Policy"), `"`+policy+`"`) {
				t.Errorf("%d %s, remaining %q of %s; want %d, %s of %s", w.Code, w.Body, head.Get("RateLimit-Remaining"), head.Get("RateLimit-Policy"), status, want, policy)
			}
		}
		const get, peer, vote = `{"ref":"gene:a"}`, "192.0.2.1:99", `{"op":"signal","ref":"gene:a","kind":"vote","value":1}`
		batch := `{"items":[` + strings.Join([]string{vote, vote, vote, vote}, ",") + `]}`
		remaining(call("get", get, token, peer), 200, "read", "2")
		remaining(call("gett", get, token, peer), 404, "read", "1")
		remaining(call("get", `{}`, token, peer), 422, "read", "0")
		w := call("get", get, token, peer)
		remaining(w, 429, "read", "0")
		e := new(artifact.Error)
		if err := json.Unmarshal(w.Body.Bytes(), e); err != nil || e.Code != artifact.CodeRateLimited || e.RequestID == "" || e.RetryAfterMS != 1000 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("over the limit: %s, Retry-After %q", w.Body, w.Header().Get("Retry-After"))
		}
		remaining(call("batch", batch, token, peer), 200, "write", "6")
		remaining(call("batch", batch, token, peer), 200, "write", "2")
		remaining(call("batch", strings.Replace(batch, "{", `{"import":true,`, 1), token, peer), 200, "write", "1")
		remaining(call("batch", batch, token, peer), 429, "write", "0")

		remaining(call("get", get, "x.y.z", peer), 401, "unauthenticated", "1")
		remaining(call("get", get, "", "192.0.2.1:100"), 401, "unauthenticated", "0")
		remaining(call("get", get, "x.y.z", peer), 429, "unauthenticated", "0")
		remaining(call("get", get, "x.y.z", "192.0.2.2:99"), 401, "unauthenticated", "1")
		remaining(call("get", get, "x.y.z", "[2001:db8::1]:99"), 401, "unauthenticated", "1")
		remaining(call("get", get, "x.y.z", "[2001:db8::ffff:2]:99"), 401, "unauthenticated", "0")
		remaining(call("get", get, "x.y.z", "[2001:db8:0:1::1]:99"), 401, "unauthenticated", "1")
		time.Sleep(time.Second)
		remaining(call("get", get, token, peer), 200, "read", "0") // an agent is not held to account for its address
	})
}

func TestSessionLimits(t *testing.T) {
	s := newSessionRig(t)
	s.session.Limiter = verb.NewLimiter(verb.Limits{Unauthenticated: verb.Rate{PerSecond: 1e-3, Burst: 2}, Write: verb.Rate{PerSecond: 1e-3, Burst: 1}}, nil)
	b := s.browser(t)
	b.signIn(t, s.sign(t, "ada", time.Hour))
	if resp, _ := b.send(t, http.MethodPost, verb.SessionPath, `{"token":"x"}`); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the second sign-in: %d", resp.StatusCode)
	}
	if resp, a := b.send(t, http.MethodPost, verb.SessionPath, `{"token":"x"}`); resp.StatusCode != http.StatusTooManyRequests || a.Error != "rate_limited" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("the third sign-in: %d %+v", resp.StatusCode, a)
	}
	if resp, _ := b.send(t, http.MethodPost, verb.SessionPath+"/refresh", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("refresh counts against the address: %d", resp.StatusCode)
	}
	if resp, _ := b.send(t, http.MethodPost, verb.SessionPath+"/refresh", ""); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("RateLimit-Limit") != "1" {
		t.Errorf("the second refresh: %d", resp.StatusCode)
	}
}

func TestByAddress(t *testing.T) {
	l := verb.NewLimiter(verb.Limits{Unauthenticated: verb.Rate{PerSecond: 1e-3, Burst: 1}}, nil)
	h := l.ByAddress(slog.New(slog.DiscardHandler), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	for _, want := range []int{http.StatusAccepted, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		if w.Code != want || w.Header().Get("RateLimit-Policy") != `"unauthenticated";q=1;w=1000` {
			t.Errorf("%d %v, want %d", w.Code, w.Header(), want)
		}
	}
}

func TestClientAddress(t *testing.T) {
	proxies, err := verb.ParseProxies([]string{"10.0.0.0/8", "::1", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, peer, want string
		forwarded        []string
	}{
		{name: "the peer", peer: "192.0.2.1:80", want: "192.0.2.1"},
		{name: "an untrusted peer's word", peer: "192.0.2.1:80", forwarded: []string{"198.51.100.1"}, want: "192.0.2.1"},
		{name: "a proxy's word", peer: "10.1.2.3:80", forwarded: []string{"198.51.100.1"}, want: "198.51.100.1"},
		{name: "what the client wrote before", peer: "10.1.2.3:80", forwarded: []string{"203.0.113.9, 198.51.100.1"}, want: "198.51.100.1"},
		{name: "in a header of its own", peer: "10.1.2.3:80", forwarded: []string{"203.0.113.9", "198.51.100.1"}, want: "198.51.100.1"},
		{name: "two proxies", peer: "[::1]:80", forwarded: []string{"203.0.113.9, 198.51.100.1:5000, 10.9.9.9"}, want: "198.51.100.1"},
		{name: "a client among the proxies", peer: "10.1.2.3:80", forwarded: []string{"10.0.0.7"}, want: "10.0.0.7"},
		{name: "nonsense", peer: "10.1.2.3:80", forwarded: []string{"203.0.113.9, unknown"}, want: "10.1.2.3"},
		{name: "a proxy that says nothing", peer: "10.1.2.3:80", want: "10.1.2.3"},
		{name: "IPv6", peer: "[fd00::1]:80", forwarded: []string{"[2001:db8::1]:443"}, want: "2001:db8::1"},
		{name: "IPv4 in IPv6", peer: "[::ffff:10.1.2.3]:80", forwarded: []string{"::ffff:198.51.100.1"}, want: "198.51.100.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
			req.RemoteAddr, req.Header["X-Forwarded-For"] = tt.peer, tt.forwarded
			if got := verb.ClientAddress(req, proxies); got != netip.MustParseAddr(tt.want) {
				t.Errorf("ClientAddress = %v, want %s", got, tt.want)
			}
		})
	}
	if _, err := verb.ParseProxies([]string{"proxy.lab"}); err == nil {
		t.Error("ParseProxies takes a name")
	}
}

func BenchmarkLimiter(b *testing.B) {
	l := verb.NewLimiter(verb.Limits{Read: verb.Rate{PerSecond: 1e9, Burst: 1 << 30}}, nil)
	for name, agents := range map[string]int{"one agent": 1, "40000 agents": 40_000} {
		callers := make([]*verb.Caller, agents)
		for i := range callers {
			callers[i] = agent(fmt.Sprintf("did:plc:%020d", i))
		}
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			i := 0
			for b.Loop() {
				if err := l.Allow(ctx, callers[i%agents], verb.ClassRead, 1); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
		b.Run(name+" in parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if err := l.Allow(b.Context(), callers[i%agents], verb.ClassRead, 1); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	b.Run("with headers", func(b *testing.B) {
		ctx, c := verb.WithQuotaHeader(b.Context(), http.Header{}), agent("ada")
		for b.Loop() {
			_ = l.Allow(ctx, c, verb.ClassRead, 1)
		}
	})
}
