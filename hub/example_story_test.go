package hub_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A story calls each verb on a hub, over HTTP by the typed client, and keeps what
// was sent and what came back as the examples of docs/VERBS.md. What the hub does is
// what they show; only what differs from run to run is made the same.
type story struct {
	*fixture
	t     *testing.T
	url   string
	told  []verb.Example
	start time.Time
	head  int64          // of the log, before the first call
	uuids map[string]int // in the order of their appearance
}

func newStory(t *testing.T) *story {
	t.Helper()
	f := newHub(t)
	head, err := f.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &story{fixture: f, t: t, url: f.serve(t), start: time.Now(), head: int64(head), uuids: map[string]int{}}
}

// client returns the client of an agent with these permissions in commons.
func (s *story) client(agent string, permissions ...string) *verb.Client {
	return &verb.Client{URL: s.url, Token: s.token(s.t, agent, permissions...), HTTP: &http.Client{Transport: new(exchange)}}
}

// An exchange remembers the last request and its answer.
type exchange struct {
	status            int
	request, response []byte
}

// RoundTrip implements http.RoundTripper.
func (e *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	var err error
	if e.request, err = io.ReadAll(req.Body); err != nil {
		return nil, err
	}
	again := req.Clone(req.Context())
	again.Body = io.NopCloser(bytes.NewReader(e.request))
	resp, err := http.DefaultTransport.RoundTrip(again)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if e.response, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	e.status, resp.Body = resp.StatusCode, io.NopCloser(bytes.NewReader(e.response))
	return resp, nil
}

// tell runs a verb that succeeds.
func tell[In, Out any](s *story, who *verb.Client, title string, v verb.Verb[In, Out], in In) Out {
	s.t.Helper()
	out, err := v.Call(s.t.Context(), who, in)
	if err != nil {
		s.t.Fatalf("%s (%s): %v", v.Name, title, err)
	}
	s.keep(who, title, v.Name)
	return out
}

// refuse runs a verb that is refused for a reason.
func refuse[In, Out any](s *story, who *verb.Client, title, reason string, v verb.Verb[In, Out], in In) *artifact.Error {
	s.t.Helper()
	_, err := v.Call(s.t.Context(), who, in)
	e := artifact.AsError(err)
	if f, _ := verb.FailureOf(e); err == nil || f.Reason != reason {
		s.t.Fatalf("%s (%s): error = %v, want %s", v.Name, title, err, reason)
	}
	s.keep(who, title, v.Name)
	return e
}

func (s *story) keep(who *verb.Client, title, name string) {
	s.t.Helper()
	e, ok := who.HTTP.Transport.(*exchange)
	if !ok {
		s.t.Fatal("the client's exchanges are not kept")
	}
	s.told = append(s.told, verb.Example{Verb: name, Title: title, Status: e.status, Request: s.same(e.request), Response: s.same(e.response)})
}

var (
	aRequest = regexp.MustCompile(`"request_id":"[^"]+"`)
	anyUUID  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	anyTime  = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	anyPlace = regexp.MustCompile(`"(seq|as_of|event_id|cursor|since)":(\d+)|"consistency_token":"(\d+):(\d+)"`)
	aMean    = regexp.MustCompile(`"decayed_mean":([-+.0-9eE]+)`)
	aCode    = regexp.MustCompile(`scidex-join-[A-Za-z0-9_-]+`)
	aCursor  = regexp.MustCompile(`"(next_)?cursor":"[^"]+"`)
)

// requestID is each request's: they would differ, and only the one that a replay
// repeats tells something.
const requestID = "7a1e6f04-2b3c-4d5e-8f90-a1b2c3d4e5f6"

