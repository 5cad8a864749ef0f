package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestCandidateInScope decides in a private scope: who has no role there finds
// nothing, and who reviews must be able to write what is reviewed.
func TestCandidateInScope(t *testing.T) {
	r := newReviewing(t)
	r.scope(t, "lab")
	for agent, roles := range map[string][]string{
		"ann": {verb.Contributor}, "rev": {verb.Reviewer}, "both": {verb.Reviewer, verb.Contributor}, "vic": {verb.Viewer}, "adm": {verb.Admin},
	} {
		r.grant(t, "lab", agent, roles...)
	}
	member := func(agent string) context.Context { return r.member(t.Context(), agent, verb.Viewer) }
	ann := member("ann")
	c := r.propose(t, ann, verb.CreateRequest{ID: "as-1", Scope: "lab"})
	for _, agent := range []string{"vic", "rev", "adm"} {
		if got := r.get(t, member(agent), c); got.ScopeID != "lab" {
			t.Errorf("%s gets %+v", agent, got)
		}
	}
	out := r.member(t.Context(), "out", verb.Viewer, verb.Contributor, verb.Reviewer)
	for what, id := range map[string]string{"one that is there": c.CandidateID, "one that is not": uuid.NewString()} {
		in := verb.CandidatesGetRequest{ScopeID: "lab", CandidateID: id}
		_, err := verb.CandidatesGet.Call(out, r.verbs, in)
		wantReason(t, what, err, artifact.CodeNotFound, artifact.ReasonCandidateNotFound)
		_, err = verb.CandidatesGet.Call(out, r.verbs, verb.CandidatesGetRequest{ScopeID: "commons", CandidateID: id})
		wantReason(t, what+" in commons", err, artifact.CodeNotFound, artifact.ReasonCandidateNotFound)
		_, err = verb.CandidatesApprove.Call(out, r.verbs, verb.CandidatesApproveRequest{ScopeID: "lab", CandidateID: id, ExpectedVersion: 1})
		wantReason(t, what+" is approved", err, artifact.CodeNotFound, artifact.ReasonCandidateNotFound)
	}
	for _, agent := range []string{"ann", "vic", "rev", "adm"} {
		_, err := verb.CandidatesApprove.Call(member(agent), r.verbs, approval(c, 1))
		wantReason(t, agent+" approves", err, artifact.CodePermissionDenied, "")
	}
	approved := callOK(t, verb.CandidatesApprove, member("both"), r.verbs, approval(c, 1))
	made := r.mustGet(t, ann, artifact.Ref{Type: "assay", ID: "lab/as-1"})
	if made.CreatedBy != "ann" || made.Scope != "lab" || made.ContentHash != approved.ResultArtifact.ContentHash {
		t.Errorf("made = %+v", made)
	}

	// Who made it may review changes of it without more.
	own := callOK(t, verb.CandidatesApprove, member("both"), r.verbs, approval(r.propose(t, ann, verb.CreateRequest{ID: "as-2", Scope: "lab"}), 1))
	change := callOK(t, verb.Update, ann, r.verbs, verb.UpdateRequest{Ref: "assay:lab/as-2", BaseContentHash: own.ResultArtifact.ContentHash, Title: "Renamed"}).Candidate
	r.grant(t, "lab", "ann", verb.Reviewer)
	if got := callOK(t, verb.CandidatesApprove, member("ann"), r.verbs, approval(change, 1)); got.ResultArtifact.Revision != 2 || got.DecidedBy != "ann" {
		t.Errorf("approved = %+v", got)
	}

	// What they tell happens to those alone who may see the scope, and tells no text.
	events := func(ctx context.Context) (types []string) {
		start := artifact.Seq(0)
		for _, e := range callOK(t, verb.Poll, ctx, r.verbs, verb.PollRequest{Types: []string{"candidate.*"}, Since: &start, Limit: 200}).Events {
			types = append(types, e.Type)
			if s := string(e.Payload) + e.Ref.ID; strings.Contains(s, "ebra") || strings.Contains(s, "Renamed") || !strings.Contains(s, `"candidate_id"`) {
				t.Errorf("%s tells %s", e.Type, s)
			}
		}
		return types
	}
	if got := fmt.Sprint(events(member("vic"))); got != "[candidate.created candidate.approved candidate.created candidate.approved candidate.created candidate.approved]" {
		t.Errorf("events = %s", got)
	}
	if got := events(out); got != nil {
		t.Errorf("an outsider is told %s", got)
	}
}

