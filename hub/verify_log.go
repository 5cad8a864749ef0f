package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// checkLogQuery reads the $2 rows of the log after a seq as far as the chain is made
// of them, with what is to be held against them: the hash of their data, their event
// and the row that the tables hold of the thing.
const checkLogQuery = `
	SELECT c.seq, c.commit_seq, c.class, c.scope, c.kind, c.op, c.ref, c.revision, c.hash, c.prev_hash, c.at,
		e.type, e.ref, e.actor_id, e.payload,
		c.data IS NOT NULL AND sha256(convert_to(c.data, 'UTF8')) IS DISTINCT FROM c.hash,
		c.event_type IS NOT NULL AND (e.type, e.scope, e.class, e.at) IS DISTINCT FROM (c.event_type, c.scope, c.class, c.at),
		c.op = 'P' AND c.data IS NOT NULL AND c.kind IN ('artifact', 'revision', 'link', 'signal'),
		c.op = 'D' AND c.scope = coalesce(a.scope, r.scope, l.scope, s.scope),
		coalesce(a.row_hash, r.row_hash, l.row_hash, s.row_hash)
	FROM (
		SELECT *, split_part(ref, ':', 1) AS type, substr(ref, strpos(ref, ':') + 1) AS id FROM feed.change WHERE seq > $1 ORDER BY seq LIMIT $2
	) c
	LEFT JOIN LATERAL (
		SELECT e.type, e.ref, e.scope, e.class, e.at, e.actor_id, e.payload FROM event e WHERE e.seq = c.seq AND c.event_type IS NOT NULL LIMIT 1
	) e ON true
	LEFT JOIN artifact a ON c.kind = 'artifact' AND a.type = c.type AND a.id = c.id
	LEFT JOIN artifact_revision r ON c.kind = 'revision' AND r.type = c.type AND r.id = c.id AND r.revision = c.revision
	LEFT JOIN link l ON c.kind = 'link' AND l.id = c.id
	LEFT JOIN signal s ON c.kind = 'signal' AND s.id = c.id
	ORDER BY c.seq`

const (
	// outdatedQuery tells which of some rows of the log another one has followed since,
	// or a retraction.
	outdatedQuery = `
		SELECT k.seq
		FROM unnest($1::bigint[], $2::text[], $3::text[], $4::integer[], $5::text[]) AS k (seq, kind, ref, revision, op)
		WHERE EXISTS (
				SELECT FROM feed.change c
				WHERE c.ref = k.ref AND c.op = 'P' AND c.data IS NOT NULL AND c.kind = k.kind AND c.seq > k.seq
					AND (k.kind <> 'revision' OR c.revision = k.revision))
			OR k.kind = 'link' AND k.op = 'P' AND EXISTS (SELECT FROM link_retraction x WHERE x.id = substr(k.ref, strpos(k.ref, ':') + 1))`
	// unloggedQuery finds what is numbered by rows that the log does not have.
	unloggedQuery = `
		SELECT 'event ' || e.seq, 'no row of the log has this event'
		FROM event e
		WHERE e.seq > $1 AND e.seq <= $2 AND NOT EXISTS (SELECT FROM feed.change c WHERE c.seq = e.seq AND c.event_type IS NOT NULL)
		UNION ALL
		SELECT 'journal entry ' || j.last_seq, 'no commit of the log ends there'
		FROM write_journal j
		WHERE j.last_seq > $1 AND j.last_seq <= $2 AND NOT EXISTS (SELECT FROM feed.change c WHERE c.seq = j.last_seq AND c.commit_seq = c.seq)
		UNION ALL
		SELECT 'checkpoint ' || p.seq, 'the log has no such row'
		FROM feed.checkpoint p
		WHERE p.seq > $1 AND p.seq <= $2 AND NOT EXISTS (SELECT FROM feed.change c WHERE c.seq = p.seq)`
	// beyondQuery finds what the log's end is missing for.
	beyondQuery = `
		SELECT 'seq ' || max(seq), 'the log ends at ' || (` + headQuery + `) || ', and there is more'
		FROM (SELECT max(last_seq) AS seq FROM write_journal UNION ALL SELECT max(seq) FROM event UNION ALL SELECT max(seq) FROM feed.checkpoint) m
		HAVING max(seq) > (` + headQuery + `)`
	// replacedQuery finds rows that replace something else than the log last said of
	// their thing: the tables were changed past the hub before, and all who follow keep
	// sums that are off by that.
	replacedQuery = `
		SELECT 'seq ' || seq, 'the ' || kind || ' of ' || ref || ' replaced something else than the log had said before' FROM (
			SELECT seq, kind, ref, revision, prev_hash, row_number() OVER thing AS n, lag(CASE WHEN op = 'P' THEN hash END) OVER thing AS before
			FROM feed.change WHERE kind IN ('artifact', 'revision', 'link', 'signal') AND op IN ('P', 'D')
			WINDOW thing AS (PARTITION BY kind, ref, CASE WHEN kind = 'revision' THEN revision END ORDER BY seq)
		) AS told
		WHERE n > 1 AND prev_hash IS DISTINCT FROM before`
	checkpointsQuery  = `SELECT seq, chain FROM feed.checkpoint WHERE seq > $1 AND seq <= $2`
	journaledQuery    = `SELECT last_seq, first_seq FROM write_journal WHERE last_seq > $1 AND last_seq <= $2`
	checkEpochsQuery  = `SELECT epoch, first_seq, last_seq FROM epoch ORDER BY epoch`
	lastCheckpointSQL = `SELECT seq, chain FROM feed.checkpoint WHERE seq < $1 ORDER BY seq DESC LIMIT 1`
)

