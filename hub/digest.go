package hub

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// digestQuery sums up all rows by scope, kind and type in one snapshot. Events are
// hashed by the recipe of [replicate.Row.EventHash]. What is for its participants
// alone is in no feed, and so in no digest. The arms that are rolled back
// afterwards are exactly those that [replicate.Sums.Apply] counts.
const digestQuery = `
	WITH hidden AS MATERIALIZED (SELECT type, id FROM artifact WHERE audience = 'participants')
	SELECT scope, kind, type, count(*), bit_xor(('x' || encode(h, 'hex'))::bit(256))::text
	FROM (
		SELECT scope, 'artifact' AS kind, type, row_hash AS h FROM artifact WHERE audience = 'scope'
		UNION ALL SELECT r.scope, 'revision', r.type, r.row_hash FROM artifact_revision r
			WHERE NOT EXISTS (SELECT FROM hidden n WHERE n.type = r.type AND n.id = r.id)
		UNION ALL SELECT l.scope, 'link', 'kg_edge', l.row_hash FROM link l
			WHERE NOT EXISTS (SELECT FROM hidden n WHERE n.type = l.from_type AND n.id = l.from_id)
				AND NOT EXISTS (SELECT FROM hidden n WHERE n.type = l.to_type AND n.id = l.to_id)
		UNION ALL SELECT s.scope, 'signal', 'signal', s.row_hash FROM signal s
			WHERE NOT EXISTS (SELECT FROM hidden n WHERE n.type = s.type AND n.id = s.artifact)
		UNION ALL SELECT scope, 'event', type, sha256(convert_to(concat_ws(E'\n',
			seq::text, type, ref, actor_id, (extract(epoch FROM at) * 1000)::bigint::text, payload), 'UTF8'))
		FROM event WHERE class = 'public'
	) AS rows
	GROUP BY scope, kind, type`

const (
	// maxRoll bounds how many changes lie between a scan and the seq that a digest
	// is of.
	maxRoll = 200_000

	// digestAge bounds how old the scan is that digests of a given seq are made of.
	digestAge = 30 * time.Second
)

// digests keeps the last scan of the tables, so that a thousand nodes which ask for
// digests at once cost the database one.
type digests struct {
	turn chan struct{} // held by whoever scans
	last atomic.Pointer[scan]
	made atomic.Int64 // scans, since the start
}

// A scan is what all scopes came to at a seq.
type scan struct {
	begun time.Time
	head  artifact.Seq
	sums  replicate.Sums
}

// take waits for the turn to scan.
func (d *digests) take(ctx context.Context) (release func(), err error) {
	select {
	case d.turn <- struct{}{}:
		return func() { <-d.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// scanned returns a scan that was begun at a time or later. One is under way at a
// time, and who waited for it takes it too.
func (h *Hub) scanned(ctx context.Context, since time.Time) (*scan, error) {
	fresh := func() *scan {
		if last := h.digests.last.Load(); last != nil && !last.begun.Before(since) {
			return last
		}
		return nil
	}
	if last := fresh(); last != nil {
		return last, nil
	}
	release, err := h.digests.take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if last := fresh(); last != nil {
		return last, nil
	}
	next := &scan{begun: time.Now(), sums: make(replicate.Sums)}
	if err := h.snapshot(ctx, func(tx pgx.Tx, head artifact.Seq) error {
		next.head = head
		rows, err := tx.Query(ctx, digestQuery)
		if err != nil {
			return err
		}
		var k replicate.DigestKey
		var count int64
		var bits string
		_, err = pgx.ForEachRow(rows, []any{&k.Scope, &k.Kind, &k.Type, &count, &bits}, func() error {
			next.sums[k] = &replicate.DigestSum{DigestKey: k, Count: count, XOR: fromBits(bits)}
			return nil
		})
		return err
	}); err != nil {
		return nil, fmt.Errorf("digest: %w", err)
	}
	h.digests.last.Store(next)
	h.digests.made.Add(1)
	return next, nil
}

// longReadQuery makes room for queries that read much, each planned for what it is
// asked for.
const longReadQuery = `SELECT set_config('statement_timeout', '10min', true), set_config('plan_cache_mode', 'force_custom_plan', true)`

// snapshot runs f on one state of the tables, that of the log up to head.
func (h *Hub) snapshot(ctx context.Context, f func(tx pgx.Tx, head artifact.Seq) error) error {
	return snapshot(ctx, h.db, f)
}

func snapshot(ctx context.Context, db *pgxpool.Pool, f func(tx pgx.Tx, head artifact.Seq) error) error {
	return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, longReadQuery); err != nil {
			return err
		}
		var head artifact.Seq
		if err := tx.QueryRow(ctx, headQuery).Scan(&head); err != nil {
			return err
		}
		return f(tx, head)
	})
}

