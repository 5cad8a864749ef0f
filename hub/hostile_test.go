package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A hostileRequest is one that is to be refused in exactly one way.
type hostileRequest struct {
	name, verb, body string
	want             string // see describe
	header           []string
}

// describe writes an answer as the tables of hostile requests do: the status, the
// code, the reason if it is finer, and each problem's path, constraint and, if it
// has one, suggestion. Of many problems it writes four and their number, of a path
// of many steps the first three and their number.
func describe(status int, e *artifact.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", status, e.Code)
	if e.Reason != "" && e.Reason != string(e.Code) {
		b.WriteString("/" + e.Reason)
	}
	for i, p := range e.Problems {
		if i == 4 && len(e.Problems) > 8 {
			fmt.Fprintf(&b, " | %d in all", len(e.Problems))
			break
		}
		path := p.Path
		if steps := strings.SplitAfter(path, "/"); len(steps) > 16 {
			path = fmt.Sprintf("%s…%d", strings.Join(steps[:4], ""), len(steps)-1)
		}
		fmt.Fprintf(&b, " | %s %s", path, p.Constraint)
		if len(p.Suggestion) > 0 && string(p.Suggestion) != "null" {
			fmt.Fprintf(&b, " %s", p.Suggestion)
		}
	}
	return b.String()
}

// rowCounts returns how many rows each table holds, but for those that tell how far what
// is built in the background has come, and the log's head.
func (f *fixture) rowCounts(t *testing.T) string {
	t.Helper()
	const query = `
		SELECT string_agg(format('%s.%s=%s', n.nspname, c.relname,
			(xpath('/row/n/text()', query_to_xml(format('SELECT count(*) AS n FROM %I.%I', n.nspname, c.relname), false, true, '')))[1]), ' ' ORDER BY n.nspname, c.relname)
			|| ' head=' || coalesce((SELECT max(seq)::text FROM feed.change), '0')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT LIKE '%\_build' AND n.nspname NOT LIKE 'pg\_%' AND n.nspname NOT IN ('information_schema', 'job')`
	var counts string
	if err := f.db.QueryRow(t.Context(), query).Scan(&counts); err != nil {
		t.Fatal(err)
	}
	return counts
}

