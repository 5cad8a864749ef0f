package rights_test

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A lab is a world in which lab A holds one of everything that can be kept from
// others, and those who are not to know of it.
type lab struct {
	*world
	private names
	open    opened
	callers []caller
}

// names are what only members of lab A may know, by kind.
type names struct {
	refs       []ref
	ids        []pair // of artifacts, within their type
	agents     []pair
	handles    []pair // without @
	roles      []pair
	groups     []pair // ids
	nodes      []pair
	tokens     []pair
	keys       []pair // of idempotency
	consumers  []pair // of ada's
	candidates []pair // ids
	pmids      []pair // of papers; nothing else is written with them
	claimed    pair   // a PubMed id of a paper, with which others are made elsewhere
	doi        pair   // of a paper
	ends       []pair // of a link that callers made, while they saw lab A
	asides     []remark
	mail       pair // id of a message in commons, to another
	past       pair // hash of a version, of an artifact that is public, that is not
	hypothesis artifact.Artifact
	stale      artifact.Hash // of its first version
}

// A pair is the name of a thing and one of the same form that names nothing.
type pair struct{ real, twin string }

// A ref is a pair of refs, with the hash that is current.
type ref struct {
	pair
	hash artifact.Hash
}

func paired(name string) pair { return pair{name, twin(name)} }

// A remark is a private comment on what everyone may know of.
type remark struct {
	on string
	pair
}

// opened are names that everyone in the tests may know.
type opened struct {
	hypothesis, paper, wiki, inLabB, moved, comment artifact.Ref // pinned
	mail, candidate                                 string       // ref of root's message to itself; id of a candidate in commons
	retired, link, vote                             string       // a ref of what was superseded; of root's link from hypothesis to paper; of root's vote on hypothesis
}

// A caller asks for what it may not know of.
type caller struct {
	name  string
	token string
	doors []string
	admin bool // in commons
}

// openPMID is of a paper in commons that lab A has too, and of one that it has
// not; openPapers are their ids.
var openPMID, openPapers = pair{"71726355", "61726355"}, pair{"open-p", "open-q"}

const (
	ada = secret + "-ada"
	bo  = secret + "-bo"
)

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{world: newWorld(t, labA, labB)}
	everything := []string{verb.Viewer, verb.Contributor, verb.Reviewer}
	for _, agent := range []string{ada, bo, "both"} {
		l.grant(t, labA, agent, verb.Contributor)
	}
	for _, agent := range []string{"out", "boss", "both", "narrowed"} {
		l.grant(t, labB, agent, verb.Contributor)
	}
	l.grant(t, labA, "narrowed", verb.Permissions...)
	l.grant(t, labB, "chief", verb.Contributor, verb.Reviewer, verb.Admin)
	l.fill(t)
	l.publish(t)
	l.enrol(t, atNode, "Lab "+secret, labA, labB)
	l.enrol(t, atNodeB, "Lab B", labB)
	for _, n := range must(t, l.root, verb.NodesList, verb.NodesListRequest{}).Nodes {
		if strings.Contains(n.Lab, secret) {
			l.private.nodes = append(l.private.nodes, likeUUID(n.ID))
		}
	}
	here := []string{atHub, atNode}
	l.callers = []caller{
		{"an agent of another lab", l.token(t, "out", nil, everything...), here, false},
		{"the admin of another lab", l.token(t, "chief", nil, everything...), here[:1], false},
		{"a member with a token for another lab", l.token(t, "narrowed", []string{labB}, everything...), here, false},
		{"a member at another lab's node", l.token(t, "both", nil, everything...), []string{atNodeB}, false},
		{"one without a token", "", here, false},
		{"an admin in commons", l.token(t, "boss", nil, verb.Permissions...), here, true},
	}
	for _, c := range l.callers {
		if c.token == "" {
			continue
		}
		// What batches begin with is done, and changes nothing later.
		must(t, &verb.Client{URL: l.hubURL, Token: c.token}, verb.Signal, verb.SignalRequest{Ref: l.open.wiki.Current().String(), Kind: "vote", Value: "1"})
	}
	l.settle(t)
	return l
}

// uuids are in the names that the hub makes.
var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// likeUUID returns a name that holds a UUID, with another of that form.
func likeUUID(name string) pair {
	return pair{name, twin(uuids.ReplaceAllStringFunc(name, func(id string) string { return id[:len(id)-8] + "00000000" }))}
}

