package node

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/query"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// list answers the verb of that name.
func (s *Store) list(ctx context.Context, in verb.ListRequest) (out verb.ListResponse, err error) {
	c, err := reader(ctx)
	if err != nil {
		return out, err
	}
	l, err := in.Listing(s.typeNamed, s.typeNames)
	if err != nil {
		return out, err
	}
	tx, err := s.readers.BeginTx(ctx, nil)
	if err != nil {
		return out, err
	}
	defer tx.Rollback() //nolint:errcheck // it only read
	p := &page{store: s, tx: tx, in: &in, listing: l, form: formOf(l.Type), scopes: in.Scopes(c)}
	if err := tx.StmtContext(ctx, s.read.applied).QueryRowContext(ctx).Scan(&p.out.AsOf); err != nil { //nolint:sqlclosecheck // the transaction closes it
		return out, err
	}
	if in.Plain() {
		err = p.all(ctx)
	} else {
		err = p.some(ctx)
	}
	if err != nil {
		return out, err
	}
	p.end()
	if err := p.more(ctx); err != nil {
		return verb.ListResponse{}, err
	}
	return p.out, nil
}

// A page is one of a list, as it is read in one transaction.
type page struct {
	store   *Store
	tx      *sql.Tx
	in      *verb.ListRequest
	listing *verb.Listing
	form    listForm
	scopes  []string
	facets
	walks  bool // see query.Statement
	out    verb.ListResponse
	places []query.Place
}

// all reads a page of all artifacts, or of a type's, newest first.
func (p *page) all(ctx context.Context) error {
	at, after := int64(math.MaxInt64), query.Place{} // newer than any
	if p.listing.After != nil {
		after = *p.listing.After
		at = int64(after.Values[0].(float64))
	}
	q := &p.store.read.list
	if p.in.Type != "" {
		q, after.Type = &p.store.read.listOfType, p.in.Type
	}
	stmt, args, err := q.bind(ctx, p.listing.Limit+1, p.in.IncludeContent, at, after.Type, after.ID)
	if err != nil {
		return err
	}
	rows, err := p.tx.StmtContext(ctx, stmt).QueryContext(ctx, args...) //nolint:sqlclosecheck // the transaction closes it
	if err != nil {
		return err
	}
	return p.read(rows, nil)
}

// read takes in rows, which have the order's columns behind them.
func (p *page) read(rows *sql.Rows, o *query.Order) error {
	defer rows.Close()
	upgrades := p.store.upgrades.Load()
	if p.out.Artifacts == nil {
		p.out.Artifacts = make([]artifact.Artifact, 0, p.listing.Limit+1)
	}
	for rows.Next() {
		var more []any
		values := func() []any { return nil }
		if o != nil {
			more, values = o.Scans()
		}
		a, err := p.form.scan(rows.Scan, more...)
		if err != nil {
			return err
		}
		if upgrades.Beside(&a); !p.in.IncludeContent {
			a.Content = nil // links and signals are made of theirs
		}
		p.out.Artifacts = append(p.out.Artifacts, a)
		p.places = append(p.places, query.Place{Values: values(), Type: a.Type, ID: a.ID})
	}
	return rows.Err()
}

// end cuts off what belongs to the next page.
func (p *page) end() {
	if n := p.listing.Limit; len(p.out.Artifacts) > n {
		p.out.Artifacts = p.out.Artifacts[:n]
		p.out.NextCursor = p.listing.Cursor(&p.out.Artifacts[n-1], p.places[n-1])
	}
}

const (
	// listRowsSQL are the rows of a page q, in which the scopes were asked for.
	listRowsSQL = ` AS q CROSS JOIN artifact AS a ON a.type = q.type AND a.id = q.id
		CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision ORDER BY `
	listedColumns = `SELECT a.type, a.id, a.scope, a.revision, a.content_hash, a.schema_version, a.title, a.state,
			a.created_at, a.created_by, a.updated_at, a.updated_by, a.is_latest, a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, CASE WHEN ?2 THEN r.content END`
	listedLinks    = `SELECT l.id, l.from_type || ':' || l.from_id, l.predicate, l.to_ref, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by`
	listedLinkRows = ` AS q CROSS JOIN link AS l ON l.id = q.id ORDER BY `
	listedSignals  = `SELECT g.id, g.type || ':' || g.artifact, g.scope, g.kind, g.dimension, g.voter, g.voter_kind, g.value, g.weight, g.reason, g.metadata,
			g.created_at, g.created_by`
	listedSignalRows  = ` AS q CROSS JOIN signal AS g ON g.id = q.id ORDER BY `
	currentVersionSQL = ` CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision`
)

// A listForm is how rows of a page are read: columns, the tables behind the page, and
// what makes something to answer of a row.
type listForm struct {
	columns, rows string
	scan          func(scan func(...any) error, more ...any) (artifact.Artifact, error)
}

func formOf(typ string) listForm {
	switch typ {
	case replicate.LinkType:
		return listForm{listedLinks, listedLinkRows, scanLink}
	case replicate.SignalType:
		return listForm{listedSignals, listedSignalRows, scanSignal}
	}
	return listForm{listedColumns, listRowsSQL, scanArtifact}
}

