package verb

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// The verbs. Their order here is their order in the OpenAPI document.
var (
	Get = Verb[GetRequest, GetResponse]{
		Name:    "get",
		Summary: "Read the current version of an artifact, or one pinned by its content hash; or a link or signal.",
		Effect:  Read,
		Needs:   toRead,
	}
	List = Verb[ListRequest, ListResponse]{
		Name:    "list",
		Summary: "List current artifacts, all or those that a filter lets pass, in the order that you ask for, page by page.",
		Effect:  Read,
		Needs:   toRead,
	}
	Schema = Verb[SchemaRequest, SchemaResponse]{
		Name:    "schema",
		Summary: "Read the schema of one type, or of all types, or list a type's versions.",
		Effect:  Read,
		Needs:   Needs{},
	}
	Create = Verb[CreateRequest, WriteResult]{
		Name:    "create",
		Summary: "Create an artifact of a registered type, with its links. One of type schema makes a new type. Where changes of the type wait for review, the answer is a candidate.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Contributor, Reviewer, Admin}, Note: "an admin in commons makes types, artifacts of type schema, and nothing else; a reviewer there proposes them"},
	}
	Update = Verb[UpdateRequest, WriteResult]{
		Name:    "update",
		Summary: "Write a new version of an artifact, based on the version you read. Where changes of the type wait for review, the answer is a candidate.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Contributor, Reviewer, Admin}, Own: true, Note: "a reviewer may only move the lifecycle; an admin in commons changes types, artifacts of type schema, and nothing else; a reviewer there proposes such changes; in a private scope the artifact's creator may update it too"},
	}
	Link = Verb[LinkRequest, LinkResult]{
		Name:    "link",
		Summary: "Link one artifact to another by a predicate of its type.",
		Effect:  Write,
		Needs:   toWrite,
	}
	Signal = Verb[SignalRequest, SignalResult]{
		Name:    "signal",
		Summary: "Attach a number to an artifact: a vote, a rank, funds.",
		Effect:  Write,
		Needs:   toWrite,
	}
	Batch = Verb[BatchRequest, BatchResult]{
		Name:    "batch",
		Summary: "Run many writes in one transaction, all or none when atomic.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Contributor, Reviewer, Admin}, Own: true, Note: "each item takes what its verb takes; only an admin imports, into commons"},
	}
)

// Limits of requests.
const (
	MaxRequestBytes  = 2 << 20  // of one verb but batch
	MaxBatchBytes    = 16 << 20 // of a batch
	MaxBatchItems    = 1000
	MaxPage          = 200
	DefaultPage      = 50
	MaxLinksPerWrite = 1000
)

// GetRequest names the artifact to read.
type GetRequest struct {
	Ref            artifact.Ref `json:"ref" jsonschema:"type:id for the current version, type:id@sha256:<64 hex> for one version; kg_edge:<id> for a link, signal:<id> for a signal"`
	IncludeContent *bool        `json:"include_content,omitempty" jsonschema:"false leaves the content out; the default is true"`
	IncludeLinks   bool         `json:"include_links,omitempty" jsonschema:"true adds the first links from and to it, and how many there are by predicate"`
	IncludeSignals bool         `json:"include_signals,omitempty" jsonschema:"true adds what was made of its signals, by kind and dimension"`
	AsOfSeq        artifact.Seq `json:"as_of_seq,omitempty" jsonschema:"a place in the log: the artifact as it stood there, as far as you may see it now; its quality_score is null, which is not kept"`
	Follow         bool         `json:"follow,omitempty" jsonschema:"true answers what replaces the artifact in the end, as far as you may see it"`
}

// WithContent reports whether the content is asked for.
func (r *GetRequest) WithContent() bool { return r.IncludeContent == nil || *r.IncludeContent }

// Types under which links and signals are addressed.
const (
	linkType   = "kg_edge"
	signalType = "signal"
)

