package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	p, err := in.Plan(h.schemas.get, h.schemas.types)
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
	r := h.searcher(c, p)
	if plan.Ranked() {
		return r.ranked(ctx, plan, out.Degraded)
	}
	if err := r.hits(ctx, &out); err != nil {
		return out, callerError(fmt.Errorf("search: %w", err))
	}
	p.Finish(&out)
	for i := range out.Hits {
		h.finish(p, &out.Hits[i])
	}
	if len(in.Facets) > 0 {
		if err := r.facets(ctx, &out); err != nil {
			return out, callerError(fmt.Errorf("count hits: %w", err))
		}
	}
	return out, nil
}

// hits reads the page. The rows of hits tell how far the log had come; of none it is
// told before they are looked for once more.
func (r *searcher) hits(ctx context.Context, out *verb.SearchResponse) (err error) {
	for looked := false; len(out.Hits) == 0; looked = true {
		if looked {
			if out.AsOf, err = r.hub.Head(ctx); err != nil {
				return err
			}
		}
		if err := r.read(ctx, r.page, func(rows pgx.Rows) error {
			defer rows.Close()
			for rows.Next() {
				var hit verb.SearchHit
				if err := scanArtifact(rows, &hit.Artifact, &out.AsOf, &hit.Score); err != nil {
					return err
				}
				out.Hits = append(out.Hits, hit)
			}
			return rows.Err()
		}); err != nil || looked {
			return err
		}
	}
	return nil
}

// A searcher reads what one caller's search finds.
type searcher struct {
	hub      *Hub
	caller   *verb.Caller
	plan     *verb.SearchPlan
	declared func(path string) bool
	indexed  func(path string) bool // those of which facets are kept; nil: none
}

func (h *Hub) searcher(c *verb.Caller, p *verb.SearchPlan) *searcher {
	paths := h.schemas.facetPaths(p.Type)
	declared := func(path string) bool { return slices.Contains(paths, path) }
	p.Indexed(declared, false)
	return &searcher{h, c, p, declared, declared}
}

// read runs a query and hands over its rows. One that counts on the index of facets
// runs in a snapshot in which they are made, and is planned as lists are; where they
// are not, contents are asked.
func (r *searcher) read(ctx context.Context, query func() (string, []any), take func(pgx.Rows) error) error {
	if s, _ := r.statement(); s.UsesFacets(r.plan.Where, nil) {
		err := r.readIndexed(ctx, query, take)
		if !errors.Is(err, errFacetsMissing) {
			return err
		}
		r.indexed = nil
		r.plan.Indexed(r.declared, true)
	}
	text, args := query()
	rows, err := r.hub.db.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	return take(rows)
}

func (r *searcher) readIndexed(ctx context.Context, query func() (string, []any), take func(pgx.Rows) error) error {
	conn, err := r.hub.db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire a connection: %w", err)
	}
	defer conn.Release()
	defer rollback(ctx, conn)
	b := new(pgx.Batch)
	b.Queue(beginListQuery)
	b.Queue(planListQuery)
	r.hub.queueFacetsMade(b, r.plan.Type)
	text, args := query()
	b.Queue(text, args...).Query(take)
	return conn.SendBatch(ctx, b).Close()
}

// page returns the query of the hits of a page.
func (r *searcher) page() (string, []any) {
	find, args := r.query(wordsQuery, structuredQuery)
	return `WITH hit AS MATERIALIZED (` + find + ` ORDER BY score DESC, a.type, a.id LIMIT ` + strconv.Itoa(r.plan.ReadSize()) + ` OFFSET ` + strconv.Itoa(r.plan.Offset) + `)` + hitColumns, args
}

// query returns one of two queries, by words or structured, with what the request
// asks for beside.
func (r *searcher) query(words, structured string) (string, []any) {
	s, b := r.statement()
	if p := r.plan; p.Words == nil {
		b.WriteString(structured)
	} else {
		words = strings.ReplaceAll(words, "{words}", s.Arg(p.Words.TSQuery())+"::tsquery")
		if strings.Contains(words, "{name}") {
			words = strings.ReplaceAll(words, "{name}", s.Arg(p.Words.TSKey())+"::tsquery")
		}
		b.WriteString(words)
	}
	r.conditions(s, b)
	return b.String(), s.Args()
}

// statement begins a query of the search.
func (r *searcher) statement() (*query.Statement, *strings.Builder) {
	s := query.New(query.Postgres, r.caller.VisibleScopes(), r.caller.Actor.ID, r.plan.IncludeContent || r.plan.Highlight)
	s.Type, s.Indexed, s.Replacing = r.plan.Type, r.indexed, r.hub.schemas.replacing
	return s, new(strings.Builder)
}

// conditions adds which artifacts the search is of.
func (r *searcher) conditions(s *query.Statement, b *strings.Builder) {
	p := r.plan
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
func (r *searcher) facets(ctx context.Context, out *verb.SearchResponse) error {
	count := verb.NewFacetCounter(r.plan)
	var typ, state, scope string
	var unused bool
	if err := r.read(ctx, func() (string, []any) {
		find, args := r.query(countWordsQuery, countStructuredQuery)
		return find + ` LIMIT ` + strconv.Itoa(verb.MaxFacetMatches+1), args
	}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&typ, &state, &scope, &unused}, func() error {
			count.Add(typ, state, scope)
			return nil
		})
		return err
	}); err != nil {
		return err
	}
	count.Finish(out)
	return nil
}
