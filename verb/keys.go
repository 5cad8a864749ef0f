package verb

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
)

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
// among audience, session and token id is filled in.
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

// A PublicKey verifies tokens by one algorithm.
type PublicKey struct {
	ID        string
	Algorithm string // EdDSA, ES256 or RS256
	key       crypto.PublicKey
	print     artifact.Hash // of the algorithm and the key
}

func newPublicKey(id, algorithm string, key crypto.PublicKey, material ...[]byte) *PublicKey {
	b := []byte(algorithm)
	for _, m := range material {
		b = append(append(b, 0), m...)
	}
	return &PublicKey{ID: id, Algorithm: algorithm, key: key, print: artifact.HashBytes(b)}
}

// equal reports whether both keys have one id, algorithm and value.
func (k *PublicKey) equal(other *PublicKey) bool {
	return k != nil && other != nil && k.ID == other.ID && k.print == other.print
}

// Public returns k's public half.
func (k *Key) Public() *PublicKey {
	public, _ := k.Private.Public().(ed25519.PublicKey) // NewKey checked it
	return newPublicKey(k.ID, jwt.SigningMethodEdDSA.Alg(), public, public)
}

// A JWKS is a set of public keys as RFC 7517 writes it.
type JWKS struct {
	Keys []JWK `json:"keys"`
}

// A JWK is one public key: Ed25519 (RFC 8037), or P-256 or RSA (RFC 7518).
type JWK struct {
	KeyType   string `json:"kty"`
	Curve     string `json:"crv,omitempty"`
	ID        string `json:"kid"`
	Use       string `json:"use,omitempty"`
	Algorithm string `json:"alg,omitempty"`
	X         string `json:"x,omitempty"` // this and what follows: base64url
	Y         string `json:"y,omitempty"`
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
}

// PublicJWK returns k's public half.
func (k *Key) PublicJWK() JWK {
	public, _ := k.Private.Public().(ed25519.PublicKey) // NewKey checked it
	return JWK{
		KeyType: "OKP", Curve: "Ed25519", ID: k.ID, Use: "sig", Algorithm: "EdDSA",
		X: base64.RawURLEncoding.EncodeToString(public),
	}
}

// PublicKey returns the key, or why it verifies no tokens.
func (j JWK) PublicKey() (*PublicKey, error) {
	if !validName(j.ID) {
		return nil, errors.New("kid is 1 to 200 printable ASCII characters without space")
	}
	if j.Use != "" && j.Use != "sig" {
		return nil, fmt.Errorf("key %s is not for signatures", j.ID)
	}
	k, err := j.decode()
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", j.ID, err)
	}
	if j.Algorithm != "" && j.Algorithm != k.Algorithm && (j.Algorithm != "Ed25519" || k.Algorithm != "EdDSA") { // RFC 9864 renames it
		return nil, fmt.Errorf("key %s is for %s; tokens are verified by EdDSA, ES256 or RS256", j.ID, j.Algorithm)
	}
	return k, nil
}

func (j JWK) decode() (*PublicKey, error) {
	var parts [4][]byte
	for i, s := range []string{j.X, j.Y, j.N, j.E} {
		var err error
		if parts[i], err = base64.RawURLEncoding.DecodeString(s); err != nil {
			return nil, err
		}
	}
	x, y, n, e := parts[0], parts[1], parts[2], new(big.Int).SetBytes(parts[3])
	switch {
	case j.KeyType == "OKP" && j.Curve == "Ed25519":
		if len(x) != ed25519.PublicKeySize {
			return nil, errors.New("an Ed25519 key has 32 bytes")
		}
		return newPublicKey(j.ID, jwt.SigningMethodEdDSA.Alg(), ed25519.PublicKey(x), x), nil
	case j.KeyType == "EC" && j.Curve == "P-256":
		if len(x) != 32 || len(y) != 32 {
			return nil, errors.New("the coordinates of a P-256 key have 32 bytes")
		}
		key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
		if err != nil {
			return nil, err
		}
		return newPublicKey(j.ID, jwt.SigningMethodES256.Alg(), key, x, y), nil
	case j.KeyType == "RSA":
		key := &rsa.PublicKey{N: new(big.Int).SetBytes(n)}
		if bits := key.N.BitLen(); bits < 2048 || bits > 8192 {
			return nil, fmt.Errorf("an RSA key of %d bits; it has 2048 to 8192", bits)
		}
		if e.BitLen() < 2 || e.BitLen() > 31 || e.Bit(0) == 0 {
			return nil, errors.New("an RSA key's exponent is odd, at least 3 and less than 2^31")
		}
		key.E = int(e.Int64())
		return newPublicKey(j.ID, jwt.SigningMethodRS256.Alg(), key, n, parts[3]), nil
	}
	return nil, fmt.Errorf("keys of kind %q %q are not used here", j.KeyType, j.Curve)
}

// A KeySource finds the public keys of one issuer.
type KeySource interface {
	// PublicKey returns the key of an id. Its error is unauthenticated when the
	// issuer has no such key, and unavailable when that cannot be told now.
	PublicKey(ctx context.Context, kid string) (*PublicKey, error)
	// Holds reports, without asking anyone, whether a key that PublicKey returned
	// still counts.
	Holds(k *PublicKey) bool
}

// A StaticKeys is a KeySource of keys in memory, by id. It does not change.
type StaticKeys map[string]*PublicKey

// KeysOf returns the keys of a set. Those that verify no tokens are passed over,
// and so are different keys of one id.
func KeysOf(set JWKS) StaticKeys {
	keys := make(StaticKeys, len(set.Keys))
	for _, j := range set.Keys {
		k, err := j.PublicKey()
		if err != nil {
			continue
		}
		if other, twice := keys[k.ID]; twice && !k.equal(other) {
			k = nil
		}
		keys[j.ID] = k
	}
	maps.DeleteFunc(keys, func(_ string, k *PublicKey) bool { return k == nil })
	return keys
}

// PublicKey implements [KeySource].
func (s StaticKeys) PublicKey(_ context.Context, kid string) (*PublicKey, error) {
	if k, ok := s[kid]; ok {
		return k, nil
	}
	return nil, UnknownKey()
}

// Holds implements [KeySource].
func (s StaticKeys) Holds(k *PublicKey) bool { return k.equal(s[k.ID]) }

// UnknownKey returns the error of a [KeySource] whose issuer has no such key.
func UnknownKey() error {
	return Unauthenticated("the token is signed by no key of its issuer; get a new one")
}
