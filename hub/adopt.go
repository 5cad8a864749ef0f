package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// Reasons to adopt a database.
const (
	AdoptRestore = "restore" // from a backup: commits may be lost
	AdoptUpgrade = "upgrade" // the whole of it moved: nothing can be lost
)

// Adopt accepts a database that lives on another PostgreSQL cluster than its hub
// last ran on, which [Open] refuses. After a restore it begins an epoch whose
// seqs lie far beyond any that lost commits had, so that no follower mistakes
// new changes for those. It returns [ErrRunning] while a hub runs on the database.
func Adopt(ctx context.Context, db *pgxpool.Pool, reason string) error {
	if reason != AdoptRestore && reason != AdoptUpgrade {
		return fmt.Errorf("adopt: the reason is %s or %s, not %q", AdoptRestore, AdoptUpgrade, reason)
	}
	if err := CheckMigrated(ctx, db); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// A hub that just stopped gives its lock back a moment later.
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '3s'`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, presenceLock); err != nil {
			if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == lockNotAvailable {
				return ErrRunning
			}
			return err
		}
		return takeOver(ctx, tx, reason)
	})
	if err != nil {
		return fmt.Errorf("adopt the database: %w", err)
	}
	return ensurePartitions(ctx, db, defaultPartitionRows, 0)
}

// Epoch returns the epoch that a hub's database is in.
func Epoch(ctx context.Context, db *pgxpool.Pool) (n int, err error) {
	err = db.QueryRow(ctx, `SELECT max(epoch) FROM epoch`).Scan(&n)
	return n, err
}

// takeOver notes the cluster that the database is on now, and after a restore begins
// an epoch.
func takeOver(ctx context.Context, tx pgx.Tx, reason string) error {
	const move = `UPDATE hub SET system_identifier = (SELECT system_identifier::text FROM pg_control_system())`
	if tag, err := tx.Exec(ctx, move); err != nil {
		return err
	} else if tag.RowsAffected() == 0 {
		return ErrNotInitialised
	}
	if reason == AdoptRestore {
		return beginEpoch(ctx, tx, reason)
	}
	return nil
}

// epochStep bounds by how much the number of an epoch rises: by chance, so that two
// restores of one backup, which have all else alike, are in epochs of two numbers.
const epochStep = 1 << 16

// beginEpoch ends the epoch at the log's head and begins the next.
func beginEpoch(ctx context.Context, tx pgx.Tx, reason string) error {
	if _, err := tx.Exec(ctx, `SELECT FROM feed.lock FOR NO KEY UPDATE`); err != nil {
		return err
	}
	var head artifact.Seq
	if err := tx.QueryRow(ctx, headQuery).Scan(&head); err != nil {
		return err
	}
	chain, err := chainAt(ctx, tx, head)
	if err != nil {
		return fmt.Errorf("read the chain at %d: %w", head, err)
	}
	if head > 0 { // the chain goes on from here even when all before is trimmed
		if err := noteCheckpoint(ctx, tx, chainCursor{head, chain}); err != nil {
			return err
		}
	}
	const insert = `
		INSERT INTO epoch (epoch, first_seq, last_seq, reason)
		SELECT max(epoch) + $4, $1::bigint + $2, $1, $3 FROM epoch`
	_, err = tx.Exec(ctx, insert, int64(head), int64(replicate.EpochJump), reason, 1+rand.N(epochStep)) //nolint:gosec // chance, not a secret
	return err
}
