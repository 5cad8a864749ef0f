package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

const (
	// eventStep bounds how many events one transaction takes out: it holds up who
	// applies its rows.
	eventStep = 10_000

	// eventGrace is how much longer events are kept for a consumer that is used and
	// has not got past them.
	eventGrace = 30 * 24 * time.Hour
)

// An EventStatus tells which events are kept.
type EventStatus struct {
	Floor  artifact.Seq `json:"floor"` // up to it none are
	First  artifact.Seq `json:"first"` // the first that is kept; 0 for none
	Oldest time.Time    `json:"oldest,omitzero"`
	Bytes  int64        `json:"bytes"` // with indexes
	Due    artifact.Seq `json:"due"`   // up to where they may go now, beginning with the oldest; 0 for none
}

// A TrimmedEvents tells what was taken out, or would be.
type TrimmedEvents struct {
	Events int64        `json:"events"`
	UpTo   artifact.Seq `json:"upto"` // 0 for none
}

const (
	// Events that the log's rows lead to stay: its chain is made of them, and digests
	// of a moment before. So a node that need not copy anew misses none.
	eventLimitQuery = `
		SELECT seq, first, least(first, (SELECT min(k.cursor) FROM consumer_subscriptions k
			WHERE k.cursor > 0 AND k.cursor >= seq AND k.last_activity_at > now() - $1::interval))
		FROM (SELECT seq, coalesce((SELECT c.seq - 1 FROM feed.change c ORDER BY c.seq LIMIT 1), 0) AS first FROM feed.event_floor) AS f`
	eventsDueQuery = `
		SELECT coalesce(max(seq), 0), count(*)
		FROM (SELECT seq, at FROM event WHERE seq > $1 AND seq <= $2 ORDER BY seq LIMIT $3) AS e
		WHERE at < now() - $4::interval`
	// goneEventsQuery sums up the public ones by the recipe of digestQuery.
	goneEventsQuery = `
		SELECT scope, type, count(*), max(seq), bit_xor(('x' || encode(sha256(convert_to(concat_ws(E'\n',
			seq::text, type, ref, actor_id, (extract(epoch FROM at) * 1000)::bigint::text, payload), 'UTF8')), 'hex'))::bit(256))::text
		FROM event WHERE class = 'public' AND seq > $1 AND seq <= $2
		GROUP BY scope, type ORDER BY scope COLLATE "C", type COLLATE "C"`
	dropEventsQuery  = `DELETE FROM event WHERE seq > $1 AND seq <= $2`
	moveFloorQuery   = `UPDATE feed.event_floor SET seq = $1`
	eventFloorQuery  = `SELECT seq FROM feed.event_floor`
	emptyEventsQuery = `
		SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = 'event'::regclass AND NOT i.inhdetachpending
			AND (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''(\d+)''\)'))[1]::bigint - 1 <= $1
		ORDER BY 1`
	oldestEventQuery = `SELECT seq, at FROM event ORDER BY seq LIMIT 1`
	eventBytesQuery  = `SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits WHERE inhparent = 'event'::regclass`
)

// eventsDue returns the floor, and up to where at most so many events after it may
// go: they are older than is kept, no row of the log leads to them, and no consumer
// that is used needs them still, unless that has not come to them for a month more.
func (r Retention) eventsDue(ctx context.Context, db querier, limit int) (floor, upTo artifact.Seq, n int64, err error) {
	r = r.orDefaults()
	var held, first artifact.Seq
	if err := db.QueryRow(ctx, eventLimitQuery, r.Lease).Scan(&floor, &first, &held); err != nil {
		return 0, 0, 0, err
	}
	for _, bound := range []struct {
		upTo artifact.Seq
		age  time.Duration
	}{{first, r.Events + eventGrace}, {held, r.Events}} {
		var to artifact.Seq
		var count int64
		if err := db.QueryRow(ctx, eventsDueQuery, int64(floor), int64(bound.upTo), limit, bound.age).Scan(&to, &count); err != nil {
			return 0, 0, 0, err
		}
		if to > upTo {
			upTo, n = to, count
		}
	}
	return floor, upTo, n, nil
}

