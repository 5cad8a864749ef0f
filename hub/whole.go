package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A whole is artifacts with all that hangs on them, as a move or a redaction
// reads and rewrites them. Their heads are locked against every other write, so
// nothing is added meanwhile.
type whole struct {
	heads     []*head // in ref order
	revisions []*revisionRow
	links     []*linkEnds
	signals   []*signalRow

	// What is written again, column by column.
	rewritten revisionColumns
}

type revisionColumns struct {
	typ, id, scope, title, note []string
	revision                    []int
	redaction                   []*string
	rowHash                     [][]byte
}

// linkEnds is a link with the scopes of its ends.
type linkEnds struct {
	linkRow
	fromScope, toScope string
	pinnedIn           []string // scopes of the version that it names
}

const (
	// Writers of links lock both ends FOR KEY SHARE and writers of signals FOR NO
	// KEY UPDATE: FOR UPDATE keeps off both.
	lockWholeQuery = `
		SELECT` + headColumns + `
		FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id
		ORDER BY a.type, a.id
		FOR UPDATE OF a`
	threadQuery = `
		WITH RECURSIVE thread (type, id) AS (
			SELECT type COLLATE "C", id COLLATE "C" FROM unnest($1::text[], $2::text[]) AS k (type, id)
			UNION
			SELECT l.from_type, l.from_id
			FROM thread t JOIN link l ON l.to_type = t.type AND l.to_id = t.id
			JOIN artifact a ON a.type = l.from_type AND a.id = l.from_id
			WHERE l.predicate IN ('comments_on', 'replies_to') AND l.from_type = 'comment' AND a.scope = $3
		)
		SELECT type, id FROM thread
		LIMIT $4`
	// goingQuery finds the links and signals that go with artifacts, and links, to
	// another scope: of links those whose other end goes too, or is seen there. From
	// a private scope none go that may be taken back on the way.
	goingQuery = `
		WITH k (type, id) AS (SELECT type COLLATE "C", id COLLATE "C" FROM unnest($1::text[], $2::text[]) AS k (type, id)),
		l AS (
			SELECT l.* FROM k JOIN link l ON l.from_type = k.type AND l.from_id = k.id
			UNION
			SELECT l.* FROM k JOIN link l ON l.to_type = k.type AND l.to_id = k.id
		)
		SELECT 'signal', s.id FROM k JOIN signal s ON s.type = k.type AND s.artifact = k.id
		UNION ALL
		SELECT 'kg_edge', l.id
		FROM l LEFT JOIN artifact f ON f.type = l.from_type AND f.id = l.from_id` + joinTo + `
		WHERE ($3 = 'commons' OR l.evidence_refs = '[]' AND strpos(l.to_ref, '@') = 0)
			AND (f.scope IN ('commons', $4) OR (l.from_type, l.from_id) IN (SELECT type, id FROM k))
			AND (` + toScope + ` IN ('commons', $4) OR (l.to_type, l.to_id) IN (SELECT type, id FROM k))`

	// joinTo joins what a link leads to.
	joinTo = `
		LEFT JOIN artifact t ON t.type = l.to_type AND t.id = l.to_id
		LEFT JOIN link tl ON l.to_type = 'kg_edge' AND tl.id = l.to_id
		LEFT JOIN signal ts ON l.to_type = 'signal' AND ts.id = l.to_id`
	toScope = `coalesce(t.scope, tl.scope, ts.scope, '')`

	// hungQuery finds the links of artifacts, and those to these links and to the
	// artifacts' signals, and so on.
	hungQuery = `
		WITH RECURSIVE hung (id) AS (
			(
				SELECT l.id FROM link l JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON l.from_type = k.type AND l.from_id = k.id
				UNION
				SELECT l.id FROM link l JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON l.to_type = k.type AND l.to_id = k.id
				UNION
				SELECT l.id FROM signal s JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON s.type = k.type AND s.artifact = k.id
				JOIN link l ON l.to_type = 'signal' AND l.to_id = s.id
			)
			UNION
			SELECT l.id FROM hung h JOIN link l ON l.to_type = 'kg_edge' AND l.to_id = h.id
		)`
	hungCountQuery      = hungQuery + ` SELECT count(*) FROM hung`
	wholeRevisionsQuery = `
		SELECT r.type, r.id, r.revision, r.scope, r.content_hash, r.schema_version, r.title, r.state, r.note, r.provenance,
			r.additional_signatures, r.redaction, r.created_at, r.created_by, r.row_hash
		FROM artifact_revision r JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON r.type = k.type AND r.id = k.id
		ORDER BY r.type, r.id, r.revision`
	wholeLinksQuery = hungQuery + `
		SELECT l.id, l.from_type, l.from_id, l.predicate, l.to_ref, l.to_type, l.to_id, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by, l.row_hash,
			f.scope, ` + toScope + `, (
				SELECT array_agg(DISTINCT r.scope) FROM artifact_revision r
				WHERE strpos(l.to_ref, '@') > 0 AND r.type = l.to_type AND r.id = l.to_id AND r.content_hash = decode(right(l.to_ref, 64), 'hex'))
		FROM link l
		JOIN artifact f ON f.type = l.from_type AND f.id = l.from_id` + joinTo + `
		WHERE l.id IN (SELECT id FROM hung)
		ORDER BY l.id
		FOR UPDATE OF l`
	wholeSignalsQuery = `
		SELECT s.id, s.type, s.artifact, s.scope, s.kind, s.dimension, s.voter, s.voter_kind, s.value::text, s.weight::text, s.reason, s.metadata,
			s.created_at, s.created_by, s.row_hash, g.n, g.voters, g.sum::text, g.sum_sq::text
		FROM signal s JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON s.type = k.type AND s.artifact = k.id
		JOIN signal_aggregate g ON g.type = s.type AND g.artifact = s.artifact AND g.kind = s.kind AND g.dimension = s.dimension
		ORDER BY s.id
		FOR UPDATE OF s`

	// allowRewrite lets this transaction update append-only tables.
	allowRewrite = `SELECT set_config('scidex.rewrite', 'on', true)`

	rewriteRevisionsQuery = `
		UPDATE artifact_revision r
		SET scope = k.scope, title = k.title, note = k.note, redaction = k.redaction, row_hash = k.row_hash,
			content = CASE WHEN k.redaction IS NULL THEN r.content ELSE '{}' END
		FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[])
			AS k (type, id, revision, scope, title, note, redaction, row_hash)
		WHERE r.type = k.type AND r.id = k.id AND r.revision = k.revision`
	rewriteLinksQuery = `
		UPDATE link l SET scope = k.scope, row_hash = k.row_hash
		FROM unnest($1::text[], $2::text[], $3::bytea[]) AS k (id, scope, row_hash)
		WHERE l.id = k.id`
	retractLinksQuery = `
		INSERT INTO link_retraction (id, link, retracted_at, retracted_by, reason)
		SELECT l.id, to_jsonb(l)::text, $2, $3, $4 FROM link l WHERE l.id = ANY ($1)`
	deleteLinksQuery    = `DELETE FROM link WHERE id = ANY ($1)`
	rewriteSignalsQuery = `
		UPDATE signal s SET scope = k.scope, row_hash = k.row_hash, aggregate = k.aggregate
		FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[]) AS k (id, scope, row_hash, aggregate)
		WHERE s.id = k.id`

	// The withholding queries take out of the log what it said of things before,
	// in whatever scope. Their hashes stay, so the chain holds.
	withholdQuery = `
		UPDATE feed.change c SET data = NULL
		FROM unnest($2::text[]) AS k (ref)
		WHERE c.op = 'P' AND c.data IS NOT NULL AND c.ref = k.ref AND c.kind = $1`
	withholdRevisionsQuery = `
		UPDATE feed.change c SET data = NULL
		FROM unnest($1::text[], $2::integer[]) AS k (ref, revision)
		WHERE c.op = 'P' AND c.data IS NOT NULL AND c.ref = k.ref AND c.kind = 'revision' AND c.revision = k.revision`

	// turnQuery makes moves and redactions take turns: each reads the scopes of
	// what another one moves.
	turnQuery = `SELECT pg_advisory_xact_lock(hashtextextended('move', 0))`
)

