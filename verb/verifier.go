package verb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
)

// minSecret is the length of the shortest secret that HS256 is taken with, in
// bytes: its hash's (RFC 7518 §3.2).
const minSecret = 32

// A Verifier turns a token into a [Caller]. A token found valid is kept, since a
// signature costs more than a read does; that it still counts is looked at each
// time. It is safe for concurrent use, and not changed once it is used.
type Verifier struct {
	Keys    KeySource // of the network's hub
	Issuers []Issuer  // those outside the network whose tokens are taken too
	// Audiences are the audiences taken; empty means [Audience] alone. A node
	// adds its [NodeAudience]; the hub does not.
	Audiences []string
	// AnonymousRead lets those without a token read commons, at the doors that
	// [AuthenticateReader] guards.
	AnonymousRead bool
	Access        Access // nil: nobody is known and nothing revoked
	// TrustIssuer takes the hub's word for delegations by agents that are not
	// known here. A node sets it: it knows only the agents of its scopes.
	TrustIssuer bool
	// Secret, of at least 32 bytes, verifies tokens of the network by HS256. It
	// is for a hub in development: whoever verifies with it can sign too.
	Secret []byte
	// Nodes and Hub are set by the hub alone: the nodes whose credentials it
	// takes, and its id, which the credentials are for.
	Nodes NodeKeys
	Hub   string

	once    sync.Once // guards the writing of what follows
	trusted map[string]*trust
	broken  error

	seen  recent[*verified]
	nodes recent[*nodeCredential]
}

// verified is a token whose signature was found valid.
type verified struct {
	caller   Caller
	audience []string
	issuer   *trust
	key      *PublicKey // nil for the secret
}

// Check reports what is wrong with the verifier's configuration. A verifier that
// fails it takes no token.
func (v *Verifier) Check() error {
	v.once.Do(func() { v.trusted, v.broken = v.trust() })
	return v.broken
}

// Run keeps the key sets of outside issuers current, and the hub's when it is a
// [RemoteKeys], until ctx ends.
func (v *Verifier) Run(ctx context.Context) error {
	if err := v.Check(); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for name, t := range v.trusted {
		if r, ok := t.keys.(*RemoteKeys); ok && name != ownIssuer {
			g.Go(func() error { return r.Run(ctx) })
		}
	}
	g.Go(func() error {
		<-ctx.Done()
		return nil
	})
	return g.Wait()
}

func (v *Verifier) trust() (map[string]*trust, error) {
	if n := len(v.Secret); n > 0 && n < minSecret {
		return nil, fmt.Errorf("the secret for HS256 has %d bytes; give at least %d random ones", n, minSecret)
	}
	own := &trust{keys: v.Keys}
	if own.keys == nil {
		own.keys = StaticKeys{}
	}
	trusted := map[string]*trust{"": own, ownIssuer: own}
	var prefixes []string
	for _, i := range v.Issuers {
		if err := i.check(); err != nil {
			return nil, err
		}
		if trusted[i.Name] != nil {
			return nil, fmt.Errorf("issuer %s is given twice", i.Name)
		}
		t := newTrust(i)
		for _, other := range prefixes {
			if strings.HasPrefix(t.subjects, other) || strings.HasPrefix(other, t.subjects) {
				return nil, fmt.Errorf("issuer %s: its prefix %q and another's, %q, could name one agent; give it a different one", i.Name, t.subjects, other)
			}
		}
		trusted[i.Name], prefixes = t, append(prefixes, t.subjects)
	}
	return trusted, nil
}

// Verify checks a token's form, signature, times, audience and delegation chain,
// and that it was not revoked.
func (v *Verifier) Verify(ctx context.Context, token string) (*Caller, error) {
	return v.verify(ctx, token, "")
}

// verify is Verify for a token that a node forwarded, which may be for that node
// alone; "" is no node.
func (v *Verifier) verify(ctx context.Context, token, node string) (*Caller, error) {
	if token == "" {
		return nil, Unauthenticated("this needs a token: Authorization: Bearer <token>")
	}
	if len(token) > maxToken {
		return nil, Unauthenticated(fmt.Sprintf("the token is longer than %d bytes", maxToken))
	}
	hash := artifact.HashBytes([]byte(token))
	known := v.seen.get(hash)
	if known == nil || !known.held() {
		var err error
		if known, err = v.check(ctx, token); err != nil {
			return nil, err
		}
		v.seen.put(hash, known)
	}
	if err := v.checkAudience(known, node); err != nil {
		return nil, err
	}
	c := known.caller
	c.Token = token
	if err := c.Valid(); err != nil {
		return nil, err
	}
	return &c, nil
}

