package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/query"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// list answers the verb of that name.
func (h *Hub) list(ctx context.Context, in verb.ListRequest) (out verb.ListResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if !isEdge(in.Type) {
		if err := h.schemas.ensure(ctx, h.db, in.Type); err != nil {
			return out, err
		}
	}
	l, err := in.Listing(h.schemas.get, h.schemas.types)
	if err != nil {
		return out, err
	}
	if in.Plain() && !in.WithLinks() && !in.IncludeSignals {
		out, err = h.listAll(ctx, c, &in, l)
	} else {
		out, err = h.listSome(ctx, c, &in, l)
	}
	if err != nil {
		return verb.ListResponse{}, callerError(err)
	}
	return out, nil
}

// listAll lists newest first, ties by ref.
func (h *Hub) listAll(ctx context.Context, c *verb.Caller, in *verb.ListRequest, l *verb.Listing) (out verb.ListResponse, err error) {
	sql, args := listQuery, []any{c.VisibleScopes(), c.Actor.ID, in.IncludeContent}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	if in.Type == "" {
		sql += ` AND a.audience = 'scope'` // messages are listed when they are asked for
	} else {
		sql += ` AND a.type = ` + arg(in.Type)
	}
	if l.After != nil {
		at := arg(time.UnixMilli(int64(l.After.Values[0].(float64))).UTC())
		sql += ` AND a.created_at <= ` + at + ` AND (a.created_at < ` + at + ` OR (a.type, a.id) > (` + arg(l.After.Type) + `, ` + arg(l.After.ID) + `))`
	}
	// The limit is our own number, and in the text so that the plan knows it.
	sql += ` ORDER BY a.created_at DESC, a.type, a.id LIMIT ` + strconv.Itoa(l.Limit+1)
	rows, err := h.db.Query(ctx, sql, args...)
	if err != nil {
		return out, fmt.Errorf("list artifacts: %w", err)
	}
	p := page{hub: h, in: in, listing: l, out: &out}
	if err := p.read(rows, nil); err != nil {
		return out, err
	}
	if p.end(); len(out.Artifacts) == 0 {
		out.AsOf, err = h.Head(ctx)
	}
	return out, err
}

// A page is one of a list, as it is read.
type page struct {
	hub     *Hub
	in      *verb.ListRequest
	listing *verb.Listing
	out     *verb.ListResponse
	places  []query.Place // of the artifacts, where an order is given
}

// read takes in rows, which have the order's columns behind them.
func (p *page) read(rows pgx.Rows, o *query.Order) error {
	defer rows.Close()
	for rows.Next() {
		var more []any
		values := func() []any { return nil }
		if o != nil {
			more, values = o.Scans()
		}
		a, err := p.scan(rows, more)
		if err != nil {
			return fmt.Errorf("list artifacts: %w", err)
		}
		p.out.Artifacts = append(p.out.Artifacts, a)
		p.places = append(p.places, query.Place{Values: values(), Type: a.Type, ID: a.ID})
	}
	return rows.Err()
}

// scan makes of a row what is answered, and reads more of it.
func (p *page) scan(rows pgx.Rows, more []any) (a artifact.Artifact, err error) {
	switch p.listing.Type {
	case replicate.LinkType:
		a, err = scanLink(rows, more...)
	case replicate.SignalType:
		a, err = scanSignal(rows, more...)
	default:
		err = scanArtifact(rows, &a, &p.out.AsOf, more...)
		p.hub.schemas.upgrade(&a)
	}
	if !p.in.IncludeContent {
		a.Content = nil // links and signals are made of theirs
	}
	return a, err
}

// end cuts off what belongs to the next page.
func (p *page) end() {
	if p.out.Artifacts == nil {
		p.out.Artifacts = []artifact.Artifact{}
	}
	if n := p.listing.Limit; len(p.out.Artifacts) > n {
		p.out.Artifacts = p.out.Artifacts[:n]
		last := p.out.Artifacts[n-1]
		last.CreatedAt = last.CreatedAt.Truncate(time.Millisecond)
		p.out.NextCursor = p.listing.Cursor(&last, p.places[n-1])
	}
}

