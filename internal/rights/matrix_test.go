package rights_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// roles are who asks, in the order of the columns below. Those of commons are no
// members of a lab; those of a lab may read commons.
var roles = []struct {
	agent       string
	permissions []string // of the token
	lab         string
	in          []string // the lab
}{
	{agent: "c-viewer", permissions: []string{verb.Viewer}},
	{agent: "c-contributor", permissions: []string{verb.Contributor}},
	{agent: "c-reviewer", permissions: []string{verb.Reviewer}},
	{agent: "c-admin", permissions: []string{verb.Admin}},
	{"a-viewer", []string{verb.Viewer}, "lab-a", []string{verb.Viewer}},
	{"a-contributor", []string{verb.Viewer}, "lab-a", []string{verb.Contributor}},
	{"a-reviewer", []string{verb.Viewer}, "lab-a", []string{verb.Reviewer}},
	{"a-admin", []string{verb.Viewer}, "lab-a", []string{verb.Admin}},
	{"b-contributor", []string{verb.Viewer}, "lab-b", []string{verb.Contributor}},
	{agent: "nobody", permissions: []string{}},
	{"creator", []string{verb.Viewer}, "lab-a", []string{verb.Viewer}}, // of lab A's hypothesis, which it could write to once
	{agent: ""}, // without a token
}

// Codes are what a cell says.
var codes = map[rune]artifact.Code{
	'+': "", 'd': artifact.CodePermissionDenied, 'n': artifact.CodeNotFound, 'v': artifact.CodeValidationFailed, 'm': artifact.CodeLinkTargetMissing,
	'u': artifact.CodeMutability, '*': "",
}

