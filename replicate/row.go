package replicate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// Kinds of row: what kind of thing changed.
const (
	KindArtifact = "artifact" // a head
	KindRevision = "revision"
	KindLink     = "link"
	KindSignal   = "signal"
	KindSchema   = "schema"
	KindScope    = "scope"
	KindEvent    = "event" // nothing but an event

	KindMembership = "membership"
	KindAgent      = "agent"      // in each scope that the agent was seen in
	KindRevocation = "revocation" // of a token

	KindVector      = "vector"       // of an artifact, by one model
	KindVectorModel = "vector_model" // the one by which searches are, in commons
)

// Ops of a row.
const (
	Put    = "P" // the thing is now as Data says
	Delete = "D" // the thing is gone from this scope
	Emit   = "E" // an event happened; no state changed
)

// Classes of a row. Internal rows are in no feed.
const (
	Public   = "public"
	Internal = "internal"
)

// Types under which links and signals are addressed.
const (
	LinkType   = "kg_edge"
	SignalType = "signal"
)

// A Row is one change as followers read it. Hash is the SHA-256 of Data;
// PrevHash is that of the row it replaces. A revision's content stands beside
// its data, which binds it by the content hash.
//
// A put without data is withheld: what it said was moved out of the scope or
// redacted since, and a later row says how the thing is now.
type Row struct {
	Seq      artifact.Seq    `json:"seq"`
	Commit   artifact.Seq    `json:"commit"` // last seq of the same commit
	Prev     artifact.Seq    `json:"prev"`   // seq of the public row before it in its scope; 0 for none
	Scope    string          `json:"scope"`
	Kind     string          `json:"kind"`
	Op       string          `json:"op"`
	Ref      string          `json:"ref"` // never pinned
	Revision int             `json:"rev"`
	Hash     artifact.Hash   `json:"hash"`
	PrevHash artifact.Hash   `json:"prev_hash"`
	At       time.Time       `json:"at,omitzero"`
	Data     json.RawMessage `json:"data,omitempty"`
	Content  json.RawMessage `json:"content,omitempty"`
	Event    *RowEvent       `json:"event,omitempty"`
}

// A RowEvent is the event that rides on a row and has the row's seq as its id.
type RowEvent struct {
	Type      string          `json:"type"`
	Ref       string          `json:"ref"`
	ActorID   string          `json:"actor_id"`
	ActorKind string          `json:"actor_kind"`
	Payload   json.RawMessage `json:"payload"`
}

// AppendJSON appends r's wire form to b. Data, content and payload go out as
// they are, byte for byte.
func (r *Row) AppendJSON(b []byte) []byte {
	b = append(b, `{"seq":`...)
	b = strconv.AppendInt(b, int64(r.Seq), 10)
	b = append(b, `,"commit":`...)
	b = strconv.AppendInt(b, int64(r.Commit), 10)
	b = append(b, `,"prev":`...)
	b = strconv.AppendInt(b, int64(r.Prev), 10)
	b = appendMember(b, "scope", r.Scope)
	b = appendMember(b, "kind", r.Kind)
	b = appendMember(b, "op", r.Op)
	b = appendMember(b, "ref", r.Ref)
	b = append(b, `,"rev":`...)
	b = strconv.AppendInt(b, int64(r.Revision), 10)
	if !r.Hash.IsZero() {
		b = appendMember(b, "hash", r.Hash.String())
	}
	if !r.PrevHash.IsZero() {
		b = appendMember(b, "prev_hash", r.PrevHash.String())
	}
	if !r.At.IsZero() { // an aggregate of a back-fill is of no moment
		b = append(b, `,"at":"`...)
		b = r.At.UTC().AppendFormat(b, artifact.TimeFormat)
		b = append(b, '"')
	}
	if len(r.Data) > 0 {
		b = append(b, `,"data":`...)
		b = append(b, r.Data...)
	}
	if len(r.Content) > 0 {
		b = append(b, `,"content":`...)
		b = append(b, r.Content...)
	}
	if e := r.Event; e != nil {
		b = append(b, `,"event":{"type":`...)
		b = appendString(b, e.Type)
		b = appendMember(b, "ref", e.Ref)
		b = appendMember(b, "actor_id", e.ActorID)
		b = appendMember(b, "actor_kind", e.ActorKind)
		b = append(b, `,"payload":`...)
		b = append(b, e.Payload...)
		b = append(b, '}')
	}
	return append(b, '}')
}

