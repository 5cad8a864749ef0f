package hub

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// fillQuery returns a query of a page. It looks at $2 rows, a page's, of a table in the order
// of its key, whoever may have them, so that it takes the same short time
// everywhere, and returns those in the scopes $1 until their bytes come to $3. The
// last one that it looked at is returned in any case, to go on from. "Done" is
// true for it when nothing comes after it. The limit stands in the text because the
// planner, which cannot know how few rows $2 are, would otherwise read whole tables
// for each page.
func fillQuery(columns, from, after, key, mine, size string) string {
	return `
	SELECT ` + columns + `, mine, last AND total < $2::integer
	FROM (
		SELECT k.*, m.mine, row_number() OVER w = count(*) OVER () AS last, count(*) OVER () AS total,
			coalesce(sum(CASE WHEN m.mine THEN ` + size + ` ELSE 0 END) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
		FROM (SELECT * FROM ` + from + ` WHERE ` + after + ` ORDER BY ` + key + ` LIMIT ` + strconv.Itoa(replicate.MaxPageRows) + `) k
		CROSS JOIN LATERAL (SELECT ` + mine + ` AS mine OFFSET 0) m
		WINDOW w AS (ORDER BY ` + key + `)
	) k
	WHERE before < $3 AND (mine OR last)
	ORDER BY ` + key
}

const (
	inScopes = `k.scope = ANY ($1)`
	// notHidden keeps out what hangs on an artifact that is for its participants
	// alone.
	notHidden  = ` AND NOT EXISTS (SELECT FROM artifact a WHERE a.audience = 'participants' AND `
	fillAgents = `(
		SELECT s.scope, s.announced, a.id, a.kind, a.title, coalesce(a.handle, '') AS handle, a.roles, a.may_delegate, a.created_at, a.updated_at,
			(SELECT coalesce(array_agg(f.handle ORDER BY f.handle), '{}') FROM handle f WHERE f.agent = a.id AND f.handle IS DISTINCT FROM a.handle) AS former
		FROM agent_seen s JOIN agent a ON a.id = s.agent) k`
	fillSums = `(
		SELECT g.type, g.artifact, g.kind, g.dimension, g.n, g.voters, g.sum::text AS sum, g.sum_sq::text AS sum_sq,
			CASE WHEN a.audience = 'scope' THEN a.scope ELSE '' END AS scope
		FROM signal_aggregate g JOIN artifact a ON a.type = g.type AND a.id = g.artifact) k`
)

