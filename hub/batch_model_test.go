package hub_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// An itemMaker makes random items over few artifacts, many of which meet.
type itemMaker struct {
	*rand.Rand
	n       int      // items made
	aliases []string // with @
}

func (m *itemMaker) of(of ...string) string { return of[m.IntN(len(of))] }

// New ones come into play all along, since old ones come to be replaced.
func (m *itemMaker) hypothesis() string { return fmt.Sprintf("hypothesis:m%d", m.n/40*2+m.IntN(6)) }
func (m *itemMaker) paper() string      { return fmt.Sprintf("paper:PMID:%d", 1+m.n/60+m.IntN(3)) }
func (m *itemMaker) statement() string  { return fmt.Sprintf("statement %d", m.IntN(3)) }

// ref is one that may be there, or an alias that may have been given.
func (m *itemMaker) ref() string {
	if len(m.aliases) > 0 && m.IntN(4) == 0 {
		return m.aliases[m.IntN(len(m.aliases))]
	}
	return m.of(m.hypothesis(), m.hypothesis(), m.hypothesis(), m.paper())
}

// base is the hash of a version that a hypothesis may have, or had.
func (m *itemMaker) base() artifact.Hash {
	return artifact.ContentHash("hypothesis", "T", m.of("proposed", "proposed", "investigating"), statement(m.statement()))
}

func (m *itemMaker) link() verb.LinkSpec {
	l := verb.LinkSpec{Predicate: m.of("derives_from", "supports", "cites"), To: m.ref()}
	if l.Predicate == "cites" && m.IntN(4) > 0 {
		l.To = m.paper()
	}
	if m.IntN(3) == 0 {
		l.EvidenceRefs = []string{m.ref()}
	}
	return l
}

func (m *itemMaker) create() *verb.CreateRequest {
	in := &verb.CreateRequest{Type: "hypothesis", ID: strings.TrimPrefix(m.hypothesis(), "hypothesis:"), Title: "T", Content: statement(m.statement())}
	if m.IntN(4) == 0 {
		in.Type, in.ID = "paper", strings.TrimPrefix(m.paper(), "paper:")
		in.Content = content(map[string]any{"pmid": strings.TrimPrefix(m.paper(), "paper:PMID:")})
	}
	for range m.IntN(3) {
		in.Links = append(in.Links, m.link())
	}
	return in
}

// next makes an item; nothing of it depends on how it is run.
func (m *itemMaker) next() verb.BatchItem {
	m.n++
	var it verb.BatchItem
	switch m.IntN(14) {
	case 0, 1, 2, 12, 13:
		it.Create = m.create()
	case 3, 4:
		it.Update = &verb.UpdateRequest{Ref: m.ref(), BaseContentHash: m.base(), AutoMerge: m.IntN(2) == 0}
		switch m.IntN(4) {
		case 0:
			it.Update.Content = statement(m.statement())
		case 1:
			it.Update.MergePatch = content(map[string]any{m.of("statement", "disease"): m.statement()})
		case 2:
			it.Update.Patch = json.RawMessage(`[{"op":"replace","path":"/content/statement","value":"` + m.statement() + `"}]`)
		case 3:
			it.Update.State = m.of("investigating", "deprecated", "resolved")
		}
	case 5:
		it.Supersede = &verb.SupersedeRequest{Ref: m.ref(), Reason: "r"}
		switch m.IntN(3) {
		case 0:
			it.Supersede.ReplacementRef = m.ref()
		case 1:
			in := m.create()
			it.Supersede.Replacement = &verb.NewArtifact{Type: in.Type, ID: in.ID, Title: in.Title, Content: in.Content, Links: in.Links}
		}
	case 6, 7:
		it.Comment = &verb.CommentRequest{Ref: m.ref(), Body: fmt.Sprintf("comment %d", m.n)}
		if len(m.aliases) > 0 && m.IntN(2) == 0 {
			it.Comment.ThreadParent = m.aliases[m.IntN(len(m.aliases))]
		}
	case 8:
		it.Signal = &verb.SignalRequest{Ref: m.ref(), Kind: m.of("vote", "vote", "rank"), Value: json.Number(m.of("1", "-1", "0", "7"))}
		if it.Signal.Kind == "rank" {
			it.Signal.Dimension, it.Signal.Value = m.of("novelty", "feasibility"), json.Number(m.of("0", "0.5", "1", "7"))
		}
	case 9:
		l := m.link()
		it.Link = &verb.LinkRequest{From: m.ref(), LinkSpec: l}
	case 10:
		if len(m.aliases) > 0 && m.IntN(3) == 0 {
			it.Unlink = &verb.UnlinkRequest{Ref: m.aliases[m.IntN(len(m.aliases))], Reason: "r"}
		} else {
			it.Unlink = &verb.UnlinkRequest{From: m.ref(), Predicate: m.of("derives_from", "supports", "cites"), To: m.ref(), Reason: "r"}
		}
	case 11:
		it.Cite = &verb.CiteRequest{Ref: m.ref(), PMID: strings.TrimPrefix(m.paper(), "paper:PMID:")}
	}
	if it.Unlink == nil && m.IntN(3) == 0 {
		it.RefAlias = fmt.Sprintf("a%d", m.n)
		m.aliases = append(m.aliases, "@"+it.RefAlias)
	}
	return it
}

