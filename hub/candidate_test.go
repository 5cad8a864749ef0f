package hub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// reviewing is a hub with a type whose changes wait for review, and a private scope.
type reviewing struct {
	*fixture
}

func newReviewing(t *testing.T) *reviewing {
	t.Helper()
	r := &reviewing{fixture: newHub(t)}
	r.makeType(t, assay(object{"write_policy": "propose", "links": object{"derives_from": object{"to_types": []string{}}, "cites": object{"to_types": []string{"paper"}}}}))
	return r
}

// propose creates a candidate of a new assay.
func (r *reviewing) propose(t *testing.T, ctx context.Context, in verb.CreateRequest) *verb.ProposedCandidate {
	t.Helper()
	in.Type = "assay"
	if in.Title == "" {
		in.Title = "Zebra assay"
	}
	if in.Content == nil {
		in.Content = content(object{"reagent": "zebra"})
	}
	out, err := verb.Create.Call(ctx, r.verbs, in)
	if err != nil || out.Candidate == nil || out.Ref != (artifact.Ref{}) || out.Revision != 0 {
		t.Fatalf("create = %+v, %v", out, err)
	}
	return out.Candidate
}

func (r *reviewing) get(t *testing.T, ctx context.Context, c *verb.ProposedCandidate) verb.Candidate {
	t.Helper()
	return callOK(t, verb.CandidatesGet, ctx, r.verbs, verb.CandidatesGetRequest{ScopeID: c.ScopeID, CandidateID: c.CandidateID})
}

func approval(c *verb.ProposedCandidate, version int) verb.CandidatesApproveRequest {
	return verb.CandidatesApproveRequest{ScopeID: c.ScopeID, CandidateID: c.CandidateID, ExpectedVersion: version}
}

func rejection(c *verb.ProposedCandidate, version int, reason string) verb.CandidatesRejectRequest {
	return verb.CandidatesRejectRequest{ScopeID: c.ScopeID, CandidateID: c.CandidateID, ExpectedVersion: version, Reason: reason}
}

func revision(c *verb.ProposedCandidate, version int, p verb.Proposal) verb.CandidatesReviseRequest {
	return verb.CandidatesReviseRequest{ScopeID: c.ScopeID, CandidateID: c.CandidateID, ExpectedVersion: version, Proposal: p}
}

func wantReason(t *testing.T, what string, err error, code artifact.Code, reason string) {
	t.Helper()
	if e := artifact.AsError(err); err == nil || e.Code != code || reason != "" && e.Reason != reason {
		t.Errorf("%s = %v, want %s %s", what, err, code, reason)
	}
}

