package node

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

const (
	appliedSQL = `SELECT seq FROM replica_state`
	sumsSQL    = `SELECT scope, kind, type, n, acc FROM digest`
	hashesSQL  = `SELECT scope, 'artifact', type, row_hash FROM artifact
		UNION ALL SELECT scope, 'revision', type, row_hash FROM artifact_revision
		UNION ALL SELECT scope, 'link', 'kg_edge', row_hash FROM link
		UNION ALL SELECT scope, 'signal', 'signal', row_hash FROM signal`
	allEventsSQL = `SELECT seq, type, ref, scope, actor_id, actor_kind, at, payload FROM event`
)

// Digest returns the digest that is kept as rows are applied.
func (s *Store) Digest(ctx context.Context) (d replicate.Digest, err error) {
	err = s.reading(ctx, func(tx *sql.Tx, at replicate.Position) error {
		sums := make(replicate.Sums)
		if err := readSums(ctx, tx, sums); err != nil {
			return err
		}
		d = sums.Digest(at.Seq)
		return nil
	})
	if err != nil {
		return d, fmt.Errorf("read the digest: %w", err)
	}
	return d, nil
}

func readSums(ctx context.Context, tx *sql.Tx, sums replicate.Sums) error {
	return each(ctx, tx, sumsSQL, func(rows *sql.Rows) error {
		var d replicate.DigestSum
		var acc []byte
		if err := rows.Scan(&d.Scope, &d.Kind, &d.Type, &d.Count, &acc); err != nil {
			return err
		}
		copy(d.XOR[:], acc)
		sums[d.DigestKey] = &d
		return nil
	})
}

// Recount returns the digest of what the tables hold now. It reads all rows,
// but no content.
func (s *Store) Recount(ctx context.Context) (d replicate.Digest, err error) {
	err = s.reading(ctx, func(tx *sql.Tx, at replicate.Position) error {
		sums := make(replicate.Sums)
		err := each(ctx, tx, hashesSQL, func(rows *sql.Rows) error {
			var k replicate.DigestKey
			var raw sql.RawBytes
			if err := rows.Scan(&k.Scope, &k.Kind, &k.Type, &raw); err != nil {
				return err
			}
			if len(raw) != artifact.HashSize {
				return fmt.Errorf("a row hash of %d bytes", len(raw))
			}
			count(sums, k, artifact.Hash(raw))
			return nil
		})
		if err != nil {
			return err
		}
		p := &inspection{sums: sums}
		if err := p.events(ctx, tx); err != nil {
			return err
		}
		d = sums.Digest(at.Seq)
		return nil
	})
	if err != nil {
		return d, fmt.Errorf("recount the digest: %w", err)
	}
	return d, nil
}

func count(sums replicate.Sums, k replicate.DigestKey, h artifact.Hash) {
	sum, ok := sums[k]
	if !ok {
		sum = &replicate.DigestSum{DigestKey: k}
		sums[k] = sum
	}
	sum.Add(h)
}

// each runs f on each row of a query.
func each(ctx context.Context, tx *sql.Tx, query string, f func(*sql.Rows) error) error {
	return eachOf(ctx, tx, query, nil, f)
}

func eachOf(ctx context.Context, tx *sql.Tx, query string, args []any, f func(*sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, query, args...)
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
