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
			r.additional_signatures, r.redaction, CASE WHEN {content} THEN r.content END, -h.score, (SELECT seq FROM replica_state)
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
			SELECT a.type, a.id, {score} AS score {found} ORDER BY {order}a.type, a.id LIMIT {size} OFFSET {offset}
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
	p, err := in.Plan(s.typeNamed, s.typeNames)
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
	f, err := s.finder(ctx, p)
	if err != nil {
		return out, err
	}
	// One statement is of one moment. What takes several takes a transaction, and so
	// does an answer of nothing, which has no row to say how much it is of.
	if p.Where == nil && len(in.Facets) == 0 {
		if err := f.hits(ctx, nil, &out); err != nil {
			return verb.SearchResponse{}, err
		}
	}
	if len(out.Hits) > 0 {
		p.Finish(&out)
	} else if err := f.inOne(ctx, &out); err != nil {
		return verb.SearchResponse{}, err
	}
	for i := range out.Hits {
		s.finish(p, &out.Hits[i])
	}
	return out, nil
}

// A finder is a search as this store is asked.
type finder struct {
	store  *Store
	caller *verb.Caller
	plan   *verb.SearchPlan
	facets
	hitsStmt, countStmt *sql.Stmt // kept for the next search; nil for one with a filter
	hitsArgs, countArgs []any
}

// finder prepares a search. One with a filter has a text of its own.
func (s *Store) finder(ctx context.Context, p *verb.SearchPlan) (f finder, err error) {
	f = finder{store: s, plan: p}
	if f.caller, err = reader(ctx); err != nil || p.Where != nil {
		return f, err
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
	if f.score() == blindScore {
		kept, args = &s.read.blindSearch, append(args, inTitle(match), inFirst(match))
	}
	f.hitsStmt, f.hitsArgs, err = kept.bind(ctx, args...)
	if err == nil && len(p.Facets) > 0 {
		f.countStmt, f.countArgs, err = s.read.searchFacets.bind(ctx, match, types, p.Scope, verb.MaxFacetMatches+1)
	}
	return f, err
}

// score is how well hits are found, for the caller.
func (f *finder) score() string {
	if f.store.seesAll(f.caller) {
		return searchScore
	}
	return blindScore
}

// inOne reads hits and counts of one moment.
func (f *finder) inOne(ctx context.Context, out *verb.SearchResponse) error {
	tx, err := f.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()                                                                                    //nolint:errcheck // it only read
	if err := tx.StmtContext(ctx, f.store.read.applied).QueryRowContext(ctx).Scan(&out.AsOf); err != nil { //nolint:sqlclosecheck // the transaction closes it
		return err
	}
	if err := f.hits(ctx, tx, out); err != nil {
		return err
	}
	if f.plan.Finish(out); len(f.plan.Facets) == 0 {
		return nil
	}
	return f.count(ctx, tx, out)
}

// begin begins a transaction, and looks up in it what is kept of the facets that the
// filter asks for.
func (f *finder) begin(ctx context.Context) (*sql.Tx, error) {
	tx, err := f.store.readers.BeginTx(ctx, nil)
	if err != nil || f.plan.Where == nil {
		return tx, err
	}
	if f.facets, err = f.store.facetsOf(ctx, tx, f.plan.Type); err != nil {
		tx.Rollback() //nolint:errcheck // it only read
		return nil, err
	}
	f.plan.Indexed(f.declared, f.building)
	return tx, nil
}

// filtered writes a search with a filter: by words too, or by it alone. In the form
// {found} is the rows that are found, {score} how well, {page} which of them.
func (f *finder) filtered(form string) (string, []any) {
	s, p := f.statement(), f.plan
	found, score, order := `FROM artifact AS a`, "0.0", ""
	if p.Words != nil {
		by := f.score()
		order = "score, "
		score = strings.ReplaceAll(by, "{name}", s.Arg(p.Words.Name()))
		if by == blindScore {
			match := p.Words.Match()
			score = strings.NewReplacer("{title}", s.Arg(inTitle(match)), "{first}", s.Arg(inFirst(match))).Replace(score)
		}
		found = `FROM search_index CROSS JOIN search_document AS d ON d.n = search_index.rowid
			CROSS JOIN artifact AS a ON a.type = d.type AND a.id = d.id`
	}
	where := s.Visible("a.scope") + f.conditions(s)
	if p.Words != nil {
		where = `search_index MATCH ` + s.Arg(p.Words.Match()) + ` AND ` + where
	}
	if query.ReadsContent(where) {
		found += currentVersionSQL
	}
	text := strings.NewReplacer(
		"{found}", found+" WHERE "+where, "{score}", score, "{order}", order, "{size}", s.Arg(p.ReadSize()), "{offset}", s.Arg(p.Offset), "{content}", s.Arg(p.IncludeContent || p.Highlight),
		"{most}", s.Arg(verb.MaxFacetMatches+1), "a.scope IN ("+scopesMark+")", s.Visible("a.scope"),
	).Replace(form)
	return text, s.Args()
}

func (f *finder) statement() *query.Statement {
	s := query.New(query.SQLite, f.caller.VisibleScopes())
	s.Type, s.Indexed, s.Replacing = f.plan.Type, f.indexed, f.store.replacing
	return s
}

// conditions returns which artifacts the search is of, beside those that the caller
// may see.
func (f *finder) conditions(s *query.Statement) string {
	p, text := f.plan, ` AND a.is_latest = 1`
	if s.Type != "" {
		text += ` AND a.type = ` + s.Arg(s.Type)
	} else if len(p.Types) > 0 {
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

// run runs a statement that is kept, or else the text of a form. Without a
// transaction it is on its own.
func (f *finder) run(ctx context.Context, tx *sql.Tx, kept *sql.Stmt, args []any, form string) (*sql.Rows, error) {
	if kept == nil {
		text, args := f.filtered(form)
		return tx.QueryContext(ctx, text, args...)
	}
	if tx != nil {
		kept = tx.StmtContext(ctx, kept) //nolint:sqlclosecheck // the transaction closes it
	}
	return kept.QueryContext(ctx, args...)
}

func (f *finder) hits(ctx context.Context, tx *sql.Tx, out *verb.SearchResponse) error {
	rows, err := f.run(ctx, tx, f.hitsStmt, f.hitsArgs, filteredHits)
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

// count counts all hits, not those of the page alone.
func (f *finder) count(ctx context.Context, tx *sql.Tx, out *verb.SearchResponse) error {
	rows, err := f.run(ctx, tx, f.countStmt, f.countArgs, filteredFacets)
	if err != nil {
		return err
	}
	defer rows.Close()
	count := verb.NewFacetCounter(f.plan)
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