// row returns a candidate's rows as they are stored.
func (r *reviewing) row(t *testing.T, c *verb.ProposedCandidate) string {
	t.Helper()
	var image string
	err := r.db.QueryRow(t.Context(), `
		SELECT (SELECT c::text FROM candidate c WHERE c.id = $1) || (SELECT string_agg(v::text, '|' ORDER BY v.version) FROM candidate_version v WHERE v.id = $1)`, c.CandidateID).Scan(&image)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// TestCandidateLife goes through proposal, revision, approval and rejection.
func TestCandidateLife(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	vic := as(t.Context(), "vic", verb.Viewer)
	c := r.propose(t, ann, verb.CreateRequest{ID: "as-1"})
	got := r.get(t, vic, c)
	if got.Status != "pending" || got.Version != 1 || got.ResultArtifact != nil || got.Target != nil || got.CreatedBy != "ann" || got.Origin != "manual" || got.Proposal.ID != "as-1" {
		t.Errorf("candidate = %+v", got)
	}
	_, err := verb.Get.Call(ann, r.verbs, verb.GetRequest{Ref: artifact.Ref{Type: "assay", ID: "as-1"}})
	wantReason(t, "get of what is proposed", err, artifact.CodeNotFound, "")
	_, err = verb.Get.Call(ann, r.verbs, verb.GetRequest{Ref: artifact.Ref{Type: "candidate", ID: c.CandidateID}})
	wantReason(t, "get of a candidate as an artifact", err, artifact.CodeNotFound, "")
	if found := callOK(t, verb.Search, ann, r.verbs, verb.SearchRequest{Query: "zebra"}); len(found.Hits) != 0 {
		t.Errorf("search finds what is proposed: %+v", found.Hits)
	}

	// Who may not decide, in the order of the checks.
	for who, ctx := range map[string]context.Context{"viewer": vic, "contributor": ann, "admin": as(t.Context(), "root", verb.Admin, verb.Viewer)} {
		before := r.row(t, c)
		_, err := verb.CandidatesApprove.Call(ctx, r.verbs, approval(c, 1))
		wantReason(t, who+" approves", err, artifact.CodePermissionDenied, "")
		_, err = verb.CandidatesReject.Call(ctx, r.verbs, rejection(c, 1, "no"))
		wantReason(t, who+" rejects", err, artifact.CodePermissionDenied, "")
		_, err = verb.CandidatesRevise.Call(ctx, r.verbs, revision(c, 1, got.Proposal))
		wantReason(t, who+" revises", err, artifact.CodePermissionDenied, "")
		if after := r.row(t, c); after != before {
			t.Errorf("%s changed the candidate: %s, was %s", who, after, before)
		}
	}

	// A revision.
	next := got.Proposal
	next.Content = content(object{"reagent": "zebra", "n": 2})
	for what, p := range map[string]verb.Proposal{
		"another id":  {ID: "as-2", Title: "T", State: "draft", Content: next.Content},
		"bad content": {ID: "as-1", Title: "T", State: "draft", Content: content(object{"n": "x"})},
		"bad state":   {ID: "as-1", Title: "T", State: "never", Content: next.Content},
		"no title":    {ID: "as-1", State: "draft", Content: next.Content},
	} {
		_, err := verb.CandidatesRevise.Call(rev, r.verbs, revision(c, 1, p))
		wantReason(t, what, err, artifact.CodeValidationFailed, "")
		if e := artifact.AsError(err); len(e.Problems) == 0 || !strings.HasPrefix(e.Problems[0].Path, "/proposal/") {
			t.Errorf("%s: %+v", what, e.Problems)
		}
	}
	revised := callOK(t, verb.CandidatesRevise, rev, r.verbs, revision(c, 1, next))
	if revised.Version != 2 || revised.Status != "pending" || revised.WrittenBy != "rev" || revised.CreatedBy != "ann" {
		t.Errorf("revised = %+v", revised)
	}
	_, err = verb.CandidatesApprove.Call(rev, r.verbs, approval(c, 1))
	wantReason(t, "approve of version 1", err, artifact.CodeVersionConflict, artifact.ReasonCandidateConflict)
	if d := artifact.AsError(err).Details; fmt.Sprint(d["expected_version"], d["current_version"]) != "1 2" {
		t.Errorf("details = %v", d)
	}
	_, err = verb.CandidatesRevise.Call(rev, r.verbs, revision(c, 1, next))
	wantReason(t, "revise of version 1", err, artifact.CodeVersionConflict, artifact.ReasonCandidateConflict)

	// The approval, and its replay.
	approved := callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(c, 2))
	result := approved.ResultArtifact
	if approved.Status != "approved" || approved.DecidedBy != "rev" || result == nil || result.Revision != 1 || result.ArtifactID != "as-1" {
		t.Fatalf("approved = %+v", approved)
	}
	made := r.mustGet(t, ann, artifact.Ref{Type: "assay", ID: "as-1"})
	if made.CreatedBy != "ann" || !bytes.Equal(made.Content, next.Content) || made.ContentHash != result.ContentHash {
		t.Errorf("made = %+v", made)
	}
	past := callOK(t, verb.History, ann, r.verbs, verb.HistoryRequest{Ref: artifact.Ref{Type: "assay", ID: "as-1"}})
	if p := string(mustJSON(t, past.Versions[0].Provenance)); !strings.Contains(p, `"candidate":"candidate:`+c.CandidateID) || !strings.Contains(p, `"proposed_by":"ann"`) || !strings.Contains(p, `"actor_id":"rev"`) {
		t.Errorf("provenance = %s", p)
	}
	if found := callOK(t, verb.Search, ann, r.verbs, verb.SearchRequest{Query: "zebra"}); len(found.Hits) != 1 {
		t.Errorf("search after approval = %+v", found.Hits)
	}
	head := r.count(t, "SELECT count(*) FROM feed.change")
	again := callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(c, 2))
	if !bytes.Equal(mustJSON(t, again), mustJSON(t, approved)) || r.count(t, "SELECT count(*) FROM feed.change") != head {
		t.Errorf("replay = %+v", again)
	}
	_, err = verb.CandidatesApprove.Call(rev, r.verbs, approval(c, 3))
	wantReason(t, "approve of a version above", err, artifact.CodeVersionConflict, artifact.ReasonCandidateConflict)
	_, err = verb.CandidatesReject.Call(rev, r.verbs, rejection(c, 2, "late"))
	wantReason(t, "reject of what is approved", err, artifact.CodeLifecycleViolation, artifact.ReasonCandidateTerminal)
	_, err = verb.CandidatesRevise.Call(rev, r.verbs, revision(c, 2, next))
	wantReason(t, "revise of what is approved", err, artifact.CodeLifecycleViolation, artifact.ReasonCandidateTerminal)

	history := callOK(t, verb.CandidatesHistory, vic, r.verbs, verb.CandidatesGetRequest{ScopeID: c.ScopeID, CandidateID: c.CandidateID})
	if len(history.Versions) != 2 || !bytes.Equal(history.Versions[0].Proposal.Content, got.Proposal.Content) || history.Decision == nil ||
		history.Decision.Version != 2 || history.Decision.By != "rev" || history.Decision.Status != "approved" {
		t.Errorf("history = %+v", history)
	}

	// A rejection.
	d := r.propose(t, ann, verb.CreateRequest{})
	for _, reason := range []string{"", " padded ", strings.Repeat("é", 2001)} {
		_, err = verb.CandidatesReject.Call(rev, r.verbs, rejection(d, 1, reason))
		wantReason(t, "reason "+reason[:min(len(reason), 9)], err, artifact.CodeValidationFailed, "")
	}
	rejected := callOK(t, verb.CandidatesReject, rev, r.verbs, rejection(d, 1, strings.Repeat("é", 2000)))
	if rejected.Status != "rejected" || rejected.ResultArtifact != nil || len(rejected.DecisionReason) != 4000 {
		t.Errorf("rejected = %+v", rejected)
	}
	_, err = verb.CandidatesReject.Call(rev, r.verbs, rejection(d, 1, "again"))
	wantReason(t, "reject again", err, artifact.CodeLifecycleViolation, artifact.ReasonCandidateTerminal)
	_, err = verb.CandidatesApprove.Call(rev, r.verbs, approval(d, 1))
	wantReason(t, "approve of what is rejected", err, artifact.CodeLifecycleViolation, artifact.ReasonCandidateTerminal)
	if n := r.count(t, "SELECT count(*) FROM artifact WHERE type = 'assay'"); n != 1 {
		t.Errorf("%d assays", n)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestCandidateOfUpdate proposes changes of what is there: they count for the very
// version that they were proposed for, and are never merged.
func TestCandidateOfUpdate(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	callOK(t, verb.Create, ann, r.verbs, hypothesis("h-1", "x"))
	callOK(t, verb.Create, ann, r.verbs, paper("PMID:1", "", map[string]any{}))
	first := callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(r.propose(t, ann, verb.CreateRequest{
		ID: "as-1", Links: []verb.LinkSpec{{Predicate: "derives_from", To: "hypothesis:h-1"}},
	}), 1)).ResultArtifact
	change := func(ctx context.Context, n int) *verb.ProposedCandidate {
		t.Helper()
		out := callOK(t, verb.Update, ctx, r.verbs, verb.UpdateRequest{
			Ref: "assay:as-1", BaseContentHash: first.ContentHash, MergePatch: content(object{"n": n}), State: "done", Note: "counted again",
		})
		if out.Candidate == nil || out.Ref != (artifact.Ref{}) {
			t.Fatalf("update = %+v", out)
		}
		return out.Candidate
	}
	one, two := change(ann, 1), change(as(t.Context(), "bob", verb.Contributor), 2)
	got := r.get(t, ann, one)
	if got.Target == nil || *got.Target != *first || got.Reason != "counted again" || string(got.Proposal.Content) != `{"n":1,"reagent":"zebra"}` || got.Proposal.State != "done" ||
		!slices.Equal(got.Artifacts, []verb.ExactRef{*first}) {
		t.Errorf("candidate = %+v", got)
	}
	same := callOK(t, verb.Update, ann, r.verbs, verb.UpdateRequest{Ref: "assay:as-1", BaseContentHash: first.ContentHash, Title: "Zebra assay"})
	if same.Candidate != nil || same.Idempotency != verb.IdempotencyDeduplicated || same.Revision != 1 {
		t.Errorf("an update that changes nothing = %+v", same)
	}
	_, err := verb.Update.Call(ann, r.verbs, verb.UpdateRequest{Ref: "assay:as-1", BaseContentHash: artifact.HashBytes(nil), Title: "X"})
	wantReason(t, "an unknown base", err, artifact.CodeValidationFailed, artifact.ReasonUnknownBase)
	_, err = verb.CandidatesRevise.Call(rev, r.verbs, revision(one, 1, verb.Proposal{Title: "Zebra assay", State: "draft", Content: content(object{"reagent": "zebra"})}))
	wantReason(t, "a revision to what there is", err, artifact.CodeValidationFailed, "")
	in := revision(one, 1, got.Proposal)
	in.Artifacts = &[]verb.ExactRef{}
	_, err = verb.CandidatesRevise.Call(rev, r.verbs, in)
	wantReason(t, "a revision without the target", err, artifact.CodeValidationFailed, "")
	in.Artifacts = &[]verb.ExactRef{{Family: "assay", ArtifactID: "as-1", Revision: 1}, {Family: "assay", ArtifactID: "as-1", Revision: 7}}
	_, err = verb.CandidatesRevise.Call(rev, r.verbs, in)
	wantReason(t, "evidence that is not there", err, artifact.CodeValidationFailed, artifact.ReasonEvidenceUnavailable)
	many := make([]verb.ExactRef, 33)
	for i := range many {
		many[i] = verb.ExactRef{Family: "assay", ArtifactID: "as-1", Revision: i + 1}
	}
	in.Artifacts = &many
	_, err = verb.CandidatesRevise.Call(rev, r.verbs, in)
	wantReason(t, "33 pieces of evidence", err, artifact.CodeValidationFailed, artifact.ReasonEvidenceLimit)

	before := r.row(t, two)
	approved := callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(one, 1))
	if approved.ResultArtifact.Revision != 2 {
		t.Errorf("approved = %+v", approved)
	}
	made := r.mustGet(t, ann, artifact.Ref{Type: "assay", ID: "as-1"})
	if made.State != "done" || string(made.Content) != `{"n":1,"reagent":"zebra"}` || made.CreatedBy != "ann" {
		t.Errorf("made = %+v", made)
	}
	_, err = verb.CandidatesApprove.Call(rev, r.verbs, approval(two, 1))
	wantReason(t, "approve of a stale candidate", err, artifact.CodeVersionConflict, artifact.ReasonArtifactConflict)
	body := string(mustJSON(t, artifact.AsError(err)))
	if strings.Contains(body, "merge") || !strings.Contains(body, `"revision":2`) {
		t.Errorf("body = %s", body)
	}
	if after := r.row(t, two); after != before {
		t.Errorf("the candidate changed: %s, was %s", after, before)
	}
	callOK(t, verb.CandidatesReject, rev, r.verbs, rejection(two, 1, "stale"))

	// What else would write it does not.
	base := &made.ContentHash
	for what, err := range map[string]error{
		"supersede": second(verb.Supersede.Call(ann, r.verbs, verb.SupersedeRequest{Ref: "assay:as-1", BaseContentHash: base, Reason: "x"})),
		"link":      second(verb.Link.Call(ann, r.verbs, verb.LinkRequest{From: "assay:as-1", LinkSpec: verb.LinkSpec{Predicate: "derives_from", To: "hypothesis:h-1"}})),
		"cite":      second(verb.Cite.Call(ann, r.verbs, verb.CiteRequest{Ref: "assay:as-1", PMID: "1"})),
		"unlink":    second(verb.Unlink.Call(ann, r.verbs, verb.UnlinkRequest{From: "assay:as-1", Predicate: "derives_from", To: "hypothesis:h-1", Reason: "x"})),
		"batch link": callOK(t, verb.Batch, ann, r.verbs, verb.BatchRequest{Items: []verb.BatchItem{
			{Link: &verb.LinkRequest{From: "assay:as-1", LinkSpec: verb.LinkSpec{Predicate: "derives_from", To: "hypothesis:h-1"}}},
		}}).Items[0].Error,
		"batch": callOK(t, verb.Batch, ann, r.verbs, verb.BatchRequest{Items: []verb.BatchItem{
			{Update: &verb.UpdateRequest{Ref: "assay:as-1", BaseContentHash: made.ContentHash, Title: "X"}},
		}}).Items[0].Error,
		"batch create": callOK(t, verb.Batch, ann, r.verbs, verb.BatchRequest{Items: []verb.BatchItem{
			{Create: &verb.CreateRequest{Type: "assay", Title: "X", Content: content(object{"reagent": "x"})}},
		}}).Items[0].Error,
	} {
		wantReason(t, what, err, artifact.CodeMutability, artifact.ReasonWritePolicy)
		if use := fmt.Sprint(artifact.AsError(err).Details["use"]); use != "[create update]" {
			t.Errorf("%s: use = %s", what, use)
		}
	}
}

