package node

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	// The first links, ?3 at most, of each artifact k of a page ?1, in one direction and
	// of the predicates ?2. The ids of an artifact's are found in their order.
	listedLinksSQL = `SELECT k.key, l.id, l.from_type || ':' || l.from_id, l.predicate, l.to_ref, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by,
			l.{other}_type, l.{other}_id, t.content_hash, t.title, t.state, t.revision, t.is_latest, t.superseded_by
		FROM json_each(?1) AS k CROSS JOIN link AS l ON l.id IN (
			SELECT l.id ` + seenOfSQL + ` WHERE l.{own}_type = json_extract(k.value, '$[0]') AND l.{own}_id = json_extract(k.value, '$[1]') AND l.scope IN ({scopes})
				AND (?2 = '[]' OR l.predicate IN (SELECT value FROM json_each(?2))) AND ` + seenEndSQL + `
			ORDER BY l.predicate, l.{other}_type, l.{other}_id, l.id LIMIT ?3)
		LEFT JOIN artifact AS t ON t.type = l.{other}_type AND t.id = l.{other}_id
		ORDER BY k.key, l.predicate, l.{other}_type, l.{other}_id, l.id`

	// Signals are in the scope of what they are on.
	listedSignalsSQL = `SELECT k.key, g.kind, g.dimension, g.n, g.voters, g.sum, g.sum_sq, s.voter, s.value, s.metadata, s.created_at
		FROM json_each(?1) AS k
		CROSS JOIN signal_aggregate AS g ON g.type = json_extract(k.value, '$[0]') AND g.artifact = json_extract(k.value, '$[1]')
		LEFT JOIN signal AS s ON s.type = g.type AND s.artifact = g.artifact AND s.kind = g.kind AND s.dimension = g.dimension AND s.scope IN ({scopes})
		ORDER BY k.key, g.kind, g.dimension, s.id`
)

// more reads in the transaction of a page what is asked for beside its artifacts, by
// one query each.
func (p *page) more(ctx context.Context) error {
	if !p.in.WithLinks() && !p.in.IncludeSignals {
		return nil
	}
	refs := make([][2]string, len(p.out.Artifacts))
	for i := range p.out.Artifacts {
		refs[i] = [2]string{p.out.Artifacts[i].Type, p.out.Artifacts[i].ID}
	}
	raw, err := json.Marshal(refs)
	if err != nil {
		return err
	}
	if p.in.WithLinks() {
		if err := p.links(ctx, string(raw)); err != nil {
			return err
		}
	}
	if p.in.IncludeSignals {
		return p.signals(ctx, string(raw))
	}
	return nil
}

func (p *page) links(ctx context.Context, refs string) error {
	predicates, err := jsonArrays(p.in.LinkPredicates)
	if err != nil {
		return err
	}
	p.out.PlaceLinks()
	each := p.in.LinksEach()
	for _, q := range []*endQueries{&p.store.read.out, &p.store.read.in} {
		rows, err := q.listed.rows(ctx, p.tx, refs, predicates[0], each+1)
		if err != nil {
			return err
		}
		if err := addLinks(rows, q.direction, each, &p.out); err != nil {
			return err
		}
	}
	return nil
}

func addLinks(rows *sql.Rows, direction string, each int, out *verb.ListResponse) error {
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

func (p *page) signals(ctx context.Context, refs string) error {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return err
	}
	in := &verb.SignalsRequest{At: &c.Now}
	rows, err := p.store.read.listedSignals.rows(ctx, p.tx, refs)
	if err != nil {
		return err
	}
	defer rows.Close()
	groups := make(map[int][]artifact.SignalGroup)
	for rows.Next() {
		var of int
		var r signalRow
		if err := rows.Scan(append([]any{&of}, r.into()...)...); err != nil {
			return err
		}
		schema := p.store.typeNamed(p.out.Artifacts[of].Type)
		if schema == nil {
			continue
		}
		if groups[of], err = r.addTo(groups[of], schema, c.Now); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	duels := make(map[string]artifact.Duels)
	for i := range p.out.Artifacts {
		typ := p.out.Artifacts[i].Type
		if s := p.store.typeNamed(typ); s != nil && duels[typ] == nil && in.Duels(s) {
			if duels[typ], err = p.store.duels(ctx, p.tx, typ); err != nil {
				return err
			}
		}
	}
	p.out.PlaceSignals(p.store.typeNamed, groups, duels, in)
	return nil
}
