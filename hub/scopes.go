package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// mayKnow returns the scopes that a caller may read or, as an admin, manage; nil
// for all.
func mayKnow(c *verb.Caller) []string {
	if c.Has(verb.Admin, artifact.Commons) {
		return nil
	}
	return append([]string{}, c.VisibleScopes()...)
}

// noScope is the answer for a scope that is not there or that the caller may not
// know of.
func noScope(id string) *artifact.Error { return artifact.NotFound("scope:" + id) }

// scopesList answers the verb of that name.
func (h *Hub) scopesList(ctx context.Context, _ verb.ScopesListRequest) (out verb.ScopesListResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	const query = `
		SELECT id, title, created_at FROM scope
		WHERE $1::text[] IS NULL OR id = ANY ($1)
		ORDER BY id`
	rows, err := h.db.Query(ctx, query, mayKnow(c))
	if err != nil {
		return out, callerError(fmt.Errorf("list scopes: %w", err))
	}
	out.Scopes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s verb.Scope, err error) {
		err = row.Scan(&s.ID, &s.Title, &s.CreatedAt)
		s.CreatedAt = s.CreatedAt.UTC()
		s.Roles = append([]verb.Permission{}, c.RolesIn(s.ID)...)
		return s, err
	})
	if err != nil {
		return out, callerError(fmt.Errorf("list scopes: %w", err))
	}
	return out, nil
}

// scopesMembers answers the verb of that name.
func (h *Hub) scopesMembers(ctx context.Context, in verb.ScopesMembersRequest) (out verb.ScopesMembersResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	limit, err := verb.PageSize(in.Limit)
	if err != nil {
		return out, err
	}
	after, err := verb.DecodeNameCursor(in.Cursor, "members "+in.Scope)
	if err != nil {
		return out, err
	}
	const known = `SELECT EXISTS (SELECT FROM scope WHERE ($1::text[] IS NULL OR id = ANY ($1)) AND id = $2)`
	var exists bool
	if err := h.db.QueryRow(ctx, known, mayKnow(c), in.Scope).Scan(&exists); err != nil {
		return out, callerError(fmt.Errorf("read a scope: %w", err))
	}
	if !exists {
		return out, noScope(in.Scope)
	}
	const query = `
		SELECT agent, roles, granted_at, granted_by FROM membership
		WHERE ($1::text[] IS NULL OR scope = ANY ($1)) AND scope = $2 AND agent > $3
		ORDER BY agent LIMIT $4`
	rows, err := h.db.Query(ctx, query, mayKnow(c), in.Scope, after, limit+1)
	if err != nil {
		return out, callerError(fmt.Errorf("list members: %w", err))
	}
	out.Members, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m verb.Member, err error) {
		err = row.Scan(&m.Agent, &m.Roles, &m.GrantedAt, &m.GrantedBy)
		m.GrantedAt = m.GrantedAt.UTC()
		return m, err
	})
	if err != nil {
		return out, callerError(fmt.Errorf("list members: %w", err))
	}
	if len(out.Members) > limit {
		out.Members = out.Members[:limit]
		out.NextCursor = verb.EncodeNameCursor(out.Members[limit-1].Agent, "members "+in.Scope)
	}
	return out, nil
}

// scopesCreate answers the verb of that name.
func (h *Hub) scopesCreate(ctx context.Context, in verb.ScopesCreateRequest) (out verb.ScopeResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.ScopeResult](ctx, h, c, &writeRequest{
		verb: verb.ScopesCreate.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			var problems []artifact.Problem
			if !verb.ValidScope(in.ID) {
				problems = append(problems, artifact.Problem{
					Path: "/id", Constraint: "scope_id", Value: artifact.Received(in.ID),
					Message: "a scope's id is 1 to 63 lower-case letters, digits and hyphens, and begins with a letter",
				})
			}
			if p := artifact.CheckTitle(in.Title, "/title"); p != nil {
				problems = append(problems, *p)
			}
			if problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			return []op{&scopeOp{scope: verb.Scope{ID: in.ID, Title: in.Title, CreatedAt: c.Now, Roles: []verb.Permission{}}, requestID: c.RequestID}}, nil
		},
	})
}