// TestBatchIsItsItems: a batch that is not atomic does what its items do when each
// is run by itself, by its own verb.
func TestBatchIsItsItems(t *testing.T) {
	whole, single := newHub(t), newHub(t)
	m := &itemMaker{Rand: rand.New(rand.NewPCG(7, uint64(testSeed(t))))}
	done, failed := 0, make(map[artifact.Code]int)
	for round := range 40 {
		m.aliases = nil
		items := make([]verb.BatchItem, 1+m.IntN(40))
		for i := range items {
			items[i] = m.next()
		}
		out := whole.batchOf(t, false, items...)
		names := make(map[string]string)
		for i := range items {
			given := asJSON(t, items[i])
			ref, err := single.runItem(t, items[i], names)
			if got := out.Items[i].Error; errors.Is(err, errUnmade) {
				if got == nil {
					t.Fatalf("round %d, item %d, %s: done, though nothing has the alias", round, i, given)
				}
				continue
			}
			if got, want := tellError(out.Items[i].Error), tellError(toError(err)); got != want {
				t.Fatalf("round %d, item %d, %s: in the batch %s, by itself %s", round, i, given, got, want)
			}
			if err != nil {
				failed[toError(err).Code]++
				continue
			}
			done++
			if items[i].RefAlias != "" {
				names["@"+items[i].RefAlias] = ref
			}
		}
		for name, query := range tables {
			got, want := whole.rows(t, query), single.rows(t, query)
			if !slices.Equal(got, want) {
				t.Fatalf("round %d: %s differ:\n%s\nby themselves:\n%s", round, name, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	whole.checkDigest(t)
	t.Logf("%d of %d items were done, others failed: %v", done, m.n, failed)
	if done < m.n/10 {
		t.Errorf("only %d of %d items were done: the test tests little", done, m.n)
	}
}

// testSeed returns a new seed, or that of SCIDEX_TEST_SEED, to see a failure again.
func testSeed(t *testing.T) int64 {
	t.Helper()
	seed := int64(rand.Uint32())
	if given := os.Getenv("SCIDEX_TEST_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseInt(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d", seed)
	return seed
}

func toError(err error) *artifact.Error {
	if err == nil {
		return nil
	}
	return artifact.AsError(err)
}

// tellError tells errors apart, but for ids that the hub made.
func tellError(e *artifact.Error) string {
	if e == nil {
		return "done"
	}
	all := []string{string(e.Code), e.Reason}
	for _, p := range e.Problems {
		all = append(all, p.Path+" "+p.Constraint)
	}
	if e.Conflict != nil {
		all = append(all, e.Conflict.YourBase, string(e.Conflict.Current.Content), strconv.Itoa(e.Conflict.Current.Revision))
		if e.Conflict.Merge != nil {
			all = append(all, fmt.Sprint(e.Conflict.Merge.Clean, e.Conflict.Merge.Conflicting))
		}
	}
	return strings.Join(all, "; ")
}

// errUnmade is that of an item that names what another failed to make.
var errUnmade = errors.New("nothing has this alias")

// runItem runs an item by its verb, with aliases in refs replaced. It returns the
// ref of what it made.
func (f *fixture) runItem(t *testing.T, it verb.BatchItem, names map[string]string) (string, error) {
	t.Helper()
	for _, ref := range it.Refs() {
		if strings.HasPrefix(ref.Text, "@") && names[ref.Text] == "" {
			return "", errUnmade
		}
	}
	raw := asJSON(t, it)
	for alias, ref := range names {
		raw = strings.ReplaceAll(raw, `"`+alias+`"`, `"`+ref+`"`)
	}
	it = verb.BatchItem{}
	if err := json.Unmarshal([]byte(raw), &it); err != nil {
		t.Fatal(err)
	}
	ctx := contributor(t.Context())
	written := func(w verb.WriteResult, err error) (string, error) { return w.Ref.Current().String(), err }
	linked := func(l verb.LinkResult, err error) (string, error) { return l.Ref, err }
	switch {
	case it.Create != nil:
		return written(verb.Create.Call(ctx, f.verbs, *it.Create))
	case it.Update != nil:
		return written(verb.Update.Call(ctx, f.verbs, *it.Update))
	case it.Supersede != nil:
		w, err := verb.Supersede.Call(ctx, f.verbs, *it.Supersede)
		if w.SupersededBy != "" {
			return w.SupersededBy, err
		}
		return w.Ref.Current().String(), err
	case it.Comment != nil:
		return written(verb.Comment.Call(ctx, f.verbs, *it.Comment))
	case it.Signal != nil:
		s, err := verb.Signal.Call(ctx, f.verbs, *it.Signal)
		return s.Ref, err
	case it.Link != nil:
		return linked(verb.Link.Call(ctx, f.verbs, *it.Link))
	case it.Unlink != nil:
		return linked(verb.Unlink.Call(ctx, f.verbs, *it.Unlink))
	}
	return linked(verb.Cite.Call(ctx, f.verbs, *it.Cite))
}

// tables are what both must have in the end, without what the hub makes up: ids of
// comments, links and signals, and times.
var tables = map[string]string{
	"artifacts": `
		SELECT concat_ws(' ', a.type, CASE WHEN a.type = 'comment' THEN r.content ELSE a.id END, a.revision, a.state, a.title, r.content, a.is_latest, a.quality_score,
			CASE WHEN a.superseded_by LIKE 'comment:%' THEN 'a comment' ELSE a.superseded_by END)
		FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision`,
	"revisions": `
		SELECT concat_ws(' ', r.type, r.revision, r.state, r.title, r.content, encode(r.content_hash, 'hex')) FROM artifact_revision r`,
	"links": `
		SELECT concat_ws(' ', CASE WHEN l.from_type = 'comment' THEN r.content ELSE l.from_type || ':' || l.from_id END, l.predicate,
			CASE WHEN l.to_type = 'comment' THEN q.content WHEN l.to_type IN ('kg_edge', 'signal') THEN l.to_type ELSE l.to_ref END, regexp_replace(l.evidence_refs, '[0-9a-f]{8}-[0-9a-f-]+', 'x', 'g'), l.evidence)
		FROM link l LEFT JOIN artifact_revision r ON r.type = l.from_type AND r.id = l.from_id AND r.revision = 1
		LEFT JOIN artifact_revision q ON q.type = l.to_type AND q.id = l.to_id AND q.revision = 1`,
	"retractions": `SELECT concat_ws(' ', r.link::jsonb ->> 'predicate', r.link::jsonb ->> 'evidence_refs' <> '[]', r.reason) FROM link_retraction r`,
	"signals":     `SELECT concat_ws(' ', CASE WHEN s.type <> 'comment' THEN s.artifact END, s.type, s.kind, s.value) FROM signal s`,
	"aggregates":  `SELECT concat_ws(' ', CASE WHEN g.type <> 'comment' THEN g.artifact END, g.type, g.kind, g.n, g.voters, g.sum, g.sum_sq) FROM signal_aggregate g`,
	"papers":      `SELECT concat_ws(' ', p.kind, p.key, p.scope, p.id) FROM paper_key p`,
	"the logs": `
		SELECT concat_ws(' ', CASE WHEN c.kind = 'artifact' OR c.kind = 'revision' THEN regexp_replace(c.ref, '[0-9a-f]{8}-[0-9a-f-]+', 'x', 'g') END,
			c.kind, c.op, c.revision, c.event_type, c.prev_hash IS NULL)
		FROM feed.change c WHERE c.kind <> 'agent'`,
}

func (f *fixture) rows(t *testing.T, query string) (all []string) {
	t.Helper()
	rows, err := f.db.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	slices.Sort(all)
	return all
}