const (
	// A list with a filter is planned for its values: they say which index finds
	// what it lets pass. How many these are is guessed column by column, and far too
	// many where texts of one pointer are like those of others: no guess makes it
	// look at a table whole that has an index for it.
	beginListQuery  = `BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY`
	planListQuery   = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_seqscan', 'off', true)`
	facetsMadeQuery = `SELECT EXISTS (SELECT FROM facet_build WHERE type = $1 AND declared = $2 AND done)`

	listColumns = `SELECT` + artifactColumns + `, CASE WHEN $3 THEN r.content ELSE '' END, (` + headQuery + `)`
	// listRows are the rows of a page q, with what else is told of them. What may be
	// seen was asked for q.
	listRows = ` q JOIN artifact a ON a.type = q.type AND a.id = q.id
		JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision ORDER BY `
	listLinks      = `SELECT` + linkColumns
	linkRows       = ` q JOIN link l ON l.id = q.id ORDER BY `
	listSignals    = `SELECT` + signalColumns
	signalRows     = ` q JOIN signal s ON s.id = q.id ORDER BY `
	currentVersion = ` JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision`
)

// errFacetsMissing means that the facets of a type are not all made.
var errFacetsMissing = errors.New("facets are not made yet")

// listSome lists what a filter lets pass, or in an order that is asked for.
func (h *Hub) listSome(ctx context.Context, c *verb.Caller, in *verb.ListRequest, l *verb.Listing) (out verb.ListResponse, err error) {
	paths := h.schemas.facetPaths(l.Type)
	declared := func(path string) bool { return slices.Contains(paths, path) }
	list := &lister{hub: h, caller: c, in: in, listing: l, indexed: declared}
	out, err = list.run(ctx)
	building := errors.Is(err, errFacetsMissing)
	if building {
		list.indexed = nil
		out, err = list.run(ctx)
	}
	out.Warnings = l.Unindexed(declared, building)
	return out, err
}

// A lister reads a page in one snapshot.
type lister struct {
	hub     *Hub
	caller  *verb.Caller
	in      *verb.ListRequest
	listing *verb.Listing
	indexed func(path string) bool
}

func (r *lister) run(ctx context.Context) (out verb.ListResponse, err error) {
	conn, err := r.hub.db.Acquire(ctx)
	if err != nil {
		return out, fmt.Errorf("acquire a connection: %w", err)
	}
	defer conn.Release()
	defer rollback(ctx, conn)
	l, p := r.listing, page{hub: r.hub, in: r.in, listing: r.listing, out: &out}
	first, of := 0, r.statement().Segments(l.Sort, l.Filter)
	if l.After != nil && of > 1 {
		first = l.After.Segment(of)
	}
	begun := false
	for part := first; part < of && len(out.Artifacts) <= l.Limit; part++ {
		sql, args, o, err := r.page(part, of, l.Limit+1-len(out.Artifacts), part == first)
		if err != nil {
			return out, err
		}
		b := new(pgx.Batch)
		if !begun {
			begun = true
			r.begin(b, &out)
		}
		b.Queue(sql, args...).Query(func(rows pgx.Rows) error { return p.read(rows, o) })
		if err := conn.SendBatch(ctx, b).Close(); err != nil {
			return verb.ListResponse{}, fmt.Errorf("list artifacts: %w", err)
		}
	}
	p.end()
	return out, r.more(ctx, conn, &out)
}

