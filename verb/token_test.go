package verb_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

func newKey(t testing.TB) *verb.Key {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return verb.NewKey(private)
}

func keysOf(keys ...*verb.Key) verb.StaticKeys {
	var set verb.JWKS
	for _, k := range keys {
		set.Keys = append(set.Keys, k.PublicJWK())
	}
	return verb.KeysOf(set)
}

// claims returns those of a valid token with some changed; nil takes one out.
func claims(changes map[string]any) jwt.MapClaims {
	now := time.Now()
	c := jwt.MapClaims{
		"jti": "t-1", "sub": "ada", "aud": "scidex", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"actor_kind": "human", "permissions": []string{"viewer"},
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func sign(t testing.TB, m jwt.SigningMethod, key any, kid any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(m, c)
	if kid != nil {
		token.Header["kid"] = kid
	}
	s, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signBy(t testing.TB, k *verb.Key, c jwt.MapClaims) string {
	t.Helper()
	return sign(t, jwt.SigningMethodEdDSA, k.Private, k.ID, c)
}

// signText signs a header and claims as they are written.
func signText(k *verb.Key, header, claims string) string {
	text := encode(header) + "." + encode(claims)
	return text + "." + encode(string(ed25519.Sign(k.Private, []byte(text))))
}

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func text(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// wantRefused checks that an error has a code and a reason.
func wantRefused(t *testing.T, err error, code artifact.Code, reason string) {
	t.Helper()
	if e := artifact.AsError(err); err == nil || e.Code != code || e.Reason != reason {
		t.Errorf("error = %v, want %s (%s)", err, code, reason)
	}
}

func wantUnauthenticated(t *testing.T, err error) {
	t.Helper()
	wantRefused(t, err, artifact.CodePermissionDenied, artifact.ReasonUnauthenticated)
}

func TestVerifyReadsEveryClaim(t *testing.T) {
	key := newKey(t)
	dir := new(verb.Directory)
	dir.SetAgent("grace", true)
	v := &verb.Verifier{Keys: keysOf(key), Access: dir}
	for name, iss := range map[string]any{"without iss": nil, "with the network's iss": "scidex"} {
		t.Run(name, func(t *testing.T) {
			c, err := v.Verify(t.Context(), signBy(t, key, claims(map[string]any{
				"iss": iss, "session_id": "s-1", "parent_session_id": "s-0", "task_id": "task-1", "scopes": []string{"lab-a"},
				"delegation_chain": []map[string]string{{"actor_id": "grace", "session_id": "s-0", "task_id": "task-0"}},
			})))
			if err != nil {
				t.Fatal(err)
			}
			step := artifact.DelegationStep{ActorID: "grace", SessionID: "s-0", TaskID: "task-0"}
			if c.Actor != (artifact.Actor{ID: "ada", Kind: "human"}) || c.SessionID != "s-1" || c.ParentSessionID != "s-0" || c.TaskID != "task-1" ||
				!slices.Equal(c.Scopes, []string{"lab-a"}) || !slices.Equal(c.Delegation, []artifact.DelegationStep{step}) || c.Access != verb.Access(dir) ||
				c.TokenID.Issuer != "" || c.TokenID.ID != "t-1" || c.TokenID.Subject != "ada" || time.Since(c.TokenID.Issued) > time.Minute {
				t.Errorf("Verify = %+v", c)
			}
		})
	}
}

func TestScopesClaim(t *testing.T) {
	key := newKey(t)
	v := &verb.Verifier{Keys: keysOf(key)}
	for name, tt := range map[string]struct {
		scopes []string
		isNil  bool
	}{
		"absent means all": {nil, true},
		"empty is kept":    {[]string{}, false},
		"some are kept":    {[]string{"lab-a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			token, err := key.Sign(verb.Claims{ActorKind: "human", RegisteredClaims: subject("ada"), Scopes: tt.scopes}, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			c, err := v.Verify(t.Context(), token)
			if err != nil || (c.Scopes == nil) != tt.isNil || !slices.Equal(c.Scopes, tt.scopes) {
				t.Errorf("scopes = %#v, %v, want %#v", c.Scopes, err, tt.scopes)
			}
		})
	}
	t.Run("null is refused", func(t *testing.T) {
		raw := strings.TrimSuffix(text(t, claims(nil)), "}") + `,"scopes":null}`
		_, err := v.Verify(t.Context(), signText(key, `{"alg":"EdDSA","kid":"`+key.ID+`"}`, raw))
		wantUnauthenticated(t, err)
	})
}

// TestVerifyRefuses shows that each token is refused, though its signature is
// right wherever one can be, and that without its fault it is taken.
func TestVerifyRefuses(t *testing.T) {
	key, stranger := newKey(t), newKey(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	set := verb.JWKS{Keys: []verb.JWK{key.PublicJWK(), rsaJWK("rsa", &private.PublicKey)}}
	v := &verb.Verifier{Keys: verb.KeysOf(set)}
	header := `{"alg":"EdDSA","kid":"` + key.ID + `"}`
	body := text(t, claims(nil))
	for name, token := range map[string]string{
		"signed by the hub":       signBy(t, key, claims(nil)),
		"signed as text":          signText(key, header, body),
		"signed by RSA":           sign(t, jwt.SigningMethodRS256, private, "rsa", claims(nil)),
		"with SUB beside sub":     signText(key, header, strings.TrimSuffix(body, "}")+`,"SUB":"eve"}`),
		"with SUB before sub":     signText(key, header, `{"SUB":"eve",`+strings.TrimPrefix(body, "{")),
		"with a Kelvin sign":      signText(key, `{"alg":"EdDSA","kid":"`+key.ID+`","\u212aid":"x"}`, body),
		"written with escapes":    signText(key, " {\t\"\\u0061lg\" : \"E\\u0064DSA\",\r\n\"kid\":\""+key.ID+"\"} ", strings.Replace(body, `"sub":"ada"`, `"a\"b":"\"}","n" : 7 , "s\u0075b" : "\u0061da"`, 1)),
		"with an unknown claim":   signBy(t, key, claims(map[string]any{"email": "a@b", "address": map[string]string{"sub": "x"}})),
		"with several audiences":  signBy(t, key, claims(map[string]any{"aud": []string{"x", "scidex"}})),
		"with a chain of nobody":  signBy(t, key, claims(map[string]any{"delegation_chain": []any{}})),
		"with null for a session": signBy(t, key, claims(map[string]any{"parent_session_id": json.RawMessage("null")})),
	} {
		if c, err := v.Verify(t.Context(), token); err != nil || c.Actor.ID != "ada" || len(c.Permissions) != 1 {
			t.Errorf("Verify of a token %s = %+v, %v", name, c, err)
		}
	}
	steps := func(n int, id string) []map[string]string {
		return slices.Repeat([]map[string]string{{"actor_id": id}}, n)
	}
	good := signBy(t, key, claims(nil))
	parts := strings.Split(good, ".")
	wide := strings.Repeat("x", 201)
	for name, token := range map[string]string{
		"empty":                        "",
		"of one part":                  parts[0],
		"of two parts":                 parts[0] + "." + parts[1],
		"of four parts":                good + "." + parts[2],
		"expired":                      signBy(t, key, claims(map[string]any{"exp": time.Now().Add(-time.Hour).Unix(), "iat": time.Now().Add(-2 * time.Hour).Unix()})),
		"not valid yet":                signBy(t, key, claims(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})),
		"for another audience":         signBy(t, key, claims(map[string]any{"aud": "another"})),
		"for a node":                   signBy(t, key, claims(map[string]any{"aud": "node:a"})),
		"without an audience":          signBy(t, key, claims(map[string]any{"aud": nil})),
		"without jti":                  signBy(t, key, claims(map[string]any{"jti": nil})),
		"without iat":                  signBy(t, key, claims(map[string]any{"iat": nil})),
		"without exp":                  signBy(t, key, claims(map[string]any{"exp": nil})),
		"without sub":                  signBy(t, key, claims(map[string]any{"sub": nil})),
		"without a kind":               signBy(t, key, claims(map[string]any{"actor_kind": nil})),
		"with an endless exp":          signBy(t, key, claims(map[string]any{"exp": 1e15})),
		"with an unknown permission":   signBy(t, key, claims(map[string]any{"permissions": []string{"root"}})),
		"with a space in sub":          signBy(t, key, claims(map[string]any{"sub": "ada eve"})),
		"with a long sub":              signBy(t, key, claims(map[string]any{"sub": wide})),
		"with a long jti":              signBy(t, key, claims(map[string]any{"jti": wide})),
		"with a long session":          signBy(t, key, claims(map[string]any{"session_id": wide})),
		"with a long task":             signBy(t, key, claims(map[string]any{"task_id": wide})),
		"with a long scope":            signBy(t, key, claims(map[string]any{"scopes": []string{wide}})),
		"with many scopes":             signBy(t, key, claims(map[string]any{"scopes": slices.Repeat([]string{"s"}, 257)})),
		"of an issuer unknown here":    signBy(t, key, claims(map[string]any{"iss": "https://elsewhere.example"})),
		"of a key unknown here":        signBy(t, stranger, claims(nil)),
		"of another key by this name":  sign(t, jwt.SigningMethodEdDSA, stranger.Private, key.ID, claims(nil)),
		"without a kid":                sign(t, jwt.SigningMethodEdDSA, key.Private, nil, claims(nil)),
		"with a number for a kid":      sign(t, jwt.SigningMethodEdDSA, key.Private, 7, claims(nil)),
		"unsigned":                     encode(`{"alg":"none","kid":"`+key.ID+`"}`) + "." + parts[1] + ".",
		"unsigned, with a signature":   encode(`{"alg":"none","kid":"`+key.ID+`"}`) + "." + parts[1] + "." + parts[2],
		"without a signature":          parts[0] + "." + parts[1] + ".",
		"with an unknown alg":          signText(key, `{"alg":"EdDSB","kid":"`+key.ID+`"}`, body),
		"without an alg":               signText(key, `{"kid":"`+key.ID+`"}`, body),
		"with a critical extension":    signText(key, `{"alg":"EdDSA","crit":["exp"],"kid":"`+key.ID+`"}`, body),
		"by HS256 with an RSA key":     sign(t, jwt.SigningMethodHS256, publicPEM, "rsa", claims(nil)),
		"by HS256 with its DER":        sign(t, jwt.SigningMethodHS256, der, "rsa", claims(nil)),
		"by HS256 with an Ed25519 key": sign(t, jwt.SigningMethodHS256, []byte(key.Private.Public().(ed25519.PublicKey)), key.ID, claims(nil)),
		"by HS256 with nothing":        sign(t, jwt.SigningMethodHS256, []byte{}, key.ID, claims(nil)),
		"by another hash of RSA":       sign(t, jwt.SigningMethodRS512, private, "rsa", claims(nil)),
		"by PSS of RSA":                sign(t, jwt.SigningMethodPS256, private, "rsa", claims(nil)),
		"with RSA under EdDSA's key":   sign(t, jwt.SigningMethodRS256, private, key.ID, claims(nil)),
		"giant":                        signBy(t, key, claims(map[string]any{"note": strings.Repeat("x", 16<<10)})),
		"deep":                         signText(key, header, strings.TrimSuffix(body, "}")+`,"a":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+"}"),
		"with sub twice":               signText(key, header, strings.TrimSuffix(body, "}")+`,"sub":"eve"}`),
		"with a name twice, inside":    signText(key, header, strings.TrimSuffix(body, "}")+`,"delegation_chain":[{"actor_id":"a","actor_id":"b"}]}`),
		"with kid twice":               signText(key, `{"alg":"EdDSA","kid":"x","kid":"`+key.ID+`"}`, body),
		"of an array":                  signText(key, header, `[]`),
		"of null":                      signText(key, header, `null`),
		"with another last character":  good[:len(good)-1] + string(good[len(good)-1]^1),
		"with a line break":            parts[0] + "\n." + parts[1] + "." + parts[2],
		"with padding":                 good + "=",
		"with too long a chain":        signBy(t, key, claims(map[string]any{"delegation_chain": steps(17, "a")})),
		"with a chain of a long name":  signBy(t, key, claims(map[string]any{"delegation_chain": steps(1, wide)})),
		"with a chain of no name":      signBy(t, key, claims(map[string]any{"delegation_chain": steps(1, "")})),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := v.Verify(t.Context(), token)
			wantUnauthenticated(t, err)
			if c != nil {
				t.Errorf("Verify = %+v", c)
			}
		})
	}
}

// TestClockSkew walks both sides of the leeway, before the token begins and after
// it ends, with tokens seen before and not.
func TestClockSkew(t *testing.T) {
	key := newKey(t)
	for name, tt := range map[string]struct {
		claim string
		at    time.Duration // from now
		taken bool
	}{
		"ended within the leeway":        {"exp", -verb.Leeway + time.Second, true},
		"ended beyond the leeway":        {"exp", -verb.Leeway - time.Second, false},
		"begins within the leeway":       {"nbf", verb.Leeway - time.Second, true},
		"begins beyond the leeway":       {"nbf", verb.Leeway + time.Second, false},
		"issued ahead within the leeway": {"iat", verb.Leeway - time.Second, true},
		"issued ahead beyond the leeway": {"iat", verb.Leeway + time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := claims(map[string]any{tt.claim: time.Now().Add(tt.at).Unix()})
				if tt.claim == "exp" {
					c["iat"] = time.Now().Add(-time.Hour).Unix()
				}
				_, err := (&verb.Verifier{Keys: keysOf(key)}).Verify(t.Context(), signBy(t, key, c))
				if (err == nil) != tt.taken {
					t.Errorf("error = %v, want taken %t", err, tt.taken)
				}
			})
		})
	}
	t.Run("a token seen before ends too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			v := &verb.Verifier{Keys: keysOf(key)}
			token := signBy(t, key, claims(nil))
			for _, wait := range []time.Duration{0, time.Hour + verb.Leeway - time.Second} {
				time.Sleep(wait)
				if _, err := v.Verify(t.Context(), token); err != nil {
					t.Errorf("after %v: %v", wait, err)
				}
			}
			time.Sleep(2 * time.Second)
			_, err := v.Verify(t.Context(), token)
			wantUnauthenticated(t, err)
		})
	})
}

func TestSecret(t *testing.T) {
	secret := []byte(strings.Repeat("k", 32))
	token := sign(t, jwt.SigningMethodHS256, secret, nil, claims(nil))
	outside := verb.Issuer{Name: "https://id.example", Keys: keysOf()}
	t.Run("verifies the network's tokens", func(t *testing.T) {
		v := &verb.Verifier{Secret: secret}
		if c, err := v.Verify(t.Context(), token); err != nil || c.Actor.ID != "ada" {
			t.Errorf("Verify = %+v, %v", c, err)
		}
	})
	t.Run("is of no use where there is none", func(t *testing.T) {
		_, err := (&verb.Verifier{Keys: keysOf(newKey(t))}).Verify(t.Context(), token)
		wantUnauthenticated(t, err)
	})
	t.Run("is not another", func(t *testing.T) {
		_, err := (&verb.Verifier{Secret: []byte(strings.Repeat("o", 32))}).Verify(t.Context(), token)
		wantUnauthenticated(t, err)
	})
	t.Run("verifies no outside issuer's", func(t *testing.T) {
		_, err := (&verb.Verifier{Secret: secret, Issuers: []verb.Issuer{outside}}).Verify(t.Context(),
			sign(t, jwt.SigningMethodHS256, secret, nil, claims(map[string]any{"iss": outside.Name})))
		wantUnauthenticated(t, err)
	})
	t.Run("is refused when short", func(t *testing.T) {
		short := secret[:31]
		v := &verb.Verifier{Secret: short}
		if v.Check() == nil {
			t.Error("Check took a secret of 31 bytes")
		}
		if _, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, short, nil, claims(nil))); err == nil {
			t.Error("Verify took a secret of 31 bytes")
		}
	})
}

func TestRevokedToken(t *testing.T) {
	key, dir := newKey(t), new(verb.Directory)
	v := &verb.Verifier{Keys: keysOf(key), Access: dir}
	token := signBy(t, key, claims(nil))
	c, err := v.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	dir.Revoke(verb.Revocation{Token: c.TokenID.Hash(), Before: c.Expires})
	_, err = v.Verify(t.Context(), token)
	wantUnauthenticated(t, err)
	wantUnauthenticated(t, c.Valid())
	_, err = (&verb.Verifier{Keys: keysOf(key), Access: dir}).Verify(t.Context(), token)
	wantUnauthenticated(t, err)
	if _, err := v.Verify(t.Context(), signBy(t, key, claims(map[string]any{"jti": "t-2"}))); err != nil {
		t.Errorf("another token: %v", err)
	}
}

// A shrinking is a key source that keys are taken out of.
type shrinking struct{ verb.StaticKeys }

func TestRetiredKey(t *testing.T) {
	old, next := newKey(t), newKey(t)
	keys := shrinking{keysOf(old, next)}
	v := &verb.Verifier{Keys: keys}
	tokens := map[*verb.Key]string{old: signBy(t, old, claims(nil)), next: signBy(t, next, claims(nil))}
	callers := map[*verb.Key]*verb.Caller{}
	for k, token := range tokens {
		var err error
		if callers[k], err = v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	delete(keys.StaticKeys, old.ID)
	_, err := v.Verify(t.Context(), tokens[old])
	wantUnauthenticated(t, err)
	wantUnauthenticated(t, callers[old].Valid())
	if _, err := v.Verify(t.Context(), tokens[next]); err != nil {
		t.Errorf("a token of the key that is left: %v", err)
	}
	if err := callers[next].Valid(); err != nil {
		t.Errorf("a caller of the key that is left: %v", err)
	}
}

func TestDelegation(t *testing.T) {
	key, outside := newKey(t), newKey(t)
	issuer := verb.Issuer{Name: "https://id.example", Keys: keysOf(outside), SubjectPrefix: "id:"}
	chain := func(ids ...string) map[string]any {
		var steps []map[string]string
		for _, id := range ids {
			steps = append(steps, map[string]string{"actor_id": id})
		}
		return map[string]any{"delegation_chain": steps}
	}
	newVerifier := func(trust bool) (*verb.Verifier, *verb.Directory) {
		dir := new(verb.Directory)
		dir.SetAgent("grace", true)
		dir.SetAgent("bot", false)
		dir.SetAgent("id:grace", true)
		return &verb.Verifier{Keys: keysOf(key), Access: dir, TrustIssuer: trust, Issuers: []verb.Issuer{issuer}}, dir
	}
	for name, tt := range map[string]struct {
		chain   []string
		trust   bool
		outside bool
		taken   bool
	}{
		"one who may":                                {chain: []string{"grace"}, taken: true},
		"one who may not":                            {chain: []string{"bot"}},
		"one who may not, after one who may":         {chain: []string{"grace", "bot"}},
		"one who may not, at a node":                 {chain: []string{"bot"}, trust: true},
		"one who is unknown":                         {chain: []string{"alan"}},
		"one who is unknown, at a node":              {chain: []string{"alan"}, trust: true, taken: true},
		"one of an outside issuer":                   {chain: []string{"grace"}, outside: true, taken: true},
		"one of an outside issuer, unknown":          {chain: []string{"alan"}, outside: true},
		"one of an outside issuer, unknown, at node": {chain: []string{"alan"}, outside: true, trust: true},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := newVerifier(tt.trust)
			c, signer := claims(chain(tt.chain...)), key
			if tt.outside {
				c["iss"], signer = issuer.Name, outside
			}
			_, err := v.Verify(t.Context(), signBy(t, signer, c))
			if tt.taken {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantRefused(t, err, artifact.CodePermissionDenied, artifact.ReasonDelegationRefused)
		})
	}
	t.Run("without a directory", func(t *testing.T) {
		_, err := (&verb.Verifier{Keys: keysOf(key)}).Verify(t.Context(), signBy(t, key, claims(chain("grace"))))
		wantRefused(t, err, artifact.CodePermissionDenied, artifact.ReasonDelegationRefused)
	})
	t.Run("one who may no more", func(t *testing.T) {
		v, dir := newVerifier(false)
		token := signBy(t, key, claims(chain("grace")))
		c, err := v.Verify(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		dir.SetAgent("grace", false)
		_, err = v.Verify(t.Context(), token)
		wantRefused(t, err, artifact.CodePermissionDenied, artifact.ReasonDelegationRefused)
		wantRefused(t, c.Valid(), artifact.CodePermissionDenied, artifact.ReasonDelegationRefused)
	})
}

// TestVerifyKeepsNoCallersChange checks that what a request does to its caller
// does not reach the next one.
func TestVerifyKeepsNoCallersChange(t *testing.T) {
	key := newKey(t)
	v := &verb.Verifier{Keys: keysOf(key)}
	token := signBy(t, key, claims(nil))
	first, err := v.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	first.NodeID, first.RequestID = "n", "r"
	second, err := v.Verify(t.Context(), token)
	if err != nil || second.NodeID != "" || second.RequestID != "" || second.Token != token {
		t.Errorf("Verify = %+v, %v", second, err)
	}
}

// TestManyTokens checks that a token is taken however many came since.
func TestManyTokens(t *testing.T) {
	key := verb.NewKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	secret := []byte(strings.Repeat("k", 32))
	v := &verb.Verifier{Keys: keysOf(key), Secret: secret}
	token := signBy(t, key, claims(nil))
	for i := range 10_000 {
		if i%2500 == 0 {
			if c, err := v.Verify(t.Context(), token); err != nil || c.Actor.ID != "ada" {
				t.Fatalf("Verify after %d tokens = %+v, %v", i, c, err)
			}
		}
		sub := fmt.Sprintf("agent-%d", i)
		c, err := v.Verify(t.Context(), sign(t, jwt.SigningMethodHS256, secret, nil, claims(map[string]any{"sub": sub})))
		if err != nil || c.Actor.ID != sub {
			t.Fatalf("Verify = %+v, %v, want %s", c, err, sub)
		}
	}
}

// FuzzVerify checks that Verify takes the tokens that were signed, and no other
// text. Keys and times are fixed: texts are kept from one run to the next.
func FuzzVerify(f *testing.F) {
	key := verb.NewKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)))
	secret := []byte(strings.Repeat("k", 32))
	v := &verb.Verifier{Keys: keysOf(key), Secret: secret, Issuers: []verb.Issuer{{Name: "https://id.example", Keys: keysOf(key), SubjectPrefix: "id:"}}}
	signed := map[string]bool{}
	fixed := func(member string, value any) jwt.MapClaims {
		return claims(map[string]any{"iat": 1_700_000_000, "exp": 4_000_000_000, member: value})
	}
	for _, c := range []jwt.MapClaims{fixed("sub", "eve"), fixed("scopes", []string{}), fixed("iss", "https://id.example")} {
		signed[signBy(f, key, c)] = true
	}
	signed[sign(f, jwt.SigningMethodHS256, secret, nil, fixed("task_id", "t"))] = true
	for token := range signed {
		if _, err := v.Verify(f.Context(), token); err != nil {
			f.Fatalf("a token that was signed: %v", err)
		}
		for i := 0; i < len(token); i += 7 {
			f.Add(token, uint16(i), byte(1), false)
		}
		f.Add(token, uint16(len(token)-1), byte(1), false)
		f.Add(token, uint16(3), byte('\n'), true)
		f.Add(token, uint16(len(token)), byte('='), true)
	}
	f.Fuzz(func(t *testing.T, token string, at uint16, change byte, insert bool) {
		raw := []byte(token)
		switch i := int(at); {
		case insert && i <= len(raw):
			raw = slices.Insert(raw, i, change)
		case !insert && i < len(raw):
			raw[i] ^= change
		}
		c, err := v.Verify(t.Context(), string(raw))
		if (err == nil) != (c != nil) {
			t.Fatalf("Verify = %+v, %v", c, err)
		}
		if err == nil && !signed[string(raw)] {
			t.Fatalf("Verify took %q", raw)
		}
	})
}
