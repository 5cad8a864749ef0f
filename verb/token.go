package verb

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
)

// Audience is the audience of tokens that any hub or node of the network takes.
const Audience = "scidex"

// Leeway is how far the clocks of a network may differ: a token is taken so long
// before it begins and after it ends.
const Leeway = 30 * time.Second

// maxToken is the longest token that is looked at, in bytes.
const maxToken = 16 << 10

// ActorKinds are the kinds of agent that a token may name.
var ActorKinds = []string{"human", "ai_local", "ai_external", "ai_swarm"}

// Claims are the members of a token, named as SPEC-001 §4.1 names them.
type Claims struct {
	jwt.RegisteredClaims
	ActorKind       string                    `json:"actor_kind"`
	Permissions     []Permission              `json:"permissions"`
	SessionID       string                    `json:"session_id,omitempty"`
	ParentSessionID string                    `json:"parent_session_id,omitempty"`
	DelegationChain []artifact.DelegationStep `json:"delegation_chain,omitempty"`
	TaskID          string                    `json:"task_id,omitempty"`
	Scopes          []string                  `json:"scopes,omitempty"`
}

// Validate implements jwt.ClaimsValidator: it checks what the library does not.
func (c *Claims) Validate() error {
	if c.Subject == "" || len(c.Subject) > 200 || strings.ContainsFunc(c.Subject, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("sub is 1 to 200 printable ASCII characters without space")
	}
	if !slices.Contains(ActorKinds, c.ActorKind) {
		return fmt.Errorf("actor_kind is one of %s", strings.Join(ActorKinds, ", "))
	}
	for _, p := range c.Permissions {
		if !slices.Contains(Permissions, p) {
			return fmt.Errorf("permissions are among %s", strings.Join(Permissions, ", "))
		}
	}
	return nil
}

// A Key signs tokens. Its id is the first 16 hex digits of the SHA-256 of the
// public half.
type Key struct {
	ID      string
	Private ed25519.PrivateKey
}

// NewKey returns the key with this private half.
func NewKey(private ed25519.PrivateKey) *Key {
	public, ok := private.Public().(ed25519.PublicKey)
	if !ok {
		panic("verb: an Ed25519 key without a public half")
	}
	id := artifact.HashBytes(public).String()
	return &Key{ID: strings.TrimPrefix(id, "sha256:")[:16], Private: private}
}

// Sign returns a token with these claims that ends after ttl. What is empty
// among issuer, audience, session and token id is filled in.
func (k *Key) Sign(c Claims, ttl time.Duration) (string, error) {
	now := time.Now()
	c.IssuedAt, c.ExpiresAt = jwt.NewNumericDate(now), jwt.NewNumericDate(now.Add(ttl))
	if len(c.Audience) == 0 {
		c.Audience = jwt.ClaimStrings{Audience}
	}
	if c.ID == "" {
		c.ID = uuid.NewString()
	}
	if c.SessionID == "" {
		c.SessionID = uuid.NewString()
	}
	if err := c.Validate(); err != nil {
		return "", err
	}
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, &c)
	t.Header["kid"] = k.ID
	return t.SignedString(k.Private)
}

// A JWKS is a set of public keys as RFC 7517 and RFC 8037 write it.
type JWKS struct {
	Keys []JWK `json:"keys"`
}

// A JWK is one Ed25519 public key.
type JWK struct {
	KeyType   string `json:"kty"`
	Curve     string `json:"crv"`
	ID        string `json:"kid"`
	Use       string `json:"use"`
	Algorithm string `json:"alg"`
	X         string `json:"x"` // base64url
}

// PublicJWK returns k's public half.
func (k *Key) PublicJWK() JWK {
	public, _ := k.Private.Public().(ed25519.PublicKey) // NewKey checked it
	return JWK{
		KeyType: "OKP", Curve: "Ed25519", ID: k.ID, Use: "sig", Algorithm: "EdDSA",
		X: base64.RawURLEncoding.EncodeToString(public),
	}
}

// A KeySource finds the public keys of a network. It returns a permission_denied
// error for a key that it does not know and unavailable when it cannot tell.
type KeySource interface {
	PublicKey(ctx context.Context, kid string) (ed25519.PublicKey, error)
}

// A StaticKeys is a KeySource of keys in memory, by id.
type StaticKeys map[string]ed25519.PublicKey

// PublicKey implements [KeySource].
func (s StaticKeys) PublicKey(_ context.Context, kid string) (ed25519.PublicKey, error) {
	if k, ok := s[kid]; ok {
		return k, nil
	}
	return nil, Unauthenticated("the token is signed by no key of this network")
}