// TestCandidateTargetMoves keeps a candidate from writing what has left its scope.
func TestCandidateTargetMoves(t *testing.T) {
	r := newReviewing(t)
	r.scope(t, "lab")
	r.grant(t, "lab", "root", verb.Admin, verb.Contributor)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	first := callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(r.propose(t, ann, verb.CreateRequest{ID: "as-1"}), 1)).ResultArtifact
	c := callOK(t, verb.Update, ann, r.verbs, verb.UpdateRequest{Ref: "assay:as-1", BaseContentHash: first.ContentHash, Title: "Renamed"}).Candidate
	root := r.member(t.Context(), "root", verb.Admin, verb.Contributor, verb.Reviewer, verb.Viewer)
	made := callOK(t, verb.CandidatesList, rev, r.verbs, verb.CandidatesListRequest{ScopeID: "commons", Status: "approved"}).Candidates[0]
	callOK(t, verb.Move, root, r.verbs, verb.MoveRequest{Ref: "assay:as-1", Scope: "lab", BaseContentHash: first.ContentHash, Reason: "x"})

	// Who does not see it any more sees nothing of what was proposed of it.
	for _, id := range []string{c.CandidateID, made.CandidateID} {
		in := verb.CandidatesGetRequest{ScopeID: "commons", CandidateID: id}
		_, err := verb.CandidatesGet.Call(rev, r.verbs, in)
		wantReason(t, "get", err, artifact.CodeNotFound, artifact.ReasonCandidateNotFound)
		_, err = verb.CandidatesHistory.Call(rev, r.verbs, in)
		wantReason(t, "history", err, artifact.CodeNotFound, artifact.ReasonCandidateNotFound)
		_, err = verb.CandidatesApprove.Call(rev, r.verbs, verb.CandidatesApproveRequest{ScopeID: "commons", CandidateID: id, ExpectedVersion: 1})
		wantReason(t, "approve", err, artifact.CodeNotFound, artifact.ReasonCandidateNotFound)
		callOK(t, verb.CandidatesGet, root, r.verbs, in)
	}
	for _, status := range []string{"pending", "approved"} {
		if got := callOK(t, verb.CandidatesList, rev, r.verbs, verb.CandidatesListRequest{ScopeID: "commons", Status: status}).Candidates; len(got) != 0 {
			t.Errorf("%s: %+v", status, got)
		}
	}
	_, err := verb.CandidatesApprove.Call(root, r.verbs, approval(c, 1))
	if e := artifact.AsError(err); e.Reason != artifact.ReasonArtifactConflict && e.Reason != artifact.ReasonEvidenceUnavailable {
		t.Errorf("approve = %v", err)
	}
	if n := r.count(t, "SELECT count(*) FROM artifact_revision WHERE type = 'assay'"); n != 1 {
		t.Errorf("%d versions", n)
	}
	callOK(t, verb.CandidatesReject, root, r.verbs, rejection(c, 1, "gone"))
}

