package hub

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/replicate"
)

const (
	insertArtifactQuery = `
		INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by,
			quality_score, created_at, created_by, updated_at, updated_by, row_hash, audience)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bytea[], $6::integer[], $7::text[], $8::text[], $9::boolean[], $10::text[],
			$11::double precision[], $12::timestamptz[], $13::text[], $14::timestamptz[], $15::text[], $16::bytea[], $17::text[])`
	updateArtifactQuery = `
		UPDATE artifact a
		SET scope = k.scope, revision = k.revision, content_hash = k.content_hash, schema_version = k.schema_version,
			title = k.title, state = k.state, is_latest = k.is_latest, superseded_by = k.superseded_by,
			quality_score = k.quality_score, updated_at = k.updated_at, updated_by = k.updated_by, row_hash = k.row_hash
		FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bytea[], $6::integer[], $7::text[], $8::text[], $9::boolean[], $10::text[],
			$11::double precision[], $12::timestamptz[], $13::text[], $14::bytea[])
			AS k (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by,
				quality_score, updated_at, updated_by, row_hash)
		WHERE a.type = k.type AND a.id = k.id`
	// Of one row, which most writes are, the columns need not be put together.
	insertOneArtifactQuery = `
		INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by,
			quality_score, created_at, created_by, updated_at, updated_by, row_hash, audience)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`
	updateOneArtifactQuery = `
		UPDATE artifact
		SET scope = $3, revision = $4, content_hash = $5, schema_version = $6, title = $7, state = $8, is_latest = $9, superseded_by = $10,
			quality_score = $11, updated_at = $12, updated_by = $13, row_hash = $14
		WHERE type = $1 AND id = $2`
	insertOneRevisionQuery = `
		INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note,
			provenance, created_at, created_by, row_hash, additional_signatures)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`
	insertRevisionQuery = `
		INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note,
			provenance, created_at, created_by, row_hash, additional_signatures)
		SELECT * FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::bytea[], $6::integer[], $7::text[], $8::text[], $9::text[], $10::text[],
			$11::text[], $12::timestamptz[], $13::text[], $14::bytea[], $15::text[])`
	insertLinkQuery = `
		INSERT INTO link (id, from_type, from_id, predicate, to_type, to_id, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
			$11::timestamptz[], $12::text[], $13::bytea[])`
	insertSignalQuery = `
		INSERT INTO signal (id, type, artifact, scope, kind, dimension, voter, voter_kind, value, weight, reason, metadata, created_at, created_by, row_hash, aggregate)
		SELECT k.id, k.type, k.artifact, k.scope, k.kind, k.dimension, k.voter, k.voter_kind, k.value::numeric, k.weight::numeric,
			k.reason, k.metadata, k.created_at, k.created_by, k.row_hash, k.aggregate
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
			$11::text[], $12::text[], $13::timestamptz[], $14::text[], $15::bytea[], $16::text[])
			AS k (id, type, artifact, scope, kind, dimension, voter, voter_kind, value, weight, reason, metadata, created_at, created_by, row_hash, aggregate)`
	upsertSumQuery = `
		INSERT INTO signal_aggregate (type, artifact, kind, dimension, n, voters, sum, sum_sq)
		SELECT k.type, k.artifact, k.kind, k.dimension, k.n, k.voters, k.sum::numeric, k.sum_sq::numeric
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[])
			AS k (type, artifact, kind, dimension, n, voters, sum, sum_sq)
		ON CONFLICT (type, artifact, kind, dimension)
			DO UPDATE SET n = excluded.n, voters = excluded.voters, sum = excluded.sum, sum_sq = excluded.sum_sq`
)

// queue queues the writes that the ops decided on: new rows in the order of
// their keys, so that two writers that make the same ones do not deadlock.
func (w *writes) queue(b *pgx.Batch) {
	w.queueRetractions(b)
	slices.SortFunc(w.written, func(x, y *head) int { return x.ref().Current().Compare(y.ref().Current()) })
	var made, changed []*head
	for _, h := range w.written {
		if h.created {
			made = append(made, h)
		} else {
			changed = append(changed, h)
		}
	}
	queueMade(b, made)
	queueChanged(b, changed)
	w.queueRevisions(b)
	w.queueNewLinks(b)
	w.queueNewSignals(b)
	w.queuePaperKeys(b)
	w.queueWords(b)
	w.queueFacets(b)
	for _, m := range w.more {
		b.Queue(m.sql, m.args...)
	}
}

