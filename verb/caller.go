package verb

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// A Permission lets its holder do one kind of thing. Viewer reads, contributor
// writes and comments, reviewer decides and moves lifecycles, admin configures.
// Contributor and reviewer include viewer; nothing else includes another.
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

// A Caller is who makes a request, as the server knows it from a verified token
// and stamps it on everything written. No request carries identity itself.
type Caller struct {
	Actor           artifact.Actor
	Permissions     []Permission
	SessionID       string
	ParentSessionID string
	Delegation      []artifact.DelegationStep
	TaskID          string
	Scopes          []string  // the token's claim; nil means all that the agent is a member of
	Expires         time.Time // when the token ends; zero for never
	Token           string    // the token itself, for forwarding; never logged
	RequestID       string
	Now             time.Time // frozen for the request
}

// Has reports whether c holds the permission or one that includes it.
func (c *Caller) Has(p Permission) bool {
	return slices.Contains(c.Permissions, p) ||
		p == Viewer && (slices.Contains(c.Permissions, Contributor) || slices.Contains(c.Permissions, Reviewer))
}

// Need returns a permission_denied error unless c holds the permission.
func (c *Caller) Need(p Permission, action string) error {
	if c.Has(p) {
		return nil
	}
	e := artifact.Denied(fmt.Sprintf("%s takes the permission %s", action, p))
	e.Details = map[string]any{"needs": p}
	return e
}

// VisibleScopes returns the scopes whose rows c may read.
func (c *Caller) VisibleScopes() []string { return []string{artifact.Commons} }

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
