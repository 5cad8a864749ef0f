package verb_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

func rsaJWK(kid string, k *rsa.PublicKey) verb.JWK {
	return verb.JWK{KeyType: "RSA", ID: kid, Use: "sig", Algorithm: "RS256", N: encode(string(k.N.Bytes())), E: encode(string(big.NewInt(int64(k.E)).Bytes()))}
}

func ecJWK(t *testing.T, kid string, k *ecdsa.PublicKey) verb.JWK {
	t.Helper()
	point, err := k.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return verb.JWK{KeyType: "EC", Curve: "P-256", ID: kid, Algorithm: "ES256", X: encode(string(point[1:33])), Y: encode(string(point[33:]))}
}

func TestKeysOf(t *testing.T) {
	key, other := newKey(t), newKey(t)
	ok := key.PublicJWK()
	change := func(f func(*verb.JWK)) verb.JWK {
		j := ok
		f(&j)
		return j
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	even := rsaJWK("r", &strong.PublicKey)
	even.E = encode("\x04")
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	off := ecJWK(t, "e", &ec.PublicKey)
	off.Y = off.X
	pss := rsaJWK("r", &strong.PublicKey)
	pss.Algorithm = "PS256"
	twice := other.PublicJWK()
	twice.ID = ok.ID
	for name, tt := range map[string]struct {
		set  []verb.JWK
		want int
	}{
		"an Ed25519 key":         {[]verb.JWK{ok}, 1},
		"a P-256 key":            {[]verb.JWK{ecJWK(t, "e", &ec.PublicKey)}, 1},
		"an RSA key":             {[]verb.JWK{rsaJWK("r", &strong.PublicKey)}, 1},
		"one without alg":        {[]verb.JWK{change(func(j *verb.JWK) { j.Algorithm = "" })}, 1},
		"the same one twice":     {[]verb.JWK{ok, ok}, 1},
		"two of one id":          {[]verb.JWK{ok, twice}, 0},
		"two of one id, thrice":  {[]verb.JWK{ok, twice, ok}, 0},
		"one without an id":      {[]verb.JWK{change(func(j *verb.JWK) { j.ID = "" })}, 0},
		"one for encryption":     {[]verb.JWK{change(func(j *verb.JWK) { j.Use = "enc" })}, 0},
		"one for another alg":    {[]verb.JWK{change(func(j *verb.JWK) { j.Algorithm = "HS256" })}, 0},
		"a short one":            {[]verb.JWK{change(func(j *verb.JWK) { j.X = "AA" })}, 0},
		"a secret":               {[]verb.JWK{{KeyType: "oct", ID: "s", Algorithm: "HS256"}}, 0},
		"a point off the curve":  {[]verb.JWK{off}, 0},
		"an RSA key too short":   {[]verb.JWK{rsaJWK("r", &weak.PublicKey)}, 0},
		"an RSA key for PSS":     {[]verb.JWK{pss}, 0},
		"an RSA key, even":       {[]verb.JWK{even}, 0},
		"a bad one beside a key": {[]verb.JWK{{KeyType: "OKP"}, ok}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := verb.KeysOf(verb.JWKS{Keys: tt.set}); len(got) != tt.want {
				t.Errorf("KeysOf = %v, want %d", got, tt.want)
			}
		})
	}
}