// matrix says what becomes of each request by each role, as decisions.md B says:
// + it is done; d it is denied of what may be seen, or to those who could do it
// nowhere; n it is as if it were not there; v so is the scope to write to, or the
// request is wrong there; m the link's target is as if it were not there; u it is
// written once; * it is done for review, which a batch does not do.
//
// A request is a verb, where it is tried, and what. In commons a token's
// permissions count, in a lab the membership's: nothing that a role of one may do
// does it therefore do in the other.
var matrix = []struct {
	verb, where, cells string
	request            request
}{
	// The columns are four of commons and four of lab A, each viewer, contributor,
	// reviewer, admin; then lab B's contributor, nobody, the creator, no token.
	{"get", "commons", "++++|++++|+d++", request{"ref": "hypothesis:h"}},
	{"get", "lab-a", "nnnn|++++|nd+n", request{"ref": "hypothesis:lab-a/h"}},
	{"get", "lab-b", "nnnn|nnnn|+dnn", request{"ref": "hypothesis:lab-b/h"}},
	{"list", "", "++++|++++|+d++", request{}},
	{"search", "", "++++|++++|+d++", request{"query": "something"}},
	{"poll", "", "++++|++++|+d++", request{"types": []any{"hypothesis.*"}}},
	{"schema", "", "++++|++++|++++", request{}},
	{"history", "commons", "++++|++++|+d++", request{"ref": "hypothesis:h"}},
	{"history", "lab-a", "nnnn|++++|nd+n", request{"ref": "hypothesis:lab-a/h"}},
	{"history", "lab-b", "nnnn|nnnn|+dnn", request{"ref": "hypothesis:lab-b/h"}},
	{"diff", "commons", "++++|++++|+d++", request{"ref_a": "hypothesis:h", "ref_b": "hypothesis:i"}},
	{"diff", "lab-a", "nnnn|++++|nd+n", request{"ref_a": "hypothesis:h", "ref_b": "hypothesis:lab-a/h"}},
	{"diff", "lab-b", "nnnn|nnnn|+dnn", request{"ref_a": "hypothesis:lab-b/h", "ref_b": "hypothesis:h"}},
	{"links", "commons", "++++|++++|+d++", request{"ref": "hypothesis:h"}},
	{"links", "lab-a", "nnnn|++++|nd+n", request{"ref": "hypothesis:lab-a/h"}},
	{"links", "lab-b", "nnnn|nnnn|+dnn", request{"ref": "hypothesis:lab-b/h"}},
	{"signals", "commons", "++++|++++|+d++", request{"ref": "hypothesis:h"}},
	{"signals", "lab-a", "nnnn|++++|nd+n", request{"ref": "hypothesis:lab-a/h"}},
	{"signals", "lab-b", "nnnn|nnnn|+dnn", request{"ref": "hypothesis:lab-b/h", "kinds": []any{"vote"}}},

	{"create", "commons", "d+dd|dddd|dddd", create("commons")},
	{"create", "lab-a", "dvvv|d+dd|vddd", create("lab-a")},
	{"create", "lab-b", "dvvv|dvvv|+ddd", create("lab-b")},

	// Types are an admin's of commons, and a reviewer's there to propose.
	{"create", "a type", "dd*+|dddd|dddd", request{"type": "schema", "title": "T", "content": newType}},
	{"update", "a type", "dd*+|dddd|dddd", request{"ref": "schema:gene", "merge_patch": request{"title": "New"}}},

	// What a contributor proposes, who reviews decides on; in a lab only if who reviews
	// may write there too.
	{"create", "a proposal", "d+dd|dddd|dddd", request{"type": "trial", "title": "T", "content": request{}}},
	{"create", "a proposal in lab-a", "dvvv|d+dd|vddd", request{"type": "trial", "title": "T", "content": request{}, "scope": "lab-a"}},
	{"candidates/list", "commons", "++++|++++|+d+d", request{"scope_id": "commons"}},
	{"candidates/list", "lab-a", "nnnn|++++|nd+d", request{"scope_id": "lab-a"}},
	{"candidates/list", "lab-b", "nnnn|nnnn|+dnd", request{"scope_id": "lab-b"}},
	{"candidates/get", "commons", "++++|++++|+d+d", candidate("commons", nil)},
	{"candidates/get", "lab-a", "nnnn|++++|nd+d", candidate("lab-a", nil)},
	{"candidates/get", "lab-b", "nnnn|nnnn|+dnd", candidate("lab-b", nil)},
	{"candidates/history", "commons", "++++|++++|+d+d", candidate("commons", nil)},
	{"candidates/history", "lab-a", "nnnn|++++|nd+d", candidate("lab-a", nil)},
	{"candidates/revise", "commons", "dd+d|dddd|dddd", candidate("commons", request{"proposal": request{"title": "T", "content": request{}}, "expected_version": 1})},
	{"candidates/revise", "lab-a", "ddnd|dddd|dddd", candidate("lab-a", request{"proposal": request{"title": "T", "content": request{}}, "expected_version": 1})},
	{"candidates/approve", "commons", "dd+d|dddd|dddd", candidate("commons", request{"expected_version": 1})},
	{"candidates/approve", "lab-a", "ddnd|dddd|dddd", candidate("lab-a", request{"expected_version": 1})},
	{"candidates/approve", "lab-b", "ddnd|ddnd|dddd", candidate("lab-b", request{"expected_version": 1})},
	{"candidates/reject", "commons", "dd+d|dddd|dddd", candidate("commons", request{"expected_version": 1, "reason": "because"})},
	{"candidates/reject", "lab-a", "ddnd|dddd|dddd", candidate("lab-a", request{"expected_version": 1, "reason": "because"})},

	// Who is in a lab may own something there, and is not turned away at the door.
	{"update", "commons", "d+dd|dddd|dddd", update("h", request{"title": "New"})},
	{"update", "lab-a", "dnnn|d+dd|nd+d", update("lab-a/h", request{"title": "New"})},
	{"update", "lab-b", "dnnn|nnnn|+dnd", update("lab-b/h", request{"title": "New"})},
	// In commons it is nothing to have made it.
	{"update", "commons", "d+dd|dddd|dddd", update("own", request{"title": "New"})},
	// A move that takes no role, and one that takes a reviewer.
	{"update", "commons", "d++d|dddd|dddd", update("h", request{"state": "investigating"})},
	{"update", "lab-a", "dnnn|d++d|nd+d", update("lab-a/h", request{"state": "investigating"})},
	{"update", "commons", "dd+d|dddd|dddd", update("i", request{"state": "resolved"})},
	{"update", "lab-a", "dnnn|dd+d|nddd", update("lab-a/i", request{"state": "resolved"})},
	// With a title it is more than a move.
	{"update", "lab-a", "dnnn|d+dd|nd+d", update("lab-a/h", request{"state": "investigating", "title": "New"})},

	{"link", "commons", "d+dd|dddd|dddd", link("h", "p")},
	{"link", "lab-a", "dndd|d+dd|nddd", link("lab-a/h", "lab-a/p")},
	{"link", "to lab-a", "dmdd|d+dd|mddd", link("h", "lab-a/p")}, // it stands in lab A
	{"link", "from lab-a", "dndd|d+dd|nddd", link("lab-a/h", "p")},
	{"signal", "commons", "d+dd|dddd|dddd", signal("h")},
	{"signal", "lab-a", "dndd|d+dd|nddd", signal("lab-a/h")},
	{"signal", "lab-b", "dndd|dndd|+ddd", signal("lab-b/h")},

	{"supersede", "commons", "d+dd|dddd|dddd", supersede("h", nil)},
	{"supersede", "lab-a", "dndd|d+dd|nd+d", supersede("lab-a/h", nil)},
	{"supersede", "lab-b", "dndd|nnnn|+dnd", supersede("lab-b/h", nil)},
	{"supersede", "commons", "d+dd|dddd|dddd", supersede("own", nil)},
	{"supersede", "commons", "d+dd|dddd|dddd", supersede("h", request{"replacement_ref": "paper:p"})},
	{"supersede", "by lab-a", "dmdd|dddd|dddd", supersede("h", request{"replacement_ref": "paper:lab-a/p"})},
	{"supersede", "lab-a", "dndd|d+dd|nd+d", supersede("lab-a/h", request{"replacement_ref": "paper:lab-a/p"})},
	{"supersede", "lab-a", "dndd|d+dd|nd+d", supersede("lab-a/h", request{"replacement_ref": "paper:p"})},
	{"supersede", "lab-a by lab-b", "dndd|dmdd|ndmd", supersede("lab-a/h", request{"replacement_ref": "paper:lab-b/p"})},
	// To have made what is replaced does not make one a writer of the replacement.
	{"supersede", "commons", "d+dd|dddd|dddd", supersede("h", request{"replacement": create("commons")})},
	{"supersede", "by lab-a", "dvdd|dddd|dddd", supersede("h", request{"replacement": create("lab-a")})},
	{"supersede", "lab-a", "dndd|d+dd|nddd", supersede("lab-a/h", request{"replacement": create("lab-a")})},
	{"supersede", "lab-a by commons", "dndd|dddd|nddd", supersede("lab-a/h", request{"replacement": create("commons")})},
	{"supersede", "lab-a by lab-b", "dndd|dvdd|ndvd", supersede("lab-a/h", request{"replacement": create("lab-b")})},

	// A comment stands where what it is on does, or in a lab.
	{"comment", "commons", "d+dd|dddd|dddd", comment("h", nil)},
	{"comment", "lab-a", "dndd|d+dd|nddd", comment("lab-a/h", nil)},
	{"comment", "lab-b", "dndd|dndd|+ddd", comment("lab-b/h", nil)},
	{"comment", "commons in lab-a", "dvdd|d+dd|vddd", comment("h", request{"scope": "lab-a"})},
	{"comment", "commons in lab-b", "dvdd|dvdd|+ddd", comment("h", request{"scope": "lab-b"})},
	{"comment", "lab-a in commons", "dndd|dddd|nddd", comment("lab-a/h", request{"scope": "commons"})},
	{"comment", "lab-a in lab-b", "dndd|dvdd|nddd", comment("lab-a/h", request{"scope": "lab-b"})},
	{"comment", "commons to commons", "d+dd|dddd|dddd", comment("h", request{"thread_parent": "comment:c"})},
	{"comment", "commons to lab-a", "dmdd|dddd|dddd", comment("h", request{"thread_parent": "comment:lab-a/aside"})},
	{"comment", "commons in lab-a to lab-a", "dvdd|d+dd|vddd", comment("h", request{"scope": "lab-a", "thread_parent": "comment:lab-a/aside"})},
	{"comment", "lab-a to lab-a", "dndd|d+dd|nddd", comment("lab-a/h", request{"thread_parent": "comment:lab-a/c"})},
	{"comment", "lab-a to commons", "dndd|dvdd|nddd", comment("lab-a/h", request{"thread_parent": "comment:c"})}, // on another artifact
	{"comment", "lab-a to lab-b", "dndd|dmdd|nddd", comment("lab-a/h", request{"thread_parent": "comment:lab-b/c"})},

	// On links and signals too.
	{"comment", "a link in commons", "d+dd|dddd|dddd", commentOn("root in commons", nil)},
	{"comment", "a link in lab-a", "dndd|d+dd|nddd", commentOn("creator in lab-a", nil)},
	{"comment", "a link in lab-b", "dndd|dndd|+ddd", commentOn("root in lab-b", nil)},
	{"comment", "a link in commons in lab-a", "dvdd|d+dd|vddd", commentOn("root in commons", request{"scope": "lab-a"})},
	{"comment", "a link in lab-a in commons", "dndd|dddd|nddd", commentOn("creator in lab-a", request{"scope": "commons"})},
	{"comment", "a link in lab-a in lab-b", "dndd|dvdd|nddd", commentOn("creator in lab-a", request{"scope": "lab-b"})},
	{"comment", "a signal in commons", "d+dd|dddd|dddd", commentOn("vote in commons", nil)},
	{"comment", "a signal in lab-a", "dndd|d+dd|nddd", commentOn("vote in lab-a", nil)},
	{"comment", "a signal in lab-b", "dndd|dndd|+ddd", commentOn("vote in lab-b", nil)},
	{"comment", "a signal in commons in lab-b", "dvdd|dvdd|+ddd", commentOn("vote in commons", request{"scope": "lab-b"})},
	{"link", "to a link in commons", "d+dd|dddd|dddd", request{"from": "comment:c", "predicate": "comments_on", "to": "root in commons"}},
	{"link", "to a link in lab-a", "dmdd|dvdd|mddd", request{"from": "comment:c", "predicate": "comments_on", "to": "creator in lab-a"}}, // a comment in commons
	{"link", "to a signal in lab-a", "dndd|d+dd|nddd", request{"from": "comment:lab-a/c", "predicate": "comments_on", "to": "vote in lab-a"}},
	{"update", "a link in commons", "duuu|uuuu|udud", request{"ref": "root in commons", "title": "New"}},
	{"update", "a link in lab-a", "dnnn|uuuu|ndud", request{"ref": "creator in lab-a", "title": "New"}},
	{"signal", "a signal in lab-a", "dndd|dudd|nddd", request{"ref": "vote in lab-a", "kind": "vote", "value": 1}},
	{"supersede", "a link in lab-a", "dndd|uuuu|ndud", request{"ref": "creator in lab-a", "reason": "because"}},
	{"move", "a link in lab-a", "dddn|dddu|dddd", request{"ref": "creator in lab-a", "scope": "lab-b", "reason": "because"}},
	{"redact", "a signal in lab-a", "dddn|dddu|dddd", request{"ref": "vote in lab-a", "reason": "because"}},

	// A citation stands where what cites does, of a paper there or in commons.
	{"cite", "commons", "d+dd|dddd|dddd", cite("h", "commons")},
	{"cite", "lab-a", "dndd|d+dd|nddd", cite("lab-a/h", "lab-a")},
	{"cite", "lab-b", "dndd|dndd|+ddd", cite("lab-b/h", "lab-b")},
	{"cite", "commons by lab-a", "dndd|d+dd|nddd", cite("lab-a/h", "commons")},
	{"cite", "lab-a by commons", "dmdd|dmdd|mddd", cite("h", "lab-a")},
	{"cite", "lab-b by lab-a", "dndd|dmdd|nddd", cite("lab-a/h", "lab-b")},

	// A link in a lab is of who made it as long as they may write there.
	{"unlink", "commons", "dd+d|dddd|dddd", unlink("root in commons")},
	{"unlink", "lab-a", "dnnd|dd+d|nddd", unlink("creator in lab-a")},
	{"unlink", "lab-b", "dnnd|dnnd|dddd", unlink("root in lab-b")},
	{"unlink", "commons, own", "d++d|dddd|dddd", unlink("c-contributor in commons")},
	{"unlink", "lab-a, own", "dnnd|d++d|nddd", unlink("a-contributor in lab-a")},
	{"unlink", "commons, own once", "dd+d|dddd|dddd", unlink("a-contributor in commons")},
	{"unlink", "commons, own by its ends", "d+nd|ddnd|nddd", link("h", "p").with(request{"reason": "because"})},
	{"unlink", "lab-a, own by its ends", "dnnd|d+nd|nddd", link("lab-a/h", "lab-a/p").with(request{"reason": "because"})},
	{"unlink", "lab-b, own by its ends", "dnnd|dnnd|nddd", link("lab-b/h", "lab-b/p").with(request{"reason": "because"})},

	// In a batch each item takes what its verb takes: see TestPermissions.
	{"batch", "import", "ddd+|dddd|dddd", batch("create", create("commons")).with(request{"import": true})},
	{"batch", "import", "dddv|dddd|dddd", batch("create", create("lab-a")).with(request{"import": true})},

	{"move", "commons", "dddv|dddd|dddd", move("h", "lab-a")},
	{"move", "lab-a", "dddn|dddd|dddd", move("lab-a/h", "commons")},
	{"move", "lab-a", "dddn|dddv|dddd", move("lab-a/h", "lab-b")},
	{"move", "lab-b", "dddn|dddn|dddd", move("lab-b/h", "commons")},
	{"redact", "commons", "ddd+|dddd|dddd", redact("h")},
	{"redact", "lab-a", "dddn|ddd+|dddd", redact("lab-a/h")},
	{"redact", "lab-b", "dddn|dddn|dddd", redact("lab-b/h")},

	{"scopes/create", "", "ddd+|dddd|dddd", request{"id": "lab-c", "title": "C"}},
	{"scopes/list", "", "++++|++++|++++", request{}},
	{"scopes/members", "commons", "++++|++++|+n++", request{"scope": "commons"}},
	{"scopes/members", "lab-a", "nnn+|++++|nn+n", request{"scope": "lab-a"}},
	{"scopes/members", "lab-b", "nnn+|nnnn|+nnn", request{"scope": "lab-b"}},
	{"scopes/grant", "commons", "dddv|dddv|dddd", member("commons").with(request{"roles": []any{verb.Viewer}})},
	{"scopes/grant", "lab-a", "ddd+|ddd+|dddd", member("lab-a").with(request{"roles": []any{verb.Viewer}})},
	{"scopes/grant", "lab-b", "ddd+|dddn|dddd", member("lab-b").with(request{"roles": []any{verb.Viewer}})},
	{"scopes/revoke", "lab-a", "ddd+|ddd+|dddd", member("lab-a")},
	{"scopes/revoke", "lab-b", "ddd+|dddn|dddd", member("lab-b")},

	{"tokens/revoke", "own", "++++|++++|+++d", request{}},
	{"tokens/revoke", "another's", "ddd+|dddd|dddd", request{"agent": "someone"}},
	{"tokens/revoke", "another", "ddd+|dddd|dddd", request{"token_id": "some-token"}},

	{"agents/get", "oneself", "++++|++++|+d++", request{}},
	{"agents/get", "commons", "++++|++++|+d++", request{"agent": "root"}},
	{"agents/get", "lab-a", "nnnn|++++|nd+n", request{"agent": "a-other"}},
	{"agents/get", "lab-b", "nnnn|nnnn|+dnn", request{"agent": "b-contributor"}},
	{"agents/list", "", "++++|++++|+d++", request{}},
	// A message is its sender's and its recipients' alone.
	{"messages/send", "commons", "d+dd|dddd|dddd", request{"recipient": "agent:root", "body": "something"}},
	{"messages/send", "lab-a", "dvdd|d+dd|vddd", request{"recipient": "agents:*", "body": "something", "scope": "lab-a"}},
	{"messages/list", "", "++++|++++|+d+d", request{}},
	{"messages/ack", "another's", "nnnn|nnnn|ndnd", request{"ref": "message:m-none"}},
	{"mailbox", "", "++++|++++|+d+d", request{}},
	{"agents/resolve", "commons", "++++|++++|+d++", request{"recipient": "agent:root"}},
	{"agents/resolve", "lab-a", "nnnn|++++|nd+n", request{"recipient": "agent:a-other"}},
	{"agents/update", "oneself", "d+++|d+++|+ddd", request{"title": "New"}},
	{"agents/update", "commons", "ddd+|dddd|dddd", request{"agent": "root", "title": "New"}},
	{"agents/update", "lab-a", "dnn+|dddd|nddd", request{"agent": "a-other", "title": "New"}},
	{"agents/update", "itself", "ddd+|dddd|dddd", request{"may_delegate": false}},
	{"agents/register", "", "ddd+|dddd|dddd", request{"id": "newcomer", "kind": "human"}},

	// A consumer is its agent's, and takes a token.
	{"poll", "a consumer", "++++|++++|+d+d", request{"consumer_id": "c"}},
	{"consumers/get", "own", "++++|++++|+d+d", request{"consumer_id": "c"}},
	{"consumers/get", "all", "++++|++++|+d+d", request{}},
	{"consumers/advance", "another's", "nnnn|nnnn|ndnd", request{"consumer_id": "roots", "generation": 1, "event_id": 0}},
	{"consumers/refuse", "another's", "nnnn|nnnn|ndnd", request{"consumer_id": "roots", "generation": 1, "event_id": 1}},
	{"consumers/dead_letters", "own", "++++|++++|+d+d", request{"consumer_id": "c"}},
	{"consumers/dead_letters", "another's", "nnnn|nnnn|ndnd", request{"consumer_id": "roots"}},
	{"consumers/replay", "own", "++++|++++|+d+d", request{"consumer_id": "c"}},
	{"consumers/replay", "another's", "nnnn|nnnn|ndnd", request{"consumer_id": "roots"}},
	{"consumers/rewind", "another's", "nnnn|nnnn|ndnd", request{"consumer_id": "roots", "event_id": 0}},
	{"consumers/delete", "another's", "nnnn|nnnn|ndnd", request{"consumer_id": "roots"}},

	{"nodes/invite", "", "ddd+|dddd|dddd", request{"lab": "A", "scopes": []any{"lab-a"}}},
	{"nodes/list", "", "ddd+|dddd|dddd", request{}},
	{"nodes/revoke", "", "dddn|dddd|dddd", request{"id": "n-nowhere"}},
}

