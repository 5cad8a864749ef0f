package hub

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// maxStaleReads bounds how often a decision is begun again because the candidate was
// revised between its two reads.
const maxStaleReads = 4

// errStaleCandidate means that a candidate was revised since it was read.
var errStaleCandidate = errors.New("the candidate was revised meanwhile")

// candidatesApprove answers the verb of that name.
func (h *Hub) candidatesApprove(ctx context.Context, in verb.CandidatesApproveRequest) (verb.Candidate, error) {
	d := &decideOp{key: candidateKey{in.ScopeID, in.CandidateID}, expected: in.ExpectedVersion, how: approve{}}
	return h.decideCandidate(ctx, verb.CandidatesApprove.Name, in, in.WriteOptions, d, checkVersionGiven(in.ExpectedVersion))
}

// candidatesReject answers the verb of that name.
func (h *Hub) candidatesReject(ctx context.Context, in verb.CandidatesRejectRequest) (verb.Candidate, error) {
	d := &decideOp{key: candidateKey{in.ScopeID, in.CandidateID}, expected: in.ExpectedVersion, how: &reject{reason: in.Reason}}
	problems := append(checkVersionGiven(in.ExpectedVersion), checkWhy(in.Reason)...)
	return h.decideCandidate(ctx, verb.CandidatesReject.Name, in, in.WriteOptions, d, problems)
}

// checkWhy checks why something is decided.
func checkWhy(reason string) []artifact.Problem {
	p := artifact.Problem{Path: "/reason", Value: artifact.Received(reason)}
	switch n := utf8.RuneCountInString(reason); {
	case n == 0:
		p.Constraint, p.Message = "required", "say why"
	case n > verb.MaxCandidateReason:
		p.Constraint, p.Message = "max_length", "a reason is at most "+strconv.Itoa(verb.MaxCandidateReason)+" characters"
	case strings.TrimSpace(reason) != reason:
		p.Constraint, p.Message = "trimmed", "a reason neither begins nor ends with a space"
	default:
		return nil
	}
	return []artifact.Problem{p}
}

// decideCandidate checks in the order that every decision does: the request's shape,
// whether the scope is seen, the right to decide, that the candidate is there; and
// the rest in the transaction, which has the candidate locked.
func (h *Hub) decideCandidate(ctx context.Context, name string, in any, options verb.WriteOptions, d *decideOp, problems []artifact.Problem) (out verb.Candidate, err error) {
	c, err := verb.CallerFrom(ctx)
	switch {
	case err != nil:
		return out, err
	case problems != nil:
		return out, artifact.Invalid(problems...)
	case !slices.Contains(c.VisibleScopes(), d.key.scope):
		return out, noCandidate()
	}
	if err := c.Need(d.key.scope, "deciding on candidates", verb.Reviewer); err != nil {
		return out, err
	}
	for range maxStaleReads {
		found, err := h.findCandidate(ctx, c, d.key.scope, d.key.id)
		if err != nil {
			return out, callerError(err)
		}
		if err := h.schemas.ensure(ctx, h.db, found.Family); err != nil {
			return out, err
		}
		out, err = single[verb.Candidate](ctx, h, c, &writeRequest{
			verb: name, request: in, options: options,
			prepare: func() ([]op, error) {
				d.read, d.evidence = found, found.Artifacts
				d.writes, d.unfit, d.cites = nil, nil, nil
				if found.Status == verb.CandidatePending && found.Version == d.expected {
					d.unfit = d.how.prepare(h, c, d)
				}
				return []op{d}, nil
			},
		})
		if !errors.Is(err, errStaleCandidate) {
			return out, err
		}
	}
	return out, errBusy()
}

// A decision is a way to go on with a pending candidate.
type decision interface {
	// prepare makes what the decision tries or writes, by the schemas as they are now.
	prepare(h *Hub, c *verb.Caller, d *decideOp) error
	// decide makes of the candidate, of which a copy is given, what becomes of it.
	decide(s *state, d *decideOp, next *candidate) error
}