func appendMember(b []byte, key, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	b = append(b, '"', ':')
	return appendString(b, value)
}

func appendString(b []byte, s string) []byte {
	raw, err := json.Marshal(s)
	if err != nil { // json.Marshal of a string does not fail
		return append(b, `""`...)
	}
	return append(b, raw...)
}

// EventHash returns the hash of a row's event, zero without one. Digests of
// events are made of it, on PostgreSQL by the same recipe in SQL: the SHA-256 of
// seq, type, ref, actor id, milliseconds since 1970 and payload, with a newline
// between each two.
func (r *Row) EventHash() artifact.Hash {
	if r.Event == nil {
		return artifact.Hash{}
	}
	return artifact.HashBytes(fmt.Appendf(nil, "%d\n%s\n%s\n%s\n%d\n%s",
		r.Seq, r.Event.Type, r.Event.Ref, r.Event.ActorID, r.At.UnixMilli(), r.Event.Payload))
}

// Extend returns the log's chain after r: the SHA-256 of the chain before it and
// of all that r says. The class is part of it, since the chain runs over
// internal rows too.
func (r *Row) Extend(chain artifact.Hash, class string) artifact.Hash {
	event := r.EventHash()
	b := make([]byte, 0, 256)
	b = append(b, chain[:]...)
	b = fmt.Appendf(b, "%d\n%d\n%s\n%s\n%s\n%s\n%s\n%d\n", r.Seq, r.Commit, class, r.Scope, r.Kind, r.Op, r.Ref, r.Revision)
	b = append(b, r.Hash[:]...)
	b = append(b, r.PrevHash[:]...)
	b = append(b, event[:]...)
	return artifact.HashBytes(b)
}

// A Head is the data of an artifact row. Its fields, like those of the other
// data types, stand in the order of their JSON names, so that [Encode] writes
// the canonical form.
type Head struct {
	ContentHash   artifact.Hash `json:"content_hash"`
	CreatedAt     time.Time     `json:"created_at"`
	CreatedBy     string        `json:"created_by"`
	ID            string        `json:"id"`
	IsLatest      bool          `json:"is_latest"`
	QualityScore  *float64      `json:"quality_score"`
	Revision      int           `json:"revision"`
	SchemaVersion int           `json:"schema_version"`
	Scope         string        `json:"scope"`
	State         string        `json:"state"`
	SupersededBy  string        `json:"superseded_by"`
	Title         string        `json:"title"`
	Type          string        `json:"type"`
	UpdatedAt     time.Time     `json:"updated_at"`
	UpdatedBy     string        `json:"updated_by"`
}

// A Revision is the data of a revision row.
type Revision struct {
	Signatures    json.RawMessage `json:"additional_signatures,omitempty"` // an array, as given
	ContentHash   artifact.Hash   `json:"content_hash"`
	CreatedAt     time.Time       `json:"created_at"`
	CreatedBy     string          `json:"created_by"`
	ID            string          `json:"id"`
	Note          string          `json:"note"`
	Provenance    Provenance      `json:"provenance"`
	Redaction     *Redaction      `json:"redaction,omitempty"`
	Revision      int             `json:"revision"`
	SchemaVersion int             `json:"schema_version"`
	Scope         string          `json:"scope"`
	State         string          `json:"state"`
	Title         string          `json:"title"`
	Type          string          `json:"type"`
}

// A Redaction says who took a version's title, content and note out, and why. The
// version keeps the content hash that it had.
type Redaction struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// Provenance is who wrote a version and on whose behalf, as the hub stamped it.
type Provenance struct {
	ActorID         string                    `json:"actor_id"`
	ActorKind       string                    `json:"actor_kind"`
	Candidate       string                    `json:"candidate,omitempty"` // that was approved
	Delegation      []artifact.DelegationStep `json:"delegation_chain"`
	Evidence        []string                  `json:"evidence,omitempty"` // pinned refs that the candidate rested on
	Import          bool                      `json:"import"`
	ParentSessionID string                    `json:"parent_session_id"`
	ProposedBy      string                    `json:"proposed_by,omitempty"` // agent whose candidate it was
	RequestID       string                    `json:"request_id"`
	SessionID       string                    `json:"session_id"`
	TaskID          string                    `json:"task_id"`
	Verb            string                    `json:"verb"`
}

