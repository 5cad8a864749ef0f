package view

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// CreateResult is an outcome of creating.
type CreateResult interface{ IsCreateResult() }

// UpdateResult is an outcome of updating.
type UpdateResult interface{ IsUpdateResult() }

// Problem is an expected outcome that the caller can act on.
type Problem interface{ IsProblem() }

// WriteResult confirms a write.
type WriteResult struct {
	Ref              artifact.Ref
	ContentHash      artifact.Hash
	Revision         int
	Artifact         Artifact
	Created          bool
	RequestID        string
	Idempotency      IdempotencyOutcome
	Warnings         []*FieldProblem
	ProvenanceRefs   []artifact.Ref
	EventID          *artifact.Seq
	ConsistencyToken *string
}

// IsCreateResult implements [CreateResult].
func (*WriteResult) IsCreateResult() {}

// IsUpdateResult implements [UpdateResult].
func (*WriteResult) IsUpdateResult() {}

// NewWriteResult returns the view of a write's answer, with the artifact that it
// wrote.
func NewWriteResult(r verb.WriteResult, a artifact.Artifact) *WriteResult {
	v := &WriteResult{
		Ref: r.Ref, ContentHash: r.ContentHash, Revision: r.Revision, Artifact: NewArtifact(a, false), Created: r.Created,
		RequestID: r.RequestID, Idempotency: IdempotencyOutcome(r.Idempotency),
		Warnings: fieldProblems(r.Warnings), ProvenanceRefs: []artifact.Ref{}, ConsistencyToken: optional(r.ConsistencyToken),
	}
	if r.Seq > 0 {
		v.EventID = &r.Seq
	}
	for _, s := range r.ProvenanceRefs {
		if ref, err := artifact.ParseRef(s); err == nil {
			v.ProvenanceRefs = append(v.ProvenanceRefs, ref)
		}
	}
	return v
}

// CandidateProposed says that a change waits for review.
type CandidateProposed struct {
	verb.ProposedCandidate
	RequestID string
	Warnings  []*FieldProblem
}

// IsCreateResult implements [CreateResult].
func (*CandidateProposed) IsCreateResult() {}

// IsUpdateResult implements [UpdateResult].
func (*CandidateProposed) IsUpdateResult() {}

// NewCandidateProposed returns the view of a write's answer that waits for review.
func NewCandidateProposed(r verb.WriteResult) *CandidateProposed {
	return &CandidateProposed{*r.Candidate, r.RequestID, fieldProblems(r.Warnings)}
}

// FieldProblem is one fault of an input.
type FieldProblem struct {
	Path          string
	Constraint    string
	Message       string
	ValueReceived json.RawMessage
	Suggestion    json.RawMessage
}

func fieldProblems(in []artifact.Problem) []*FieldProblem {
	out := make([]*FieldProblem, len(in))
	for i, p := range in {
		out[i] = &FieldProblem{p.Path, p.Constraint, p.Message, p.Value, p.Suggestion}
	}
	return out
}

// failure gives a problem type the fields of the interface Problem. A pointer of
// each concrete type is a member of both results.
type failure struct {
	Code         ProblemCode
	Reason       string
	Message      string
	RequestID    string
	Retryable    bool
	RetryAfterMs *int
}

// IsProblem implements [Problem].
func (*failure) IsProblem() {}

// IsCreateResult implements [CreateResult].
func (*failure) IsCreateResult() {}

// IsUpdateResult implements [UpdateResult].
func (*failure) IsUpdateResult() {}

// The problems, by the code of the error that each shows.
type (
	// ValidationFailed shows validation_failed.
	ValidationFailed struct {
		failure
		Problems []*FieldProblem
	}
	// VersionConflict shows version_conflict.
	VersionConflict struct {
		failure
		YourBase *artifact.Hash
		Current  *CurrentVersion
	}
	// NotFound shows not_found.
	NotFound struct{ failure }
	// PermissionDenied shows permission_denied.
	PermissionDenied struct {
		failure
		Needs *Permission
	}
	// LifecycleViolation shows lifecycle_violation.
	LifecycleViolation struct {
		failure
		From, To string
		Allowed  []string
	}
	// MutabilityViolation shows mutability_violation.
	MutabilityViolation struct {
		failure
		AllowedVerbs []string
	}
	// LinkTargetMissing shows link_target_missing.
	LinkTargetMissing struct {
		failure
		Refs []string
	}
	// HubUnavailable shows unavailable.
	HubUnavailable struct {
		failure
		OutcomeUnknown bool
	}
)

// CurrentVersion is the version that is current at the hub.
type CurrentVersion struct {
	Ref            artifact.Ref
	Revision       int
	Title          string
	LifecycleState *string
	Content        json.RawMessage
	ChangedBy      *Agent
	ChangedAt      time.Time
}

// A WriteProblem is a problem that any write may answer.
type WriteProblem interface {
	Problem
	CreateResult
	UpdateResult
}