// A logWalk goes over the log in order.
type logWalk struct {
	*storeVerifier
	jumps   map[artifact.Seq]artifact.Seq // from the last seq of an epoch to the first of the next
	at      artifact.Seq                  // the last row that was read
	chain   artifact.Hash
	chained bool         // chain is known
	from    artifact.Seq // where it was known last
	holed   bool         // a hole is before the next row
	commit  artifact.Seq // last seq of the commit that is being read; 0 between two
	first   artifact.Seq // first seq of that; 0 when it may begin before the first that was read
}

// log checks that the log is dense within each epoch, holds what it says it does, and
// leads from checkpoint to checkpoint; and that what it says last of each thing, and
// of each event and commit, is what the tables hold.
func (v *storeVerifier) log(ctx context.Context) error {
	w := &logWalk{storeVerifier: v, jumps: make(map[artifact.Seq]artifact.Seq)}
	if err := v.snapshot(ctx, func(tx pgx.Tx) error { return w.start(ctx, tx) }); err != nil {
		return err
	}
	for w.at < v.report.Head {
		n := 0
		if err := v.snapshot(ctx, func(tx pgx.Tx) (err error) {
			n, err = w.piece(ctx, tx)
			return err
		}); err != nil {
			return err
		}
		if n == 0 {
			v.fault(faultLog, fmt.Sprintf("seq %d", w.at), "the log ended at %d and ends here now", v.report.Head)
			break
		}
		v.read(faultLog, n)
	}
	if w.chained {
		v.report.Chain = w.chain
	}
	return v.snapshot(ctx, func(tx pgx.Tx) error {
		return errors.Join(v.faults(ctx, tx, faultLog, replacedQuery), v.faults(ctx, tx, faultLog, beyondQuery))
	})
}

