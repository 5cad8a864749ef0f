package verb

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/scidex-ai/substrate/artifact"
)

// Audience is the audience of tokens that any hub or node of the network takes.
const Audience = "scidex"

// NodeAudience returns the audience of tokens for one node, which the hub takes
// only from that node.
func NodeAudience(node string) string { return nodeIssuer + node }

// Leeway is how far the clocks of a network may differ: a token is taken so long
// before it begins and after it ends.
const Leeway = 30 * time.Second

// ownIssuer may stand in tokens of the network's own hub, which need no iss.
const ownIssuer = "scidex"

// Bounds of a token. What is larger is refused unread.
const (
	maxToken      = 16 << 10 // bytes
	maxTokenDepth = 16       // nesting of its JSON
	maxNames      = 256      // entries of a list of ids in it
	maxDelegation = 16       // steps
)

// latestExpiry keeps times within what every reader of them can write: the end
// of the year 9999.
var latestExpiry = time.Unix(253402300799, 0)

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
	Scopes          []string                  `json:"scopes,omitzero"`     // nil for all that the agent is a member of, empty for commons alone
	AuthTime        *jwt.NumericDate          `json:"auth_time,omitempty"` // when the session began, if before this token
}

// member returns where a member of a token's claims is kept; nil for one that
// means nothing here.
func (c *Claims) member(name string) any {
	switch name {
	case "iss":
		return &c.Issuer
	case "sub":
		return &c.Subject
	case "aud":
		return &c.Audience
	case "exp":
		return &c.ExpiresAt
	case "nbf":
		return &c.NotBefore
	case "iat":
		return &c.IssuedAt
	case "jti":
		return &c.ID
	case "actor_kind":
		return &c.ActorKind
	case "permissions":
		return &c.Permissions
	case "session_id":
		return &c.SessionID
	case "parent_session_id":
		return &c.ParentSessionID
	case "delegation_chain":
		return &c.DelegationChain
	case "task_id":
		return &c.TaskID
	case "scopes":
		return (*scopeList)(&c.Scopes)
	case "auth_time":
		return &c.AuthTime
	}
	return nil
}

// Validate reports what is wrong with the claims that say who calls and what for.
func (c *Claims) Validate() error {
	if !validName(c.Subject) {
		return errors.New("sub is 1 to 200 printable ASCII characters without space")
	}
	if !ValidAgent(c.Subject) || c.Subject == anonymous || strings.HasPrefix(c.Subject, nodeIssuer) {
		return fmt.Errorf("sub is not %s, and does not begin with %s: these name callers without a token, and nodes", anonymous, nodeIssuer)
	}
	if !slices.Contains(ActorKinds, c.ActorKind) {
		return fmt.Errorf("actor_kind is one of %s", strings.Join(ActorKinds, ", "))
	}
	for _, p := range c.Permissions {
		if !slices.Contains(Permissions, p) {
			return fmt.Errorf("permissions are among %s", strings.Join(Permissions, ", "))
		}
	}
	if len(c.Permissions) > maxNames || len(c.Scopes) > maxNames || len(c.Audience) > maxNames {
		return fmt.Errorf("permissions, scopes and aud have at most %d entries", maxNames)
	}
	if slices.ContainsFunc(c.Scopes, func(s string) bool { return !validName(s) }) {
		return errors.New("a scope is 1 to 200 printable ASCII characters without space")
	}
	if len(c.DelegationChain) > maxDelegation {
		return fmt.Errorf("delegation_chain has at most %d steps", maxDelegation)
	}
	texts := []string{c.SessionID, c.ParentSessionID, c.TaskID, c.ID}
	for _, s := range c.DelegationChain {
		if !validName(s.ActorID) {
			return errors.New("each actor_id of delegation_chain is 1 to 200 printable ASCII characters without space")
		}
		texts = append(texts, s.SessionID, s.TaskID)
	}
	if slices.ContainsFunc(texts, func(s string) bool { return s != "" && !validName(s) }) {
		return errors.New("ids of tokens, sessions and tasks are at most 200 printable ASCII characters without space")
	}
	return nil
}

// validName reports whether a text can be an id of any kind in a token.
func validName(s string) bool { return ValidAgent(s) }

// checkTimes reports whether a token holds now.
func (c *Claims) checkTimes() error {
	now := time.Now()
	switch {
	case c.ID == "" || c.IssuedAt == nil || c.ExpiresAt == nil:
		return errors.New("the token lacks jti, iat or exp; have it issued anew with all three")
	case c.ExpiresAt.After(latestExpiry):
		return errors.New("the token ends after the year 9999; have it issued anew")
	case !now.Before(c.ExpiresAt.Add(Leeway)):
		return errors.New("the token has expired; get a new one")
	case c.NotBefore != nil && now.Before(c.NotBefore.Add(-Leeway)):
		return errors.New("the token is not valid yet; wait, or set the clocks right")
	case now.Before(c.IssuedAt.Add(-Leeway)):
		return errors.New("the token was issued in the future; set the clocks right")
	}
	return nil
}