// NewProblem returns the problem that shows e, or nil for an error that no
// caller can act on.
func NewProblem(e *artifact.Error) WriteProblem {
	f := failure{
		Code: ProblemCode(e.Code), Reason: e.Reason, Message: e.Message, RequestID: e.RequestID, Retryable: e.Retryable,
	}
	if f.Reason == "" {
		f.Reason = string(e.Code)
	}
	if e.RetryAfterMS > 0 {
		ms := int(e.RetryAfterMS)
		f.RetryAfterMs = &ms
	}
	switch e.Code {
	case artifact.CodeValidationFailed:
		return &ValidationFailed{f, fieldProblems(e.Problems)}
	case artifact.CodeVersionConflict:
		if e.Conflict == nil || e.Conflict.Current == nil {
			return nil
		}
		return newVersionConflict(f, e.Conflict)
	case artifact.CodeNotFound:
		return &NotFound{f}
	case artifact.CodePermissionDenied:
		p := &PermissionDenied{failure: f}
		if needs, ok := e.Details["needs"].(string); ok {
			needs, _, _ = strings.Cut(needs, " or ") // the enum names one: the first is whose the verb is
			permission := Permission(needs)
			p.Needs = &permission
		}
		return p
	case artifact.CodeLifecycleViolation:
		from, _ := e.Details["from"].(string)
		to, _ := e.Details["to"].(string)
		return &LifecycleViolation{f, from, to, texts(e.Details["allowed"])}
	case artifact.CodeMutability:
		return &MutabilityViolation{f, texts(e.Details["allowed_verbs"])}
	case artifact.CodeLinkTargetMissing:
		return &LinkTargetMissing{f, texts(e.Details["refs"])}
	case artifact.CodeUnavailable:
		unknown, _ := e.Details["outcome_unknown"].(bool)
		return &HubUnavailable{f, unknown}
	case artifact.CodeRateLimited, artifact.CodeInternal: // the schema has no type for them
	}
	return nil
}

func newVersionConflict(f failure, c *artifact.Conflict) *VersionConflict {
	v := &VersionConflict{failure: f, Current: &CurrentVersion{
		Ref: c.Current.Ref, Revision: c.Current.Revision, Title: c.Current.Title, LifecycleState: optional(c.Current.State),
		Content: c.Current.Content, ChangedBy: NewAgent(c.Current.ChangedBy), ChangedAt: c.Current.ChangedAt,
	}}
	if base, err := artifact.ParseHash(c.YourBase); err == nil {
		v.YourBase = &base
	}
	return v
}

// texts reads a list of strings, whether it crossed JSON or not.
func texts(v any) []string {
	out := []string{}
	switch list := v.(type) {
	case []string:
		out = append(out, list...)
	case []any:
		for _, x := range list {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
	}
	return out
}

// StringFilter narrows by a text.
type StringFilter struct {
	Eq *string
}

// ArtifactFilter narrows a list of artifacts.
type ArtifactFilter struct {
	Type *StringFilter
}

// LinkInput is a link from the artifact that is created with it.
type LinkInput struct {
	Predicate    string
	To           artifact.Ref
	EvidenceRefs []artifact.Ref
	Evidence     json.RawMessage
}

// CreateArtifactInput asks for a new artifact.
type CreateArtifactInput struct {
	Type           string
	LocalID        *string
	Scope          *string
	Title          string
	Content        json.RawMessage
	Links          []*LinkInput
	LifecycleState *string
	IdempotencyKey *string
	DryRun         *bool
}

// Request returns the verb's request.
func (in *CreateArtifactInput) Request() verb.CreateRequest {
	r := verb.CreateRequest{
		Type: in.Type, ID: value(in.LocalID), Scope: value(in.Scope), Title: in.Title, Content: in.Content, State: value(in.LifecycleState),
		WriteOptions: verb.WriteOptions{IdempotencyKey: value(in.IdempotencyKey), DryRun: value(in.DryRun)},
	}
	for _, l := range in.Links {
		spec := verb.LinkSpec{Predicate: l.Predicate, To: l.To.String(), Evidence: l.Evidence}
		for _, ref := range l.EvidenceRefs {
			spec.EvidenceRefs = append(spec.EvidenceRefs, ref.String())
		}
		r.Links = append(r.Links, spec)
	}
	return r
}

// ContentChange is one way to say what changes.
type ContentChange struct {
	Replace    json.RawMessage
	Patch      json.RawMessage
	MergePatch json.RawMessage
}

// UpdateArtifactInput asks for a new version.
type UpdateArtifactInput struct {
	Ref             artifact.Ref
	BaseContentHash artifact.Hash
	Change          *ContentChange
	Title           *string
	LifecycleState  *string
	Note            *string
	IdempotencyKey  *string
	DryRun          *bool
}

// Request returns the verb's request. The verb checks that exactly one way of
// changing is given: the engine checks literals alone.
func (in *UpdateArtifactInput) Request() verb.UpdateRequest {
	return verb.UpdateRequest{
		Ref: in.Ref.String(), BaseContentHash: in.BaseContentHash,
		Content: in.Change.Replace, Patch: in.Change.Patch, MergePatch: in.Change.MergePatch,
		Title: value(in.Title), State: value(in.LifecycleState), Note: value(in.Note),
		WriteOptions: verb.WriteOptions{IdempotencyKey: value(in.IdempotencyKey), DryRun: value(in.DryRun)},
	}
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
