package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// A feed makes a valid log: what a hub would send.
type feed struct {
	tb    testing.TB
	rand  *rand.Rand
	seq   artifact.Seq
	chain artifact.Hash
	last  replicate.Trail
	at    time.Time
	ids   []string             // live artifacts
	heads map[string]*liveHead // by ref
	links []replicate.Row      // live links
	made  int                  // ids
	body  int                  // bytes of text in a body
	words *rand.Zipf           // which words that is of; nil for one long one
}

type liveHead struct {
	head      replicate.Head
	hash      artifact.Hash
	revisions []replicate.Row
	content   []byte
	stamped   json.RawMessage // provenance
}

func newFeed(tb testing.TB, seed uint64) *feed { //nolint:thelper // in a child process there is no test
	return &feed{
		tb: tb, rand: rand.New(rand.NewPCG(seed, 1)), heads: make(map[string]*liveHead), last: make(replicate.Trail), body: 100,
		at: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC),
	}
}

// batch makes a whole commit of rows.
func (f *feed) batch(rows []replicate.Row) replicate.Batch {
	for i := range rows {
		f.seq++
		rows[i].Seq, rows[i].Prev = f.seq, f.last[rows[i].Scope]
		f.last[rows[i].Scope] = f.seq
	}
	for i := range rows {
		rows[i].Commit = f.seq
		f.chain = rows[i].Extend(f.chain, replicate.Public)
	}
	return replicate.Batch{Rows: rows, To: f.seq, Chain: f.chain}
}

func (f *feed) encode(data any) ([]byte, artifact.Hash) {
	raw, hash, err := replicate.Encode(data)
	if err != nil {
		f.tb.Fatal(err)
	}
	return raw, hash
}

// newID makes an id that sorts after those before it, like the hub's UUIDv7.
func (f *feed) newID() string {
	f.made++
	return fmt.Sprintf("%012x-%016x", f.made, f.rand.Uint64())
}

func (f *feed) event(typ, ref string) *replicate.RowEvent {
	return &replicate.RowEvent{Type: typ, Ref: ref, ActorID: "ada", ActorKind: "human", Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, f.rand.IntN(1000)))}
}

// schemas are rows that register types.
func (f *feed) schemas(types ...string) (rows []replicate.Row) {
	for _, typ := range types {
		data, hash := f.encode(replicate.Schema{CreatedAt: f.at, Document: json.RawMessage(`{"search":{"body":["/text"]},"type":"` + typ + `"}`), SchemaVersion: 1, Type: typ})
		rows = append(rows, replicate.Row{Scope: artifact.Commons, Kind: replicate.KindSchema, Op: replicate.Put, Ref: "schema:" + typ, Revision: 1, Hash: hash, At: f.at, Data: data})
	}
	return rows
}

// write makes the rows of a new artifact or a new version of one.
func (f *feed) write(typ, id, title string) []replicate.Row {
	ref := typ + ":" + id
	l, verbed := f.heads[ref], "updated"
	if l == nil {
		verbed = "created"
		l = &liveHead{head: replicate.Head{CreatedAt: f.at, CreatedBy: "ada", ID: id, IsLatest: true, SchemaVersion: 1, Scope: artifact.Commons, State: "draft", Type: typ}}
		f.heads[ref] = l
		f.ids = append(f.ids, ref)
	}
	l.content = fmt.Appendf(nil, `{"n":%d,"text":"<&> \" é %s"}`, f.rand.Int64N(1e9), f.text())
	h := &l.head
	h.Title, h.UpdatedAt, h.UpdatedBy = title, f.at, "bob"
	h.Revision++
	h.ContentHash = artifact.ContentHash(typ, title, h.State, l.content)
	stamp := replicate.Provenance{ActorID: "bob", ActorKind: "human", Verb: verbed}
	l.stamped, _ = f.encode(stamp)
	revision, revisionHash := f.encode(replicate.Revision{
		ContentHash: h.ContentHash, CreatedAt: f.at, CreatedBy: "bob", ID: id, Note: "why",
		Provenance: stamp, Revision: h.Revision, SchemaVersion: 1, Scope: h.Scope, State: h.State, Title: title, Type: typ,
	})
	version := replicate.Row{Scope: h.Scope, Kind: replicate.KindRevision, Op: replicate.Put, Ref: ref, Revision: h.Revision, Hash: revisionHash, At: f.at, Data: revision, Content: l.content}
	l.revisions = append(l.revisions, version)
	head, headHash := f.encode(*h)
	row := replicate.Row{
		Scope: h.Scope, Kind: replicate.KindArtifact, Op: replicate.Put, Ref: ref, Revision: h.Revision, Hash: headHash, PrevHash: l.hash, At: f.at, Data: head,
		Event: f.event(typ+"."+verbed, ref+"@"+h.ContentHash.String()),
	}
	l.hash = headHash
	return []replicate.Row{version, row}
}

// text is as long as a body's is to be.
func (f *feed) text() string {
	if f.words == nil {
		return strings.Repeat("x", f.body)
	}
	var b strings.Builder
	for b.Len() < f.body {
		for n := f.words.Uint64()*7919 + 700; n > 0; n /= 20 {
			b.WriteByte("aeioubcdfghklmnprstv"[n%20])
		}
		b.WriteByte(' ')
	}
	return b.String()
}

