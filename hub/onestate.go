package hub

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// oneState runs reads that see the same commits. A read that is one statement needs
// none.
func (h *Hub) oneState(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, h.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, f)
}

const (
	presentArtifactQuery = `
		SELECT a.audience, (` + headQuery + `)
		FROM artifact a
		WHERE a.type = $3 AND a.id = $4 AND` + visible
	presentLinkQuery = `
		SELECT '` + everyone + `', (` + headQuery + `)
		FROM link l
		WHERE l.id = $2 AND` + visibleLink
	presentSignalQuery = `
		SELECT '` + everyone + `', (` + headQuery + `)
		FROM signal s
		WHERE s.id = $2 AND` + visibleSignal
)

// present returns the audience of what a ref names, and the log's head, or
// [pgx.ErrNoRows] when it is not there for the caller.
func present(ctx context.Context, tx pgx.Tx, c *verb.Caller, ref artifact.Ref, asOf *artifact.Seq) (audience string, err error) {
	query, args := presentArtifactQuery, []any{c.VisibleScopes(), c.Actor.ID, ref.Type, ref.ID}
	switch ref.Type {
	case replicate.LinkType:
		query, args = presentLinkQuery, []any{c.VisibleScopes(), ref.ID}
	case replicate.SignalType:
		query, args = presentSignalQuery, []any{c.VisibleScopes(), ref.ID}
	}
	err = tx.QueryRow(ctx, query, args...).Scan(&audience, asOf)
	return audience, err
}

// absent turns an error of a read of a ref into what the caller is told.
func (h *Hub) absent(err error, ref artifact.Ref, at string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return h.notFound(ref, at)
	}
	return callerError(err)
}