// A scopeOp makes a scope.
type scopeOp struct {
	scope     verb.Scope
	requestID string
	exists    bool
}

func (o *scopeOp) needs(*needs) {}

func (o *scopeOp) load(ctx context.Context, db querier, _ *state) error {
	return db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM scope WHERE id = $1)`, o.scope.ID).Scan(&o.exists)
}

func (o *scopeOp) decide(s *state) error {
	if o.exists { // only an admin gets here, who may know
		return &artifact.Error{Code: artifact.CodeVersionConflict, Reason: artifact.ReasonExists, Message: "a scope with this id exists"}
	}
	const insert = `INSERT INTO scope (id, title, created_at, created_by) VALUES ($1, $2, $3, $4)`
	s.also(insert, o.scope.ID, o.scope.Title, s.caller.Now, s.caller.Actor.ID)
	data := replicate.Scope{CreatedAt: s.caller.Now, ID: o.scope.ID, Title: o.scope.Title}
	return s.rows.put(o.scope.ID, replicate.KindScope, scopeRef(o.scope.ID), 1, noHash, data,
		&eventOf{typ: "scope.created", ref: scopeRef(o.scope.ID), payload: map[string]any{}})
}

func (o *scopeOp) answer(seq artifact.Seq, token string) any {
	r := &verb.ScopeResult{Scope: o.scope, Receipt: verb.NewReceipt(o.requestID)}
	r.Place(seq, token, "")
	return r
}

func scopeRef(id string) string { return replicate.KindScope + ":" + id }

// scopesGrant answers the verb of that name.
func (h *Hub) scopesGrant(ctx context.Context, in verb.ScopesGrantRequest) (out verb.MembershipResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.MembershipResult](ctx, h, c, &writeRequest{
		verb: verb.ScopesGrant.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o := &membershipOp{scope: in.Scope, agent: in.Agent, kind: in.AgentKind, requestID: c.RequestID}
			if o.kind == "" {
				o.kind = "human"
			}
			problems := o.check()
			if len(in.Roles) == 0 {
				problems = append(problems, artifact.Problem{Path: "/roles", Constraint: "min_items", Message: "give at least one role; scopes/revoke ends a membership"})
			}
			for i, role := range in.Roles {
				if !slices.Contains(verb.Permissions, role) {
					problems = append(problems, artifact.Problem{
						Path: fmt.Sprintf("/roles/%d", i), Constraint: "enum", Message: "a role is one of " + strings.Join(verb.Permissions, ", "), Value: artifact.Received(role),
					})
				}
			}
			if problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			o.roles = slices.Compact(slices.Sorted(slices.Values(in.Roles)))
			return []op{o}, nil
		},
	})
}

// scopesRevoke answers the verb of that name.
func (h *Hub) scopesRevoke(ctx context.Context, in verb.ScopesRevokeRequest) (out verb.MembershipResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.MembershipResult](ctx, h, c, &writeRequest{
		verb: verb.ScopesRevoke.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o := &membershipOp{scope: in.Scope, agent: in.Agent, kind: "human", requestID: c.RequestID, roles: []verb.Permission{}}
			if problems := o.check(); problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			return []op{o}, nil
		},
	})
}

// A membershipOp sets what an agent may do in a scope.
type membershipOp struct {
	scope, agent, kind string
	roles              []verb.Permission // in order; none ends the membership
	requestID          string

	exists  bool // the scope; loaded
	known   bool // the agent, to the caller
	current replicate.Membership
	prev    artifact.Hash
	same    bool // decided
}

func (o *membershipOp) check() (problems []artifact.Problem) {
	if o.scope == artifact.Commons {
		problems = append(problems, artifact.Problem{Path: "/scope", Constraint: "scope", Message: "in commons a token's own permissions count: scopes are granted in private scopes"})
	}
	if !verb.ValidAgent(o.agent) {
		problems = append(problems, artifact.Problem{Path: "/agent", Constraint: "agent_id", Message: "an agent's id is 1 to 200 printable ASCII characters without space", Value: artifact.Received(o.agent)})
	}
	if !slices.Contains(verb.ActorKinds, o.kind) {
		problems = append(problems, artifact.Problem{Path: "/agent_kind", Constraint: "enum", Message: "a kind is one of " + strings.Join(verb.ActorKinds, ", "), Value: artifact.Received(o.kind)})
	}
	return problems
}

func (o *membershipOp) needs(*needs) {}

func (o *membershipOp) load(ctx context.Context, db querier, s *state) error {
	const scope = `SELECT true FROM scope WHERE id = $1 FOR NO KEY UPDATE` // grants in a scope take turns
	err := db.QueryRow(ctx, scope, o.scope).Scan(&o.exists)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	const query = `SELECT agent, roles, scope, granted_at, granted_by FROM membership WHERE scope = $1 AND agent = $2`
	var at time.Time
	o.current, o.prev = replicate.Membership{}, noHash
	err = db.QueryRow(ctx, query, o.scope, o.agent).Scan(&o.current.Agent, &o.current.Roles, &o.current.Scope, &at, &o.current.GrantedBy)
	if err == nil {
		o.current.GrantedAt = at.UTC()
		if _, o.prev, err = replicate.Encode(o.current); err != nil {
			return err
		}
	} else if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if o.known = s.caller.Has(verb.Admin, artifact.Commons); !o.known {
		found, err := agentSource{db, s.caller}.AgentByID(ctx, o.agent)
		if err != nil {
			return err
		}
		if o.known = found != nil; !o.known {
			return nil
		}
	}
	if _, known := s.hub.agents.Load(seenIn{o.agent, o.scope}); known || len(o.roles) == 0 || !o.allowed(s.caller) {
		return nil
	}
	return s.announce(ctx, db, o.agent, o.kind, []string{o.scope})
}

func (o *membershipOp) allowed(c *verb.Caller) bool {
	return c.Has(verb.Admin, o.scope) || c.Has(verb.Admin, artifact.Commons)
}

func (o *membershipOp) decide(s *state) error {
	if !o.exists || !slices.Contains(s.scopes, o.scope) && !s.caller.Has(verb.Admin, artifact.Commons) {
		return noScope(o.scope)
	}
	if !o.allowed(s.caller) {
		return s.caller.Need(o.scope, "granting", verb.Admin)
	}
	if !o.known {
		return artifact.NotFound(agentRef(o.agent)) // else it could be told from one of another lab
	}
	if o.same = slices.Equal(o.current.Roles, o.roles); o.same {
		return nil
	}
	event := &eventOf{typ: "scope.granted", ref: scopeRef(o.scope), payload: map[string]any{"agent": o.agent, "roles": o.roles}}
	next := replicate.Membership{Agent: o.agent, GrantedAt: s.caller.Now, GrantedBy: s.caller.Actor.ID, Roles: o.roles, Scope: o.scope}
	if len(o.roles) == 0 {
		event.typ, event.payload = "scope.revoked", map[string]any{"agent": o.agent}
		s.also(`DELETE FROM membership WHERE scope = $1 AND agent = $2`, o.scope, o.agent)
		return s.rows.remove(o.scope, replicate.KindMembership, next.Ref(), 1, o.prev, event)
	}
	const upsert = `
		INSERT INTO membership (scope, agent, roles, granted_at, granted_by) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (scope, agent) DO UPDATE SET roles = excluded.roles, granted_at = excluded.granted_at, granted_by = excluded.granted_by`
	s.also(upsert, o.scope, o.agent, o.roles, s.caller.Now, s.caller.Actor.ID)
	return s.rows.put(o.scope, replicate.KindMembership, next.Ref(), 1, o.prev, next, event)
}

func (o *membershipOp) answer(seq artifact.Seq, token string) any {
	r := &verb.MembershipResult{Scope: o.scope, Agent: o.agent, Roles: o.roles, Receipt: verb.NewReceipt(o.requestID)}
	outcome := ""
	if o.same {
		outcome = verb.IdempotencyDeduplicated
	}
	r.Place(seq, token, outcome)
	return r
}