// maxWhole bounds how many rows one move or redaction rewrites.
const maxWhole = 100_000

// errTooLarge refuses what one transaction should not hold.
func errTooLarge(what string, n int) error {
	return artifact.Invalid(artifact.Problem{Path: "/ref", Constraint: "max_items", Message: fmt.Sprintf("at most %d %s are rewritten in one go, not %d", maxWhole, what, n)})
}

// lockWhole locks the heads of refs.
func (w *whole) lock(ctx context.Context, db querier, refs []artifact.Ref) error {
	types, ids := columnsOf(refs)
	rows, err := db.Query(ctx, lockWholeQuery, types, ids)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		h, err := scanHead(rows)
		if err != nil {
			return err
		}
		w.heads = append(w.heads, h)
	}
	return rows.Err()
}

// lockThread locks an artifact and the comments under it in its scope that go with
// it to another, and reads their links and signals. Locks are taken in ref order, by
// every write, then those of links, then those of signals. A comment may come, or
// go, until what it is on is locked; then all are let go and locked anew.
func (w *whole) lockThread(ctx context.Context, db querier, root artifact.Ref, scope, to string) error {
	refs, err := thread(ctx, db, root, scope, to)
	for err == nil {
		if _, err = db.Exec(ctx, "SAVEPOINT thread"); err != nil {
			break
		}
		w.heads = nil
		if err = w.lock(ctx, db, refs); err != nil {
			break
		}
		if err = w.readLinks(ctx, db); err != nil {
			break
		}
		if err = w.readSignals(ctx, db); err != nil {
			break
		}
		var links int
		types, ids := columnsOf(w.refs())
		if err = db.QueryRow(ctx, hungCountQuery, types, ids).Scan(&links); err != nil {
			break
		}
		if refs, err = thread(ctx, db, root, scope, to); err == nil {
			if w.holds(refs) && links == len(w.links) {
				break
			}
			_, err = db.Exec(ctx, "ROLLBACK TO SAVEPOINT thread")
		}
	}
	return err
}