// fill makes what is private.
func (l *lab) fill(t *testing.T) {
	t.Helper()
	p := &l.private
	asAda, asBo := l.client(t, atHub, ada, nil), l.client(t, atHub, bo, nil)
	title := "The title of " + secret
	for _, handle := range []string{secret + "-former", secret + "-now"} {
		must(t, asBo, verb.AgentsUpdate, verb.AgentsUpdateRequest{Handle: &handle, Title: &title, Roles: []string{secret + "-role"}})
		p.handles = append(p.handles, paired(handle))
	}
	p.agents = []pair{paired(ada), paired(bo)}
	p.roles = []pair{paired(secret + "-role")}
	p.pmids = []pair{{"91726351", "81726351"}, {"91726352", "81726352"}, {"91726353", "81726353"}}
	p.claimed, p.doi = pair{"91726354", "81726354"}, paired("10.5555/"+secret)
	for id, content := range map[string]map[string]any{
		"PMID:" + p.pmids[1].real: {}, secret + "-claimed": {"pmid": p.claimed.real}, secret + "-as-open": {"pmid": openPMID.real},
	} {
		must(t, asAda, verb.Create, verb.CreateRequest{Type: "paper", ID: id, Scope: labA, Title: title, Content: object(content)})
	}
	key := newKey()
	for _, s := range tried(t) {
		content := contents(s.Type, secret)
		id := secret + "-" + s.Type
		if s.Type == "paper" {
			content["pmid"], content["doi"] = p.pmids[0].real, p.doi.real
		}
		if s.Type == "message" {
			content["recipient"] = "agent:" + bo
			id = "" // the hub makes it
		}
		in := verb.CreateRequest{Type: s.Type, ID: id, Scope: labA, Title: title, Content: object(content)}
		if s.Type == "hypothesis" {
			in.IdempotencyKey = key
		}
		if s.Type == "comment" {
			continue // on the hypothesis, below
		}
		out := must(t, asAda, verb.Create, in)
		p.refs = append(p.refs, refPair(out.Ref.Current(), out.ContentHash))
		p.ids = append(p.ids, likeUUID(out.Ref.ID))
		if s.Type == "group" {
			p.groups = append(p.groups, paired(out.Ref.ID))
		}
	}
	p.keys = []pair{{key, newKey()}}
	must(t, asAda, verb.Poll, verb.PollRequest{ConsumerID: secret + "-consumer"})
	p.consumers = []pair{paired(secret + "-consumer")}
	p.candidates = []pair{likeUUID(l.propose(t, asAda, labA, title))}
	hypothesis := "hypothesis:" + labA + "/" + secret + "-hypothesis"
	first := must(t, asAda, verb.Get, verb.GetRequest{Ref: mustRef(t, hypothesis)}).Artifact
	second := must(t, asAda, verb.Update, verb.UpdateRequest{Ref: hypothesis, BaseContentHash: first.ContentHash, Content: object(contents("hypothesis", secret+" again"))})
	for i := range p.refs {
		if p.refs[i].real == hypothesis {
			p.refs[i].hash = second.ContentHash
			p.refs[0], p.refs[i] = p.refs[i], p.refs[0] // the first is tried most
		}
	}
	p.refs = append(p.refs, refPair(second.Ref, second.ContentHash), refPair(first.Ref, second.ContentHash))
	p.stale = first.ContentHash
	p.hypothesis = must(t, asAda, verb.Get, verb.GetRequest{Ref: second.Ref}).Artifact
	comment := must(t, asAda, verb.Create, verb.CreateRequest{
		Type: "comment", ID: secret + "-comment", Scope: labA, Title: title, Content: object(contents("comment", secret)),
		Links: []verb.LinkSpec{{Predicate: "comments_on", To: hypothesis}},
	})
	p.refs = append(p.refs, refPair(comment.Ref.Current(), comment.ContentHash))
	link := must(t, asAda, verb.Link, verb.LinkRequest{From: hypothesis, LinkSpec: verb.LinkSpec{Predicate: "supports", To: "paper:" + labA + "/" + secret + "-paper"}})
	signal := must(t, asAda, verb.Signal, verb.SignalRequest{Ref: hypothesis, Kind: "vote", Value: "1", Reason: secret})
	retracted := must(t, asAda, verb.Link, verb.LinkRequest{From: hypothesis, LinkSpec: verb.LinkSpec{Predicate: "derives_from", To: "paper:" + labA + "/" + secret + "-paper"}})
	must(t, asAda, verb.Unlink, verb.UnlinkRequest{Ref: retracted.Ref, Reason: secret})
	for _, text := range []string{link.Ref, signal.Ref, retracted.Ref} {
		p.refs = append(p.refs, ref{likeUUID(text), second.ContentHash})
	}
	for _, on := range []string{link.Ref, signal.Ref} {
		remark := must(t, asAda, verb.Comment, verb.CommentRequest{Ref: on, Body: secret})
		p.refs = append(p.refs, refPair(remark.Ref.Current(), remark.ContentHash), ref{likeUUID(remark.Links[0]), remark.ContentHash})
	}
	made := must(t, asAda, verb.Create, verb.CreateRequest{Type: "wiki_page", ID: secret + "-replaced", Scope: labA, Title: title, Content: object(contents("wiki_page", secret))})
	must(t, asAda, verb.Supersede, verb.SupersedeRequest{Ref: made.Ref.Current().String(), ReplacementRef: hypothesis, Reason: secret})
	p.refs = append(p.refs, refPair(made.Ref.Current(), made.ContentHash))
	p.ends = []pair{paired(hypothesis), paired("paper:" + labA + "/" + secret + "-paper")}
	for _, agent := range []string{"both", "narrowed"} { // who may change there what they made
		member := l.client(t, atHub, agent, nil)
		out := must(t, member, verb.Create, verb.CreateRequest{Type: "hypothesis", ID: secret + "-by-" + agent, Scope: labA, Title: title, Content: object(contents("hypothesis", secret+" by "+agent))})
		own := must(t, member, verb.Link, verb.LinkRequest{From: hypothesis, LinkSpec: verb.LinkSpec{Predicate: "supports", To: p.ends[1].real}})
		p.refs = append(p.refs, refPair(out.Ref.Current(), out.ContentHash), ref{likeUUID(own.Ref), second.ContentHash})
	}
	carol, dave := l.client(t, atHub, "carol", nil, verb.Contributor), l.client(t, atHub, "dave", nil, verb.Contributor)
	must(t, dave, verb.AgentsUpdate, verb.AgentsUpdateRequest{Roles: []string{"a-reader"}}) // is seen in commons now
	mail := contents("message", secret)
	mail["recipient"] = "agent:dave"
	sent := must(t, carol, verb.Create, verb.CreateRequest{Type: "message", Title: title, Content: object(mail)})
	p.refs = slices.Insert(p.refs, 1, refPair(sent.Ref.Current(), sent.ContentHash))
	p.refs = append(p.refs, refPair(sent.Ref, sent.ContentHash))
	p.mail = likeUUID(sent.Ref.ID)
	p.tokens = []pair{likeUUID(claim(t, asAda.Token, "jti"))}
}