// TestReviewedTypesByOtherVerbs tries every verb that writes artifacts on every shipped
// type that has verbs of its own.
func TestReviewedTypesByOtherVerbs(t *testing.T) {
	f := newHub(t)
	ctx := as(t.Context(), "ann", verb.Contributor, verb.Reviewer, verb.Admin)
	was, types := f.rowCounts(t), 0
	for _, s := range artifact.ShippedSchemas() {
		if s.WrittenDirectly() {
			continue
		}
		types++
		create := verb.CreateRequest{Type: s.Type, ID: "a", Title: "T", Content: json.RawMessage(`{}`)}
		update := verb.UpdateRequest{Ref: s.Type + ":a", BaseContentHash: artifact.HashBytes(nil), Title: "U"}
		supersede := verb.SupersedeRequest{Ref: s.Type + ":a", Reason: "x"}
		items := []verb.BatchItem{{Create: &create}, {Update: &update}, {Supersede: &supersede}}
		tried := map[string]error{
			"create": second(verb.Create.Call(ctx, f.verbs, create)), "update": second(verb.Update.Call(ctx, f.verbs, update)),
			"supersede": second(verb.Supersede.Call(ctx, f.verbs, supersede)),
			"import":    callOK(t, verb.Batch, ctx, f.verbs, verb.BatchRequest{Import: true, Items: items[:1]}).Items[0].Error,
		}
		for i, item := range callOK(t, verb.Batch, ctx, f.verbs, verb.BatchRequest{Items: items}).Items {
			tried[fmt.Sprint("batch ", i)] = item.Error
		}
		for what, err := range tried {
			wantReason(t, what+" of "+s.Type, err, artifact.CodeMutability, artifact.ReasonWritePolicy)
			if use, _ := artifact.AsError(err).Details["use"].([]string); !slices.Equal(use, s.Use) {
				t.Errorf("%s of %s: use = %v, want %v", what, s.Type, use, s.Use)
			}
		}
	}
	if now := f.rowCounts(t); now != was || types < 3 {
		t.Errorf("%d types; rows %s, were %s", types, now, was)
	}
}