func columnsOf(refs []artifact.Ref) (types, ids []string) {
	for _, r := range refs {
		types, ids = append(types, r.Type), append(ids, r.ID)
	}
	return types, ids
}

func (w *whole) refs() []artifact.Ref {
	refs := make([]artifact.Ref, len(w.heads))
	for i, h := range w.heads {
		refs[i] = h.ref().Current()
	}
	return refs
}

// holds reports whether exactly these heads are locked.
func (w *whole) holds(refs []artifact.Ref) bool {
	locked := make(map[artifact.Ref]bool, len(w.heads))
	for _, r := range w.refs() {
		locked[r] = true
	}
	return len(refs) == len(locked) && !slices.ContainsFunc(refs, func(r artifact.Ref) bool { return !locked[r] })
}

// thread returns an artifact and the comments under it in its scope: those on it,
// those on links and signals that go with it to another scope, and so on.
func thread(ctx context.Context, db querier, root artifact.Ref, scope, to string) ([]artifact.Ref, error) {
	all := []artifact.Ref{root}
	for {
		types, ids := columnsOf(all)
		comments, err := refsOf(ctx, db, threadQuery, types, ids, scope, maxWhole+1)
		if err != nil {
			return nil, err
		}
		types, ids = columnsOf(comments) // and all that they were found from
		edges, err := refsOf(ctx, db, goingQuery, types, ids, scope, to)
		if err != nil {
			return nil, err
		}
		n := max(len(comments), len(edges))
		artifacts := slices.DeleteFunc(comments, func(r artifact.Ref) bool { return isEdge(r.Type) })
		if n > maxWhole {
			return nil, errTooLarge("comments, links and signals", n)
		}
		if next := append(slices.Clone(artifacts), edges...); len(next) > len(all) {
			all = next
			continue
		}
		return artifacts, nil
	}
}

func refsOf(ctx context.Context, db querier, query string, args ...any) ([]artifact.Ref, error) {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r artifact.Ref, err error) {
		return r, row.Scan(&r.Type, &r.ID)
	})
}

