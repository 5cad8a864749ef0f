package verb

import (
	"cmp"
	"regexp"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// The verbs on scopes, their members, and tokens.
var (
	ScopesCreate = Verb[ScopesCreateRequest, ScopeResult]{
		Name:    "scopes/create",
		Summary: "Make a private scope, such as a lab's.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Admin}, Where: InCommons},
	}
	ScopesList = Verb[ScopesListRequest, ScopesListResponse]{
		Name:    "scopes/list",
		Summary: "List the scopes that you may see, with your roles in each.",
		Effect:  Read,
		Needs:   Needs{Note: "an admin in commons sees all scopes"},
	}
	ScopesMembers = Verb[ScopesMembersRequest, ScopesMembersResponse]{
		Name:    "scopes/members",
		Summary: "List the members of a scope and their roles.",
		Effect:  Read,
		Needs:   Needs{Note: "any member of the scope, or an admin in commons"},
	}
	ScopesGrant = Verb[ScopesGrantRequest, MembershipResult]{
		Name:    "scopes/grant",
		Summary: "Give an agent roles in a scope, in place of those it has.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Admin}, Note: "in the scope, to agents that you may know of, or in commons, to any"},
	}
	ScopesRevoke = Verb[ScopesRevokeRequest, MembershipResult]{
		Name:    "scopes/revoke",
		Summary: "End an agent's membership of a scope.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Admin}, Note: "in the scope or in commons"},
	}
	TokensRevoke = Verb[TokensRevokeRequest, RevocationResult]{
		Name:    "tokens/revoke",
		Summary: "End your own token, or, as an admin, any token or all of an agent's, before its time.",
		Effect:  Write,
		Needs:   Needs{Note: "an admin in commons for any token but the one that calls, and those of the calling agent"},
	}
)

// A Scope is who may see what is in it.
type Scope struct {
	ID        string       `json:"id"`
	Title     string       `json:"title"`
	CreatedAt time.Time    `json:"created_at"`
	Roles     []Permission `json:"roles"` // the caller's
}

// ScopesCreateRequest asks for a scope.
type ScopesCreateRequest struct {
	ID    string `json:"id" jsonschema:"lower-case letters, digits and hyphens, such as lab-a; ids of its artifacts begin with it"`
	Title string `json:"title" jsonschema:"one line"`
	WriteOptions
}

// ValidScope reports whether a text can be the id of a scope.
func ValidScope(id string) bool { return scopeID.MatchString(id) }

var scopeID = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// ScopesListRequest asks for the scopes that the caller may see.
type ScopesListRequest struct{}

// ScopesListResponse lists scopes by id.
type ScopesListResponse struct {
	Scopes []Scope `json:"scopes"`
}

// ScopesMembersRequest names a scope.
type ScopesMembersRequest struct {
	Scope  string `json:"scope"`
	Limit  int    `json:"limit,omitempty" jsonschema:"members a page, 1 to 200; the default is 50"`
	Cursor string `json:"cursor,omitempty" jsonschema:"next_cursor of the page before"`
}

// ScopesMembersResponse is a page of members, by agent.
type ScopesMembersResponse struct {
	Members    []Member `json:"members"`
	NextCursor string   `json:"next_cursor,omitempty"` // absent on the last page
}

// A Member is an agent with its roles in a scope.
type Member struct {
	Agent     string       `json:"agent"`
	Roles     []Permission `json:"roles"`
	GrantedAt time.Time    `json:"granted_at"`
	GrantedBy string       `json:"granted_by"`
}

// ScopesGrantRequest gives roles.
type ScopesGrantRequest struct {
	Scope     string       `json:"scope"`
	Agent     string       `json:"agent" jsonschema:"id of the agent, as sub in its tokens"`
	Roles     []Permission `json:"roles" jsonschema:"viewer, contributor, reviewer, admin: all the roles it is to have"`
	AgentKind string       `json:"agent_kind,omitempty" jsonschema:"kind of an agent that is new here: human (the default), ai_local, ai_external, ai_swarm"`
	WriteOptions
}

// ScopesRevokeRequest ends a membership.
type ScopesRevokeRequest struct {
	Scope string `json:"scope"`
	Agent string `json:"agent"`
	WriteOptions
}

// TokensRevokeRequest names what is to count no more. Without a name it is the
// token that the request is made with.
type TokensRevokeRequest struct {
	TokenID string `json:"token_id,omitempty" jsonschema:"jti of a token"`
	Issuer  string `json:"issuer,omitempty" jsonschema:"iss of that token; absent for the hub's own"`
	Agent   string `json:"agent,omitempty" jsonschema:"id of an agent, all of whose tokens up to now are to end"`
	Session bool   `json:"session,omitempty" jsonschema:"true ends all tokens of the session that the request's token belongs to"`
	WriteOptions
}

// Receipt confirms a write that made no artifact.
type Receipt struct {
	RequestID        string       `json:"request_id"`
	Idempotency      string       `json:"idempotency"`
	Seq              artifact.Seq `json:"seq"` // last seq of the commit; 0 when nothing was written
	ConsistencyToken string       `json:"consistency_token,omitempty"`
}

// NewReceipt returns the receipt of a request that is not placed yet.
func NewReceipt(requestID string) Receipt {
	return Receipt{RequestID: requestID, Idempotency: IdempotencyNone}
}

// Place implements [Placed].
func (r *Receipt) Place(seq artifact.Seq, token, outcome string) {
	r.Seq, r.ConsistencyToken, r.Idempotency = seq, token, cmp.Or(outcome, r.Idempotency)
}

// ScopeResult confirms a new scope.
type ScopeResult struct {
	Scope Scope `json:"scope"`
	Receipt
}

// MembershipResult tells what an agent may do in a scope after the write.
type MembershipResult struct {
	Scope string       `json:"scope"`
	Agent string       `json:"agent"`
	Roles []Permission `json:"roles"`
	Receipt
}

// RevocationResult confirms a revocation.
type RevocationResult struct {
	Revoked string `json:"revoked"` // hash of the token's issuer and id, or of the agent
	Receipt
}
