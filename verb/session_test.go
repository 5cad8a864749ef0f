package verb_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A sessionRig is a server with sessions, two verbs and one stream (/events).
type sessionRig struct {
	key, outside *verb.Key
	directory    verb.Directory
	session      verb.Session
	verbs        verb.Server
	handler      http.Handler
}

func newSessionRig(t *testing.T) *sessionRig {
	t.Helper()
	newKey := func() *verb.Key {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		return verb.NewKey(private)
	}
	s := &sessionRig{key: newKey(), outside: newKey()}
	log := slog.New(slog.DiscardHandler)
	verifier := &verb.Verifier{
		Keys:    verb.KeysOf(verb.JWKS{Keys: []verb.JWK{s.key.PublicJWK()}}),
		Issuers: []verb.Issuer{{Name: "https://id.example", Keys: verb.KeysOf(verb.JWKS{Keys: []verb.JWK{s.outside.PublicJWK()}}), MaxPermissions: []verb.Permission{verb.Viewer}}},
		Access:  &s.directory,
	}
	s.session = verb.Session{
		Verifier: verifier, Origins: verb.Origins{prism}, Log: log,
		Mint: func(_ context.Context, token string) (string, error) { return s.key.Renew(token) },
		Revoke: func(_ context.Context, c *verb.Caller) error {
			s.directory.Revoke(verb.Revocation{Token: c.TokenID.Hash(), Before: c.Expires})
			return nil
		},
	}
	r := new(verb.Registry)
	verb.Bind(r, verb.Get, func(ctx context.Context, in verb.GetRequest) (verb.GetResponse, error) {
		c, err := verb.CallerFrom(ctx)
		return verb.GetResponse{Artifact: artifact.Artifact{Ref: in.Ref, Title: c.Actor.ID}}, err
	})
	verb.Bind(r, verb.Batch, func(_ context.Context, in verb.BatchRequest) (verb.BatchResult, error) {
		return verb.BatchResult{Items: make([]verb.BatchItemResult, len(in.Items))}, nil
	})
	s.verbs = verb.Server{Registry: r, Verifier: verifier, Log: log}
	mux := http.NewServeMux()
	mux.Handle(verb.SessionPath, &s.session)
	mux.Handle(verb.SessionPath+"/", &s.session)
	mux.Handle(verb.PathPrefix, s.verbs.Handler())
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, req *http.Request) {
		ctx, c, err := verb.Authenticate(req.Context(), w, req.Header, verifier)
		if err != nil {
			verb.WriteError(ctx, w, log, err)
			return
		}
		verb.WriteJSON(w, http.StatusOK, c.Actor)
	})
	origins := s.session.Origins
	s.handler = origins.CORS(origins.Cookies(log, mux))
	return s
}

