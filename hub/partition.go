package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	defaultPartitionRows = 1 << 20
	partitionsAhead      = 2
	partitionCheck       = 10 * time.Second
)

// keepPartitions makes partitions ahead of the log until ctx ends.
func (h *Hub) keepPartitions(ctx context.Context) error {
	tick := time.NewTicker(partitionCheck)
	defer tick.Stop()
	for {
		if err := ensurePartitions(ctx, h.db, h.config.PartitionRows, 0); err != nil && ctx.Err() == nil {
			h.log.ErrorContext(ctx, "log partitions could not be made", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ensurePartitions makes partitions of the feed and of events until two whole
// ones, or one and a half, lie ahead of the log and of a commit of so many rows.
func ensurePartitions(ctx context.Context, db *pgxpool.Pool, span, rows int64) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, initLock); err != nil {
			return err
		}
		for _, parent := range []string{"feed.change", "event"} {
			if err := ensurePartitionsOf(ctx, tx, parent, span, rows); err != nil {
				return fmt.Errorf("partition %s: %w", parent, err)
			}
		}
		return nil
	})
}

func ensurePartitionsOf(ctx context.Context, tx pgx.Tx, parent string, span, rows int64) error {
	end, err := partitionEnd(ctx, tx, parent)
	if err != nil {
		return err
	}
	next, err := nextSeq(ctx, tx)
	if err != nil {
		return err
	}
	start := max(end, next-next%span)
	for start < next+rows+partitionsAhead*span-span/2 {
		// LIKE and ATTACH take no lock that stops writers of the other
		// partitions; names and bounds are our own numbers, never input.
		name := fmt.Sprintf("%s_%d", parent, start)
		for _, sql := range []string{
			fmt.Sprintf(`CREATE TABLE %s (LIKE %s INCLUDING ALL)`, name, parent),
			fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)`, parent, name, start, start+span),
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		start += span
	}
	return nil
}

// partitionEnd returns the first seq that no partition of a table takes.
func partitionEnd(ctx context.Context, q querier, parent string) (end int64, err error) {
	const query = `
		SELECT coalesce(max((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''(\d+)''\)'))[1]::bigint), 0)
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = $1::text::regclass`
	err = q.QueryRow(ctx, query, parent).Scan(&end)
	return end, err
}

// nextSeq returns the seq that the next commit begins with.
func nextSeq(ctx context.Context, q querier) (next int64, err error) {
	const query = `SELECT greatest((` + headQuery + `) + 1, coalesce(max(first_seq), 1)) FROM epoch`
	err = q.QueryRow(ctx, query).Scan(&next)
	return next, err
}

// partitionsLeft returns how many seqs the made partitions still take.
func (h *Hub) partitionsLeft(ctx context.Context) (int64, error) {
	end, err := partitionEnd(ctx, h.db, "feed.change")
	if err != nil {
		return 0, err
	}
	next, err := nextSeq(ctx, h.db)
	return end - next, err
}
