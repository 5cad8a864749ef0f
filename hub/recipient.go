package hub

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// anyParticipant stands for everyone in the scope, whom a broadcast is for.
const anyParticipant = "*"

// Agents are found where the caller may know of them: in a visible scope, or as
// itself. $1 are the scopes, $2 is the caller.
const (
	agentKnown      = `(a.id = $2 OR EXISTS (SELECT FROM agent_seen s WHERE s.scope = ANY ($1) AND s.agent = a.id))`
	knownIDQuery    = agentColumns + ` FROM agent a WHERE a.id = $3 AND ` + agentKnown
	byHandleQuery   = agentColumns + ` FROM agent a JOIN handle h ON h.agent = a.id WHERE h.handle = $3 AND ` + agentKnown
	byRoleQuery     = `SELECT a.id FROM agent a WHERE $3 = ANY (a.roles) AND ` + agentKnown + ` ORDER BY a.id`
	listAgentsQuery = agentColumns + `
		FROM agent a
		WHERE a.id > $3 AND ($4 = '' OR $4 = ANY (a.roles)) AND ($5 = '' OR a.kind = $5) AND ` + agentKnown + `
		ORDER BY a.id LIMIT $6`
	groupQuery = `
		SELECT r.content
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.scope = ANY ($1) AND a.type = 'group' AND a.id = $2`
)

// agentSource finds agents for a caller.
type agentSource struct {
	db     querier
	caller *verb.Caller
}

var _ verb.AgentSource = agentSource{}

// AgentByID implements [verb.AgentSource].
func (s agentSource) AgentByID(ctx context.Context, id string) (*verb.Agent, error) {
	return s.one(ctx, knownIDQuery, id)
}

// AgentByHandle implements [verb.AgentSource].
func (s agentSource) AgentByHandle(ctx context.Context, handle string) (*verb.Agent, error) {
	return s.one(ctx, byHandleQuery, handle)
}

func (s agentSource) one(ctx context.Context, query, name string) (*verb.Agent, error) {
	var a replicate.Agent
	err := scanAgent(s.db.QueryRow(ctx, query, s.caller.VisibleScopes(), s.caller.Actor.ID, name), &a)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	found := answered(&a)
	return &found, nil
}

// AgentsByRole implements [verb.AgentSource].
func (s agentSource) AgentsByRole(ctx context.Context, role string) ([]string, error) {
	rows, err := s.db.Query(ctx, byRoleQuery, s.caller.VisibleScopes(), s.caller.Actor.ID, role)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Group implements [verb.AgentSource].
func (s agentSource) Group(ctx context.Context, id string) ([]string, error) {
	var content []byte
	err := s.db.QueryRow(ctx, groupQuery, s.caller.VisibleScopes(), id).Scan(&content)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	group := struct{ Members []string }{[]string{}}
	err = json.Unmarshal(content, &group)
	return group.Members, err
}

// answered is an agent as verbs tell of it.
func answered(a *replicate.Agent) verb.Agent {
	return verb.Agent{
		ID: a.ID, Kind: a.Kind, Handle: a.Handle, FormerHandles: slices.Clone(a.FormerHandles), Title: a.Title, Roles: slices.Clone(a.Roles),
		MayDelegate: a.MayDelegate, CreatedAt: a.CreatedAt.Truncate(time.Millisecond), UpdatedAt: a.UpdatedAt.Truncate(time.Millisecond),
	}
}
