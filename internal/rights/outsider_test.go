package rights_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/verb"
)

// Differences that are meant, by who asks, verb and property. Each must be there:
// one that is gone is to be taken out.
var meant = map[string]string{
	"anyone: agents/update.handle": "handles are unique over the whole hub, so that one is taken cannot be kept from anyone; whose it is, is",

	"an admin in commons: agents/register.handle": "as for agents/update",
	"an admin in commons: agents/register.id":     "an admin in commons manages all agents",
	"an admin in commons: agents/update.agent":    "an admin in commons manages all agents",
	"an admin in commons: nodes/invite.scopes":    "an admin in commons manages all scopes",
	"an admin in commons: nodes/revoke.id":        "an admin in commons manages all nodes",
	"an admin in commons: scopes/create.id":       "an admin in commons manages all scopes",
	"an admin in commons: scopes/grant.scope":     "an admin in commons manages all scopes",
	"an admin in commons: scopes/members.cursor":  "an admin in commons manages all scopes",
	"an admin in commons: scopes/members.scope":   "an admin in commons manages all scopes",
	"an admin in commons: scopes/revoke.scope":    "an admin in commons manages all scopes",
}

// dryRunOnly are verbs, or properties of them, with which a write is only tried,
// lest it change what is asked for afterwards.
var dryRunOnly = map[string]string{
	"agents/update.handle":  "the twin of a private handle would be taken afterwards",
	"scopes/grant":          "a member becomes known in the scope, whose members may then read of it",
	"scopes/revoke":         "the memberships of those who ask are needed",
	"supersede.replacement": "what one of a pair replaces, the other would meet replaced",
	"tokens/revoke":         "the tokens of those who ask are needed",
}

// triesOnly reports whether a variant is only tried: what one of a pair that names
// a version writes, the other would meet.
func triesOnly(v verb.Info, c caller, x variant) bool {
	_, whole := dryRunOnly[v.Name]
	property, _, _ := strings.Cut(x.of, ".")
	_, part := dryRunOnly[v.Name+"."+property]
	return mayDryRun(v) && (c.admin || whole || part || strings.HasSuffix(x.of, keptBack))
}

// shows are the verbs whose plain answer tells an admin in commons of every lab.
var shows = []string{"scopes/list", "nodes/list"}

// incomplete are shapes that no caller may send, so that nothing is learnt of what
// they could reach.
var incomplete = map[string]string{
	"signal.voter":                 "only an import names a voter",
	"nodes/invite.idempotency_key": "an answer with a secret is not kept",
}

// TestOutsider asks each verb, at hub and node, for what the caller may not know
// of and for what is not there. The answers are the same, byte for byte, and the
// private thing stays as it was.
func TestOutsider(t *testing.T) {
	l := newLab(t)
	g := newGenerator(t, l)
	o := &outsider{lab: l, met: map[string]bool{}}
	all := verbs()
	slices.SortStableFunc(all, func(a, b verb.Info) int { return strings.Compare(string(a.Effect), string(b.Effect)) }) // reads come first
	t.Run("every shape of a request is one that somebody may send", func(t *testing.T) { o.reach(t, g, all) })
	before := o.state(t)
	for table, sum := range before {
		if strings.HasPrefix(sum, "0 ") && table != "revocation" {
			t.Errorf("nothing in %s is private: nothing is tried of it", table)
		}
	}
	for _, v := range all {
		variants := g.variants(v)
		for _, c := range l.callers {
			for _, door := range c.doors {
				t.Run(v.Name+"/"+c.name+"/"+door, func(t *testing.T) {
					o.plain(t, v, c, door, g.required(v.Name, v.In))
					for _, variant := range variants {
						o.compare(t, v, c, door, variant)
					}
					if diff := cmp.Diff(before, o.state(t)); diff != "" {
						t.Errorf("what is private changed (-before +after):\n%s", diff)
					}
				})
			}
		}
	}
	o.pages(t)
	for key, reason := range meant {
		if !o.met[key] {
			t.Errorf("%s: no difference was met; take the exception out (%s)", key, reason)
		}
	}
	for _, table := range []map[string]string{dryRunOnly, incomplete} {
		for key := range table {
			name, property, _ := strings.Cut(key, ".")
			i := slices.IndexFunc(all, func(v verb.Info) bool { return v.Name == name })
			if i < 0 || property != "" && all[i].In.Properties[property] == nil {
				t.Errorf("%s: there is no such verb or property; take the exception out", key)
			}
		}
	}
	t.Logf("%d pairs of requests to %d verbs", o.pairs, len(all))
}

// An outsider counts what it asked.
type outsider struct {
	*lab
	met   map[string]bool // meant differences
	pairs int
}

// reach checks that requests which name nothing private are answered, so that the
// pairs differ in the name alone.
func (o *outsider) reach(t *testing.T, g *generator, all []verb.Info) {
	t.Helper()
	for _, v := range all {
		for _, s := range g.shapes(v) {
			r := s.request
			if mayDryRun(v) {
				r = r.with(request{"dry_run": true})
			}
			key := v.Name + "." + s.added
			a := o.ask(t, atHub, o.root.Token, v.Name, r)
			if _, known := incomplete[key]; known == (a.status == 200) {
				t.Errorf("%s: %v = %d %s", key, r, a.status, a.body)
			}
		}
	}
}