// A decideOp decides on one candidate at a version.
type decideOp struct {
	key      candidateKey
	expected int
	how      decision

	read     *candidate // before the transaction
	writes   *tried     // what it writes, or tries; nil for nothing
	cites    []*linkOp  // to what it rests on
	unfit    error      // why there are no writes
	evidence []verb.ExactRef

	available []evidenceState // loaded, as evidence
	next      *candidate      // decided
}

var (
	_ loader = (*decideOp)(nil)
	_ reader = (*decideOp)(nil)
)

func (d *decideOp) needs(n *needs) {
	n.review = &d.key
	if t := d.read.Target; t != nil {
		n.share[t.Ref().Current()] = true
	}
	for _, l := range d.cites {
		l.needs(n)
	}
	if d.writes != nil {
		d.writes.needs(n)
	}
}

func (d *decideOp) reads(s *state, round readRound, r *reads) {
	if d.writes != nil {
		d.writes.reads(s, round, r)
	}
	for _, l := range d.cites {
		l.reads(s, round, r)
	}
}

// evidenceQuery finds exact versions, of what the caller may see and of what it may
// not.
const evidenceQuery = `
	SELECT k.n, r.content_hash, a.scope, r.redaction IS NOT NULL, (` + visibleVersion + `)
	FROM unnest($3::text[], $4::text[], $5::integer[]) WITH ORDINALITY AS k (type, id, revision, n)
	JOIN artifact a ON a.type = k.type AND a.id = k.id
	JOIN artifact_revision r ON r.type = k.type AND r.id = k.id AND r.revision = k.revision`

// An evidenceState is what of a piece of evidence is there; zero when nothing is.
type evidenceState struct {
	hash           artifact.Hash
	scope          string
	redacted, seen bool
}

func (d *decideOp) load(ctx context.Context, db querier, s *state) error {
	d.available = make([]evidenceState, len(d.evidence))
	if len(d.evidence) > 0 {
		var types, ids []string
		var revisions []int32
		for _, e := range d.evidence {
			types, ids, revisions = append(types, e.Family), append(ids, e.ArtifactID), append(revisions, int32(e.Revision)) //nolint:gosec // checked
		}
		rows, err := db.Query(ctx, evidenceQuery, s.scopes, s.caller.Actor.ID, types, ids, revisions)
		if err != nil {
			return err
		}
		var n int
		var e evidenceState
		var hash []byte
		if _, err := pgx.ForEachRow(rows, []any{&n, &hash, &e.scope, &e.redacted, &e.seen}, func() error {
			e.hash = artifact.Hash(hash)
			d.available[n-1] = e
			return nil
		}); err != nil {
			return err
		}
	}
	if d.writes != nil {
		return d.writes.load(ctx, db, s)
	}
	return nil
}

func (d *decideOp) decide(s *state) error {
	now := s.candidate
	if now == nil {
		return noCandidate()
	}
	if err := d.mayDecide(s, now); err != nil {
		return err
	}
	_, approving := d.how.(approve)
	switch {
	case now.Status == verb.CandidateApproved && approving && d.expected == now.Version:
		d.next = now // as it was answered before
		return nil
	case now.Status == verb.CandidateApproved && approving && d.expected > now.Version:
		return staleCandidate(d.expected, now.Version)
	case now.Status != verb.CandidatePending:
		return &artifact.Error{
			Code: artifact.CodeLifecycleViolation, Reason: artifact.ReasonCandidateTerminal, Message: "the candidate was " + now.Status + ", which is final",
			Details: map[string]any{"status": now.Status},
		}
	case d.expected != now.Version:
		return staleCandidate(d.expected, now.Version)
	case d.read.Version != now.Version:
		return errStaleCandidate
	}
	next := *now
	s.decides = true
	if err := d.how.decide(s, d, &next); err != nil {
		return err
	}
	d.next = &next
	return nil
}

