package hub_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// An answer is what a server answered.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    artifact.Error // if the body is one
}

// request sends a request with a token, if it is not "", and a body, if it is
// not nil.
func request(t *testing.T, method, url, token string, body []byte, header ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // in case it is answered by a stream
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if a.status != http.StatusOK {
		if err := json.Unmarshal(a.body, &a.err); err != nil || a.err.Code == "" {
			t.Fatalf("%s %s = %s: %.200s is no error: %v", method, url, resp.Status, a.body, err)
		}
	}
	return a
}

// getError gets a URL and returns the error that it answers.
func getError(t *testing.T, url, token string) (int, artifact.Error) {
	t.Helper()
	a := request(t, http.MethodGet, url, token, nil)
	return a.status, a.err
}

// getStatus gets a URL and returns the status of the answer.
func getStatus(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestBadRequests sends the hub what it must refuse, and looks whether anything
// was written, or a token logged.
func TestBadRequests(t *testing.T) {
	logged := new(logBuffer)
	f := newHubWith(t, hub.Config{DB: pgtest.New(t, initHub), Log: slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	url := f.serve(t)
	writer := f.token(t, "ada", verb.Contributor)
	base := f.mustCreate(t, hypothesis("h-1", "x"))
	other := verb.NewKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	claims := verb.Claims{ActorKind: "human", Permissions: []string{verb.Contributor}}
	claims.Subject = "ada"
	sign := func(k *verb.Key, c verb.Claims, ttl time.Duration) string {
		token, err := k.Sign(c, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	elsewhere := claims
	elsewhere.Audience = []string{"another-network"}
	forged := *other
	forged.ID = f.SigningKey().ID
	parts := strings.Split(writer, ".")
	unsigned := "eyJhbGciOiJub25lIn0." + parts[1] + "."
	tokens := map[string]string{
		"none": "", "garbage": "garbage", "expired": sign(f.SigningKey(), claims, -time.Hour), "of an unknown key": sign(other, claims, time.Hour),
		"forged": sign(&forged, claims, time.Hour), "for another audience": sign(f.SigningKey(), elsewhere, time.Hour), "unsigned": unsigned,
		"with its signature cut": parts[0] + "." + parts[1] + ".", "too long": writer + strings.Repeat("x", 17<<10),
	}

	create := func(members string) string {
		return `{"type":"hypothesis","id":"bad","title":"t","content":{"statement":"s"}` + members + `}`
	}
	withContent := func(c string) string { return `{"type":"hypothesis","id":"bad","title":"t","content":` + c + `}` }
	frame := len(`{"statement":""}`)
	type bad struct {
		name, verb, body   string
		status             int
		code               artifact.Code
		reason             string
		path, constraint   string // of one of the problems
		method, media, tok string
	}
	const invalid = artifact.CodeValidationFailed
	cases := []bad{
		{name: "broken JSON", verb: "create", body: `{"type":"hypothesis",`, status: 400, code: invalid, reason: artifact.ReasonInvalidJSON, constraint: "json"},
		{name: "no JSON", verb: "create", body: ``, status: 400, code: invalid, reason: artifact.ReasonInvalidJSON, constraint: "json"},
		{name: "two values", verb: "create", body: create("") + `{}`, status: 400, code: invalid, reason: artifact.ReasonInvalidJSON, constraint: "json"},
		{name: "an array", verb: "create", body: `[]`, status: 422, code: invalid, constraint: "type"},
		{name: "null", verb: "create", body: `null`, status: 422, code: invalid, constraint: "type"},
		{name: "an unknown verb", verb: "destroy", body: `{}`, status: 404, code: artifact.CodeNotFound, reason: artifact.ReasonUnknownVerb},
		{name: "an unknown field", verb: "create", body: create(`,"created_by":"eve"`), status: 422, code: invalid, path: "/created_by"},
		{name: "an unknown field of an item", verb: "batch", body: `{"items":[{"op":"create","type":"gene","title":"t","content":{},"actor":"eve"}]}`, status: 422, code: invalid, path: "/items/0/actor"},
		{name: "an unknown op", verb: "batch", body: `{"items":[{"op":"drop"}]}`, status: 422, code: invalid, path: "/items/0/op"},
		{name: "a bad ref", verb: "get", body: `{"ref":"no ref"}`, status: 422, code: invalid, path: "/ref"},
		{name: "a ref of an empty id", verb: "get", body: `{"ref":"gene:"}`, status: 422, code: invalid, path: "/ref"},
		{name: "a ref with a bad hash", verb: "get", body: `{"ref":"gene:A@sha256:12"}`, status: 422, code: invalid, path: "/ref"},
		{name: "what is not there", verb: "get", body: `{"ref":"gene:NONE"}`, status: 404, code: artifact.CodeNotFound},
		{name: "an unknown type", verb: "create", body: `{"type":"hypotesis","title":"t","content":{}}`, status: 422, code: invalid, path: "/type"},
		{name: "content that breaks its schema", verb: "create", body: withContent(`{"statement":1}`), status: 422, code: invalid, path: "/content/statement", constraint: "type"},
		{name: "content of 1 MiB + 1", verb: "create", body: withContent(`{"statement":"` + strings.Repeat("x", artifact.MaxContentBytes+1-frame) + `"}`), status: 422, code: invalid, path: "/content", constraint: "max_bytes"},
		{name: "a body too large", verb: "create", body: withContent(`{"statement":"` + strings.Repeat("x", verb.MaxRequestBytes) + `"}`), status: 413, code: invalid, reason: artifact.ReasonTooLarge, constraint: "max_bytes"},
		{name: "duplicate keys", verb: "create", body: withContent(`{"statement":"a","statement":"b"}`), status: 422, code: invalid, path: "/content/statement", constraint: "duplicate_key"},
		{name: "duplicate members", verb: "create", body: create(`,"id":"worse"`), status: 422, code: invalid, path: "/id", constraint: "duplicate_key"},
		{name: "keys alike by an escape", verb: "create", body: create(`,"\u0069d":"worse"`), status: 422, code: invalid, path: "/id", constraint: "duplicate_key"},
		{name: "U+0000", verb: "create", body: withContent(`{"statement":"a\u0000b"}`), status: 422, code: invalid, path: "/content/statement", constraint: "no_nul"},
		{name: "U+0000 in a title", verb: "create", body: `{"type":"gene","title":"\u0000","content":{}}`, status: 422, code: invalid, path: "/title", constraint: "no_nul"},
		{name: "1e400", verb: "create", body: withContent(`{"statement":"a","n":1e400}`), status: 422, code: invalid, path: "/content/n"},
		{name: "2^53", verb: "create", body: withContent(`{"statement":"a","n":9007199254740992}`), status: 422, code: invalid, path: "/content/n"},
		{name: "a lone surrogate", verb: "create", body: withContent(`{"statement":"\ud800"}`), status: 422, code: invalid, path: "/content/statement", constraint: "utf8"},
		{name: "surrogates the wrong way round", verb: "create", body: withContent(`{"statement":"\udc00\ud800"}`), status: 422, code: invalid, path: "/content/statement", constraint: "utf8"},
		{name: "bytes that are no UTF-8", verb: "create", body: withContent("{\"statement\":\"\xff\"}"), status: 422, code: invalid, path: "/content/statement", constraint: "utf8"},
		{name: "content nested too deep", verb: "create", body: withContent(`{"statement":"s","n":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`), status: 422, code: invalid, constraint: "max_depth"},
		{name: "a body nested far too deep", verb: "create", body: withContent(`{"n":` + strings.Repeat("[", 100_000) + `}`), status: 422, code: invalid, constraint: "max_depth"},
		{name: "a scope that is not there", verb: "create", body: create(`,"scope":"lab"`), status: 422, code: invalid, path: "/scope", constraint: "scope"},
		{name: "a link to nothing", verb: "create", body: create(`,"links":[{"predicate":"about","to":"gene:NONE"}]`), status: 422, code: artifact.CodeLinkTargetMissing},
		{name: "an unknown predicate", verb: "create", body: create(`,"links":[{"predicate":"abuot","to":"hypothesis:h-1"}]`), status: 422, code: invalid, path: "/links/0/predicate"},
		{name: "a key that is no UUID", verb: "create", body: create(`,"idempotency_key":"again"`), status: 422, code: invalid, path: "/idempotency_key", constraint: "uuid"},
		{name: "an id that exists", verb: "create", body: strings.Replace(create(""), `"bad"`, `"h-1"`, 1), status: 409, code: artifact.CodeVersionConflict, reason: artifact.ReasonExists},
		{name: "an update without base", verb: "update", body: `{"ref":"hypothesis:h-1","base_content_hash":"","content":{"statement":"s"}}`, status: 422, code: invalid, path: "/base_content_hash"},
		{name: "an update of an unknown base", verb: "update", body: `{"ref":"hypothesis:h-1","base_content_hash":"` + artifact.HashBytes([]byte("x")).String() + `","content":{"statement":"s"}}`, status: 422, code: invalid, reason: artifact.ReasonUnknownBase},
		{name: "a patch that makes bad content", verb: "update", body: `{"ref":"hypothesis:h-1","base_content_hash":"` + base.ContentHash.String() + `","merge_patch":{"statement":null}}`, status: 422, code: invalid, path: "/content/statement"},
		{name: "a signal out of range", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"vote","value":2}`, status: 422, code: invalid, path: "/value"},
		{name: "a signal of a word", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"vote","value":"many"}`, status: 422, code: invalid, path: "/value"},
		{name: "a batch of none", verb: "batch", body: `{"items":[]}`, status: 422, code: invalid, path: "/items"},
		{name: "a wrong content type", verb: "create", body: create(""), media: "text/plain", status: 415, code: invalid},
		{name: "a form", verb: "create", body: create(""), media: "application/x-www-form-urlencoded", status: 415, code: invalid},
		{name: "GET of a verb", verb: "create", method: http.MethodGet, status: 405, code: invalid},
		{name: "DELETE of a verb", verb: "get", method: http.MethodDelete, status: 405, code: invalid},
		{name: "a viewer that writes", verb: "create", body: create(""), tok: f.token(t, "vic", verb.Viewer), status: 403, code: artifact.CodePermissionDenied},
		{name: "an admin that writes", verb: "create", body: create(""), tok: f.token(t, "root", verb.Admin), status: 403, code: artifact.CodePermissionDenied},
	}
	before := snapshot(t, f.db)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			id := uuid.NewString()
			if c.tok == "" {
				c.tok = writer
			}
			if c.method == "" {
				c.method = http.MethodPost
			}
			header := []string{"X-Request-Id", id}
			if c.media != "" {
				header = append(header, "Content-Type", c.media)
			}
			a := request(t, c.method, url+"/api/scidex/"+c.verb, c.tok, []byte(c.body), header...)
			if a.status != c.status || a.err.Code != c.code || c.reason != "" && a.err.Reason != c.reason {
				t.Errorf("answer = %d %s, want %d %s %s", a.status, a.body, c.status, c.code, c.reason)
			}
			if c.path != "" || c.constraint != "" {
				found := false
				for _, p := range a.err.Problems {
					found = found || (c.path == "" || p.Path == c.path) && (c.constraint == "" || p.Constraint == c.constraint)
				}
				if !found {
					t.Errorf("no problem %q at %q in %s", c.constraint, c.path, a.body)
				}
			}
			if a.err.RequestID != id || a.header.Get("X-Request-Id") != id {
				t.Errorf("request id = %q and %q, want %q", a.err.RequestID, a.header.Get("X-Request-Id"), id)
			}
			if len(a.body) > 64<<10 {
				t.Errorf("an error of %d bytes", len(a.body))
			}
		})
	}
	for name, token := range tokens {
		t.Run("a token: "+name, func(t *testing.T) {
			for _, path := range []string{"/api/scidex/create", "/api/scidex/destroy"} {
				a := request(t, http.MethodPost, url+path, token, []byte(create("")))
				if a.status != http.StatusUnauthorized || a.err.Reason != artifact.ReasonUnauthenticated || a.header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s = %d %s", path, a.status, a.body)
				}
			}
			for _, path := range []string{"/feed", "/feed/digest"} {
				if status, e := getError(t, url+path, token); status != http.StatusUnauthorized {
					t.Errorf("%s = %d %+v", path, status, e)
				}
			}
		})
	}
	if after := snapshot(t, f.db); after != before {
		t.Errorf("what was refused changed the database")
	}
	// A failure inside is logged, without the token.
	execute(t, f.db, "ALTER TABLE schema_registry RENAME TO hidden")
	a := request(t, http.MethodPost, url+"/api/scidex/schema", writer, []byte(`{}`))
	if a.status != http.StatusInternalServerError || a.err.RequestID == "" || strings.Contains(string(a.body), "schema_registry") {
		t.Errorf("an internal error = %d %s", a.status, a.body)
	}
	if !strings.Contains(logged.String(), a.err.RequestID) {
		t.Error("an internal error is not logged with its request id")
	}
	tokens["writer"] = writer
	for name, token := range tokens {
		if len(token) > 20 && (strings.Contains(logged.String(), token) || strings.Contains(logged.String(), token[len(token)/2:])) {
			t.Errorf("the token %s was logged", name)
		}
	}
}