func (w *whole) readRevisions(ctx context.Context, db querier) error {
	types, ids := columnsOf(w.refs())
	rows, err := db.Query(ctx, wholeRevisionsQuery, types, ids)
	if err != nil {
		return err
	}
	w.revisions, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*revisionRow, error) {
		r := new(revisionRow)
		var contentHash, rowHash []byte
		var provenance string
		var signatures, redaction *string
		err := row.Scan(&r.Type, &r.ID, &r.Revision.Revision, &r.Scope, &contentHash, &r.SchemaVersion, &r.Title, &r.State, &r.Note, &provenance,
			&signatures, &redaction, &r.CreatedAt, &r.CreatedBy, &rowHash)
		if err != nil {
			return nil, err
		}
		r.ContentHash, r.hash, r.CreatedAt = artifact.Hash(contentHash), artifact.Hash(rowHash), r.CreatedAt.UTC()
		if signatures != nil {
			r.Signatures = []byte(*signatures)
		}
		if redaction != nil {
			r.Redaction = new(replicate.Redaction)
			if err := json.Unmarshal([]byte(*redaction), r.Redaction); err != nil {
				return nil, err
			}
		}
		return r, json.Unmarshal([]byte(provenance), &r.Provenance)
	})
	return err
}

func (w *whole) readLinks(ctx context.Context, db querier) error {
	types, ids := columnsOf(w.refs())
	rows, err := db.Query(ctx, wholeLinksQuery, types, ids)
	if err != nil {
		return err
	}
	w.links, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*linkEnds, error) {
		l := new(linkEnds)
		var refs, evidence string
		var rowHash []byte
		err := row.Scan(&l.ID, &l.key.from.Type, &l.key.from.ID, &l.Predicate, &l.To, &l.key.to.Type, &l.key.to.ID, &l.Scope, &refs, &evidence, &l.At, &l.By, &rowHash,
			&l.fromScope, &l.toScope, &l.pinnedIn)
		if err != nil {
			return nil, err
		}
		l.From, l.Evidence, l.At, l.hash = l.key.from.String(), []byte(evidence), l.At.UTC(), artifact.Hash(rowHash)
		return l, json.Unmarshal([]byte(refs), &l.EvidenceRefs)
	})
	return err
}

// scopesQuery reads where things are.
const scopesOfQuery = `
	SELECT a.type, a.id, CASE WHEN a.audience = 'scope' THEN a.scope ELSE '' END
	FROM artifact a JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON a.type = k.type AND a.id = k.id
	UNION ALL
	SELECT k.type, l.id, l.scope FROM link l JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON k.type = 'kg_edge' AND l.id = k.id
	UNION ALL
	SELECT k.type, s.id, s.scope FROM signal s JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON k.type = 'signal' AND s.id = k.id`

// evidenceScopes returns the scopes of what backs the links; "" for what its
// participants alone see.
func (w *whole) evidenceScopes(ctx context.Context, db querier) (map[artifact.Ref]string, error) {
	var refs []artifact.Ref
	for _, l := range w.links {
		for _, text := range l.EvidenceRefs {
			if ref, err := artifact.ParseRef(text); err == nil {
				refs = append(refs, ref.Current())
			}
		}
	}
	return scopesOf(ctx, db, refs)
}

// scopesOf returns the scopes of what is there; "" for what its participants alone
// see.
func scopesOf(ctx context.Context, db querier, refs []artifact.Ref) (map[artifact.Ref]string, error) {
	scopes := make(map[artifact.Ref]string)
	if refs == nil {
		return scopes, nil
	}
	types, ids := columnsOf(refs)
	rows, err := db.Query(ctx, scopesOfQuery, types, ids)
	if err != nil {
		return nil, err
	}
	var ref artifact.Ref
	var scope string
	_, err = pgx.ForEachRow(rows, []any{&ref.Type, &ref.ID, &scope}, func() error {
		scopes[ref] = scope
		return nil
	})
	return scopes, err
}