// fillKinds are the kinds of a back-fill.
var fillKinds = map[string]*fillKind{
	replicate.KindScope: {
		query: fillQuery(`id, title, created_at`, `scope k`, `id > $4`, `id`, `k.id = ANY ($1)`, `100`),
		parse: keyOf(1, 0), scan: fillScope,
	},
	replicate.KindSchema: {
		query: fillQuery(`artifact_type, schema_version, document, created_at`, `schema_registry k`,
			`(artifact_type, schema_version) > ($4, $5)`, `artifact_type, schema_version`, `$1::text[] IS NOT NULL`, `octet_length(k.document)`),
		parse: keyOf(1, 1), scan: fillSchema,
	},
	replicate.KindMembership: {
		query: fillQuery(`scope, agent, roles, granted_at, granted_by`, `membership k`, `(scope, agent) > ($4, $5)`, `scope, agent`, inScopes, `200`),
		parse: keyOf(2, 0), scan: fillMembership,
	},
	replicate.KindAgent: {
		query: fillQuery(`scope, id, kind, title, handle, roles, may_delegate, created_at, updated_at, former`, fillAgents,
			`(scope, id) > ($4, $5)`, `scope, id`, inScopes+` AND k.announced`, `300`),
		parse: keyOf(2, 0), scan: fillAgent,
	},
	replicate.KindRevocation: {
		query: fillQuery(`encode(hash, 'hex'), hash, agent, before_at`, `(SELECT hash, agent, before AS before_at FROM revocation) k`,
			`hash > decode($4, 'hex')`, `hash`, `$1::text[] IS NOT NULL`, `200`),
		parse: keyOf(1, 0), scan: fillRevocation,
	},
	replicate.KindRevision: {
		query: fillQuery(`type, id, revision, scope, content_hash, schema_version, title, state, note, provenance,
			additional_signatures, redaction, created_at, created_by, row_hash, content`, `artifact_revision k`,
			`(type, id, revision) > ($4, $5, $6)`, `type, id, revision`,
			inScopes+notHidden+`a.type = k.type AND a.id = k.id)`, `octet_length(k.content) + octet_length(k.provenance) + 300`),
		parse: keyOf(2, 1), scan: fillRevision,
	},
	replicate.KindArtifact: {
		query: fillQuery(`type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by, quality_score,
			created_at, created_by, updated_at, updated_by, row_hash`, `artifact k`,
			`(type, id) > ($4, $5)`, `type, id`, inScopes+` AND k.audience = 'scope'`, `octet_length(k.title) + 400`),
		parse: keyOf(2, 0), scan: fillHead,
	},
	replicate.KindLink: {
		query: fillQuery(`id, from_type, from_id, predicate, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash`, `link k`,
			`id > $4`, `id`,
			inScopes+notHidden+`a.type = k.from_type AND a.id = k.from_id)`+notHidden+`a.type = k.to_type AND a.id = k.to_id)`,
			`octet_length(k.evidence) + octet_length(k.evidence_refs) + 300`),
		parse: keyOf(1, 0), scan: fillLink,
	},
	replicate.KindSignal: {
		query: fillQuery(`id, type, artifact, scope, kind, dimension, voter, voter_kind, value::text, weight::text, reason, metadata,
			created_at, created_by, row_hash, aggregate`, `signal k`,
			`id > $4`, `id`, inScopes+notHidden+`a.type = k.type AND a.id = k.artifact)`, `octet_length(k.metadata) + octet_length(k.reason) + 500`),
		parse: keyOf(1, 0), scan: fillSignal,
	},
	replicate.KindAggregate: {
		query: fillQuery(`type, artifact, kind, dimension, n, voters, sum, sum_sq, scope`, fillSums,
			`(type, artifact, kind, dimension) > ($4, $5, $6, $7)`, `type, artifact, kind, dimension`, inScopes, `200`),
		parse: keyOf(4, 0), scan: fillAggregate,
	},
	replicate.KindVector: {
		query: fillQuery(`type, id, model, scope, revision, vector`, `artifact_vector k`,
			`(type, id, model) > ($4, $5, $6)`, `type, id, model`, inScopes, `octet_length(k.vector) * 4 / 3 + 300`),
		parse: keyOf(3, 0), scan: fillVector,
	},
	replicate.KindVectorModel: {
		query: fillQuery(`model, dims`, `(SELECT model, dims FROM vector_model WHERE serves) k`,
			`model > $4`, `model`, `'commons' = ANY ($1)`, `200`),
		parse: keyOf(1, 0), scan: fillVectorModel,
	},
	replicate.KindEvent: {
		query: fillQuery(`seq, type, ref, scope, actor_id, actor_kind, at, payload`, `event k`,
			`seq > $4 AND seq <= $5`, `seq`, inScopes+` AND k.class = 'public'`, `octet_length(k.payload) + 300`),
		parse: keyOf(0, 1), upTo: true, scan: fillEvent,
	},
}

func fillScope(rows pgx.Rows, f *filled) error {
	var s replicate.Scope
	if err := rows.Scan(&s.ID, &s.Title, &s.CreatedAt, &f.mine, &f.done); err != nil {
		return err
	}
	s.CreatedAt = s.CreatedAt.UTC()
	f.key = []string{s.ID}
	return f.put(s.ID, replicate.KindScope, scopeRef(s.ID), 1, s, nil)
}

func fillSchema(rows pgx.Rows, f *filled) error {
	var s replicate.Schema
	var document string
	if err := rows.Scan(&s.Type, &s.SchemaVersion, &document, &s.CreatedAt, &f.mine, &f.done); err != nil {
		return err
	}
	s.Document, s.CreatedAt = json.RawMessage(document), s.CreatedAt.UTC()
	f.key = []string{s.Type, decimal(s.SchemaVersion)}
	return f.put(artifact.Commons, replicate.KindSchema, artifact.SchemaType+":"+s.Type, s.SchemaVersion, s, nil)
}

