package verb_test

import (
	"context"
	"crypto/ed25519"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// nodes are those that a hub knows, with the scopes they are enrolled for.
type nodes map[string]*enrolled

type enrolled struct {
	key    *verb.NodeKey
	scopes []string
}

func (n nodes) Node(id string) (ed25519.PublicKey, []string, bool) {
	e, ok := n[id]
	if !ok {
		return nil, nil, false
	}
	return e.key.Private.Public().(ed25519.PublicKey), e.scopes, true
}

func newNodeKey(t testing.TB, id string) *verb.NodeKey {
	t.Helper()
	return &verb.NodeKey{Node: id, Private: newKey(t).Private}
}

func TestForwardedToken(t *testing.T) {
	key := newKey(t)
	a, b := newNodeKey(t, "a"), newNodeKey(t, "b")
	known := nodes{"a": {a, []string{"lab-a"}}, "b": {b, nil}}
	dir := new(verb.Directory)
	dir.SetRoles("lab-a", "ada", []string{verb.Contributor})
	hub := &verb.Verifier{Keys: keysOf(key), Nodes: known, Hub: "h", Access: dir}
	credential := func(k *verb.NodeKey) []string {
		c, err := k.Sign("h")
		if err != nil {
			t.Fatal(err)
		}
		return []string{c}
	}
	forA, forAll := signBy(t, key, claims(map[string]any{"aud": "node:a"})), signBy(t, key, claims(nil))
	for name, tt := range map[string]struct {
		token       string
		credentials []string
		node        string // "" with credentials: refused
	}{
		"for a, by a":            {forA, credential(a), "a"},
		"for all, by a":          {forAll, credential(a), "a"},
		"for all, by b":          {forAll, credential(b), "b"},
		"for a, by b":            {forA, credential(b), ""},
		"for a, by nobody":       {forA, nil, ""},
		"for all, by a stranger": {forAll, credential(newNodeKey(t, "a")), ""},
		"for all, by one unseen": {forAll, credential(newNodeKey(t, "c")), ""},
		"for all, by garbage":    {forAll, []string{"x"}, ""},
		"for all, by nothing":    {forAll, []string{""}, ""},
		"for all, by two":        {forAll, append(credential(a), credential(b)...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time from what is kept
				_, c, err := verb.Authenticate(t.Context(), httptest.NewRecorder(), http.Header{
					"Authorization": {"Bearer " + tt.token}, http.CanonicalHeaderKey(verb.NodeHeader): tt.credentials,
				}, hub)
				if tt.node == "" {
					wantUnauthenticated(t, err)
					continue
				}
				if err != nil || c.NodeID != tt.node {
					t.Errorf("caller = %+v, %v, want of node %s", c, err, tt.node)
				} else if got, want := c.Has(verb.Contributor, "lab-a"), tt.node == "a"; got != want {
					t.Errorf("contributor in lab-a = %t by node %s, want %t", got, tt.node, want)
				}
			}
		})
	}
	t.Run("a caller without a node is not limited", func(t *testing.T) {
		c, err := hub.Verify(t.Context(), forAll)
		if err != nil || c.NodeID != "" || !c.Has(verb.Contributor, "lab-a") {
			t.Errorf("caller = %+v, %v", c, err)
		}
	})
	t.Run("a hub without nodes takes no credential", func(t *testing.T) {
		_, err := (&verb.Verifier{Keys: keysOf(key), Hub: "h"}).VerifyRequest(t.Context(), http.Header{http.CanonicalHeaderKey(verb.NodeHeader): credential(a)}, forAll)
		wantUnauthenticated(t, err)
	})
	t.Run("a node takes its own tokens", func(t *testing.T) {
		node := &verb.Verifier{Keys: keysOf(key), Audiences: []string{verb.Audience, verb.NodeAudience("a")}}
		for _, token := range []string{forA, forAll} {
			if _, err := node.Verify(t.Context(), token); err != nil {
				t.Error(err)
			}
		}
		_, err := node.Verify(t.Context(), signBy(t, key, claims(map[string]any{"aud": "node:b"})))
		wantUnauthenticated(t, err)
	})
}