func staleCandidate(expected, current int) error {
	return &artifact.Error{
		Code: artifact.CodeVersionConflict, Reason: artifact.ReasonCandidateConflict, Message: "the candidate is at version " + strconv.Itoa(current),
		Details: map[string]any{"expected_version": expected, "current_version": current},
	}
}

// mayDecide asks, beside the right to review, for that to change what it is about: a
// reviewer in commons has it, and in a private scope a contributor, or who made what
// is changed.
func (d *decideOp) mayDecide(s *state, now *candidate) error {
	if now.ScopeID == artifact.Commons {
		return nil
	}
	if now.Target != nil {
		if h := s.heads[now.Target.Ref().Current()]; h != nil && h.CreatedBy == s.caller.Actor.ID {
			return nil
		}
	}
	return s.caller.Need(now.ScopeID, "writing what the candidate is about", verb.Contributor)
}

// checkEvidence refuses evidence that is not there for the caller. What the candidate
// rests on its readers know of; what the caller names and may not see is not there.
func (d *decideOp) checkEvidence(now *candidate) error {
	var problems []artifact.Problem
	for i, e := range d.available {
		of := &d.evidence[i]
		if !e.seen && !e.hash.IsZero() && slices.Contains(now.Artifacts, *of) {
			return artifact.Denied("the candidate rests on something that you may not read")
		}
		if !e.seen || e.redacted || e.scope != artifact.Commons && e.scope != now.ScopeID || !of.ContentHash.IsZero() && of.ContentHash != e.hash {
			problems = append(problems, artifact.Problem{
				Path: "/artifacts/" + strconv.Itoa(i), Constraint: "available", Value: artifact.Received(of.Family + ":" + of.ArtifactID),
				Message: "revision " + strconv.Itoa(of.Revision) + " is not there, was redacted, or is not where the candidate is",
			})
		}
	}
	if problems == nil {
		return nil
	}
	e := artifact.Invalid(problems...)
	e.Reason = artifact.ReasonEvidenceUnavailable
	return e
}

// checkTarget refuses a target that is not as it was when the change was proposed.
// Nothing is merged.
func checkTarget(s *state, now *candidate) error {
	t := now.Target
	if t == nil {
		return nil
	}
	h := s.heads[t.Ref().Current()]
	if h != nil && h.Scope == now.ScopeID && *exact(h) == *t {
		return nil
	}
	var current any
	if h != nil && h.Scope == now.ScopeID {
		current = exact(h)
	}
	return artifactConflict("what the candidate would change is not as it was when that was proposed", t, current)
}

func artifactConflict(message string, target *verb.ExactRef, current any) error {
	return &artifact.Error{
		Code: artifact.CodeVersionConflict, Reason: artifact.ReasonArtifactConflict, Message: message, Details: map[string]any{"target": target, "current": current},
	}
}

// refusal returns why a proposal is not written, in the words of a decision.
func refusal(err error) error {
	e, ok := errors.AsType[*artifact.Error](err)
	if !ok || e.Code != artifact.CodeVersionConflict {
		return at(err, "/proposal")
	}
	var current any
	if e.Conflict != nil && e.Conflict.Current != nil {
		v := e.Conflict.Current
		current = verb.ExactRef{Family: v.Ref.Type, ArtifactID: v.Ref.ID, Revision: v.Revision, ContentHash: v.Ref.Hash}
	}
	return artifactConflict(e.Message, nil, current)
}

// writing makes what writes a proposal.
func (d *decideOp) writing(h *Hub, c *verb.Caller, p *verb.Proposal) error {
	schema := h.schemas.get(d.read.Family)
	if schema == nil {
		return artifact.Invalid(artifact.UnknownType(d.read.Family, h.schemas.types(), "/family"))
	}
	r, stamp := new(review), stampOf(c, d.read)
	if t := d.read.Target; t != nil {
		o, err := h.checkUpdate(c, &verb.UpdateRequest{
			Ref: t.Ref().Current().String(), BaseContentHash: t.ContentHash, Title: p.Title, State: p.State, Content: p.Content, Note: d.read.Reason,
		}, t.Family, stamp, r)
		if err == nil {
			d.writes = &tried{update: o}
		}
		return err
	}
	o, err := h.checkCreate(c, &verb.CreateRequest{
		Type: d.read.Family, ID: p.ID, Scope: d.read.ScopeID, Title: p.Title, State: p.State, Content: p.Content, Links: p.Links,
	}, schema, stamp, r, nil)
	if err == nil {
		d.writes = &tried{create: o, id: p.ID, links: p.Links}
	}
	return err
}

