package node

import (
	"context"
	"database/sql"
	"errors"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const (
	historySQL = `SELECT r.type, r.id, r.scope, r.revision, r.content_hash, r.schema_version, r.title, r.state,
			a.created_at, a.created_by, r.created_at, r.created_by, a.is_latest AND a.revision = r.revision,
			a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, r.content, (SELECT seq FROM replica_state), r.note, r.provenance
		FROM artifact AS a
		CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id
		WHERE a.type = ?1 AND a.id = ?2 AND r.revision < ?3 AND r.scope IN ({scopes}) AND a.scope IN ({scopes})
		ORDER BY r.revision DESC LIMIT ?4`

	// thingOf and changesThing are as event_by_ref has them.
	thingOf      = `substr(e.ref, 1, instr(e.ref || '@', '@') - 1)`
	changesThing = `substr(e.type, -9) <> '.signaled' AND substr(e.type, -10) <> '.commented' AND substr(e.type, -7) <> '.linked'`
	linkPastSQL  = `SELECT e.type, e.at, e.actor_id, e.actor_kind, e.scope, e.payload
		FROM event AS e
		WHERE ` + thingOf + ` = ?1 AND e.type IN ('` + replicate.LinkCreated + `', '` + replicate.LinkRetracted + `')
			AND ` + changesThing + ` AND e.scope IN ({scopes})
		ORDER BY e.seq DESC`
)

func (s *Store) history(ctx context.Context, in verb.HistoryRequest) (out verb.HistoryResponse, err error) {
	if _, err := reader(ctx); err != nil {
		return out, err
	}
	page, err := in.Page()
	if err != nil {
		return out, err
	}
	switch in.Ref.Type {
	case replicate.LinkType, replicate.SignalType:
		err = s.oneState(ctx, func(tx *sql.Tx) error { return s.edgeHistory(ctx, tx, &in, &page, &out) })
	default:
		err = s.versions(ctx, &in, &page, &out)
	}
	if err == nil && page.Empty() {
		err = sql.ErrNoRows
	}
	if err == nil {
		err = page.Finish(&out)
	}
	if err != nil {
		return verb.HistoryResponse{}, s.absent(err, in.Ref.Current())
	}
	return out, nil
}

func (s *Store) versions(ctx context.Context, in *verb.HistoryRequest, page *verb.HistoryPage, out *verb.HistoryResponse) error {
	rows, err := s.read.history.rows(ctx, nil, in.Ref.Type, in.Ref.ID, page.Before(), page.Rows())
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var v verb.PastVersion
		var provenance []byte
		if v.Artifact, err = scanArtifact(rows.Scan, &out.AsOf, &v.Note, &provenance); err != nil {
			return err
		}
		v.Provenance = provenance
		if in.IncludeContent {
			s.upgrades.Load().Beside(&v.Artifact)
		}
		if !page.Add(v) {
			break
		}
	}
	return rows.Err()
}

// edgeHistory reads what became of a link or a signal. A link that was taken back is
// in the events alone, and there for who may see both its ends.
func (s *Store) edgeHistory(ctx context.Context, tx *sql.Tx, in *verb.HistoryRequest, page *verb.HistoryPage, out *verb.HistoryResponse) error {
	there := verb.GetResponse{}
	err := s.readAddressed(ctx, tx, &verb.GetRequest{Ref: in.Ref.Current()}, &there)
	if out.AsOf = there.AsOf; err == nil && there.Artifact.Revision < page.Before() {
		page.Add(verb.PastVersion{Artifact: there.Artifact})
	}
	if !errors.Is(err, sql.ErrNoRows) || in.Ref.Type == replicate.SignalType {
		return err
	}
	events, err := s.linkPast(ctx, tx, in.Ref.Current())
	if err != nil {
		return err
	}
	gone, ok, err := replicate.ParseGoneLink(in.Ref.ID, events)
	if err != nil || !ok {
		return err
	}
	for _, end := range []artifact.Ref{gone.From, gone.To} {
		if err := s.present(ctx, tx, end, &out.AsOf); err != nil {
			return err
		}
	}
	for _, v := range gone.Versions {
		if v.Revision < page.Before() && !page.Add(verb.PastVersion{Artifact: v.Artifact, Note: v.Why}) {
			break
		}
	}
	return nil
}

func (s *Store) linkPast(ctx context.Context, tx *sql.Tx, ref artifact.Ref) (events []artifact.Event, err error) {
	rows, err := s.read.linkPast.rows(ctx, tx, ref.String())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e artifact.Event
		var at int64
		var payload string
		if err := rows.Scan(&e.Type, &at, &e.Actor.ID, &e.Actor.Kind, &e.Scope, &payload); err != nil {
			return nil, err
		}
		e.At, e.Payload = fromMillis(at), []byte(payload)
		events = append(events, e)
	}
	return events, rows.Err()
}