func TestVerifyNode(t *testing.T) {
	key, a := newKey(t), newNodeKey(t, "a")
	nodeClaims := func(changes map[string]any) jwt.MapClaims {
		now := time.Now()
		c := jwt.MapClaims{"jti": "c-1", "iss": "node:a", "sub": "node:a", "aud": "hub:h", "iat": now.Unix(), "exp": now.Add(2 * time.Minute).Unix()}
		maps.Copy(c, changes)
		return c
	}
	by := func(k ed25519.PrivateKey, changes map[string]any) string {
		return sign(t, jwt.SigningMethodEdDSA, k, "node", nodeClaims(changes))
	}
	newHub := func() (*verb.Verifier, nodes) {
		known := nodes{"a": {a, []string{"lab-a"}}}
		return &verb.Verifier{Keys: keysOf(key), Nodes: known, Hub: "h"}, known
	}
	t.Run("takes a node's own credential", func(t *testing.T) {
		hub, _ := newHub()
		token, err := a.Sign("h")
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range []string{token, token, by(a.Private, nil)} {
			id, scopes, err := hub.VerifyNode(t.Context(), token)
			if err != nil || id != "a" || !slices.Equal(scopes, []string{"lab-a"}) {
				t.Errorf("VerifyNode = %s %v, %v", id, scopes, err)
			}
		}
	})
	for name, token := range map[string]string{
		"of the network's key":   by(key.Private, nil),
		"for another hub":        by(a.Private, map[string]any{"aud": "hub:g"}),
		"for two hubs":           by(a.Private, map[string]any{"aud": []string{"hub:h", "hub:g"}}),
		"in another's name":      by(a.Private, map[string]any{"sub": "node:b"}),
		"of a long life":         by(a.Private, map[string]any{"exp": time.Now().Add(time.Hour).Unix()}),
		"that has expired":       by(a.Private, map[string]any{"iat": time.Now().Add(-3 * time.Minute).Unix(), "exp": time.Now().Add(-time.Minute).Unix()}),
		"that is an agent's":     signBy(t, key, claims(nil)),
		"of another algorithm":   sign(t, jwt.SigningMethodHS256, []byte(a.Private.Public().(ed25519.PublicKey)), "node", nodeClaims(nil)),
		"that is no token":       "x",
		"that is not there":      "",
		"of a node without name": by(a.Private, map[string]any{"iss": "node:", "sub": "node:"}),
	} {
		t.Run("refuses one "+name, func(t *testing.T) {
			hub, _ := newHub()
			_, _, err := hub.VerifyNode(t.Context(), token)
			wantUnauthenticated(t, err)
		})
	}
	t.Run("is no agent's token", func(t *testing.T) {
		hub, _ := newHub()
		_, err := hub.Verify(t.Context(), by(a.Private, nil))
		wantUnauthenticated(t, err)
	})
	t.Run("refuses a node that was revoked since", func(t *testing.T) {
		hub, known := newHub()
		token := by(a.Private, nil)
		if _, _, err := hub.VerifyNode(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		delete(known, "a")
		_, _, err := hub.VerifyNode(t.Context(), token)
		wantUnauthenticated(t, err)
	})
	t.Run("refuses the old key of a node that has a new one", func(t *testing.T) {
		hub, known := newHub()
		token := by(a.Private, nil)
		if _, _, err := hub.VerifyNode(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		known["a"] = &enrolled{newNodeKey(t, "a"), nil}
		_, _, err := hub.VerifyNode(t.Context(), token)
		wantUnauthenticated(t, err)
	})
	t.Run("tells new scopes at once, and never nil", func(t *testing.T) {
		hub, known := newHub()
		token := by(a.Private, nil)
		if _, _, err := hub.VerifyNode(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		known["a"].scopes = nil
		if _, scopes, err := hub.VerifyNode(t.Context(), token); err != nil || scopes == nil || len(scopes) > 0 {
			t.Errorf("VerifyNode = %#v, %v, want an empty list", scopes, err)
		}
	})
	t.Run("one that was taken ends too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub, _ := newHub()
			token := by(a.Private, nil)
			if _, _, err := hub.VerifyNode(t.Context(), token); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2*time.Minute + verb.Leeway + time.Second)
			_, _, err := hub.VerifyNode(t.Context(), token)
			wantUnauthenticated(t, err)
		})
	})
	t.Run("is made anew before it ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hub, _ := newHub()
			first, err := a.Credential("h")
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := a.Credential("h"); again != first {
				t.Error("a credential was made anew at once")
			}
			time.Sleep(110 * time.Second)
			second, err := a.Credential("h")
			if err != nil || second == first {
				t.Errorf("Credential = %q, %v, want a new one", second, err)
			}
			time.Sleep(time.Minute)
			if _, _, err := hub.VerifyNode(t.Context(), second); err != nil {
				t.Error(err)
			}
		})
	})
}

// TestClientCredential sends a call as a node forwards it.
func TestClientCredential(t *testing.T) {
	key, a := newKey(t), newNodeKey(t, "a")
	var seen *verb.Caller
	r := new(verb.Registry)
	verb.Bind(r, verb.Get, func(ctx context.Context, in verb.GetRequest) (verb.GetResponse, error) {
		var err error
		seen, err = verb.CallerFrom(ctx)
		return verb.GetResponse{Artifact: artifact.Artifact{Ref: in.Ref, Content: []byte(`{}`)}}, err
	})
	srv := httptest.NewServer((&verb.Server{Registry: r, Verifier: &verb.Verifier{Keys: keysOf(key), Nodes: nodes{"a": {key: a}}, Hub: "h"}}).Handler())
	defer srv.Close()
	client := &verb.Client{URL: srv.URL, Token: signBy(t, key, claims(map[string]any{"aud": "node:a"})), Credential: func() (string, error) { return a.Credential("h") }}
	_, err := verb.Get.Call(t.Context(), client, verb.GetRequest{Ref: artifact.Ref{Type: "gene", ID: "x"}})
	if err != nil || seen == nil || seen.NodeID != "a" {
		t.Errorf("caller = %+v, %v, want of node a", seen, err)
	}
}