// hostileHub has what the hostile requests are about.
func hostileHub(t *testing.T) (f *fixture, base verb.WriteResult, url, token string) {
	t.Helper()
	f = newHub(t)
	f.mustCreate(t, verb.CreateRequest{Type: "gene", ID: "APOE", Title: "APOE", Content: content(map[string]any{"symbol": "APOE"})})
	f.mustCreate(t, paper("PMID:1", "", map[string]any{}))
	f.mustCreate(t, hypothesis("h-2", "y"))
	in := hypothesis("h-1", "x")
	in.Content = content(map[string]any{"statement": "x", "therapies": []string{"a", "b"}, "a/b": 1})
	base = f.mustCreate(t, in)
	old := f.mustCreate(t, hypothesis("h-old", "z"))
	for _, id := range []string{"h-3", "h-4"} {
		f.mustCreate(t, hypothesis(id, "z"))
	}
	for ref, by := range map[string]string{"hypothesis:h-old": "hypothesis:h-2", "hypothesis:h-3": "hypothesis:h-4"} {
		if _, err := verb.Supersede.Call(contributor(t.Context()), f.verbs, verb.SupersedeRequest{Ref: ref, ReplacementRef: by, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
	}
	if old.Seq == 0 {
		t.Fatal("nothing was written")
	}
	return f, base, f.serve(t), f.token(t, "ada", verb.Contributor)
}

// hostileWith returns a create request with further members.
func hostileWith(members string) string {
	return `{"type":"hypothesis","id":"bad","title":"t","content":{"statement":"s"}` + members + `}`
}

// hostileContent returns a create request with a content.
func hostileContent(c string) string {
	return `{"type":"hypothesis","id":"bad","title":"t","content":` + c + `}`
}

// manyMembers returns n members of an object.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"m%d":1,`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func quoted(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func (f *fixture) refuse(t *testing.T, url, token string, cases []hostileRequest) {
	t.Helper()
	before := f.rowCounts(t)
	for _, c := range cases {
		t.Run(c.verb+" "+c.name, func(t *testing.T) {
			a := request(t, http.MethodPost, url+"/api/scidex/"+c.verb, token, []byte(c.body), c.header...)
			if a.status == http.StatusOK {
				t.Fatalf("accepted: %.300s", a.body)
			}
			if got := describe(a.status, &a.err); got != c.want {
				t.Errorf("answer = %s\nwant     %s\n%.600s", got, c.want, a.body)
			}
			if len(a.body) > 64<<10 {
				t.Errorf("an error of %d bytes", len(a.body))
			}
			if after := f.rowCounts(t); after != before {
				t.Errorf("it left rows behind: %s, before %s", after, before)
			}
		})
	}
}

// TestHostileJSON sends bodies that are no JSON, or JSON that cannot be kept.
func TestHostileJSON(t *testing.T) {
	f, _, url, token := hostileHub(t)
	const create = "create"
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	before := snapshot(t, f.db)
	f.refuse(t, url, token, []hostileRequest{
		{name: "65 levels of content", verb: create, body: hostileContent(`{"statement":"s","n":` + deep(64) + `}`), want: "422 validation_failed | /content/n/0/…65 max_depth"},
		{name: "65 levels of evidence", verb: "link", body: `{"from":"hypothesis:h-1","predicate":"about","to":"gene:APOE","evidence":{"n":` + deep(64) + `}}`, want: "422 validation_failed | /evidence/n/0/…65 max_depth"},
		{name: "100,000 levels", verb: create, body: hostileContent(`{"n":` + strings.Repeat("[", 100_000) + `}`), want: "422 validation_failed | /content/n/0/…72 max_depth"},
		{name: "100,000 levels of objects", verb: "update", body: strings.Repeat(`{"a":`, 100_000), want: "422 validation_failed | /a/a/a/…72 max_depth"},
		{name: "1E-400", verb: create, body: hostileContent(`{"statement":"s","n":1E-400}`), want: "422 validation_failed | /content/n ieee_double"},
		{name: "1e400", verb: create, body: hostileContent(`{"statement":"s","a":{"b":[0,1e400]}}`), want: "422 validation_failed | /content/a/b/1 ieee_double"},
		{name: "-1e400", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"fund","value":-1e400}`, want: "422 validation_failed | /value ieee_double"},
		{name: "2^53", verb: create, body: hostileContent(`{"statement":"s","n":9007199254740992}`), want: "422 validation_failed | /content/n exact_integer"},
		{name: "2^53+1", verb: create, body: hostileContent(`{"statement":"s","n":9007199254740993}`), want: "422 validation_failed | /content/n exact_integer"},
		{name: "-(2^53+1) as a float", verb: create, body: hostileContent(`{"statement":"s","n":-9007199254740993.0}`), want: "422 validation_failed | /content/n exact_integer"},
		{name: "a number of a million digits", verb: create, body: hostileContent(`{"statement":"s","n":1` + strings.Repeat("0", 1_000_000) + `}`), want: "422 validation_failed | /content/n ieee_double"},
		{name: "NaN", verb: create, body: hostileContent(`{"statement":"s","n":NaN}`), want: "400 validation_failed/invalid_json | /content/n json"},
		{name: "Infinity", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"fund","value":Infinity}`, want: "400 validation_failed/invalid_json | /value json"},
		{name: "-Infinity", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"fund","value":-Infinity}`, want: "400 validation_failed/invalid_json | /value json"},
		{name: "a hexadecimal number", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"fund","value":0x10}`, want: "400 validation_failed/invalid_json |  json"},
		{name: "a leading zero", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"fund","value":01}`, want: "400 validation_failed/invalid_json |  json"},
		{name: "a plus sign", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"fund","value":+1}`, want: "400 validation_failed/invalid_json | /value json"},
		{name: "duplicate keys at three depths", verb: create, body: hostileContent(`{"statement":"a","statement":"b","x":{"y":1,"y":2,"z":[{"q":1,"q":1}]}}`), want: "422 validation_failed | /content/statement duplicate_key | /content/x/y duplicate_key | /content/x/z/0/q duplicate_key"},
		{name: "duplicate members of the request", verb: "link", body: `{"from":"hypothesis:h-1","predicate":"about","to":"gene:APOE","to":"gene:APOE"}`, want: "422 validation_failed | /to duplicate_key"},
		{name: "duplicate members by an escape", verb: "comment", body: `{"ref":"hypothesis:h-1","body":"a","b\u006fdy":"b"}`, want: "422 validation_failed | /body duplicate_key"},
		{name: "duplicate members of an item", verb: "batch", body: `{"items":[{"op":"signal","op":"link","ref":"hypothesis:h-1","kind":"vote","value":1}]}`, want: "422 validation_failed | /items/0/op duplicate_key"},
		{name: "a lone high surrogate", verb: create, body: hostileContent(`{"statement":"\ud83d"}`), want: "422 validation_failed | /content/statement utf8"},
		{name: "a lone low surrogate in a key", verb: create, body: hostileContent(`{"statement":"s","\ude00":1}`), want: "422 validation_failed | /content utf8"},
		{name: "a surrogate in a comment", verb: "comment", body: `{"ref":"hypothesis:h-1","body":"\ud83dx"}`, want: "422 validation_failed | /body utf8"},
		{name: "U+0000 in a key", verb: create, body: hostileContent(`{"statement":"s","a\u0000":1}`), want: "422 validation_failed | /content no_nul"},
		{name: "U+0000 in a reason", verb: "supersede", body: `{"ref":"hypothesis:h-1","reason":"a\u0000"}`, want: "422 validation_failed | /reason no_nul"},
		{name: "a raw NUL", verb: create, body: hostileContent("{\"statement\":\"a\x00\"}"), want: "400 validation_failed/invalid_json | /content/statement json"},
		{name: "a raw line feed in a string", verb: create, body: hostileContent("{\"statement\":\"a\nb\"}"), want: "400 validation_failed/invalid_json | /content/statement json"},
		{name: "bytes that are no UTF-8", verb: "comment", body: "{\"ref\":\"hypothesis:h-1\",\"body\":\"\xc3\x28\"}", want: "422 validation_failed | /body utf8"},
		{name: "an overlong slash", verb: create, body: hostileContent("{\"statement\":\"\xc0\xaf\"}"), want: "422 validation_failed | /content/statement utf8"},
		{name: "an encoded surrogate", verb: create, body: hostileContent("{\"statement\":\"\xed\xa0\x80\"}"), want: "422 validation_failed | /content/statement utf8"},
		{name: "a byte order mark", verb: create, body: "\ufeff" + hostileWith(""), want: "400 validation_failed/invalid_json |  json"},
		{name: "UTF-16", verb: create, body: "\xff\xfe{\x00}\x00", want: "400 validation_failed/invalid_json |  json"},
		{name: "garbage after the body", verb: create, body: hostileWith("") + "x", want: "400 validation_failed/invalid_json |  json"},
		{name: "a second body", verb: create, body: hostileWith("") + hostileWith(""), want: "400 validation_failed/invalid_json |  json"},
		{name: "a comma too many", verb: create, body: `{"type":"hypothesis","title":"t","content":{"statement":"s"},}`, want: "400 validation_failed/invalid_json |  json"},
		{name: "a comment in the JSON", verb: create, body: `{"type":"hypothesis"/* or gene */,"title":"t","content":{"statement":"s"}}`, want: "400 validation_failed/invalid_json |  json"},
		{name: "single quotes", verb: create, body: `{'type':'hypothesis'}`, want: "400 validation_failed/invalid_json |  json"},
		{name: "nothing", verb: "batch", body: ``, want: "400 validation_failed/invalid_json |  json"},
		{name: "white space", verb: "signal", body: "  \n\t ", want: "400 validation_failed/invalid_json |  json"},
		{name: "a body of 2 MiB + 1", verb: create, body: strings.Repeat(" ", 2<<20-len(hostileWith(""))+1) + hostileWith(""), want: "413 validation_failed/too_large |  max_bytes"},
		{name: "a batch of 16 MiB + 1", verb: "batch", body: strings.Repeat(" ", 16<<20-len(`{"items":[]}`)+1) + `{"items":[]}`, want: "413 validation_failed/too_large |  max_bytes"},
		{name: "200 faults", verb: create, body: hostileContent(`{"statement":"s","n":[` + strings.Repeat("1e999,", 199) + `1e999]}`), want: "422 validation_failed | /content/n/0 ieee_double | /content/n/1 ieee_double | /content/n/2 ieee_double | /content/n/3 ieee_double | 100 in all"},
	})
	if snapshot(t, f.db) != before {
		t.Error("what was refused changed the database")
	}
}

