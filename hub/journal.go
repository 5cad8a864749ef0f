package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
)

// A JournalFilter says which commits are asked for. What is zero is not asked.
type JournalFilter struct {
	Ref   string // type:id of what changed
	Actor string // who wrote, or on whose behalf
	Since time.Time
	Limit int // 0: 100
}

// A JournalEntry is who made one commit, and on whose behalf.
type JournalEntry struct {
	At              time.Time                 `json:"at"`
	Verb            string                    `json:"verb"`
	ActorID         string                    `json:"actor_id"`
	ActorKind       string                    `json:"actor_kind"`
	SessionID       string                    `json:"session_id,omitempty"`
	ParentSessionID string                    `json:"parent_session_id,omitempty"`
	Delegation      []artifact.DelegationStep `json:"delegation_chain"` // from the first to who handed over to the actor
	TaskID          string                    `json:"task_id,omitempty"`
	RequestID       string                    `json:"request_id"`
	FirstSeq        artifact.Seq              `json:"first_seq"`
	LastSeq         artifact.Seq              `json:"last_seq"`
	Refs            []string                  `json:"refs"` // what changed, as far as the log still tells
}

const defaultJournal = 100

// journalQuery finds commits of a thing by the log while that is kept, and by the
// stamps of its versions, which are never trimmed. It asks nobody's rights: whoever
// holds the database reads all of it.
const journalQuery = `
	WITH commits AS (
		SELECT j.* FROM write_journal j
		WHERE ($1::timestamptz IS NULL OR j.at >= $1)
			AND ($2 = '' OR j.actor_id = $2 OR EXISTS (SELECT FROM json_array_elements(j.delegation_chain::json) AS d (step) WHERE d.step ->> 'actor_id' = $2))
			AND ($3 = ''
				OR EXISTS (SELECT FROM event v WHERE v.seq BETWEEN j.first_seq AND j.last_seq AND split_part(v.ref, '@', 1) = $3)
				OR EXISTS (SELECT FROM feed.change c WHERE c.seq BETWEEN j.first_seq AND j.last_seq AND c.ref = $3)
				OR j.request_id::text IN (
					SELECT r.provenance::json ->> 'request_id' FROM artifact_revision r
					WHERE r.type = split_part($3, ':', 1) AND r.id = substr($3, strpos($3, ':') + 1)))
		ORDER BY j.last_seq DESC
		LIMIT $4
	)
	SELECT j.at, j.verb, j.actor_id, j.actor_kind, j.session_id, j.parent_session_id, j.delegation_chain, j.task_id, j.request_id::text, j.first_seq, j.last_seq,
		ARRAY(
			SELECT split_part(v.ref, '@', 1) FROM event v WHERE v.seq BETWEEN j.first_seq AND j.last_seq
			UNION
			SELECT c.ref FROM feed.change c WHERE c.seq BETWEEN j.first_seq AND j.last_seq
			ORDER BY 1
			LIMIT 1000)
	FROM commits j
	ORDER BY j.last_seq DESC`

// Journal returns who changed what, and on whose behalf, the latest first.
func Journal(ctx context.Context, db *pgxpool.Pool, f JournalFilter) ([]JournalEntry, error) {
	if f.Ref != "" {
		ref, err := artifact.ParseRef(f.Ref)
		if err != nil {
			return nil, fmt.Errorf("the ref %q: %w", f.Ref, err)
		}
		f.Ref = ref.Current().String()
	}
	var since *time.Time
	if !f.Since.IsZero() {
		since = &f.Since
	}
	if f.Limit <= 0 {
		f.Limit = defaultJournal
	}
	rows, err := db.Query(ctx, journalQuery, since, f.Actor, f.Ref, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e JournalEntry, err error) {
		var chain string
		if err := row.Scan(&e.At, &e.Verb, &e.ActorID, &e.ActorKind, &e.SessionID, &e.ParentSessionID, &chain, &e.TaskID, &e.RequestID, &e.FirstSeq, &e.LastSeq, &e.Refs); err != nil {
			return e, err
		}
		e.At = e.At.UTC()
		if f.Ref != "" && !slices.Contains(e.Refs, f.Ref) {
			e.Refs = append(e.Refs, f.Ref) // the log tells no more
		}
		return e, json.Unmarshal([]byte(chain), &e.Delegation)
	})
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	return entries, nil
}