// A parsedToken is a token whose signature was not checked yet.
type parsedToken struct {
	algorithm string
	kid       string
	claims    Claims
	signed    string // what the signature is over
	signature []byte
}

// verify checks the signature. The algorithm is the key's, never the token's.
func (t *parsedToken) verify(k *PublicKey) error {
	if t.algorithm != k.Algorithm {
		return fmt.Errorf("the key %s is for %s", k.ID, k.Algorithm)
	}
	return jwt.GetSigningMethod(k.Algorithm).Verify(t.signed, t.signature, k.key)
}

// parseToken reads a token. It is stricter than JWT asks for: of all texts that
// decode to one token it takes a single one, and no member may occur twice.
func parseToken(token string) (*parsedToken, error) {
	if len(token) > maxToken {
		return nil, fmt.Errorf("the token is longer than %d bytes", maxToken)
	}
	head, rest, _ := strings.Cut(token, ".")
	body, signature, ok := strings.Cut(rest, ".")
	if !ok {
		return nil, errors.New("the token has not three parts")
	}
	t := &parsedToken{signed: token[:len(head)+1+len(body)]}
	var err error
	if t.signature, err = decodePart(signature); err != nil {
		return nil, err
	}
	err = decodeMembers(head, func(name string) any {
		switch name {
		case "alg":
			return &t.algorithm
		case "kid":
			return &t.kid
		case "crit":
			return new(noExtension)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, decodeMembers(body, t.claims.member)
}

// A noExtension is the header's list of extensions that must be understood, of
// which there are none here (RFC 7515 §4.1.11).
type noExtension struct{}

func (*noExtension) UnmarshalJSON([]byte) error {
	return errors.New("the token's header asks for extensions that are not known here")
}

// A scopeList is the claim scopes. It is not null, which could be meant as all
// or as none.
type scopeList []string

func (l *scopeList) UnmarshalJSON(raw []byte) error {
	if raw[0] == 'n' {
		return errors.New("it is a list, or left out")
	}
	return json.Unmarshal(raw, (*[]string)(l))
}

// decodeMembers decodes a part of a token, an object, into what member returns
// for each name. Unlike encoding/json it does not take SUB for sub.
func decodeMembers(part string, member func(name string) any) error {
	raw, err := decodePart(part)
	if err != nil {
		return err
	}
	if problems := artifact.CheckJSON(raw, "", maxTokenDepth); problems != nil {
		return fmt.Errorf("the token's JSON: %s: %s", problems[0].Path, problems[0].Message)
	}
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(raw, space), []byte("{"))
	if !ok {
		return errors.New("the token's JSON is no object")
	}
	for {
		i := bytes.IndexByte(rest, '"') // before a name there are only commas and space
		if i < 0 {
			return nil
		}
		rest = rest[i:]
		var name string
		end := stringEnd(rest)
		if err := decodeString(rest[:end], &name); err != nil {
			return err
		}
		rest = rest[end:]
		rest = bytes.TrimLeft(rest[bytes.IndexByte(rest, ':')+1:], space)
		end = valueEnd(rest)
		if err := decodeMember(rest[:end], member(name)); err != nil {
			return fmt.Errorf("the token's %s: %w", name, err)
		}
		rest = rest[end:]
	}
}

const space = " \t\r\n" // between tokens of JSON

func decodeMember(raw []byte, into any) error {
	switch into := into.(type) {
	case nil:
		return nil
	case *string:
		return decodeString(raw, into)
	}
	return json.Unmarshal(raw, into)
}

func decodeString(raw []byte, into *string) error {
	if raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		*into = string(raw[1 : len(raw)-1])
		return nil
	}
	return json.Unmarshal(raw, into)
}

// stringEnd returns where the string ends that raw, which is well formed, begins
// with.
func stringEnd(raw []byte) int {
	for i := 1; ; i++ {
		switch raw[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

// valueEnd returns where the value ends that raw, which is well formed, begins
// with. Space after a number may count with it.
func valueEnd(raw []byte) int {
	depth := 0
	for i := 0; ; i++ {
		switch raw[i] {
		case '"':
			i += stringEnd(raw[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
}

// decodePart decodes base64url without padding, of which Go's decoder would pass
// over line breaks.
func decodePart(s string) ([]byte, error) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, errors.New("the token has a line break")
	}
	return base64.RawURLEncoding.Strict().DecodeString(s)
}

// Bearer returns the token of an Authorization header's value, or "".
func Bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