// TestOutsideIssuer takes tokens of an identity provider that publishes its keys
// on loopback.
func TestOutsideIssuer(t *testing.T) {
	own := newKey(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	raw := text(t, verb.JWKS{Keys: []verb.JWK{ecJWK(t, "e", &ec.PublicKey), rsaJWK("r", &private.PublicKey)}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, raw) }))
	defer srv.Close()
	issuer, err := verb.ParseIssuer("https://id.example=" + srv.URL + "/jwks.json;permissions=viewer,contributor;prefix=example")
	if err != nil {
		t.Fatal(err)
	}
	dir := new(verb.Directory)
	dir.SetRoles("lab-a", "ada", []string{verb.Admin})
	v := &verb.Verifier{Keys: keysOf(own), Issuers: []verb.Issuer{issuer}, Access: dir}
	outside := func(changes map[string]any) jwt.MapClaims {
		c := claims(map[string]any{"iss": issuer.Name, "permissions": []string{"contributor", "admin", "their-own"}})
		maps.Copy(c, changes)
		return c
	}
	for name, token := range map[string]string{
		"ES256": sign(t, jwt.SigningMethodES256, ec, "e", outside(nil)),
		"RS256": sign(t, jwt.SigningMethodRS256, private, "r", outside(nil)),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := v.Verify(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			if c.Actor.ID != "example:ada" || c.TokenID.Subject != "example:ada" || c.TokenID.Issuer != issuer.Name {
				t.Errorf("caller = %+v, want example:ada", c)
			}
			if !c.Has(verb.Contributor, artifact.Commons) || c.Has(verb.Admin, artifact.Commons) {
				t.Errorf("permissions = %v, want those of the issuer alone", c.Permissions)
			}
			if c.Has(verb.Viewer, "lab-a") {
				t.Error("the caller has what another agent was granted")
			}
		})
	}
	for name, token := range map[string]string{
		"its key under the network's name": sign(t, jwt.SigningMethodES256, ec, "e", claims(nil)),
		"the network's key under its name": signBy(t, own, outside(nil)),
		"the other algorithm's key":        sign(t, jwt.SigningMethodES256, ec, "r", outside(nil)),
		"another audience":                 sign(t, jwt.SigningMethodES256, ec, "e", outside(map[string]any{"aud": "x"})),
		"a key that it does not have":      sign(t, jwt.SigningMethodES256, ec, "x", outside(nil)),
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			_, err := v.Verify(t.Context(), token)
			wantUnauthenticated(t, err)
		})
	}
	t.Run("names agents of a chain its way", func(t *testing.T) {
		dir.SetAgent("grace", true)
		token := sign(t, jwt.SigningMethodES256, ec, "e", outside(map[string]any{"delegation_chain": []map[string]string{{"actor_id": "grace"}}}))
		_, err := v.Verify(t.Context(), token)
		wantRefused(t, err, artifact.CodePermissionDenied, artifact.ReasonDelegationRefused)
	})
	t.Run("takes its own audiences in place of the network's", func(t *testing.T) {
		i := issuer
		i.Audiences = []string{"substrate"}
		v := &verb.Verifier{Keys: keysOf(own), Issuers: []verb.Issuer{i}}
		if _, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodES256, ec, "e", outside(map[string]any{"aud": "substrate"}))); err != nil {
			t.Error(err)
		}
		_, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodES256, ec, "e", outside(nil)))
		wantUnauthenticated(t, err)
		_, err = v.Verify(t.Context(), signBy(t, own, claims(map[string]any{"aud": "substrate"})))
		wantUnauthenticated(t, err)
	})
}

func TestParseIssuer(t *testing.T) {
	i, err := verb.ParseIssuer("https://id.example=https://id.example/jwks.json;permissions=viewer,reviewer;prefix=example;audience=a,b")
	if want := `{"Name":"https://id.example","JWKSURL":"https://id.example/jwks.json","Audiences":["a","b"],"MaxPermissions":["viewer","reviewer"],"SubjectPrefix":"example:","Keys":null}`; err != nil || text(t, i) != want {
		t.Errorf("ParseIssuer = %s, %v, want %s", text(t, i), err, want)
	}
	for name, in := range map[string]string{
		"nothing":            "",
		"no URL":             "https://id.example",
		"a file":             "a=file:///etc/passwd",
		"plain HTTP":         "a=http://id.example/jwks.json",
		"an option unknown":  "a=https://id.example/k;prefx=b",
		"a permission":       "a=https://id.example/k;permissions=root",
		"the network's name": "scidex=https://id.example/k;prefix=b",
		"a node's name":      "node:a=https://id.example/k;prefix=b",
		"the own prefix":     "a=https://id.example/k;prefix=scidex",
		"a spaced prefix":    "a=https://id.example/k;prefix=a b",
	} {
		if got, err := verb.ParseIssuer(in); err == nil {
			t.Errorf("ParseIssuer of %s = %+v", name, got)
		}
	}
	for name, issuers := range map[string][]verb.Issuer{
		"one twice":           {{Name: "a", Keys: keysOf(), SubjectPrefix: "a:"}, {Name: "a", Keys: keysOf(), SubjectPrefix: "b:"}},
		"one prefix":          {{Name: "a", Keys: keysOf(), SubjectPrefix: "a:"}, {Name: "b", Keys: keysOf(), SubjectPrefix: "a:"}},
		"a prefix in another": {{Name: "a", Keys: keysOf(), SubjectPrefix: "a:"}, {Name: "b", Keys: keysOf(), SubjectPrefix: "a:b:"}},
		"default and given":   {{Name: "https://a.example", Keys: keysOf()}, {Name: "b", Keys: keysOf(), SubjectPrefix: "a.example:"}},
	} {
		if (&verb.Verifier{Issuers: issuers}).Check() == nil {
			t.Errorf("Check took %s", name)
		}
	}
}