func second[T any](_ T, err error) error { return err }

// TestCandidateEvidence makes what was proposed with what it rests on, which must be
// there when it is approved.
func TestCandidateEvidence(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	create := func(id string) verb.WriteResult {
		return callOK(t, verb.Create, ann, r.verbs, hypothesis(id, "Rests on "+id))
	}
	h, other := create("h-1"), create("h-2")
	c := r.propose(t, ann, verb.CreateRequest{ID: "as-1", Links: []verb.LinkSpec{{Predicate: "derives_from", To: h.Ref.String()}}})
	got := r.get(t, ann, c)
	if len(got.Artifacts) != 1 || got.Artifacts[0].ArtifactID != "h-1" || got.Artifacts[0].ContentHash != h.ContentHash {
		t.Fatalf("evidence = %+v", got.Artifacts)
	}
	in := revision(c, 1, got.Proposal)
	in.Artifacts = &[]verb.ExactRef{got.Artifacts[0], got.Artifacts[0], {Family: "hypothesis", ArtifactID: "h-2", Revision: 1}}
	if got = callOK(t, verb.CandidatesRevise, rev, r.verbs, in); len(got.Artifacts) != 2 || got.Artifacts[1].ContentHash != other.ContentHash {
		t.Fatalf("evidence = %+v", got.Artifacts)
	}
	in = revision(c, 2, got.Proposal)
	if got = callOK(t, verb.CandidatesRevise, rev, r.verbs, in); len(got.Artifacts) != 2 {
		t.Errorf("evidence that is left as it was = %+v", got.Artifacts)
	}
	callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(c, 3))
	links := callOK(t, verb.Links, ann, r.verbs, verb.LinksRequest{Ref: artifact.Ref{Type: "assay", ID: "as-1"}, Direction: "out"})
	if len(links.Links) != 2 {
		t.Errorf("links = %+v", links.Links)
	}
	for _, l := range links.Links {
		if l.Predicate != "derives_from" {
			t.Errorf("link = %+v", l)
		}
	}

	d := r.propose(t, ann, verb.CreateRequest{ID: "as-2", Links: []verb.LinkSpec{{Predicate: "derives_from", To: h.Ref.String()}}})
	before := r.row(t, d)
	callOK(t, verb.Redact, as(t.Context(), "root", verb.Admin, verb.Viewer), r.verbs, verb.RedactRequest{Ref: "hypothesis:h-1", Reason: "consent withdrawn", Revisions: 1})
	_, err := verb.CandidatesApprove.Call(rev, r.verbs, approval(d, 1))
	wantReason(t, "approve on redacted evidence", err, artifact.CodeValidationFailed, artifact.ReasonEvidenceUnavailable)
	if after := r.row(t, d); after != before {
		t.Errorf("the candidate changed: %s, was %s", after, before)
	}
}

