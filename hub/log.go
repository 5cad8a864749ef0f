package hub

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A logRow is a row of the log with its class, which the wire does not carry.
type logRow struct {
	replicate.Row
	class string
}

// maxReadBytes bounds the data and contents that one read of the log brings.
const maxReadBytes = 4 << 20

// logQuery reads rows after a seq with their events and contents. The rows end
// with the one that brings the sum of their bytes to $3 or past it. The joins are
// LATERAL with a limit because the planner, which cannot know how few rows $2 lets
// through, would otherwise hash whole tables.
const logQuery = logBegin + `SELECT * FROM feed.change WHERE seq > $1 ORDER BY seq LIMIT $2` + logEnd

// scopeRowsQuery reads the public rows of the scopes $4 after a seq and up to $5 alike.
// What it costs depends on how many those are, not on how many lie between them:
// of each scope it takes no more than $2 from the index.
const scopeRowsQuery = logBegin + `
	SELECT w.* FROM (
		SELECT n.seq FROM unnest($4::text[]) AS s (scope)
		CROSS JOIN LATERAL (
			SELECT seq FROM feed.change WHERE scope = s.scope AND class = 'public' AND seq > $1 AND seq <= $5 ORDER BY seq LIMIT $2
		) n
		ORDER BY n.seq LIMIT $2
	) n CROSS JOIN LATERAL (SELECT * FROM feed.change WHERE seq = n.seq LIMIT 1) w` + logEnd

const (
	logBegin = `
	SELECT seq, commit_seq, class, scope, kind, op, ref, revision, hash, prev_hash, data, at, type, event_ref, actor_id, actor_kind, payload, content
	FROM (
		SELECT c.seq, c.commit_seq, c.class, c.scope, c.kind, c.op, c.ref, c.revision, c.hash, c.prev_hash, c.data, c.at,
			e.type, e.ref AS event_ref, e.actor_id, e.actor_kind, e.payload, r.content,
			sum(coalesce(octet_length(r.content), 0) + coalesce(octet_length(c.data), 0))
				OVER (ORDER BY c.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
		FROM (`
	logEnd = `) c
		LEFT JOIN LATERAL (
			SELECT e.type, e.ref, e.actor_id, e.actor_kind, e.payload FROM event e
			WHERE e.seq = c.seq AND c.event_type IS NOT NULL
			LIMIT 1
		) e ON true
		LEFT JOIN LATERAL (
			SELECT r.content FROM artifact_revision r
			WHERE c.kind = 'revision' AND c.op = 'P' AND c.data IS NOT NULL
				AND r.type = split_part(c.ref, ':', 1) AND r.id = substr(c.ref, strpos(c.ref, ':') + 1) AND r.revision = c.revision
			LIMIT 1
		) r ON true
	) AS sized
	WHERE coalesce(before, 0) < $3
	ORDER BY seq`
)

// chainQuery reads of rows what the chain is made of: neither data nor contents.
const chainQuery = `
	SELECT c.seq, c.commit_seq, c.class, c.scope, c.kind, c.op, c.ref, c.revision, c.hash, c.prev_hash, NULL::text, c.at,
		e.type, e.ref, e.actor_id, e.actor_kind, e.payload, NULL::text
	FROM (
		SELECT * FROM feed.change WHERE seq > $1 ORDER BY seq LIMIT $2
	) c
	LEFT JOIN LATERAL (
		SELECT e.type, e.ref, e.actor_id, e.actor_kind, e.payload FROM event e
		WHERE e.seq = c.seq AND c.event_type IS NOT NULL
		LIMIT 1
	) e ON true
	ORDER BY c.seq`

// A querier is a pool or a transaction.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// readLog returns the rows after a seq, at most limit.
func readLog(ctx context.Context, db querier, after artifact.Seq, limit int) ([]logRow, error) {
	return queryLog(ctx, db, after, logQuery, int64(after), limit, maxReadBytes)
}

// readScopes returns the public rows of scopes after a seq and up to another, at
// most limit. It reports whether these are all.
func readScopes(ctx context.Context, db querier, scopes []string, after, upTo artifact.Seq, limit int) (rows []logRow, all bool, err error) {
	rows, err = queryLog(ctx, db, after, scopeRowsQuery, int64(after), limit, maxReadBytes, scopes, int64(upTo))
	return rows, len(rows) < limit && sizeOf(rows) < maxReadBytes, err
}

func queryLog(ctx context.Context, db querier, after artifact.Seq, query string, args ...any) ([]logRow, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the log after %d: %w", after, err)
	}
	out, err := pgx.CollectRows(rows, scanLogRow)
	if err != nil {
		return nil, fmt.Errorf("read the log after %d: %w", after, err)
	}
	return out, nil
}

func scanLogRow(row pgx.CollectableRow) (r logRow, err error) {
	var hash, prev []byte
	var data, eventType, eventRef, actorID, actorKind, payload, content *string
	err = row.Scan(&r.Seq, &r.Commit, &r.class, &r.Scope, &r.Kind, &r.Op, &r.Ref, &r.Revision, &hash, &prev, &data, &r.At,
		&eventType, &eventRef, &actorID, &actorKind, &payload, &content)
	if err != nil {
		return r, err
	}
	r.At = r.At.UTC()
	copy(r.Hash[:], hash)
	copy(r.PrevHash[:], prev)
	if data != nil {
		r.Data = []byte(*data)
	}
	if content != nil {
		r.Content = []byte(*content)
	}
	if eventType != nil {
		r.Event = &replicate.RowEvent{Type: *eventType, Ref: *eventRef, ActorID: *actorID, ActorKind: *actorKind, Payload: []byte(*payload)}
	}
	return r, nil
}

