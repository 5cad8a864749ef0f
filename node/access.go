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
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// ErrScopeGained reports that the node may follow a scope that its replica has
// never followed: what happened there before is missing.
var ErrScopeGained = errors.New("the node may follow more scopes than its replica holds")

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
func (s *Store) Access() *verb.Directory { return &s.access }

// follow notes which scopes the hub sends. What the replica holds of scopes that
// it no longer sends is erased.
func (s *Store) follow(ctx context.Context, p replicate.Position, scopes []string) error {
	var raw string
	var before []string
	if err := s.conn.QueryRowContext(ctx, `SELECT scopes FROM replica_state`).Scan(&raw); err != nil {
		return fmt.Errorf("read the followed scopes: %w", err)
	}
	if err := json.Unmarshal([]byte(raw), &before); err != nil {
		return fmt.Errorf("read the followed scopes: %w", err)
	}
	scopes = slices.Sorted(slices.Values(scopes))
	if slices.Equal(before, scopes) {
		return nil
	}
	if p.Seq > 0 {
		for _, scope := range scopes {
			if !slices.Contains(before, scope) {
				return fmt.Errorf("%w: rebuild it from the hub: scidex node rebuild", ErrScopeGained)
			}
		}
	}
	now, err := json.Marshal(scopes)
	if err != nil {
		return err
	}
	lost := slices.DeleteFunc(before, func(scope string) bool { return slices.Contains(scopes, scope) })
	return s.leave(ctx, lost, string(now))
}

// scoped are the tables whose rows belong to a scope.
var scoped = []string{"artifact", "artifact_revision", "link", "signal", "event", "digest", "membership", "agent", "handle", "scope_last"}

// leave erases all rows of scopes and notes which are still followed, in one
// transaction, and then gives the space back.
func (s *Store) leave(ctx context.Context, lost []string, followed string) (err error) {
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after a commit
	for _, scope := range lost {
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
	p := s.now.Load().position
	s.publish(p, recent{floor: p.Seq})
	if _, err := s.conn.ExecContext(ctx, "VACUUM"); err != nil {
		return fmt.Errorf("give the space of lost scopes back: %w", err)
	}
	s.erasing = true
	s.emptyWAL(ctx)
	return nil
}
