package hub

import (
	"context"
	"encoding/json"
	"fmt"
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
}

// linkEnds is a link with the scopes of its ends.
type linkEnds struct {
	linkRow
	fromScope, toScope string
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
			SELECT $1::text COLLATE "C", $2::text COLLATE "C"
			UNION
			SELECT l.from_type, l.from_id
			FROM thread t JOIN link l ON l.to_type = t.type AND l.to_id = t.id
			JOIN artifact a ON a.type = l.from_type AND a.id = l.from_id
			WHERE l.predicate IN ('comments_on', 'replies_to') AND l.from_type = 'comment' AND a.scope = $3
		)
		SELECT type, id FROM thread
		LIMIT $4`
	wholeRevisionsQuery = `
		SELECT r.type, r.id, r.revision, r.scope, r.content_hash, r.schema_version, r.title, r.state, r.note, r.provenance,
			r.additional_signatures, r.redaction, r.created_at, r.created_by, r.row_hash
		FROM artifact_revision r JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON r.type = k.type AND r.id = k.id
		ORDER BY r.type, r.id, r.revision`
	wholeLinksQuery = `
		SELECT l.id, l.from_type, l.from_id, l.predicate, l.to_ref, l.to_type, l.to_id, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by, l.row_hash,
			f.scope, t.scope
		FROM link l
		JOIN artifact f ON f.type = l.from_type AND f.id = l.from_id
		JOIN artifact t ON t.type = l.to_type AND t.id = l.to_id
		WHERE l.id IN (
			SELECT l.id FROM link l JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON l.from_type = k.type AND l.from_id = k.id
			UNION
			SELECT l.id FROM link l JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON l.to_type = k.type AND l.to_id = k.id)
		ORDER BY l.id`
	wholeSignalsQuery = `
		SELECT s.id, s.type, s.artifact, s.scope, s.kind, s.dimension, s.voter, s.voter_kind, s.value::text, s.weight::text, s.reason, s.metadata,
			s.created_at, s.created_by, s.row_hash, g.n, g.voters, g.sum::text, g.sum_sq::text
		FROM signal s JOIN unnest($1::text[], $2::text[]) AS k (type, id) ON s.type = k.type AND s.artifact = k.id
		JOIN signal_aggregate g ON g.type = s.type AND g.artifact = s.artifact AND g.kind = s.kind AND g.dimension = s.dimension
		ORDER BY s.id`

	// allowRewrite lets this transaction update append-only tables.
	allowRewrite = `SELECT set_config('scidex.rewrite', 'on', true)`

	rewriteRevisionQuery = `
		UPDATE artifact_revision
		SET scope = $4, title = $5, note = $6, redaction = $7, row_hash = $8, content = CASE WHEN $7::text IS NULL THEN content ELSE '{}' END
		WHERE type = $1 AND id = $2 AND revision = $3`
	rewriteLinkQuery   = `UPDATE link SET scope = $2, row_hash = $3 WHERE id = $1`
	deleteLinkQuery    = `DELETE FROM link WHERE id = $1`
	rewriteSignalQuery = `UPDATE signal SET scope = $2, row_hash = $3 WHERE id = $1`

	// withholdQuery takes out of the log what it said of things before. Their
	// hashes stay, so the chain holds.
	withholdQuery = `
		UPDATE feed.change SET data = NULL
		WHERE op = 'P' AND data IS NOT NULL AND scope = $1 AND kind = ANY ($2) AND ref = ANY ($3)`
)

// maxWhole bounds how many rows one move or redaction rewrites.
const maxWhole = 20_000

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

// thread returns an artifact and the comments under it in its scope.
func thread(ctx context.Context, db querier, root artifact.Ref, scope string) ([]artifact.Ref, error) {
	rows, err := db.Query(ctx, threadQuery, root.Type, root.ID, scope, maxWhole+1)
	if err != nil {
		return nil, err
	}
	refs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r artifact.Ref, err error) {
		return r, row.Scan(&r.Type, &r.ID)
	})
	if len(refs) > maxWhole {
		return nil, errTooLarge("comments", len(refs))
	}
	return refs, err
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
			&l.fromScope, &l.toScope)
		if err != nil {
			return nil, err
		}
		l.From, l.Evidence, l.At, l.hash = l.key.from.String(), []byte(evidence), l.At.UTC(), artifact.Hash(rowHash)
		return l, json.Unmarshal([]byte(refs), &l.EvidenceRefs)
	})
	return err
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
func (s *state) putRevision(r *revisionRow, prev artifact.Hash) error {
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
	s.also(rewriteRevisionQuery, r.Type, r.ID, r.Revision.Revision, r.Scope, r.Title, r.Note, redaction, hash[:])
	s.rows.putEncoded(r.Scope, replicate.KindRevision, r.Type+":"+r.ID, r.Revision.Revision, hash, prev, raw)
	return s.rows.event(nil)
}
