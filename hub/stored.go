package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// The rows of the tables in the form of the feed, by key: of the scope $1, of the
// type $2 and with the ids $3. Each has a condition as its arm of digestQuery does.
const (
	allHeadsQuery = `
		SELECT` + headColumns + `
		FROM artifact a`
	storedHeadsQuery = allHeadsQuery + `
		WHERE a.scope = $1 AND a.type = $2 AND a.id = ANY ($3) AND a.audience = 'scope'`
	allVersionsQuery = `
		SELECT r.type, r.id, r.revision, r.scope, r.content_hash, r.schema_version, r.title, r.state, r.note, r.provenance,
			r.additional_signatures, r.redaction, r.created_at, r.created_by, r.row_hash, r.content
		FROM artifact_revision r`
	storedVersionsQuery = allVersionsQuery + `
		WHERE r.scope = $1 AND r.type = $2 AND r.id = ANY ($3)
			AND NOT EXISTS (SELECT FROM artifact n WHERE n.type = r.type AND n.id = r.id AND n.audience = 'participants')`
	allLinksQuery = `
		SELECT l.id, l.from_type, l.from_id, l.predicate, l.to_ref, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by, l.row_hash
		FROM link l`
	storedLinksQuery = allLinksQuery + `
		WHERE l.scope = $1 AND $2 = 'kg_edge' AND l.id = ANY ($3)
			AND NOT EXISTS (SELECT FROM artifact n WHERE n.type = l.from_type AND n.id = l.from_id AND n.audience = 'participants')
			AND NOT EXISTS (SELECT FROM artifact n WHERE n.type = l.to_type AND n.id = l.to_id AND n.audience = 'participants')`
	allSignalsQuery = `
		SELECT s.id, s.type, s.artifact, s.scope, s.kind, s.dimension, s.voter, s.voter_kind, s.value::text, s.weight::text, s.reason, s.metadata,
			s.created_at, s.created_by, s.row_hash, s.aggregate
		FROM signal s`
	// With the last one of those that are summed up with each: it tells the sums.
	storedSignalsQuery = allSignalsQuery + `
		JOIN (
			SELECT w.id, (
				SELECT l.id FROM signal l WHERE l.type = w.type AND l.artifact = w.artifact AND l.kind = w.kind AND l.dimension = w.dimension
				ORDER BY l.id DESC LIMIT 1) AS last
			FROM signal w
			WHERE w.scope = $1 AND $2 = 'signal' AND w.id = ANY ($3)
				AND NOT EXISTS (SELECT FROM artifact n WHERE n.type = w.type AND n.id = w.artifact AND n.audience = 'participants')
		) g ON s.id IN (g.id, g.last)
		WHERE s.scope = $1`
	storedEventsQuery = `
		SELECT e.seq, e.type, e.ref, e.scope, e.actor_id, e.actor_kind, e.at, e.payload
		FROM event e
		WHERE e.class = 'public' AND e.scope = $1 AND e.type = $2 AND e.seq = ANY ($3::bigint[])`
)

// A storedRow is a row of a table with the hash that stands beside it.
type storedRow struct {
	replicate.Row
	stored artifact.Hash
	faulty bool // it is not what its hash says
}

// storedRows reads the rows of things of one scope, kind and type, and what must
// come with them: of a signal the last one that is summed up with it, which tells
// the sums. Revisions come all of an artifact.
func storedRows(ctx context.Context, db querier, k replicate.DigestKey, things []replicate.Thing) (out []storedRow, err error) {
	keys := make([]string, 0, len(things))
	seqs := make([]int64, 0, len(things))
	for _, t := range things {
		keys = append(keys, t.Key)
		if seq, err := strconv.ParseInt(t.Key, 10, 64); err == nil {
			seqs = append(seqs, seq)
		}
	}
	read := func(query string, keys any, scan func(pgx.CollectableRow) (storedRow, error)) {
		var rows pgx.Rows
		if rows, err = db.Query(ctx, query, k.Scope, k.Type, keys); err == nil {
			out, err = pgx.CollectRows(rows, scan)
		}
	}
	switch k.Kind {
	case replicate.KindArtifact:
		read(storedHeadsQuery, keys, scanStoredHead)
	case replicate.KindRevision:
		read(storedVersionsQuery, keys, scanStoredRevision)
	case replicate.KindLink:
		read(storedLinksQuery, keys, scanStoredLink)
	case replicate.KindSignal:
		read(storedSignalsQuery, keys, scanStoredSignal)
	case replicate.KindEvent:
		read(storedEventsQuery, seqs, scanStoredEvent)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", k.Kind, k.Type, err)
	}
	return out, nil
}