// Check returns what is wrong with the request, as a validation_failed.
func (r *GetRequest) Check() error {
	var problems []artifact.Problem
	refuse := func(path, constraint, message string) {
		problems = append(problems, artifact.Problem{Path: path, Constraint: constraint, Message: message})
	}
	if r.Follow && r.Ref.IsPinned() {
		refuse("/follow", "current", "what replaces an artifact is found by type:id, without a hash")
	}
	if r.AsOfSeq < 0 {
		problems = append(problems, artifact.Problem{Path: "/as_of_seq", Constraint: "range", Message: "seqs are positive", Value: json.RawMessage(strconv.FormatInt(int64(r.AsOfSeq), 10))})
	}
	if r.AsOfSeq > 0 {
		if r.Ref.Type == linkType || r.Ref.Type == signalType {
			refuse("/as_of_seq", "artifact", "a link or a signal is written once: history tells what became of it")
		}
		for path, asked := range map[string]bool{"/follow": r.Follow, "/include_links": r.IncludeLinks, "/include_signals": r.IncludeSignals} {
			if asked {
				refuse(path, "as_of", "this is known as it is now alone, and not with as_of_seq")
			}
		}
	}
	if problems != nil {
		slices.SortFunc(problems, func(a, b artifact.Problem) int { return strings.Compare(a.Path, b.Path) })
		return artifact.Invalid(problems...)
	}
	return nil
}

// Plain reports whether the answer is the artifact alone, as it is now.
func (r *GetRequest) Plain() bool { return !r.IncludeLinks && !r.IncludeSignals && r.AsOfSeq == 0 }

// GetResponse is one version of an artifact.
type GetResponse struct {
	Artifact artifact.Artifact `json:"artifact"`
	Links    *GetLinks         `json:"links,omitempty" jsonschema:"the first links from and to it, when they are asked for"`
	// Signals is not nil when they are asked for.
	Signals []artifact.SignalSummary `json:"signals,omitzero" jsonschema:"what was made of its signals, when it is asked for"`
	AsOf    artifact.Seq             `json:"as_of"` // the log position this was read at
}

// GetLinks are the first links of each direction.
type GetLinks struct {
	Links  []LinkItem     `json:"links" jsonschema:"the first 25 from it and the first 25 to it"`
	Counts []LinkCount    `json:"counts" jsonschema:"how many there are, by direction and predicate"`
	More   []LinksRequest `json:"more" jsonschema:"requests of the verb links that read the rest"`
}

// Requests returns the requests of the verb links whose answers [GetLinks.Add]
// takes.
func (*GetLinks) Requests(ref artifact.Ref) []LinksRequest {
	r := LinksRequest{Ref: ref.Current(), Direction: DirectionOut, IncludeTargets: true, Limit: LinksInGet}
	in := r
	in.Direction = DirectionIn
	return []LinksRequest{r, in}
}

// Add takes the answer to a request.
func (g *GetLinks) Add(in LinksRequest, page *LinksResponse) {
	if g.Links == nil {
		g.Links, g.Counts, g.More = []LinkItem{}, []LinkCount{}, []LinksRequest{}
	}
	g.Links, g.Counts = append(g.Links, page.Links...), append(g.Counts, page.Counts...)
	if page.NextCursor != "" {
		in.Cursor, in.Limit = page.NextCursor, 0
		g.More = append(g.More, in)
	}
}

// SchemaRequest names a type.
type SchemaRequest struct {
	Type    string `json:"type,omitempty" jsonschema:"registered artifact type; absent for all types"`
	Version int    `json:"version,omitempty" jsonschema:"schema version; absent for the current one"`
	// AllVersions lists them instead.
	AllVersions bool `json:"all_versions,omitempty" jsonschema:"true lists the versions of one type, newest first and at most 1000, without their documents"`
}

// MaxSchemaVersions is how many versions of a type are listed.
const MaxSchemaVersions = 1000

// Check returns what is wrong with the request: a validation_failed, or not_found for
// a version that none can be.
func (r *SchemaRequest) Check() error {
	switch {
	case r.AllVersions && r.Type == "":
		return artifact.Invalid(artifact.Problem{Path: "/type", Constraint: "required", Message: "the versions of one type are listed at a time"})
	case r.AllVersions && r.Version != 0:
		return artifact.Invalid(artifact.Problem{Path: "/version", Constraint: "exactly_one", Message: "ask for one version or for the list of all"})
	case r.Version < 0 || r.Version > math.MaxInt32:
		return artifact.NotFound("schema:" + r.Type)
	}
	return nil
}

// SchemaResponse holds schema documents, by type in order, or the versions of one.
type SchemaResponse struct {
	Schemas []SchemaDocument `json:"schemas"`
}