// TestCandidateRedacted takes out of candidates what they say of what is redacted.
func TestCandidateRedacted(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	made := r.propose(t, ann, verb.CreateRequest{ID: "as-1"})
	first := callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(made, 1)).ResultArtifact
	change := callOK(t, verb.Update, ann, r.verbs, verb.UpdateRequest{
		Ref: "assay:as-1", BaseContentHash: first.ContentHash, MergePatch: content(object{"n": 1}), Note: "the zebra was counted",
	}).Candidate
	no := rejection(change, 1, "not this zebra")
	no.IdempotencyKey = uuid.NewString()
	callOK(t, verb.CandidatesReject, rev, r.verbs, no)
	callOK(t, verb.Redact, as(t.Context(), "root", verb.Admin, verb.Viewer), r.verbs, verb.RedactRequest{Ref: "assay:as-1", Reason: "consent withdrawn", Revisions: 1})
	for _, c := range []*verb.ProposedCandidate{made, change} {
		told := string(mustJSON(t, r.get(t, ann, c))) + string(mustJSON(t, callOK(t, verb.CandidatesHistory, ann, r.verbs, verb.CandidatesGetRequest{ScopeID: c.ScopeID, CandidateID: c.CandidateID}))) + r.row(t, c)
		if strings.Contains(strings.ToLower(told), "zebra") {
			t.Errorf("it still says %s", told)
		}
	}
	if again := callOK(t, verb.CandidatesReject, rev, r.verbs, no); strings.Contains(strings.ToLower(string(mustJSON(t, again))), "zebra") {
		t.Errorf("the retry is answered %+v", again)
	}
	if _, err := r.db.Exec(t.Context(), `UPDATE candidate SET decision_reason = 'x' WHERE id = $1`, change.CandidateID); err == nil {
		t.Error("a reason is changed without a redaction")
	}
}