// newType is the content of a schema.
var newType = request{
	"type": "assay", "id_strategy": request{"format": "as-{uuid}"}, "mutability": "mutable_with_history", "content_schema": request{"type": "object"},
}

func create(scope string) request {
	return request{"type": "hypothesis", "id": "fresh", "title": "T", "scope": scope, "content": contents("hypothesis", "x")}
}

// candidate names that of a scope, which based replaces.
func candidate(scope string, more request) request {
	return request{"scope_id": scope, "candidate_id": "candidate in " + scope}.with(more)
}

func update(id string, change request) request {
	return request{"ref": "hypothesis:" + id}.with(change)
}

func link(from, to string) request {
	return request{"from": "hypothesis:" + from, "predicate": "supports", "to": "paper:" + to}
}

func signal(id string) request {
	return request{"ref": "hypothesis:" + id, "kind": "vote", "value": 1}
}

func supersede(id string, by request) request {
	return request{"ref": "hypothesis:" + id, "reason": "because"}.with(by)
}

func comment(id string, where request) request {
	return request{"ref": "hypothesis:" + id, "body": "A remark"}.with(where)
}

// commentOn names a link or a signal by who made it where, which based replaces.
func commentOn(made string, where request) request {
	return request{"ref": made, "body": "A remark"}.with(where)
}