// begin begins the snapshot, and reads in it what is asked beside the page.
func (r *lister) begin(b *pgx.Batch, out *verb.ListResponse) {
	b.Queue(beginListQuery)
	b.Queue(planListQuery)
	b.Queue(headQuery).QueryRow(func(row pgx.Row) error { return row.Scan(&out.AsOf) })
	if r.statement().UsesFacets(r.listing.Filter, r.listing.Sort) {
		r.hub.queueFacetsMade(b, r.listing.Type)
	}
	if r.in.Count {
		s := r.statement()
		sql := "SELECT count(*) FROM (SELECT 1" + r.from(s.From(), r.where(s)) + " LIMIT " + strconv.Itoa(verb.MaxCount+1) + ") AS k"
		b.Queue(sql, s.Args()...).QueryRow(func(row pgx.Row) error {
			var n int
			err := row.Scan(&n)
			out.Count = verb.CountOf(n)
			return err
		})
	}
}

// queueFacetsMade asks, in a snapshot, whether the facets of a type are made. Where
// they are not, the batch ends with errFacetsMissing.
func (h *Hub) queueFacetsMade(b *pgx.Batch, typ string) {
	b.Queue(facetsMadeQuery, typ, h.schemas.facetKey(typ)).QueryRow(func(row pgx.Row) error {
		var made bool
		if err := row.Scan(&made); err != nil || made {
			return err
		}
		return errFacetsMissing
	})
}

// statement returns one whose first arguments are those of the condition visible, and
// others. Those of links and signals ask for scopes alone.
func (r *lister) statement(more ...any) *query.Statement {
	scopes, typ := r.in.Scopes(r.caller), r.listing.Type
	var s *query.Statement
	switch typ {
	case replicate.LinkType:
		s = query.New(query.Postgres, scopes)
		s.Table = query.TableOf(typ, visibleLink)
	case replicate.SignalType:
		s = query.New(query.Postgres, scopes)
		s.Table = query.TableOf(typ, visibleSignal)
	default:
		s = query.New(query.Postgres, scopes, append([]any{r.caller.Actor.ID}, more...)...)
	}
	s.Type, s.Indexed, s.Replacing = typ, r.indexed, r.hub.schemas.replacing
	return s
}

// where returns the condition of the list, its place aside.
func (r *lister) where(s *query.Statement) string {
	if isEdge(s.Type) { // the table holds the rest
		return " WHERE " + s.Where(r.listing.Filter)
	}
	where := " WHERE a.is_latest AND" + visible
	if r.listing.Type != "" {
		where += " AND a.type = " + s.Arg(r.listing.Type)
	}
	if r.in.Type == "" {
		where += " AND a.audience = 'scope'"
	}
	if r.listing.Filter != nil {
		where += " AND " + s.Where(r.listing.Filter)
	}
	return where
}

// from returns the tables of a condition, the versions among them where it needs
// them.
func (r *lister) from(tables, where string) string {
	if query.ReadsContent(where) {
		return " FROM " + tables + currentVersion + where
	}
	return " FROM " + tables + where
}

// page returns the query of a part of a page.
func (r *lister) page(part, of, limit int, first bool) (string, []any, *query.Order, error) {
	s := r.statement(r.in.IncludeContent)
	o := s.Order(r.listing.Sort, r.listing.Filter, part, of)
	where := r.where(s) + " AND " + o.Where
	if after := r.listing.After; after != nil && first {
		if !o.Fits(*after) {
			return "", nil, nil, r.in.BadCursor()
		}
		where += " AND " + o.After(*after)
	}
	inner := "SELECT a.type, a.id" + o.As()
	tables := " FROM " + o.From
	if query.ReadsContent(inner + where) {
		tables += currentVersion
	}
	inner += tables + where + " ORDER BY " + o.By() + " LIMIT " + strconv.Itoa(limit)
	var columns strings.Builder
	for i := range o.Columns {
		columns.WriteString(", q.c" + strconv.Itoa(i))
	}
	listed, behind := listColumns, listRows
	switch s.Type {
	case replicate.LinkType:
		listed, behind = listLinks, linkRows
	case replicate.SignalType:
		listed, behind = listSignals, signalRows
	}
	return listed + columns.String() + " FROM (" + inner + ")" + behind + o.Again(), s.Args(), o, nil
}