// approve writes what a candidate proposes.
type approve struct{}

func (approve) prepare(h *Hub, c *verb.Caller, d *decideOp) error {
	if err := d.writing(h, c, &d.read.Proposal); err != nil {
		return err
	}
	schema, from := h.schemas.get(d.read.Family), d.writes.of()
	for i := range d.evidence {
		e := &d.evidence[i]
		known := d.read.Target != nil && *e == *d.read.Target || slices.ContainsFunc(d.read.Proposal.Links, func(l verb.LinkSpec) bool {
			to, err := artifact.ParseRef(l.To)
			return err == nil && l.Predicate == derivesFrom && to.Current() == e.Ref().Current()
		})
		if known || schema.CheckLink(derivesFrom, e.Family, "") != nil {
			continue // its provenance tells of it all the same
		}
		l, problems := h.newLink(&verb.LinkRequest{From: from.String(), LinkSpec: verb.LinkSpec{Predicate: derivesFrom, To: e.Ref().String()}}, "")
		if problems == nil {
			d.cites = append(d.cites, l)
		}
	}
	return nil
}

func (approve) decide(s *state, d *decideOp, next *candidate) error {
	if err := d.checkEvidence(next); err != nil {
		return err
	}
	if err := checkTarget(s, next); err != nil {
		return err
	}
	if d.unfit != nil {
		return refusal(d.unfit)
	}
	s.author = artifact.Actor{ID: next.CreatedBy, Kind: next.authorKind}
	if err := d.writes.op().decide(s); err != nil {
		if errors.Is(err, errNeedsContent) || errors.Is(err, errStaleSchemas) {
			return err
		}
		return refusal(err)
	}
	for _, l := range d.cites {
		if err := l.decide(s); err != nil {
			return refusal(err)
		}
	}
	next.Status, next.ResultArtifact = verb.CandidateApproved, exact(s.heads[d.writes.of()])
	return s.endCandidate(next, "approved")
}

const endCandidateQuery = `
	UPDATE candidate SET status = $3, decided_by = $4, decided_at = $5, decision_reason = nullif($6, ''),
		result_type = $7, result_id = $8, result_revision = $9, result_content_hash = $10
	WHERE scope = $1 AND id = $2`

// endCandidate writes a decision and tells of it.
func (s *state) endCandidate(c *candidate, what string) error {
	c.DecidedBy, c.DecidedAt = s.caller.Actor.ID, s.caller.Now
	var typ, id *string
	var revision *int
	var hash []byte
	if r := c.ResultArtifact; r != nil {
		typ, id, revision, hash = &r.Family, &r.ArtifactID, &r.Revision, r.ContentHash[:]
	}
	s.also(endCandidateQuery, c.ScopeID, c.CandidateID, c.Status, c.DecidedBy, c.DecidedAt, c.DecisionReason, typ, id, revision, hash)
	return s.tellCandidate(c, what)
}

// reject ends a candidate without writing anything of it.
type reject struct{ reason string }

func (*reject) prepare(*Hub, *verb.Caller, *decideOp) error { return nil }

func (r *reject) decide(s *state, _ *decideOp, next *candidate) error {
	next.Status, next.DecisionReason = verb.CandidateRejected, r.reason
	return s.endCandidate(next, "rejected")
}

func (d *decideOp) answer(artifact.Seq, string) any {
	answer := d.next.Candidate
	if answer.Proposal.Content == nil {
		answer.Proposal.Content = json.RawMessage("{}")
	}
	return &answer
}
