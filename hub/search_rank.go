package hub

import (
	"context"
	"fmt"
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

// {model} and {near}, for PostgreSQL to compare, are of the search; {version} joins the version where a filter
// asks for it. Content is asked for by $3, which stands in these too.
const (
	wordedQuery = `
		SELECT a.type, a.id, a.state, a.scope, ` + searchScore + ` AS score, $3::boolean` + wordsFrom + searchRank + searchVersion + wordsWhere
	nearFrom = `
		FROM artifact_vector v JOIN artifact a ON a.type = v.type AND a.id = v.id AND a.scope = v.scope{version}
		WHERE v.model = {model} AND a.is_latest AND` + visible
	comparedQuery = `
		SELECT a.type, a.id, a.state, a.scope, v.vector, $3::boolean` + nearFrom
	nearestOrder  = ` ORDER BY v.embedding <=> {near}::real[]::vector, a.type, a.id LIMIT `
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
func (r *searcher) ranked(ctx context.Context, p *rank.Plan, degraded []verb.Degradation) (out verb.SearchResponse, err error) {
	head, err := r.hub.Head(ctx) // before it, for an answer of nothing
	if err != nil {
		return out, callerError(fmt.Errorf("search: %w", err))
	}
	p.Degraded = degraded
	if out, err = p.Search(ctx, &ranker{r}); err != nil {
		return out, callerError(fmt.Errorf("search: %w", err))
	}
	for i := range out.Hits {
		r.hub.finish(p.SearchPlan, &out.Hits[i])
	}
	if len(out.Hits) == 0 {
		out.AsOf = head
	}
	return out, nil
}

// A ranker is a [rank.Store] for one caller's search.
type ranker struct{ *searcher }

// ByWords implements [rank.Store].
func (r *ranker) ByWords(ctx context.Context, limit int) ([]rank.Candidate, error) {
	var out []rank.Candidate
	var c rank.Candidate
	var unused bool
	err := r.read(ctx, func() (string, []any) {
		find, args := r.query(wordedQuery, "")
		return find + ` ORDER BY score DESC, a.type, a.id LIMIT ` + strconv.Itoa(limit), args
	}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&c.Type, &c.ID, &c.State, &c.Scope, &c.Score, &unused}, func() error {
			out = append(out, c)
			return nil
		})
		return err
	})
	return out, err
}

// Near implements [rank.Store].
func (r *ranker) Near(ctx context.Context, p *rank.Plan, limit int) ([]rank.Candidate, bool, error) {
	near := rank.Near{To: p.Vector, Limit: limit}
	n, most := 0, mostCompared
	embedded := r.hub.vectors.embedded.Load()
	if embedded {
		most = limit + rank.Spare // numbers of its own are not exact
	}
	var c rank.Candidate
	var v pgtype.DriverBytes
	var unused bool
	err := r.read(ctx, func() (string, []any) { return r.near(p, embedded, most) }, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&c.Type, &c.ID, &c.State, &c.Scope, &v, &unused}, func() error {
			near.Add(c, embed.Vector(v))
			n++
			return nil
		})
		return err
	})
	return near.Found(), n <= most, err
}

// near returns the query of vectors to compare.
func (r *ranker) near(p *rank.Plan, embedded bool, most int) (string, []any) {
	version := ""
	if p.Where != nil {
		version = searchVersion
	}
	s, text := r.statement()
	text.WriteString(strings.NewReplacer("{version}", version, "{model}", s.Arg(p.Model)).Replace(comparedQuery))
	if excluded := p.Words.TSExcluded(); excluded != "" {
		text.WriteString(strings.ReplaceAll(excludedQuery, "{excluded}", s.Arg(excluded)))
	}
	r.conditions(s, text)
	if embedded {
		text.WriteString(strings.ReplaceAll(nearestOrder, "{near}", s.Arg(p.Vector.Floats())) + strconv.Itoa(most))
	} else {
		text.WriteString(` LIMIT ` + strconv.Itoa(most+1))
	}
	return text.String(), s.Args()
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
func (r *ranker) Text(hit *verb.SearchHit) (string, bool) {
	schema := r.hub.schemas.get(hit.Artifact.Type)
	if schema == nil || schema.Visibility == participants {
		return "", false
	}
	return textOf(analysis.NewRule(schema), hit.Artifact.Title, hit.Artifact.Content), true
}
