package node

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
	"sync"

	"github.com/scidex-ai/substrate/verb"
)

// scopesMark stands in a query for the list of scopes that the caller may see.
const scopesMark = "{scopes}"

// A scopedQuery is a query with a condition on the caller's scopes. SQLite has
// no array parameters, and json_each would cost more than the row that a query
// is for: so there is a statement for each length of the list, made when first
// needed. Lengths are powers of two, so there are few.
type scopedQuery struct {
	text  string
	pool  *sql.DB
	stmts sync.Map // from the length of the list, an int, to a *sql.Stmt
}

// bind returns the statement for the caller in ctx and its arguments: those
// given, and then the scopes. A caller who may not read is refused.
func (q *scopedQuery) bind(ctx context.Context, args ...any) (*sql.Stmt, []any, error) {
	c, err := reader(ctx)
	if err != nil {
		return nil, nil, err
	}
	scopes := c.VisibleScopes()
	n := 0 // no scopes: a condition that is never met
	if len(scopes) > 0 {
		n = 1 << bits.Len(uint(len(scopes)-1))
	}
	stmt, err := q.stmt(ctx, n, len(args))
	if err != nil {
		return nil, nil, err
	}
	for i := range n {
		args = append(args, scopes[min(i, len(scopes)-1)])
	}
	return stmt, args, nil
}

// row runs the query for one row, in a transaction or without.
func (q *scopedQuery) row(ctx context.Context, tx *sql.Tx, args ...any) (*sql.Row, error) {
	stmt, args, err := q.bind(ctx, args...)
	if err != nil {
		return nil, err
	}
	if tx != nil {
		stmt = tx.StmtContext(ctx, stmt) //nolint:sqlclosecheck // the transaction closes it
	}
	return stmt.QueryRowContext(ctx, args...), nil
}

// rows runs the query in a transaction or without.
func (q *scopedQuery) rows(ctx context.Context, tx *sql.Tx, args ...any) (*sql.Rows, error) {
	stmt, args, err := q.bind(ctx, args...)
	if err != nil {
		return nil, err
	}
	if tx != nil {
		stmt = tx.StmtContext(ctx, stmt) //nolint:sqlclosecheck // the transaction closes it
	}
	return stmt.QueryContext(ctx, args...)
}

func (q *scopedQuery) stmt(ctx context.Context, n, before int) (*sql.Stmt, error) {
	if known, ok := q.stmts.Load(n); ok {
		return known.(*sql.Stmt), nil
	}
	var list strings.Builder
	for i := range n {
		if i > 0 {
			list.WriteByte(',')
		}
		fmt.Fprintf(&list, "?%d", before+1+i)
	}
	stmt, err := q.pool.PrepareContext(ctx, strings.ReplaceAll(q.text, scopesMark, list.String()))
	if err != nil {
		return nil, err
	}
	known, other := q.stmts.LoadOrStore(n, stmt)
	if other { // another request was faster
		stmt.Close() //nolint:sqlclosecheck // the one that is used stays open
	}
	return known.(*sql.Stmt), nil
}

// reader returns the caller in ctx, who must have the permission to read.
func reader(ctx context.Context) (*verb.Caller, error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return nil, err
	}
	return c, c.NeedSomewhere("reading", verb.Viewer)
}

// visible returns the scopes that the caller in ctx may see as a JSON array, for
// json_each in a query where some microseconds do not count.
func visible(ctx context.Context) (string, error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(c.VisibleScopes())
	return string(raw), err
}
