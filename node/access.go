package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// isAccess reports whether rows of a kind say who may do what.
func isAccess(kind string) bool {
	return kind == replicate.KindMembership || kind == replicate.KindAgent || kind == replicate.KindRevocation
}

// takeAccess notes what a row that was stored says of who may do what.
func (s *Store) takeAccess(r *replicate.Row) error {
	if r.Op == replicate.Put && len(r.Data) == 0 {
		return nil
	}
	switch r.Kind {
	case replicate.KindMembership:
		if r.Op == replicate.Delete {
			_, of, _ := strings.Cut(r.Ref, ":")
			_, agent, _ := strings.Cut(of, "/")
			s.access.SetRoles(r.Scope, agent, nil)
			return nil
		}
		var m replicate.Membership
		if err := json.Unmarshal(r.Data, &m); err != nil {
			return err
		}
		s.access.SetRoles(m.Scope, m.Agent, m.Roles)
	case replicate.KindAgent:
		if r.Op == replicate.Delete {
			return nil
		}
		var a replicate.Agent
		if err := json.Unmarshal(r.Data, &a); err != nil {
			return err
		}
		s.access.SetAgent(a.ID, a.MayDelegate)
	case replicate.KindRevocation:
		var v replicate.Revocation
		if err := json.Unmarshal(r.Data, &v); err != nil {
			return err
		}
		s.access.Revoke(revocation(v.Hash, v.Of, v.Before))
	}
	return nil
}

func revocation(hash artifact.Hash, of string, before time.Time) verb.Revocation {
	if of == replicate.OfAgent {
		return verb.Revocation{Agent: hash, Before: before}
	}
	return verb.Revocation{Token: hash, Before: before}
}

const (
	allMembershipsSQL = `SELECT scope, agent, roles FROM membership`
	allAgentsSQL      = `SELECT id, may_delegate FROM agent`
	allRevocationsSQL = `SELECT hash, of, before FROM revocation`
)

