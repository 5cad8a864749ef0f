package verb_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// newServer serves Get of one artifact, an echo of Create and a count of Batch,
// and returns a token for it.
func newServer(t *testing.T) (*httptest.Server, *verb.Registry, string) {
	t.Helper()
	r := new(verb.Registry)
	verb.Bind(r, verb.Get, func(_ context.Context, in verb.GetRequest) (verb.GetResponse, error) {
		if in.Ref.ID != "h-1" {
			return verb.GetResponse{}, artifact.NotFound(in.Ref.String())
		}
		return verb.GetResponse{Artifact: artifact.Artifact{Ref: in.Ref, Content: json.RawMessage(`{"a":"<&>"}`)}}, nil
	})
	verb.Bind(r, verb.Create, func(ctx context.Context, in verb.CreateRequest) (verb.WriteResult, error) {
		c, err := verb.CallerFrom(ctx)
		if err != nil {
			return verb.WriteResult{}, err
		}
		if in.Title == "boom" {
			return verb.WriteResult{}, errors.New("pq: password of the database")
		}
		if in.Title == "bug" {
			panic("nil where something was")
		}
		return verb.WriteResult{Ref: artifact.Ref{Type: in.Type, ID: c.Actor.ID}, RequestID: c.RequestID}, nil
	})
	verb.Bind(r, verb.Batch, func(_ context.Context, in verb.BatchRequest) (verb.BatchResult, error) {
		return verb.BatchResult{Items: make([]verb.BatchItemResult, len(in.Items)), Atomic: in.Atomic}, nil
	})
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key := verb.NewKey(private)
	token, err := key.Sign(verb.Claims{ActorKind: "human", Permissions: []string{verb.Contributor}, RegisteredClaims: subject("ada")}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer((&verb.Server{
		Registry: r, Log: slog.New(slog.DiscardHandler),
		Verifier: &verb.Verifier{Keys: verb.KeysOf(verb.JWKS{Keys: []verb.JWK{key.PublicJWK()}})},
	}).Handler())
	t.Cleanup(srv.Close)
	return srv, r, token
}

// TestPanic checks that a panic fails its own request alone, which is answered.
func TestPanic(t *testing.T) {
	srv, r, token := newServer(t)
	local := verb.WithCaller(t.Context(), &verb.Caller{Actor: artifact.Actor{ID: "ada", Kind: "human"}, Permissions: []string{verb.Contributor}})
	in := verb.CreateRequest{Type: "gene", Title: "bug", Content: json.RawMessage(`{}`)}
	if _, err := verb.Create.Call(local, r, in); err == nil || artifact.AsError(err).Code != artifact.CodeInternal {
		t.Errorf("in process: %v, want %s", err, artifact.CodeInternal)
	}
	if _, err := verb.Create.Call(t.Context(), &verb.Client{URL: srv.URL, Token: token}, in); err == nil || artifact.AsError(err).Code != artifact.CodeInternal {
		t.Errorf("HTTP: %v, want %s", err, artifact.CodeInternal)
	}
}

// TestInvokers checks that a verb behaves the same in process and over HTTP.
func TestInvokers(t *testing.T) {
	srv, r, token := newServer(t)
	local := verb.WithCaller(t.Context(), &verb.Caller{Actor: artifact.Actor{ID: "ada", Kind: "human"}, Permissions: []string{verb.Contributor}})
	for name, inv := range map[string]verb.Invoker{
		"in process": r,
		"HTTP":       &verb.Client{URL: srv.URL, Token: token},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := local
			if name == "HTTP" {
				ctx = t.Context()
			}
			got, err := verb.Get.Call(ctx, inv, verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h-1"}})
			if err != nil || string(got.Artifact.Content) != `{"a":"<&>"}` {
				t.Errorf("get = %+v, %v", got, err)
			}
			_, err = verb.Get.Call(ctx, inv, verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "none"}})
			if !artifact.IsCode(err, artifact.CodeNotFound) {
				t.Errorf("get of a missing artifact: error = %v, want not_found", err)
			}
			res, err := verb.Create.Call(ctx, inv, verb.CreateRequest{Type: "paper", Title: "t", Content: json.RawMessage(`{}`)})
			if err != nil || res.Ref.String() != "paper:ada" {
				t.Errorf("create = %+v, %v", res, err)
			}
			batch, err := verb.Batch.Call(ctx, inv, verb.BatchRequest{Atomic: true, Items: []verb.BatchItem{
				{RefAlias: "a", Create: &verb.CreateRequest{Type: "paper", Title: "t", Content: json.RawMessage(`{}`)}},
				{Link: &verb.LinkRequest{From: "@a", LinkSpec: verb.LinkSpec{Predicate: "cites", To: "paper:x"}}},
				{Signal: &verb.SignalRequest{Ref: "@a", Kind: "vote", Value: "1"}},
			}})
			if err != nil || len(batch.Items) != 3 || !batch.Atomic {
				t.Errorf("batch = %+v, %v", batch, err)
			}
		})
	}
}

