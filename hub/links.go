package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// links answers the verb of that name.
func (h *Hub) links(ctx context.Context, in verb.LinksRequest) (out verb.LinksResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if err := h.schemas.ensure(ctx, h.db, in.Types...); err != nil {
		return out, err
	}
	if err := h.oneState(ctx, func(tx pgx.Tx) error { return h.linksIn(ctx, tx, c, &in, &out) }); err != nil {
		return verb.LinksResponse{}, h.absent(err, in.Ref.Current(), "/ref")
	}
	return out, nil
}

// linksIn answers links in a transaction, or [pgx.ErrNoRows] when what they are on
// is not there for the caller.
func (h *Hub) linksIn(ctx context.Context, tx pgx.Tx, c *verb.Caller, in *verb.LinksRequest, out *verb.LinksResponse) error {
	plan, err := in.Plan(h.schemas.addressed())
	if err != nil {
		return err
	}
	audience, err := present(ctx, tx, c, in.Ref, &out.AsOf)
	if err != nil {
		return err
	}
	return readLinks(ctx, tx, c, in, &plan, audience, out)
}

// readLinks reads a page. Links of what is for its participants alone are answered
// to nobody.
func readLinks(ctx context.Context, tx pgx.Tx, c *verb.Caller, in *verb.LinksRequest, plan *verb.LinkPlan, audience string, out *verb.LinksResponse) error {
	var links []verb.PlacedLink
	if audience != participants {
		for _, direction := range plan.Directions {
			q := newEndLinks(c, in, direction)
			var err error
			if links, err = q.page(ctx, tx, plan, links); err != nil {
				return fmt.Errorf("read links: %w", err)
			}
			if !plan.Counts() {
				continue
			}
			if out.Counts, err = q.count(ctx, tx, out.Counts); err != nil {
				return fmt.Errorf("count links: %w", err)
			}
		}
	}
	out.Place(in, plan, links)
	return nil
}

// An endLinks reads the links of one end in one direction.
type endLinks struct {
	direction  string
	own, other string // from and to
	cond       string // on the end, and what is asked for of the link
	args       []any
}

func newEndLinks(c *verb.Caller, in *verb.LinksRequest, direction string) *endLinks {
	q := &endLinks{direction: direction, own: "from", other: "to", args: []any{c.VisibleScopes(), in.Ref.Type, in.Ref.ID}}
	if direction == verb.DirectionIn {
		q.own, q.other = q.other, q.own
	}
	q.cond = q.text(`l.{own}_type = $2 AND l.{own}_id = $3`)
	if len(in.Predicates) > 0 {
		q.cond += ` AND l.predicate = ANY (` + q.arg(in.Predicates) + `)`
	}
	if len(in.Types) > 0 {
		q.cond += q.text(` AND l.{other}_type = ANY (`) + q.arg(in.Types) + `)`
	}
	return q
}

func (q *endLinks) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

func (q *endLinks) text(s string) string {
	return strings.NewReplacer("{own}", q.own, "{other}", q.other).Replace(s)
}

