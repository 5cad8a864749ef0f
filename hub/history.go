package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const (
	historyQuery = `
		SELECT` + artifactColumns + `, r.content, (` + headQuery + `), r.note, r.provenance
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id
		WHERE a.type = $3 AND a.id = $4 AND r.revision < $5 AND` + visibleVersion + `
		ORDER BY r.revision DESC LIMIT $6`

	// changesThing is true of events that event_by_ref has.
	changesThing  = ` right(e.type, 9) <> '.signaled' AND right(e.type, 10) <> '.commented' AND right(e.type, 7) <> '.linked'`
	linkPastQuery = `
		SELECT e.type, e.at, e.actor_id, e.actor_kind, e.scope, e.payload, (` + headQuery + `)
		FROM event e
		WHERE e.scope = ANY ($1) AND e.class = 'public' AND split_part(e.ref COLLATE "C", '@', 1) = $2
			AND e.type IN ('` + replicate.LinkCreated + `', '` + replicate.LinkRetracted + `') AND` + changesThing + `
		ORDER BY e.seq DESC`
)

// history answers the verb of that name.
func (h *Hub) history(ctx context.Context, in verb.HistoryRequest) (out verb.HistoryResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	page, err := in.Page()
	if err != nil {
		return out, err
	}
	switch in.Ref.Type {
	case replicate.LinkType, replicate.SignalType:
		err = h.edgeHistory(ctx, c, &in, &page, &out)
	default:
		err = h.versions(ctx, c, &in, &page, &out)
	}
	if err == nil && page.Empty() {
		err = pgx.ErrNoRows
	}
	if err == nil {
		err = page.Finish(&out)
	}
	if err != nil {
		return verb.HistoryResponse{}, h.absent(err, in.Ref.Current(), "/ref")
	}
	return out, nil
}

func (h *Hub) versions(ctx context.Context, c *verb.Caller, in *verb.HistoryRequest, page *verb.HistoryPage, out *verb.HistoryResponse) error {
	rows, err := h.db.Query(ctx, historyQuery, c.VisibleScopes(), c.Actor.ID, in.Ref.Type, in.Ref.ID, page.Before(), page.Rows())
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var v verb.PastVersion
		var stamped string
		if err := scanArtifact(rows, &v.Artifact, &out.AsOf, &v.Note, &stamped); err != nil {
			return fmt.Errorf("read versions of %s: %w", in.Ref, err)
		}
		if v.Provenance, err = provenanceOf(stamped); err != nil {
			return err
		}
		if in.IncludeContent {
			h.schemas.upgrade(&v.Artifact)
		}
		if !page.Add(v) {
			break
		}
	}
	return rows.Err()
}

// provenanceOf returns what was stamped on a version as in the feed's row, and so as
// nodes answer it.
func provenanceOf(stamped string) (json.RawMessage, error) {
	var p replicate.Provenance
	if err := json.Unmarshal([]byte(stamped), &p); err != nil {
		return nil, err
	}
	raw, _, err := replicate.Encode(p)
	return raw, err
}

// edgeHistory reads what became of a link or a signal. A link that was taken back is
// in the log alone, and there for who may see both its ends.
func (h *Hub) edgeHistory(ctx context.Context, c *verb.Caller, in *verb.HistoryRequest, page *verb.HistoryPage, out *verb.HistoryResponse) error {
	return h.oneState(ctx, func(tx pgx.Tx) error {
		query, scan := getLinkQuery, scanLink
		if in.Ref.Type == replicate.SignalType {
			query, scan = getSignalQuery, scanSignal
		}
		a, err := scan(tx.QueryRow(ctx, query, c.VisibleScopes(), in.Ref.ID), &out.AsOf)
		if err == nil && a.Revision < page.Before() {
			page.Add(verb.PastVersion{Artifact: a})
		}
		if !errors.Is(err, pgx.ErrNoRows) || in.Ref.Type == replicate.SignalType {
			return err
		}
		rows, err := tx.Query(ctx, linkPastQuery, c.VisibleScopes(), in.Ref.Current().String())
		if err != nil {
			return err
		}
		events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e artifact.Event, err error) {
			var payload string
			err = row.Scan(&e.Type, &e.At, &e.Actor.ID, &e.Actor.Kind, &e.Scope, &payload, &out.AsOf)
			e.At, e.Payload = e.At.UTC(), []byte(payload)
			return e, err
		})
		if err != nil {
			return err
		}
		gone, ok, err := replicate.ParseGoneLink(in.Ref.ID, events)
		if err != nil || !ok {
			return err
		}
		var asOf artifact.Seq
		for _, end := range []artifact.Ref{gone.From, gone.To} {
			if audience, err := present(ctx, tx, c, end, &asOf); err != nil || audience == participants {
				return err
			}
		}
		for _, v := range gone.Versions {
			if v.Revision < page.Before() && !page.Add(verb.PastVersion{Artifact: v.Artifact, Note: v.Why}) {
				break
			}
		}
		return nil
	})
}