// A Link is the data of a link row.
type Link struct {
	At           time.Time       `json:"at"`
	By           string          `json:"by"`
	Evidence     json.RawMessage `json:"evidence"` // an object, or null
	EvidenceRefs []string        `json:"evidence_refs"`
	From         string          `json:"from"`
	ID           string          `json:"id"`
	Predicate    string          `json:"predicate"`
	Scope        string          `json:"scope"`
	To           string          `json:"to"`
}

// A Signal is the data of a signal row, with its aggregate after it.
type Signal struct {
	Aggregate artifact.Aggregate `json:"aggregate"`
	At        time.Time          `json:"at"`
	By        string             `json:"by"`
	Dimension string             `json:"dimension"`
	ID        string             `json:"id"`
	Kind      string             `json:"kind"`
	Metadata  json.RawMessage    `json:"metadata"` // an object, or null
	Reason    string             `json:"reason"`
	Ref       string             `json:"ref"`
	Scope     string             `json:"scope"`
	Value     json.Number        `json:"value"`
	Voter     string             `json:"voter"`
	VoterKind string             `json:"voter_kind"`
	Weight    json.Number        `json:"weight"`
}

// A Schema is the data of a schema row.
type Schema struct {
	CreatedAt     time.Time       `json:"created_at"`
	Document      json.RawMessage `json:"document"`
	SchemaVersion int             `json:"schema_version"`
	Type          string          `json:"type"`
}

// A Scope is the data of a scope row.
type Scope struct {
	CreatedAt time.Time `json:"created_at"`
	ID        string    `json:"id"`
	Title     string    `json:"title"`
}

// A Membership is the data of a membership row: what an agent may do in a scope.
type Membership struct {
	Agent     string    `json:"agent"`
	GrantedAt time.Time `json:"granted_at"`
	GrantedBy string    `json:"granted_by"`
	Roles     []string  `json:"roles"` // in order; never empty
	Scope     string    `json:"scope"`
}

// Ref returns the ref of the membership's row.
func (m *Membership) Ref() string { return KindMembership + ":" + m.Scope + "/" + m.Agent }

// An Agent is the data of an agent row.
type Agent struct {
	CreatedAt     time.Time `json:"created_at"`
	FormerHandles []string  `json:"former_handles"` // which lead to the agent still
	Handle        string    `json:"handle"`         // "" for none
	ID            string    `json:"id"`
	Kind          string    `json:"kind"`
	MayDelegate   bool      `json:"may_delegate"`
	Roles         []string  `json:"roles"` // what it is addressed as; no permissions
	Title         string    `json:"title"`
	UpdatedAt     time.Time `json:"updated_at"`
}

// A Revocation is the data of a revocation row: of a token, or of all tokens that
// an agent was given before a time. It names neither, since everyone gets it.
type Revocation struct {
	Before time.Time     `json:"before"` // of a token: when it ends by itself
	Hash   artifact.Hash `json:"hash"`   // of a token's issuer and id, or of an agent
	Of     string        `json:"of"`     // OfToken or OfAgent
}

// A Vector is the data of a vector row: what an artifact means. It is in no digest:
// it can be made again.
type Vector struct {
	ID     string `json:"id"`
	Model  string `json:"model"`
	Scope  string `json:"scope"`
	Type   string `json:"type"`
	Vector []byte `json:"vector"` // a signed byte a dimension; its length says nothing
}

// A VectorModel is the data of a vector_model row. Vectors by other models count no
// more.
type VectorModel struct {
	Dims  int    `json:"dims"`
	Model string `json:"model"`
}

// VectorModelRef is the ref of the one vector_model row.
const VectorModelRef = KindVectorModel + ":serving"

// What a revocation is of.
const (
	OfToken = "token"
	OfAgent = "agent"
)

// Encode returns the canonical bytes of a row's data and their hash.
func Encode(data any) ([]byte, artifact.Hash, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(data); err != nil {
		return nil, artifact.Hash{}, err
	}
	raw := unescapeSeparators(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return raw, artifact.HashBytes(raw), nil
}

// unescapeSeparators writes U+2028 and U+2029 as themselves: encoding/json
// escapes them, RFC 8785 does not.
func unescapeSeparators(raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`\u202`)) {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		rest := raw[i:]
		switch {
		case bytes.HasPrefix(rest, []byte(`\u2028`)):
			out, i = append(out, "\u2028"...), i+5
		case bytes.HasPrefix(rest, []byte(`\u2029`)):
			out, i = append(out, "\u2029"...), i+5
		case rest[0] == '\\' && len(rest) > 1:
			out, i = append(out, rest[:2]...), i+1
		default:
			out = append(out, rest[0])
		}
	}
	return out
}