const (
	// seenLinks are links that the caller may see, and whose other end, o, too. What
	// hangs on links and signals has no artifact at its other end. OFFSET 0 has each
	// end looked up: a join in order would walk all artifacts before the first.
	seenLinks = `
		FROM link l LEFT JOIN LATERAL (
			SELECT o.audience, o.scope, o.content_hash, o.title, o.state, o.revision, o.is_latest, o.superseded_by
			FROM artifact o WHERE o.type = l.{other}_type AND o.id = l.{other}_id OFFSET 0) o ON true
		WHERE l.scope = ANY ($1) AND (o.audience = 'scope' AND o.scope = ANY ($1) OR l.{other}_type IN ('` + replicate.LinkType + `', '` + replicate.SignalType + `'))`
	linksOfQuery = `
		SELECT l.id, l.from_type || ':' || l.from_id, l.predicate, l.to_ref, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by,
			l.{other}_type, l.{other}_id, o.content_hash, o.title, o.state, o.revision, o.is_latest, o.superseded_by` + seenLinks
	linksOrder = ` ORDER BY l.predicate, l.{other}_type, l.{other}_id, l.id LIMIT `

	// A step for each predicate, whatever number of links it has.
	predicatesOfQuery = `
		WITH RECURSIVE p (predicate) AS (
			(SELECT l.predicate FROM link l WHERE l.scope = ANY ($1) AND {cond} ORDER BY l.predicate LIMIT 1)
			UNION ALL
			SELECT (SELECT l.predicate FROM link l WHERE l.scope = ANY ($1) AND {cond} AND l.predicate > p.predicate ORDER BY l.predicate LIMIT 1)
			FROM p WHERE p.predicate IS NOT NULL
		)
		SELECT p.predicate, c.n
		FROM p CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT` + seenLinks + ` AND {cond} AND l.predicate = p.predicate LIMIT {max}) l) c
		WHERE c.n > 0
		ORDER BY p.predicate`
)

func (q *endLinks) page(ctx context.Context, tx pgx.Tx, plan *verb.LinkPlan, links []verb.PlacedLink) ([]verb.PlacedLink, error) {
	if len(links) > plan.Size {
		return links, nil
	}
	bound, query := len(q.args), q.text(linksOfQuery)+` AND `+q.cond
	if after := plan.AfterIn(q.direction); after.Link != "" {
		query += q.text(` AND (l.predicate, l.{other}_type, l.{other}_id, l.id) > (`) +
			q.arg(after.Predicate) + `, ` + q.arg(after.Type) + `, ` + q.arg(after.ID) + `, ` + q.arg(after.Link) + `)`
	}
	// The limit is our own number, and in the text so that the plan knows it.
	query += q.text(linksOrder) + strconv.Itoa(plan.Size+1-len(links))
	args := q.args
	q.args = q.args[:bound]
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		l, err := scanLinkItem(rows.Scan, q.direction)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, rows.Err()
}

func scanLinkItem(scan func(...any) error, direction string) (l verb.PlacedLink, err error) {
	var refs, evidence string
	var hash []byte
	var title, state, by *string
	var revision *int
	var latest *bool
	if err := scan(&l.LinkPlace.Link, &l.From, &l.LinkItem.Predicate, &l.To, &l.Scope, &refs, &evidence, &l.CreatedAt, &l.CreatedBy,
		&l.LinkPlace.Type, &l.LinkPlace.ID, &hash, &title, &state, &revision, &latest, &by); err != nil {
		return l, err
	}
	if err := json.Unmarshal([]byte(refs), &l.EvidenceRefs); err != nil {
		return l, err
	}
	l.Ref, l.LinkItem.Direction, l.LinkPlace.Direction = replicate.LinkType+":"+l.Link, direction, direction
	l.LinkPlace.Predicate, l.Evidence, l.CreatedAt = l.LinkItem.Predicate, []byte(evidence), l.CreatedAt.UTC()
	if title != nil {
		l.Target = &verb.LinkTarget{
			Ref:  artifact.Ref{Type: l.LinkPlace.Type, ID: l.LinkPlace.ID, Hash: artifact.Hash(hash)},
			Type: l.LinkPlace.Type, Title: *title, State: *state, Revision: *revision, IsLatest: *latest, SupersededBy: *by,
		}
	}
	return l, nil
}

func (q *endLinks) count(ctx context.Context, tx pgx.Tx, counts []verb.LinkCount) ([]verb.LinkCount, error) {
	query := strings.NewReplacer("{cond}", q.cond, "{max}", strconv.Itoa(verb.MaxLinkCount+1)).Replace(q.text(predicatesOfQuery))
	rows, err := tx.Query(ctx, query, q.args...)
	if err != nil {
		return nil, err
	}
	var predicate string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&predicate, &n}, func() error {
		counts = append(counts, verb.Counted(q.direction, predicate, n))
		return nil
	})
	return counts, err
}
