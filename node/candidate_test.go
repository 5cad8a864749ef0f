package node_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestCandidatesThroughNode: a node passes on what is proposed and decided, tells of it
// as the hub does, and keeps nothing but what approval wrote.
func TestCandidatesThroughNode(t *testing.T) {
	l := newLabs(t)
	must(t, verb.Create, l.as(t, "root"), verb.CreateRequest{Type: artifact.SchemaType, Title: "Protocol", Content: []byte(`{
		"type": "protocol", "id_strategy": {"format": "pr-{uuid}"}, "mutability": "mutable_with_history", "write_policy": "propose",
		"content_schema": {"type": "object"}, "lifecycle": {"states": ["draft", "used"], "transitions": [["draft", "used"]]}}`)})
	must(t, verb.ScopesGrant, l.as(t, "root"), verb.ScopesGrantRequest{Scope: "lab-a", Agent: "vic", Roles: []string{verb.Reviewer, verb.Contributor}})
	l.caughtUp(t)
	ada, vic := l.at(t, l.a, "ada"), l.at(t, l.a, "vic")
	stream := listenTo(t, l.a.url, l.token(t, "vic"), map[string][]string{"types": {"candidate.*"}}, "")
	const first, second, wanted = "proposal-3141", "proposal-2718", "proposal-1618"
	propose := func(text string) *verb.ProposedCandidate {
		t.Helper()
		out := must(t, verb.Create, ada, verb.CreateRequest{Type: "protocol", Scope: "lab-a", Title: text, Content: json.RawMessage(`{"steps":"` + text + `"}`)})
		return out.Candidate
	}
	c, no := propose(first), propose(second)
	page := must(t, verb.CandidatesList, vic, verb.CandidatesListRequest{ScopeID: "lab-a"})
	if len(page.Candidates) != 2 || page.Candidates[0].CandidateID != c.CandidateID {
		t.Errorf("candidates = %+v", page.Candidates)
	}
	must(t, verb.CandidatesRevise, vic, verb.CandidatesReviseRequest{ScopeID: "lab-a", CandidateID: c.CandidateID, ExpectedVersion: 1, Proposal: verb.Proposal{
		Title: wanted, State: "draft", Content: json.RawMessage(`{"steps":"` + wanted + `"}`),
	}})
	must(t, verb.CandidatesReject, vic, verb.CandidatesRejectRequest{ScopeID: "lab-a", CandidateID: no.CandidateID, ExpectedVersion: 1, Reason: "no"})
	body, err := json.Marshal(verb.CandidatesApproveRequest{ScopeID: "lab-a", CandidateID: c.CandidateID, ExpectedVersion: 2})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.a.url+verb.CandidatesPath+"approve", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+l.token(t, "vic"))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var approved verb.Candidate
	if err := json.NewDecoder(res.Body).Decode(&approved); err != nil || res.StatusCode != http.StatusOK || approved.ResultArtifact == nil {
		t.Fatalf("approve = %d, %+v, %v", res.StatusCode, approved, err)
	}
	_ = res.Body.Close()
	for i, want := range []string{"created", "created", "revised", "rejected", "approved"} {
		if e := stream.event(); e.Type != "candidate."+want {
			t.Errorf("event %d is %s, want %s", i, e.Type, want)
		}
	}
	l.caughtUp(t)
	l.verify(t, l.a, l.b)
	made := must(t, verb.Get, ada, verb.GetRequest{Ref: approved.ResultArtifact.Ref()}).Artifact
	if made.Title != wanted || made.CreatedBy != "ada" {
		t.Errorf("made = %+v", made)
	}
	past := must(t, verb.History, ada, verb.HistoryRequest{Ref: made.Ref.Current()})
	if p := past.Versions[0].Provenance; !strings.Contains(string(mustEncode(t, p)), approved.Ref()) {
		t.Errorf("provenance = %+v", p)
	}
	for _, at := range []*lab{l.a, l.b} {
		holdNowhere(t, at.dir, first, second)
	}
	holdNowhere(t, l.b.dir, wanted)
	bob := l.at(t, l.b, "bob")
	_, err = verb.CandidatesGet.Call(t.Context(), bob, verb.CandidatesGetRequest{ScopeID: "lab-a", CandidateID: c.CandidateID})
	if e := artifact.AsError(err); e.Reason != artifact.ReasonCandidateNotFound {
		t.Errorf("another lab gets %v", err)
	}
}

func mustEncode(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
