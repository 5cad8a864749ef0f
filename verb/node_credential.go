package verb

import (
	"context"
	"crypto/ed25519"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
)

// NodeHeader is the header in which a node shows its credential when it forwards
// a call beside the caller's own token.
const NodeHeader = "SciDEX-Node"

const (
	nodeIssuer       = "node:" // before a node's id, in credentials and audiences
	hubAudience      = "hub:"  // before the hub's id
	nodeCredentialID = "node"  // of the key; a node has one

	credentialLife    = 2 * time.Minute
	maxCredentialLife = 5 * time.Minute // of those taken
)

// A NodeKey is the key by which a node proves to its hub which node it is.
type NodeKey struct {
	Node    string // its id
	Private ed25519.PrivateKey

	mu      sync.Mutex // guards what follows
	hub     string
	current string
	until   time.Time
}

// NodeKeys are the nodes that a hub knows. A node that is not known, or was
// revoked, is not ok.
type NodeKeys interface {
	Node(id string) (key ed25519.PublicKey, scopes []string, ok bool)
}

// Sign returns a new credential for a hub, which holds for two minutes.
func (k *NodeKey) Sign(hubID string) (string, error) {
	now := time.Now()
	t := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.RegisteredClaims{
		Issuer: nodeIssuer + k.Node, Subject: nodeIssuer + k.Node, Audience: jwt.ClaimStrings{hubAudience + hubID},
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(credentialLife)), ID: uuid.NewString(),
	})
	t.Header["kid"] = nodeCredentialID
	return t.SignedString(k.Private)
}

// Credential returns a credential for a hub that holds for another minute at
// least: the last one while it does.
func (k *NodeKey) Credential(hubID string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hub == hubID && time.Until(k.until) > credentialLife/2 {
		return k.current, nil
	}
	token, err := k.Sign(hubID)
	if err == nil {
		k.hub, k.current, k.until = hubID, token, time.Now().Add(credentialLife)
	}
	return token, err
}

// nodeCredential is a credential whose signature was found valid.
type nodeCredential struct {
	node    string
	key     *PublicKey
	expires time.Time
}

// VerifyNode checks a node's credential and returns the node's id and the scopes
// that it is enrolled for, which are never nil.
func (v *Verifier) VerifyNode(_ context.Context, token string) (id string, scopes []string, err error) {
	refused := Unauthenticated("the node's credential is not valid; is the node enrolled here, and are the clocks right?")
	if v.Nodes == nil || v.Hub == "" || token == "" || len(token) > maxToken {
		return "", nil, refused
	}
	hash := artifact.HashBytes([]byte(token))
	c := v.nodes.get(hash)
	fresh := c == nil
	if fresh {
		if c = v.checkCredential(token); c == nil {
			return "", nil, refused
		}
	}
	public, scopes, ok := v.Nodes.Node(c.node)
	if !ok || !c.key.equal(nodePublicKey(public)) || !time.Now().Before(c.expires.Add(Leeway)) {
		return "", nil, refused
	}
	if fresh {
		v.nodes.put(hash, c)
	}
	return c.node, append([]string{}, scopes...), nil
}

// checkCredential checks what does not change while a node keeps its key.
func (v *Verifier) checkCredential(token string) *nodeCredential {
	t, err := parseToken(token)
	if err != nil {
		return nil
	}
	id, ok := strings.CutPrefix(t.claims.Issuer, nodeIssuer)
	if !ok || !validName(id) || t.claims.Subject != t.claims.Issuer {
		return nil
	}
	public, _, ok := v.Nodes.Node(id)
	if !ok || len(public) != ed25519.PublicKeySize {
		return nil
	}
	key := nodePublicKey(public)
	switch {
	case t.verify(key) != nil, t.claims.checkTimes() != nil,
		t.claims.ExpiresAt.Sub(t.claims.IssuedAt.Time) > maxCredentialLife,
		len(t.claims.Audience) != 1 || t.claims.Audience[0] != hubAudience+v.Hub:
		return nil
	}
	return &nodeCredential{node: id, key: key, expires: t.claims.ExpiresAt.Time}
}

func nodePublicKey(k ed25519.PublicKey) *PublicKey {
	return newPublicKey(nodeCredentialID, jwt.SigningMethodEdDSA.Alg(), k, k)
}

// VerifyRequest verifies a token that came in a request with these headers. When
// they hold a node's credential, it must be valid; the token may then be for that
// node alone, and the caller sees no more than the node is enrolled for.
func (v *Verifier) VerifyRequest(ctx context.Context, head http.Header, token string) (*Caller, error) {
	credentials := head.Values(NodeHeader)
	if len(credentials) == 0 {
		return v.verify(ctx, token, "")
	}
	if len(credentials) > 1 {
		return nil, Unauthenticated("the request has more than one " + NodeHeader + " header")
	}
	node, scopes, err := v.VerifyNode(ctx, credentials[0])
	if err != nil {
		return nil, err
	}
	c, err := v.verify(ctx, token, node)
	if err != nil {
		return nil, err
	}
	c.NodeID, c.NodeScopes = node, scopes
	return c, nil
}