// An issuerFake answers requests for a key set, in memory.
type issuerFake struct {
	set   atomic.Pointer[verb.JWKS] // nil: it does not answer
	slow  atomic.Bool               // it answers only when the request is given up
	asked atomic.Int64
}

func (f *issuerFake) publish(keys ...*verb.Key) {
	set := &verb.JWKS{Keys: []verb.JWK{}}
	for _, k := range keys {
		set.Keys = append(set.Keys, k.PublicJWK())
	}
	f.set.Store(set)
}

func (f *issuerFake) RoundTrip(req *http.Request) (*http.Response, error) {
	f.asked.Add(1)
	if f.slow.Load() {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	set := f.set.Load()
	if set == nil {
		return nil, errors.New("no route to the issuer")
	}
	raw, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(raw)))}, nil
}

func (f *issuerFake) keys() *verb.RemoteKeys {
	return &verb.RemoteKeys{URL: "https://hub.example/jwks.json", HTTP: &http.Client{Transport: f}}
}

func TestRemoteKeys(t *testing.T) {
	old, next := newKey(t), newKey(t)
	t.Run("reads the set when it meets a new key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := new(issuerFake)
			fake.publish(old)
			v := &verb.Verifier{Keys: fake.keys()}
			if _, err := v.Verify(t.Context(), signBy(t, old, claims(nil))); err != nil {
				t.Fatal(err)
			}
			fake.publish(old, next)
			time.Sleep(2 * time.Second)
			if _, err := v.Verify(t.Context(), signBy(t, next, claims(nil))); err != nil {
				t.Error(err)
			}
			if n := fake.asked.Load(); n != 2 {
				t.Errorf("the issuer was asked %d times, want 2", n)
			}
		})
	})
	t.Run("cannot tell while the issuer is away", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := new(issuerFake)
			v := &verb.Verifier{Keys: fake.keys()}
			for range 3 {
				_, err := v.Verify(t.Context(), signBy(t, old, claims(nil)))
				wantRefused(t, err, artifact.CodeUnavailable, "unknown_key")
				if !artifact.AsError(err).Retryable {
					t.Errorf("error = %v, want it retryable", err)
				}
			}
			if n := fake.asked.Load(); n != 1 {
				t.Errorf("the issuer was asked %d times in no time, want 1", n)
			}
			fake.publish(old)
			time.Sleep(2 * time.Second)
			if _, err := v.Verify(t.Context(), signBy(t, old, claims(nil))); err != nil {
				t.Errorf("once the issuer is back: %v", err)
			}
		})
	})
	t.Run("asks once for many keys that are not there", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := new(issuerFake)
			fake.publish(old)
			v := &verb.Verifier{Keys: fake.keys()}
			for range 20 {
				_, err := v.Verify(t.Context(), signBy(t, newKey(t), claims(nil)))
				wantUnauthenticated(t, err)
			}
			if n := fake.asked.Load(); n != 1 {
				t.Errorf("the issuer was asked %d times, want 1", n)
			}
		})
	})
	t.Run("lets no known key wait for a slow issuer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := new(issuerFake)
			fake.publish(old)
			v := &verb.Verifier{Keys: fake.keys()}
			if _, err := v.Verify(t.Context(), signBy(t, old, claims(nil))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			fake.slow.Store(true)
			waited := make(chan error, 8)
			for range cap(waited) {
				go func() {
					_, err := v.Verify(t.Context(), signBy(t, next, claims(nil)))
					waited <- err
				}()
			}
			synctest.Wait()
			before := time.Now()
			if _, err := v.Verify(t.Context(), signBy(t, old, claims(map[string]any{"jti": "t-2"}))); err != nil {
				t.Error(err)
			}
			if d := time.Since(before); d != 0 {
				t.Errorf("a known key waited %v", d)
			}
			for range cap(waited) {
				wantRefused(t, <-waited, artifact.CodeUnavailable, "unknown_key")
			}
			if n := fake.asked.Load(); n != 2 {
				t.Errorf("the issuer was asked %d times, want 2", n)
			}
		})
	})
	t.Run("waits no longer than the request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := new(issuerFake)
			fake.slow.Store(true)
			v := &verb.Verifier{Keys: fake.keys()}
			first := make(chan error, 1)
			go func() {
				_, err := v.Verify(t.Context(), signBy(t, old, claims(nil)))
				first <- err
			}()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			before := time.Now()
			_, err := v.Verify(ctx, signBy(t, old, claims(nil)))
			wantRefused(t, err, artifact.CodeUnavailable, "unknown_key")
			if d := time.Since(before); d != time.Second {
				t.Errorf("the second request waited %v, want 1s", d)
			}
			<-first
		})
	})
	t.Run("drops what the issuer takes out", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := new(issuerFake)
			fake.publish(old, next)
			v := &verb.Verifier{Keys: fake.keys()}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- v.Run(ctx) }()
			synctest.Wait()
			token := signBy(t, old, claims(nil))
			if _, err := v.Verify(t.Context(), token); err != nil {
				t.Fatal(err)
			}
			fake.set.Store(nil)
			time.Sleep(6 * time.Minute)
			if _, err := v.Verify(t.Context(), token); err != nil {
				t.Errorf("while the issuer is away: %v", err)
			}
			fake.publish(next)
			time.Sleep(5 * time.Minute)
			_, err := v.Verify(t.Context(), token)
			wantUnauthenticated(t, err)
			stop()
			if err := <-done; err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	})
	t.Run("keeps the set over a restart", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fake := new(issuerFake)
			fake.publish(old)
			var kept verb.JWKS
			first := fake.keys()
			first.Store = func(_ context.Context, set verb.JWKS) error {
				kept = set
				return nil
			}
			token := signBy(t, old, claims(nil))
			if _, err := (&verb.Verifier{Keys: first}).Verify(t.Context(), token); err != nil {
				t.Fatal(err)
			}
			fake.set.Store(nil)
			second := fake.keys()
			second.Load = func(context.Context) (verb.JWKS, error) { return kept, nil }
			v := &verb.Verifier{Keys: second}
			if _, err := v.Verify(t.Context(), token); err != nil {
				t.Errorf("offline: %v", err)
			}
			_, err := v.Verify(t.Context(), signBy(t, next, claims(nil)))
			wantRefused(t, err, artifact.CodeUnavailable, "unknown_key")
		})
	})
}

