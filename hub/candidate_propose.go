package hub

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// derivesFrom is the predicate of a link to what something rests on.
const derivesFrom = "derives_from"

// A review tells an op that it is part of a candidate's life: it is tried for who
// proposes it, or done for who approves it. Nil is neither.
type review struct{}

// roles returns those by which the lifecycle moves. What is proposed moves by the
// reviewer's who will approve it.
func (r *review) roles(c *verb.Caller, scope string) []verb.Permission {
	roles := c.RolesIn(scope)
	if r == nil || slices.Contains(roles, verb.Reviewer) {
		return roles
	}
	return append(slices.Clone(roles), verb.Reviewer)
}

// proposes reports whether what the caller creates or updates of a type waits for
// review. A reviewer proposes types, which an admin changes at once.
func proposes(c *verb.Caller, s *artifact.Schema) bool {
	if s.Type == artifact.SchemaType {
		return !c.Has(verb.Admin, artifact.Commons) && c.Has(verb.Reviewer, artifact.Commons)
	}
	return s.WritePolicy == artifact.WritePropose
}

// newProposedCreate is newCreate for what waits for review.
func (h *Hub) newProposedCreate(c *verb.Caller, in *verb.CreateRequest, s *artifact.Schema) (*proposeOp, error) {
	if err := unsigned(in.AdditionalSignatures); err != nil {
		return nil, err
	}
	o, err := h.checkCreate(c, in, s, provenance(c, verb.Create.Name, false), new(review), nil)
	if err != nil {
		return nil, err
	}
	id := in.ID
	if s.Type == artifact.SchemaType {
		id = o.ref.ID
	}
	return &proposeOp{tried: tried{create: o, id: id, links: in.Links}, requestID: c.RequestID}, nil
}

// newProposedUpdate is newUpdate for what waits for review.
func (h *Hub) newProposedUpdate(c *verb.Caller, in *verb.UpdateRequest, s *artifact.Schema) (*proposeOp, error) {
	if err := unsigned(in.AdditionalSignatures); err != nil {
		return nil, err
	}
	o, err := h.checkUpdate(c, in, s.Type, provenance(c, verb.Update.Name, false), new(review))
	if err != nil {
		return nil, err
	}
	return &proposeOp{tried: tried{update: o}, reason: in.Note, requestID: c.RequestID}, nil
}

// unsigned refuses signatures: they are of a version, and a proposal is none.
func unsigned(signatures []json.RawMessage) error {
	if len(signatures) == 0 {
		return nil
	}
	return artifact.Invalid(artifact.Problem{
		Path: "/additional_signatures", Constraint: "unsigned", Message: "a change that waits for review is not signed: who approves it writes the version",
	})
}

// tried is a write that is tried, as if it were to be done now, and undone.
type tried struct {
	create *createOp // one of the two
	update *updateOp
	id     string          // that was asked for
	links  []verb.LinkSpec // of what is to be made
}

func (t *tried) op() op {
	if t.create != nil {
		return t.create
	}
	return t.update
}

// of returns what is written, not pinned.
func (t *tried) of() artifact.Ref {
	if t.create != nil {
		return t.create.ref.Current()
	}
	return t.update.ref
}

// needs implements op, for those that it is a part of, as do load and reads.
func (t *tried) needs(n *needs) { t.op().needs(n) }

func (t *tried) load(ctx context.Context, db querier, s *state) error {
	if l, ok := t.op().(loader); ok {
		return l.load(ctx, db, s)
	}
	return nil
}

func (t *tried) reads(s *state, round readRound, r *reads) {
	if o, ok := t.op().(reader); ok {
		o.reads(s, round, r)
	}
}

// try returns what the write would make of the artifact, in which scope, and which
// version it would change. Same means that it would change nothing.
func (t *tried) try(s *state) (p verb.Proposal, scope string, target *verb.ExactRef, same bool, err error) {
	start := s.savepoint()
	defer s.rollback(start)
	if t.create != nil {
		if err = t.create.decide(s); err == nil {
			err = t.linksKnown(s)
		}
		return verb.Proposal{ID: t.id, Title: t.create.title, State: t.create.state, Content: t.create.content, Links: t.links}, t.create.scope, nil, false, err
	}
	if current := s.heads[t.update.ref]; current != nil {
		target = exact(current)
	}
	if err := t.update.decide(s); err != nil {
		return p, "", nil, false, err
	}
	next := s.heads[t.update.ref]
	return verb.Proposal{Title: next.Title, State: next.State, Content: next.content}, next.Scope, target, t.update.same, nil
}

// linksKnown refuses links to what not all may know of who see the candidate. A link
// that is made at once stands where its target does; a candidate lists it.
func (t *tried) linksKnown(s *state) error {
	var problems []artifact.Problem
	for i, l := range t.create.links {
		h := s.heads[l.to.Current()]
		if h == nil || h.audience != participants && (h.Scope == artifact.Commons || h.Scope == t.create.scope) {
			continue
		}
		problems = append(problems, artifact.Problem{
			Path: "/links/" + strconv.Itoa(i) + "/to", Constraint: "scope", Value: artifact.Received(l.toText),
			Message: "what waits for review links to what all see who see the candidate: in its scope or in commons",
		})
	}
	if problems == nil {
		return nil
	}
	return artifact.Invalid(problems...)
}

// evidence returns what the artifact to be made says that it rests on.
func (t *tried) evidence(s *state) []verb.ExactRef {
	all := []verb.ExactRef{}
	if t.create == nil {
		return all
	}
	for _, l := range t.create.links {
		h := s.heads[l.to.Current()]
		if l.predicate != derivesFrom || h == nil || l.to.IsPinned() && l.to.Hash != h.ContentHash {
			continue
		}
		if e := *exact(h); !slices.Contains(all, e) && len(all) < verb.MaxCandidateEvidence {
			all = append(all, e)
		}
	}
	return all
}