// sharedPapers returns papers of a scope that are cited by what the heads are.
func (w *whole) sharedPapers(ctx context.Context, db querier, scope string) ([]string, error) {
	var ids []string
	for _, h := range w.heads {
		if h.Type == paperType {
			ids = append(ids, h.ID)
		}
	}
	if ids == nil {
		return nil, nil
	}
	const query = `
		SELECT DISTINCT o.id FROM paper_key k JOIN paper_key o ON o.kind = k.kind AND o.key = k.key
		WHERE k.id = ANY ($1) AND o.scope = $2 AND o.id <> k.id`
	rows, err := db.Query(ctx, query, ids, scope)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// replacementScopes returns the scopes of what the heads were superseded by.
func (w *whole) replacementScopes(ctx context.Context, db querier) (map[artifact.Ref]string, error) {
	var refs []artifact.Ref
	for _, h := range w.heads {
		if ref, err := artifact.ParseRef(h.SupersededBy); err == nil {
			refs = append(refs, ref)
		}
	}
	return scopesOf(ctx, db, refs)
}

// readSignals reads signals, each with the aggregate as it is now.
func (w *whole) readSignals(ctx context.Context, db querier) error {
	types, ids := columnsOf(w.refs())
	rows, err := db.Query(ctx, wholeSignalsQuery, types, ids)
	if err != nil {
		return err
	}
	w.signals, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*signalRow, error) {
		g := new(signalRow)
		var value, weight, sum, sumSq, metadata string
		var n, voters int64
		var rowHash []byte
		var at time.Time
		err := row.Scan(&g.ID, &g.key.ref.Type, &g.key.ref.ID, &g.Scope, &g.Kind, &g.Dimension, &g.Voter, &g.VoterKind, &value, &weight, &g.Reason, &metadata,
			&at, &g.By, &rowHash, &n, &voters, &sum, &sumSq)
		if err != nil {
			return nil, err
		}
		decimals := [4]artifact.Decimal{}
		for i, text := range []string{value, weight, sum, sumSq} {
			if decimals[i], err = artifact.ParseDecimal(text); err != nil {
				return nil, err
			}
		}
		g.Value, g.Weight = json.Number(decimals[0].String()), json.Number(decimals[1].String())
		g.Aggregate = artifact.NewAggregate(g.Kind, g.Dimension, n, voters, decimals[2], decimals[3])
		g.Ref, g.Metadata, g.At, g.hash = g.key.ref.String(), []byte(metadata), at.UTC(), artifact.Hash(rowHash)
		return g, nil
	})
	return err
}

// putRevision adds the row of a version as it is now, and its write.
func (w *whole) putRevision(s *state, r *revisionRow, prev artifact.Hash) error {
	raw, hash, err := replicate.Encode(r.Revision)
	if err != nil {
		return err
	}
	r.hash = hash
	var redaction *string
	if r.Redaction != nil {
		text, _, err := replicate.Encode(r.Redaction)
		if err != nil {
			return err
		}
		redaction = textOrNull(text)
	}
	c := &w.rewritten
	c.typ, c.id, c.revision = append(c.typ, r.Type), append(c.id, r.ID), append(c.revision, r.Revision.Revision)
	c.scope, c.title, c.note = append(c.scope, r.Scope), append(c.title, r.Title), append(c.note, r.Note)
	c.redaction, c.rowHash = append(c.redaction, redaction), append(c.rowHash, hash[:])
	s.rows.putEncoded(r.Scope, replicate.KindRevision, r.Type+":"+r.ID, r.Revision.Revision, hash, prev, raw)
	return s.rows.event(nil)
}

// writeRevisions adds the writes of the versions that were put, and takes out of
// the log what it said of them before.
func (w *whole) writeRevisions(s *state, withhold bool) {
	c := &w.rewritten
	if len(c.id) == 0 {
		return
	}
	s.also(rewriteRevisionsQuery, c.typ, c.id, c.revision, c.scope, c.title, c.note, c.redaction, c.rowHash)
	if withhold {
		refs := make([]string, len(c.id))
		for i := range refs {
			refs[i] = c.typ[i] + ":" + c.id[i]
		}
		s.also(withholdRevisionsQuery, refs, c.revision)
	}
}