// TestRemoteKeysRefuses shows that a bad answer leaves the set as it was.
func TestRemoteKeysRefuses(t *testing.T) {
	key := newKey(t)
	set := text(t, verb.JWKS{Keys: []verb.JWK{key.PublicJWK()}})
	var hits atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/set", func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		_, _ = io.WriteString(w, set)
	})
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, req *http.Request) { http.Redirect(w, req, "/set", http.StatusFound) })
	mux.HandleFunc("/error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, set, http.StatusInternalServerError) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.TrimSuffix(set, "}")+`,"x":"`+strings.Repeat("x", 1<<20)+`"}`)
	})
	mux.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status":"ok"}`) })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	token := signBy(t, key, claims(nil))
	if _, err := (&verb.Verifier{Keys: &verb.RemoteKeys{URL: srv.URL + "/set"}}).Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{
		"a redirect": srv.URL + "/elsewhere", "an error": srv.URL + "/error", "a large set": srv.URL + "/large",
		"another document": srv.URL + "/other", "a file": "file:///etc/passwd", "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&verb.Verifier{Keys: &verb.RemoteKeys{URL: url}}).Verify(t.Context(), token)
			wantRefused(t, err, artifact.CodeUnavailable, "unknown_key")
		})
	}
	if n := hits.Load(); n != 1 {
		t.Errorf("the set was read %d times, want 1", n)
	}
}