// some reads a page of what a filter lets pass, or in an order that is asked for.
func (p *page) some(ctx context.Context) error {
	l := p.listing
	var err error
	if p.facets, err = p.store.facetsOf(ctx, p.tx, l.Type); err != nil {
		return err
	}
	p.out.Warnings = l.Unindexed(p.declared, p.building)
	if p.walks, err = p.walk(ctx); err != nil {
		return err
	}
	if err := p.parts(ctx); err != nil {
		return err
	}
	if p.in.Count {
		return p.count(ctx)
	}
	return nil
}

// parts reads the parts that the page is of.
func (p *page) parts(ctx context.Context) error {
	l := p.listing
	of := p.statement().Segments(l.Sort, l.Filter)
	first := 0
	if l.After != nil && of > 1 {
		first = l.After.Segment(of)
	}
	for part := first; part < of && len(p.out.Artifacts) <= l.Limit; part++ {
		if err := p.part(ctx, part, of, part == first); err != nil {
			return err
		}
	}
	return nil
}

func (p *page) statement() *query.Statement {
	s := query.New(query.SQLite, p.scopes, p.in.IncludeContent)
	s.Type, s.Indexed, s.Replacing, s.Walks = p.listing.Type, p.indexed, p.store.replacing, p.walks
	if query.IsEdge(s.Type) {
		s.Table = query.TableOf(s.Type, s.Visible("scope"))
	}
	return s
}

// where returns the condition of the list, its place aside.
func (p *page) where(s *query.Statement) string {
	if query.IsEdge(s.Type) { // the table holds the rest
		return " WHERE " + s.Where(p.listing.Filter)
	}
	where := " WHERE a.is_latest AND " + s.Visible("a.scope")
	if p.listing.Type != "" {
		where += " AND a.type = " + s.Arg(p.listing.Type)
	}
	if p.listing.Filter != nil {
		where += " AND " + s.Where(p.listing.Filter)
	}
	return where
}

func (p *page) part(ctx context.Context, part, of int, first bool) error {
	text, args, o, err := p.query(part, of, first)
	if err != nil {
		return err
	}
	rows, err := p.tx.QueryContext(ctx, text, args...)
	if err != nil {
		return fmt.Errorf("list artifacts: %w", err)
	}
	return p.read(rows, o)
}

// query returns the query of a part of a page.
func (p *page) query(part, of int, first bool) (string, []any, *query.Order, error) {
	s := p.statement()
	o := s.Order(p.listing.Sort, p.listing.Filter, part, of)
	where := p.where(s) + " AND " + o.Where
	if after := p.listing.After; after != nil && first {
		if !o.Fits(*after) {
			return "", nil, nil, p.in.BadCursor()
		}
		where += " AND " + o.After(*after)
	}
	inner := "SELECT a.type, a.id" + o.As()
	tables := " FROM " + o.From
	if query.ReadsContent(inner + where) {
		tables += currentVersionSQL
	}
	inner += tables + where + " ORDER BY " + o.By() + " LIMIT " + s.Arg(p.listing.Limit+1-len(p.out.Artifacts))
	var columns strings.Builder
	for i := range o.Columns {
		fmt.Fprintf(&columns, ", q.c%d", i)
	}
	return p.form.columns + columns.String() + " FROM (" + inner + ")" + p.form.rows + o.Again(), s.Args(), o, nil
}

const (
	// walkShare is which part of a type at least is to pass a filter for the list to be
	// read in its order and not collected: no more than that many times the work can
	// then be lost on what is all at the far end.
	walkShare = 8
	// walkPages is how many pages a type is at least, for anything to be gained.
	walkPages = walkShare * walkShare
	// countedSQL is of all scopes: it decides how rows are found, and not which.
	countedSQL = `SELECT coalesce(sum(n), 0) FROM digest WHERE kind = 'artifact' AND type = ?1`
)

// walk decides whether to read in the order that is asked for, and to look at the
// facets of each: where what a filter asks for is common, that is less than to find
// all that pass it and sort them.
func (p *page) walk(ctx context.Context) (bool, error) {
	s := p.statement()
	if !s.Drives(p.listing.Filter) || !s.Ordered(p.listing.Sort) {
		return false, nil
	}
	var n int
	if err := p.tx.StmtContext(ctx, p.store.read.counted).QueryRowContext(ctx, s.Type).Scan(&n); err != nil { //nolint:sqlclosecheck // the transaction closes it
		return false, err
	}
	if n < walkPages*p.listing.Limit {
		return false, nil
	}
	most := n/walkShare + 1
	probes := s.Probes(p.listing.Filter, most)
	for _, text := range probes {
		var found int
		if err := p.tx.QueryRowContext(ctx, text, s.Args()...).Scan(&found); err != nil || found < most {
			return false, err
		}
	}
	return len(probes) > 0, nil
}

// count counts all that the filter lets pass, up to just above the greatest count.
func (p *page) count(ctx context.Context) error {
	s := p.statement()
	where := p.where(s)
	tables := " FROM " + s.From()
	if query.ReadsContent(where) {
		tables += currentVersionSQL
	}
	var n int
	err := p.tx.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT 1"+tables+where+" LIMIT "+s.Arg(verb.MaxCount+1)+")", s.Args()...).Scan(&n)
	p.out.Count = verb.CountOf(n)
	return err
}