// same takes out of a body what differs from run to run: a UUID is its number in
// the story, a time is at so many hours from its start, a seq counts from there.
func (s *story) same(body []byte) json.RawMessage {
	s.t.Helper()
	text := aRequest.ReplaceAllString(string(body), `"request_id":"`+requestID+`"`)
	text = anyUUID.ReplaceAllStringFunc(text, func(id string) string {
		if id == requestID {
			return id
		}
		n, ok := s.uuids[id]
		if !ok {
			n = len(s.uuids) + 1
			s.uuids[id] = n
		}
		return fmt.Sprintf("01900000-0000-7000-8000-%012d", n)
	})
	text = anyTime.ReplaceAllStringFunc(text, func(at string) string {
		parsed, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			s.t.Fatal(err)
		}
		hours := parsed.Sub(s.start).Round(time.Hour)
		return time.Date(2026, time.January, 15, 9, 30, 0, 0, time.UTC).Add(hours).Format("2006-01-02T15:04:05.000Z")
	})
	text = anyPlace.ReplaceAllStringFunc(text, func(found string) string {
		m := anyPlace.FindStringSubmatch(found)
		place := func(seq string) int64 {
			n, err := strconv.ParseInt(seq, 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			if n == 0 {
				return 0 // nothing was written
			}
			return n - s.head + 1000
		}
		if m[1] != "" {
			return fmt.Sprintf(`"%s":%d`, m[1], place(m[2]))
		}
		return fmt.Sprintf(`"consistency_token":"%s:%d"`, m[3], place(m[4]))
	})
	text = aMean.ReplaceAllStringFunc(text, func(found string) string { // its last digits are of the moment
		mean, err := strconv.ParseFloat(aMean.FindStringSubmatch(found)[1], 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return `"decayed_mean":` + strconv.FormatFloat(math.Round(mean*1e6)/1e6, 'f', -1, 64)
	})
	text = aCode.ReplaceAllString(text, "scidex-join-3kq7pzx5w2m4tdv6")
	text = aCursor.ReplaceAllString(text, `"${1}cursor":"eyJ2IjoxLCJuIjoiY3VyaWUifQ"`)
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(text)); err != nil {
		s.t.Fatalf("%v: %s", err, body)
	}
	return out.Bytes()
}

// tellAll runs the story: a lab's agents weigh a claim about Alzheimer's disease.
func (s *story) tellAll() []verb.Example {
	s.t.Helper()
	admin, ada, bo := s.client("root", verb.Admin), s.client("ada", verb.Contributor), s.client("bo", verb.Contributor)
	chair := s.client("chair", verb.Reviewer)
	s.people(admin, ada)
	s.mail(admin, ada)
	s.documents(ada, bo)
	s.updates(ada, bo, chair)
	s.remarks(ada, bo, chair)
	s.review(admin, ada, chair)
	s.ends(admin, ada, bo)
	s.nodes(admin)
	return s.told
}

// people: who takes part, in which scopes.
func (s *story) people(admin, ada *verb.Client) {
	curie := verb.AgentsRegisterRequest{ID: "curie", Kind: "ai_local", Title: "Reads the literature", Handle: "curie"}
	tell(s, admin, "An admin makes a program known", verb.AgentsRegister, curie)
	curie.Kind = "human"
	refuse(s, admin, "The id is another agent's", artifact.ReasonExists, verb.AgentsRegister, curie)
	tell(s, admin, "A lab's own scope", verb.ScopesCreate, verb.ScopesCreateRequest{ID: "lab-ray", Title: "The Ray lab"})
	tell(s, admin, "Ada may write and review in the lab's scope", verb.ScopesGrant, verb.ScopesGrantRequest{
		Scope: "lab-ray", Agent: "ada", Roles: []verb.Permission{verb.Contributor, verb.Reviewer},
	})
	for _, agent := range []string{"root", "curie"} {
		if _, err := verb.ScopesGrant.Call(s.t.Context(), admin, verb.ScopesGrantRequest{Scope: "lab-ray", Agent: agent, Roles: []verb.Permission{verb.Admin}}); err != nil {
			s.t.Fatal(err)
		}
	}
	tell(s, admin, "Curie is a member no more", verb.ScopesRevoke, verb.ScopesRevokeRequest{Scope: "lab-ray", Agent: "curie"})
	tell(s, ada, "Your scopes, with your roles in each", verb.ScopesList, verb.ScopesListRequest{})
	tell(s, ada, "Who is in the lab", verb.ScopesMembers, verb.ScopesMembersRequest{Scope: "lab-ray"})
	refuse(s, s.client("eve", verb.Contributor), "To who is no member the lab is not there", string(artifact.CodeNotFound),
		verb.ScopesMembers, verb.ScopesMembersRequest{Scope: "lab-ray"})
	handle, roles := "ada", []string{"citation-reviewer"}
	tell(s, ada, "You choose how you are addressed", verb.AgentsUpdate, verb.AgentsUpdateRequest{Handle: &handle, Roles: roles})
	tell(s, ada, "By handle", verb.AgentsGet, verb.AgentsGetRequest{Agent: "@ada"})
	tell(s, admin, "Programs alone", verb.AgentsList, verb.AgentsListRequest{Kind: "ai_local"})
	tell(s, ada, "Whom a role means", verb.AgentsResolve, verb.AgentsResolveRequest{Recipient: "agents:role:citation-reviewer"})
}