func cite(id, paperIn string) request {
	return request{"ref": "hypothesis:" + id, "paper_pmid": pmids[paperIn]}
}

// pmids are the PubMed ids of the papers, by scope.
var pmids = map[string]string{"commons": "101", "lab-a": "102", "lab-b": "103"}

// unlink names a link by who made it where, which based replaces.
func unlink(made string) request { return request{"ref": made, "reason": "because"} }

func batch(op string, item request) request {
	return request{"items": []any{request{"op": op}.with(item)}}
}

func move(id, to string) request {
	return request{"ref": "hypothesis:" + id, "scope": to, "reason": "because"}
}

func redact(id string) request { return request{"ref": "hypothesis:" + id, "reason": "because"} }

func member(scope string) request { return request{"scope": scope, "agent": "a-other"} }

// batched are the verbs that a batch takes.
var batched = []string{"create", "update", "supersede", "comment", "signal", "link", "unlink", "cite"}

// TestPermissions tries each verb in each role and scope, at the hub and through a
// node that holds both labs. Writes are only tried, so that each request meets the
// same world.
func TestPermissions(t *testing.T) {
	w := newMatrixWorld(t)
	tried := map[string]bool{}
	asked := 0
	for i, row := range matrix {
		cells := strings.ReplaceAll(row.cells, "|", "")
		if len(cells) != len(roles) {
			t.Fatalf("row %d, %s: %d cells for %d roles", i, row.verb, len(cells), len(roles))
		}
		v := slices.IndexFunc(verbs(), func(v verb.Info) bool { return v.Name == row.verb })
		if v < 0 {
			t.Errorf("row %d: there is no verb %s", i, row.verb)
			continue
		}
		tried[row.verb] = true
		try := func(name string, r request) {
			for door := range w.doors {
				t.Run(name+"/"+row.where+"/"+door, func(t *testing.T) {
					for n, cell := range cells {
						got := w.code(t, door, w.tokens[n], name, r)
						asked++
						want, known := codes[cell]
						if cell == '*' && name == verb.Batch.Name {
							want = artifact.CodePermissionDenied
						}
						if !known || got != want {
							t.Errorf("%s %s by %q = %q, want %q", name, text(r), roles[n].agent, got, want)
						}
					}
				})
			}
		}
		r := w.based(verbs()[v], row.request)
		try(row.verb, r)
		if slices.Contains(batched, row.verb) && !strings.HasPrefix(row.where, "a proposal") { // of which a batch makes none
			item := r.with(nil)
			delete(item, "dry_run")
			try(verb.Batch.Name, batch(row.verb, item).with(request{"dry_run": true}))
		}
	}
	for _, v := range verbs() {
		if !tried[v.Name] {
			t.Errorf("%s: the matrix has no row of it", v.Name)
		}
	}
	t.Logf("%d requests, %d rows", asked, len(matrix))
}