// TestCandidatesList lists pages that are bound to their request.
func TestCandidatesList(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	var ids []string
	for range 5 {
		ids = append(ids, r.propose(t, ann, verb.CreateRequest{}).CandidateID)
	}
	two := 2
	in := verb.CandidatesListRequest{ScopeID: "commons", Limit: &two}
	var seen []string
	for page := range 3 {
		out := callOK(t, verb.CandidatesList, ann, r.verbs, in)
		for i := range out.Candidates {
			seen = append(seen, out.Candidates[i].CandidateID)
		}
		if page == 0 {
			ids = append(ids, r.propose(t, ann, verb.CreateRequest{}).CandidateID)
		}
		if (out.NextCursor == nil) != (page == 2) || len(out.Candidates) != 2 {
			t.Fatalf("page %d = %d, %v", page, len(out.Candidates), out.NextCursor)
		}
		if out.NextCursor != nil {
			in.Cursor = *out.NextCursor
		}
	}
	if !slices.Equal(seen, ids) {
		t.Errorf("listed %v, want %v", seen, ids)
	}
	_, err := verb.CandidatesList.Call(ann, r.verbs, verb.CandidatesListRequest{ScopeID: "commons", Kind: "tag", Cursor: in.Cursor})
	wantReason(t, "a cursor of another list", err, artifact.CodeValidationFailed, artifact.ReasonInvalidCursor)
	for _, limit := range []int{0, 101, -1} {
		_, err := verb.CandidatesList.Call(ann, r.verbs, verb.CandidatesListRequest{ScopeID: "commons", Limit: &limit})
		wantReason(t, fmt.Sprint("limit ", limit), err, artifact.CodeValidationFailed, "")
	}
	_, err = verb.CandidatesList.Call(ann, r.verbs, verb.CandidatesListRequest{ScopeID: "commons", Family: "tag"})
	wantReason(t, "family tag", err, artifact.CodeValidationFailed, "")
	callOK(t, verb.CandidatesReject, rev, r.verbs, rejection(&verb.ProposedCandidate{ScopeID: "commons", CandidateID: ids[0]}, 1, "no"))
	if out := callOK(t, verb.CandidatesList, ann, r.verbs, verb.CandidatesListRequest{ScopeID: "commons", Status: "rejected", Family: "assay", Kind: "artifact"}); len(out.Candidates) != 1 {
		t.Errorf("rejected = %+v", out.Candidates)
	}
	_, one := verb.CandidatesList.Call(ann, r.verbs, verb.CandidatesListRequest{ScopeID: "lab-x"})
	wantReason(t, "a scope that is not there", one, artifact.CodeNotFound, artifact.ReasonCandidateNotFound)
}