// plain checks that a read which names nothing private tells of nothing private.
func (o *outsider) plain(t *testing.T, v verb.Info, c caller, door string, r request) {
	t.Helper()
	if v.Effect != verb.Read {
		return
	}
	a := o.ask(t, door, c.token, v.Name, r)
	told := o.tells(a.body)
	switch {
	case c.admin && slices.Contains(shows, v.Name):
		if told == "" && v.Name != "nodes/list" {
			t.Errorf("%s tells an admin of no lab; take the exception out", v.Name)
		}
	case told != "":
		t.Errorf("%s %v tells of %s: %s", v.Name, r, told, a.body)
	}
}

// tells returns what a text tells of what is private, "" for nothing.
func (o *outsider) tells(text string) string {
	if strings.Contains(text, secret) {
		return secret
	}
	for _, named := range slices.Concat(o.private.nodes, o.private.tokens, o.private.keys, o.private.pmids, []pair{o.private.past}) {
		if strings.Contains(text, named.real) {
			return named.real
		}
	}
	for _, r := range o.private.refs {
		if !strings.Contains(r.real, secret) && strings.Contains(text, r.real) {
			return r.real
		}
		if strings.Contains(text, r.hash.String()) {
			return r.hash.String()
		}
	}
	return ""
}

func (o *outsider) compare(t *testing.T, v verb.Info, c caller, door string, x variant) {
	t.Helper()
	real, twin := x.real, x.twin
	if triesOnly(v, c, x) {
		real, twin = real.with(request{"dry_run": true}), twin.with(request{"dry_run": true})
	}
	got := o.ask(t, door, c.token, v.Name, real)
	want := o.ask(t, door, c.token, v.Name, twin)
	o.pairs++
	o.judge(t, v.Name+"."+x.of, c, fmt.Sprintf("%s (%s) %s", v.Name, x.name, text(real)), level(got, v.Effect, x), level(want, v.Effect, x))
}

// judge reports two answers that differ, unless that is meant.
func (o *outsider) judge(t *testing.T, key string, c caller, asked string, got, want answer) {
	t.Helper()
	diff := ""
	switch {
	case got.status != want.status || got.body != want.body:
		diff = fmt.Sprintf("\n  what is private: %d %s\n  what is not:     %d %s", got.status, got.body, want.status, want.body)
	case !maps.EqualFunc(got.head, want.head, slices.Equal):
		diff = cmp.Diff(want.head, got.head)
	}
	if diff == "" {
		return
	}
	for _, key := range []string{"anyone: " + key, c.name + ": " + key} {
		if _, ok := meant[key]; ok {
			o.met[key] = true
			return
		}
	}
	t.Errorf("%s: the answers differ: %s", asked, diff)
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// fresh is what an answer to a write makes anew each time.
var fresh = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|"seq":[0-9]+|"consistency_token":"[^"]*"|"[a-z_]+_at":"[^"]*"|"request_id":"[0-9a-f-]{36}"|scidex-join-[A-Za-z0-9_-]+`)

// edgeHash is the hash of a link or signal, which follows from what the request
// itself names and from when it was made.
var edgeHash = regexp.MustCompile(`("ref":"(?:kg_edge|signal):[^"]*","content_hash":)"sha256:[0-9a-f]{64}"`)

var hashes = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// level takes out of an answer the name that was asked for, and what a write makes
// anew.
func level(a answer, effect verb.Effect, x variant) answer {
	for _, p := range x.same {
		a.body = strings.ReplaceAll(strings.ReplaceAll(a.body, p.real, "<it>"), p.twin, "<it>")
	}
	a.body = twin(a.body)
	if effect == verb.Write {
		made := fresh.ReplaceAllString(a.body, "<fresh>")
		if made != a.body {
			a.head = a.head.Clone()
			a.head.Del("Content-Length") // times differ in length
		}
		a.body = edgeHash.ReplaceAllString(made, `$1"<hash>"`)
		if x.hashed && a.status == 200 {
			a.body = hashes.ReplaceAllString(a.body, "<hash>")
		}
	}
	return a
}

// state is a sum of all that is private, by table.
func (o *outsider) state(t *testing.T) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for table, which := range map[string]string{
		"artifact": "scope = $1 OR type = 'message' AND title LIKE '%' || $2", "artifact_revision": "scope = $1", "paper_key": "scope = $1", "link": "scope = $1", "link_retraction": "link LIKE '%' || $2", "signal": "scope = $1", "event": "scope = $1", "membership": "scope = $1",
		"agent_seen": "scope = $1", "scope": "id = $1", "agent": "id LIKE $2", "handle": "agent LIKE $2", "participant": "id LIKE $1 || '%' OR (type, id) IN (SELECT type, id FROM artifact WHERE title LIKE '%' || $2)", "idempotency": "actor LIKE $2", "consumer_subscriptions": "agent LIKE $2",
		"(SELECT id, lab, scopes, revoked_at FROM edge_node)": "$1 = ANY (scopes)", "revocation": "agent LIKE $2",
	} {
		query := "SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, E'\\n' ORDER BY t::text)), '') FROM " + table + " AS t WHERE $1 <> '' AND $2 <> '' AND (" + which + ")"
		var sum string
		if err := o.db.QueryRow(t.Context(), query, labA, secret+"%").Scan(&sum); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		sums[table] = sum
	}
	return sums
}