func queueMade(b *pgx.Batch, heads []*head) {
	switch len(heads) {
	case 0:
	case 1:
		h := heads[0]
		b.Queue(insertOneArtifactQuery, h.Type, h.ID, h.Scope, h.Head.Revision, h.ContentHash[:], h.SchemaVersion, h.Title, h.State,
			h.IsLatest, h.SupersededBy, h.QualityScore, h.CreatedAt, h.CreatedBy, h.UpdatedAt, h.UpdatedBy, h.hash[:], h.audience)
	default:
		c := columnsOfHeads(heads)
		b.Queue(insertArtifactQuery, c.typ, c.id, c.scope, c.revision, c.contentHash, c.schemaVersion, c.title, c.state,
			c.isLatest, c.supersededBy, c.quality, c.createdAt, c.createdBy, c.updatedAt, c.updatedBy, c.rowHash, c.audience)
	}
}

func queueChanged(b *pgx.Batch, heads []*head) {
	switch len(heads) {
	case 0:
	case 1:
		h := heads[0]
		b.Queue(updateOneArtifactQuery, h.Type, h.ID, h.Scope, h.Head.Revision, h.ContentHash[:], h.SchemaVersion, h.Title, h.State,
			h.IsLatest, h.SupersededBy, h.QualityScore, h.UpdatedAt, h.UpdatedBy, h.hash[:])
	default:
		c := columnsOfHeads(heads)
		b.Queue(updateArtifactQuery, c.typ, c.id, c.scope, c.revision, c.contentHash, c.schemaVersion, c.title,
			c.state, c.isLatest, c.supersededBy, c.quality, c.updatedAt, c.updatedBy, c.rowHash)
	}
}

// headColumnsOf is heads, column by column.
type headColumnsOf struct {
	typ, id, scope, title, state, supersededBy, createdBy, updatedBy []string
	audience                                                         []string
	revision, schemaVersion                                          []int
	contentHash, rowHash                                             [][]byte
	isLatest                                                         []bool
	quality                                                          []*float64
	createdAt, updatedAt                                             []time.Time
}

func columnsOfHeads(heads []*head) *headColumnsOf {
	c := new(headColumnsOf)
	for _, h := range heads {
		c.add(h)
	}
	return c
}

func (c *headColumnsOf) add(h *head) {
	c.audience = append(c.audience, h.audience)
	c.typ, c.id, c.scope = append(c.typ, h.Type), append(c.id, h.ID), append(c.scope, h.Scope)
	c.title, c.state, c.supersededBy = append(c.title, h.Title), append(c.state, h.State), append(c.supersededBy, h.SupersededBy)
	c.createdBy, c.updatedBy = append(c.createdBy, h.CreatedBy), append(c.updatedBy, h.UpdatedBy)
	c.revision, c.schemaVersion = append(c.revision, h.Head.Revision), append(c.schemaVersion, h.SchemaVersion)
	c.contentHash, c.rowHash = append(c.contentHash, h.ContentHash[:]), append(c.rowHash, h.hash[:])
	c.isLatest, c.quality = append(c.isLatest, h.IsLatest), append(c.quality, h.QualityScore)
	c.createdAt, c.updatedAt = append(c.createdAt, h.CreatedAt), append(c.updatedAt, h.UpdatedAt)
}

func (w *writes) queueRevisions(b *pgx.Batch) {
	switch len(w.revisions) {
	case 0:
		return
	case 1:
		r := w.revisions[0]
		b.Queue(insertOneRevisionQuery, r.Type, r.ID, r.Revision.Revision, r.Scope, r.ContentHash[:], r.SchemaVersion, r.Title, r.State,
			string(r.content), r.Note, string(r.provenance), r.CreatedAt, r.CreatedBy, r.hash[:], textOrNull(r.Signatures))
		return
	}
	var typ, id, scope, title, state, content, note, provenance, by []string
	var revision, schemaVersion []int
	var contentHash, rowHash [][]byte
	var at []time.Time
	var signatures []*string
	for _, r := range w.revisions {
		signatures = append(signatures, textOrNull(r.Signatures))
		typ, id, scope, title, state = append(typ, r.Type), append(id, r.ID), append(scope, r.Scope), append(title, r.Title), append(state, r.State)
		content, note, provenance, by = append(content, string(r.content)), append(note, r.Note), append(provenance, string(r.provenance)), append(by, r.CreatedBy)
		revision, schemaVersion = append(revision, r.Revision.Revision), append(schemaVersion, r.SchemaVersion)
		contentHash, rowHash, at = append(contentHash, r.ContentHash[:]), append(rowHash, r.hash[:]), append(at, r.CreatedAt)
	}
	b.Queue(insertRevisionQuery, typ, id, revision, scope, contentHash, schemaVersion, title, state, content, note, provenance, at, by, rowHash, signatures)
}