// TestHTTPRefuses checks the status, code, path and rule of bad requests.
func TestHTTPRefuses(t *testing.T) {
	srv, _, token := newServer(t)
	tests := []struct {
		name, verb, body, token string
		status                  int
		code                    artifact.Code
		path, constraint        string
	}{
		{name: "no token", verb: "get", body: `{}`, token: "-", status: 401, code: artifact.CodePermissionDenied},
		{name: "a token of nobody", verb: "get", body: `{}`, token: "x.y.z", status: 401, code: artifact.CodePermissionDenied},
		{name: "an unknown verb", verb: "gett", body: `{}`, status: 404, code: artifact.CodeNotFound},
		{name: "broken JSON", verb: "get", body: `{"ref":`, status: 400, code: artifact.CodeValidationFailed, path: "/ref", constraint: "json"},
		{name: "a duplicate key", verb: "get", body: `{"ref":"gene:a","ref":"gene:b"}`, status: 422, code: artifact.CodeValidationFailed, path: "/ref", constraint: "duplicate_key"},
		{name: "an unknown field", verb: "get", body: `{"ref":"gene:a","reff":1}`, status: 422, code: artifact.CodeValidationFailed, path: "/reff", constraint: "unknown_field"},
		{name: "identity in the arguments", verb: "create", body: `{"type":"gene","title":"t","content":{},"actor":"eve"}`, status: 422, code: artifact.CodeValidationFailed, path: "/actor", constraint: "unknown_field"},
		{name: "a missing field", verb: "create", body: `{"type":"gene","content":{}}`, status: 422, code: artifact.CodeValidationFailed, path: "/title", constraint: "required"},
		{name: "a bad ref", verb: "get", body: `{"ref":"Gene"}`, status: 422, code: artifact.CodeValidationFailed, path: "/ref", constraint: "ref"},
		{name: "NUL", verb: "create", body: `{"type":"gene","title":"t","content":{"a":"\u0000"}}`, status: 422, code: artifact.CodeValidationFailed, path: "/content/a", constraint: "no_nul"},
		{name: "an unknown field of a batch item", verb: "batch", body: `{"items":[{"op":"create","type":"gene","title":"t","content":{}},{"op":"link","frm":"x","predicate":"p","to":"y"}]}`, status: 422, code: artifact.CodeValidationFailed, path: "/items/1/frm", constraint: "unknown_field"},
		{name: "an unknown op", verb: "batch", body: `{"items":[{"op":"drop"}]}`, status: 422, code: artifact.CodeValidationFailed, path: "/items/0/op", constraint: "enum"},
		{name: "too large a body", verb: "get", body: `{"ref":"` + strings.Repeat("x", verb.MaxRequestBytes) + `"}`, status: 413, code: artifact.CodeValidationFailed, constraint: "max_bytes"},
		{name: "a bug", verb: "create", body: `{"type":"gene","title":"boom","content":{}}`, status: 500, code: artifact.CodeInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+verb.PathPrefix+tt.verb, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			switch tt.token {
			case "":
				req.Header.Set("Authorization", "Bearer "+token)
			case "-":
			default:
				req.Header.Set("Authorization", "Bearer "+tt.token)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			raw, _ := io.ReadAll(resp.Body)
			e := new(artifact.Error)
			if err := json.Unmarshal(raw, e); err != nil {
				t.Fatalf("body %s: %v", raw, err)
			}
			if resp.StatusCode != tt.status || e.Code != tt.code || e.RequestID == "" || e.RequestID != resp.Header.Get("X-Request-Id") {
				t.Errorf("status %d, body %s; want %d %s", resp.StatusCode, raw, tt.status, tt.code)
			}
			if bytes.Contains(raw, []byte("pq:")) {
				t.Errorf("body tells internals: %s", raw)
			}
			if tt.constraint == "" {
				return
			}
			for _, p := range e.Problems {
				if p.Path == tt.path && p.Constraint == tt.constraint {
					return
				}
			}
			t.Errorf("problems = %s, want %q %s", raw, tt.path, tt.constraint)
		})
	}
}

func TestTokens(t *testing.T) {
	_, private, _ := ed25519.GenerateKey(nil)
	_, other, _ := ed25519.GenerateKey(nil)
	key, stranger := verb.NewKey(private), verb.NewKey(other)
	v := &verb.Verifier{Keys: verb.KeysOf(verb.JWKS{Keys: []verb.JWK{key.PublicJWK()}})}
	claims := verb.Claims{ActorKind: "human", Permissions: []string{verb.Viewer}, RegisteredClaims: subject("ada")}
	good, err := key.Sign(claims, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := v.Verify(t.Context(), good)
	if err != nil || c.Actor.ID != "ada" || !c.Has(verb.Viewer, artifact.Commons) || c.Has(verb.Contributor, artifact.Commons) || c.SessionID == "" {
		t.Errorf("Verify = %+v, %v", c, err)
	}
	expired, _ := key.Sign(claims, -time.Hour)
	foreign, _ := stranger.Sign(claims, time.Hour)
	elsewhere := claims
	elsewhere.Audience = []string{"another"}
	wrongAudience, _ := key.Sign(elsewhere, time.Hour)
	for name, token := range map[string]string{
		"none": "", "expired": expired, "of another key": foreign, "for another audience": wrongAudience,
		"unsigned": "eyJhbGciOiJub25lIn0." + strings.Split(good, ".")[1] + ".", "tampered": tampered(good),
	} {
		if _, err := v.Verify(t.Context(), token); artifact.AsError(err).Reason != artifact.ReasonUnauthenticated {
			t.Errorf("Verify of a token %s = %v, want unauthenticated", name, err)
		}
	}
	claims.Permissions = []string{"root"}
	if _, err := key.Sign(claims, time.Hour); err == nil {
		t.Error("Sign takes an unknown permission")
	}
}

// tampered changes the first character of a token's signature.
func tampered(token string) string {
	i := strings.LastIndexByte(token, '.') + 1
	other := byte('A')
	if token[i] == other {
		other = 'B'
	}
	return token[:i] + string(other) + token[i+1:]
}
