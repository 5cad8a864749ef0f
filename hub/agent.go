package hub

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

const (
	agentColumns = `
		SELECT a.id, a.kind, a.title, coalesce(a.handle, ''), a.roles, a.may_delegate, a.created_at, a.updated_at,
			(SELECT coalesce(array_agg(f.handle ORDER BY f.handle), '{}') FROM handle f WHERE f.agent = a.id AND f.handle IS DISTINCT FROM a.handle)`
	agentQuery       = agentColumns + ` FROM agent a WHERE a.id = $1`
	insertAgentQuery = `
		INSERT INTO agent (id, kind, may_delegate, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)
		ON CONFLICT DO NOTHING`
	seenQuery       = `SELECT scope FROM agent_seen WHERE agent = $1 AND scope = ANY ($2) AND announced`
	insertSeenQuery = `
		INSERT INTO agent_seen (scope, agent) VALUES ($1, $2)
		ON CONFLICT (scope, agent) DO UPDATE SET announced = true`
)

// agentRef is the ref of an agent's rows.
func agentRef(id string) string { return replicate.KindAgent + ":" + id }

// seenIn is an agent in a scope where the feed has told of it.
type seenIn struct{ agent, scope string }

// newAgent is an agent as it is first seen. People may delegate unless told
// otherwise, programs may not.
func newAgent(id, kind string, now timeOf) replicate.Agent {
	return replicate.Agent{
		CreatedAt: now, FormerHandles: []string{}, ID: id, Kind: kind, MayDelegate: kind == "human", Roles: []string{}, UpdatedAt: now,
	}
}

// readAgent returns an agent; pgx.ErrNoRows when it is new.
func readAgent(ctx context.Context, db querier, id string) (a replicate.Agent, err error) {
	err = scanAgent(db.QueryRow(ctx, agentQuery, id), &a)
	return a, err
}

func scanAgent(row pgx.Row, a *replicate.Agent) error {
	if err := row.Scan(&a.ID, &a.Kind, &a.Title, &a.Handle, &a.Roles, &a.MayDelegate, &a.CreatedAt, &a.UpdatedAt, &a.FormerHandles); err != nil {
		return err
	}
	a.CreatedAt, a.UpdatedAt = a.CreatedAt.UTC(), a.UpdatedAt.UTC()
	return nil
}

// seedAgents tells the feed of agents that it was not told of.
func seedAgents(ctx context.Context, tx pgx.Tx, rows *changeRows) error {
	const query = `UPDATE agent_seen SET announced = true WHERE NOT announced RETURNING scope, agent`
	due, err := tx.Query(ctx, query)
	if err != nil {
		return err
	}
	var seen seenIn
	var all []seenIn
	if _, err := pgx.ForEachRow(due, []any{&seen.scope, &seen.agent}, func() error {
		all = append(all, seen)
		return nil
	}); err != nil {
		return err
	}
	for _, seen := range all {
		a, err := readAgent(ctx, tx, seen.agent)
		if err != nil {
			return err
		}
		if err := rows.put(seen.scope, replicate.KindAgent, agentRef(a.ID), 1, noHash, a, nil); err != nil {
			return err
		}
	}
	return nil
}

// announceWriter makes known the caller in the scopes that are written to for
// the first time. Told has those that the transaction makes known already.
func (s *state) announceWriter(ctx context.Context, db querier, told map[seenIn]bool) error {
	var written []string
	for i, scope := range s.rows.scope {
		// What others do not get tells them of nobody, and a revocation names nobody.
		if s.rows.class[i] == replicate.Internal || s.rows.kind[i] == replicate.KindRevocation {
			continue
		}
		if !slices.Contains(written, scope) {
			written = append(written, scope)
		}
	}
	var untold []artifact.Actor
	var where [][]string
	for _, who := range s.writers() {
		var scopes []string
		for _, scope := range written {
			seen := seenIn{who.ID, scope}
			if _, known := s.hub.agents.Load(seen); !known && !told[seen] {
				told[seen] = true
				scopes = append(scopes, scope)
			}
		}
		if scopes != nil {
			untold, where = append(untold, who), append(where, scopes)
		}
	}
	if untold == nil {
		return nil
	}
	// Their rows come first: a commit's last seq is that of what the verb did.
	did := s.rows
	s.rows = changeRows{}
	defer func() {
		s.rows.extend(&did)
	}()
	for i, who := range untold {
		if err := s.announce(ctx, db, who.ID, who.Kind, where[i]); err != nil {
			return err
		}
	}
	return nil
}

// writers are those whom what is written names, in the order of their ids: each is
// locked.
func (s *state) writers() []artifact.Actor {
	if s.author.ID == s.caller.Actor.ID {
		return []artifact.Actor{s.caller.Actor}
	}
	both := []artifact.Actor{s.caller.Actor, s.author}
	slices.SortFunc(both, func(a, b artifact.Actor) int { return strings.Compare(a.ID, b.ID) })
	return both
}

// announce adds the rows by which those who follow some scopes learn of an agent.
func (s *state) announce(ctx context.Context, db querier, id, kind string, scopes []string) error {
	scopes = slices.DeleteFunc(scopes, func(scope string) bool { return slices.Contains(s.announced, seenIn{id, scope}) })
	if untold, err := s.untold(ctx, db, id, scopes); err != nil || len(untold) == 0 {
		return err
	}
	if err := lockAgent(ctx, db, id); err != nil {
		return err
	}
	untold, err := s.untold(ctx, db, id, scopes) // another may have told meanwhile
	if err != nil || len(untold) == 0 {
		return err
	}
	a, err := readAgent(ctx, db, id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		var made bool
		if a, made = s.agents[id]; !made { // by another member: all scopes are told the same
			a = newAgent(id, kind, s.caller.Now)
			s.agents[id] = a
		}
		s.also(insertAgentQuery, id, a.Kind, a.MayDelegate, a.CreatedAt)
	case err != nil:
		return err
	}
	for _, scope := range untold {
		if err := s.putSeen(a, scope, nil); err != nil {
			return err
		}
	}
	return nil
}

// untold returns the scopes in which the feed has not told of an agent.
func (s *state) untold(ctx context.Context, db querier, id string, scopes []string) ([]string, error) {
	if len(scopes) == 0 {
		return nil, nil
	}
	rows, err := db.Query(ctx, seenQuery, id, scopes)
	if err != nil {
		return nil, err
	}
	told, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, scope := range told {
		s.hub.agents.Store(seenIn{id, scope}, struct{}{})
	}
	return slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool { return slices.Contains(told, scope) }), err
}

// putSeen adds the row by which those who follow a scope learn of an agent that
// is new there.
func (s *state) putSeen(a replicate.Agent, scope string, e *eventOf) error {
	s.also(insertSeenQuery, scope, a.ID)
	s.announced = append(s.announced, seenIn{a.ID, scope})
	s.rows.internal = false
	return s.rows.put(scope, replicate.KindAgent, agentRef(a.ID), 1, noHash, a, e)
}

// lockAgent makes those who tell the feed of an agent take turns, so that the
// last row of each scope says how the agent is.
func lockAgent(ctx context.Context, db querier, id string) error {
	_, err := db.Exec(ctx, keyLockQuery, "agent\n"+id)
	return err
}