// KeysOf returns the keys of a set. Keys of other kinds are passed over.
func KeysOf(set JWKS) StaticKeys {
	keys := make(StaticKeys, len(set.Keys))
	for _, k := range set.Keys {
		x, err := base64.RawURLEncoding.DecodeString(k.X)
		if err == nil && k.KeyType == "OKP" && k.Curve == "Ed25519" && len(x) == ed25519.PublicKeySize {
			keys[k.ID] = x
		}
	}
	return keys
}

// RemoteKeys is a KeySource that reads a hub's key set, keeps it, and asks again
// for a key it has not seen, at most once in MinInterval.
type RemoteKeys struct {
	URL         string       // of the key set
	HTTP        *http.Client // nil means http.DefaultClient
	MinInterval time.Duration
	// Load and Store keep the last set over restarts, so that tokens verify
	// while the hub is away. Either may be nil.
	Load  func(context.Context) (JWKS, error)
	Store func(context.Context, JWKS) error

	mu    sync.Mutex // guards what follows
	keys  StaticKeys
	asked time.Time
}

// PublicKey implements [KeySource].
func (r *RemoteKeys) PublicKey(ctx context.Context, kid string) (ed25519.PublicKey, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys == nil && r.Load != nil {
		if set, err := r.Load(ctx); err == nil {
			r.keys = KeysOf(set)
		}
	}
	if k, ok := r.keys[kid]; ok {
		return k, nil
	}
	if wait := max(r.MinInterval, time.Second); time.Since(r.asked) < wait && r.keys != nil {
		return r.keys.PublicKey(ctx, kid)
	}
	set, err := r.fetch(ctx)
	if err != nil {
		return nil, &artifact.Error{
			Code: artifact.CodeUnavailable, Reason: "unknown_key", Retryable: true,
			Message: "the token's key is not known here and the hub cannot be asked",
		}
	}
	r.asked, r.keys = time.Now(), KeysOf(set)
	if r.Store != nil {
		if err := r.Store(ctx, set); err != nil {
			return nil, err
		}
	}
	return r.keys.PublicKey(ctx, kid)
}

func (r *RemoteKeys) fetch(ctx context.Context) (set JWKS, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL, http.NoBody) //nolint:gosec // the URL is the operator's
	if err != nil {
		return set, err
	}
	client := r.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req) //nolint:gosec // the URL is the operator's
	if err != nil {
		return set, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return set, fmt.Errorf("key set: %s", resp.Status)
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&set)
	return set, err
}

// A Verifier turns a token into a [Caller].
type Verifier struct {
	Keys KeySource
	// Audiences are the audiences taken; empty means [Audience] alone.
	Audiences []string

	seen verified
}

// verified remembers tokens that were found valid, by their hash: checking an
// Ed25519 signature costs more than a read does. A token counts until it
// expires; a set that grows too large is begun anew.
type verified struct {
	mu      sync.RWMutex
	callers map[artifact.Hash]*Caller // guarded by mu
}

const maxVerified = 4096

func (s *verified) get(token artifact.Hash) *Caller {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.callers[token]
	if c == nil || !time.Now().Before(c.Expires) {
		return nil
	}
	return c
}

func (s *verified) put(token artifact.Hash, c *Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.callers == nil || len(s.callers) >= maxVerified {
		s.callers = make(map[artifact.Hash]*Caller)
	}
	s.callers[token] = c
}

// Verify checks a token's form, signature, times and audience.
func (v *Verifier) Verify(ctx context.Context, token string) (*Caller, error) {
	if token == "" {
		return nil, Unauthenticated("this needs a token: Authorization: Bearer <token>")
	}
	if len(token) > maxToken {
		return nil, Unauthenticated("the token is too long")
	}
	hash := artifact.HashBytes([]byte(token))
	if known := v.seen.get(hash); known != nil {
		c := *known
		return &c, nil
	}
	audiences := v.Audiences
	if len(audiences) == 0 {
		audiences = []string{Audience}
	}
	var failed error // of the key source, which jwt would wrap away
	claims := new(Claims)
	_, err := jwt.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		k, err := v.Keys.PublicKey(ctx, kid)
		failed = err
		return k, err
	},
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(Leeway),
		jwt.WithAudience(audiences...))
	switch {
	case failed != nil:
		return nil, failed
	case errors.Is(err, jwt.ErrTokenExpired):
		return nil, Unauthenticated("the token has expired")
	case err != nil:
		return nil, Unauthenticated("the token is not valid")
	}
	c := Caller{
		Actor:       artifact.Actor{ID: claims.Subject, Kind: claims.ActorKind},
		Permissions: claims.Permissions,
		SessionID:   claims.SessionID, ParentSessionID: claims.ParentSessionID,
		Delegation: claims.DelegationChain, TaskID: claims.TaskID, Scopes: claims.Scopes,
		Expires: claims.ExpiresAt.Time, Token: token,
	}
	kept := c
	v.seen.put(hash, &kept)
	return &c, nil
}

// Bearer returns the token of an Authorization header's value, or "".
func Bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
