package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// access is who may do what, in memory: read whole when the hub opens and when
// it changes that itself, and kept up by the pump as other hubs do.
type access struct {
	verb.Directory

	mu  sync.Mutex   // guards seq; held while the directory is replaced
	seq artifact.Seq // the log up to here is in it

	nodes sync.Map // id → *edgeNode
}

const (
	membershipsQuery = `SELECT scope, agent, roles FROM membership`
	delegatesQuery   = `SELECT id, may_delegate FROM agent`
	nodeKeysQuery    = `SELECT id, public_key, scopes, revoked_at IS NOT NULL FROM edge_node`
	revocationsQuery = `SELECT hash, agent, before FROM revocation WHERE agent <> '' OR before > $1`
)

// load reads the tables. What the pump has read beyond them meanwhile stays.
func (a *access) load(ctx context.Context, db txBeginner) error {
	var fresh verb.Directory
	var nodes []*edgeNode
	var head artifact.Seq
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, headQuery).Scan(&head); err != nil {
			return err
		}
		var scope, agent string
		var roles []string
		rows, err := tx.Query(ctx, membershipsQuery)
		if err != nil {
			return err
		}
		if _, err := pgx.ForEachRow(rows, []any{&scope, &agent, &roles}, func() error {
			fresh.SetRoles(scope, agent, roles)
			return nil
		}); err != nil {
			return err
		}
		var may bool
		if rows, err = tx.Query(ctx, delegatesQuery); err != nil {
			return err
		}
		if _, err := pgx.ForEachRow(rows, []any{&agent, &may}, func() error {
			fresh.SetAgent(agent, may)
			return nil
		}); err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, nodeKeysQuery); err != nil {
			return err
		}
		if nodes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*edgeNode, error) {
			n := new(edgeNode)
			return n, row.Scan(&n.ID, &n.PublicKey, &n.Scopes, &n.Revoked)
		}); err != nil {
			return err
		}
		var hash []byte
		var before time.Time
		if rows, err = tx.Query(ctx, revocationsQuery, time.Now().Add(-2*verb.Leeway)); err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&hash, &agent, &before}, func() error {
			of := replicate.OfToken
			if agent != "" {
				of = replicate.OfAgent
			}
			fresh.Revoke(revocation(artifact.Hash(hash), of, before))
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("read memberships and revocations: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if head >= a.seq {
		a.seq = head
		a.Reset(&fresh)
		for _, n := range nodes {
			a.nodes.Store(n.ID, n)
		}
	}
	return nil
}

type txBeginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

func revocation(hash artifact.Hash, of string, before time.Time) verb.Revocation {
	if of == replicate.OfAgent {
		return verb.Revocation{Agent: hash, Before: before}
	}
	return verb.Revocation{Token: hash, Before: before}
}

// follow takes in rows of the log.
func (a *access) follow(rows []logRow) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range rows {
		r := &rows[i]
		if r.Seq <= a.seq {
			continue
		}
		if err := a.take(r); err != nil {
			return fmt.Errorf("change %d, %s %s: %w", r.Seq, r.Kind, r.Ref, err)
		}
		a.seq = r.Seq
	}
	return nil
}

func (a *access) take(r *logRow) error {
	switch r.Kind {
	case replicate.KindMembership:
		if r.Op == replicate.Delete {
			_, of, _ := strings.Cut(r.Ref, ":")
			_, agent, _ := strings.Cut(of, "/")
			a.SetRoles(r.Scope, agent, nil)
			return nil
		}
		var m replicate.Membership
		if err := json.Unmarshal(r.Data, &m); err != nil {
			return err
		}
		a.SetRoles(m.Scope, m.Agent, m.Roles)
	case replicate.KindAgent:
		var g replicate.Agent
		if r.Op == replicate.Delete || len(r.Data) == 0 {
			return nil
		}
		if err := json.Unmarshal(r.Data, &g); err != nil {
			return err
		}
		a.SetAgent(g.ID, g.MayDelegate)
	case kindNode:
		return a.nodeOf(r)
	case replicate.KindRevocation:
		var v replicate.Revocation
		if err := json.Unmarshal(r.Data, &v); err != nil {
			return err
		}
		a.Revoke(revocation(v.Hash, v.Of, v.Before))
	}
	return nil
}
