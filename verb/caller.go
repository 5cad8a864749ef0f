package verb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// A Permission lets its holder do one kind of thing. Viewer reads, contributor
// writes and comments, reviewer decides and moves lifecycles, admin configures.
// Each of them reads too; nothing else includes another.
type Permission = string

// The permissions of a token.
const (
	Viewer      Permission = "viewer"
	Contributor Permission = "contributor"
	Reviewer    Permission = "reviewer"
	Admin       Permission = "admin"
)

// Permissions are all permissions there are.
var Permissions = []Permission{Viewer, Contributor, Reviewer, Admin}

// Roles are the permissions that an agent was granted, by scope. They are shared
// and never changed. Commons is not among them: there a token's own permissions
// count.
type Roles map[string][]Permission

// Access is what a server knows of agents beside their tokens. A [Directory]
// implements it.
type Access interface {
	// Roles returns what an agent was granted.
	Roles(agent string) Roles
	// Revoked reports whether a token no longer counts, though it has not expired.
	Revoked(t TokenID) bool
	// MayDelegate reports whether an agent may let others act for it, and whether
	// the agent is known here at all.
	MayDelegate(agent string) (may, known bool)
}

// A TokenID is what a revocation names a token by.
type TokenID struct {
	Issuer  string // "" for the network's own hub
	ID      string // the claim jti
	Subject string
	Session string
	Issued  time.Time
}

// A Caller is who makes a request, as the server knows it from a verified token
// and stamps it on everything written. No request carries identity itself.
//
// What a caller may do in commons, its token says; in any other scope the roles
// that it was granted there. Both are asked for anew each time, so that a stream
// ends with the right to read it.
type Caller struct {
	Actor           artifact.Actor
	Permissions     []Permission // in commons
	Access          Access       // nil: no scope but commons
	TokenID         TokenID
	SessionID       string
	ParentSessionID string
	Delegation      []artifact.DelegationStep
	TaskID          string
	Scopes          []string  // the token's claim; nil means all that the agent is a member of
	Anonymous       bool      // it has no token: it reads commons, and nothing else
	NodeID          string    // of the node that forwarded the request; "" for none
	NodeScopes      []string  // what that node, or the one that serves the request, is enrolled for; nil for no limit
	Expires         time.Time // when the token ends; zero for never
	Token           string    // the token itself, for forwarding; never logged
	RequestID       string
	Now             time.Time // frozen for the request

	still func() error // reports whether the token counts yet, beside its end and revocation; nil for yes
}

// Has reports whether c holds the permission, or one that includes it, in a
// scope.
func (c *Caller) Has(p Permission, scope string) bool {
	return includes(c.RolesIn(scope), p)
}

// includes reports whether one of the roles is p or includes it: any role reads,
// and no other role includes another.
func includes(roles []Permission, p Permission) bool {
	return p == Viewer && len(roles) > 0 || slices.Contains(roles, p)
}

// RolesIn returns c's permissions in a scope.
func (c *Caller) RolesIn(scope string) []Permission {
	if !c.admitted(scope) {
		return nil
	}
	if scope == artifact.Commons {
		return c.Permissions
	}
	if c.Access == nil {
		return nil
	}
	return c.Access.Roles(c.Actor.ID)[scope]
}

// admitted reports whether the token and the node let c into a scope at all.
func (c *Caller) admitted(scope string) bool {
	return scope == artifact.Commons ||
		(c.Scopes == nil || slices.Contains(c.Scopes, scope)) && (c.NodeScopes == nil || slices.Contains(c.NodeScopes, scope))
}

// Need returns a permission_denied error unless c holds one of the permissions
// in a scope. Ask it only of scopes that c may know of.
func (c *Caller) Need(scope, action string, one Permission, others ...Permission) error {
	return c.need(scope, action, append([]Permission{one}, others...))
}

func (c *Caller) need(scope, action string, anyOf []Permission) error {
	if slices.ContainsFunc(anyOf, func(p Permission) bool { return c.Has(p, scope) }) {
		return nil
	}
	return lacks(action, anyOf)
}

// NeedSomewhere returns a permission_denied error unless c holds one of the
// permissions in some scope.
func (c *Caller) NeedSomewhere(action string, one Permission, others ...Permission) error {
	return c.needSomewhere(action, append([]Permission{one}, others...))
}

func (c *Caller) needSomewhere(action string, anyOf []Permission) error {
	if c.need(artifact.Commons, action, anyOf) == nil {
		return nil
	}
	if c.Access != nil {
		for scope := range c.Access.Roles(c.Actor.ID) {
			if c.need(scope, action, anyOf) == nil {
				return nil
			}
		}
	}
	return lacks(action, anyOf)
}

func lacks(action string, anyOf []Permission) error {
	e := artifact.Denied(fmt.Sprintf("%s needs the permission %s", action, strings.Join(anyOf, " or ")))
	e.Details = map[string]any{"needs": strings.Join(anyOf, " or ")}
	return e
}

// VisibleScopes returns the scopes whose rows c may read, in order.
func (c *Caller) VisibleScopes() []string {
	var scopes []string
	if c.Has(Viewer, artifact.Commons) {
		scopes = append(scopes, artifact.Commons)
	}
	if c.Access == nil {
		return scopes
	}
	for scope := range c.Access.Roles(c.Actor.ID) {
		if c.Has(Viewer, scope) {
			scopes = append(scopes, scope)
		}
	}
	slices.Sort(scopes)
	return scopes
}

// Valid returns an error once c's token counts no more: it ended, it or its key
// was revoked, or an agent of its delegation chain may not delegate any more.
// What outlives a request asks it again and again.
func (c *Caller) Valid() error {
	switch {
	case !c.Expires.IsZero() && time.Now().After(c.Expires.Add(Leeway)):
		return Unauthenticated("the token has expired")
	case c.Access != nil && c.Access.Revoked(c.TokenID):
		return Unauthenticated("the token was revoked; get a new one")
	case c.still != nil:
		return c.still()
	}
	return nil
}

// ValidAgent reports whether a text can be the id of an agent.
func ValidAgent(id string) bool {
	return id != "" && id != "*" && len(id) <= 200 && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

type callerKey struct{}

// WithCaller returns a context that carries who calls.
func WithCaller(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns who calls, or a permission_denied error with the reason
// unauthenticated.
func CallerFrom(ctx context.Context) (*Caller, error) {
	c, ok := ctx.Value(callerKey{}).(*Caller)
	if !ok {
		return nil, Unauthenticated("this needs a token")
	}
	return c, nil
}

// Unauthenticated returns the error of a request without a valid token.
func Unauthenticated(message string) *artifact.Error {
	return &artifact.Error{
		Code: artifact.CodePermissionDenied, Reason: artifact.ReasonUnauthenticated, Message: message,
	}
}
