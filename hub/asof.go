package hub

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	logEndsQuery  = `SELECT coalesce((SELECT e.seq FROM event e ORDER BY e.seq LIMIT 1), 0), (` + headQuery + `)`
	asOfHeadQuery = `
		SELECT a.revision, a.is_latest
		FROM artifact a
		WHERE a.type = $3 AND a.id = $4 AND` + visible

	// The last event up to a seq and the first after it that say of a version, and
	// whether one after it says that the artifact is replaced.
	eventsOfThing = `
		FROM event e
		WHERE e.scope = ANY ($1) AND split_part(e.ref COLLATE "C", '@', 1) = $2 AND` + changesThing
	asOfEventsQuery = `
		SELECT coalesce(b.type, ''), coalesce(b.payload, ''), coalesce(n.type, ''), coalesce(n.payload, ''),
			EXISTS (SELECT` + eventsOfThing + ` AND e.seq > $3 AND e.type = $5)
		FROM (VALUES (1)) AS one
		LEFT JOIN LATERAL (SELECT e.type, e.payload` + eventsOfThing + ` AND e.seq <= $3 AND e.type = ANY ($4) ORDER BY e.seq DESC LIMIT 1) b ON true
		LEFT JOIN LATERAL (SELECT e.type, e.payload` + eventsOfThing + ` AND e.seq > $3 AND e.type = ANY ($4) ORDER BY e.seq LIMIT 1) n ON true`

	// Of two revisions with one hash, a pinned ref means the later one that was
	// there then.
	getAsOfQuery = `
		SELECT` + getColumns + `
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id
		WHERE a.type = $3 AND a.id = $4 AND CASE WHEN $7 THEN r.content_hash = $8 AND r.revision <= $6 ELSE r.revision = $6 END AND` + visibleVersion + `
		ORDER BY r.revision DESC LIMIT 1`
)

// readAsOf reads an artifact as it stood at a place in the log, or returns
// [pgx.ErrNoRows] when it was not there for whom the caller is now.
func (h *Hub) readAsOf(ctx context.Context, tx pgx.Tx, c *verb.Caller, in *verb.GetRequest, out *verb.GetResponse) error {
	var oldest, head artifact.Seq
	if err := tx.QueryRow(ctx, logEndsQuery).Scan(&oldest, &head); err != nil {
		return err
	}
	if err := verb.CheckAsOf(in.AsOfSeq, oldest, head); err != nil {
		return err
	}
	var revision int
	var latest bool
	if err := tx.QueryRow(ctx, asOfHeadQuery, c.VisibleScopes(), c.Actor.ID, in.Ref.Type, in.Ref.ID).Scan(&revision, &latest); err != nil {
		return err
	}
	then := verb.AsOfHead(in.Ref.Type, revision, latest)
	var before, payload, after, next string
	var superseded bool
	err := tx.QueryRow(ctx, asOfEventsQuery, c.VisibleScopes(), in.Ref.Current().String(), in.AsOfSeq, then.VersionEvents(), then.SupersededEvent()).
		Scan(&before, &payload, &after, &next, &superseded)
	if err != nil {
		return err
	}
	if superseded {
		then.Superseded()
	}
	if err := then.Tell(before, []byte(payload), after, []byte(next)); err != nil {
		return err
	}
	row := tx.QueryRow(ctx, getAsOfQuery, c.VisibleScopes(), c.Actor.ID, in.Ref.Type, in.Ref.ID, in.WithContent(), then.Revision, in.Ref.IsPinned(), in.Ref.Hash[:])
	if err := h.scanVersion(row, out); err != nil {
		return err
	}
	then.Then(&out.Artifact)
	return nil
}