func refPair(r artifact.Ref, hash artifact.Hash) ref { return ref{likeUUID(r.String()), hash} }

func mustRef(t *testing.T, text string) artifact.Ref {
	t.Helper()
	r, err := artifact.ParseRef(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// claim returns a claim of a token.
func claim(t *testing.T, token, name string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	text, _ := claims[name].(string)
	return text
}

// publish makes what is not private, and an artifact in commons whose second
// version only lab A may read.
func (l *lab) publish(t *testing.T) {
	t.Helper()
	create := func(typ, id, scope string) artifact.Ref {
		return must(t, l.root, verb.Create, verb.CreateRequest{Type: typ, ID: id, Scope: scope, Title: "Open", Content: object(contents(typ, "what is open"))}).Ref
	}
	l.open.hypothesis, l.open.wiki = create("hypothesis", "open-h", ""), create("wiki_page", "open-w", "")
	paper := func(id, pmid string) artifact.Ref {
		return must(t, l.root, verb.Create, verb.CreateRequest{Type: "paper", ID: id, Title: "Open", Content: object(map[string]any{"pmid": pmid})}).Ref
	}
	l.open.paper = paper(openPapers.real, openPMID.real)
	paper(openPapers.twin, openPMID.twin)
	left := paper("left-p", l.private.pmids[2].real)
	must(t, l.root, verb.Move, verb.MoveRequest{Ref: left.Current().String(), Scope: labA, BaseContentHash: left.Hash, Reason: "to try it"})
	l.open.inLabB = create("hypothesis", "b-h", labB)
	on := l.open.hypothesis.Current().String()
	l.open.comment = must(t, l.root, verb.Comment, verb.CommentRequest{Ref: on, Body: "what is open"}).Ref
	l.open.link = must(t, l.root, verb.Link, verb.LinkRequest{From: on, LinkSpec: verb.LinkSpec{Predicate: "supports", To: l.open.paper.Current().String()}}).Ref
	l.open.retired = create("hypothesis", "retired-h", "").Current().String()
	must(t, l.root, verb.Supersede, verb.SupersedeRequest{Ref: l.open.retired, Reason: "to try it"})
	l.open.vote = must(t, l.root, verb.Signal, verb.SignalRequest{Ref: on, Kind: "vote", Value: "1"}).Ref
	for _, in := range []verb.CommentRequest{{Ref: on, ThreadParent: l.open.comment.Current().String()}, {Ref: l.open.link}, {Ref: l.open.vote}} {
		in.Body, in.Scope = secret, labA
		aside := must(t, l.client(t, atHub, ada, nil, verb.Viewer), verb.Comment, in)
		l.private.refs = append(l.private.refs, refPair(aside.Ref.Current(), aside.ContentHash))
		l.private.asides = append(l.private.asides, remark{in.Ref, likeUUID(aside.Ref.Current().String())})
	}
	l.open.candidate = l.propose(t, l.root, "", "Open")
	l.open.mail = must(t, l.root, verb.MessagesSend, verb.MessagesSendRequest{Recipient: "agent:root", Body: "what is open"}).Ref.Current().String()
	at := create("hypothesis", "moved-h", "")
	move := func(scope string) {
		must(t, l.root, verb.Move, verb.MoveRequest{Ref: at.Current().String(), Scope: scope, BaseContentHash: at.Hash, Reason: "to try it"})
	}
	move(labA)
	for _, text := range []string{secret, "what is open again"} {
		was := at.Hash
		at = must(t, l.root, verb.Update, verb.UpdateRequest{Ref: at.Current().String(), BaseContentHash: was, Content: object(contents("hypothesis", text))}).Ref
		if text == secret {
			l.private.past = pair{at.Hash.String(), another(at.Hash).String()}
		}
	}
	move(artifact.Commons)
	l.open.moved = at
}