// review: what is proposed, and what becomes of it.
func (s *story) review(admin, ada, chair *verb.Client) {
	tell(s, admin, "A type whose changes wait for review", verb.Create, verb.CreateRequest{
		Type: artifact.SchemaType, Title: "Protocol", Content: content(map[string]any{
			"type": "protocol", "id_strategy": map[string]any{"format": "pr-{uuid}"}, "mutability": "mutable_with_history", "write_policy": "propose",
			"content_schema": map[string]any{"type": "object", "required": []string{"steps"}, "properties": map[string]any{"steps": map[string]any{"type": "string"}}},
			"links":          map[string]any{"derives_from": map[string]any{"to_types": []string{}}},
		}),
	})
	propose := func(does, id string) verb.CandidatesGetRequest {
		out := tell(s, ada, does, verb.Create, verb.CreateRequest{
			Type: "protocol", ID: id, Title: "Measure amyloid beta 42", Content: content(map[string]any{"steps": "Thaw the plasma.\nRun the assay twice."}),
			Links: []verb.LinkSpec{{Predicate: "derives_from", To: "paper:PMID:1671712"}},
		})
		return verb.CandidatesGetRequest{ScopeID: out.Candidate.ScopeID, CandidateID: out.Candidate.CandidateID}
	}
	c := propose("What you create is a candidate", "pr-abeta")
	tell(s, chair, "What waits for you", verb.CandidatesList, verb.CandidatesListRequest{ScopeID: c.ScopeID})
	got := tell(s, chair, "One of them, whole", verb.CandidatesGet, c)
	got.Proposal.Content = content(map[string]any{"steps": "Thaw the plasma on ice.\nRun the assay twice."})
	tell(s, chair, "You mend what it proposes", verb.CandidatesRevise, verb.CandidatesReviseRequest{
		ScopeID: c.ScopeID, CandidateID: c.CandidateID, ExpectedVersion: got.Version, Proposal: got.Proposal, Reason: "On ice, or the peptide clumps.",
	})
	refuse(s, chair, "It was revised since you read it", artifact.ReasonCandidateConflict, verb.CandidatesApprove, verb.CandidatesApproveRequest{ScopeID: c.ScopeID, CandidateID: c.CandidateID, ExpectedVersion: 1})
	refuse(s, ada, "Who proposes does not decide", string(artifact.CodePermissionDenied), verb.CandidatesApprove, verb.CandidatesApproveRequest{ScopeID: c.ScopeID, CandidateID: c.CandidateID, ExpectedVersion: 2})
	tell(s, chair, "You approve it, and it is written", verb.CandidatesApprove, verb.CandidatesApproveRequest{ScopeID: c.ScopeID, CandidateID: c.CandidateID, ExpectedVersion: 2})
	tell(s, ada, "What became of it", verb.CandidatesHistory, c)
	d := propose("The same again", "")
	tell(s, chair, "You reject it", verb.CandidatesReject, verb.CandidatesRejectRequest{ScopeID: d.ScopeID, CandidateID: d.CandidateID, ExpectedVersion: 1, Reason: "There is one already."})
	refuse(s, chair, "What was decided stays so", artifact.ReasonCandidateTerminal, verb.CandidatesApprove, verb.CandidatesApproveRequest{ScopeID: d.ScopeID, CandidateID: d.CandidateID, ExpectedVersion: 1})
}

// mail: what agents tell each other, and nobody else.
func (s *story) mail(admin, ada *verb.Client) {
	curie := s.client("curie", verb.Contributor)
	asked := tell(s, ada, "Ask an agent for something", verb.MessagesSend, verb.MessagesSendRequest{
		Recipient: "@curie", Subject: "The dose", Body: "Please read what was written on the dose of APP since 2020.", Priority: "high",
	})
	refuse(s, ada, "Nobody is called so", string(artifact.CodeValidationFailed), verb.MessagesSend, verb.MessagesSendRequest{Recipient: "@marie", Body: "Hello"})
	tell(s, curie, "What is open", verb.Mailbox, verb.MailboxRequest{})
	tell(s, curie, "You have read it", verb.MessagesAck, verb.MessagesAckRequest{Ref: asked.Ref.Current().String(), Status: verb.AckRead})
	tell(s, curie, "Done, with an answer", verb.MessagesAck, verb.MessagesAckRequest{Ref: asked.Ref.Current().String(), Response: "Three papers, all in the wiki."})
	refuse(s, curie, "What is done stays done", string(artifact.CodeLifecycleViolation), verb.MessagesAck, verb.MessagesAckRequest{Ref: asked.Ref.Current().String(), Status: verb.AckRejected})
	tell(s, ada, "What became of what you sent", verb.MessagesList, verb.MessagesListRequest{Box: verb.BoxSent})
	refuse(s, admin, "To an admin it is not there", string(artifact.CodeNotFound), verb.MessagesAck, verb.MessagesAckRequest{Ref: asked.Ref.Current().String()})
}