func (s *sessionRig) sign(t *testing.T, agent string, ttl time.Duration) string {
	t.Helper()
	token, err := s.key.Sign(verb.Claims{ActorKind: "human", Permissions: []string{verb.Contributor}, RegisteredClaims: subject(agent)}, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A browser keeps cookies and remembers every byte that came to its scripts.
type browser struct {
	http *http.Client
	url  string
	seen bytes.Buffer
}

func (s *sessionRig) browser(t *testing.T) *browser {
	t.Helper()
	srv := httptest.NewServer(s.handler)
	t.Cleanup(srv.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{http: &http.Client{Jar: jar}, url: srv.URL}
}

type sessionAnswer struct {
	verb.SessionInfo
	Error   string
	Details struct{ Reason string }
	Revoked *bool
}

// A reply is what is left of a response once its body was read.
type reply struct {
	StatusCode int
	Header     http.Header
	cookies    []*http.Cookie
}

func (r *reply) Cookies() []*http.Cookie { return r.cookies }

func (b *browser) send(t *testing.T, method, path, body string, head ...string) (reply, sessionAnswer) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	resp, err := b.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	b.seen.Write(raw)
	var a sessionAnswer
	_ = json.Unmarshal(raw, &a)
	return reply{resp.StatusCode, resp.Header, resp.Cookies()}, a
}

func (b *browser) signIn(t *testing.T, token string) {
	t.Helper()
	if resp, a := b.send(t, http.MethodPost, verb.SessionPath, `{"token":"`+token+`"}`); resp.StatusCode != http.StatusOK {
		t.Fatalf("sign in: %d %+v", resp.StatusCode, a)
	}
}

// cookie returns the token that the browser holds, or "".
func (b *browser) cookie(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range b.http.Jar.Cookies(u) {
		if c.Name == verb.CookieName {
			return c.Value
		}
	}
	return ""
}

func claimsOf(t *testing.T, token string) (c verb.Claims) {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSession(t *testing.T) {
	s := newSessionRig(t)
	s.directory.SetRoles("lab-a", "ada", []verb.Permission{verb.Viewer})
	b := s.browser(t)
	token := s.sign(t, "ada", time.Hour)

	if resp, a := b.send(t, http.MethodGet, verb.SessionPath, ""); resp.StatusCode != http.StatusUnauthorized || a.Details.Reason != artifact.ReasonUnauthenticated {
		t.Errorf("GET without a cookie: %d %+v", resp.StatusCode, a)
	}
	resp, a := b.send(t, http.MethodPost, verb.SessionPath, `{"token":"`+token+`"}`)
	if resp.StatusCode != http.StatusOK || a.Agent != (artifact.Actor{ID: "ada", Kind: "human"}) || a.SessionID != claimsOf(t, token).SessionID ||
		strings.Join(a.Permissions, " ") != verb.Contributor || strings.Join(a.Scopes, " ") != "commons lab-a" || !a.ExpiresAt.Equal(claimsOf(t, token).ExpiresAt.Time) {
		t.Errorf("sign in: %d %+v", resp.StatusCode, a)
	}
	c := resp.Cookies()[0]
	if c.Name != "scidex_jwt" || c.Value != token || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Secure || c.MaxAge < 3590 || c.MaxAge > 3600 || c.Domain != "" {
		t.Errorf("cookie on loopback: %v", c)
	}
	if got := resp.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control = %q", got)
	}

	t.Run("the cookie counts everywhere", func(t *testing.T) {
		for _, call := range [][3]string{
			{http.MethodGet, verb.SessionPath, ""},
			{http.MethodGet, "/events", ""},
			{http.MethodPost, verb.PathPrefix + "get", `{"ref":"gene:a"}`},
		} {
			if resp, a := b.send(t, call[0], call[1], call[2]); resp.StatusCode != http.StatusOK {
				t.Errorf("%s %s: %d %+v", call[0], call[1], resp.StatusCode, a)
			}
		}
	})
	t.Run("an Authorization header wins", func(t *testing.T) {
		if _, a := b.send(t, http.MethodGet, verb.SessionPath, "", "Authorization", "Bearer "+s.sign(t, "eve", time.Hour)); a.Agent.ID != "eve" {
			t.Errorf("agent = %+v, want eve", a.Agent)
		}
		for _, bad := range []string{"Bearer x", "Basic x"} {
			if resp, _ := b.send(t, http.MethodPost, verb.PathPrefix+"get", `{"ref":"gene:a"}`, "Authorization", bad); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s beside a good cookie: %d, want 401", bad, resp.StatusCode)
			}
		}
	})
	t.Run("refresh", func(t *testing.T) {
		resp, a := b.send(t, http.MethodPost, verb.SessionPath+"/refresh", "")
		fresh := b.cookie(t)
		before, after := claimsOf(t, token), claimsOf(t, fresh)
		if resp.StatusCode != http.StatusOK || fresh == token || a.SessionID != before.SessionID || after.SessionID != before.SessionID ||
			after.ID == before.ID || after.Subject != "ada" || !after.AuthTime.Equal(before.IssuedAt.Time) || a.Token != "" {
			t.Errorf("refresh: %d %+v, claims %+v", resp.StatusCode, a, after)
		}
	})
	t.Run("refresh by header gives the token and no cookie", func(t *testing.T) {
		resp, a := s.browser(t).send(t, http.MethodPost, verb.SessionPath+"/refresh", "", "Authorization", "Bearer "+token)
		if resp.StatusCode != http.StatusOK || claimsOf(t, a.Token).SessionID != claimsOf(t, token).SessionID || len(resp.Cookies()) != 0 {
			t.Errorf("refresh: %d %+v", resp.StatusCode, a)
		}
	})
	t.Run("logout", func(t *testing.T) {
		held := b.cookie(t)
		resp, a := b.send(t, http.MethodPost, verb.SessionPath+"/logout", "")
		if resp.StatusCode != http.StatusOK || a.Revoked == nil || !*a.Revoked || b.cookie(t) != "" {
			t.Errorf("logout: %d %+v", resp.StatusCode, a)
		}
		for name, value := range map[string]string{"Authorization": "Bearer " + held, "Cookie": verb.CookieName + "=" + held} {
			if resp, _ := b.send(t, http.MethodPost, verb.PathPrefix+"get", `{"ref":"gene:a"}`, name, value); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("the token as %s after logout: %d, want 401", name, resp.StatusCode)
			}
		}
		if resp, a := b.send(t, http.MethodDelete, verb.SessionPath, ""); resp.StatusCode != http.StatusOK || *a.Revoked {
			t.Errorf("a second logout: %d %+v", resp.StatusCode, a)
		}
	})
	t.Run("a revocation that fails is told and the cookie is cleared", func(t *testing.T) {
		s := newSessionRig(t)
		s.session.Revoke = func(context.Context, *verb.Caller) error {
			return &artifact.Error{Code: artifact.CodeUnavailable, Reason: "hub_unreachable"}
		}
		b := s.browser(t)
		b.signIn(t, s.sign(t, "ada", time.Hour))
		if resp, a := b.send(t, http.MethodDelete, verb.SessionPath, ""); resp.StatusCode != http.StatusServiceUnavailable || a.Details.Reason != "hub_unreachable" || b.cookie(t) != "" {
			t.Errorf("logout: %d %+v, cookie %q", resp.StatusCode, a, b.cookie(t))
		}
	})
	if strings.Contains(b.seen.String(), "eyJ") { // how every token begins
		t.Error("scripts of the browser were shown a token")
	}
}