// fill makes the row of what a table holds.
func (s *storedRow) fill(scope, kind, ref string, revision int, at time.Time, data any, rowHash []byte) error {
	raw, hash, err := replicate.Encode(data)
	if err != nil {
		return err
	}
	s.Row = replicate.Row{Scope: scope, Kind: kind, Op: replicate.Put, Ref: ref, Revision: revision, Hash: hash, At: at, Data: raw}
	copy(s.stored[:], rowHash)
	s.faulty = hash != s.stored
	return nil
}

func scanStoredHead(row pgx.CollectableRow) (s storedRow, err error) {
	h, err := scanHead(row)
	if err != nil {
		return s, err
	}
	return s, s.fill(h.Scope, replicate.KindArtifact, h.ref().Current().String(), h.Head.Revision, h.UpdatedAt, h.Head, h.hash[:])
}

func scanStoredRevision(row pgx.CollectableRow) (s storedRow, err error) {
	var v replicate.Revision
	var contentHash, rowHash []byte
	var provenance, content string
	var signatures, redaction *string
	if err := row.Scan(&v.Type, &v.ID, &v.Revision, &v.Scope, &contentHash, &v.SchemaVersion, &v.Title, &v.State, &v.Note, &provenance,
		&signatures, &redaction, &v.CreatedAt, &v.CreatedBy, &rowHash, &content); err != nil {
		return s, err
	}
	v.CreatedAt = v.CreatedAt.UTC()
	copy(v.ContentHash[:], contentHash)
	if signatures != nil {
		v.Signatures = json.RawMessage(*signatures)
	}
	if redaction != nil {
		v.Redaction = new(replicate.Redaction)
		if err := json.Unmarshal([]byte(*redaction), v.Redaction); err != nil {
			return s, err
		}
	}
	if err := json.Unmarshal([]byte(provenance), &v.Provenance); err != nil {
		return s, err
	}
	err = s.fill(v.Scope, replicate.KindRevision, v.Type+":"+v.ID, v.Revision, v.CreatedAt, v, rowHash)
	s.Content = json.RawMessage(content)
	if v.Redaction == nil && artifact.ContentHash(v.Type, v.Title, v.State, s.Content) != v.ContentHash {
		s.faulty = true
	}
	return s, err
}

func scanStoredLink(row pgx.CollectableRow) (s storedRow, err error) {
	var l replicate.Link
	var from artifact.Ref
	var refs, evidence string
	var rowHash []byte
	if err := row.Scan(&l.ID, &from.Type, &from.ID, &l.Predicate, &l.To, &l.Scope, &refs, &evidence, &l.At, &l.By, &rowHash); err != nil {
		return s, err
	}
	l.From, l.Evidence, l.At = from.String(), json.RawMessage(evidence), l.At.UTC()
	if err := json.Unmarshal([]byte(refs), &l.EvidenceRefs); err != nil {
		return s, err
	}
	return s, s.fill(l.Scope, replicate.KindLink, replicate.LinkType+":"+l.ID, 1, l.At, l, rowHash)
}

func scanStoredEvent(row pgx.CollectableRow) (s storedRow, err error) {
	e := new(replicate.RowEvent)
	var payload string
	if err := row.Scan(&s.Seq, &e.Type, &e.Ref, &s.Scope, &e.ActorID, &e.ActorKind, &s.At, &payload); err != nil {
		return s, err
	}
	e.Payload = json.RawMessage(payload)
	s.Commit, s.Kind, s.Op, s.Ref, s.At, s.Event = s.Seq, replicate.KindEvent, replicate.Emit, e.Ref, s.At.UTC(), e
	return s, nil
}

func scanStoredSignal(row pgx.CollectableRow) (s storedRow, err error) {
	var g replicate.Signal
	var ref artifact.Ref
	var value, weight, metadata, aggregate string
	var rowHash []byte
	if err := row.Scan(&g.ID, &ref.Type, &ref.ID, &g.Scope, &g.Kind, &g.Dimension, &g.Voter, &g.VoterKind, &value, &weight, &g.Reason, &metadata,
		&g.At, &g.By, &rowHash, &aggregate); err != nil {
		return s, err
	}
	v, err := artifact.ParseSum(value)
	if err != nil {
		return s, err
	}
	w, err := artifact.ParseSum(weight)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(aggregate), &g.Aggregate); err != nil {
		return s, err
	}
	g.Ref, g.Value, g.Weight, g.Metadata, g.At = ref.String(), json.Number(v.String()), json.Number(w.String()), json.RawMessage(metadata), g.At.UTC()
	return s, s.fill(g.Scope, replicate.KindSignal, replicate.SignalType+":"+g.ID, 1, g.At, g, rowHash)
}

// loggedQuery finds what the log says last of things, as far as it goes back.
const loggedQuery = `
	SELECT DISTINCT ON (c.ref, c.revision) c.ref, c.revision, c.hash
	FROM feed.change c
	WHERE c.op = 'P' AND c.data IS NOT NULL AND c.ref = ANY ($1) AND c.kind = $2 AND c.scope = $3
	ORDER BY c.ref, c.revision, c.seq DESC`

