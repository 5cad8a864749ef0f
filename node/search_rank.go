package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/verb"
)

const (
	wordedHits = `WITH hit (type, id, score) AS MATERIALIZED (
			SELECT a.type, a.id, {score} AS score {found} ORDER BY score, a.type, a.id LIMIT {limit}
		)
		SELECT a.type, a.id, a.state, a.scope, -h.score
		FROM hit AS h CROSS JOIN artifact AS a ON a.type = h.type AND a.id = h.id
		WHERE a.scope IN ({scopes})
		ORDER BY h.score, a.type, a.id`
	// nearHits compares each vector that the caller may see: what a filter lets pass is
	// all found, however little of the whole it is. sqlite-vec computes with float32:
	// its order is exact enough to choose those that are compared again.
	nearHits = `WITH near (type, id, state, scope, vector, distance) AS MATERIALIZED (
			SELECT a.type, a.id, a.state, a.scope, v.vector,
				CASE WHEN length(v.vector) = {dims} THEN vec_distance_cosine(vec_int8(v.vector), vec_int8({near})) END
			FROM vector AS v CROSS JOIN artifact AS a ON a.type = v.type AND a.id = v.id AND a.scope = v.scope{version}
			WHERE v.model = {model} AND a.scope IN ({scopes}){conditions}
		)
		SELECT n.type, n.id, n.state, n.scope, n.vector FROM near AS n WHERE n.distance < 1 ORDER BY n.distance, n.type, n.id LIMIT {limit}`
	versionJoin = `
			CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision`
	notExcluded = ` AND NOT EXISTS (
				SELECT 1 FROM search_document AS d WHERE d.type = a.type AND d.id = a.id
					AND d.n IN (SELECT rowid FROM search_index WHERE search_index MATCH {excluded}))`
	rankedHitsSQL = `
		SELECT a.type, a.id, a.scope, a.revision, a.content_hash, a.schema_version, a.title, a.state,
			a.created_at, a.created_by, a.updated_at, a.updated_by, a.is_latest, a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, r.content, json_extract(h.value, '$[2]'), (SELECT seq FROM replica_state)
		FROM json_each(?1) AS h
		CROSS JOIN artifact AS a ON a.type = json_extract(h.value, '$[0]') AND a.id = json_extract(h.value, '$[1]')
		CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.is_latest = 1 AND a.scope IN (SELECT value FROM json_each(?2))
		ORDER BY h.key`
)

// ranked runs a search by meaning, or one whose hits a model orders. It holds no
// snapshot meanwhile: a model may take its time.
func (s *Store) ranked(ctx context.Context, p *rank.Plan, degraded []verb.Degradation) (out verb.SearchResponse, err error) {
	c, err := reader(ctx)
	if err != nil {
		return out, err
	}
	var seq artifact.Seq // before it, for an answer of nothing
	if err := s.read.applied.QueryRowContext(ctx).Scan(&seq); err != nil {
		return out, err
	}
	p.Degraded = degraded
	if out, err = p.Search(ctx, &ranker{finder{store: s, caller: c, plan: p.SearchPlan}}); err != nil {
		return out, err
	}
	for i := range out.Hits {
		s.finish(p.SearchPlan, &out.Hits[i])
	}
	if len(out.Hits) == 0 {
		out.AsOf = seq
	}
	return out, nil
}

// A ranker is a [rank.Store] for one caller's search.
type ranker struct{ finder }

// ByWords implements [rank.Store].
func (r *ranker) ByWords(ctx context.Context, limit int) ([]rank.Candidate, error) {
	tx, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // it only read
	rows, err := r.run(ctx, tx, nil, nil, strings.ReplaceAll(wordedHits, "{limit}", strconv.Itoa(limit)))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []rank.Candidate
	for rows.Next() {
		var c rank.Candidate
		if err := rows.Scan(&c.Type, &c.ID, &c.State, &c.Scope, &c.Score); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// Near implements [rank.Store].
func (r *ranker) Near(ctx context.Context, p *rank.Plan, limit int) ([]rank.Candidate, bool, error) {
	tx, err := r.begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer tx.Rollback() //nolint:errcheck // it only read
	text, args := r.near(p, limit)
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	near := rank.Near{To: p.Vector, Limit: limit}
	for rows.Next() {
		var c rank.Candidate
		var v sql.RawBytes
		if err := rows.Scan(&c.Type, &c.ID, &c.State, &c.Scope, &v); err != nil {
			return nil, false, err
		}
		near.Add(c, embed.Vector(v))
	}
	return near.Found(), true, rows.Err()
}

// near returns the query of vectors to compare.
func (r *ranker) near(p *rank.Plan, limit int) (string, []any) {
	s := r.statement()
	where := r.conditions(s)
	if excluded := p.Words.MatchExcluded(); excluded != "" {
		where += strings.ReplaceAll(notExcluded, "{excluded}", s.Arg(excluded))
	}
	version := ""
	if p.Where != nil {
		version = versionJoin
	}
	text := strings.NewReplacer(
		"{dims}", s.Arg(len(p.Vector)), "{near}", s.Arg([]byte(p.Vector)), "{model}", s.Arg(p.Model),
		"{version}", version, "a.scope IN ("+scopesMark+")", s.Visible("a.scope"), "{conditions}", where, "{limit}", strconv.Itoa(limit+rank.Spare),
	).Replace(nearHits)
	return text, s.Args()
}

// Hits implements [rank.Store].
func (r *ranker) Hits(ctx context.Context, some []rank.Candidate, out *verb.SearchResponse) error {
	wanted := make([][3]any, len(some))
	for i, c := range some {
		wanted[i] = [3]any{c.Type, c.ID, c.Score}
	}
	raw, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	scopes, err := visible(ctx)
	if err != nil {
		return err
	}
	rows, err := r.store.readers.QueryContext(ctx, rankedHitsSQL, string(raw), scopes)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var hit verb.SearchHit
		if hit.Artifact, err = scanArtifact(rows.Scan, &hit.Score, &out.AsOf); err != nil {
			return err
		}
		out.Hits = append(out.Hits, hit)
	}
	return rows.Err()
}

// Text implements [rank.Store]. A replica holds nothing that is for its participants
// alone.
func (r *ranker) Text(hit *verb.SearchHit) (string, bool) {
	rule := r.store.write.index.rule(hit.Artifact.Type)
	if rule == nil {
		return hit.Artifact.Title, true
	}
	fields := rule.Fields(hit.Artifact.Title, hit.Artifact.Content)
	texts := make([]string, len(fields))
	for i := range fields {
		texts[i] = fields[i].Text
	}
	return embed.Text(texts), true
}