// Digest returns the digest of what followers of these scopes hold at a seq; at
// the head when at is 0. Any other seq is reached from the last scan by the log's
// rows between them, so a follower that lags a little can be compared without
// waiting, and the tables are read at most once in half a minute for all.
func (h *Hub) Digest(ctx context.Context, scopes []string, at artifact.Seq) (d replicate.Digest, err error) {
	since := time.Now()
	if at != 0 {
		since = since.Add(-digestAge)
	}
	base, err := h.scanned(ctx, since)
	if err != nil {
		return d, err
	}
	if first, _, err := bounds(ctx, h.db); err != nil {
		return d, err
	} else if base.head < first-1 { // the log was trimmed since: it leads from there no more
		if base, err = h.scanned(ctx, time.Now()); err != nil {
			return d, err
		}
	}
	if at == 0 {
		at = base.head
	}
	head, err := h.Head(ctx)
	if err != nil {
		return d, err
	}
	if err := h.checkRoll(ctx, h.db, at, base.head, head); err != nil {
		return d, err
	}
	sums := base.sums.Clone()
	undo := at < base.head
	err = rowsBetween(ctx, h.db, min(at, base.head), max(at, base.head), func(r *replicate.Row) error {
		sums.Apply(r, undo)
		return nil
	})
	if err != nil {
		return d, fmt.Errorf("digest: %w", err)
	}
	d = sums.Digest(at).In(scopes)
	d.Scopes = scopes
	if d.Unsettled, err = unsettled(ctx, h.db, scopes, at, head); err != nil {
		return d, fmt.Errorf("digest: %w", err)
	}
	return d, nil
}

// checkRoll refuses a seq that the log does not lead to from a scan: beyond the head,
// too far away, or trimmed.
func (h *Hub) checkRoll(ctx context.Context, db querier, at, from, head artifact.Seq) error {
	if at == from {
		return nil
	}
	first, _, err := bounds(ctx, db)
	if err != nil {
		return err
	}
	const query = `SELECT count(*) FROM (SELECT FROM feed.change WHERE seq > $1 AND seq <= $2 LIMIT $3) AS c`
	var rows int
	if err := db.QueryRow(ctx, query, int64(min(at, from)), int64(max(at, from)), maxRoll+1).Scan(&rows); err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	if at > head || at < first-1 || rows > maxRoll {
		return outOfRange(fmt.Sprintf("a digest is given for the last %d changes that the log keeps, up to seq %d", maxRoll, head), first, head)
	}
	return nil
}

func outOfRange(message string, first, head artifact.Seq) error {
	return &artifact.Error{
		Code: artifact.CodeValidationFailed, Reason: artifact.ReasonSeqOutOfRange,
		Message: message, Details: map[string]any{"head": head, "first": first},
	}
}

// betweenQuery reads what the log's public rows change, without contents, and without
// data but of those that say which events are no longer kept.
const betweenQuery = `
	SELECT c.seq, c.scope, c.kind, c.op, c.ref, c.revision, c.hash, c.prev_hash, c.at, e.type, e.ref, e.actor_id, e.payload,
		CASE WHEN c.kind = 'event_floor' THEN c.data END
	FROM feed.change c
	LEFT JOIN event e ON e.seq = c.seq AND e.seq > $1 AND e.seq <= $2 AND c.event_type IS NOT NULL
	WHERE c.class = 'public' AND c.seq > $1 AND c.seq <= $2
	ORDER BY c.seq`

// rowsBetween passes the public rows after one seq up to and with another to f, in
// order, each as far as the digest counts it.
func rowsBetween(ctx context.Context, db querier, after, to artifact.Seq, f func(*replicate.Row) error) error {
	if after >= to {
		return nil
	}
	rows, err := db.Query(ctx, betweenQuery, int64(after), int64(to))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r replicate.Row
		var hash, prev []byte
		var typ, ref, actor, payload, data *string
		if err := rows.Scan(&r.Seq, &r.Scope, &r.Kind, &r.Op, &r.Ref, &r.Revision, &hash, &prev, &r.At, &typ, &ref, &actor, &payload, &data); err != nil {
			return err
		}
		copy(r.Hash[:], hash)
		copy(r.PrevHash[:], prev)
		if typ != nil {
			r.Event = &replicate.RowEvent{Type: *typ, Ref: *ref, ActorID: *actor, Payload: []byte(*payload)}
		}
		if data != nil {
			r.Data = []byte(*data)
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// unsettledQuery finds what was moved away, taken back or redacted after a seq: what
// the log says of it up to there may be withheld.
const unsettledQuery = `
	SELECT DISTINCT c.scope, c.kind, split_part(c.ref, ':', 1), c.op
	FROM feed.change c
	WHERE c.scope = ANY ($1) AND c.class = 'public' AND c.seq > $2 AND c.seq <= $3
		AND (c.op = 'D' OR c.kind = 'revision' AND c.prev_hash IS NOT NULL)`

// unsettled returns the keys under which a follower at a seq may rightly hold less,
// or other rows, than the log's hashes up to there say.
func unsettled(ctx context.Context, db querier, scopes []string, at, head artifact.Seq) (keys []replicate.DigestKey, err error) {
	if at >= head {
		return nil, nil
	}
	rows, err := db.Query(ctx, unsettledQuery, scopes, int64(at), int64(head))
	if err != nil {
		return nil, err
	}
	var k replicate.DigestKey
	var op string
	_, err = pgx.ForEachRow(rows, []any{&k.Scope, &k.Kind, &k.Type, &op}, func() error {
		if op != replicate.Delete { // a redaction, of the head too
			keys = append(keys, replicate.DigestKey{Scope: k.Scope, Kind: replicate.KindArtifact, Type: k.Type})
		}
		keys = append(keys, k)
		return nil
	})
	slices.SortFunc(keys, replicate.DigestKey.Compare)
	return slices.Compact(keys), err
}

// fromBits reads the text form of a bit string of 256 bits.
func fromBits(bits string) (h artifact.Hash) {
	for i := range len(bits) {
		if i/8 < len(h) && bits[i] == '1' {
			h[i/8] |= 1 << (7 - i%8)
		}
	}
	return h
}
