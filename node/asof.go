package node

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const (
	logEndsSQL  = `SELECT coalesce((SELECT min(seq) FROM event), 0), (SELECT seq FROM replica_state)`
	asOfHeadSQL = `SELECT revision, is_latest FROM artifact WHERE type = ?1 AND id = ?2 AND scope IN ({scopes})`

	// The last event up to a seq and the first after it that say of a version, and
	// whether one after it says that the artifact is replaced.
	eventsOfThing = ` FROM event AS e WHERE ` + thingOf + ` = ?1 AND ` + changesThing + ` AND e.scope IN ({scopes})`
	asOfEventsSQL = `SELECT * FROM (SELECT 0, e.type, e.payload` + eventsOfThing + ` AND e.seq <= ?2 AND e.type IN (SELECT value FROM json_each(?3)) ORDER BY e.seq DESC LIMIT 1)
		UNION ALL
		SELECT * FROM (SELECT 1, e.type, e.payload` + eventsOfThing + ` AND e.seq > ?2 AND e.type IN (SELECT value FROM json_each(?3)) ORDER BY e.seq LIMIT 1)
		UNION ALL
		SELECT * FROM (SELECT 2, e.type, e.payload` + eventsOfThing + ` AND e.seq > ?2 AND e.type = ?4 LIMIT 1)`

	// Of two revisions with one hash, a pinned ref means the later one that was
	// there then.
	getAsOfSQL = `SELECT r.type, r.id, r.scope, r.revision, r.content_hash, r.schema_version, r.title, r.state,
			a.created_at, a.created_by, r.created_at, r.created_by, a.is_latest AND a.revision = r.revision,
			a.superseded_by, a.quality_score,
			r.additional_signatures, r.redaction, CASE WHEN ?3 THEN r.content END, (SELECT seq FROM replica_state), r.provenance
		FROM artifact AS a CROSS JOIN artifact_revision AS r ON r.type = a.type AND r.id = a.id
		WHERE a.type = ?1 AND a.id = ?2 AND CASE WHEN ?5 THEN r.content_hash = ?6 AND r.revision <= ?4 ELSE r.revision = ?4 END
			AND r.scope IN ({scopes}) AND a.scope IN ({scopes})
		ORDER BY r.revision DESC LIMIT 1`
)

// readAsOf reads an artifact as it stood at a place in the log, or returns
// [sql.ErrNoRows] when it was not there for whom the caller is now.
func (s *Store) readAsOf(ctx context.Context, tx *sql.Tx, in *verb.GetRequest, out *verb.GetResponse) error {
	var oldest, head artifact.Seq
	if err := tx.QueryRowContext(ctx, logEndsSQL).Scan(&oldest, &head); err != nil {
		return err
	}
	if err := verb.CheckAsOf(in.AsOfSeq, oldest, head); err != nil {
		return err
	}
	var revision int
	var latest bool
	row, err := s.read.asOfHead.row(ctx, tx, in.Ref.Type, in.Ref.ID)
	if err != nil {
		return err
	}
	if err := row.Scan(&revision, &latest); err != nil {
		return err
	}
	then := verb.AsOfHead(in.Ref.Type, revision, latest)
	if err := s.tellAsOf(ctx, tx, in, &then); err != nil {
		return err
	}
	row, err = s.read.getAsOf.row(ctx, tx, in.Ref.Type, in.Ref.ID, in.WithContent(), then.Revision, in.Ref.IsPinned(), in.Ref.Hash[:])
	if err != nil {
		return err
	}
	if err := s.scanVersion(row, out); err != nil {
		return err
	}
	then.Then(&out.Artifact)
	return nil
}

func (s *Store) tellAsOf(ctx context.Context, tx *sql.Tx, in *verb.GetRequest, then *verb.AsOf) error {
	types, err := json.Marshal(then.VersionEvents())
	if err != nil {
		return err
	}
	rows, err := s.read.asOfEvents.rows(ctx, tx, in.Ref.Current().String(), int64(in.AsOfSeq), string(types), then.SupersededEvent())
	if err != nil {
		return err
	}
	defer rows.Close()
	var told [3]struct{ typ, payload string }
	for rows.Next() {
		var which int
		var typ, payload string
		if err := rows.Scan(&which, &typ, &payload); err != nil {
			return err
		}
		told[which].typ, told[which].payload = typ, payload
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if told[2].typ != "" {
		then.Superseded()
	}
	return then.Tell(told[0].typ, []byte(told[0].payload), told[1].typ, []byte(told[1].payload))
}
