package node

import (
	"context"
	"encoding/json"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// ?1 is true for an admin, who sees all that the replica has; ?2 holds the scopes
// of anyone else.
const (
	scopesSQL = `SELECT id, title, created_at FROM scope
		WHERE ?1 OR id IN (SELECT value FROM json_each(?2)) ORDER BY id`
	scopeKnownSQL = `SELECT EXISTS (SELECT 1 FROM scope
		WHERE (?1 OR id IN (SELECT value FROM json_each(?2))) AND id = ?3)`
	membersSQL = `SELECT agent, roles, granted_at, granted_by FROM membership
		WHERE (?1 OR scope IN (SELECT value FROM json_each(?2))) AND scope = ?3 AND agent > ?4
		ORDER BY agent LIMIT ?5`
)

// mayKnow returns the caller in ctx with the first two parameters of the queries
// above.
func mayKnow(ctx context.Context) (c *verb.Caller, admin bool, scopes string, err error) {
	if c, err = verb.CallerFrom(ctx); err != nil {
		return nil, false, "", err
	}
	raw, err := json.Marshal(append([]string{}, c.VisibleScopes()...))
	return c, c.Has(verb.Admin, artifact.Commons), string(raw), err
}

func (s *Store) scopesList(ctx context.Context, _ verb.ScopesListRequest) (out verb.ScopesListResponse, err error) {
	c, admin, scopes, err := mayKnow(ctx)
	if err != nil {
		return out, err
	}
	rows, err := s.read.scopes.QueryContext(ctx, admin, scopes)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	out.Scopes = []verb.Scope{}
	for rows.Next() {
		var v verb.Scope
		var created int64
		if err := rows.Scan(&v.ID, &v.Title, &created); err != nil {
			return out, err
		}
		v.CreatedAt = fromMillis(created)
		v.Roles = append([]verb.Permission{}, c.RolesIn(v.ID)...)
		out.Scopes = append(out.Scopes, v)
	}
	return out, rows.Err()
}

func (s *Store) scopesMembers(ctx context.Context, in verb.ScopesMembersRequest) (out verb.ScopesMembersResponse, err error) {
	_, admin, scopes, err := mayKnow(ctx)
	if err != nil {
		return out, err
	}
	limit, err := verb.PageSize(in.Limit)
	if err != nil {
		return out, err
	}
	filter := "members " + in.Scope
	after, err := verb.DecodeNameCursor(in.Cursor, filter)
	if err != nil {
		return out, err
	}
	var known bool
	if err := s.read.scopeKnown.QueryRowContext(ctx, admin, scopes, in.Scope).Scan(&known); err != nil {
		return out, err
	}
	if !known {
		return out, artifact.NotFound("scope:" + in.Scope)
	}
	rows, err := s.read.members.QueryContext(ctx, admin, scopes, in.Scope, after, limit+1)
	if err != nil {
		return out, err
	}
	defer rows.Close()
	out.Members = []verb.Member{}
	for rows.Next() {
		var m verb.Member
		var roles string
		var granted int64
		if err := rows.Scan(&m.Agent, &roles, &granted, &m.GrantedBy); err != nil {
			return out, err
		}
		if err := json.Unmarshal([]byte(roles), &m.Roles); err != nil {
			return out, err
		}
		m.GrantedAt = fromMillis(granted)
		out.Members = append(out.Members, m)
	}
	if err := rows.Err(); err != nil {
		return out, err
	}
	if len(out.Members) > limit {
		out.Members = out.Members[:limit]
		out.NextCursor = verb.EncodeNameCursor(out.Members[limit-1].Agent, filter)
	}
	return out, nil
}