func TestServer(t *testing.T) {
	f := newHub(t)
	url := f.serve(t)
	t.Run("echoes the request id of what it did", func(t *testing.T) {
		id := uuid.NewString()
		a := request(t, http.MethodPost, url+"/api/scidex/create", f.token(t, "ada", verb.Contributor), content(hypothesis("h", "x")), "X-Request-Id", id)
		var out verb.WriteResult
		if err := json.Unmarshal(a.body, &out); err != nil || a.status != http.StatusOK || out.RequestID != id || a.header.Get("X-Request-Id") != id {
			t.Errorf("create = %d %s, %v", a.status, a.body, err)
		}
		if n := f.count(t, "SELECT count(*) FROM write_journal WHERE request_id = $1", id); n != 1 {
			t.Errorf("%d journal rows of the request", n)
		}
	})
	t.Run("publishes the keys that verify its tokens", func(t *testing.T) {
		a := request(t, http.MethodGet, url+"/.well-known/jwks.json", "", nil)
		var set verb.JWKS
		if err := json.Unmarshal(a.body, &set); err != nil || len(set.Keys) != 1 {
			t.Fatalf("key set = %s, %v", a.body, err)
		}
		caller, err := (&verb.Verifier{Keys: verb.KeysOf(set)}).Verify(t.Context(), f.token(t, "ada", verb.Viewer))
		if err != nil || caller.Actor.ID != "ada" {
			t.Errorf("Verify = %+v, %v", caller, err)
		}
		if strings.Contains(string(a.body), `"d"`) {
			t.Error("the key set holds a private key")
		}
		remote := &verb.Verifier{Keys: &verb.RemoteKeys{URL: url + "/.well-known/jwks.json"}}
		if _, err := remote.Verify(t.Context(), f.token(t, "ada", verb.Viewer)); err != nil {
			t.Errorf("Verify by the remote set: %v", err)
		}
	})
	t.Run("describes every verb", func(t *testing.T) {
		a := request(t, http.MethodGet, url+"/openapi.json", "", nil)
		var doc struct {
			OpenAPI string                    `json:"openapi"`
			Paths   map[string]map[string]any `json:"paths"`
		}
		if err := json.Unmarshal(a.body, &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1") {
			t.Fatalf("openapi = %.200s, %v", a.body, err)
		}
		for _, name := range []string{"get", "list", "schema", "create", "update", "link", "signal", "batch"} {
			if doc.Paths[verb.PathPrefix+name]["post"] == nil {
				t.Errorf("no %s in the document", name)
			}
		}
	})
	t.Run("tells its health", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/readyz", "/"} {
			if status := getStatus(t, url+path); status != http.StatusOK {
				t.Errorf("GET %s = %d", path, status)
			}
		}
	})
	t.Run("knows no other path", func(t *testing.T) {
		for _, c := range []struct{ method, path string }{
			{http.MethodGet, "/nothing"},
			{http.MethodPost, "/feed"},
			{http.MethodGet, "/feed/x"},
			{http.MethodGet, "/metrics"},
			{http.MethodPut, "/healthz"},
			{http.MethodGet, "/.git/config"},
			{http.MethodGet, "/api"},
		} {
			a := request(t, c.method, url+c.path, "", nil)
			if a.status != http.StatusNotFound || a.err.Code != artifact.CodeNotFound || a.err.Reason != "unknown_path" {
				t.Errorf("%s %s = %d %s", c.method, c.path, a.status, a.body)
			}
		}
	})
	t.Run("takes no seq for a digest but one", func(t *testing.T) {
		for _, seq := range []string{"x", "-1", "1.5", "99999999999999999999"} {
			status, e := getError(t, url+"/feed/digest?seq="+seq, f.token(t, "vic", verb.Viewer))
			if status != http.StatusUnprocessableEntity || len(e.Problems) != 1 || e.Problems[0].Path != "/seq" {
				t.Errorf("seq %s = %d %+v", seq, status, e)
			}
		}
	})
}