func fillMembership(rows pgx.Rows, f *filled) error {
	var m replicate.Membership
	if err := rows.Scan(&m.Scope, &m.Agent, &m.Roles, &m.GrantedAt, &m.GrantedBy, &f.mine, &f.done); err != nil {
		return err
	}
	m.GrantedAt = m.GrantedAt.UTC()
	f.key = []string{m.Scope, m.Agent}
	return f.put(m.Scope, replicate.KindMembership, m.Ref(), 1, m, nil)
}

func fillAgent(rows pgx.Rows, f *filled) error {
	var a replicate.Agent
	var scope string
	if err := rows.Scan(&scope, &a.ID, &a.Kind, &a.Title, &a.Handle, &a.Roles, &a.MayDelegate, &a.CreatedAt, &a.UpdatedAt, &a.FormerHandles, &f.mine, &f.done); err != nil {
		return err
	}
	a.CreatedAt, a.UpdatedAt = a.CreatedAt.UTC(), a.UpdatedAt.UTC()
	f.key = []string{scope, a.ID}
	return f.put(scope, replicate.KindAgent, agentRef(a.ID), 1, a, nil)
}

func fillRevocation(rows pgx.Rows, f *filled) error {
	var text, agent string
	var hash []byte
	v := replicate.Revocation{Of: replicate.OfToken}
	if err := rows.Scan(&text, &hash, &agent, &v.Before, &f.mine, &f.done); err != nil {
		return err
	}
	if agent != "" {
		v.Of = replicate.OfAgent
	}
	v.Hash, v.Before = artifact.Hash(hash), v.Before.UTC()
	f.key = []string{text}
	return f.put(artifact.Commons, replicate.KindRevocation, replicate.KindRevocation+":"+text, 1, v, nil)
}

func fillVector(rows pgx.Rows, f *filled) error {
	var v replicate.Vector
	var revision int
	if err := rows.Scan(&v.Type, &v.ID, &v.Model, &v.Scope, &revision, &v.Vector, &f.mine, &f.done); err != nil {
		return err
	}
	f.key = []string{v.Type, v.ID, v.Model}
	return f.put(v.Scope, replicate.KindVector, v.Type+":"+v.ID, revision, v, nil)
}

func fillVectorModel(rows pgx.Rows, f *filled) error {
	var v replicate.VectorModel
	if err := rows.Scan(&v.Model, &v.Dims, &f.mine, &f.done); err != nil {
		return err
	}
	f.key = []string{v.Model}
	return f.put(artifact.Commons, replicate.KindVectorModel, replicate.VectorModelRef, 1, v, nil)
}

func fillRevision(rows pgx.Rows, f *filled) error {
	var v replicate.Revision
	var contentHash, rowHash []byte
	var provenance, content string
	var signatures, redaction *string
	if err := rows.Scan(&v.Type, &v.ID, &v.Revision, &v.Scope, &contentHash, &v.SchemaVersion, &v.Title, &v.State, &v.Note, &provenance,
		&signatures, &redaction, &v.CreatedAt, &v.CreatedBy, &rowHash, &content, &f.mine, &f.done); err != nil {
		return err
	}
	v.ContentHash, v.CreatedAt = artifact.Hash(contentHash), v.CreatedAt.UTC()
	if signatures != nil {
		v.Signatures = json.RawMessage(*signatures)
	}
	if redaction != nil {
		v.Redaction = new(replicate.Redaction)
		if err := json.Unmarshal([]byte(*redaction), v.Redaction); err != nil {
			return err
		}
	}
	if err := json.Unmarshal([]byte(provenance), &v.Provenance); err != nil {
		return err
	}
	f.key = []string{v.Type, v.ID, decimal(v.Revision)}
	err := f.put(v.Scope, replicate.KindRevision, v.Type+":"+v.ID, v.Revision, v, rowHash)
	f.row.At, f.row.Content = v.CreatedAt, json.RawMessage(content)
	return err
}

