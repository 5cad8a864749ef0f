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
func (s *Store) Digest(ctx context.Context) (replicate.Digest, error) {
	return s.digest(ctx, "read the digest", func(tx *sql.Tx, sums replicate.Sums) error {
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
	})
}

// Recount returns the digest of what the tables hold now. It reads all rows,
// but no content.
func (s *Store) Recount(ctx context.Context) (replicate.Digest, error) {
	return s.digest(ctx, "recount the digest", func(tx *sql.Tx, sums replicate.Sums) error {
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
		return each(ctx, tx, allEventsSQL, func(rows *sql.Rows) error {
			e, err := scanEvent(rows)
			if err != nil {
				return err
			}
			r := replicate.Row{Seq: e.ID, At: e.At, Event: &replicate.RowEvent{Type: e.Type, Ref: e.Ref, ActorID: e.Actor.ID, Payload: e.Payload}}
			count(sums, replicate.DigestKey{Scope: e.Scope, Kind: replicate.KindEvent, Type: e.Type}, r.EventHash())
			return nil
		})
	})
}

// digest gathers sums in one read transaction with the position they are of.
func (s *Store) digest(ctx context.Context, what string, gather func(*sql.Tx, replicate.Sums) error) (replicate.Digest, error) {
	tx, err := s.readers.BeginTx(ctx, nil)
	if err != nil {
		return replicate.Digest{}, fmt.Errorf("%s: %w", what, err)
	}
	defer tx.Rollback() //nolint:errcheck // it only read
	var at artifact.Seq
	if err := tx.StmtContext(ctx, s.read.applied).QueryRowContext(ctx).Scan(&at); err != nil { //nolint:sqlclosecheck // the transaction closes it
		return replicate.Digest{}, fmt.Errorf("%s: %w", what, err)
	}
	sums := make(replicate.Sums)
	if err := gather(tx, sums); err != nil {
		return replicate.Digest{}, fmt.Errorf("%s: %w", what, err)
	}
	return sums.Digest(at), nil
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
	rows, err := tx.QueryContext(ctx, query)
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
