package hub

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// system is the actor of what the hub writes by itself.
var system = artifact.Actor{ID: "scidex", Kind: "ai_local"}

// ErrNotEmpty reports a database that holds something, but no hub.
var ErrNotEmpty = errors.New("the database is not empty and holds no hub")

// Init makes a hub in an empty database: tables, identity, signing key, the
// scope commons and the shipped types. On a database that already holds a hub it
// does nothing; one that was interrupted it completes. It reports whether it
// made anything.
func Init(ctx context.Context, db *pgxpool.Pool) (made bool, err error) {
	ours, err := checkEmpty(ctx, db)
	if err != nil {
		return false, err
	}
	if ours {
		made, err := hubMade(ctx, db)
		if err != nil {
			return false, err
		}
		switch err := CheckMigrated(ctx, db); {
		case made && err == nil:
			_, err := readIdentity(ctx, db)
			return false, err
		case made || errors.Is(err, ErrNewer) || errors.Is(err, ErrChanged):
			return false, err
		}
	}
	if _, err := Migrate(ctx, db); err != nil {
		return false, err
	}
	return true, nil
}

// hubMade reports whether the database of a hub holds its identity, which comes
// after all tables.
func hubMade(ctx context.Context, db *pgxpool.Pool) (made bool, err error) {
	if err := db.QueryRow(ctx, `SELECT to_regclass('hub') IS NOT NULL`).Scan(&made); err != nil || !made {
		return false, err
	}
	err = db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM hub)`).Scan(&made)
	return made, err
}

// checkEmpty reports whether the database is a hub's, perhaps a half-made one's:
// migration_checksum is the first table that Migrate makes. It returns
// ErrNotEmpty for one that holds other tables.
func checkEmpty(ctx context.Context, db *pgxpool.Pool) (ours bool, err error) {
	const query = `
		SELECT coalesce(bool_or(relname = 'migration_checksum'), false), count(*)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema'`
	var tables int
	if err := db.QueryRow(ctx, query).Scan(&ours, &tables); err != nil {
		return false, fmt.Errorf("look at the database: %w", err)
	}
	if !ours && tables > 0 {
		return false, fmt.Errorf("%w: %d tables; give an empty one", ErrNotEmpty, tables)
	}
	return ours, nil
}

// initLock is the advisory lock under which a hub is made.
const initLock = 0x5c1de8

// seed gives a migrated database what every hub has. It may run again after
// each migration: it adds what is missing.
func seed(ctx context.Context, db *pgxpool.Pool) error {
	if err := ensurePartitions(ctx, db, defaultPartitionRows, 0); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, initLock); err != nil {
			return err
		}
		if err := seedIdentity(ctx, tx); err != nil {
			return err
		}
		caller := &verb.Caller{Actor: system, RequestID: uuid.NewString(), Now: artifact.Now()}
		s := newLoaded().view(nil, &member{caller: caller, request: new(writeRequest), needs: newNeeds(nil)})
		if err := seedCommons(ctx, tx, &s.rows, caller.Now); err != nil {
			return err
		}
		if err := seedSchemas(ctx, tx, s); err != nil {
			return err
		}
		if err := seedAgents(ctx, tx, &s.rows); err != nil {
			return err
		}
		if len(s.rows.kind) == 0 {
			return nil
		}
		b := new(pgx.Batch)
		s.queue(b)
		queueAppend(b, []commit{{rows: &s.rows, caller: caller, verb: "init"}})
		return tx.SendBatch(ctx, b).Close()
	})
}

func seedIdentity(ctx context.Context, tx pgx.Tx) error {
	const insertHub = `
		INSERT INTO hub (hub_id, system_identifier)
		SELECT $1, system_identifier::text FROM pg_control_system()
		ON CONFLICT DO NOTHING`
	if _, err := tx.Exec(ctx, insertHub, uuid.NewString()); err != nil {
		return fmt.Errorf("make the hub's identity: %w", err)
	}
	const insertEpoch = `
		INSERT INTO epoch (epoch, first_seq, last_seq, reason)
		SELECT 1, 1, 0, 'init' WHERE NOT EXISTS (SELECT 1 FROM epoch)`
	if _, err := tx.Exec(ctx, insertEpoch); err != nil {
		return fmt.Errorf("make the first epoch: %w", err)
	}
	seed := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return err
	}
	const insertKey = `
		INSERT INTO signing_key (kid, algorithm, seed)
		SELECT $1, 'EdDSA', $2 WHERE NOT EXISTS (SELECT 1 FROM signing_key)`
	if _, err := tx.Exec(ctx, insertKey, keyFromSeed(seed).ID, seed); err != nil {
		return fmt.Errorf("make the signing key: %w", err)
	}
	const insertAgent = `
		INSERT INTO agent (id, kind, may_delegate, created_at, updated_at) VALUES ($1, $2, false, now(), now())
		ON CONFLICT DO NOTHING`
	if _, err := tx.Exec(ctx, insertAgent, system.ID, system.Kind); err != nil {
		return err
	}
	const insertSeen = `
		INSERT INTO agent_seen (scope, agent, announced) VALUES ('commons', $1, false)
		ON CONFLICT DO NOTHING`
	_, err := tx.Exec(ctx, insertSeen, system.ID)
	return err
}

func keyFromSeed(seed []byte) *verb.Key { return verb.NewKey(ed25519.NewKeyFromSeed(seed)) }

func seedCommons(ctx context.Context, tx pgx.Tx, rows *changeRows, now timeOf) error {
	commons := replicate.Scope{CreatedAt: now, ID: artifact.Commons, Title: "Commons: what everyone may read"}
	const insert = `
		INSERT INTO scope (id, title, created_at, created_by) VALUES ($1, $2, $3, $4)
		ON CONFLICT DO NOTHING`
	tag, err := tx.Exec(ctx, insert, commons.ID, commons.Title, now, system.ID)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	return rows.put(artifact.Commons, replicate.KindScope, "scope:"+commons.ID, 1, artifact.Hash{}, commons, nil)
}
