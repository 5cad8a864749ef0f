package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"

	"github.com/scidex-ai/substrate/query"
	"github.com/scidex-ai/substrate/verb"
)

// The weights are those of analysis.Columns. bm25 is lower for what is better. {name}
// is the whole of the words as a name: what has it comes first.
//
// bm25 weighs a word by how rare it is in all that the replica holds: it would tell
// those who may not see all of that which words the rest has. For them a hit counts by
// where the words stand.
const (
	blindScore = `-CASE WHEN d.n IN (SELECT rowid FROM search_index WHERE search_index MATCH {name}) THEN 100 ELSE 0 END
				- CASE WHEN d.n IN (SELECT rowid FROM search_index WHERE search_index MATCH {title}) THEN 5.0
				WHEN d.n IN (SELECT rowid FROM search_index WHERE search_index MATCH {first}) THEN 2.0 ELSE 1.0 END`
	searchScore = `bm25(search_index, 1, 5, 2, 1.5, 1, 5, 1) - CASE WHEN d.n IN (SELECT rowid FROM search_index WHERE search_index MATCH {name}) THEN 100 ELSE 0 END`
	searchFrom  = `FROM search_index CROSS JOIN search_document AS d ON d.n = search_index.rowid
			WHERE search_index MATCH ?1 AND d.scope IN ({scopes})
				AND (?2 = '' OR d.type IN (SELECT value FROM json_each(?2))) AND (?3 = '' OR d.scope = ?3)`
	hitArtifacts = `
		SELECT a.type, a.id, a.scope, a.revision, a.content_hash, a.schema_version, a.title, a.state,
			a.created_at, a.created_by, a.updated_at, a.updated_by, a.is_latest, a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, CASE WHEN {content} THEN r.content END, -h.score
		FROM hit AS h CROSS JOIN artifact AS a ON a.type = h.type AND a.id = h.id
		CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE a.scope IN ({scopes})
		ORDER BY h.score, a.type, a.id`
	hitsOfWords = `WITH hit (type, id, score) AS MATERIALIZED (
			SELECT d.type, d.id, {score} AS score
			` + searchFrom + `
			ORDER BY score, d.type, d.id LIMIT ?4 OFFSET ?5
		)` + hitArtifacts
	searchFacetsSQL = `SELECT a.type, a.state, a.scope
		FROM (SELECT d.type, d.id ` + searchFrom + ` LIMIT ?4) AS h
		CROSS JOIN artifact AS a ON a.type = h.type AND a.id = h.id
		WHERE a.scope IN ({scopes})`
	filteredHits = `WITH hit (type, id, score) AS MATERIALIZED (
			SELECT a.type, a.id, {score} AS score {found} ORDER BY score, a.type, a.id LIMIT {size} OFFSET {offset}
		)` + hitArtifacts
	filteredFacets = `SELECT a.type, a.state, a.scope {found} LIMIT {most}`
)

var (
	searchSQL      = wordsSQL(searchScore)
	blindSearchSQL = wordsSQL(blindScore)
)

func wordsSQL(score string) string {
	return strings.NewReplacer("{content}", "?6", "{name}", "?7", "{title}", "?8", "{first}", "?9").Replace(strings.ReplaceAll(hitsOfWords, "{score}", score))
}

// inTitle and inFirst return a query of those columns alone.
func inTitle(match string) string { return "{title title_joined} : (" + match + ")" }
func inFirst(match string) string { return "first : (" + match + ")" }

// search answers the verb of that name.
func (s *Store) search(ctx context.Context, in verb.SearchRequest) (out verb.SearchResponse, err error) {
	if _, err := reader(ctx); err != nil {
		return out, err
	}
	known := s.typeNames()
	p, err := in.Plan(known)
	if err != nil {
		return out, err
	}
	plan, err := s.models.Prepare(ctx, p, s.haveVectors())
	if err != nil {
		return out, err
	}
	if behind := s.behindOf(in.Types); behind != nil {
		out.Degraded = []verb.Degradation{verb.IndexBuilding(behind)}
	}
	out.Degraded = append(out.Degraded, plan.Degraded...)
	if plan.Ranked() {
		return s.ranked(ctx, plan, out.Degraded)
	}
	find, err := s.finder(ctx, p)
	if err != nil {
		return out, err
	}
	tx, err := s.readers.BeginTx(ctx, nil)
	if err != nil {
		return out, err
	}
	defer tx.Rollback()                                                                              //nolint:errcheck // it only read
	if err := tx.StmtContext(ctx, s.read.applied).QueryRowContext(ctx).Scan(&out.AsOf); err != nil { //nolint:sqlclosecheck // the transaction closes it
		return out, err
	}
	if err := find.hits(ctx, tx, &out); err != nil {
		return verb.SearchResponse{}, err
	}
	p.Finish(&out)
	for i := range out.Hits {
		s.finish(p, &out.Hits[i])
	}
	if len(in.Facets) == 0 {
		return out, nil
	}
	return out, find.facets(ctx, tx, p, &out)
}