func TestSessionRefuses(t *testing.T) {
	s := newSessionRig(t)
	s.directory.SetAgent("boss", true)
	good := s.sign(t, "ada", time.Hour)
	foreign, err := s.outside.Sign(verb.Claims{ActorKind: "human", RegisteredClaims: jwt.RegisteredClaims{Subject: "bob", Issuer: "https://id.example"}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	delegated, err := s.key.Sign(verb.Claims{ActorKind: "human", RegisteredClaims: subject("ada"), DelegationChain: []artifact.DelegationStep{{ActorID: "boss"}}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	long, err := s.key.Sign(verb.Claims{ActorKind: "human", RegisteredClaims: subject("ada"), Scopes: slices.Repeat([]string{strings.Repeat("x", 100)}, 40)}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, method, path, body, bearer string
		status                           int
		reason                           string
	}{
		{name: "no token", method: "POST", body: `{}`, status: 422},
		{name: "an unknown field", method: "POST", body: `{"token":"` + good + `","cookie":true}`, status: 422},
		{name: "broken JSON", method: "POST", body: `{"token":`, status: 400, reason: artifact.ReasonInvalidJSON},
		{name: "a large body", method: "POST", body: `{"token":"` + strings.Repeat("x", 20<<10) + `"}`, status: 413, reason: artifact.ReasonTooLarge},
		{name: "no JSON", method: "POST", path: "form", body: `{"token":"` + good + `"}`, status: 415, reason: "unsupported_media_type"},
		{name: "a token of nobody", method: "POST", body: `{"token":"x.y.z"}`, status: 401, reason: artifact.ReasonUnauthenticated},
		{name: "a token too long for a cookie", method: "POST", body: `{"token":"` + long + `"}`, status: 422, reason: "token_too_long_for_cookie"},
		{name: "another method", method: "PUT", status: 404, reason: "unknown_path"},
		{name: "refresh without a token", method: "POST", path: "/refresh", status: 401, reason: artifact.ReasonUnauthenticated},
		{name: "refresh of another issuer's token", method: "POST", path: "/refresh", bearer: foreign, status: 403, reason: "refresh_elsewhere"},
		{name: "refresh of a delegated token", method: "POST", path: "/refresh", bearer: delegated, status: 403, reason: "refresh_delegated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var head []string
			if tt.bearer != "" {
				head = append(head, "Authorization", "Bearer "+tt.bearer)
			}
			if tt.path == "form" {
				tt.path, head = "", append(head, "Content-Type", "text/plain")
			}
			resp, a := s.browser(t).send(t, tt.method, verb.SessionPath+tt.path, tt.body, head...)
			if resp.StatusCode != tt.status || a.Error == "" || tt.reason != "" && a.Details.Reason != tt.reason || len(resp.Cookies()) > 0 {
				t.Errorf("%d %+v, cookies %v; want %d %s", resp.StatusCode, a, resp.Cookies(), tt.status, tt.reason)
			}
		})
	}
}

func TestSessionEndsAfterThirtyDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessionRig(t)
		began := time.Now()
		token := s.sign(t, "ada", 7*24*time.Hour)
		refresh := func() (int, sessionAnswer) {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, verb.SessionPath+"/refresh", http.NoBody)
			req.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			s.handler.ServeHTTP(w, req)
			var a sessionAnswer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
				t.Fatal(err)
			}
			return w.Code, a
		}
		for time.Since(began) < 24*24*time.Hour {
			time.Sleep(6 * 24 * time.Hour)
			status, a := refresh()
			if status != http.StatusOK || !claimsOf(t, a.Token).AuthTime.Equal(began.Truncate(time.Second)) {
				t.Fatalf("refresh after %v: %d %+v", time.Since(began), status, a)
			}
			token = a.Token
		}
		if got := claimsOf(t, token).ExpiresAt.Sub(began); got > 30*24*time.Hour {
			t.Errorf("the session's last token ends after %v", got)
		}
		time.Sleep(6*24*time.Hour + time.Second) // the token is still taken, for clocks that differ
		if status, a := refresh(); status != http.StatusForbidden || a.Details.Reason != "session_ended" {
			t.Errorf("refresh after 30 days: %d %+v", status, a)
		}
	})
}