// TestHostileMembers sends requests whose members are of the wrong kind.
func TestHostileMembers(t *testing.T) {
	f, base, url, token := hostileHub(t)
	const create = "create"
	update := func(members string) string {
		return `{"ref":"hypothesis:h-1","base_content_hash":"` + base.ContentHash.String() + `"` + members + `}`
	}
	before := snapshot(t, f.db)
	f.refuse(t, url, token, []hostileRequest{
		{name: "an array", verb: create, body: `[]`, want: "422 validation_failed |  type"},
		{name: "a string", verb: "update", body: `"update"`, want: "422 validation_failed |  type"},
		{name: "null", verb: "link", body: `null`, want: "422 validation_failed |  type"},
		{name: "no members", verb: create, body: `{}`, want: "422 validation_failed | /content required | /title required | /type required"},
		{name: "no members", verb: "update", body: `{}`, want: "422 validation_failed | /base_content_hash required | /ref required"},
		{name: "no members", verb: "link", body: `{}`, want: "422 validation_failed | /from required | /predicate required | /to required"},
		{name: "no members", verb: "signal", body: `{}`, want: "422 validation_failed | /kind required | /ref required | /value required"},
		{name: "no members", verb: "comment", body: `{}`, want: "422 validation_failed | /body required | /ref required"},
		{name: "no members", verb: "cite", body: `{}`, want: "422 validation_failed | /paper_pmid required | /ref required"},
		{name: "no members", verb: "supersede", body: `{}`, want: "422 validation_failed | /reason required | /ref required"},
		{name: "no members", verb: "unlink", body: `{}`, want: "422 validation_failed | /reason required"},
		{name: "no members", verb: "batch", body: `{}`, want: "422 validation_failed | /items required"},
		{name: "null everywhere", verb: create, body: `{"type":null,"id":null,"scope":null,"title":null,"content":null,"state":null,"links":null,"additional_signatures":null,"idempotency_key":null,"dry_run":null}`, want: "422 validation_failed | /additional_signatures type | /content type | /dry_run type | /id type | 10 in all"},
		{name: "null everywhere", verb: "update", body: `{"ref":null,"base_content_hash":null,"content":null,"patch":null,"merge_patch":null,"title":null,"state":null,"note":null,"auto_merge":null}`, want: "422 validation_failed | /auto_merge type | /base_content_hash type | /content type | /merge_patch type | 9 in all"},
		{name: "null everywhere", verb: "link", body: `{"from":null,"predicate":null,"to":null,"evidence_refs":null,"evidence":null}`, want: "422 validation_failed | /evidence type | /evidence_refs type | /from type | /predicate type | /to type"},
		{name: "null everywhere", verb: "signal", body: `{"ref":null,"kind":null,"dimension":null,"value":null,"weight":null,"reason":null,"metadata":null,"voter":null}`, want: "422 validation_failed | /dimension type | /kind type | /metadata type | /reason type | /ref type | /value type | /voter type | /weight type"},
		{name: "null everywhere", verb: "comment", body: `{"ref":null,"body":null,"kind":null,"thread_parent":null,"scope":null}`, want: "422 validation_failed | /body type | /kind type | /ref type | /scope type | /thread_parent type"},
		{name: "null everywhere", verb: "supersede", body: `{"ref":null,"base_content_hash":null,"replacement_ref":null,"replacement":null,"reason":null}`, want: "422 validation_failed | /base_content_hash type | /reason type | /ref type | /replacement type | /replacement_ref type"},
		{name: "null items", verb: "batch", body: `{"items":[null,null]}`, want: "422 validation_failed | /items/0 type | /items/1 type"},
		{name: "items of other types", verb: "batch", body: `{"items":[1,"create",[],{"op":1},{"op":"create"},{}]}`, want: "422 validation_failed | /items/0 type | /items/1 type | /items/2 type | /items/3/op type | /items/4/content required | /items/4/title required | /items/4/type required | /items/5/op required"},
		{name: "types of the wrong kind", verb: create, body: `{"type":["hypothesis"],"title":{"en":"t"},"content":{"statement":"s"},"links":{"predicate":"about"},"dry_run":"true"}`, want: "422 validation_failed | /dry_run type | /links type | /title type | /type type"},
		{name: "content that is an array", verb: create, body: hostileContent(`[{"statement":"s"}]`), want: "422 validation_failed | /content type"},
		{name: "content that is a string of JSON", verb: create, body: hostileContent(`"{\"statement\":\"s\"}"`), want: "422 validation_failed | /content type"},
		{name: "content null", verb: create, body: hostileContent(`null`), want: "422 validation_failed | /content type"},
		{name: "content that is a number", verb: "update", body: update(`,"content":7`), want: "422 validation_failed | /content type"},
		{name: "content null", verb: "update", body: update(`,"content":null`), want: "422 validation_failed | /content type"},
		{name: "an unknown member, near a known", verb: create, body: hostileWith(`,"sope":"commons"`), want: `422 validation_failed | /sope unknown_field "scope"`},
		{name: "unknown members", verb: "update", body: update(`,"contents":{"statement":"s"},"actor_id":"eve","basecontenthash":""`), want: `422 validation_failed | /actor_id unknown_field | /basecontenthash unknown_field "base_content_hash" | /contents unknown_field "content"`},
		{name: "a member in another case", verb: create, body: hostileWith(`,"Title":"T"`), want: `422 validation_failed | /Title unknown_field "title"`},
		{name: "identity in the request", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"vote","value":1,"voter_id":"eve","created_by":"eve","session_id":"s"}`, want: "422 validation_failed | /created_by unknown_field | /session_id unknown_field | /voter_id unknown_field"},
		{name: "identity in a link of a create", verb: create, body: hostileWith(`,"links":[{"predicate":"about","to":"gene:APOE","by":"eve"}]`), want: "422 validation_failed | /links/0/by unknown_field"},
		{name: "an unknown member of an item", verb: "batch", body: `{"items":[{"op":"link","from":"hypothesis:h-1","predicate":"about","to":"gene:APOE","evidence_ref":[]}]}`, want: `422 validation_failed | /items/0/evidence_ref unknown_field "evidence_refs"`},
		{name: "an unknown op", verb: "batch", body: `{"items":[{"op":"creat","type":"gene","title":"t","content":{}}]}`, want: `422 validation_failed | /items/0/op enum "create"`},
		{name: "a key that is no UUID", verb: "comment", body: `{"ref":"hypothesis:h-1","body":"b","idempotency_key":"1"}`, want: "422 validation_failed | /idempotency_key uuid"},
		{name: "a key in braces", verb: create, body: hostileWith(`,"idempotency_key":"{0190a1b2-0000-7000-8000-000000000000}"`), want: "422 validation_failed | /idempotency_key uuid"},
		{name: "a key that is a number", verb: "signal", body: `{"ref":"hypothesis:h-1","kind":"vote","value":1,"idempotency_key":7}`, want: "422 validation_failed | /idempotency_key type"},
		{name: "1,001 items", verb: "batch", body: `{"items":[` + strings.Repeat(`{"op":"signal","ref":"hypothesis:h-1","kind":"vote","value":1},`, 1000) + `{"op":"signal","ref":"hypothesis:h-1","kind":"vote","value":1}]}`, want: "422 validation_failed | /items items"},
		{name: "import by a contributor", verb: "batch", body: `{"items":[{"op":"signal","ref":"hypothesis:h-1","kind":"vote","value":1,"voter":"import:x"}],"import":true}`, want: "403 permission_denied"},
		{name: "signatures that are no objects", verb: create, body: hostileWith(`,"additional_signatures":[1,"sig",null]`), want: "422 validation_failed | /additional_signatures/0 type | /additional_signatures/1 type | /additional_signatures/2 type"},
		{name: "a title of one space", verb: create, body: `{"type":"gene","id":"G","title":" ","content":{"symbol":"G1"}}`, want: "422 validation_failed | /title required"},
		{name: "a title of an ideographic space", verb: create, body: `{"type":"gene","id":"G","title":"\u3000","content":{"symbol":"G1"}}`, want: "422 validation_failed | /title required"},
		{name: "a title of two lines", verb: create, body: `{"type":"gene","id":"G","title":"a\u2028b","content":{"symbol":"G1"}}`, want: "422 validation_failed | /title title"},
		{name: "a title of 513 characters", verb: create, body: `{"type":"gene","id":"G","title":"` + strings.Repeat("é", 513) + `","content":{"symbol":"G1"}}`, want: "422 validation_failed | /title max_length"},
		{name: "a title of 513 characters", verb: "update", body: update(`,"title":"` + strings.Repeat("é", 513) + `"`), want: "422 validation_failed | /title max_length"},
		{name: "content of 1 MiB + 1", verb: create, body: hostileContent(`{"statement":"` + strings.Repeat("x", 1<<20+1-len(`{"statement":""}`)) + `"}`), want: "422 validation_failed | /content max_bytes"},
		{name: "content of 1 MiB + 1", verb: "update", body: update(`,"content":{"statement":"` + strings.Repeat("x", 1<<20+1-len(`{"statement":""}`)) + `"}`), want: "422 validation_failed | /content max_bytes"},
		{name: "100,000 links", verb: create, body: hostileWith(`,"links":[` + strings.Repeat(`{"predicate":"","to":""},`, 50_000) + `{"predicate":"","to":""}]`), want: "422 validation_failed | /links max_items | /links/0/to ref | /links/0/predicate predicate | /links/1/to ref | 100 in all"},
		{name: "500,000 evidence_refs", verb: "link", body: `{"from":"hypothesis:h-1","predicate":"about","to":"gene:APOE","evidence_refs":[` + strings.Repeat(`"",`, 499_999) + `""]}`, want: "422 validation_failed | /evidence_refs max_items | /evidence_refs/0 ref | /evidence_refs/1 ref | /evidence_refs/2 ref | 100 in all"},
		{name: "a list of 200,000 wrong elements", verb: create, body: hostileContent(`{"statement":"s","therapies":[` + strings.Repeat("1,", 199_999) + `1]}`), want: "422 validation_failed | /content/therapies/0 type | /content/therapies/1 type | /content/therapies/10 type | /content/therapies/11 type | 100 in all"},
		{name: "20,000 unknown members", verb: create, body: hostileWith(`,` + manyMembers(20_000)), want: "422 validation_failed | /m0 unknown_field | /m1 unknown_field | /m10 unknown_field | /m100 unknown_field | 100 in all"},
		{name: "evidence that is an array", verb: "link", body: `{"from":"hypothesis:h-1","predicate":"about","to":"gene:APOE","evidence":["e"]}`, want: "422 validation_failed | /evidence type"},
		{name: "evidence_refs that are no refs", verb: "link", body: `{"from":"hypothesis:h-1","predicate":"about","to":"gene:APOE","evidence_refs":["","x","paper:","hypothesis:h-1@sha256:00"]}`, want: "422 validation_failed | /evidence_refs/0 ref | /evidence_refs/1 ref | /evidence_refs/2 ref | /evidence_refs/3 content_hash"},
		{name: "a comment of 65,537 characters", verb: "comment", body: `{"ref":"hypothesis:h-1","body":"` + strings.Repeat("é", 65_537) + `"}`, want: "422 validation_failed | /body length"},
		{name: "a comment of white space", verb: "comment", body: `{"ref":"hypothesis:h-1","body":" \n\u2003"}`, want: "422 validation_failed | /body length"},
		{name: "a comment in answer to a hypothesis", verb: "comment", body: `{"ref":"hypothesis:h-1","body":"b","thread_parent":"hypothesis:h-1"}`, want: "422 validation_failed | /thread_parent to_types"},
		{name: "a note that is too long", verb: "update", body: update(`,"title":"T","note":"` + strings.Repeat("x", 2001) + `"`), want: "422 validation_failed | /note max_length"},
		{name: "a reason that is too long", verb: "supersede", body: `{"ref":"hypothesis:h-1","reason":"` + strings.Repeat("x", 2001) + `"}`, want: "422 validation_failed | /reason max_length"},
		{name: "no reason", verb: "supersede", body: `{"ref":"hypothesis:h-1","reason":""}`, want: "422 validation_failed | /reason required"},
	})
	if snapshot(t, f.db) != before {
		t.Error("what was refused changed the database")
	}
}

// TestHostileNames sends names that are none, or that look like others.
func TestHostileNames(t *testing.T) {
	f, _, url, token := hostileHub(t)
	const create = "create"
	named := func(id string) string {
		return `{"type":"hypothesis","id":` + quoted(id) + `,"title":"t","content":{"statement":"s"}}`
	}
	typed := func(typ string) string {
		return `{"type":` + quoted(typ) + `,"title":"t","content":{"statement":"s"}}`
	}
	linked := func(to string) string {
		return `{"from":"hypothesis:h-1","predicate":"about","to":` + quoted(to) + `}`
	}
	foreign := "hypothesis:h-1@" + artifact.HashBytes([]byte("foreign")).String()
	before := snapshot(t, f.db)
	f.refuse(t, url, token, []hostileRequest{
		{name: "a type with a Cyrillic letter", verb: create, body: typed("hypоthesis"), want: `422 validation_failed | /type registered_type "hypothesis"`},
		{name: "a type in full width", verb: create, body: typed("ｈｙｐｏｔｈｅｓｉｓ"), want: "422 validation_failed | /type registered_type"},
		{name: "a type in capitals", verb: create, body: typed("Hypothesis"), want: `422 validation_failed | /type registered_type "hypothesis"`},
		{name: "a type with a space", verb: create, body: typed("hypothesis "), want: `422 validation_failed | /type registered_type "hypothesis"`},
		{name: "a type that is a table", verb: create, body: typed("artifact; DROP TABLE artifact"), want: "422 validation_failed | /type registered_type"},
		{name: "no type", verb: create, body: typed(""), want: "422 validation_failed | /type registered_type"},
		{name: "a ref with a Cyrillic letter", verb: "link", body: linked("gеne:APOE"), want: "422 validation_failed | /to ref"},
		{name: "an id of a scope that is not there", verb: create, body: named("lab-z/x"), want: "422 validation_failed | /id scoped_id"},
		{name: "an id with a line feed", verb: create, body: named("a\nb"), want: "422 validation_failed | /id id_strategy"},
		{name: "an id with a space", verb: create, body: named("a b"), want: "422 validation_failed | /id id_strategy"},
		{name: "an id with @", verb: create, body: named("a@b"), want: "422 validation_failed | /id id_strategy"},
		{name: "an id with a colon", verb: create, body: named("a:b"), want: "422 validation_failed | /id id_strategy"},
		{name: "an id of 257 bytes", verb: create, body: named(strings.Repeat("x", 257)), want: "422 validation_failed | /id id_strategy"},
		{name: "an id of letters beyond ASCII", verb: create, body: named("h-é"), want: "422 validation_failed | /id id_strategy"},
		{name: "an id of an emoji", verb: create, body: named("🧬"), want: "422 validation_failed | /id id_strategy"},
		{name: "an id with a right-to-left override", verb: create, body: named("h-\u202e1"), want: "422 validation_failed | /id id_strategy"},
		{name: "an id with DEL", verb: create, body: named("h\x7f"), want: "422 validation_failed | /id id_strategy"},
		{name: "a link to an id with a space", verb: "link", body: linked("gene:AP OE"), want: "422 validation_failed | /to ref"},
		{name: "a link to an empty id", verb: "link", body: linked("gene:"), want: "422 validation_failed | /to ref"},
		{name: "a link to 257 bytes", verb: "link", body: linked("gene:" + strings.Repeat("x", 257)), want: "422 validation_failed | /to ref"},
		{name: "a link to SQL", verb: "link", body: linked("gene:'OR'1'='1"), want: "422 link_target_missing | /to link_targets_exist"},
		{name: "a link by SQL", verb: "link", body: `{"from":"hypothesis:h-1","predicate":"about' OR 1=1 --","to":"gene:APOE"}`, want: "422 validation_failed | /predicate predicate"},
		{name: "a percent-encoded id", verb: "link", body: linked("gene:AP%4FE"), want: "422 link_target_missing | /to link_targets_exist"},
		{name: "a link to itself", verb: "link", body: `{"from":"hypothesis:h-1","predicate":"supports","to":"hypothesis:h-1"}`, want: "422 validation_failed | /to no_self_link"},
		{name: "a link to a version that never was", verb: "link", body: `{"from":"hypothesis:h-2","predicate":"supports","to":"` + foreign + `"}`, want: "422 link_target_missing | /to link_targets_exist"},
		{name: "a link to a short hash", verb: "link", body: linked("gene:APOE@sha256:00"), want: "422 validation_failed | /to content_hash"},
		{name: "a link to a hash in capitals", verb: "link", body: linked("gene:APOE@sha256:" + strings.Repeat("A", 64)), want: `422 validation_failed | /to content_hash "gene:APOE@sha256:` + strings.Repeat("a", 64) + `"`},
		{name: "a link to the hash of zeros", verb: "link", body: linked("gene:APOE@sha256:" + strings.Repeat("0", 64)), want: "422 validation_failed | /to content_hash"},
		{name: "a link to an alias", verb: "link", body: linked("@h"), want: "422 validation_failed | /to ref_alias"},
		{name: "a link from an alias", verb: "link", body: `{"from":"@h","predicate":"about","to":"gene:APOE"}`, want: "422 validation_failed | /from ref_alias"},
		{name: "a link of a create to an alias", verb: create, body: hostileWith(`,"links":[{"predicate":"about","to":"@g"}]`), want: "422 validation_failed | /links/0/to ref_alias"},
		{name: "an alias", verb: "signal", body: `{"ref":"@h","kind":"vote","value":1}`, want: "422 validation_failed | /ref ref_alias"},
		{name: "an alias", verb: "comment", body: `{"ref":"@h","body":"b"}`, want: "422 validation_failed | /ref ref_alias"},
		{name: "an alias", verb: "cite", body: `{"ref":"@h","paper_pmid":"1"}`, want: "422 validation_failed | /ref ref_alias"},
		{name: "an alias", verb: "supersede", body: `{"ref":"@h","reason":"r"}`, want: "422 validation_failed | /ref ref_alias"},
		{name: "an alias of two signs", verb: "link", body: linked("@@"), want: "422 validation_failed | /to ref_alias"},
		{name: "a pinned ref", verb: "update", body: `{"ref":"` + foreign + `","base_content_hash":"` + artifact.HashBytes([]byte("foreign")).String() + `","title":"T"}`, want: "422 validation_failed/unknown_base | /base_content_hash known_version"},
		{name: "a base that is another artifact's", verb: "update", body: `{"ref":"hypothesis:h-1","base_content_hash":"` + artifact.ContentHash("hypothesis", "About h-2", "proposed", []byte(`{"statement":"y"}`)).String() + `","title":"T"}`, want: "422 validation_failed/unknown_base | /base_content_hash known_version"},
		{name: "a base of the future", verb: "update", body: `{"ref":"hypothesis:h-1","base_content_hash":"` + artifact.HashBytes([]byte("next")).String() + `","title":"T"}`, want: "422 validation_failed/unknown_base | /base_content_hash known_version"},
		{name: "a base in another algorithm", verb: "update", body: `{"ref":"hypothesis:h-1","base_content_hash":"md5:d41d8cd98f00b204e9800998ecf8427e","title":"T"}`, want: "422 validation_failed | /base_content_hash content_hash"},
		{name: "itself", verb: "supersede", body: `{"ref":"hypothesis:h-1","replacement_ref":"hypothesis:h-1","reason":"r"}`, want: "422 validation_failed | /replacement_ref no_self_supersede"},
		{name: "a circle", verb: "supersede", body: `{"ref":"hypothesis:h-2","replacement_ref":"hypothesis:h-old","reason":"r"}`, want: "422 validation_failed | /replacement_ref no_cycle"},
		{name: "what was superseded", verb: "supersede", body: `{"ref":"hypothesis:h-old","replacement_ref":"hypothesis:h-1","reason":"r"}`, want: "409 version_conflict/superseded"},
		{name: "by what is not there", verb: "supersede", body: `{"ref":"hypothesis:h-1","replacement_ref":"hypothesis:none","reason":"r"}`, want: "422 link_target_missing | /replacement_ref link_targets_exist"},
		{name: "what is not there", verb: "comment", body: `{"ref":"hypothesis:none","body":"b"}`, want: "404 not_found"},
		{name: "what is not there", verb: "signal", body: `{"ref":"hypothesis:none","kind":"vote","value":1}`, want: "404 not_found"},
		{name: "what is not there", verb: "update", body: `{"ref":"hypothesis:none","base_content_hash":"` + artifact.HashBytes([]byte("x")).String() + `","title":"T"}`, want: "404 not_found"},
		{name: "what is not there", verb: "unlink", body: `{"ref":"kg_edge:none","reason":"r"}`, want: "404 not_found"},
		{name: "a paper that is not there", verb: "cite", body: `{"ref":"hypothesis:h-1","paper_pmid":"99"}`, want: "422 link_target_missing | /paper_pmid link_targets_exist"},
		{name: "a PubMed id that is SQL", verb: "cite", body: `{"ref":"hypothesis:h-1","paper_pmid":"1' OR '1'='1"}`, want: "422 validation_failed | /paper_pmid pmid"},
		{name: "a PubMed id in full width", verb: "cite", body: `{"ref":"hypothesis:h-1","paper_pmid":"１"}`, want: "422 validation_failed | /paper_pmid pmid"},
		{name: "a PubMed id with its name", verb: "cite", body: `{"ref":"hypothesis:h-1","paper_pmid":"PMID:31452104"}`, want: `422 validation_failed | /paper_pmid pmid "31452104"`},
		{name: "itself", verb: "cite", body: `{"ref":"paper:PMID:1","paper_pmid":"1"}`, want: "422 validation_failed | /paper_pmid no_self_citation"},
		{name: "a scope that is SQL", verb: create, body: hostileWith(`,"scope":"' OR TRUE --"`), want: "422 validation_failed | /scope scope"},
		{name: "a scope in capitals", verb: create, body: hostileWith(`,"scope":"Commons"`), want: "422 validation_failed | /scope scope"},
		{name: "a scope with a space, and no id", verb: create, body: `{"type":"hypothesis","scope":"LAB 1","title":"T","content":{"statement":"s"}}`, want: "422 validation_failed | /scope scope"},
		{name: "a link by one end", verb: "unlink", body: `{"from":"hypothesis:h-1","reason":"r"}`, want: "422 validation_failed |  exactly_one"},
		{name: "a base without its algorithm", verb: "update", body: `{"ref":"hypothesis:h-1","base_content_hash":"` + strings.Repeat("AB", 32) + `","title":"T"}`, want: `422 validation_failed | /base_content_hash content_hash "sha256:` + strings.Repeat("ab", 32) + `"`},
		{name: "a time that is none", verb: "signals", body: `{"ref":"hypothesis:h-1","at":"yesterday"}`, want: "422 validation_failed | /at date-time"},
		{name: "an unknown state", verb: create, body: hostileWith(`,"state":"Proposed"`), want: `422 validation_failed | /state enum "proposed"`},
	})
	if snapshot(t, f.db) != before {
		t.Error("what was refused changed the database")
	}
}

// TestHostileSignals sends numbers that no aggregate may take in.
func TestHostileSignals(t *testing.T) {
	f, _, url, token := hostileHub(t)
	signal := func(members string) string { return `{"ref":"hypothesis:h-1",` + members + `}` }
	f.refuse(t, url, token, []hostileRequest{
		{name: "below the range", verb: "signal", body: signal(`"kind":"rank","dimension":"novelty","value":-0.1`), want: "422 validation_failed | /value range"},
		{name: "just above the range", verb: "signal", body: signal(`"kind":"rank","dimension":"novelty","value":1.00000000000000001`), want: "422 validation_failed | /value range"},
		{name: "near one of the values", verb: "signal", body: signal(`"kind":"vote","value":0.99999999999999999999`), want: "422 validation_failed | /value enum"},
		{name: "1,000 digits", verb: "signal", body: signal(`"kind":"fund","value":0.` + strings.Repeat("3", 1000)), want: "422 validation_failed | /value decimal"},
		{name: "31 decimals", verb: "signal", body: signal(`"kind":"fund","value":0.0000000000000000000000000000001`), want: "422 validation_failed | /value decimal"},
		{name: "1e300", verb: "signal", body: signal(`"kind":"fund","value":1e300`), want: "422 validation_failed | /value decimal"},
		{name: "1e-300", verb: "signal", body: signal(`"kind":"fund","value":1e-300`), want: "422 validation_failed | /value decimal"},
		{name: "a text", verb: "signal", body: signal(`"kind":"fund","value":"1"`), want: "422 validation_failed | /value type"},
		{name: "true", verb: "signal", body: signal(`"kind":"fund","value":true`), want: "422 validation_failed | /value type"},
		{name: "a weight of 1e308", verb: "signal", body: signal(`"kind":"vote","value":1,"weight":1e308`), want: "422 validation_failed | /weight decimal"},
		{name: "a negative weight", verb: "signal", body: signal(`"kind":"vote","value":1,"weight":-1`), want: "422 validation_failed | /weight minimum"},
		{name: "an unknown kind", verb: "signal", body: signal(`"kind":"votes","value":1`), want: `422 validation_failed | /kind signal_kind "vote"`},
		{name: "an unknown dimension", verb: "signal", body: signal(`"kind":"rank","dimension":"noveltie","value":0.5`), want: `422 validation_failed | /dimension enum "novelty"`},
		{name: "no dimension", verb: "signal", body: signal(`"kind":"rank","value":0.5`), want: "422 validation_failed | /dimension enum"},
		{name: "a dimension of a kind without", verb: "signal", body: signal(`"kind":"vote","dimension":"novelty","value":1`), want: "422 validation_failed | /dimension enum"},
		{name: "two faults", verb: "signal", body: signal(`"kind":"rank","dimension":"noveltie","value":7`), want: `422 validation_failed | /dimension enum "novelty" | /value range`},
		{name: "another's voice", verb: "signal", body: signal(`"kind":"vote","value":1,"voter":"import:eve"`), want: "422 validation_failed | /voter import_only"},
		{name: "metadata that is an array", verb: "signal", body: signal(`"kind":"vote","value":1,"metadata":[1]`), want: "422 validation_failed | /metadata type"},
		{name: "a duel where there are none", verb: "signal", body: signal(`"kind":"duel","value":1,"metadata":{"opponent":"hypothesis:h-2"}`), want: "422 validation_failed | /kind signal_kind"},
		{name: "a duel without an opponent where there are none", verb: "signal", body: signal(`"kind":"duel","value":1`), want: "422 validation_failed | /kind signal_kind"},
		{name: "a reason that is too long", verb: "signal", body: signal(`"kind":"vote","value":1,"reason":"` + strings.Repeat("x", 2001) + `"`), want: "422 validation_failed | /reason max_length"},
	})
}

// TestHostilePatches sends patches that would grow, or that RFC 6902 does not have.
func TestHostilePatches(t *testing.T) {
	f, base, url, token := hostileHub(t)
	update := func(members string) string {
		return `{"ref":"hypothesis:h-1","base_content_hash":"` + base.ContentHash.String() + `",` + members + `}`
	}
	patch := func(ops ...string) string { return update(`"patch":[` + strings.Join(ops, ",") + `]`) }
	var bomb, slow []string
	for i := range 30 {
		bomb = append(bomb, fmt.Sprintf(`{"op":"copy","from":"/content","path":"/content/c%d"}`, i))
	}
	for range 999 {
		slow = append(slow, `{"op":"copy","from":"/content/big","path":"/content/list/-"}`)
	}
	big := `{"op":"add","path":"/content/big","value":"` + strings.Repeat("x", 500_000) + `"}`
	turns := []string{`{"op":"add","path":"/content/a","value":["x"]}`, `{"op":"add","path":"/content/b","value":["x"]}`}
	for range 30 {
		turns = append(turns, `{"op":"copy","from":"/content/a","path":"/content/b/-"}`, `{"op":"copy","from":"/content/b","path":"/content/a/-"}`)
	}
	var wide []string
	for range 1001 {
		wide = append(wide, `{"op":"test","path":"/title","value":"About h-1"}`)
	}
	f.refuse(t, url, token, []hostileRequest{
		{name: "that copies the document into itself 30 times", verb: "update", body: patch(bomb...), want: "422 validation_failed | /patch/0/path json_patch | /patch/1/path json_patch | /patch/2/path json_patch | /patch/3/path json_patch | 30 in all"},
		{name: "that copies two lists into each other 30 times", verb: "update", body: patch(turns...), want: "422 validation_failed | /patch/25 json_patch"},
		{name: "that copies half a MiB 999 times", verb: "update", body: patch(append([]string{big}, slow...)...), want: "422 validation_failed | /patch/1 json_patch"},
		{name: "of 1,001 operations", verb: "update", body: patch(wide...), want: "422 validation_failed | /patch max_items"},
		{name: "with ~2", verb: "update", body: patch(`{"op":"add","path":"/content/a~2b","value":1}`), want: "422 validation_failed | /patch/0/path json_patch"},
		{name: "with ~ at the end", verb: "update", body: patch(`{"op":"remove","path":"/content/a~"}`), want: "422 validation_failed | /patch/0/path json_patch"},
		{name: "without a slash", verb: "update", body: patch(`{"op":"add","path":"content","value":1}`), want: "422 validation_failed | /patch/0/path json_patch"},
		{name: "with a leading zero", verb: "update", body: patch(`{"op":"replace","path":"/content/therapies/01","value":"c"}`), want: "422 validation_failed | /patch/0 json_patch"},
		{name: "with a sign", verb: "update", body: patch(`{"op":"replace","path":"/content/therapies/+1","value":"c"}`), want: "422 validation_failed | /patch/0 json_patch"},
		{name: "with - in test", verb: "update", body: patch(`{"op":"test","path":"/content/therapies/-","value":"b"}`), want: "422 validation_failed | /patch/0 patch_test"},
		{name: "with - in remove", verb: "update", body: patch(`{"op":"remove","path":"/content/therapies/-"}`), want: "422 validation_failed | /patch/0 json_patch"},
		{name: "past the end", verb: "update", body: patch(`{"op":"add","path":"/content/therapies/9","value":"c"}`), want: "422 validation_failed | /patch/0 json_patch"},
		{name: "into a text", verb: "update", body: patch(`{"op":"add","path":"/content/statement/0","value":"c"}`), want: "422 validation_failed | /patch/0 json_patch"},
		{name: "of what is not there", verb: "update", body: patch(`{"op":"replace","path":"/content/none","value":1}`), want: "422 validation_failed | /patch/0 json_patch"},
		{name: "a test that fails", verb: "update", body: patch(`{"op":"test","path":"/content/statement","value":"X"}`), want: "422 validation_failed | /patch/0 patch_test"},
		{name: "that moves a value into itself", verb: "update", body: patch(`{"op":"move","from":"/content","path":"/content/x"}`), want: "422 validation_failed | /patch/0/path json_patch"},
		{name: "that removes all", verb: "update", body: patch(`{"op":"remove","path":""}`), want: "422 validation_failed | /patch/0 json_patch"},
		{name: "that adds a member beside the three", verb: "update", body: patch(`{"op":"add","path":"/created_by","value":"eve"}`), want: `422 validation_failed | /patch/0/path json_patch "/content/created_by"`},
		{name: "that makes the content a text", verb: "update", body: patch(`{"op":"replace","path":"/content","value":"s"}`), want: "422 validation_failed | /patch json_patch"},
		{name: "that takes the title", verb: "update", body: patch(`{"op":"remove","path":"/title"}`), want: "422 validation_failed | /title required"},
		{name: "that breaks the schema twice", verb: "update", body: patch(`{"op":"remove","path":"/content/statement"}`, `{"op":"add","path":"/content/mechanism","value":"TBD"}`), want: "422 validation_failed | /content/mechanism minLength | /content/statement required"},
		{name: "with four malformed operations", verb: "update", body: patch(`{"op":"add","path":"/content/x"}`, `{"op":"nop","path":""}`, `7`, `{"op":"copy","path":"/a","from":7}`), want: "422 validation_failed | /patch/0/value json_patch | /patch/1/op json_patch | /patch/2 json_patch | /patch/3/from json_patch"},
		{name: "with an operation of the prototype", verb: "update", body: patch(`{"op":"__proto__","path":"/content"}`), want: "422 validation_failed | /patch/0/op json_patch"},
		{name: "that is an object", verb: "update", body: update(`"patch":{"op":"add"}`), want: "422 validation_failed | /patch type"},
		{name: "that is null", verb: "update", body: update(`"patch":null`), want: "422 validation_failed | /patch type"},
		{name: "and a merge patch", verb: "update", body: update(`"patch":[],"merge_patch":{}`), want: "422 validation_failed |  exactly_one"},
		{name: "merge_patch: an array", verb: "update", body: update(`"merge_patch":["a"]`), want: "422 validation_failed | /merge_patch type"},
		{name: "merge_patch: null", verb: "update", body: update(`"merge_patch":null`), want: "422 validation_failed | /merge_patch type"},
		{name: "merge_patch: a text", verb: "update", body: update(`"merge_patch":"x"`), want: "422 validation_failed | /merge_patch type"},
		{name: "merge_patch that breaks the schema", verb: "update", body: update(`"merge_patch":{"statement":null,"mechanism":"TBD"}`), want: "422 validation_failed | /content/mechanism minLength | /content/statement required"},
	})
}
