package hub

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/verb"
)

// The words of a search are $3, the whole of them as a name $4. Weights are those of
// D, C, B and A. What stands often in a long text counts for little more than what
// stands a few times in a short one.
const (
	searchScore = `(k.rank / (k.rank + 1) / (1 + ln(1 + length(d.words))) + CASE WHEN d.words @@ $4::text::tsquery THEN 100 ELSE 0 END)::float8`
	searchRank  = `
		CROSS JOIN LATERAL (SELECT ts_rank_cd('{0.1, 0.2, 0.4, 1}', d.words, $3::text::tsquery) AS rank) k`
	searchWhere = `
		WHERE d.words @@ $3::text::tsquery AND a.is_latest AND` + visible
	searchFrom = `
		FROM search_document d JOIN artifact a ON a.type = d.type AND a.id = d.id`
	hitsQuery = `
		SELECT a.type, a.id, ` + searchScore + ` AS score` + searchFrom + searchRank + searchWhere
	hitColumns = `
		SELECT` + artifactColumns + `, CASE WHEN $5 THEN r.content ELSE '' END, (` + headQuery + `), h.score
		FROM hit h JOIN artifact a ON a.type = h.type AND a.id = h.id
		JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
		WHERE` + visible + `
		ORDER BY h.score DESC, a.type, a.id`
	facetQuery = `
		SELECT a.type, a.state, a.scope` + searchFrom + searchWhere
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
	args := []any{c.VisibleScopes(), c.Actor.ID, p.Words.TSQuery(), p.Words.TSKey(), in.IncludeContent || in.Highlight}
	conditions, args := searchConditions(p, args)
	query := `WITH hit AS MATERIALIZED (` + hitsQuery + conditions +
		` ORDER BY score DESC, a.type, a.id LIMIT ` + strconv.Itoa(p.ReadSize()) + ` OFFSET ` + strconv.Itoa(p.Offset) + `)` + hitColumns
	rows, err := h.db.Query(ctx, query, args...)
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

// searchConditions adds what a request asks for beside words.
func searchConditions(p *verb.SearchPlan, args []any) (string, []any) {
	var b strings.Builder
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	if len(p.Types) == 0 {
		b.WriteString(` AND a.audience = 'scope'`) // messages are found when they are asked for
	} else {
		b.WriteString(` AND a.type = ANY (` + arg(p.Types) + `)`)
	}
	if p.Scope != "" {
		b.WriteString(` AND a.scope = ` + arg(p.Scope))
	}
	return b.String(), args
}

// finish adds to a hit what was asked for, and takes out what was not.
func (h *Hub) finish(p *verb.SearchPlan, hit *verb.SearchHit) {
	a := &hit.Artifact
	if p.Highlight {
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
	conditions, args := searchConditions(p, []any{c.VisibleScopes(), c.Actor.ID, p.Words.TSQuery()})
	rows, err := h.db.Query(ctx, facetQuery+conditions+` LIMIT `+strconv.Itoa(verb.MaxFacetMatches+1), args...)
	if err != nil {
		return err
	}
	count := verb.NewFacetCounter(p)
	var typ, state, scope string
	if _, err := pgx.ForEachRow(rows, []any{&typ, &state, &scope}, func() error {
		count.Add(typ, state, scope)
		return nil
	}); err != nil {
		return err
	}
	count.Finish(out)
	return nil
}