// A matrixWorld has in commons and in each lab the hypotheses h, as made, and i,
// which is investigated, the paper p, the comment c on h, a vote on h, and links
// from h to p; in each lab also the comment aside, on the h of commons.
type matrixWorld struct {
	*world
	tokens []string                 // by role
	hashes map[string]artifact.Hash // by ref
	edges  map[string]string        // ref by who made it where, of votes by "vote", of candidates their ids
}

func newMatrixWorld(t *testing.T) *matrixWorld {
	t.Helper()
	w := &matrixWorld{world: newWorld(t, "lab-a", "lab-b"), hashes: map[string]artifact.Hash{}, edges: map[string]string{}}
	w.grant(t, "lab-a", "creator", verb.Contributor)
	w.grant(t, "lab-a", "a-other", verb.Viewer)
	for scope, maker := range map[string]string{"commons": "root", "lab-a": "creator", "lab-b": "root"} {
		writer := w.client(t, atHub, maker, nil, verb.Contributor)
		for id, typ := range map[string]string{"h": "hypothesis", "i": "hypothesis", "p": "paper"} {
			content := contents(typ, "x")
			if typ == "paper" {
				content["pmid"] = pmids[scope]
			}
			out := must(t, writer, verb.Create, verb.CreateRequest{Type: typ, ID: id, Scope: scope, Title: "T", Content: object(content)})
			if id == "i" {
				out = must(t, writer, verb.Update, verb.UpdateRequest{Ref: out.Ref.Current().String(), BaseContentHash: out.ContentHash, State: "investigating"})
			}
			w.hashes[out.Ref.Current().String()] = out.ContentHash
		}
		w.join(t, maker, scope)
		w.edges["candidate in "+scope] = w.propose(t, writer, scope, "T")
		w.edges["vote in "+scope] = must(t, writer, verb.Signal, verb.SignalRequest{Ref: "hypothesis:" + within(scope) + "h", Kind: "vote", Value: "1"}).Ref
		must(t, writer, verb.Create, verb.CreateRequest{
			Type: "comment", ID: "c", Scope: scope, Title: "T", Content: object(contents("comment", "x")),
			Links: []verb.LinkSpec{{Predicate: "comments_on", To: "hypothesis:" + within(scope) + "h"}},
		})
	}
	for scope, maker := range map[string]string{"lab-a": "creator", "lab-b": "root"} {
		must(t, w.client(t, atHub, maker, nil, verb.Contributor), verb.Create, verb.CreateRequest{
			Type: "comment", ID: "aside", Scope: scope, Title: "T", Content: object(contents("comment", "x")),
			Links: []verb.LinkSpec{{Predicate: "comments_on", To: "hypothesis:h"}},
		})
	}
	out := must(t, w.client(t, atHub, "creator", nil, verb.Contributor), verb.Create, verb.CreateRequest{Type: "hypothesis", ID: "own", Title: "T", Content: object(contents("hypothesis", "x"))})
	w.hashes[out.Ref.Current().String()] = out.ContentHash
	gene := must(t, w.root, verb.Get, verb.GetRequest{Ref: artifact.Ref{Type: artifact.SchemaType, ID: "gene"}}).Artifact
	w.hashes[gene.Ref.Current().String()] = gene.ContentHash
	for _, r := range roles {
		if r.lab != "" {
			w.grant(t, r.lab, r.agent, r.in...)
		}
		token := ""
		if r.agent != "" {
			token = w.token(t, r.agent, nil, r.permissions...)
		}
		w.tokens = append(w.tokens, token)
	}
	must(t, w.root, verb.Poll, verb.PollRequest{ConsumerID: "roots"})
	w.join(t, "c-contributor", "commons")
	w.join(t, "a-contributor", "lab-a")
	w.join(t, "a-contributor", "commons") // with a token that it has no more
	w.enrol(t, atNode, "A", "lab-a", "lab-b")
	return w
}

