package artifact

import (
	"encoding/json"
	"time"
)

// Commons is the scope that everyone may read.
const Commons = "commons"

// MaxTitleLength is the longest title, in characters.
const MaxTitleLength = 512

// An Actor is who wrote: an agent's id and kind, stamped by the server from a
// verified token.
type Actor struct {
	ID   string `json:"id"`
	Kind string `json:"kind,omitempty"` // human, ai_local, ai_external or ai_swarm
}

// A DelegationStep is one hand-over in the chain that led to a request.
type DelegationStep struct {
	ActorID   string `json:"actor_id"`
	SessionID string `json:"session_id,omitempty"`
	TaskID    string `json:"task_id,omitempty"`
}

// An Artifact is one version of a document with the state of its head.
type Artifact struct {
	Ref           Ref             `json:"ref"` // always pinned
	Type          string          `json:"type"`
	ID            string          `json:"id"`
	Scope         string          `json:"scope"`
	Revision      int             `json:"revision"`
	ContentHash   Hash            `json:"content_hash,omitzero"`
	SchemaVersion int             `json:"schema_version"`
	Title         string          `json:"title"`
	State         string          `json:"state,omitempty"`
	CreatedAt     time.Time       `json:"created_at"`
	CreatedBy     string          `json:"created_by"`
	UpdatedAt     time.Time       `json:"updated_at"` // when this version was written
	UpdatedBy     string          `json:"updated_by"`
	IsLatest      bool            `json:"is_latest"`
	SupersededBy  string          `json:"superseded_by,omitempty"`
	QualityScore  *float64        `json:"quality_score"`
	Content       json.RawMessage `json:"content,omitempty"`               // canonical bytes, never re-encoded
	Signatures    json.RawMessage `json:"additional_signatures,omitempty"` // an array, as given
	Redaction     json.RawMessage `json:"redaction,omitempty"`             // at, by and reason, of a version whose body was taken out
	Provenance    json.RawMessage `json:"provenance,omitempty"`            // who wrote this version and on whose behalf, where one version is read
	// UpgradedContent is the content in the form of the type's current schema, when
	// that broke with the form of the version.
	UpgradedContent json.RawMessage `json:"upgraded_content,omitempty"`
}

// A Seq is a place in the hub's event log: 1 for the first change, rising by one
// in commit order, without gaps within an epoch. Zero precedes all changes.
type Seq int64

// An Event records one committed change. Its id is the seq of the change it
// rides on, so one cursor serves replicas, subscriptions and read-your-writes.
type Event struct {
	ID      Seq             `json:"event_id"`
	Type    string          `json:"event_type"` // such as hypothesis.created
	At      time.Time       `json:"occurred_at"`
	Actor   Actor           `json:"actor"`
	Ref     string          `json:"ref"` // pinned where the thing has versions
	Scope   string          `json:"scope"`
	Payload json.RawMessage `json:"payload"`
}

// Now returns the time as the hub stamps it: UTC, whole milliseconds.
func Now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// TimeFormat writes times in canonical rows, always with milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"