// remove makes the rows that take an artifact out.
func (f *feed) remove(ref string) (rows []replicate.Row) {
	l := f.heads[ref]
	delete(f.heads, ref)
	for i, id := range f.ids {
		if id == ref {
			f.ids = append(f.ids[:i:i], f.ids[i+1:]...)
		}
	}
	for _, v := range l.revisions {
		rows = append(rows, replicate.Row{Scope: v.Scope, Kind: v.Kind, Op: replicate.Delete, Ref: ref, Revision: v.Revision, PrevHash: v.Hash, At: f.at})
	}
	return append(rows, replicate.Row{
		Scope: l.head.Scope, Kind: replicate.KindArtifact, Op: replicate.Delete, Ref: ref, Revision: l.head.Revision, PrevHash: l.hash, At: f.at,
		Event: f.event(l.head.Type+".removed", ref),
	})
}

func (f *feed) link(from, to string) []replicate.Row {
	id := f.newID()
	data, hash := f.encode(replicate.Link{At: f.at, By: "ada", EvidenceRefs: []string{to}, Evidence: json.RawMessage(`{"span":"a\u0001b"}`), From: from, ID: id, Predicate: "supports", Scope: artifact.Commons, To: to})
	row := replicate.Row{Scope: artifact.Commons, Kind: replicate.KindLink, Op: replicate.Put, Ref: "kg_edge:" + id, Revision: 1, Hash: hash, At: f.at, Data: data, Event: f.event("kg_edge.created", "kg_edge:"+id)}
	f.links = append(f.links, row)
	return []replicate.Row{row}
}

func (f *feed) unlink() []replicate.Row {
	i := f.rand.IntN(len(f.links))
	l := f.links[i]
	f.links = append(f.links[:i:i], f.links[i+1:]...)
	return []replicate.Row{{Scope: l.Scope, Kind: l.Kind, Op: replicate.Delete, Ref: l.Ref, Revision: 1, PrevHash: l.Hash, At: f.at}}
}

func (f *feed) signal(ref string) []replicate.Row {
	id := f.newID()
	data, hash := f.encode(replicate.Signal{
		Aggregate: artifact.Aggregate{Count: 1, Kind: "vote", Sum: "1", SumSq: "1", Voters: 1},
		At:        f.at, By: "ada", ID: id, Kind: "vote", Ref: ref, Scope: artifact.Commons, Value: "1", Voter: "ada", VoterKind: "human", Weight: "1",
	})
	typ, _, _ := strings.Cut(ref, ":")
	return []replicate.Row{{Scope: artifact.Commons, Kind: replicate.KindSignal, Op: replicate.Put, Ref: "signal:" + id, Revision: 1, Hash: hash, At: f.at, Data: data, Event: f.event(typ+".signaled", ref)}}
}

// random makes the rows of a random write.
func (f *feed) random() []replicate.Row {
	f.at = f.at.Add(time.Duration(f.rand.IntN(3)) * time.Millisecond)
	typ := []string{"hypothesis", "paper", "gene"}[f.rand.IntN(3)]
	if len(f.ids) < 3 {
		return f.write(typ, strconv.FormatUint(f.rand.Uint64(), 16), "a title")
	}
	pick := func() string { return f.ids[f.rand.IntN(len(f.ids))] }
	switch n := f.rand.IntN(20); {
	case n < 8:
		return f.write(typ, strconv.FormatUint(f.rand.Uint64(), 16), "a title")
	case n < 12:
		t, id, _ := strings.Cut(pick(), ":")
		return f.write(t, id, fmt.Sprintf("title %d\u2028\\u2028", n))
	case n < 14:
		return f.remove(pick())
	case n < 16:
		return f.link(pick(), pick())
	case n < 17 && len(f.links) > 0:
		return f.unlink()
	case n < 19:
		return f.signal(pick())
	}
	return []replicate.Row{{Scope: artifact.Commons, Kind: replicate.KindEvent, Op: replicate.Emit, Ref: pick(), At: f.at, Event: f.event("paper.read", pick())}}
}

// commits makes a batch of n random commits.
func (f *feed) commits(n int) replicate.Batch {
	var all replicate.Batch
	for range n {
		b := f.batch(f.random())
		b.Rows = append(all.Rows, b.Rows...)
		all = b
	}
	return all
}

var discard = slog.New(slog.DiscardHandler)

var hello = replicate.Hello{HubID: "hub-1", Epoch: 1, MinReader: replicate.WireVersion, Scopes: []string{artifact.Commons, "lab-a"}}

func openStore(tb testing.TB, path string) *node.Store {
	tb.Helper()
	s, err := node.OpenStore(context.WithoutCancel(tb.Context()), path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("Close() = %v", err)
		}
	})
	return s
}

// newStore returns an empty replica that has heard its hub.
func newStore(tb testing.TB) *node.Store {
	tb.Helper()
	s := openStore(tb, filepath.Join(tb.TempDir(), "replica ?#%41.db"))
	if err := s.Hello(tb.Context(), hello); err != nil {
		tb.Fatal(err)
	}
	return s
}

func apply(tb testing.TB, s *node.Store, b replicate.Batch) {
	tb.Helper()
	if err := s.Apply(tb.Context(), b); err != nil {
		tb.Fatalf("Apply up to %d: %v", b.To, err)
	}
}

func asAda(ctx context.Context) context.Context {
	return verb.WithCaller(ctx, &verb.Caller{Actor: artifact.Actor{ID: "ada", Kind: "human"}, Permissions: []string{verb.Viewer}})
}

// checkDigest compares the digest that is kept with the tables.
func checkDigest(tb testing.TB, s *node.Store) replicate.Digest {
	tb.Helper()
	kept, err := s.Digest(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	counted, err := s.Recount(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if diff := kept.Diff(counted); len(diff) > 0 || kept.Seq != counted.Seq {
		tb.Errorf("digest at %d differs from the tables at %d: %v", kept.Seq, counted.Seq, diff)
	}
	return kept
}

// A childT stands in for the test in a process that runs none.
type childT struct{ testing.TB }

func (*childT) Context() context.Context { return context.Background() }

func (*childT) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
