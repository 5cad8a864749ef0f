package hub

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// candidatesRevise answers the verb of that name.
func (h *Hub) candidatesRevise(ctx context.Context, in verb.CandidatesReviseRequest) (verb.Candidate, error) {
	problems := checkVersionGiven(in.ExpectedVersion)
	if in.Reason != "" {
		problems = append(problems, checkWhy(in.Reason)...)
	}
	r := &revise{in: &in}
	if in.Artifacts != nil {
		r.evidence = []verb.ExactRef{}
		for i, e := range *in.Artifacts {
			if e.Revision < 1 || e.Revision > math.MaxInt32 {
				problems = append(problems, artifact.Problem{
					Path: "/artifacts/" + strconv.Itoa(i) + "/revision", Constraint: "range", Message: "revisions count from 1", Value: json.RawMessage(strconv.Itoa(e.Revision)),
				})
			}
			if !slices.ContainsFunc(r.evidence, func(o verb.ExactRef) bool {
				return o.Family == e.Family && o.ArtifactID == e.ArtifactID && o.Revision == e.Revision
			}) {
				r.evidence = append(r.evidence, e)
			}
		}
		if len(r.evidence) > verb.MaxCandidateEvidence {
			e := artifact.Invalid(artifact.Problem{Path: "/artifacts", Constraint: "max_items", Message: "a candidate rests on at most " + strconv.Itoa(verb.MaxCandidateEvidence) + " versions"})
			e.Reason = artifact.ReasonEvidenceLimit
			return verb.Candidate{}, e
		}
	}
	d := &decideOp{key: candidateKey{in.ScopeID, in.CandidateID}, expected: in.ExpectedVersion, how: r}
	return h.decideCandidate(ctx, verb.CandidatesRevise.Name, in, in.WriteOptions, d, problems)
}

// revise puts another proposal in the place of a candidate's.
type revise struct {
	in       *verb.CandidatesReviseRequest
	evidence []verb.ExactRef // nil: as before
}

func (r *revise) prepare(h *Hub, c *verb.Caller, d *decideOp) error {
	if r.evidence != nil {
		d.evidence = r.evidence
	}
	p := r.in.Proposal
	var problems []artifact.Problem
	switch {
	case p.ID == "":
		p.ID = d.read.Proposal.ID
	case p.ID != d.read.Proposal.ID:
		problems = append(problems, artifact.Problem{Path: "/proposal/id", Constraint: "fixed", Message: "what a candidate would make keeps the id that was asked for", Value: artifact.Received(p.ID)})
	}
	if d.read.Target != nil && len(p.Links) > 0 {
		problems = append(problems, artifact.Problem{Path: "/proposal/links", Constraint: "fixed", Message: "a change of what is there makes no links"})
	}
	if problems != nil {
		return artifact.Invalid(problems...)
	}
	return at(d.writing(h, c, &p), "/proposal")
}

const raiseCandidateQuery = `UPDATE candidate SET version = $3 WHERE scope = $1 AND id = $2`

func (r *revise) decide(s *state, d *decideOp, next *candidate) error {
	if t := next.Target; t != nil && !slices.ContainsFunc(d.evidence, func(e verb.ExactRef) bool {
		return e.Family == t.Family && e.ArtifactID == t.ArtifactID && e.Revision == t.Revision
	}) {
		return artifact.Invalid(artifact.Problem{Path: "/artifacts", Constraint: "target", Message: "the version that the candidate would change stays among its evidence"})
	}
	if err := d.checkEvidence(next); err != nil {
		return err
	}
	if err := checkTarget(s, next); err != nil {
		return err
	}
	if d.unfit != nil {
		return d.unfit
	}
	proposal, _, _, same, err := d.writes.try(s)
	switch {
	case errors.Is(err, errNeedsContent), errors.Is(err, errStaleSchemas):
		return err
	case err != nil:
		return refusal(err)
	case same:
		return artifact.Invalid(artifact.Problem{Path: "/proposal", Constraint: "no_change", Message: "this is what the artifact is already"})
	}
	next.Version++
	next.Proposal, next.WrittenBy, next.WrittenAt = proposal, s.caller.Actor.ID, s.caller.Now
	next.Artifacts = make([]verb.ExactRef, len(d.evidence))
	for i, e := range d.evidence {
		e.ContentHash = d.available[i].hash
		next.Artifacts[i] = e
	}
	if r.in.Reason != "" {
		next.Reason = r.in.Reason
	}
	if err := s.putCandidateVersion(next); err != nil {
		return err
	}
	s.also(raiseCandidateQuery, next.ScopeID, next.CandidateID, next.Version)
	return s.tellCandidate(next, "revised")
}