// start finds out from where on the log is to be read.
func (w *logWalk) start(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, checkEpochsQuery)
	if err != nil {
		return err
	}
	var epoch, before int
	var first, last artifact.Seq
	if _, err := pgx.ForEachRow(rows, []any{&epoch, &first, &last}, func() error {
		if rise := epoch - before; before == 0 && epoch != 1 || rise < 1 || rise > epochStep || epoch > 1 && first != last+replicate.EpochJump {
			w.fault(faultLog, fmt.Sprintf("epoch %d", epoch), "it stands after epoch %d and goes from %d to %d", before, last, first)
		}
		w.jumps[last], before = first, epoch
		return nil
	}); err != nil {
		return err
	}
	if w.report.First == 0 {
		return nil
	}
	var chain []byte
	rows, err = tx.Query(ctx, lastCheckpointSQL, int64(w.report.First))
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{&w.at, &chain}, func() error {
		w.chain, w.chained = artifact.Hash(chain), true
		return nil
	}); err != nil {
		return err
	}
	switch {
	case w.at == 0 && w.report.First == 1:
		w.chained = true // from the very start
	case !w.follows(w.report.First):
		w.fault(faultLog, fmt.Sprintf("seq %d", w.report.First), "the log begins here, and no checkpoint tells the chain before it")
		w.at, w.chained = w.report.First-1, false
	}
	w.from = w.at
	return nil
}

// follows reports whether a seq is the next one after the last that was read.
func (w *logWalk) follows(seq artifact.Seq) bool { return seq == w.at+1 || seq == w.jumps[w.at] }

// piece checks the next rows and returns how many they are.
func (w *logWalk) piece(ctx context.Context, tx pgx.Tx) (n int, err error) {
	begin := w.at
	var last artifact.Seq
	if err := tx.QueryRow(ctx, `SELECT coalesce(max(seq), 0) FROM (SELECT seq FROM feed.change WHERE seq > $1 ORDER BY seq LIMIT $2) c`, int64(begin), verifyRows).
		Scan(&last); err != nil || last == 0 {
		return 0, err
	}
	checkpoints := make(map[artifact.Seq]artifact.Hash)
	rows, err := tx.Query(ctx, checkpointsQuery, int64(begin), int64(last))
	if err != nil {
		return 0, err
	}
	var seq artifact.Seq
	var chain []byte
	if _, err := pgx.ForEachRow(rows, []any{&seq, &chain}, func() error {
		checkpoints[seq] = artifact.Hash(chain)
		return nil
	}); err != nil {
		return 0, err
	}
	journaled := make(map[artifact.Seq]artifact.Seq)
	if rows, err = tx.Query(ctx, journaledQuery, int64(begin), int64(last)); err != nil {
		return 0, err
	}
	var first artifact.Seq
	if _, err := pgx.ForEachRow(rows, []any{&seq, &first}, func() error {
		journaled[seq] = first
		return nil
	}); err != nil {
		return 0, err
	}
	if rows, err = tx.Query(ctx, checkLogQuery, int64(begin), verifyRows); err != nil {
		return 0, err
	}
	var differ []logRow
	if n, err = w.rows(rows, checkpoints, journaled, &differ); err != nil {
		return n, err
	}
	if err := w.judge(ctx, tx, differ); err != nil {
		return n, err
	}
	return n, w.faults(ctx, tx, faultLog, unloggedQuery, int64(begin), int64(last))
}

// rows checks rows one by one and gathers those that say something else than the
// tables.
func (w *logWalk) rows(rows pgx.Rows, checkpoints map[artifact.Seq]artifact.Hash, journaled map[artifact.Seq]artifact.Seq, differ *[]logRow) (n int, err error) {
	defer rows.Close()
	for ; rows.Next(); n++ {
		var r logRow
		var hash, prev, stored []byte
		var typ, ref, actor, payload *string
		var spoiled, eventless, held bool
		var undone *bool
		if err := rows.Scan(&r.Seq, &r.Commit, &r.class, &r.Scope, &r.Kind, &r.Op, &r.Ref, &r.Revision, &hash, &prev, &r.At,
			&typ, &ref, &actor, &payload, &spoiled, &eventless, &held, &undone, &stored); err != nil {
			return n, err
		}
		copy(r.Hash[:], hash)
		copy(r.PrevHash[:], prev)
		if typ != nil {
			r.Event = &replicate.RowEvent{Type: *typ, Ref: *ref, ActorID: *actor, Payload: []byte(*payload)}
		}
		fault := func(format string, args ...any) { w.fault(faultLog, fmt.Sprintf("seq %d", r.Seq), format, args...) }
		if !w.follows(r.Seq) {
			fault("the row before it is %d: the log has a hole", w.at)
			w.chained, w.commit, w.holed = false, 0, true
		}
		w.at = r.Seq
		w.inCommit(&r, journaled, fault)
		if spoiled {
			fault("what it says of %s is not what its hash says", r.Ref)
		}
		if eventless {
			fault("its event is missing or another one")
		}
		if held && !bytes.Equal(stored, r.Hash[:]) || undone != nil && *undone {
			*differ = append(*differ, r)
		}
		w.extend(&r, checkpoints, fault)
	}
	return n, rows.Err()
}