func TestCookieIsSecure(t *testing.T) {
	s := newSessionRig(t)
	for _, tt := range []struct {
		url, proto string
		secure     bool
	}{
		{url: "http://127.0.0.1:7172"},
		{url: "http://[::1]:7172"},
		{url: "http://localhost"},
		{url: "http://node.localhost:7172"},
		{url: "http://node.lab", secure: true},
		{url: "http://localhost.evil.example", secure: true},
		{url: "https://localhost", secure: true},
		{url: "http://localhost", proto: "https", secure: true},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tt.url+verb.SessionPath, strings.NewReader(`{"token":"`+s.sign(t, "ada", time.Hour)+`"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Forwarded-Proto", tt.proto)
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, req)
		if c := w.Result().Cookies(); len(c) != 1 || c[0].Secure != tt.secure {
			t.Errorf("%s %s: cookie %v, want Secure = %t", tt.url, tt.proto, c, tt.secure)
		}
	}
}

// TestCrossOrigin checks what pages of other origins can make a browser do with
// the cookie.
func TestCrossOrigin(t *testing.T) {
	s := newSessionRig(t)
	b := s.browser(t)
	token := s.sign(t, "ada", time.Hour)
	get, body := verb.PathPrefix+"get", `{"ref":"gene:a"}`
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	for _, tt := range []struct {
		name, method, path, body string
		head                     []string
		status                   int
	}{
		{"another site's write", "POST", get, body, []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 403},
		{"a sibling's write", "POST", get, body, []string{"Sec-Fetch-Site", "same-site", "Origin", "https://evil.example"}, 403},
		{"by an old browser", "POST", get, body, []string{"Origin", "https://evil.example"}, 403},
		{"of a sandboxed page", "POST", get, body, []string{"Origin", "null"}, 403},
		{"of an origin that begins like a trusted one", "POST", get, body, []string{"Origin", prism + ".evil.example"}, 403},
		{"of a trusted host on another port", "POST", get, body, []string{"Origin", prism + ":8443"}, 403},
		{"another site's sign-in", "POST", verb.SessionPath, `{"token":"` + token + `"}`, []string{"Origin", "https://evil.example"}, 403},
		{"another site's logout", "DELETE", verb.SessionPath, "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another site's refresh", "POST", verb.SessionPath + "/refresh", "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"another site's websocket", "GET", "/events", "", append([]string{"Origin", "https://evil.example"}, upgrade...), 403},
		{"a sandboxed websocket", "GET", "/events", "", append([]string{"Origin", "null"}, upgrade...), 403},
		{"the same origin", "POST", get, body, []string{"Sec-Fetch-Site", "same-origin", "Origin", b.url}, 200},
		{"the same origin in an old browser", "POST", get, body, []string{"Origin", b.url}, 200},
		{"a trusted origin", "POST", get, body, []string{"Sec-Fetch-Site", "cross-site", "Origin", prism}, 200},
		{"no browser", "POST", get, body, nil, 200},
		{"a link on another site", "GET", "/events", "", []string{"Sec-Fetch-Site", "cross-site"}, 200},
		{"a websocket of the same origin", "GET", "/events", "", append([]string{"Origin", b.url}, upgrade...), 200},
		{"a websocket of a trusted origin", "GET", "/events", "", append([]string{"Origin", prism}, upgrade...), 200},
		{"another site with a token of its own", "POST", get, body, []string{"Origin", "https://evil.example", "Authorization", "Bearer " + token}, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.signIn(t, token)
			resp, a := b.send(t, tt.method, tt.path, tt.body, tt.head...)
			if resp.StatusCode != tt.status || tt.status == 403 && (a.Error != "permission_denied" || a.Details.Reason != "cross_origin" || resp.Header.Get("X-Request-Id") == "") {
				t.Errorf("%d %+v, want %d", resp.StatusCode, a, tt.status)
			}
			if b.cookie(t) != token {
				t.Error("the cookie has changed")
			}
		})
	}
	fresh := s.browser(t)
	if resp, _ := fresh.send(t, http.MethodPost, verb.SessionPath, `{"token":"`+token+`"}`, "Origin", "https://evil.example"); resp.StatusCode != http.StatusForbidden || fresh.cookie(t) != "" {
		t.Errorf("another site signs a browser in: %d", resp.StatusCode)
	}
}

// TestRenewAtTheHub checks a node's session, which asks the hub's.
func TestRenewAtTheHub(t *testing.T) {
	hub := newSessionRig(t)
	srv := httptest.NewServer(hub.handler)
	defer srv.Close()
	client := &verb.Client{URL: srv.URL}
	node := newSessionRig(t)
	node.session.Verifier, node.session.Mint = hub.session.Verifier, client.Renew
	b := node.browser(t)
	token := hub.sign(t, "ada", time.Hour)
	b.signIn(t, token)
	resp, a := b.send(t, http.MethodPost, verb.SessionPath+"/refresh", "")
	if fresh := b.cookie(t); resp.StatusCode != http.StatusOK || fresh == token || claimsOf(t, fresh).SessionID != a.SessionID || a.Token != "" {
		t.Errorf("refresh: %d %+v", resp.StatusCode, a)
	}
	hub.session.Mint = func(context.Context, string) (string, error) { return "", artifact.Denied("no more") }
	if resp, a := b.send(t, http.MethodPost, verb.SessionPath+"/refresh", ""); resp.StatusCode != http.StatusForbidden || a.Error != "permission_denied" {
		t.Errorf("refresh that the hub refuses: %d %+v", resp.StatusCode, a)
	}
	srv.Close()
	if resp, a := b.send(t, http.MethodPost, verb.SessionPath+"/refresh", ""); resp.StatusCode != http.StatusServiceUnavailable || a.Details.Reason != "hub_unreachable" {
		t.Errorf("refresh without the hub: %d %+v", resp.StatusCode, a)
	}
}