// documents: a paper, a gene, and what is claimed of them.
func (s *story) documents(ada, bo *verb.Client) {
	tell(s, ada, "What a group looks like", verb.Schema, verb.SchemaRequest{Type: "group"})
	paper := verb.CreateRequest{
		Type: "paper", ID: "PMID:1671712", Title: "Segregation of a missense mutation in the amyloid precursor protein gene with familial Alzheimer's disease",
		Content: content(map[string]any{"pmid": "1671712", "journal": "Nature", "year": "1991"}),
	}
	tell(s, ada, "A gene, a paper, what the paper is about, and a vote, in one transaction", verb.Batch, verb.BatchRequest{Atomic: true, IdempotencyKey: uuid.NewString(), Items: []verb.BatchItem{
		{Create: &verb.CreateRequest{Type: "gene", ID: "APP", Title: "APP", Content: content(map[string]any{"symbol": "APP"})}},
		{RefAlias: "goate", Create: &paper},
		{Link: &verb.LinkRequest{From: "@goate", LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:APP"}}},
		{Signal: &verb.SignalRequest{Ref: "@goate", Kind: "vote", Value: "1"}},
	}})
	tell(s, ada, "An item that fails takes an atomic batch with it", verb.Batch, verb.BatchRequest{Atomic: true, Items: []verb.BatchItem{
		{Create: &verb.CreateRequest{Type: "gene", ID: "PSEN1", Title: "PSEN1", Content: content(map[string]any{"symbol": "PSEN1"})}},
		{Link: &verb.LinkRequest{From: "paper:PMID:1671712", LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:PSEN2"}}},
	}})
	claim := verb.CreateRequest{
		Type: "hypothesis", ID: "h-app-dose", Title: "APP dosage starts Alzheimer's disease",
		Content: content(map[string]any{
			"statement":   "One more copy of APP is enough to start Alzheimer's disease [PMID:1671712].",
			"target_gene": "APP", "mechanism": "More APP gives more amyloid beta.\nPlaques come before tangles.\n",
		}),
		Links:        []verb.LinkSpec{{Predicate: "about", To: "gene:APP"}},
		WriteOptions: verb.WriteOptions{IdempotencyKey: uuid.NewString()},
	}
	tell(s, ada, "A hypothesis and its link", verb.Create, claim)
	tell(s, ada, "The same request again: the first answer", verb.Create, claim)
	other := claim
	other.Title = "Another claim"
	refuse(s, ada, "The key of another request", artifact.ReasonIdempotencyConflict, verb.Create, other)
	refuse(s, bo, "Every fault is named, with what would pass where that is near", string(artifact.CodeValidationFailed), verb.Create, verb.CreateRequest{
		Type: "hypothesis", Title: "Tau", State: "propsed", Content: content(map[string]any{"statement": "Tau spreads [PMID:9999999]", "mechanism": "TBD"}),
	})
	refuse(s, bo, "The id is taken", artifact.ReasonExists, verb.Create, verb.CreateRequest{
		Type: "gene", ID: "APP", Title: "APP", Content: content(map[string]any{"symbol": "APP"}),
	})
	tell(s, bo, "Bo's evidence", verb.Create, verb.CreateRequest{
		Type: "evidence", ID: "e-trisomy-21", Title: "Trisomy 21", Content: content(map[string]any{"statement": "With three copies of APP, nearly all have plaques at forty."}),
	})
	tell(s, bo, "The current version", verb.Get, verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h-app-dose"}})
	refuse(s, bo, "What is not there, or not for you", string(artifact.CodeNotFound), verb.Get, verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "lab-ray/h1"}})
	tell(s, bo, "A page of genes", verb.List, verb.ListRequest{Type: "gene", Limit: 10})
	first := artifact.Seq(0)
	tell(s, bo, "What happened to genes", verb.Poll, verb.PollRequest{Types: []string{"gene.*"}, Since: &first, Limit: 1})
	s.consumer(bo, &first)
	tell(s, bo, "Hypotheses on a gene, the latest change first", verb.List, verb.ListRequest{
		Type: "hypothesis", Filter: json.RawMessage(`{"and":[{"field":"/content/target_gene","op":"in","value":["TREM2","APOE"]},{"signal":{"kind":"vote","agg":"count","op":"gte","value":0}}]}`),
		Sort: json.RawMessage(`["-updated_at"]`), Count: true,
	})
}

// consumer: a reader whose place is kept.
func (s *story) consumer(bo *verb.Client, first *artifact.Seq) {
	by := false
	page := tell(s, bo, "With a consumer, whose place is kept", verb.Poll, verb.PollRequest{ConsumerID: "nightly", Types: []string{"gene.*"}, Since: first, Limit: 1, AutoAdvance: &by})
	bad := page.Events[0].ID
	tell(s, bo, "Where one of yours is", verb.ConsumersGet, verb.ConsumersGetRequest{ConsumerID: "nightly"})
	refused := verb.ConsumersRefuseRequest{ConsumerID: "nightly", Generation: page.Consumer.Generation, EventID: bad, Reason: "no symbol in the catalogue"}
	tell(s, bo, "It could not be dealt with", verb.ConsumersRefuse, refused)
	again := func() {
		if _, err := verb.Poll.Call(s.t.Context(), bo, verb.PollRequest{ConsumerID: "nightly", AutoAdvance: &by}); err != nil {
			s.t.Fatal(err)
		}
	}
	for n := 2; n < verb.MaxRefusals; n++ {
		again()
		if _, err := verb.ConsumersRefuse.Call(s.t.Context(), bo, refused); err != nil {
			s.t.Fatal(err)
		}
	}
	again()
	tell(s, bo, "Once too often", verb.ConsumersRefuse, refused)
	tell(s, bo, "What was refused too often", verb.ConsumersDeadLetters, verb.DeadLettersRequest{ConsumerID: "nightly"})
	tell(s, bo, "All of them once more", verb.ConsumersReplay, verb.ConsumersReplayRequest{ConsumerID: "nightly"})
	tell(s, bo, "Done with all up to an event", verb.ConsumersAdvance, verb.ConsumersAdvanceRequest{ConsumerID: "nightly", Generation: page.Consumer.Generation, EventID: page.Cursor})
	tell(s, bo, "Begin anew", verb.ConsumersRewind, verb.ConsumersRewindRequest{ConsumerID: "nightly"})
	refuse(s, bo, "Of a generation that ended with that", artifact.ReasonConsumerTaken, verb.ConsumersAdvance, verb.ConsumersAdvanceRequest{ConsumerID: "nightly", Generation: page.Consumer.Generation, EventID: page.Cursor})
	tell(s, bo, "It is no longer needed", verb.ConsumersDelete, verb.ConsumersDeleteRequest{ConsumerID: "nightly"})
}

// updates: optimistic locking, and how to go on when it refuses.
func (s *story) updates(ada, bo, chair *verb.Client) {
	const ref = "hypothesis:h-app-dose"
	base := s.hash(ada, ref)
	tell(s, ada, "A part of the content, from the version that was read", verb.Update, verb.UpdateRequest{
		Ref: ref, BaseContentHash: base, MergePatch: json.RawMessage(`{"mechanism":"More APP gives more amyloid beta.\nPlaques come before tangles by a decade.\n"}`),
		Note: "how long before",
	})
	stale := verb.UpdateRequest{Ref: ref, BaseContentHash: base, MergePatch: json.RawMessage(`{"disease":"Alzheimer's disease"}`)}
	refuse(s, bo, "Somebody was faster: what is current, what changed, and what both make together", artifact.ReasonStaleBase, verb.Update, stale)
	stale.AutoMerge = true
	tell(s, bo, "The same with auto_merge: both changes stand", verb.Update, stale)
	base = s.hash(ada, ref)
	tell(s, ada, "A move of the lifecycle", verb.Update, verb.UpdateRequest{Ref: ref, BaseContentHash: base, State: "investigating"})
	base = s.hash(ada, ref)
	refuse(s, ada, "A move that takes a reviewer", string(artifact.CodePermissionDenied), verb.Update, verb.UpdateRequest{Ref: ref, BaseContentHash: base, State: "resolved"})
	refuse(s, ada, "A move that the lifecycle does not have", string(artifact.CodeLifecycleViolation), verb.Update, verb.UpdateRequest{Ref: ref, BaseContentHash: base, State: "proposed"})
	refuse(s, chair, "A base that the artifact never had", artifact.ReasonUnknownBase, verb.Update, verb.UpdateRequest{Ref: ref, BaseContentHash: artifact.HashBytes(nil), State: "resolved"})
}

func refOf(t *testing.T, text string) artifact.Ref {
	t.Helper()
	ref, err := artifact.ParseRef(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// hash returns the current content hash.
func (s *story) hash(who *verb.Client, ref string) artifact.Hash {
	s.t.Helper()
	got, err := verb.Get.Call(s.t.Context(), who, verb.GetRequest{Ref: refOf(s.t, ref)})
	if err != nil {
		s.t.Fatal(err)
	}
	return got.Artifact.ContentHash
}

// remarks: what is said of the claim.
func (s *story) remarks(ada, bo, chair *verb.Client) {
	const ref = "hypothesis:h-app-dose"
	linked := tell(s, bo, "Evidence for it", verb.Link, verb.LinkRequest{From: "evidence:e-trisomy-21", LinkSpec: verb.LinkSpec{
		Predicate: "supports", To: ref, EvidenceRefs: []string{"paper:PMID:1671712"},
	}})
	tell(s, ada, "What speaks of trisomy, and of which type it is", verb.Search, verb.SearchRequest{Query: "trisomy OR \"chromosome 21\"", Limit: 2, Highlight: true, Facets: []string{"type"}})
	refuse(s, ada, "A quotation mark that is not closed", string(artifact.CodeValidationFailed), verb.Search, verb.SearchRequest{Query: `"one more copy`})
	tell(s, ada, "A link, by its ref", verb.Get, verb.GetRequest{Ref: refOf(s.t, linked.Ref)})
	refuse(s, bo, "The target is not there", string(artifact.CodeLinkTargetMissing), verb.Link, verb.LinkRequest{
		From: "evidence:e-trisomy-21", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "hypothesis:h-app-doze"},
	})
	tell(s, bo, "The paper that it rests on", verb.Cite, verb.CiteRequest{Ref: "evidence:e-trisomy-21", PMID: "1671712", Claim: "a change in APP alone can cause the disease"})
	refuse(s, bo, "A paper that is not here", string(artifact.CodeLinkTargetMissing), verb.Cite, verb.CiteRequest{Ref: "evidence:e-trisomy-21", PMID: "31452104"})
	tell(s, bo, "A rank", verb.Signal, verb.SignalRequest{Ref: ref, Kind: "rank", Dimension: "evidence_strength", Value: "0.8", Reason: "two lines of evidence"})
	tell(s, bo, "What was made of the signals so far", verb.Signals, verb.SignalsRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h-app-dose"}, Kinds: []string{"rank"}})
	tell(s, ada, "The second voter's, and the aggregate after it", verb.Signal, verb.SignalRequest{Ref: ref, Kind: "rank", Dimension: "evidence_strength", Value: "0.6"})
	refuse(s, ada, "A dimension that the type does not have, and a value out of range", string(artifact.CodeValidationFailed),
		verb.Signal, verb.SignalRequest{Ref: ref, Kind: "rank", Dimension: "noveltyy", Value: "3"})
	asked := tell(s, s.client("lin", verb.Contributor), "A question", verb.Comment, verb.CommentRequest{Ref: ref, Body: "Does *one more copy* hold for mosaics?", Kind: "question"})
	tell(s, ada, "An answer to it", verb.Comment, verb.CommentRequest{Ref: ref, Body: "Not tested.", ThreadParent: asked.Ref.Current().String()})
	claim := artifact.Ref{Type: "hypothesis", ID: "h-app-dose"}
	tell(s, ada, "What leads to the claim, with the heads at the other end", verb.Links, verb.LinksRequest{Ref: claim, Direction: verb.DirectionIn, Types: []string{"evidence"}, IncludeTargets: true})
	versions, err := verb.History.Call(s.t.Context(), ada, verb.HistoryRequest{Ref: claim})
	if err != nil {
		s.t.Fatal(err)
	}
	first := versions.Versions[len(versions.Versions)-1].Ref
	tell(s, bo, "What became of the first version", verb.Diff, verb.DiffRequest{RefA: first, RefB: claim})
	tell(s, bo, "The claim with its links and signals, without its content", verb.Get, verb.GetRequest{Ref: claim, IncludeContent: new(bool), IncludeLinks: true, IncludeSignals: true})
	tell(s, ada, "Its last two versions, with what changed", verb.History, verb.HistoryRequest{Ref: claim, Limit: 2})
	tell(s, chair, "A reviewer takes a link back", verb.Unlink, verb.UnlinkRequest{Ref: linked.Ref, Reason: "the paper does not speak of trisomy"})
	tell(s, ada, "What became of the link", verb.History, verb.HistoryRequest{Ref: refOf(s.t, linked.Ref)})
}

// ends: what is replaced, published and taken out.
func (s *story) ends(admin, ada, bo *verb.Client) {
	tell(s, ada, "Replaced by a claim that is made with it", verb.Supersede, verb.SupersedeRequest{
		Ref: "hypothesis:h-app-dose", Reason: "made precise",
		Replacement: &verb.NewArtifact{Type: "hypothesis", ID: "h-app-15", Title: "A half more APP for life starts Alzheimer's disease", Content: content(map[string]any{
			"statement": "Half more APP than usual, from birth on, starts Alzheimer's disease.",
		})},
	})
	refuse(s, bo, "It was superseded already", artifact.ReasonSuperseded, verb.Supersede, verb.SupersedeRequest{Ref: "hypothesis:h-app-dose", Reason: "weak"})
	made, err := verb.Create.Call(s.t.Context(), ada, verb.CreateRequest{
		Type: "hypothesis", ID: "h-private", Scope: "lab-ray", Title: "Ours", Content: content(map[string]any{"statement": "Not public yet."}),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	tell(s, admin, "Published: from the lab's scope into commons", verb.Move, verb.MoveRequest{
		Ref: made.Ref.Current().String(), Scope: artifact.Commons, BaseContentHash: made.ContentHash, Reason: "accepted",
	})
	redaction := verb.RedactRequest{Ref: made.Ref.Current().String(), Reason: "names a patient", WriteOptions: verb.WriteOptions{DryRun: true}}
	tell(s, admin, "What it would meet", verb.Redact, redaction)
	redaction.DryRun = false
	e := refuse(s, admin, "It is to be confirmed", artifact.ReasonUnconfirmed, verb.Redact, redaction)
	n, ok := e.Details["revisions"].(float64)
	if !ok {
		s.t.Fatalf("redact = %v", e)
	}
	redaction.Revisions = int(n)
	tell(s, admin, "Done", verb.Redact, redaction)
}

// nodes: a lab's replica enrols and leaves; a stolen token is ended.
func (s *story) nodes(admin *verb.Client) {
	invited := tell(s, admin, "For the node of the Ray lab", verb.NodesInvite, verb.NodesInviteRequest{Lab: "Ray lab", Scopes: []string{"lab-ray"}})
	enrolment := s.enrol(invited.Code)
	tell(s, admin, "After it has enrolled", verb.NodesList, verb.NodesListRequest{})
	tell(s, admin, "Its disk was stolen", verb.NodesRevoke, verb.NodesRevokeRequest{ID: enrolment.NodeID})
	tell(s, admin, "All tokens of an agent", verb.TokensRevoke, verb.TokensRevokeRequest{Agent: "curie"})
	refuse(s, s.client("eve", verb.Contributor), "Of another agent, by who is no admin", string(artifact.CodePermissionDenied),
		verb.TokensRevoke, verb.TokensRevokeRequest{Agent: "ada"})
}

func (s *story) enrol(code string) (e verb.Enrolment) {
	s.t.Helper()
	public := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey) //nolint:forcetypeassert // by its documentation
	raw, err := json.Marshal(verb.EnrolRequest{Code: code, PublicKey: base64.StdEncoding.EncodeToString(public)})
	if err != nil {
		s.t.Fatal(err)
	}
	a := request(s.t, http.MethodPost, s.url+verb.EnrolPath, "", raw)
	if err := json.Unmarshal(a.body, &e); err != nil || a.status != http.StatusOK {
		s.t.Fatalf("enrol = %d %s", a.status, a.body)
	}
	return e
}