// TestCandidateTellsOfNothingPrivate refuses a proposal in commons that names what is
// in a private scope, which all would read in it.
func TestCandidateTellsOfNothingPrivate(t *testing.T) {
	r := newReviewing(t)
	r.scope(t, "lab")
	r.grant(t, "lab", "ann", verb.Contributor)
	ann := r.member(t.Context(), "ann", verb.Viewer, verb.Contributor)
	rev := as(t.Context(), "rev", verb.Reviewer)
	in := hypothesis("h-1", "x")
	in.Scope = "lab"
	secret := callOK(t, verb.Create, ann, r.verbs, in).Ref.Current().String()
	to := []verb.LinkSpec{{Predicate: "derives_from", To: secret}}
	_, err := verb.Create.Call(ann, r.verbs, verb.CreateRequest{Type: "assay", Title: "T", Content: content(object{"reagent": "x"}), Links: to})
	wantReason(t, "a link to what is private", err, artifact.CodeValidationFailed, "")
	if e := artifact.AsError(err); len(e.Problems) != 1 || e.Problems[0].Path != "/links/0/to" {
		t.Errorf("problems = %+v", e.Problems)
	}
	r.grant(t, "lab", "both", verb.Reviewer, verb.Contributor)
	both := r.member(t.Context(), "both", verb.Viewer, verb.Contributor, verb.Reviewer)
	c := r.propose(t, ann, verb.CreateRequest{})
	_, err = verb.CandidatesRevise.Call(both, r.verbs, revision(c, 1, verb.Proposal{Title: "T", Content: content(object{"reagent": "x"}), Links: to}))
	wantReason(t, "a revision with such a link", err, artifact.CodeValidationFailed, "")
	if e := artifact.AsError(err); len(e.Problems) != 1 || e.Problems[0].Path != "/proposal/links/0/to" {
		t.Errorf("problems = %+v", e.Problems)
	}
	callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(c, 1))
	within := r.propose(t, ann, verb.CreateRequest{Scope: "lab", Links: to})
	callOK(t, verb.CandidatesApprove, both, r.verbs, approval(within, 1))
}

// TestCandidateBounds proposes all that could be written at once, and refuses numbers
// that no version and no time has.
func TestCandidateBounds(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	depth := artifact.MaxContentDepth - 1
	for what, extra := range map[string]string{
		"deep":  strings.Repeat("[", depth) + strings.Repeat("]", depth),
		"large": `"` + strings.Repeat("x", artifact.MaxContentBytes-len(`{"reagent":"x","x":""}`)) + `"`,
	} {
		raw := json.RawMessage(`{"reagent":"x","x":` + extra + `}`)
		c := r.propose(t, ann, verb.CreateRequest{Content: raw})
		callOK(t, verb.CandidatesRevise, rev, r.verbs, revision(c, 1, verb.Proposal{Title: "Revised", Content: raw}))
		done := callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(c, 2)).ResultArtifact
		if got := r.mustGet(t, ann, done.Ref().Current()); string(got.Content) != string(raw) {
			t.Errorf("%s: %d bytes, want %d", what, len(got.Content), len(raw))
		}
	}
	h := callOK(t, verb.Create, ann, r.verbs, hypothesis("h-1", "x"))
	c := r.propose(t, ann, verb.CreateRequest{})
	for _, n := range []int{-1<<32 + 1, -1, 0, 1<<32 + 1} {
		in := revision(c, 1, verb.Proposal{Title: "T", Content: content(object{"reagent": "x"})})
		in.Artifacts = &[]verb.ExactRef{{Family: "hypothesis", ArtifactID: h.Ref.ID, Revision: n}}
		_, err := verb.CandidatesRevise.Call(rev, r.verbs, in)
		wantReason(t, fmt.Sprintf("revision %d", n), err, artifact.CodeValidationFailed, "")
		if e := artifact.AsError(err); len(e.Problems) != 1 || e.Problems[0].Path != "/artifacts/0/revision" {
			t.Errorf("revision %d: %+v", n, e.Problems)
		}
	}
	in := verb.CandidatesListRequest{ScopeID: "commons"}
	for _, year := range []int{-7000, 1969, 10_000} {
		in.Cursor = in.NextCursorAfter(verb.CandidatePlace{At: time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC), ID: c.CandidateID})
		_, err := verb.CandidatesList.Call(ann, r.verbs, in)
		wantReason(t, fmt.Sprintf("a cursor of %d", year), err, artifact.CodeValidationFailed, artifact.ReasonInvalidCursor)
		in.Cursor = ""
	}
}

