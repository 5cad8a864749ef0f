package verb

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// The verbs of review. A candidate is a proposed change that counts once a reviewer
// approves it; until then nothing but these verbs knows of it. There is none that
// makes one: create and update do, of types whose changes are proposed. Nodes forward
// all of them: no replica holds a candidate.
var (
	CandidatesList = Verb[CandidatesListRequest, CandidatesListResponse]{
		Name:    "candidates/list",
		Summary: "List the candidates of a scope, the oldest first: those that wait for a decision, unless another status is asked for.",
		Effect:  Read,
		Needs:   Needs{AnyOf: []Permission{Viewer}, Note: "of scopes that you may see"},
	}
	CandidatesGet = Verb[CandidatesGetRequest, Candidate]{
		Name:    "candidates/get",
		Summary: "Get one candidate: what it proposes, to what, on which evidence, and what became of it.",
		Effect:  Read,
		Needs:   Needs{AnyOf: []Permission{Viewer}, Note: "of scopes that you may see"},
	}
	CandidatesHistory = Verb[CandidatesGetRequest, CandidateHistory]{
		Name:    "candidates/history",
		Summary: "List what a candidate proposed, version by version, and how it was decided.",
		Effect:  Read,
		Needs:   Needs{AnyOf: []Permission{Viewer}, Note: "of scopes that you may see"},
	}
	CandidatesRevise = Verb[CandidatesReviseRequest, Candidate]{
		Name:    "candidates/revise",
		Summary: "Put another complete proposal in the place of a candidate's, as its next version.",
		Effect:  Write,
		Needs:   toReview,
	}
	CandidatesApprove = Verb[CandidatesApproveRequest, Candidate]{
		Name:    "candidates/approve",
		Summary: "Approve a candidate at the version that you read: what it proposes is written, all or nothing.",
		Effect:  Write,
		Needs:   toReview,
	}
	CandidatesReject = Verb[CandidatesRejectRequest, Candidate]{
		Name:    "candidates/reject",
		Summary: "Reject a candidate at the version that you read, with a reason. It is kept, and never opened again.",
		Effect:  Write,
		Needs:   toReview,
	}
)

// toReview is what deciding takes.
var toReview = Needs{
	AnyOf: []Permission{Reviewer},
	Note:  "in a private scope also contributor, or what is changed must be your own",
}

// CandidatesPath is where candidates are served beside [PathPrefix], in the same form.
const CandidatesPath = "/v1/candidates/"

// Kinds of candidates.
const (
	CandidateArtifact = "artifact" // of the content of an artifact
	CandidateTag      = "tag"      // of the tags on one
)

// Statuses of a candidate. The last two are final.
const (
	CandidatePending  = "pending"
	CandidateApproved = "approved"
	CandidateRejected = "rejected"
)

// OriginManual is the origin of what somebody proposed by a verb.
const OriginManual = "manual"

// Limits of candidates.
const (
	MaxCandidateReason   = 2000 // characters
	MaxCandidateEvidence = 32
	MaxCandidatesPage    = 100
	candidatesPage       = 50
)

// A Candidate is a proposed change and what became of it.
type Candidate struct {
	ScopeID       string    `json:"scope_id" jsonschema:"scope that the candidate is in"`
	CandidateID   string    `json:"candidate_id" jsonschema:"id of the candidate, made by the hub"`
	CandidateKind string    `json:"candidate_kind" jsonschema:"artifact or tag"`
	Family        string    `json:"family" jsonschema:"type of the artifact that it would make or change"`
	Origin        string    `json:"origin" jsonschema:"how it came to be: manual, by create or update"`
	Version       int       `json:"version" jsonschema:"of the proposal; a decision names it"`
	Status        string    `json:"status" jsonschema:"pending, approved or rejected"`
	Proposal      Proposal  `json:"proposal" jsonschema:"what the artifact would be"`
	Target        *ExactRef `json:"target" jsonschema:"the exact version that it would change; null for what it would make"`
	// Artifacts are its evidence, the target among it.
	Artifacts      []ExactRef `json:"artifacts" jsonschema:"exact versions that it rests on, its target among them"`
	Reason         string     `json:"reason" jsonschema:"why, in the words of who wrote this version; empty where none was given"`
	CreatedBy      string     `json:"created_by" jsonschema:"agent that proposed it; it owns what is made"`
	CreatedAt      time.Time  `json:"created_at" jsonschema:"when it was proposed"`
	WrittenBy      string     `json:"written_by" jsonschema:"agent that wrote this version"`
	WrittenAt      time.Time  `json:"written_at" jsonschema:"when this version was written"`
	DecidedBy      string     `json:"decided_by,omitempty" jsonschema:"agent that decided; absent while pending"`
	DecidedAt      time.Time  `json:"decided_at,omitzero" jsonschema:"when it was decided; absent while pending"`
	DecisionReason string     `json:"decision_reason,omitempty" jsonschema:"why it was rejected"`
	ResultArtifact *ExactRef  `json:"result_artifact" jsonschema:"the version that approval wrote, or null"`
}