// inCommit checks that commits follow each other and stand in the journal.
func (w *logWalk) inCommit(r *logRow, journaled map[artifact.Seq]artifact.Seq, fault func(string, ...any)) {
	if w.commit == 0 {
		w.commit, w.first = r.Commit, r.Seq
		if w.holed || r.Seq == w.report.First && r.Seq > 1 {
			w.first, w.holed = 0, false
		}
	}
	if r.Commit != w.commit || r.Commit < r.Seq {
		fault("it is of the commit %d, amid the commit %d", r.Commit, w.commit)
		w.commit = r.Commit
	}
	if r.Seq != r.Commit {
		return
	}
	if first, ok := journaled[r.Seq]; !ok {
		fault("the journal has no entry of its commit")
	} else if first != w.first && w.first > 0 {
		fault("its commit begins with %d, in the journal with %d", w.first, first)
	}
	w.commit = 0
}

// extend brings the chain on and compares it where a checkpoint is.
func (w *logWalk) extend(r *logRow, checkpoints map[artifact.Seq]artifact.Hash, fault func(string, ...any)) {
	if w.chained {
		w.chain = r.Extend(w.chain, r.class)
	}
	noted, ok := checkpoints[r.Seq]
	if !ok {
		return
	}
	if w.chained && w.chain != noted {
		fault("the chain is not that of the checkpoint: a row or event after %d was changed, or the checkpoint", w.from)
	}
	w.chain, w.chained, w.from = noted, true, r.Seq
}

// judge tells of rows that say something else than the tables, unless a later row
// does.
func (w *logWalk) judge(ctx context.Context, tx pgx.Tx, differ []logRow) error {
	if len(differ) == 0 {
		return nil
	}
	var seqs []int64
	var kinds, refs, ops []string
	var revisions []int
	for i := range differ {
		r := &differ[i]
		ops = append(ops, r.Op)
		seqs, kinds, refs, revisions = append(seqs, int64(r.Seq)), append(kinds, r.Kind), append(refs, r.Ref), append(revisions, r.Revision)
	}
	rows, err := tx.Query(ctx, outdatedQuery, seqs, kinds, refs, revisions, ops)
	if err != nil {
		return err
	}
	outdated := make(map[artifact.Seq]bool)
	var seq artifact.Seq
	if _, err := pgx.ForEachRow(rows, []any{&seq}, func() error {
		outdated[seq] = true
		return nil
	}); err != nil {
		return err
	}
	for i := range differ {
		r := &differ[i]
		f := Fault{Kind: faultLog, Ref: fmt.Sprintf("seq %d", r.Seq), Revision: r.Revision}
		switch {
		case outdated[r.Seq]:
			continue
		case r.Op == replicate.Delete:
			f.What = fmt.Sprintf("the table holds the %s of %s that it takes out of %s last", r.Kind, r.Ref, r.Scope)
		default:
			f.What = fmt.Sprintf("the table does not hold the %s of %s that it tells of last", r.Kind, r.Ref)
		}
		w.note(f)
	}
	return nil
}
