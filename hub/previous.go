package hub

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// previous tells of each scope which public row was its last. It finds out about
// a scope when that is first met.
type previous struct {
	at   artifact.Seq // up to where last is right
	last map[string]artifact.Seq
}

// meet makes all scopes of rows, which follow at, known.
func (p *previous) meet(ctx context.Context, db querier, rows []logRow) error {
	var unknown []string
	for i := range rows {
		scope := rows[i].Scope
		if _, ok := p.last[scope]; !ok && rows[i].class == replicate.Public && !slices.Contains(unknown, scope) {
			unknown = append(unknown, scope)
		}
	}
	if unknown == nil {
		return nil
	}
	found, err := lastOfScopes(ctx, db, unknown, p.at)
	if err != nil {
		return err
	}
	if p.last == nil {
		p.last = make(map[string]artifact.Seq)
	}
	maps.Copy(p.last, found)
	return nil
}

// number sets the predecessor of each public row. What it leaves to be kept takes
// effect with [previous.keep] alone: rows may turn out to be no good.
func (p *previous) number(rows []logRow) (latest map[string]artifact.Seq) {
	latest = make(map[string]artifact.Seq, 1)
	for i := range rows {
		r := &rows[i]
		if r.class != replicate.Public {
			continue
		}
		seq, ok := latest[r.Scope]
		if !ok {
			seq = p.last[r.Scope]
		}
		r.Prev, latest[r.Scope] = seq, r.Seq
	}
	return latest
}

func (p *previous) keep(latest map[string]artifact.Seq, at artifact.Seq) {
	if p.last == nil {
		p.last = make(map[string]artifact.Seq)
	}
	maps.Copy(p.last, latest)
	p.at = at
}

// lastOfScopes returns the last public row of each scope at or before a seq; 0
// where there is none. The row may have been trimmed.
func lastOfScopes(ctx context.Context, db querier, scopes []string, at artifact.Seq) (map[string]artifact.Seq, error) {
	const query = `
		SELECT s.scope, greatest(
			(SELECT c.seq FROM feed.change c WHERE c.scope = s.scope AND c.class = 'public' AND c.seq <= $2 ORDER BY c.seq DESC LIMIT 1),
			(SELECT l.seq FROM feed.scope_last l WHERE l.scope = s.scope AND l.seq <= $2), 0)
		FROM unnest($1::text[]) AS s (scope)`
	rows, err := db.Query(ctx, query, scopes, int64(at))
	if err != nil {
		return nil, fmt.Errorf("read the last row of each scope up to %d: %w", at, err)
	}
	last := make(map[string]artifact.Seq, len(scopes))
	var scope string
	var seq artifact.Seq
	if _, err := pgx.ForEachRow(rows, []any{&scope, &seq}, func() error {
		last[scope] = seq
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the last row of each scope up to %d: %w", at, err)
	}
	return last, nil
}

// noteScopesLast keeps which row was the last of each scope before a seq. Whoever
// trims the log calls it first, in a transaction that is committed before rows
// are dropped: a reader that misses both would take the first row that is left
// for the first there ever was, and followers would refuse it.
func noteScopesLast(ctx context.Context, db querier, before artifact.Seq) error {
	const query = `
		INSERT INTO feed.scope_last (scope, seq)
		SELECT scope, max(seq) FROM feed.change WHERE class = 'public' AND seq < $1 GROUP BY scope
		ON CONFLICT (scope) DO UPDATE SET seq = greatest(scope_last.seq, excluded.seq)`
	if _, err := db.Exec(ctx, query, int64(before)); err != nil {
		return fmt.Errorf("note the last row of each scope before %d: %w", before, err)
	}
	return nil
}