// elsewhereQuery finds the things that were moved to another scope or taken back.
const elsewhereQuery = `
	SELECT a.id, 0 FROM artifact a WHERE $2 = 'artifact' AND a.type = $3 AND a.id = ANY ($4) AND a.scope <> $1
	UNION SELECT r.id, r.revision FROM artifact_revision r WHERE $2 = 'revision' AND r.type = $3 AND r.id = ANY ($4) AND r.scope <> $1
	UNION SELECT l.id, 0 FROM link l WHERE $2 = 'link' AND l.id = ANY ($4) AND l.scope <> $1
	UNION SELECT s.id, 0 FROM signal s WHERE $2 = 'signal' AND s.id = ANY ($4) AND s.scope <> $1
	UNION SELECT t.id, 0 FROM link_retraction t WHERE $2 = 'link' AND t.id = ANY ($4)`

const (
	// maxStored bounds how many things are asked for at once, and maxStoredBytes
	// what an answer holds: it has one row at least.
	maxStored      = 500
	maxStoredBytes = 8 << 20
)

// Stored returns things as the tables hold them now, in the form of the feed, for a
// replica that mends its own. It says of those that are not what their hash or the
// log says that they are to be left alone.
func (h *Hub) Stored(ctx context.Context, r replicate.RowsRequest) (out replicate.StoredRows, err error) {
	if len(r.Things) > maxStored {
		return out, artifact.Invalid(artifact.Problem{Path: "/things", Constraint: "max_items", Message: fmt.Sprintf("at most %d things are asked for at once", maxStored)})
	}
	if _, _, err := rangeQuery(&replicate.KeyRange{DigestKey: r.DigestKey}); err != nil {
		return out, err
	}
	var rows []storedRow
	logged := make(map[replicate.Thing]artifact.Hash)
	elsewhere := make(map[replicate.Thing]bool)
	err = h.snapshot(ctx, func(tx pgx.Tx, head artifact.Seq) error {
		out.Seq = head
		if rows, err = storedRows(ctx, tx, r.DigestKey, r.Things); err != nil {
			return err
		}
		if r.Kind == replicate.KindEvent {
			return nil
		}
		refs, ids := make([]string, len(r.Things)), make([]string, len(r.Things))
		for i, t := range r.Things {
			refs[i], ids[i] = r.Type+":"+t.Key, t.Key
		}
		found, err := tx.Query(ctx, loggedQuery, refs, r.Kind, r.Scope)
		if err != nil {
			return err
		}
		var row replicate.Row
		var hash []byte
		if _, err := pgx.ForEachRow(found, []any{&row.Ref, &row.Revision, &hash}, func() error {
			row.Scope, row.Kind = r.Scope, r.Kind
			if _, t, ok := row.Thing(); ok {
				logged[t] = artifact.Hash(hash)
			}
			return nil
		}); err != nil {
			return err
		}
		if found, err = tx.Query(ctx, elsewhereQuery, r.Scope, r.Kind, r.Type, ids); err != nil {
			return err
		}
		var t replicate.Thing
		_, err = pgx.ForEachRow(found, []any{&t.Key, &t.Revision}, func() error {
			elsewhere[t] = true
			return nil
		})
		return err
	})
	if err != nil {
		return out, err
	}
	out.Rows = answerStored(&r, rows, logged, elsewhere)
	return out, nil
}

// answerStored puts the rows that were found beside the things that were asked for.
func answerStored(r *replicate.RowsRequest, rows []storedRow, logged map[replicate.Thing]artifact.Hash, elsewhere map[replicate.Thing]bool) []replicate.StoredRow {
	found := make(map[replicate.Thing]*storedRow, len(rows))
	for i := range rows {
		_, t, ok := rows[i].Thing()
		if !ok {
			_, t, _ = rows[i].EventThing()
		}
		found[t] = &rows[i]
	}
	var out []replicate.StoredRow
	size := 0
	put := func(t replicate.Thing, row *storedRow) {
		s := replicate.StoredRow{Thing: t, Row: &row.Row}
		if was, ok := logged[t]; ok && was != row.stored {
			s.Fault = replicate.FaultLog
		}
		if row.faulty {
			s.Fault = replicate.FaultHash
		}
		size += len(row.Data) + len(row.Content) + 500
		out = append(out, s)
	}
	for _, t := range r.Things {
		if size > maxStoredBytes {
			break
		}
		row, ok := found[t]
		if !ok {
			out = append(out, replicate.StoredRow{Thing: t, Gone: elsewhere[t]})
			continue
		}
		put(t, row)
	}
	if r.Kind == replicate.KindSignal { // and the last ones, which tell the sums
		for t, row := range found {
			if !slices.Contains(r.Things, t) {
				put(t, row)
			}
		}
	}
	return out
}