// Ref returns the name by which events and provenance tell of the candidate.
func (c *Candidate) Ref() string { return "candidate:" + c.CandidateID }

// A Proposal is what an artifact would be.
type Proposal struct {
	ID      string          `json:"id,omitempty" jsonschema:"id that was asked for what is to be made; absent: made at approval"`
	Title   string          `json:"title"`
	State   string          `json:"state,omitempty" jsonschema:"lifecycle state; absent where the type has none"`
	Content json.RawMessage `json:"content" jsonschema:"object valid against the type's schema"`
	Links   []LinkSpec      `json:"links,omitempty" jsonschema:"links from what is to be made"`
}

// An ExactRef names one version of an artifact. Two versions may have one hash; they
// do not have one revision.
type ExactRef struct {
	Family      string        `json:"family" jsonschema:"type of the artifact"`
	ArtifactID  string        `json:"artifact_id" jsonschema:"id of the artifact within its type"`
	Revision    int           `json:"revision"`
	ContentHash artifact.Hash `json:"content_hash,omitzero" jsonschema:"may be left out of a request"`
}

// Ref returns the pinned ref.
func (e *ExactRef) Ref() artifact.Ref {
	return artifact.Ref{Type: e.Family, ID: e.ArtifactID, Hash: e.ContentHash}
}

// A ProposedCandidate is what create and update answer when what they ask for is to be
// reviewed.
type ProposedCandidate struct {
	ScopeID       string `json:"scope_id" jsonschema:"scope that the candidate is in"`
	CandidateID   string `json:"candidate_id" jsonschema:"id of the candidate, made by the hub"`
	CandidateKind string `json:"candidate_kind" jsonschema:"artifact or tag"`
	Family        string `json:"family" jsonschema:"type of the artifact"`
	Version       int    `json:"version" jsonschema:"of the proposal, from 1"`
	Status        string `json:"status" jsonschema:"pending, approved or rejected"`
}

// CandidatesListRequest asks for a page of candidates.
type CandidatesListRequest struct {
	ScopeID string `json:"scope_id" jsonschema:"scope that they are in"`
	Kind    string `json:"kind,omitempty" jsonschema:"artifact or tag; absent: both"`
	Status  string `json:"status,omitempty" jsonschema:"pending, the default, approved or rejected"`
	Family  string `json:"family,omitempty" jsonschema:"only candidates of this type of artifact"`
	Limit   *int   `json:"limit,omitempty" jsonschema:"candidates a page, 1 to 100; the default is 50"`
	Cursor  string `json:"cursor,omitempty" jsonschema:"next_cursor of the page before, from a request alike but for limit and cursor"`
}

// CandidatesListResponse is a page of candidates, in the order in which they came.
type CandidatesListResponse struct {
	Candidates []Candidate `json:"candidates" jsonschema:"the page, the oldest first"`
	NextCursor *string     `json:"next_cursor" jsonschema:"null on the last page"`
}

// CandidatesGetRequest names a candidate.
type CandidatesGetRequest struct {
	ScopeID     string `json:"scope_id" jsonschema:"scope that the candidate is in"`
	CandidateID string `json:"candidate_id" jsonschema:"id of the candidate, made by the hub"`
}

// CandidateHistory is what became of a candidate.
type CandidateHistory struct {
	CandidateID string             `json:"candidate_id" jsonschema:"id of the candidate, made by the hub"`
	Kind        string             `json:"kind" jsonschema:"artifact or tag"`
	Versions    []CandidateVersion `json:"versions" jsonschema:"the first one first"`
	Decision    *CandidateDecision `json:"decision" jsonschema:"how it was decided, or null"`
}

// A CandidateVersion is what a candidate proposed at a time.
type CandidateVersion struct {
	Version   int        `json:"version" jsonschema:"of the proposal, from 1"`
	Proposal  Proposal   `json:"proposal" jsonschema:"what the artifact would be"`
	Artifacts []ExactRef `json:"artifacts" jsonschema:"exact versions that it rests on"`
	Reason    string     `json:"reason" jsonschema:"why this version, in its writer's words; empty where none was given"`
	WrittenBy string     `json:"written_by" jsonschema:"agent that wrote this version"`
	WrittenAt time.Time  `json:"written_at" jsonschema:"when this version was written"`
}