// TrimEvents takes out the events that need not be kept, in steps, each with the rows
// that tell followers so. With dry set it only counts.
func TrimEvents(ctx context.Context, db *pgxpool.Pool, r Retention, dry bool) (out TrimmedEvents, err error) {
	if dry {
		_, out.UpTo, out.Events, err = r.eventsDue(ctx, db, 1<<31-1)
		return out, err
	}
	err = whileTrimming(ctx, db, func(conn *pgx.Conn) error {
		for {
			n, upTo, err := trimEventStep(ctx, db, r)
			if err != nil {
				return fmt.Errorf("take out events: %w", err)
			}
			if n == 0 {
				break
			}
			out.Events, out.UpTo = out.Events+n, upTo
		}
		return dropEmptyEvents(ctx, conn)
	})
	return out, err
}

func trimEventStep(ctx context.Context, db *pgxpool.Pool, r Retention) (n int64, upTo artifact.Seq, err error) {
	_, err = systemCommit(ctx, db, "trim_events", func(tx querier, rows *changeRows, b *pgx.Batch) error {
		var floor artifact.Seq
		if floor, upTo, n, err = r.eventsDue(ctx, tx, eventStep); err != nil || n == 0 {
			return err
		}
		floors, err := goneEvents(ctx, tx, floor, upTo)
		if err != nil {
			return err
		}
		for i := range floors {
			f := &floors[i]
			if err := rows.put(f.Scope, replicate.KindEventFloor, replicate.EventFloorRef(f.Scope), 1, noHash, f, nil); err != nil {
				return err
			}
		}
		b.Queue(dropEventsQuery, int64(floor), int64(upTo))
		b.Queue(moveFloorQuery, int64(upTo))
		if floors == nil { // private ones alone, of which nobody is told
			b.Queue("COMMIT")
			return tx.SendBatch(ctx, b).Close()
		}
		return nil
	})
	return n, upTo, err
}

// goneEvents returns what each scope is told. Each floor is the last event of its own
// that goes: nothing of other scopes, or of private events, is in it.
func goneEvents(ctx context.Context, tx querier, after, upTo artifact.Seq) (floors []replicate.EventFloor, err error) {
	rows, err := tx.Query(ctx, goneEventsQuery, int64(after), int64(upTo))
	if err != nil {
		return nil, err
	}
	var scope, bits string
	var sum replicate.EventSum
	var last artifact.Seq
	_, err = pgx.ForEachRow(rows, []any{&scope, &sum.Type, &sum.Count, &last, &bits}, func() error {
		if n := len(floors); n == 0 || floors[n-1].Scope != scope {
			floors = append(floors, replicate.EventFloor{Scope: scope})
		}
		f := &floors[len(floors)-1]
		sum.XOR = fromBits(bits)
		f.Sums, f.UpTo = append(f.Sums, sum), max(f.UpTo, last)
		return nil
	})
	return floors, err
}

// dropEmptyEvents drops the partitions whose events are all gone.
func dropEmptyEvents(ctx context.Context, conn *pgx.Conn) error {
	var floor artifact.Seq
	if err := conn.QueryRow(ctx, eventFloorQuery).Scan(&floor); err != nil {
		return err
	}
	rows, err := conn.Query(ctx, emptyEventsQuery, int64(floor))
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := dropPartition(ctx, conn, "event", pgx.Identifier{name}); err != nil {
			return fmt.Errorf("drop partition %s of events: %w", name, err)
		}
	}
	return nil
}

func readEventStatus(ctx context.Context, db querier, r Retention) (s EventStatus, err error) {
	if s.Floor, s.Due, _, err = r.eventsDue(ctx, db, eventStep); err != nil {
		return s, fmt.Errorf("read which events are due: %w", err)
	}
	rows, err := db.Query(ctx, oldestEventQuery)
	if err != nil {
		return s, err
	}
	if _, err := pgx.ForEachRow(rows, []any{&s.First, &s.Oldest}, func() error { s.Oldest = s.Oldest.UTC(); return nil }); err != nil {
		return s, fmt.Errorf("read the oldest event: %w", err)
	}
	return s, db.QueryRow(ctx, eventBytesQuery).Scan(&s.Bytes)
}
