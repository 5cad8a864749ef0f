package hub

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/embed"
	"github.com/scidex-ai/substrate/rank"
	"github.com/scidex-ai/substrate/verb"
)

// mostCompared is how many vectors the hub compares itself for one search. Where the
// caller may see more, PostgreSQL has to, which needs an extension.
const mostCompared = 20_000

// {model} and {near} are of the search; {version} joins the version where a filter
// asks for it. Content is asked for by $3, which stands in these too.
const (
	wordedQuery = `
		SELECT a.type, a.id, a.state, a.scope, ` + searchScore + ` AS score, $3::boolean` + wordsFrom + searchRank + searchVersion + wordsWhere
	nearFrom = `
		FROM artifact_vector v JOIN artifact a ON a.type = v.type AND a.id = v.id AND a.scope = v.scope{version}
		WHERE v.model = {model} AND a.is_latest AND` + visible
	comparedQuery = `
		SELECT a.type, a.id, a.state, a.scope, v.vector, $3::boolean` + nearFrom
	nearestQuery = `
		SELECT a.type, a.id, a.state, a.scope, round((1 - (v.embedding <=> {near}::real[]::vector))::numeric, 6)::float8 AS score, $3::boolean` + nearFrom
	excludedQuery = `
		AND NOT EXISTS (SELECT FROM search_document d WHERE d.type = a.type AND d.id = a.id AND d.words @@ {excluded}::tsquery)`
	rankedHitsQuery = `
		SELECT` + artifactColumns + `, CASE WHEN $3 THEN r.content ELSE '' END, (` + headQuery + `), h.score
		FROM unnest($4::text[], $5::text[], $6::float8[]) WITH ORDINALITY AS h (type, id, score, n)
		JOIN artifact a ON a.type = h.type AND a.id = h.id` + searchVersion + `
		WHERE a.is_latest AND` + visible + `
		ORDER BY h.n`
)

// ranked runs a search by meaning, or one whose hits a model orders.
func (h *Hub) ranked(ctx context.Context, c *verb.Caller, p *rank.Plan, degraded []verb.Degradation) (out verb.SearchResponse, err error) {
	p.Degraded = degraded
	if out, err = p.Search(ctx, &ranker{h, c, p.SearchPlan}); err != nil {
		return out, callerError(fmt.Errorf("search: %w", err))
	}
	for i := range out.Hits {
		h.finish(p.SearchPlan, &out.Hits[i])
	}
	if len(out.Hits) == 0 {
		out.AsOf, err = h.Head(ctx)
	}
	return out, err
}

// A ranker is a [rank.Store] for one caller's search.
type ranker struct {
	hub    *Hub
	caller *verb.Caller
	plan   *verb.SearchPlan
}

// ByWords implements [rank.Store].
func (r *ranker) ByWords(ctx context.Context, limit int) ([]rank.Candidate, error) {
	find, args := searchQuery(r.caller, r.plan, wordedQuery, "")
	return r.candidates(ctx, find+` ORDER BY score DESC, a.type, a.id LIMIT `+strconv.Itoa(limit), args)
}

func (r *ranker) candidates(ctx context.Context, text string, args []any) (out []rank.Candidate, err error) {
	rows, err := r.hub.db.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	var c rank.Candidate
	var unused bool
	_, err = pgx.ForEachRow(rows, []any{&c.Type, &c.ID, &c.State, &c.Scope, &c.Score, &unused}, func() error {
		out = append(out, c)
		return nil
	})
	return out, err
}

// Near implements [rank.Store].
func (r *ranker) Near(ctx context.Context, p *rank.Plan, limit int) ([]rank.Candidate, bool, error) {
	inDatabase := r.hub.vectors.embedded.Load()
	form := comparedQuery
	if inDatabase {
		form = nearestQuery
	}
	version := ""
	if p.Where != nil {
		version = searchVersion
	}
	s, text := searchStatement(r.caller, r.plan)
	form = strings.NewReplacer("{version}", version, "{model}", s.Arg(p.Model)).Replace(form)
	if inDatabase {
		form = strings.ReplaceAll(form, "{near}", s.Arg(p.Vector.Floats()))
	}
	text.WriteString(form)
	if excluded := p.Words.TSExcluded(); excluded != "" {
		text.WriteString(strings.ReplaceAll(excludedQuery, "{excluded}", s.Arg(excluded)))
	}
	conditions(s, text, r.plan)
	if inDatabase {
		text.WriteString(` ORDER BY score DESC, a.type, a.id LIMIT ` + strconv.Itoa(limit))
		found, err := r.candidates(ctx, text.String(), s.Args())
		return slices.DeleteFunc(found, func(c rank.Candidate) bool { return c.Score <= 0 }), true, err
	}
	text.WriteString(` LIMIT ` + strconv.Itoa(mostCompared+1))
	return r.compare(ctx, text.String(), s.Args(), p.Vector, limit)
}

// compare compares vectors as they come and keeps the nearest.
func (r *ranker) compare(ctx context.Context, text string, args []any, to embed.Vector, limit int) (found []rank.Candidate, ok bool, err error) {
	rows, err := r.hub.db.Query(ctx, text, args...)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var c rank.Candidate
		var v pgtype.DriverBytes
		var unused bool
		if err := rows.Scan(&c.Type, &c.ID, &c.State, &c.Scope, &v, &unused); err != nil {
			return nil, false, err
		}
		if len(v) != len(to) {
			continue
		}
		if c.Score = embed.Cosine(embed.Vector(v), to); c.Score <= 0 {
			continue
		}
		if found = append(found, c); len(found) >= 8*limit {
			rank.Sort(found)
			found = found[:limit]
		}
	}
	rank.Sort(found)
	return found[:min(len(found), limit)], n <= mostCompared, rows.Err()
}

// Hits implements [rank.Store].
func (r *ranker) Hits(ctx context.Context, some []rank.Candidate, out *verb.SearchResponse) error {
	types, ids, scores := make([]string, len(some)), make([]string, len(some)), make([]float64, len(some))
	for i, c := range some {
		types[i], ids[i], scores[i] = c.Type, c.ID, c.Score
	}
	rows, err := r.hub.db.Query(ctx, rankedHitsQuery, r.caller.VisibleScopes(), r.caller.Actor.ID, true, types, ids, scores)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var hit verb.SearchHit
		if err := scanArtifact(rows, &hit.Artifact, &out.AsOf, &hit.Score); err != nil {
			return err
		}
		out.Hits = append(out.Hits, hit)
	}
	return rows.Err()
}

// Text implements [rank.Store].
func (r *ranker) Text(hit *verb.SearchHit) string {
	if schema := r.hub.schemas.get(hit.Artifact.Type); schema != nil {
		return textOf(analysis.NewRule(schema), hit.Artifact.Title, hit.Artifact.Content)
	}
	return hit.Artifact.Title
}