// check checks what does not change while a token's key is held.
func (v *Verifier) check(ctx context.Context, token string) (*verified, error) {
	if err := v.Check(); err != nil {
		return nil, fmt.Errorf("tokens are not verified: %w", err)
	}
	t, err := parseToken(token)
	if err != nil {
		return nil, Unauthenticated("the token is not valid: it has no form that is known here")
	}
	issuer := v.trusted[t.claims.Issuer]
	if issuer == nil {
		return nil, Unauthenticated("the token is of an issuer that is not trusted here")
	}
	known := &verified{issuer: issuer, audience: t.claims.Audience}
	if known.key, err = v.checkSignature(ctx, issuer, t); err != nil {
		return nil, err
	}
	issuer.adapt(&t.claims)
	c := &t.claims
	if err := c.checkTimes(); err != nil {
		return nil, Unauthenticated(err.Error())
	}
	if err := c.Validate(); err != nil {
		return nil, Unauthenticated("the token is not valid: " + err.Error())
	}
	known.caller = Caller{
		Actor:       artifact.Actor{ID: c.Subject, Kind: c.ActorKind},
		Permissions: c.Permissions, Access: v.Access,
		TokenID:   TokenID{Issuer: issuer.Name, ID: c.ID, Subject: c.Subject, Session: c.SessionID, Issued: c.IssuedAt.Time},
		SessionID: c.SessionID, ParentSessionID: c.ParentSessionID,
		Delegation: c.DelegationChain, TaskID: c.TaskID, Scopes: c.Scopes,
		Expires: c.ExpiresAt.Time,
	}
	known.caller.still = func() error { return v.stillCounts(known) }
	return known, nil
}

// checkSignature returns the key that signed a token; nil for the secret.
func (v *Verifier) checkSignature(ctx context.Context, issuer *trust, t *parsedToken) (*PublicKey, error) {
	invalid := Unauthenticated("the token is not valid: its signature is not its issuer's; get a new one")
	if t.algorithm == jwt.SigningMethodHS256.Alg() {
		if !issuer.own() || len(v.Secret) < minSecret || jwt.SigningMethodHS256.Verify(t.signed, t.signature, v.Secret) != nil {
			return nil, invalid
		}
		return nil, nil //nolint:nilnil // the secret is no public key
	}
	if !validName(t.kid) {
		return nil, Unauthenticated("the token names no key (kid)")
	}
	k, err := issuer.keys.PublicKey(ctx, t.kid)
	if err != nil {
		return nil, err
	}
	if t.verify(k) != nil {
		return nil, invalid
	}
	return k, nil
}

// held reports whether the key that signed the token still counts.
func (k *verified) held() bool { return k.key == nil || k.issuer.keys.Holds(k.key) }

func (v *Verifier) checkAudience(known *verified, node string) error {
	taken := known.issuer.Audiences
	if len(taken) == 0 {
		taken = v.Audiences
	}
	if len(taken) == 0 {
		taken = ownAudiences
	}
	for _, a := range known.audience {
		if slices.Contains(taken, a) || node != "" && a == NodeAudience(node) {
			return nil
		}
	}
	return Unauthenticated("the token is for another audience; get one for " + strings.Join(taken, " or "))
}

var ownAudiences = []string{Audience}

// stillCounts checks what may change while a token lives, beside its revocation.
func (v *Verifier) stillCounts(known *verified) error {
	if !known.held() {
		return Unauthenticated("the key that signed the token was retired; get a new one")
	}
	for _, step := range known.caller.Delegation {
		may, isKnown := false, false
		if v.Access != nil {
			may, isKnown = v.Access.MayDelegate(step.ActorID)
		}
		if may || !isKnown && v.TrustIssuer && known.issuer.own() {
			continue
		}
		e := artifact.Denied("an agent in the token's delegation chain may not delegate; have the agent allowed to, or use a token without it")
		e.Reason, e.Details = artifact.ReasonDelegationRefused, map[string]any{"agent": step.ActorID}
		return e
	}
	return nil
}

// recent keeps what was verified lately, by the hash of the token. Of what it has
// not been asked for lately, it forgets the older half at a time.
type recent[T any] struct {
	mu       sync.RWMutex // guards what follows
	new, old map[artifact.Hash]T
}

const maxRecent = 4096 // tokens in each half

func (r *recent[T]) get(token artifact.Hash) (found T) {
	r.mu.RLock()
	found, ok := r.new[token]
	if ok {
		r.mu.RUnlock()
		return found
	}
	found, ok = r.old[token]
	r.mu.RUnlock()
	if ok {
		r.put(token, found)
	}
	return found
}

func (r *recent[T]) put(token artifact.Hash, found T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.new == nil || len(r.new) >= maxRecent {
		r.old, r.new = r.new, make(map[artifact.Hash]T)
	}
	r.new[token] = found
}
