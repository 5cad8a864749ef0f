package hub

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A Fault is something that a hub's tables hold and no write of a hub makes.
type Fault struct {
	Kind     string `json:"kind"` // of row, or "log"
	Ref      string `json:"ref"`
	Revision int    `json:"revision,omitempty"`
	What     string `json:"what"`
}

// A Verification is the outcome of checking a hub's tables against themselves.
type Verification struct {
	Head   artifact.Seq     `json:"head"`
	Rows   map[string]int64 `json:"rows"`   // checked, by kind
	Total  int64            `json:"total"`  // of faults
	Faults []Fault          `json:"faults"` // the first ones
}

// maxFaults bounds how many faults are told one by one.
const maxFaults = 1000

func (v *Verification) note(f Fault) {
	if v.Total++; len(v.Faults) < maxFaults {
		v.Faults = append(v.Faults, f)
	}
}

// Verify checks all rows of a hub's database, in one state of it: that each is what
// its hash says, that the log is whole and its chain holds, that the tables are what
// the log says last, and that what rows name is there. It changes nothing, and a hub
// may run meanwhile.
func Verify(ctx context.Context, db *pgxpool.Pool) (Verification, error) {
	v := Verification{Rows: make(map[string]int64), Faults: []Fault{}}
	err := snapshot(ctx, db, func(tx pgx.Tx, head artifact.Seq) error {
		v.Head = head
		for _, check := range []func(context.Context, pgx.Tx) error{v.rows, v.log, v.replaced, v.last, v.constraints} {
			if err := check(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return v, fmt.Errorf("verify: %w", err)
	}
	return v, nil
}

// rows makes each row of the tables again and hashes it.
func (v *Verification) rows(ctx context.Context, tx pgx.Tx) error {
	for _, table := range []struct {
		kind, query string
		scan        func(pgx.CollectableRow) (storedRow, error)
	}{
		{replicate.KindArtifact, allHeadsQuery, scanStoredHead},
		{replicate.KindRevision, allVersionsQuery, scanStoredRevision},
		{replicate.KindLink, allLinksQuery, scanStoredLink},
		{replicate.KindSignal, allSignalsQuery, scanStoredSignal},
	} {
		rows, err := tx.Query(ctx, table.query)
		if err != nil {
			return err
		}
		for rows.Next() {
			v.Rows[table.kind]++
			s, err := table.scan(rows)
			switch {
			case err != nil: // such as JSON that is none; the values are told by the next fault that they cause
				v.note(Fault{Kind: table.kind, Ref: s.Ref, What: "it cannot be read: " + err.Error()})
			case s.faulty:
				v.note(Fault{Kind: table.kind, Ref: s.Ref, Revision: s.Revision, What: "it is not what its hash says"})
			}
		}
		rows.Close()
		if err := rows.Err(); err != nil {
			return err
		}
	}
	return nil
}

const wholeLogQuery = `
	SELECT c.seq, c.commit_seq, c.class, c.scope, c.kind, c.op, c.ref, c.revision, c.hash, c.prev_hash, c.data, c.at,
		CASE WHEN c.event_type IS NOT NULL THEN coalesce(e.type, '') END, coalesce(e.ref, ''), coalesce(e.actor_id, ''),
		coalesce(e.actor_kind, ''), coalesce(e.payload, ''), NULL::text, k.chain
	FROM feed.change c
	LEFT JOIN event e ON e.seq = c.seq
	LEFT JOIN feed.checkpoint k ON k.seq = c.seq
	ORDER BY c.seq`

// log walks the log from its start.
func (v *Verification) log(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, wholeLogQuery)
	if err != nil {
		return err
	}
	defer rows.Close()
	var at chainCursor
	known := true // the chain at the cursor is known
	for rows.Next() {
		var checkpoint []byte
		r, err := scanLogRow(withColumn{rows, &checkpoint})
		if err != nil {
			return err
		}
		v.Rows["log"]++
		fault := func(what string) {
			v.note(Fault{Kind: "log", Ref: fmt.Sprintf("%d: %s %s", r.Seq, r.Kind, r.Ref), Revision: r.Revision, What: what})
		}
		if v.Rows["log"] == 1 && r.Seq > 1 { // what stood before was trimmed
			at, known = chainCursor{seq: r.Seq - 1}, false
		}
		if r.Op == replicate.Put && r.Data != nil && artifact.HashBytes(r.Data) != r.Hash {
			fault("its data is not what its hash says")
		}
		if r.Event != nil && r.Event.Type == "" {
			fault("its event is gone")
		}
		if err := at.step(&r); err != nil {
			fault(err.Error())
			at, known = chainCursor{seq: r.Seq}, false
		}
		if checkpoint == nil {
			continue
		}
		if known && at.chain != artifact.Hash(checkpoint) {
			fault("the chain up to here is not the one that was noted")
		}
		known = true
		copy(at.chain[:], checkpoint)
	}
	return rows.Err()
}

// A withColumn is a row with one column more than is asked for.
type withColumn struct {
	pgx.CollectableRow
	last any
}

// Scan implements [pgx.CollectableRow].
func (w withColumn) Scan(dest ...any) error { return w.CollectableRow.Scan(append(dest, w.last)...) }

// lastQueries find, by kind, what the tables hold otherwise than the log says last.
var lastQueries = map[string]string{
	replicate.KindArtifact: `
		SELECT l.ref, 0, l.op FROM (
			SELECT DISTINCT ON (c.ref) c.ref, c.op, c.hash FROM feed.change c WHERE c.kind = 'artifact' ORDER BY c.ref, c.seq DESC
		) l
		LEFT JOIN artifact t ON t.type = split_part(l.ref, ':', 1) AND t.id = substr(l.ref, strpos(l.ref, ':') + 1)
		WHERE t.row_hash IS DISTINCT FROM CASE WHEN l.op = 'P' THEN l.hash END`,
	replicate.KindRevision: `
		SELECT l.ref, l.revision, l.op FROM (
			SELECT DISTINCT ON (c.ref, c.revision) c.ref, c.revision, c.op, c.hash FROM feed.change c WHERE c.kind = 'revision' ORDER BY c.ref, c.revision, c.seq DESC
		) l
		LEFT JOIN artifact_revision t ON t.type = split_part(l.ref, ':', 1) AND t.id = substr(l.ref, strpos(l.ref, ':') + 1) AND t.revision = l.revision
		WHERE t.row_hash IS DISTINCT FROM CASE WHEN l.op = 'P' THEN l.hash END`,
	replicate.KindLink: `
		SELECT l.ref, 0, l.op FROM (
			SELECT DISTINCT ON (c.ref) c.ref, c.op, c.hash FROM feed.change c WHERE c.kind = 'link' ORDER BY c.ref, c.seq DESC
		) l
		LEFT JOIN link t ON t.id = substr(l.ref, strpos(l.ref, ':') + 1)
		WHERE t.row_hash IS DISTINCT FROM CASE WHEN l.op = 'P' THEN l.hash END`,
	replicate.KindSignal: `
		SELECT l.ref, 0, l.op FROM (
			SELECT DISTINCT ON (c.ref) c.ref, c.op, c.hash FROM feed.change c WHERE c.kind = 'signal' ORDER BY c.ref, c.seq DESC
		) l
		LEFT JOIN signal t ON t.id = substr(l.ref, strpos(l.ref, ':') + 1)
		WHERE t.row_hash IS DISTINCT FROM CASE WHEN l.op = 'P' THEN l.hash END`,
}

// replacedQuery finds rows of the log that replace something else than the log
// last said of their thing: the tables were changed past the hub before, and all
// who follow keep sums that are off by that.
const replacedQuery = `
	SELECT 'log', seq::text || ': ' || kind || ' ' || ref, revision FROM (
		SELECT seq, kind, ref, revision, prev_hash, row_number() OVER thing AS n, lag(CASE WHEN op = 'P' THEN hash END) OVER thing AS before
		FROM feed.change WHERE kind IN ('artifact', 'revision', 'link', 'signal') AND op IN ('P', 'D')
		WINDOW thing AS (PARTITION BY kind, ref, CASE WHEN kind = 'revision' THEN revision END ORDER BY seq)
	) AS told
	WHERE n > 1 AND prev_hash IS DISTINCT FROM before`

// replaced checks what the log's rows say that they replace, as far as it goes back.
func (v *Verification) replaced(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, replacedQuery)
	if err != nil {
		return err
	}
	f := Fault{What: "it replaced something else than the log had said before"}
	_, err = pgx.ForEachRow(rows, []any{&f.Kind, &f.Ref, &f.Revision}, func() error {
		v.note(f)
		return nil
	})
	return err
}

// last compares the tables with what the log says last, as far as it goes back.
func (v *Verification) last(ctx context.Context, tx pgx.Tx) error {
	for kind, query := range lastQueries {
		rows, err := tx.Query(ctx, query)
		if err != nil {
			return err
		}
		f := Fault{Kind: kind}
		var op string
		if _, err := pgx.ForEachRow(rows, []any{&f.Ref, &f.Revision, &op}, func() error {
			if f.What = "it is not what the log says last, or is gone"; op == replicate.Delete {
				f.What = "it is there, and the log says that it is gone"
			}
			v.note(f)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// constraintsQuery finds rows that name what is not there.
const constraintsQuery = `
	WITH thing AS (
		SELECT type, id FROM artifact
		UNION ALL SELECT 'kg_edge', id FROM link
		UNION ALL SELECT 'signal', id FROM signal
	)
	SELECT 'artifact', a.type || ':' || a.id, a.revision, 'its current version is missing, or another' FROM artifact a
		WHERE NOT EXISTS (SELECT FROM artifact_revision r WHERE r.type = a.type AND r.id = a.id AND r.revision = a.revision AND r.content_hash = a.content_hash)
	UNION ALL SELECT 'revision', r.type || ':' || r.id, r.revision, 'it is a version of nothing' FROM artifact_revision r
		WHERE NOT EXISTS (SELECT FROM artifact a WHERE a.type = r.type AND a.id = r.id AND a.revision >= r.revision)
	UNION ALL SELECT 'link', 'kg_edge:' || l.id, 0, 'it begins at nothing' FROM link l
		WHERE NOT EXISTS (SELECT FROM thing t WHERE t.type = l.from_type AND t.id = l.from_id)
	UNION ALL SELECT 'link', 'kg_edge:' || l.id, 0, 'it leads to nothing' FROM link l
		WHERE NOT EXISTS (SELECT FROM thing t WHERE t.type = l.to_type AND t.id = l.to_id)
	UNION ALL SELECT 'signal', 'signal:' || s.id, 0, 'it is on nothing' FROM signal s
		WHERE NOT EXISTS (SELECT FROM thing t WHERE t.type = s.type AND t.id = s.artifact)
	UNION ALL SELECT 'signal', 'signal:' || s.id, 0, 'the sums after it are not those that are kept'
		FROM (SELECT DISTINCT ON (type, artifact, kind, dimension) * FROM signal ORDER BY type, artifact, kind, dimension, id DESC) s
		LEFT JOIN signal_aggregate g ON g.type = s.type AND g.artifact = s.artifact AND g.kind = s.kind AND g.dimension = s.dimension
		WHERE (g.n, g.voters, g.sum, g.sum_sq) IS DISTINCT FROM ((s.aggregate::json ->> 'count')::bigint, (s.aggregate::json ->> 'voters')::bigint,
			(s.aggregate::json ->> 'sum')::numeric, (s.aggregate::json ->> 'sum_sq')::numeric)`

func (v *Verification) constraints(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, constraintsQuery)
	if err != nil {
		return err
	}
	var f Fault
	_, err = pgx.ForEachRow(rows, []any{&f.Kind, &f.Ref, &f.Revision, &f.What}, func() error {
		v.note(f)
		return nil
	})
	return err
}
