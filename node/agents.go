package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"

	"github.com/scidex-ai/substrate/verb"
)

// agentQueries find agents where the caller may know of them: in a visible scope,
// or as itself, in whatever scope the replica has it. An agent's rows say the same
// in each scope. ?2 is the caller.
type agentQueries struct {
	byID, byHandle, byRole, list, group scopedQuery
}

const (
	agentColumns = `SELECT a.id, a.kind, a.handle, a.title, a.roles, a.may_delegate, a.created_at, a.updated_at,
			(SELECT json_group_array(f.handle) FROM handle AS f WHERE f.scope = a.scope AND f.agent = a.id AND f.handle <> a.handle)`
	agentByIDSQL = agentColumns + ` FROM agent AS a WHERE a.id = ?1 AND a.scope IN ({scopes})
		UNION ALL ` + agentColumns + ` FROM agent AS a WHERE a.id = ?1 AND ?1 = ?2
		LIMIT 1`
	agentOfHandle = agentColumns + ` FROM handle AS h CROSS JOIN agent AS a ON a.scope = h.scope AND a.id = h.agent
		WHERE h.handle = ?1 AND `
	agentByHandleSQL = agentOfHandle + `h.scope IN ({scopes}) UNION ALL ` + agentOfHandle + `h.agent = ?2 LIMIT 1`
	agentsByRoleSQL  = `SELECT DISTINCT a.id FROM agent AS a
		WHERE EXISTS (SELECT 1 FROM json_each(a.roles) WHERE value = ?1) AND (a.scope IN ({scopes}) OR a.id = ?2)
		ORDER BY a.id`
	agentsListSQL = agentColumns + ` FROM agent AS a
		WHERE a.id > ?1 AND (?3 = '' OR EXISTS (SELECT 1 FROM json_each(a.roles) WHERE value = ?3)) AND (?4 = '' OR a.kind = ?4)
			AND (a.scope IN ({scopes}) OR a.id = ?2)
		GROUP BY a.id ORDER BY a.id LIMIT ?5`
	groupSQL = `SELECT r.content
		FROM artifact AS a
		CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.type = 'group' AND a.id = ?1 AND a.scope IN ({scopes})`
)

func (q *agentQueries) prepare(pool *sql.DB) {
	for query, text := range map[*scopedQuery]string{
		&q.byID: agentByIDSQL, &q.byHandle: agentByHandleSQL, &q.byRole: agentsByRoleSQL, &q.list: agentsListSQL, &q.group: groupSQL,
	} {
		query.pool, query.text = pool, text
	}
}

func (s *Store) agentsGet(ctx context.Context, in verb.AgentsGetRequest) (out verb.AgentResponse, err error) {
	c, err := reader(ctx)
	if err != nil {
		return out, err
	}
	return verb.FindAgent(ctx, agentSource{&s.read.agents, c.Actor.ID}, c, in.Agent)
}

func (s *Store) agentsResolve(ctx context.Context, in verb.AgentsResolveRequest) (out verb.AgentsResolveResponse, err error) {
	c, err := reader(ctx)
	if err != nil {
		return out, err
	}
	return verb.ResolveRecipient(ctx, agentSource{&s.read.agents, c.Actor.ID}, c, in.Recipient)
}

func (s *Store) agentsList(ctx context.Context, in verb.AgentsListRequest) (out verb.AgentsListResponse, err error) {
	c, err := reader(ctx)
	if err != nil {
		return out, err
	}
	limit, after, err := in.Page()
	if err != nil {
		return out, err
	}
	agents := []verb.Agent{}
	err = s.read.agents.list.each(ctx, func(rows *sql.Rows) error {
		a, err := scanAgent(rows.Scan)
		agents = append(agents, a)
		return err
	}, after, c.Actor.ID, in.Role, in.Kind, limit+1)
	if err != nil {
		return out, err
	}
	return in.Answer(agents, limit), nil
}

func scanAgent(scan func(...any) error) (a verb.Agent, err error) {
	var created, updated int64
	var roles, former []byte
	if err := scan(&a.ID, &a.Kind, &a.Handle, &a.Title, &roles, &a.MayDelegate, &created, &updated, &former); err != nil {
		return a, err
	}
	a.CreatedAt, a.UpdatedAt = fromMillis(created), fromMillis(updated)
	err = errors.Join(json.Unmarshal(roles, &a.Roles), json.Unmarshal(former, &a.FormerHandles))
	slices.Sort(a.FormerHandles)
	return a, err
}

// agentSource finds agents for the caller in the context, whose id is self.
type agentSource struct {
	queries *agentQueries
	self    string
}

var _ verb.AgentSource = agentSource{}

// AgentByID implements [verb.AgentSource].
func (s agentSource) AgentByID(ctx context.Context, id string) (*verb.Agent, error) {
	return s.one(ctx, &s.queries.byID, id)
}

// AgentByHandle implements [verb.AgentSource].
func (s agentSource) AgentByHandle(ctx context.Context, handle string) (*verb.Agent, error) {
	return s.one(ctx, &s.queries.byHandle, handle)
}

func (s agentSource) one(ctx context.Context, q *scopedQuery, name string) (found *verb.Agent, err error) {
	err = q.each(ctx, func(rows *sql.Rows) error {
		a, err := scanAgent(rows.Scan)
		found = &a
		return err
	}, name, s.self)
	return found, err
}

// AgentsByRole implements [verb.AgentSource].
func (s agentSource) AgentsByRole(ctx context.Context, role string) (ids []string, err error) {
	err = s.queries.byRole.each(ctx, func(rows *sql.Rows) error {
		var id string
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, role, s.self)
	return ids, err
}

// Group implements [verb.AgentSource].
func (s agentSource) Group(ctx context.Context, id string) (members []string, err error) {
	err = s.queries.group.each(ctx, func(rows *sql.Rows) error {
		var content []byte
		if err := rows.Scan(&content); err != nil {
			return err
		}
		group := struct{ Members []string }{[]string{}}
		err := json.Unmarshal(content, &group)
		members = group.Members
		return err
	}, id)
	return members, err
}

// each runs f on each row of the query for the caller in ctx.
func (q *scopedQuery) each(ctx context.Context, f func(*sql.Rows) error, args ...any) error {
	stmt, args, err := q.bind(ctx, args...) //nolint:sqlclosecheck // kept for the next read
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