// TestCandidateRace approves one version eight times at once.
func TestCandidateRace(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	for round := range 10 {
		c := r.propose(t, ann, verb.CreateRequest{ID: fmt.Sprint("as-", round)})
		answers := make([]verb.Candidate, 8)
		var g errgroup.Group
		for i := range answers {
			g.Go(func() (err error) {
				answers[i], err = verb.CandidatesApprove.Call(rev, r.verbs, approval(c, 1))
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		for i := range answers {
			if !bytes.Equal(mustJSON(t, answers[i]), mustJSON(t, answers[0])) {
				t.Errorf("answers differ: %+v and %+v", answers[i], answers[0])
			}
		}
	}
	if n := r.count(t, "SELECT count(*) FROM artifact_revision WHERE type = 'assay'"); n != 10 {
		t.Errorf("%d versions", n)
	}
	if n := r.count(t, "SELECT count(*) FROM event WHERE type = 'candidate.approved'"); n != 10 {
		t.Errorf("%d events of approval", n)
	}
}

// TestCandidateRows holds the database itself to what a candidate may be.
func TestCandidateRows(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	c := r.propose(t, ann, verb.CreateRequest{})
	done := r.propose(t, ann, verb.CreateRequest{})
	callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(done, 1))
	for _, sql := range []string{
		`UPDATE candidate SET status = 'approved', decided_by = 'x', decided_at = now() WHERE id = $1`,
		`UPDATE candidate SET status = 'approved', decided_by = 'x', decided_at = now(), result_payload = '{"target":1,"tags":[],"tag_digest":"","etag":""}' WHERE id = $1`,
		`UPDATE candidate SET status = 'approved', decided_by = 'x', decided_at = now(), result_type = 'assay', result_id = 'none', result_revision = 1, result_content_hash = sha256('') WHERE id = $1`,
		`UPDATE candidate SET status = 'rejected', decided_by = 'x', decided_at = now() WHERE id = $1`,
		`UPDATE candidate SET decision_reason = 'x' WHERE id = $1`,
		`UPDATE candidate SET origin = 'dream' WHERE id = $1`,
		`UPDATE candidate SET kind = 'tag' WHERE id = $1`,
		`UPDATE candidate SET version = 2 WHERE id = $1`,
		`UPDATE candidate SET version = 0 WHERE id = $1`,
		`DELETE FROM candidate WHERE id = $1`,
		`UPDATE candidate_version SET reason = 'x' WHERE id = $1`,
		`DELETE FROM candidate_version WHERE id = $1`,
	} {
		if _, err := r.db.Exec(t.Context(), sql, c.CandidateID); err == nil {
			t.Errorf("taken: %s", sql)
		}
	}
	for _, sql := range []string{
		`UPDATE candidate SET status = 'pending', decided_by = NULL, decided_at = NULL, result_type = NULL, result_id = NULL, result_revision = NULL, result_content_hash = NULL WHERE id = $1`,
		`UPDATE candidate SET decided_by = 'y' WHERE id = $1`,
	} {
		if _, err := r.db.Exec(t.Context(), sql, done.CandidateID); err == nil {
			t.Errorf("taken: %s", sql)
		}
	}
	tag := `
		INSERT INTO candidate (scope, id, kind, family, origin, version, status, created_by, created_by_kind, created_at, decided_by, decided_at, %s)
		VALUES ('commons', 'x', 'tag', '%s', 'manual', 1, 'approved', 'a', 'human', now(), 'a', now(), %s)`
	for _, sql := range []string{
		fmt.Sprintf(tag, "result_type, result_id, result_revision, result_content_hash", "assay", "'assay', 'a', 0, sha256('')"),
		fmt.Sprintf(tag, "result_payload", "assay", `'{"tags":[]}'`),
		fmt.Sprintf(tag, "result_payload", "tag", `'{"target":1,"tags":[],"tag_digest":"","etag":""}'`),
	} {
		if _, err := r.db.Exec(t.Context(), sql); err == nil || strings.Contains(err.Error(), "syntax") {
			t.Errorf("%v: %s", err, sql)
		}
	}
}

// TestProposedTypes lets a reviewer make and change a type by candidates.
func TestProposedTypes(t *testing.T) {
	r := newReviewing(t)
	rev := as(t.Context(), "rev", verb.Reviewer)
	_, err := verb.Create.Call(as(t.Context(), "ann", verb.Contributor), r.verbs, verb.CreateRequest{Type: "schema", Title: "Gel", Content: assay(object{"type": "gel"})})
	wantReason(t, "a contributor's type", err, artifact.CodePermissionDenied, "")
	out := callOK(t, verb.Create, rev, r.verbs, verb.CreateRequest{Type: "schema", Title: "Gel", Content: assay(object{"type": "gel"})})
	if out.Candidate == nil || out.Candidate.Family != "schema" {
		t.Fatalf("create = %+v", out)
	}
	_, err = verb.Create.Call(rev, r.verbs, verb.CreateRequest{Type: "schema", Title: "Gel", Content: json.RawMessage(`{"type":"gel"}`)})
	wantReason(t, "a bad type", err, artifact.CodeValidationFailed, "")
	_, err = verb.Create.Call(contributor(t.Context()), r.verbs, verb.CreateRequest{Type: "gel", Title: "G", Content: content(object{"reagent": "x"})})
	wantReason(t, "an artifact of a type that is proposed", err, artifact.CodeValidationFailed, "")
	callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(out.Candidate, 1))
	made := callOK(t, verb.Create, contributor(t.Context()), r.verbs, verb.CreateRequest{Type: "gel", ID: "as-g", Title: "G", Content: content(object{"reagent": "x"})})

	is := r.mustGet(t, rev, artifact.Ref{Type: "schema", ID: "gel"})
	change := func(document json.RawMessage) (verb.WriteResult, error) {
		return verb.Update.Call(rev, r.verbs, verb.UpdateRequest{Ref: "schema:gel", BaseContentHash: is.ContentHash, Content: document})
	}
	_, err = change(assay(object{"type": "gel", "content_schema": object{"type": "object", "required": []string{"lane"}, "properties": object{"lane": object{"type": "integer"}}}}))
	wantReason(t, "what is stored would be invalid", err, artifact.CodeValidationFailed, artifact.ReasonIncompatible)
	if e := artifact.AsError(err); len(e.Details) > 1 || e.Problems != nil {
		t.Errorf("a reviewer is told %v %v", e.Details, e.Problems)
	}
	next := assay(object{"type": "gel", "content_schema": object{"type": "object", "required": []string{"reagent"}, "properties": object{"reagent": object{"type": "string"}, "lane": object{"type": "integer"}}}})
	out, err = change(next)
	if err != nil || out.Candidate == nil {
		t.Fatalf("update = %+v, %v", out, err)
	}
	if now := r.registered(t, "gel"); now.Version != 1 {
		t.Errorf("version %d before approval", now.Version)
	}
	if done := callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(out.Candidate, 1)); done.ResultArtifact.Revision != 2 {
		t.Errorf("approved = %+v", done)
	}
	if now := r.registered(t, "gel"); now.Version != 2 {
		t.Errorf("version %d after approval", now.Version)
	}
	callOK(t, verb.Update, contributor(t.Context()), r.verbs, verb.UpdateRequest{Ref: "gel:as-g", BaseContentHash: made.ContentHash, Content: content(object{"reagent": "x", "lane": 3})})
}