// within returns what ids in a scope begin with.
func within(scope string) string {
	if scope == artifact.Commons {
		return ""
	}
	return scope + "/"
}

// join makes an agent's link from h to p in a scope.
func (w *matrixWorld) join(t *testing.T, agent, scope string) {
	t.Helper()
	w.edges[agent+" in "+scope] = must(t, w.client(t, atHub, agent, nil, verb.Contributor), verb.Link, verb.LinkRequest{
		From: "hypothesis:" + within(scope) + "h", LinkSpec: verb.LinkSpec{Predicate: "supports", To: "paper:" + within(scope) + "p"},
	}).Ref
}

// based completes a request: it is only tried, and based on what is current.
func (w *matrixWorld) based(v verb.Info, r request) request {
	r = r.with(nil)
	if mayDryRun(v) {
		r["dry_run"] = true
	}
	if _, based := v.In.Properties["base_content_hash"]; based {
		hash, known := w.hashes[r["ref"].(string)]
		if !known { // of a link or a signal, which has no base
			hash = artifact.HashBytes(nil)
		}
		r["base_content_hash"] = hash.String()
	}
	for _, property := range []string{"ref", "to", "candidate_id"} {
		if name, ok := r[property].(string); ok && w.edges[name] != "" {
			r[property] = w.edges[name]
		}
	}
	return r
}

// code returns the code of a request's answer, "" for what is done. A batch's is
// that of its only item.
func (w *matrixWorld) code(t *testing.T, door, token, name string, r request) artifact.Code {
	t.Helper()
	a := w.ask(t, door, token, name, r)
	var body struct {
		Error artifact.Code
		Items []struct{ Error struct{ Error artifact.Code } }
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	if name == verb.Batch.Name && len(body.Items) == 1 {
		return body.Items[0].Error.Error
	}
	return body.Error
}