// TestCandidateRevisedMeanwhile decides on a candidate while a revision of it is about to
// be committed: it is there all the time, at another version.
func TestCandidateRevisedMeanwhile(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	c := r.propose(t, ann, verb.CreateRequest{})
	tx, err := r.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	for _, statement := range []string{
		`INSERT INTO candidate_version SELECT scope, id, 2, proposal, proposal_digest, evidence, reason, written_by, written_at FROM candidate_version WHERE id = $1`,
		`UPDATE candidate SET version = 2 WHERE id = $1`,
	} {
		if _, err := tx.Exec(t.Context(), statement, c.CandidateID); err != nil {
			t.Fatal(err)
		}
	}
	var group errgroup.Group
	group.Go(func() error {
		_, err := verb.CandidatesReject.Call(rev, r.verbs, rejection(c, 1, "no"))
		return err
	})
	for r.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 0 {
		if t.Context().Err() != nil {
			t.FailNow()
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantReason(t, "a decision that waited", group.Wait(), artifact.CodeVersionConflict, artifact.ReasonCandidateConflict)
}

// TestCandidateFailsWhole makes each table that an approval writes refuse it: nothing
// of the approval is there then, and the next one is whole.
func TestCandidateFailsWhole(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	h := callOK(t, verb.Create, ann, r.verbs, hypothesis("h-1", "x"))
	c := r.propose(t, ann, verb.CreateRequest{ID: "as-1", Links: []verb.LinkSpec{{Predicate: "derives_from", To: h.Ref.Current().String()}}})
	if _, err := r.db.Exec(t.Context(), `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'told to fail' USING ERRCODE = 'XX001'; END $$`); err != nil {
		t.Fatal(err)
	}
	before := r.row(t, c)
	counts := func() string { return r.rowCounts(t) }
	was := counts()
	for _, table := range []string{"artifact", "artifact_revision", "link", "search_document", "candidate", "feed.change", "event", "write_journal"} {
		var there bool
		if err := r.db.QueryRow(t.Context(), `SELECT to_regclass($1) IS NOT NULL`, table).Scan(&there); err != nil || !there {
			t.Errorf("%s: %v", table, err)
			continue
		}
		if _, err := r.db.Exec(t.Context(), `CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON `+table+` FOR EACH ROW EXECUTE FUNCTION fail()`); err != nil {
			t.Fatal(err)
		}
		_, err := verb.CandidatesApprove.Call(rev, r.verbs, approval(c, 1))
		if e := artifact.AsError(err); err == nil || e.Code != artifact.CodeInternal {
			t.Errorf("%s: %v", table, err)
		}
		if after := r.row(t, c); after != before || counts() != was {
			t.Errorf("%s: the candidate is the same: %t; rows %s, were %s", table, after == before, counts(), was)
		}
		if _, err := r.db.Exec(t.Context(), `DROP TRIGGER fail ON `+table); err != nil {
			t.Fatal(err)
		}
	}
	callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(c, 1))
	if n := r.count(t, "SELECT count(*) FROM link WHERE from_id = 'as-1'"); n != 1 {
		t.Errorf("%d links", n)
	}
}

// TestCandidateKeys answers a retry with its key as it did at first.
func TestCandidateKeys(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	in := verb.CreateRequest{Type: "assay", Title: "T", Content: content(object{"reagent": "x"})}
	in.IdempotencyKey = uuid.NewString()
	first, second := callOK(t, verb.Create, ann, r.verbs, in), callOK(t, verb.Create, ann, r.verbs, in)
	if first.Candidate.CandidateID != second.Candidate.CandidateID || second.Idempotency != verb.IdempotencyReplayed || first.Seq != second.Seq {
		t.Errorf("create = %+v, then %+v", first, second)
	}
	change := revision(first.Candidate, 1, r.get(t, ann, first.Candidate).Proposal)
	change.Proposal.Title = "U"
	change.IdempotencyKey = uuid.NewString()
	var answers [4]verb.Candidate
	var g errgroup.Group
	for i := range answers {
		g.Go(func() (err error) {
			answers[i], err = verb.CandidatesRevise.Call(rev, r.verbs, change)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range answers {
		if string(mustJSON(t, answers[i])) != string(mustJSON(t, answers[0])) || answers[i].Version != 2 {
			t.Errorf("revise = %+v", answers[i])
		}
	}
	no := rejection(first.Candidate, 2, "no")
	no.IdempotencyKey = uuid.NewString()
	callOK(t, verb.CandidatesReject, rev, r.verbs, no)
	if again := callOK(t, verb.CandidatesReject, rev, r.verbs, no); again.Status != "rejected" {
		t.Errorf("reject again = %+v", again)
	}
	was := r.rowCounts(t)
	in.IdempotencyKey, in.DryRun = "", true
	if out := callOK(t, verb.Create, ann, r.verbs, in); out.Candidate == nil || out.Seq != 0 {
		t.Errorf("a dry run = %+v", out)
	}
	if now := r.rowCounts(t); now != was {
		t.Errorf("a dry run wrote: %s, was %s", now, was)
	}
}

// TestCandidateRoutes calls the verbs where the review's own paths are.
func TestCandidateRoutes(t *testing.T) {
	r := newReviewing(t)
	url := r.serve(t)
	c := r.propose(t, as(t.Context(), "ann", verb.Contributor), verb.CreateRequest{})
	post := func(path, body string) (int, map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+r.token(t, "rev", verb.Reviewer))
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(res.Body)
		answer := map[string]any{}
		if err = errors.Join(err, res.Body.Close(), json.Unmarshal(raw, &answer)); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		if res.Header.Get("Location") != "" {
			t.Errorf("%s leads to %s", path, res.Header.Get("Location"))
		}
		return res.StatusCode, answer
	}
	named := fmt.Sprintf(`"scope_id":"commons","candidate_id":%q`, c.CandidateID)
	for _, tt := range []struct {
		path, body string
		status     int
		reason     string
	}{
		{"/v1/candidates/create", `{}`, 404, artifact.ReasonUnknownVerb},
		{"/v1/artifact-candidates/get", `{` + named + `}`, 404, artifact.ReasonUnknownPath},
		{"/v1/catalog-candidates/list", `{}`, 404, artifact.ReasonUnknownPath},
		{"/v1/catalog-change-candidates/list", `{}`, 404, artifact.ReasonUnknownPath},
		{"/v1/candidates/list", `{"scope_id":"commons"}`, 200, ""},
		{"/v1/candidates/get", `{` + named + `}`, 200, ""},
		{"/v1/candidates/get", `{"scope_id":"commons","candidate_id":"nothing"}`, 404, artifact.ReasonCandidateNotFound},
		{"/v1/candidates/history", `{` + named + `}`, 200, ""},
		{"/v1/candidates/approve", `{` + named + `,"expected_version":1,"proposal":{}}`, 422, ""},
		{"/v1/candidates/approve", `{` + named + `,"expected_version":2}`, 409, artifact.ReasonCandidateConflict},
		{"/v1/candidates/approve", `{` + named + `,"expected_version":0}`, 422, ""},
		{"/v1/candidates/reject", `{` + named + `,"expected_version":1,"reason":""}`, 422, ""},
		{"/v1/candidates/revise", `{` + named + `,"expected_version":1,"target":{"family":"assay","artifact_id":"x","revision":1},"proposal":{"title":"x","content":{}}}`, 422, ""},
		{"/v1/candidates/approve", `{` + named + `,"expected_version":1}`, 200, ""},
		{"/v1/candidates/reject", `{` + named + `,"expected_version":1,"reason":"x"}`, 409, artifact.ReasonCandidateTerminal},
	} {
		status, answer := post(tt.path, tt.body)
		details, _ := answer["details"].(map[string]any)
		if status != tt.status || tt.reason != "" && details["reason"] != tt.reason {
			t.Errorf("%s %s = %d %v, want %d %s", tt.path, tt.body, status, answer, tt.status, tt.reason)
		}
	}
}

// TestCandidateRedactedAnswers keeps no answer that repeats what is redacted: not of a
// revision either, given before the artifact was made.
func TestCandidateRedactedAnswers(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	c := r.propose(t, ann, verb.CreateRequest{ID: "as-1"})
	in := revision(c, 1, verb.Proposal{Title: "Quagga", Content: content(object{"reagent": "quagga"})})
	key := uuid.New().String()
	in.IdempotencyKey = key
	callOK(t, verb.CandidatesRevise, rev, r.verbs, in)
	callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(c, 2))
	callOK(t, verb.Redact, as(t.Context(), "root", verb.Admin, verb.Viewer), r.verbs, verb.RedactRequest{Ref: "assay:as-1", Reason: "consent withdrawn", Revisions: 1})
	if n := r.count(t, "SELECT count(*) FROM idempotency WHERE response ILIKE '%quagga%'"); n != 0 {
		t.Errorf("%d answers repeat it", n)
	}
	if again := callOK(t, verb.CandidatesRevise, rev, r.verbs, in); again.Version != 2 || strings.Contains(string(mustJSON(t, again)), "uagga") {
		t.Errorf("replay = %+v", again)
	}
}

// TestCandidatesDeadlock decides on, links to and remarks on the same things at once:
// whoever loses is told so, and nobody waits for who waits for it.
func TestCandidatesDeadlock(t *testing.T) {
	r := newReviewing(t)
	ann, rev := as(t.Context(), "ann", verb.Contributor), as(t.Context(), "rev", verb.Reviewer)
	var firsts []*verb.ExactRef
	for i := range 3 {
		firsts = append(firsts, callOK(t, verb.CandidatesApprove, rev, r.verbs, approval(r.propose(t, ann, verb.CreateRequest{ID: fmt.Sprint("as-", i)}), 1)).ResultArtifact)
	}
	for round := range 60 {
		var g errgroup.Group
		var all []*verb.ProposedCandidate
		for i := range firsts {
			out := callOK(t, verb.Update, ann, r.verbs, verb.UpdateRequest{
				Ref: fmt.Sprint("assay:as-", i), BaseContentHash: firsts[i].ContentHash, MergePatch: content(object{"n": round}),
			})
			all = append(all, out.Candidate)
		}
		links := r.propose(t, ann, verb.CreateRequest{Links: []verb.LinkSpec{{Predicate: "derives_from", To: "assay:as-0"}, {Predicate: "derives_from", To: "assay:as-2"}}})
		for _, c := range append(all, all[0], all[1], links, links) {
			g.Go(func() error {
				_, err := verb.CandidatesApprove.Call(rev, r.verbs, approval(c, 1))
				return unlessConflict(err)
			})
		}
		for i := range firsts {
			g.Go(func() error {
				_, err := verb.Batch.Call(ann, r.verbs, verb.BatchRequest{Atomic: true, Items: []verb.BatchItem{
					{Create: &verb.CreateRequest{Type: "hypothesis", Title: "T", Content: content(object{"statement": "x"}), Links: []verb.LinkSpec{
						{Predicate: "derives_from", To: fmt.Sprint("assay:as-", 2-i)}, {Predicate: "derives_from", To: fmt.Sprint("assay:as-", i)},
					}}},
					{Comment: &verb.CommentRequest{Ref: fmt.Sprint("assay:as-", i), Body: "x"}},
				}})
				return unlessConflict(err)
			})
			g.Go(func() error {
				_, err := verb.CandidatesReject.Call(rev, r.verbs, rejection(all[2-i], 1, "x"))
				return unlessConflict(err)
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		for i := range firsts {
			a := r.mustGet(t, ann, artifact.Ref{Type: "assay", ID: fmt.Sprint("as-", i)})
			firsts[i] = &verb.ExactRef{Family: "assay", ArtifactID: a.ID, Revision: a.Revision, ContentHash: a.ContentHash}
		}
	}
	if n := r.count(t, `SELECT count(*) FROM candidate c WHERE status = 'approved' AND NOT EXISTS (
		SELECT FROM artifact_revision v WHERE v.type = c.result_type AND v.id = c.result_id AND v.revision = c.result_revision AND v.content_hash = c.result_content_hash)`); n != 0 {
		t.Errorf("%d approvals without what they wrote", n)
	}
	if n := r.count(t, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

func unlessConflict(err error) error {
	e := artifact.AsError(err)
	if err == nil || e.Reason == artifact.ReasonCandidateTerminal || e.Reason == artifact.ReasonArtifactConflict {
		return nil
	}
	return err
}