func textOrNull(raw []byte) *string {
	if len(raw) == 0 {
		return nil
	}
	text := string(raw)
	return &text
}

func (w *writes) queueNewLinks(b *pgx.Batch) {
	if len(w.newLinks) == 0 {
		return
	}
	slices.SortFunc(w.newLinks, func(x, y *linkRow) int {
		if c := x.key.from.Compare(y.key.from); c != 0 {
			return c
		}
		if c := strings.Compare(x.Predicate, y.Predicate); c != 0 {
			return c
		}
		return x.key.to.Compare(y.key.to)
	})
	b.Queue(insertLinkQuery, columnsOfLinks(w.newLinks)...)
}

// columnsOfLinks returns links, column by column.
func columnsOfLinks(links []*linkRow) []any {
	var id, fromType, fromID, predicate, toType, toID, toRef, scope, refs, evidence, by []string
	var rowHash [][]byte
	var at []time.Time
	for _, l := range links {
		id, fromType, fromID = append(id, l.ID), append(fromType, l.key.from.Type), append(fromID, l.key.from.ID)
		predicate, toType, toID = append(predicate, l.Predicate), append(toType, l.key.to.Type), append(toID, l.key.to.ID)
		toRef, scope, by = append(toRef, l.To), append(scope, l.Scope), append(by, l.By)
		list, err := json.Marshal(l.EvidenceRefs)
		if err != nil { // strings always encode
			list = []byte("[]")
		}
		refs, evidence = append(refs, string(list)), append(evidence, string(l.Evidence))
		at, rowHash = append(at, l.At), append(rowHash, l.hash[:])
	}
	return []any{id, fromType, fromID, predicate, toType, toID, toRef, scope, refs, evidence, at, by, rowHash}
}

func (w *writes) queueNewSignals(b *pgx.Batch) {
	if len(w.newSignals) == 0 {
		return
	}
	var id, typ, art, scope, kind, dimension, voter, voterKind, value, weight, reason, metadata, by, aggregate []string
	var rowHash [][]byte
	var at []time.Time
	for _, g := range w.newSignals {
		id, typ, art, scope = append(id, g.ID), append(typ, g.key.ref.Type), append(art, g.key.ref.ID), append(scope, g.Scope)
		kind, dimension, voter, voterKind = append(kind, g.Kind), append(dimension, g.Dimension), append(voter, g.Voter), append(voterKind, g.VoterKind)
		value, weight = append(value, g.Value.String()), append(weight, g.Weight.String())
		reason, metadata, by = append(reason, g.Reason), append(metadata, string(g.Metadata)), append(by, g.By)
		at, rowHash, aggregate = append(at, g.At), append(rowHash, g.hash[:]), append(aggregate, aggregateText(&g.Signal))
	}
	b.Queue(insertSignalQuery, id, typ, art, scope, kind, dimension, voter, voterKind, value, weight, reason, metadata, at, by, rowHash, aggregate)

	var sumType, sumArt, sumKind, sumDimension, sum, sumSq []string
	var n, voters []int64
	for _, g := range w.sumOrder {
		sumType, sumArt = append(sumType, g.key.ref.Type), append(sumArt, g.key.ref.ID)
		sumKind, sumDimension = append(sumKind, g.key.kind), append(sumDimension, g.key.dimension)
		n, voters, sum, sumSq = append(n, g.n), append(voters, g.voters), append(sum, g.sum.String()), append(sumSq, g.sumSq.String())
	}
	b.Queue(upsertSumQuery, sumType, sumArt, sumKind, sumDimension, n, voters, sum, sumSq)
}

// aggregateText returns the sums after a signal as its row in the feed has them.
func aggregateText(g *replicate.Signal) string {
	raw, _, err := replicate.Encode(g.Aggregate)
	if err != nil { // its numbers were encoded before, with the signal
		return "null"
	}
	return string(raw)
}
