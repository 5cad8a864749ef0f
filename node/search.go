package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"

	"github.com/scidex-ai/substrate/verb"
)

// The weights are those of analysis.Columns. bm25 is lower for what is better.
const (
	searchFrom = `FROM search_index CROSS JOIN search_document AS d ON d.n = search_index.rowid
			WHERE search_index MATCH ?1 AND d.scope IN ({scopes})
				AND (?2 = '' OR d.type IN (SELECT value FROM json_each(?2))) AND (?3 = '' OR d.scope = ?3)`
	searchSQL = `WITH hit (type, id, score) AS MATERIALIZED (
			SELECT d.type, d.id, bm25(search_index, 100, 5, 2, 1.5, 1, 5, 1) AS score
			` + searchFrom + `
			ORDER BY score, d.type, d.id LIMIT ?4 OFFSET ?5
		)
		SELECT a.type, a.id, a.scope, a.revision, a.content_hash, a.schema_version, a.title, a.state,
			a.created_at, a.created_by, a.updated_at, a.updated_by, a.is_latest, a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, CASE WHEN ?6 THEN r.content END, -h.score
		FROM hit AS h CROSS JOIN artifact AS a ON a.type = h.type AND a.id = h.id
		CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.scope IN ({scopes})
		ORDER BY h.score, a.type, a.id`
	searchFacetsSQL = `SELECT a.type, a.state, a.scope
		FROM (SELECT d.type, d.id ` + searchFrom + ` LIMIT ?4) AS h
		CROSS JOIN artifact AS a ON a.type = h.type AND a.id = h.id
		WHERE a.scope IN ({scopes})`
)

// search answers the verb of that name.
func (s *Store) search(ctx context.Context, in verb.SearchRequest) (out verb.SearchResponse, err error) {
	if _, err := reader(ctx); err != nil {
		return out, err
	}
	known, err := s.types(ctx)
	if err != nil {
		return out, err
	}
	p, err := in.Plan(known)
	if err != nil {
		return out, err
	}
	types := ""
	if len(in.Types) > 0 {
		raw, err := json.Marshal(in.Types)
		if err != nil {
			return out, err
		}
		types = string(raw)
	}
	match := p.Words.Match()
	stmt, args, err := s.read.search.bind(ctx, match, types, in.Scope, p.ReadSize(), p.Offset, in.IncludeContent || in.Highlight) //nolint:sqlclosecheck // kept for the next search
	if err != nil {
		return out, err
	}
	if behind := s.behindOf(in.Types); behind != nil {
		out.Degraded = []verb.Degradation{verb.IndexBuilding(behind)}
	}
	tx, err := s.readers.BeginTx(ctx, nil)
	if err != nil {
		return out, err
	}
	defer tx.Rollback()                                                                              //nolint:errcheck // it only read
	if err := tx.StmtContext(ctx, s.read.applied).QueryRowContext(ctx).Scan(&out.AsOf); err != nil { //nolint:sqlclosecheck // the transaction closes it
		return out, err
	}
	if err := s.hits(ctx, tx.StmtContext(ctx, stmt), args, &out); err != nil { //nolint:sqlclosecheck // the transaction closes it
		return verb.SearchResponse{}, err
	}
	p.Finish(&out)
	for i := range out.Hits {
		s.finish(p, &out.Hits[i])
	}
	if len(in.Facets) == 0 {
		return out, nil
	}
	stmt, args, err = s.read.searchFacets.bind(ctx, match, types, in.Scope, verb.MaxFacetMatches+1) //nolint:sqlclosecheck // kept for the next search
	if err != nil {
		return verb.SearchResponse{}, err
	}
	return out, s.facets(ctx, tx.StmtContext(ctx, stmt), args, p, &out) //nolint:sqlclosecheck // the transaction closes it
}

func (s *Store) hits(ctx context.Context, stmt *sql.Stmt, args []any, out *verb.SearchResponse) error {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var hit verb.SearchHit
		if hit.Artifact, err = scanArtifact(rows.Scan, &hit.Score); err != nil {
			return err
		}
		out.Hits = append(out.Hits, hit)
	}
	return rows.Err()
}

// finish adds to a hit what was asked for, and takes out what was not.
func (s *Store) finish(p *verb.SearchPlan, hit *verb.SearchHit) {
	a := &hit.Artifact
	if p.Highlight {
		if rule := s.write.index.rule(a.Type); rule != nil {
			hit.Highlights = p.Words.Highlights(rule.Fields(a.Title, a.Content))
		}
	}
	if !p.IncludeContent {
		a.Content = nil
		return
	}
	s.upgrades.Load().Beside(a)
}

// facets counts all hits, not those of the page alone.
func (s *Store) facets(ctx context.Context, stmt *sql.Stmt, args []any, p *verb.SearchPlan, out *verb.SearchResponse) error {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	count := verb.NewFacetCounter(p)
	for rows.Next() {
		var typ, state, scope string
		if err := rows.Scan(&typ, &state, &scope); err != nil {
			return err
		}
		count.Add(typ, state, scope)
	}
	count.Finish(out)
	return rows.Err()
}

// behindOf returns which of some types, or of all, are not all indexed.
func (s *Store) behindOf(types []string) (behind []string) {
	all := s.behind.Load()
	if all == nil {
		return nil
	}
	for _, typ := range *all {
		if len(types) == 0 || slices.Contains(types, typ) {
			behind = append(behind, typ)
		}
	}
	return behind
}