// A finder is a search as this store is asked.
type finder struct {
	hitsStmt, facetsStmt *sql.Stmt // kept for the next search; nil for one with a filter
	hitsText, facetsText string
	hitsArgs, facetsArgs []any
}

// finder prepares a search. One with a filter has a text of its own.
func (s *Store) finder(ctx context.Context, p *verb.SearchPlan) (f finder, err error) {
	c, err := reader(ctx)
	if err != nil {
		return f, err
	}
	score := searchScore
	if !s.seesAll(c) {
		score = blindScore
	}
	if p.Where != nil {
		f.hitsText, f.hitsArgs = filtered(c, p, filteredHits, score)
		f.facetsText, f.facetsArgs = filtered(c, p, filteredFacets, score)
		return f, nil
	}
	types := ""
	if len(p.Types) > 0 {
		raw, err := json.Marshal(p.Types)
		if err != nil {
			return f, err
		}
		types = string(raw)
	}
	match := p.Words.Match()
	kept, args := &s.read.search, []any{match, types, p.Scope, p.ReadSize(), p.Offset, p.IncludeContent || p.Highlight, p.Words.Name()}
	if score == blindScore {
		kept, args = &s.read.blindSearch, append(args, inTitle(match), inFirst(match))
	}
	f.hitsStmt, f.hitsArgs, err = kept.bind(ctx, args...)
	if err == nil && len(p.Facets) > 0 {
		f.facetsStmt, f.facetsArgs, err = s.read.searchFacets.bind(ctx, match, types, p.Scope, verb.MaxFacetMatches+1)
	}
	return f, err
}

// filtered writes a search with a filter: by words too, or by it alone. In the form
// {found} is the rows that are found, {score} how well, {page} which of them.
func filtered(c *verb.Caller, p *verb.SearchPlan, form, by string) (string, []any) {
	s := query.New(query.SQLite, c.VisibleScopes())
	if len(p.Types) == 1 {
		s.Type = p.Types[0]
	}
	var b strings.Builder
	score := "0.0"
	b.WriteString(`FROM artifact AS a`)
	if p.Words != nil {
		score = strings.ReplaceAll(by, "{name}", s.Arg(p.Words.Name()))
		if by == blindScore {
			match := p.Words.Match()
			score = strings.NewReplacer("{title}", s.Arg(inTitle(match)), "{first}", s.Arg(inFirst(match))).Replace(score)
		}
		b.Reset()
		b.WriteString(`FROM search_index CROSS JOIN search_document AS d ON d.n = search_index.rowid
			CROSS JOIN artifact AS a ON a.type = d.type AND a.id = d.id`)
	}
	b.WriteString(` CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision WHERE `)
	if p.Words != nil {
		b.WriteString(`search_index MATCH ` + s.Arg(p.Words.Match()) + ` AND `)
	}
	b.WriteString(s.Visible("a.scope") + conditions(s, p))
	text := strings.NewReplacer(
		"{found}", b.String(), "{score}", score, "{size}", s.Arg(p.ReadSize()), "{offset}", s.Arg(p.Offset), "{content}", s.Arg(p.IncludeContent || p.Highlight),
		"{most}", s.Arg(verb.MaxFacetMatches+1), "a.scope IN ("+scopesMark+")", s.Visible("a.scope"),
	).Replace(form)
	return text, s.Args()
}

// conditions returns which artifacts a search is of, beside those that the caller may
// see.
func conditions(s *query.Statement, p *verb.SearchPlan) string {
	text := ` AND a.is_latest = 1`
	if len(p.Types) > 0 {
		raw, err := json.Marshal(p.Types)
		if err != nil { // texts
			raw = []byte("[]")
		}
		text += ` AND a.type IN (SELECT value FROM json_each(` + s.Arg(string(raw)) + `))`
	}
	if p.Scope != "" {
		text += ` AND a.scope = ` + s.Arg(p.Scope)
	}
	if p.Where != nil {
		text += ` AND ` + s.Where(p.Where)
	}
	return text
}

// run runs a statement that is kept, or else a text.
func run(ctx context.Context, tx *sql.Tx, kept *sql.Stmt, text string, args []any) (*sql.Rows, error) {
	if kept == nil {
		return tx.QueryContext(ctx, text, args...)
	}
	return tx.StmtContext(ctx, kept).QueryContext(ctx, args...) //nolint:sqlclosecheck // the transaction closes it
}

func (f *finder) hits(ctx context.Context, tx *sql.Tx, out *verb.SearchResponse) error {
	rows, err := run(ctx, tx, f.hitsStmt, f.hitsText, f.hitsArgs)
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
	if p.Highlight && p.Words != nil {
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
func (f *finder) facets(ctx context.Context, tx *sql.Tx, p *verb.SearchPlan, out *verb.SearchResponse) error {
	rows, err := run(ctx, tx, f.facetsStmt, f.facetsText, f.facetsArgs)
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