// A CandidateDecision ends a candidate.
type CandidateDecision struct {
	Status  string    `json:"status" jsonschema:"pending, approved or rejected"`
	Version int       `json:"version" jsonschema:"that was decided on"`
	Reason  string    `json:"reason,omitempty" jsonschema:"why it was rejected"`
	By      string    `json:"by" jsonschema:"agent that decided"`
	At      time.Time `json:"at" jsonschema:"when"`
	Result  *ExactRef `json:"result" jsonschema:"the version that approval wrote, or null"`
}

// CandidatesReviseRequest brings a complete new proposal.
type CandidatesReviseRequest struct {
	ScopeID         string      `json:"scope_id" jsonschema:"scope that the candidate is in"`
	CandidateID     string      `json:"candidate_id" jsonschema:"id of the candidate, made by the hub"`
	ExpectedVersion int         `json:"expected_version" jsonschema:"version of the candidate that you read"`
	Proposal        Proposal    `json:"proposal" jsonschema:"what the artifact is to be, whole"`
	Reason          string      `json:"reason,omitempty" jsonschema:"why, 1 to 2,000 characters; absent: as before"`
	Artifacts       *[]ExactRef `json:"artifacts,omitempty" jsonschema:"evidence instead of what there was, at most 32; absent: as before. The candidate's target stays among it"`
	WriteOptions
}

// CandidatesApproveRequest approves.
type CandidatesApproveRequest struct {
	ScopeID         string `json:"scope_id" jsonschema:"scope that the candidate is in"`
	CandidateID     string `json:"candidate_id" jsonschema:"id of the candidate, made by the hub"`
	ExpectedVersion int    `json:"expected_version" jsonschema:"version of the candidate that you read"`
	WriteOptions
}

// CandidatesRejectRequest rejects.
type CandidatesRejectRequest struct {
	ScopeID         string `json:"scope_id" jsonschema:"scope that the candidate is in"`
	CandidateID     string `json:"candidate_id" jsonschema:"id of the candidate, made by the hub"`
	ExpectedVersion int    `json:"expected_version" jsonschema:"version of the candidate that you read"`
	Reason          string `json:"reason" jsonschema:"why, 1 to 2,000 characters"`
	WriteOptions
}

// A CandidatesPlan is a request for candidates that was checked.
type CandidatesPlan struct {
	Status string
	Limit  int
	After  *CandidatePlace // nil begins
}

// A CandidatePlace is the last candidate of a page.
type CandidatePlace struct {
	At time.Time
	ID string
}

// Plan checks a request. Which types there are, the hub knows.
func (r *CandidatesListRequest) Plan() (p CandidatesPlan, err error) {
	var problems []artifact.Problem
	enum := func(path, value string, allowed ...string) {
		if value != "" && !slices.Contains(allowed, value) {
			problems = append(problems, artifact.Problem{Path: path, Constraint: "enum", Message: "give one of " + strings.Join(allowed, ", "), Value: artifact.Received(value)})
		}
	}
	enum("/kind", r.Kind, CandidateArtifact, CandidateTag)
	enum("/status", r.Status, CandidatePending, CandidateApproved, CandidateRejected)
	if p.Status = r.Status; p.Status == "" {
		p.Status = CandidatePending
	}
	p.Limit = candidatesPage
	if r.Limit != nil {
		if p.Limit = *r.Limit; p.Limit < 1 || p.Limit > MaxCandidatesPage {
			problems = append(problems, artifact.Problem{
				Path: "/limit", Constraint: "range", Message: "a page has 1 to " + strconv.Itoa(MaxCandidatesPage) + " candidates", Value: json.RawMessage(strconv.Itoa(*r.Limit)),
			})
		}
	}
	if problems != nil {
		return p, artifact.Invalid(problems...)
	}
	p.After, err = r.after()
	return p, err
}

// NextCursorAfter returns the cursor of the page after a candidate.
func (r *CandidatesListRequest) NextCursorAfter(p CandidatePlace) string {
	return EncodeNameCursor(strconv.FormatInt(p.At.UnixMicro(), 10)+" "+p.ID, r.filter())
}

// maxMicros is the end of the year 9999: a time above it is in no list.
const maxMicros = 253_402_300_799_999_999

func (r *CandidatesListRequest) after() (*CandidatePlace, error) {
	last, err := DecodeNameCursor(r.Cursor, r.filter())
	if err != nil || last == "" {
		return nil, err
	}
	at, id, _ := strings.Cut(last, " ")
	micros, err := strconv.ParseInt(at, 10, 64)
	if err != nil || micros < 0 || micros > maxMicros || !artifact.ValidID(id) {
		return nil, invalidCursor(r.Cursor, "it was not given by this list")
	}
	return &CandidatePlace{time.UnixMicro(micros).UTC(), id}, nil
}

func (r *CandidatesListRequest) filter() string {
	own := *r
	own.Limit, own.Cursor = nil, ""
	raw, err := json.Marshal(own)
	if err != nil { // texts alone
		return ""
	}
	return "candidates\n" + string(raw)
}