// A chainCursor walks the log in order and keeps its chain. It refuses a hole,
// which a dense log cannot have.
type chainCursor struct {
	seq   artifact.Seq
	chain artifact.Hash
}

func (c *chainCursor) step(r *logRow) error {
	if !c.precedes(r.Seq) {
		return fmt.Errorf("the log has a hole: %d stands after %d", r.Seq, c.seq)
	}
	c.seq, c.chain = r.Seq, r.Extend(c.chain, r.class)
	return nil
}

// precedes reports whether seq is the next after c: by one, or over the jump
// where an epoch begins.
func (c *chainCursor) precedes(seq artifact.Seq) bool {
	return seq == c.seq+1 || seq > c.seq+replicate.EpochJump/2
}

// checkpointEvery is how many seqs lie between two checkpoints.
const checkpointEvery = 1000

// nearestCheckpoint returns the chain at the last checkpoint at or before a seq.
func nearestCheckpoint(ctx context.Context, db querier, at artifact.Seq) (c chainCursor, err error) {
	const query = `SELECT seq, chain FROM feed.checkpoint WHERE seq <= $1 ORDER BY seq DESC LIMIT 1`
	var chain []byte
	err = db.QueryRow(ctx, query, int64(at)).Scan(&c.seq, &chain)
	if errors.Is(err, pgx.ErrNoRows) {
		return chainCursor{}, nil
	}
	copy(c.chain[:], chain)
	return c, err
}

// noteCheckpoint notes the chain. Several hubs note the same.
func noteCheckpoint(ctx context.Context, db querier, at chainCursor) error {
	const insert = `
		INSERT INTO feed.checkpoint (seq, chain) VALUES ($1, $2)
		ON CONFLICT DO NOTHING`
	_, err := db.Exec(ctx, insert, int64(at.seq), at.chain[:])
	return err
}

// commitEnd returns where the last whole commit up to a seq ends; the seq itself
// when the log does not tell.
func commitEnd(ctx context.Context, db querier, at artifact.Seq) (end artifact.Seq, err error) {
	const query = `SELECT seq FROM feed.change WHERE seq <= $1 AND commit_seq = seq ORDER BY seq DESC LIMIT 1`
	err = db.QueryRow(ctx, query, int64(at)).Scan(&end)
	if errors.Is(err, pgx.ErrNoRows) {
		return at, nil
	}
	return end, err
}

// errNoSuchSeq reports a seq in the jump between two epochs.
var errNoSuchSeq = errors.New("no row of the log has this seq")

// chainAt returns the log's chain at a seq up to its head, or errNoSuchSeq.
func chainAt(ctx context.Context, db querier, at artifact.Seq) (artifact.Hash, error) {
	c, err := nearestCheckpoint(ctx, db, at)
	if err != nil {
		return artifact.Hash{}, err
	}
	for c.seq < at {
		rows, err := queryLog(ctx, db, c.seq, chainQuery, int64(c.seq), int(min(at-c.seq, checkpointEvery)))
		if err != nil {
			return artifact.Hash{}, err
		}
		if len(rows) == 0 {
			return artifact.Hash{}, fmt.Errorf("the log ends at %d, before %d", c.seq, at)
		}
		for i := range rows {
			if c.seq == at { // a read across the jump of an epoch brings more
				break
			}
			if rows[i].Seq > at {
				return artifact.Hash{}, errNoSuchSeq
			}
			if err := c.step(&rows[i]); err != nil {
				return artifact.Hash{}, err
			}
		}
	}
	return c.chain, nil
}

// floorOf returns the smallest position that the log can be resumed at, given
// the first seq that it keeps: the chain of a position is told from a checkpoint
// at or before it, which rows lead on from.
func floorOf(ctx context.Context, db querier, first artifact.Seq) (floor artifact.Seq, err error) {
	if first <= 1 {
		return 0, nil
	}
	c, err := nearestCheckpoint(ctx, db, first-1)
	if err != nil || c.seq > 0 && c.precedes(first) {
		return c.seq, err
	}
	const query = `SELECT seq FROM feed.checkpoint WHERE seq >= $1 ORDER BY seq LIMIT 1`
	err = db.QueryRow(ctx, query, int64(first-1)).Scan(&floor)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("the log begins at %d, after its last checkpoint", first)
	}
	return floor, err
}

// bounds returns the first seq that the log keeps and its last; 0 and 0 when it
// is empty.
func bounds(ctx context.Context, db querier) (first, last artifact.Seq, err error) {
	const query = `
		SELECT coalesce((SELECT seq FROM feed.change ORDER BY seq LIMIT 1), 0), (` + headQuery + `)`
	err = db.QueryRow(ctx, query).Scan(&first, &last)
	return first, last, err
}