// warnings are those of the write, but for what is said of ids that pass.
func (t *tried) warnings() []artifact.Problem {
	warned := []artifact.Problem{}
	if t.create != nil {
		warned = append(warned, t.create.warnings...)
	} else {
		warned = append(warned, t.update.warnings...)
	}
	return slices.DeleteFunc(warned, func(p artifact.Problem) bool { return p.Constraint == "dry_run" })
}

// exact returns the name of an artifact's current version.
func exact(h *head) *verb.ExactRef {
	return &verb.ExactRef{Family: h.Type, ArtifactID: h.ID, Revision: h.Head.Revision, ContentHash: h.ContentHash}
}

// A proposeOp keeps a create or an update as a candidate. All that refuses the write
// refuses the proposal.
type proposeOp struct {
	tried
	reason    string
	requestID string

	made *candidate // decided; nil when nothing would change
}

var (
	_ loader = (*proposeOp)(nil)
	_ reader = (*proposeOp)(nil)
)

func (o *proposeOp) decide(s *state) error {
	o.made = nil
	proposal, scope, target, same, err := o.try(s)
	if err != nil || same {
		return err
	}
	c := &candidate{authorKind: s.caller.Actor.Kind, Candidate: verb.Candidate{
		ScopeID: scope, CandidateID: newUUID(), CandidateKind: verb.CandidateArtifact, Family: o.of().Type, Origin: verb.OriginManual,
		Version: 1, Status: verb.CandidatePending, Proposal: proposal, Target: target, Artifacts: o.evidence(s), Reason: o.reason,
		CreatedBy: s.caller.Actor.ID, CreatedAt: s.caller.Now, WrittenBy: s.caller.Actor.ID, WrittenAt: s.caller.Now,
	}}
	if target != nil {
		c.Artifacts = append([]verb.ExactRef{*target}, c.Artifacts...)
	}
	o.made = c
	return s.putCandidate(c)
}

const (
	insertCandidateQuery = `
		INSERT INTO candidate (scope, id, kind, family, origin, version, status, target_type, target_id, target_revision, created_by, created_by_kind, created_at)
		VALUES ($1, $2, $3, $4, $5, 1, 'pending', $6, $7, $8, $9, $10, $11)`
	insertCandidateVersionQuery = `
		INSERT INTO candidate_version (scope, id, version, proposal, proposal_digest, evidence, reason, written_by, written_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
)

// putCandidate writes a new candidate and tells of it.
func (s *state) putCandidate(c *candidate) error {
	var typ, id *string
	var revision *int
	if c.Target != nil {
		typ, id, revision = &c.Target.Family, &c.Target.ArtifactID, &c.Target.Revision
	}
	s.also(insertCandidateQuery, c.ScopeID, c.CandidateID, c.CandidateKind, c.Family, c.Origin, typ, id, revision, c.CreatedBy, c.authorKind, c.CreatedAt)
	if err := s.putCandidateVersion(c); err != nil {
		return err
	}
	return s.tellCandidate(c, "created")
}

// putCandidateVersion writes the version that a candidate is at.
func (s *state) putCandidateVersion(c *candidate) error {
	raw, err := json.Marshal(c.Proposal)
	if err != nil {
		return err
	}
	proposal, err := artifact.Recanonical(raw)
	if err != nil {
		return err
	}
	evidence, err := json.Marshal(c.Artifacts)
	if err != nil {
		return err
	}
	digest := artifact.HashBytes(proposal)
	s.also(insertCandidateVersionQuery, c.ScopeID, c.CandidateID, c.Version, string(proposal), digest[:], string(evidence), c.Reason, c.WrittenBy, c.WrittenAt)
	return nil
}

// tellCandidate adds the row and the event of what became of a candidate: ids and
// codes alone. Both are internal.
func (s *state) tellCandidate(c *candidate, what string) error {
	told := map[string]any{
		"candidate_id": c.CandidateID, "candidate_kind": c.CandidateKind, "family": c.Family, "scope_id": c.ScopeID, "status": c.Status, "version": c.Version,
	}
	s.rows.internal = true
	return s.rows.put(c.ScopeID, kindCandidate, c.Ref(), c.Version, noHash, told, &eventOf{typ: kindCandidate + "." + what, ref: c.Ref(), payload: told})
}

func (o *proposeOp) answer(seq artifact.Seq, token string) any {
	if o.made == nil {
		return o.update.answer(seq, token)
	}
	return &verb.WriteResult{
		Candidate: &verb.ProposedCandidate{
			ScopeID: o.made.ScopeID, CandidateID: o.made.CandidateID, CandidateKind: o.made.CandidateKind,
			Family: o.made.Family, Version: o.made.Version, Status: o.made.Status,
		},
		RequestID: o.requestID, Idempotency: verb.IdempotencyNone, ProvenanceRefs: []string{}, Warnings: o.warnings(), Seq: seq, ConsistencyToken: token,
	}
}

// stampOf returns the provenance of what an approval writes.
func stampOf(c *verb.Caller, of *candidate) replicate.Provenance {
	p := provenance(c, verb.CandidatesApprove.Name, false)
	p.Candidate, p.ProposedBy = of.Ref(), of.CreatedBy
	for i := range of.Artifacts {
		if e := &of.Artifacts[i]; of.Target == nil || *e != *of.Target {
			p.Evidence = append(p.Evidence, e.Ref().String())
		}
	}
	return p
}