// A SchemaDocument is one version of a type's schema.
type SchemaDocument struct {
	Type      string          `json:"type"`
	Version   int             `json:"schema_version"`
	IsCurrent bool            `json:"is_current"`
	Document  json.RawMessage `json:"document,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	// Compatibility and Migrator are as the document has them.
	Compatibility string `json:"compatibility,omitempty" jsonschema:"breaking: contents of earlier versions are upgraded as they are read"`
	Migrator      string `json:"migrator,omitempty" jsonschema:"what upgrades them"`
}

// Place completes the answer with what the documents say.
func (r *SchemaResponse) Place(in *SchemaRequest) error {
	if in.Type != "" && len(r.Schemas) == 0 {
		return artifact.NotFound("schema:" + in.Type)
	}
	for i := range r.Schemas {
		d := &r.Schemas[i]
		d.CreatedAt = d.CreatedAt.UTC()
		said := struct{ Compatibility, Migrator string }{}
		if err := json.Unmarshal(d.Document, &said); err != nil {
			return err
		}
		if d.Compatibility, d.Migrator = said.Compatibility, said.Migrator; in.AllVersions {
			d.Document = nil
		}
	}
	return nil
}

// CreateRequest asks for a new artifact.
type CreateRequest struct {
	Type    string          `json:"type" jsonschema:"registered artifact type, such as hypothesis"`
	ID      string          `json:"id,omitempty" jsonschema:"id within the type; absent: made by the type's id strategy"`
	Scope   string          `json:"scope,omitempty" jsonschema:"who may see it; absent: commons"`
	Title   string          `json:"title" jsonschema:"one line"`
	Content json.RawMessage `json:"content" jsonschema:"object valid against the type's schema"`
	State   string          `json:"state,omitempty" jsonschema:"lifecycle state; absent: the type's initial state"`
	Links   []LinkSpec      `json:"links,omitempty" jsonschema:"links from the new artifact, made in the same transaction: each has predicate, to, and optionally evidence_refs and evidence"`
	Signing
	WriteOptions
}

// WriteOptions are members of every write request.
type WriteOptions struct {
	IdempotencyKey string `json:"idempotency_key,omitempty" jsonschema:"a UUID that makes a retry return the first answer; kept 24 hours"`
	DryRun         bool   `json:"dry_run,omitempty" jsonschema:"true checks everything and writes nothing"`
}

// Signing is for signatures of a write beside the token's. They are stored with
// the version and returned, and nothing checks them yet.
type Signing struct {
	AdditionalSignatures []json.RawMessage `json:"additional_signatures,omitempty" jsonschema:"up to 16 objects, of any form, kept with the version; nothing checks them yet"`
}

// Limits of additional signatures.
const (
	MaxSignatures     = 16
	MaxSignatureBytes = 16 << 10 // all together
)

// A LinkSpec is a link from an artifact that is named elsewhere.
type LinkSpec struct {
	Predicate    string          `json:"predicate" jsonschema:"one of the type's predicates, such as supports"`
	To           string          `json:"to" jsonschema:"ref of the target; in a batch also @alias of another item"`
	EvidenceRefs []string        `json:"evidence_refs,omitempty" jsonschema:"refs that back the link"`
	Evidence     json.RawMessage `json:"evidence,omitempty" jsonschema:"object that says more, such as a quoted span"`

	ToCreateInBatch bool `json:"to_create_in_batch,omitempty" jsonschema:"true when a later item of the batch makes the target or what evidence_refs name: they are looked for at the end"`
}

// UpdateRequest asks for a new version. At most one of Content, Patch and
// MergePatch is given; what is absent stays as it is.
type UpdateRequest struct {
	Ref             string          `json:"ref" jsonschema:"type:id of the artifact"`
	BaseContentHash artifact.Hash   `json:"base_content_hash" jsonschema:"content hash of the version you read"`
	Content         json.RawMessage `json:"content,omitempty" jsonschema:"the whole new content"`
	Patch           json.RawMessage `json:"patch,omitempty" jsonschema:"JSON Patch (RFC 6902) of {content, state, title} from the base"`
	MergePatch      json.RawMessage `json:"merge_patch,omitempty" jsonschema:"JSON Merge Patch (RFC 7396) of what is inside the content of the base; null takes a member out"`
	Title           string          `json:"title,omitempty" jsonschema:"new title"`
	State           string          `json:"state,omitempty" jsonschema:"new lifecycle state"`
	Note            string          `json:"note,omitempty" jsonschema:"why, for the history"`
	AutoMerge       bool            `json:"auto_merge,omitempty" jsonschema:"true merges your change with what changed since your base, if that can be done cleanly"`
	Signing
	WriteOptions
}

// LinkRequest asks for a link. The same triple by the same agent is one link.
type LinkRequest struct {
	From string `json:"from" jsonschema:"ref of the artifact that links; in a batch also @alias of an earlier item"`
	LinkSpec
	WriteOptions
}

// SignalRequest asks for a signal.
type SignalRequest struct {
	Ref       string          `json:"ref" jsonschema:"ref of the artifact; in a batch also @alias of an earlier item"`
	Kind      string          `json:"kind" jsonschema:"one of the type's kinds of signal, such as vote"`
	Dimension string          `json:"dimension,omitempty" jsonschema:"one of the kind's dimensions, where it has any"`
	Value     json.Number     `json:"value" jsonschema:"a decimal number in the kind's range"`
	Weight    json.Number     `json:"weight,omitempty" jsonschema:"how much it counts; the default is 1"`
	Reason    string          `json:"reason,omitempty" jsonschema:"why, for people"`
	Metadata  json.RawMessage `json:"metadata,omitempty" jsonschema:"object that says more; a duel's names its opponent, type:id; a forecast's its outcome, 1 or 0, once it is known"`
	Voter     string          `json:"voter,omitempty" jsonschema:"in an import by an admin: whose signal this was, such as import:annotator-7"`
	WriteOptions
}

// BatchRequest asks for many writes.
type BatchRequest struct {
	Items          []BatchItem `json:"items" jsonschema:"1 to 1000 writes, run in order: each has op (create, update, supersede, comment, signal, link, unlink or cite), the members of that verb's request but for idempotency_key and dry_run, and optionally ref_alias, a name for what it makes: @name stands for its ref in any later item, and as a link's target or evidence in any item"`
	Atomic         bool        `json:"atomic,omitempty" jsonschema:"true writes all items or none; false leaves out those that fail, and items whose links lead to what those were to make"`
	Import         bool        `json:"import,omitempty" jsonschema:"true marks a bulk import by an admin, who may then write and name voters"`
	IdempotencyKey string      `json:"idempotency_key,omitempty" jsonschema:"a UUID that makes a retry return the first answer; kept 24 hours"`
	DryRun         bool        `json:"dry_run,omitempty" jsonschema:"true checks everything and writes nothing"`
}

// Outcomes of idempotency, as a write's answer tells them.
const (
	IdempotencyNone         = "none"         // no key was given
	IdempotencyFresh        = "fresh"        // the write ran now
	IdempotencyReplayed     = "replayed"     // the stored answer of an earlier request
	IdempotencyDeduplicated = "deduplicated" // equal to what exists; nothing was written
)

// WriteResult confirms a write of an artifact.
type WriteResult struct {
	Ref              artifact.Ref       `json:"ref,omitzero"` // pinned; absent, as are the next two, when a candidate was made
	ContentHash      artifact.Hash      `json:"content_hash,omitzero"`
	Revision         int                `json:"revision,omitempty"`
	Candidate        *ProposedCandidate `json:"candidate,omitempty" jsonschema:"what now waits for review, where changes of the type do; then there is no ref, content_hash or revision"`
	Created          bool               `json:"created"`
	Merged           bool               `json:"merged,omitempty"`        // with what had changed since the base
	SupersededBy     string             `json:"superseded_by,omitempty"` // ref of what replaces it now
	Links            []string           `json:"links,omitempty"`         // refs of the links made with it
	RequestID        string             `json:"request_id"`
	Idempotency      string             `json:"idempotency"`
	ProvenanceRefs   []string           `json:"provenance_refs"`
	Warnings         []artifact.Problem `json:"warnings"`
	Provenance       json.RawMessage    `json:"provenance,omitempty"`            // who wrote it, and on whose behalf; a batch tells it once
	Signatures       json.RawMessage    `json:"additional_signatures,omitempty"` // as stored
	Seq              artifact.Seq       `json:"seq"`                             // last seq of the commit; 0 when nothing was written
	ConsistencyToken string             `json:"consistency_token,omitempty"`     // reads that carry it see this write
}

// LinkResult confirms a link.
type LinkResult struct {
	Ref              string             `json:"ref"`          // kg_edge:<id>
	ContentHash      artifact.Hash      `json:"content_hash"` // as get answers it; a link has one version
	Revision         int                `json:"revision"`
	From             string             `json:"from"`
	Predicate        string             `json:"predicate"`
	To               string             `json:"to"`
	RequestID        string             `json:"request_id"`
	Idempotency      string             `json:"idempotency"`
	ProvenanceRefs   []string           `json:"provenance_refs"` // what backs it
	Warnings         []artifact.Problem `json:"warnings"`
	Provenance       json.RawMessage    `json:"provenance,omitempty"`
	Seq              artifact.Seq       `json:"seq"`
	ConsistencyToken string             `json:"consistency_token,omitempty"`
}

// SignalResult confirms a signal and tells its aggregate after it.
type SignalResult struct {
	Ref              string             `json:"ref"`          // signal:<id>
	ContentHash      artifact.Hash      `json:"content_hash"` // as get answers it; a signal has one version
	Revision         int                `json:"revision"`
	Aggregate        artifact.Aggregate `json:"aggregate"`
	RequestID        string             `json:"request_id"`
	Idempotency      string             `json:"idempotency"`
	ProvenanceRefs   []string           `json:"provenance_refs"`
	Warnings         []artifact.Problem `json:"warnings"`
	Provenance       json.RawMessage    `json:"provenance,omitempty"`
	Seq              artifact.Seq       `json:"seq"`
	ConsistencyToken string             `json:"consistency_token,omitempty"`
}

// BatchResult tells what became of each item, in order.
type BatchResult struct {
	Atomic           bool              `json:"atomic"`
	Committed        bool              `json:"committed"`
	Items            []BatchItemResult `json:"items"`
	RequestID        string            `json:"request_id"`
	Idempotency      string            `json:"idempotency"`
	Provenance       json.RawMessage   `json:"provenance,omitempty"` // of all items
	Seq              artifact.Seq      `json:"seq"`
	ConsistencyToken string            `json:"consistency_token,omitempty"`
}

// A BatchItemResult holds exactly one outcome.
type BatchItemResult struct {
	Write   *WriteResult    `json:"write,omitempty"`
	Link    *LinkResult     `json:"link,omitempty"`
	Signal  *SignalResult   `json:"signal,omitempty"`
	Error   *artifact.Error `json:"error,omitempty"`
	Skipped bool            `json:"skipped,omitempty"` // an earlier item of an atomic batch failed
}

// Stamped is an answer that tells who wrote, and on whose behalf.
type Stamped interface {
	Stamp(provenance json.RawMessage)
}

// Stamp implements [Stamped].
func (r *WriteResult) Stamp(provenance json.RawMessage) { r.Provenance = provenance }

// Stamp implements [Stamped].
func (r *LinkResult) Stamp(provenance json.RawMessage) { r.Provenance = provenance }

// Stamp implements [Stamped].
func (r *SignalResult) Stamp(provenance json.RawMessage) { r.Provenance = provenance }

// Stamp implements [Stamped].
func (r *BatchResult) Stamp(provenance json.RawMessage) { r.Provenance = provenance }

// Placed is an answer that learns its place in the log after it was made.
type Placed interface {
	// Place sets the commit's last seq and consistency token, and the outcome of
	// idempotency unless it is "".
	Place(seq artifact.Seq, token, outcome string)
}

// Place implements [Placed].
func (r *WriteResult) Place(seq artifact.Seq, token, outcome string) {
	r.Seq, r.ConsistencyToken, r.Idempotency = seq, token, cmp.Or(outcome, r.Idempotency)
}

// Place implements [Placed].
func (r *LinkResult) Place(seq artifact.Seq, token, outcome string) {
	r.Seq, r.ConsistencyToken, r.Idempotency = seq, token, cmp.Or(outcome, r.Idempotency)
}

// Place implements [Placed].
func (r *SignalResult) Place(seq artifact.Seq, token, outcome string) {
	r.Seq, r.ConsistencyToken, r.Idempotency = seq, token, cmp.Or(outcome, r.Idempotency)
}

// Place implements [Placed]: items that were written get the same place.
func (r *BatchResult) Place(seq artifact.Seq, token, outcome string) {
	r.Seq, r.ConsistencyToken, r.Idempotency = seq, token, cmp.Or(outcome, r.Idempotency)
	for i := range r.Items {
		switch it := &r.Items[i]; {
		case it.Write != nil:
			it.Write.Place(seq, token, "")
		case it.Link != nil:
			it.Link.Place(seq, token, "")
		case it.Signal != nil:
			it.Signal.Place(seq, token, "")
		}
	}
}
