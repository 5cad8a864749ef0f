package hub

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/query"
	"github.com/scidex-ai/substrate/verb"
)

// Weights are those of D, C, B and A. What stands often in a long text counts for
// little more than what stands a few times in a short one. {words} are those of the
// search, {name} the whole of them as a name. Content is asked for by $3.
const (
	searchScore = `(k.rank / (k.rank + 1) / (1 + ln(1 + length(d.words))) + CASE WHEN d.words @@ {name} THEN 100 ELSE 0 END)::float8`
	searchRank  = `
		CROSS JOIN LATERAL (SELECT ts_rank_cd('{0.1, 0.2, 0.4, 1}', d.words, {words}) AS rank) k`
	searchVersion = `
		JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision`
	wordsFrom = `
		FROM search_document d JOIN artifact a ON a.type = d.type AND a.id = d.id`
	wordsWhere = `
		WHERE d.words @@ {words} AND a.is_latest AND` + visible
	wordsQuery = `
		SELECT a.type, a.id, ` + searchScore + ` AS score` + wordsFrom + searchRank + searchVersion + wordsWhere
	structuredFrom = `
		FROM artifact a` + searchVersion + `
		WHERE a.is_latest AND` + visible
	structuredQuery = `
		SELECT a.type, a.id, 0::float8 AS score` + structuredFrom
	hitColumns = `
		SELECT` + artifactColumns + `, CASE WHEN $3 THEN r.content ELSE '' END, (` + headQuery + `), h.score
		FROM hit h JOIN artifact a ON a.type = h.type AND a.id = h.id` + searchVersion + `
		WHERE` + visible + `
		ORDER BY h.score DESC, a.type, a.id`
	countWordsQuery = `
		SELECT a.type, a.state, a.scope, $3::boolean` + wordsFrom + searchVersion + wordsWhere
	countStructuredQuery = `
		SELECT a.type, a.state, a.scope, $3::boolean` + structuredFrom
)

// search answers the verb of that name.
func (h *Hub) search(ctx context.Context, in verb.SearchRequest) (out verb.SearchResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if err := h.schemas.ensure(ctx, h.db, in.Types...); err != nil {
		return out, err
	}
	p, err := in.Plan(h.schemas.types())
	if err != nil {
		return out, err
	}
	// First: what is indexed meanwhile was then not there yet.
	behind, err := h.unindexed(ctx, h.typesOrAll(in.Types))
	if err != nil {
		return out, callerError(fmt.Errorf("search: %w", err))
	}
	if behind != nil {
		out.Degraded = []verb.Degradation{verb.IndexBuilding(behind)}
	}
	plan, err := h.models.Prepare(ctx, p, h.vectors.have(h.config.Embeddings != nil))
	if err != nil {
		return out, err
	}
	out.Degraded = append(out.Degraded, plan.Degraded...)
	if plan.Ranked() {
		return h.ranked(ctx, c, plan, out.Degraded)
	}
	find, args := searchQuery(c, p, wordsQuery, structuredQuery)
	text := `WITH hit AS MATERIALIZED (` + find +
		` ORDER BY score DESC, a.type, a.id LIMIT ` + strconv.Itoa(p.ReadSize()) + ` OFFSET ` + strconv.Itoa(p.Offset) + `)` + hitColumns
	rows, err := h.db.Query(ctx, text, args...)
	if err != nil {
		return out, callerError(fmt.Errorf("search: %w", err))
	}
	defer rows.Close()
	for rows.Next() {
		var hit verb.SearchHit
		if err := scanArtifact(rows, &hit.Artifact, &out.AsOf, &hit.Score); err != nil {
			return out, callerError(fmt.Errorf("search: %w", err))
		}
		out.Hits = append(out.Hits, hit)
	}
	if err := rows.Err(); err != nil {
		return out, callerError(fmt.Errorf("search: %w", err))
	}
	p.Finish(&out)
	for i := range out.Hits {
		h.finish(p, &out.Hits[i])
	}
	if len(in.Facets) > 0 {
		if err := h.facets(ctx, c, p, &out); err != nil {
			return out, callerError(fmt.Errorf("count hits: %w", err))
		}
	}
	if len(out.Hits) == 0 {
		out.AsOf, err = h.Head(ctx)
	}
	return out, err
}

// searchQuery returns one of two queries, by words or structured, with what a request
// asks for beside.
func searchQuery(c *verb.Caller, p *verb.SearchPlan, words, structured string) (string, []any) {
	s, b := searchStatement(c, p)
	if p.Words == nil {
		b.WriteString(structured)
	} else {
		words = strings.ReplaceAll(words, "{words}", s.Arg(p.Words.TSQuery())+"::tsquery")
		if strings.Contains(words, "{name}") {
			words = strings.ReplaceAll(words, "{name}", s.Arg(p.Words.TSKey())+"::tsquery")
		}
		b.WriteString(words)
	}
	conditions(s, b, p)
	return b.String(), s.Args()
}

// searchStatement begins a query of a search.
func searchStatement(c *verb.Caller, p *verb.SearchPlan) (*query.Statement, *strings.Builder) {
	s := query.New(query.Postgres, c.VisibleScopes(), c.Actor.ID, p.IncludeContent || p.Highlight)
	if len(p.Types) == 1 {
		s.Type = p.Types[0]
	}
	return s, new(strings.Builder)
}

// conditions adds which artifacts a search is of.
func conditions(s *query.Statement, b *strings.Builder, p *verb.SearchPlan) {
	if len(p.Types) == 0 {
		b.WriteString(` AND a.audience = 'scope'`) // messages are found when they are asked for
	} else {
		b.WriteString(` AND a.type = ANY (` + s.Arg(p.Types) + `)`)
	}
	if p.Scope != "" {
		b.WriteString(` AND a.scope = ` + s.Arg(p.Scope))
	}
	if p.Where != nil {
		b.WriteString(` AND ` + s.Where(p.Where))
	}
}

// finish adds to a hit what was asked for, and takes out what was not.
func (h *Hub) finish(p *verb.SearchPlan, hit *verb.SearchHit) {
	a := &hit.Artifact
	if p.Highlight && p.Words != nil {
		if schema := h.schemas.get(a.Type); schema != nil {
			hit.Highlights = p.Words.Highlights(analysis.NewRule(schema).Fields(a.Title, a.Content))
		}
	}
	if !p.IncludeContent {
		a.Content = nil
		return
	}
	h.schemas.upgrade(a)
}

// facets counts all hits, not those of the page alone.
func (h *Hub) facets(ctx context.Context, c *verb.Caller, p *verb.SearchPlan, out *verb.SearchResponse) error {
	find, args := searchQuery(c, p, countWordsQuery, countStructuredQuery)
	rows, err := h.db.Query(ctx, find+` LIMIT `+strconv.Itoa(verb.MaxFacetMatches+1), args...)
	if err != nil {
		return err
	}
	count := verb.NewFacetCounter(p)
	var typ, state, scope string
	var unused bool
	if _, err := pgx.ForEachRow(rows, []any{&typ, &state, &scope, &unused}, func() error {
		count.Add(typ, state, scope)
		return nil
	}); err != nil {
		return err
	}
	count.Finish(out)
	return nil
}
