package hub

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	// The first links of each artifact k of a page, in one direction. Links of what is
	// for its participants alone are answered to nobody.
	listedLinksQuery = `
		SELECT k.n - 1, l.*
		FROM unnest($2::text[], $3::text[]) WITH ORDINALITY k (type, id, n)
		CROSS JOIN LATERAL (` + linksOfQuery + `
			AND l.{own}_type = k.type AND l.{own}_id = k.id AND (cardinality($4::text[]) = 0 OR l.predicate = ANY ($4))
			AND NOT EXISTS (SELECT FROM artifact e WHERE e.type = k.type AND e.id = k.id AND e.scope = ANY ($1) AND e.audience = 'participants')` + linksOrder + `{limit}) l
		ORDER BY k.n, l.predicate, l.{other}_type, l.{other}_id, l.id`

	// Signals are in the scope of what they are on.
	listedSignalsQuery = `
		SELECT k.n - 1, g.kind, g.dimension, g.n, g.voters, g.sum::text, g.sum_sq::text, s.voter, s.value::text, s.metadata, s.created_at
		FROM unnest($2::text[], $3::text[]) WITH ORDINALITY k (type, id, n)
		JOIN signal_aggregate g ON g.type = k.type AND g.artifact = k.id
		LEFT JOIN signal s ON s.type = g.type AND s.artifact = g.artifact AND s.kind = g.kind AND s.dimension = g.dimension AND s.scope = ANY ($1)
		ORDER BY k.n, g.kind, g.dimension, s.id`
)

// more reads in the snapshot of a page what is asked for beside its artifacts, by one
// query each.
func (r *lister) more(ctx context.Context, conn *pgxpool.Conn, out *verb.ListResponse) error {
	types, ids := make([]string, len(out.Artifacts)), make([]string, len(out.Artifacts))
	for i := range out.Artifacts {
		types[i], ids[i] = out.Artifacts[i].Type, out.Artifacts[i].ID
	}
	if r.in.WithLinks() {
		if err := r.links(ctx, conn, types, ids, out); err != nil {
			return fmt.Errorf("links of a list: %w", err)
		}
	}
	if r.in.IncludeSignals {
		if err := r.signals(ctx, conn, types, ids, out); err != nil {
			return fmt.Errorf("signals of a list: %w", err)
		}
	}
	return nil
}

func (r *lister) links(ctx context.Context, db querier, types, ids []string, out *verb.ListResponse) error {
	out.PlaceLinks()
	each := r.in.LinksEach()
	for _, direction := range []string{verb.DirectionOut, verb.DirectionIn} {
		text := listedLinkText(direction, each+1)
		rows, err := db.Query(ctx, text, r.caller.VisibleScopes(), types, ids, append([]string{}, r.in.LinkPredicates...))
		if err != nil {
			return err
		}
		if err := addLinks(rows, direction, each, out); err != nil {
			return err
		}
	}
	return nil
}

// listedLinkText returns the query of a direction, of at most limit links of each.
func listedLinkText(direction string, limit int) string {
	q := endLinks{own: "from", other: "to"}
	if direction == verb.DirectionIn {
		q.own, q.other = q.other, q.own
	}
	return strings.ReplaceAll(q.text(listedLinksQuery), "{limit}", strconv.Itoa(limit))
}

func addLinks(rows pgx.Rows, direction string, each int, out *verb.ListResponse) error {
	defer rows.Close()
	for rows.Next() {
		var of int
		l, err := scanLinkItem(func(into ...any) error { return rows.Scan(append([]any{&of}, into...)...) }, direction)
		if err != nil {
			return err
		}
		out.AddLink(of, l.LinkItem, each)
	}
	return rows.Err()
}

func (r *lister) signals(ctx context.Context, db querier, types, ids []string, out *verb.ListResponse) error {
	in := &verb.SignalsRequest{At: &r.caller.Now}
	rows, err := db.Query(ctx, listedSignalsQuery, r.caller.VisibleScopes(), types, ids)
	if err != nil {
		return err
	}
	groups := make(map[int][]artifact.SignalGroup)
	var of int
	var kind, dimension, sum, sumSq string
	var n, voters int64
	var voter, value, metadata *string
	var at *time.Time
	if _, err := pgx.ForEachRow(rows, []any{&of, &kind, &dimension, &n, &voters, &sum, &sumSq, &voter, &value, &metadata, &at}, func() (err error) {
		schema := r.hub.schemas.get(types[of])
		if groups[of], err = grouped(groups[of], kind, dimension, n, voters, sum, sumSq); err != nil || voter == nil || schema == nil {
			return err
		}
		return addSignal(schema, groups[of], *voter, *value, *metadata, *at, *in.At)
	}); err != nil {
		return err
	}
	duels := make(map[string]artifact.Duels)
	for _, typ := range types {
		if s := r.hub.schemas.get(typ); s != nil && duels[typ] == nil && in.Duels(s) {
			if duels[typ], err = readDuels(ctx, db, r.caller, typ); err != nil {
				return err
			}
		}
	}
	out.PlaceSignals(r.hub.schemas.get, groups, duels, in)
	return nil
}