// loadAccess reads who may do what from the file.
func (s *Store) loadAccess(ctx context.Context) error {
	var fresh verb.Directory
	read := func(query string, take func(*sql.Rows) error) error {
		rows, err := s.conn.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := take(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	err := errors.Join(
		read(allMembershipsSQL, func(rows *sql.Rows) error {
			var scope, agent, raw string
			var roles []string
			if err := rows.Scan(&scope, &agent, &raw); err != nil {
				return err
			}
			err := json.Unmarshal([]byte(raw), &roles)
			fresh.SetRoles(scope, agent, roles)
			return err
		}),
		read(allAgentsSQL, func(rows *sql.Rows) error {
			var id string
			var may bool
			err := rows.Scan(&id, &may)
			fresh.SetAgent(id, may)
			return err
		}),
		read(allRevocationsSQL, func(rows *sql.Rows) error {
			var hash []byte
			var of string
			var before int64
			if err := rows.Scan(&hash, &of, &before); err != nil {
				return err
			}
			var h artifact.Hash
			copy(h[:], hash)
			fresh.Revoke(revocation(h, of, fromMillis(before)))
			return nil
		}),
	)
	s.access.Reset(&fresh)
	return err
}

// Access returns who may do what, as far as the replica knows.
func (s *Store) Access() *verb.Directory { return s.access }

// loadFollowed reads which scopes the file holds.
func (s *Store) loadFollowed(ctx context.Context) error {
	var raw string
	var scopes []string
	if err := s.conn.QueryRowContext(ctx, `SELECT scopes FROM replica_state`).Scan(&raw); err != nil {
		return fmt.Errorf("read the followed scopes: %w", err)
	}
	if err := json.Unmarshal([]byte(raw), &scopes); err != nil {
		return fmt.Errorf("read the followed scopes: %w", err)
	}
	s.hold(scopes)
	return nil
}

func (s *Store) hold(scopes []string) {
	s.followed = make(map[string]bool, len(scopes))
	for _, scope := range scopes {
		s.followed[scope] = true
	}
	held := slices.Clone(scopes)
	s.holds.Store(&held)
}

// seesAll reports whether a caller may see all scopes that the replica holds.
func (s *Store) seesAll(c *verb.Caller) bool {
	held := s.holds.Load()
	if held == nil {
		return false
	}
	visible := c.VisibleScopes()
	return !slices.ContainsFunc(*held, func(scope string) bool { return !slices.Contains(visible, scope) })
}

// follow notes which scopes the hub sends. What the replica holds of scopes that
// it no longer sends is erased. Of those that it has begun to send, all that
// happened before is missing: they are left out here, and [Store.Gained] names
// them to whoever makes a replica that has them.
func (s *Store) follow(ctx context.Context, p replicate.Position, scopes []string) error {
	scopes = slices.Sorted(slices.Values(scopes))
	var gained, lost []string
	if p.Seq > 0 {
		gained = slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool { return s.followed[scope] })
		scopes = slices.DeleteFunc(scopes, func(scope string) bool { return !s.followed[scope] })
	}
	if s.gained.Store(nil); len(gained) > 0 {
		s.gained.Store(&gained)
	}
	for scope := range s.followed {
		if !slices.Contains(scopes, scope) {
			lost = append(lost, scope)
		}
	}
	if len(lost) == 0 && len(scopes) == len(s.followed) {
		return nil
	}
	now, err := json.Marshal(scopes)
	if err != nil {
		return err
	}
	if err := s.leave(ctx, lost, string(now)); err != nil {
		return err
	}
	s.hold(scopes)
	return nil
}

// Gained returns the scopes that the hub sends and the replica does not hold.
func (s *Store) Gained() []string {
	if gained := s.gained.Load(); gained != nil {
		return *gained
	}
	return nil
}

// scoped are the tables whose rows belong to a scope.
var scoped = []string{"artifact", "artifact_revision", "link", "signal", "event", "digest", "membership", "agent", "handle", "scope_last", "search_document", "facet", "vector"}

// leave erases all rows of scopes and notes which are still followed, in one
// transaction, and then gives the space back.
func (s *Store) leave(ctx context.Context, lost []string, followed string) (err error) {
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after a commit
	for _, scope := range lost {
		if _, err := tx.ExecContext(ctx, dropScopeWordsSQL, scope); err != nil {
			return fmt.Errorf("erase the words of scope %s: %w", scope, err)
		}
		for _, table := range scoped {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE scope = ?1`, scope); err != nil { //nolint:gosec // our own table names
				return fmt.Errorf("erase scope %s from %s: %w", scope, table, err)
			}
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM scope WHERE id = ?1`, scope); err != nil {
			return fmt.Errorf("erase scope %s: %w", scope, err)
		}
	}
	if len(lost) > 0 {
		const orphans = `DELETE FROM signal_aggregate WHERE NOT EXISTS (
			SELECT 1 FROM signal AS s WHERE s.type = signal_aggregate.type AND s.artifact = signal_aggregate.artifact)`
		if _, err := tx.ExecContext(ctx, orphans); err != nil {
			return fmt.Errorf("erase aggregates: %w", err)
		}
		if _, err := tx.ExecContext(ctx, optimizeSQL); err != nil {
			return fmt.Errorf("erase words: %w", err)
		}
		// It may be an id of theirs up to which facets are made.
		if _, err := tx.ExecContext(ctx, `UPDATE facet_build SET after = ''`); err != nil {
			return fmt.Errorf("erase how far facets are made: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE replica_state SET scopes = ?1`, followed); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if len(lost) == 0 {
		return nil
	}
	for _, scope := range lost {
		s.access.DropScope(scope)
		delete(s.trail, scope)
	}
	m := s.now.Load()
	s.publishMoment(&moment{position: m.position, recent: event.Recent{Floor: m.position.Seq}, lost: append(slices.Clone(m.lost), lost...)})
	if _, err := s.conn.ExecContext(ctx, "VACUUM"); err != nil {
		return fmt.Errorf("give the space of lost scopes back: %w", err)
	}
	s.erasing = true
	s.emptyWAL(ctx)
	return nil
}