func fillHead(rows pgx.Rows, f *filled) error {
	var h replicate.Head
	var contentHash, rowHash []byte
	if err := rows.Scan(&h.Type, &h.ID, &h.Scope, &h.Revision, &contentHash, &h.SchemaVersion, &h.Title, &h.State, &h.IsLatest, &h.SupersededBy,
		&h.QualityScore, &h.CreatedAt, &h.CreatedBy, &h.UpdatedAt, &h.UpdatedBy, &rowHash, &f.mine, &f.done); err != nil {
		return err
	}
	h.ContentHash, h.CreatedAt, h.UpdatedAt = artifact.Hash(contentHash), h.CreatedAt.UTC(), h.UpdatedAt.UTC()
	f.key = []string{h.Type, h.ID}
	err := f.put(h.Scope, replicate.KindArtifact, h.Type+":"+h.ID, h.Revision, h, rowHash)
	f.row.At = h.UpdatedAt
	return err
}

func fillLink(rows pgx.Rows, f *filled) error {
	var l replicate.Link
	var fromType, fromID, refs, evidence string
	var rowHash []byte
	if err := rows.Scan(&l.ID, &fromType, &fromID, &l.Predicate, &l.To, &l.Scope, &refs, &evidence, &l.At, &l.By, &rowHash, &f.mine, &f.done); err != nil {
		return err
	}
	l.From, l.Evidence, l.At = fromType+":"+fromID, json.RawMessage(evidence), l.At.UTC()
	if err := json.Unmarshal([]byte(refs), &l.EvidenceRefs); err != nil {
		return err
	}
	f.key = []string{l.ID}
	err := f.put(l.Scope, replicate.KindLink, replicate.LinkType+":"+l.ID, 1, l, rowHash)
	f.row.At = l.At
	return err
}

func fillSignal(rows pgx.Rows, f *filled) error {
	var g replicate.Signal
	var typ, id, value, weight, metadata, aggregate string
	var rowHash []byte
	if err := rows.Scan(&g.ID, &typ, &id, &g.Scope, &g.Kind, &g.Dimension, &g.Voter, &g.VoterKind, &value, &weight, &g.Reason, &metadata,
		&g.At, &g.By, &rowHash, &aggregate, &f.mine, &f.done); err != nil {
		return err
	}
	v, err := artifact.ParseDecimal(value)
	if err != nil {
		return err
	}
	w, err := artifact.ParseDecimal(weight)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(aggregate), &g.Aggregate); err != nil {
		return err
	}
	g.Ref, g.Value, g.Weight, g.Metadata, g.At = typ+":"+id, json.Number(v.String()), json.Number(w.String()), json.RawMessage(metadata), g.At.UTC()
	f.key = []string{g.ID}
	err = f.put(g.Scope, replicate.KindSignal, replicate.SignalType+":"+g.ID, 1, g, rowHash)
	f.row.At = g.At
	return err
}

func fillAggregate(rows pgx.Rows, f *filled) error {
	var typ, id, kind, dimension, sum, sumSq, scope string
	var n, voters int64
	if err := rows.Scan(&typ, &id, &kind, &dimension, &n, &voters, &sum, &sumSq, &scope, &f.mine, &f.done); err != nil {
		return err
	}
	a, err := aggregateOf(kind, dimension, n, voters, sum, sumSq)
	if err != nil {
		return err
	}
	f.key = []string{typ, id, kind, dimension}
	return f.put(scope, replicate.KindAggregate, typ+":"+id, 1, a, nil)
}

func fillEvent(rows pgx.Rows, f *filled) error {
	var e replicate.RowEvent
	var payload string
	var at time.Time
	r := replicate.Row{Kind: replicate.KindEvent, Op: replicate.Emit}
	if err := rows.Scan(&r.Seq, &e.Type, &e.Ref, &r.Scope, &e.ActorID, &e.ActorKind, &at, &payload, &f.mine, &f.done); err != nil {
		return err
	}
	e.Payload, r.At, r.Event = json.RawMessage(payload), at.UTC(), &e
	f.key, f.row = []string{decimal(int(r.Seq))}, r
	return nil
}

func decimal(n int) string { return strconv.Itoa(n) }
