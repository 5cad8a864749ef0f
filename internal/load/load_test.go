package load_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/load"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/sample"
	"github.com/scidex-ai/substrate/verb"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// A fixture is a running hub on a database of its own.
type fixture struct {
	*hub.Hub
	db *pgxpool.Pool
}

func initHub(ctx context.Context, db *pgxpool.Pool) error {
	_, err := hub.Init(ctx, db)
	return err
}

func newHub(t testing.TB) *fixture {
	t.Helper()
	db := pgtest.New(t, initHub)
	h, err := hub.Open(t.Context(), hub.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return &fixture{Hub: h, db: db}
}

// as returns a context of a caller with these permissions.
func as(ctx context.Context, permissions ...string) context.Context {
	return verb.WithCaller(ctx, &verb.Caller{
		Actor: artifact.Actor{ID: "ada", Kind: "human"}, Permissions: permissions, SessionID: "s", RequestID: uuid.NewString(), Now: artifact.Now(),
	})
}

func (f *fixture) token(t testing.TB, permissions ...string) string {
	t.Helper()
	c := verb.Claims{ActorKind: "human", Permissions: permissions}
	c.Subject = "ada"
	token, err := f.SigningKey().Sign(c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (f *fixture) head(t testing.TB) artifact.Seq {
	t.Helper()
	seq, err := f.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// serve serves the fixture at an address and returns what stops that.
func (f *fixture) serve(t testing.TB, addr string, wrap func(http.Handler) http.Handler) (url string, stop func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	srv := httptest.NewUnstartedServer(wrap(f.Handler(nil, done)))
	_ = srv.Listener.Close()
	srv.Listener = listener
	srv.Start()
	return srv.URL, func() {
		close(done)
		srv.CloseClientConnections()
		srv.Close()
	}
}

func plain(h http.Handler) http.Handler { return h }

func text(name, lines string) load.Input {
	return load.Input{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(lines)), nil }}
}

// mustLoad loads in process as a contributor.
func (f *fixture) mustLoad(t *testing.T, lines string) (load.Summary, []load.Rejected) {
	t.Helper()
	var rejected []load.Rejected
	sum, err := load.Run(as(t.Context(), verb.Contributor), load.Config{
		Invoker: f.Verbs(), Inputs: []load.Input{text("in.jsonl", lines)},
		Reject: func(r load.Rejected) { rejected = append(rejected, r) },
	})
	if err != nil {
		t.Fatalf("Run error = %v", err)
	}
	return sum, rejected
}

// hypothesis returns a line with these links, as rel and to by turns.
func hypothesis(id string, links ...string) string {
	list := make([]map[string]string, 0, len(links)/2)
	for i := 0; i < len(links); i += 2 {
		list = append(list, map[string]string{"rel": links[i], "to": links[i+1]})
	}
	return line(map[string]any{"type": "hypothesis", "id": id, "title": "About " + id, "content": map[string]any{"statement": id + " <holds>"}, "links": list})
}

func vote(id, target string, value int, by string) string {
	return line(map[string]any{
		"type": "signal", "id": id, "title": "a vote", "content": map[string]any{"kind": "vote", "value": value, "by": by, "provenance": map[string]any{"source": "s1"}},
		"links": []any{map[string]any{"rel": "rates", "to": target}},
	})
}

func line(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw) + "\n"
}

func count(created, unchanged, rejected int64) load.Counts {
	return load.Counts{Created: created, Unchanged: unchanged, Rejected: rejected}
}

// counts returns a summary without what differs between runs.
func counts(s load.Summary) load.Summary {
	s.Seconds, s.RecordsPerSecond, s.LastSeq, s.ConsistencyToken = 0, 0, 0, ""
	return s
}

func TestLoadsForwardLinksAndIsIdempotent(t *testing.T) {
	f := newHub(t)
	lines := "\ufeff" + hypothesis("h1", "contradicts", "hypothesis:h2") + "\r\n\n" +
		vote("v1", "hypothesis:h2", 1, "bob") + hypothesis("h2", "contradicts", "hypothesis:h1", "contradicts", "hypothesis:h1")
	first, rejected := f.mustLoad(t, lines)
	want := load.Summary{Artifacts: count(2, 0, 0), Links: load.LinkCounts{Counts: count(2, 1, 0)}, Signals: count(1, 0, 0), Lines: 3}
	if d := cmp.Diff(want, counts(first)); d != "" || rejected != nil {
		t.Fatalf("first load: rejected %v, summary (-want +got):\n%s", rejected, d)
	}
	head := f.head(t)
	if first.LastSeq != head || first.ConsistencyToken == "" {
		t.Errorf("first load: last seq %d, token %q, want seq %d and a token", first.LastSeq, first.ConsistencyToken, head)
	}
	want = load.Summary{Artifacts: count(0, 2, 0), Links: load.LinkCounts{Counts: count(0, 3, 0)}, Signals: count(0, 1, 0), Lines: 3}
	again := func(when string) {
		t.Helper()
		sum, rejected := f.mustLoad(t, lines)
		if d := cmp.Diff(want, counts(sum)); d != "" || rejected != nil {
			t.Errorf("load %s: rejected %v, summary (-want +got):\n%s", when, rejected, d)
		}
		if got := f.head(t); got != head {
			t.Errorf("load %s: head = %d, want %d as before", when, got, head)
		}
	}
	again("again, by stored answers")
	if _, err := f.db.Exec(t.Context(), "DELETE FROM idempotency"); err != nil {
		t.Fatal(err)
	}
	again("again, days later")
}

func TestLoadsTheSample(t *testing.T) {
	f := newHub(t)
	sum, rejected := f.mustLoad(t, string(sample.JSONL))
	if len(rejected) > 0 || sum.Lines != int64(bytes.Count(sample.JSONL, []byte("\n"))) || sum.Signals.Created == 0 || sum.Links.Created == 0 {
		t.Errorf("load of the sample = %+v, rejected %v", sum, rejected)
	}
}

func TestReportsEveryFaultOfALine(t *testing.T) {
	deep := strings.Repeat(`{"a":`, artifact.MaxContentDepth+1) + "1" + strings.Repeat("}", artifact.MaxContentDepth+1)
	huge := strings.Repeat("x", artifact.MaxContentBytes)
	const ok = `"type":"hypothesis","id":"h9","title":"t"`
	const content = `"content":{"statement":"s"}`
	tests := []struct {
		name, line string
		want       []string // path: rule
	}{
		{"no JSON", `{"type":`, []string{"/type: json"}},
		{"more than one value", hypothesisLine("h9") + "{}", []string{": json"}},
		{"no object", `[1]`, []string{": type"}},
		{"nothing but braces", `{}`, []string{"/type: required", "/id: required", "/title: required", "/content: required"}},
		{"wrong types", `{"type":1,"id":null,"title":[],"content":"x","links":{}}`, []string{"/type: type", "/id: type", "/title: type", "/content: type", "/links: type"}},
		{"bad names", `{"type":"Hypothesis","id":"h 1","title":"a\nb",` + content + `}`, []string{"/type: type_name", "/id: id_strategy", "/title: title"}},
		{"unknown fields", `{` + ok + `,` + content + `,"tags":[],"a/b":1}`, []string{"/a~1b: unknown_field", "/tags: unknown_field"}},
		{"duplicate keys and a NUL", `{` + ok + `,"content":{"statement":"\u0000","a":1,"a":2},"x":1}`, []string{"/content/statement: no_nul", "/content/a: duplicate_key", "/x: unknown_field"}},
		{"numbers", `{` + ok + `,"content":{"statement":"s","n":[9007199254740993,1e999]}}`, []string{"/content/n/0: exact_integer", "/content/n/1: ieee_double"}},
		{"too deep", `{` + ok + `,"content":` + deep + `}`, []string{"/content" + strings.Repeat("/a", artifact.MaxContentDepth) + ": max_depth"}},
		{"too large", `{` + ok + `,"content":{"statement":"` + huge + `"}}`, []string{"/content: max_bytes"}},
		{"links", `{` + ok + `,` + content + `,"links":[1,{},{"rel":"about","to":"gene APOE"},{"rel":1,"to":"gene:APOE","x":1}]}`, []string{
			"/links/0: type", "/links/1/rel: required", "/links/1/to: required", "/links/2/to: ref", "/links/3/rel: type", "/links/3/x: unknown_field",
		}},
		{"a signal on nothing", `{"type":"signal","id":"s","title":"t","content":{"value":"1","weight":true}}`, []string{
			"/content/kind: required", "/links: signal_target", "/content/value: type", "/content/weight: type",
		}},
		{"longer than a line may be", `{` + ok + `,"content":{"statement":"` + strings.Repeat("x", load.MaxLine) + `"}}`, []string{": max_bytes"}},
		{"an unknown type", `{"type":"hypothesys","id":"h9","title":"t",` + content + `}`, []string{"/type: registered_type"}},
		{"content against its schema", `{` + ok + `,"content":{"statement":1}}`, []string{"/content/statement: type"}},
		{"what the hub has otherwise", `{"type":"hypothesis","id":"good","title":"another","content":{"statement":"s"},"links":[{"rel":"about","to":"gene:X"}]}`, []string{": version_conflict"}},
		{"links to nothing, and by no predicate", strings.TrimSpace(hypothesis("h10", "contradicts", "hypothesis:none", "contradict", "hypothesis:good", "contradicts", "hypothesis:good")), []string{
			"/links/0/to: link_targets_exist", "/links/1/rel: predicate",
		}},
		{"a vote of 7", strings.TrimSpace(vote("v", "hypothesis:good", 7, "bob")), []string{"/content/value: enum"}},
		{"a vote on nothing", strings.TrimSpace(vote("v", "hypothesis:none", 1, "bob")), []string{"/links/0/to: not_found"}},
	}
	f := newHub(t)
	var file strings.Builder
	file.WriteString(hypothesis("good")) // line 1; test i is on line i+2
	for _, tt := range tests {
		file.WriteString(tt.line + "\n")
	}
	sum, rejected := f.mustLoad(t, file.String()+hypothesis("last"))
	got := make(map[int][]string)
	records := make(map[int]int)
	for _, r := range rejected {
		got[r.Line] = append(got[r.Line], r.Path+": "+r.Constraint)
		if r.Record != nil {
			records[r.Line]++
		}
		if r.File != "in.jsonl" || r.Message == "" {
			t.Errorf("rejected %+v, want a file and a message", r)
		}
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			slices.Sort(tt.want)
			slices.Sort(got[i+2])
			if d := cmp.Diff(tt.want, got[i+2]); d != "" {
				t.Errorf("faults of %.200s (-want +got):\n%s", tt.line, d)
			}
			if want := 1; tt.name != "longer than a line may be" && records[i+2] != want {
				t.Errorf("records told of the line = %d, want %d", records[i+2], want)
			}
		})
		delete(got, i+2)
	}
	if len(got) > 0 {
		t.Errorf("faults of good lines: %v", got)
	}
	want := load.Summary{
		Artifacts: count(3, 0, 10), Links: load.LinkCounts{Counts: count(1, 0, 2), Skipped: 5}, Signals: count(0, 0, 3),
		Lines: int64(len(tests)) + 2, RejectedLines: int64(len(tests)),
	}
	if d := cmp.Diff(want, counts(sum)); d != "" {
		t.Errorf("summary (-want +got):\n%s", d)
	}
	if got, want := rejected[0].String(), "in.jsonl:2: /type: json: "; !strings.HasPrefix(got, want) {
		t.Errorf("String of a fault = %q, want %q…", got, want)
	}
}

func hypothesisLine(id string) string { return strings.TrimSpace(hypothesis(id)) }

func TestARerunTakesWhatFailedBefore(t *testing.T) {
	f := newHub(t)
	// Both links go in one batch, whose answer the hub stores.
	lines := hypothesis("h0") + hypothesis("h1", "contradicts", "hypothesis:h0", "contradicts", "hypothesis:h2")
	if sum, _ := f.mustLoad(t, lines); sum.Links.Counts != count(1, 0, 1) {
		t.Fatalf("links of the first load = %+v, want one and one rejected", sum.Links)
	}
	f.mustLoad(t, hypothesis("h2"))
	if sum, rejected := f.mustLoad(t, lines); sum.Links.Counts != count(1, 1, 0) {
		t.Errorf("links of the second load = %+v, want one and one unchanged; rejected %v", sum.Links, rejected)
	}
}

func TestImportKeepsVoters(t *testing.T) {
	f := newHub(t)
	long := strings.Repeat("é", 100)
	lines := hypothesis("h1") + vote("v1", "hypothesis:h1", 1, "annotator-7") + vote("v2", "hypothesis:h1", -1, "José A@b") +
		vote("v3", "hypothesis:h1", 1, long+"1") + vote("v4", "hypothesis:h1", 1, long+"2") + vote("v5", "hypothesis:h1", 0, "annotator-7")
	c := load.Config{Invoker: f.Verbs(), Inputs: []load.Input{text("in", lines)}, Import: true, Parallel: 4}
	shipped := f.head(t)
	_, err := load.Run(as(t.Context(), verb.Contributor), c)
	if !artifact.IsCode(err, artifact.CodePermissionDenied) {
		t.Fatalf("import by a contributor: error = %v, want permission_denied", err)
	}
	if head := f.head(t); head != shipped {
		t.Errorf("a refused import moved the head from %d to %d", shipped, head)
	}
	sum, err := load.Run(as(t.Context(), verb.Admin), c)
	if err != nil || sum.Signals != count(5, 0, 0) || sum.Artifacts != count(1, 0, 0) {
		t.Fatalf("import by an admin = %+v, %v", sum, err)
	}
	var voters, value int
	var names []string
	err = f.db.QueryRow(t.Context(), "SELECT voters, sum::int FROM signal_aggregate").Scan(&voters, &value)
	if err != nil || voters != 4 || value != 1 {
		t.Errorf("aggregate: %d voters, sum %d, %v; want 4 voters, sum 1: the last vote counts", voters, value, err)
	}
	if err := f.db.QueryRow(t.Context(), "SELECT array_agg(DISTINCT voter ORDER BY voter) FROM signal").Scan(&names); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, "import:annotator-7") || !slices.Contains(names, "import:Jos%C3%A9%20A%40b") {
		t.Errorf("voters = %q", names)
	}
	var metadata string
	if err := f.db.QueryRow(t.Context(), "SELECT metadata FROM signal LIMIT 1").Scan(&metadata); err != nil || metadata != `{"provenance":{"source":"s1"}}` {
		t.Errorf("metadata = %s, %v, want the provenance", metadata, err)
	}
}

func countOf(t *testing.T, f *fixture, table string) (n int) {
	t.Helper()
	if err := f.db.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// many returns n hypotheses, each linked to the next.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(hypothesis(fmt.Sprintf("h%d", i), "contradicts", fmt.Sprintf("hypothesis:h%d", (i+1)%n)))
	}
	return b.String()
}

func TestLosesNothingWhenTheHubRestarts(t *testing.T) {
	f := newHub(t)
	const n = 2000
	var calls atomic.Int64
	third := make(chan struct{})
	// The third batch runs, but its answer is lost: the outcome is unknown.
	url, stop := f.serve(t, "127.0.0.1:0", func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if calls.Add(1) != 3 {
				h.ServeHTTP(w, req)
				return
			}
			h.ServeHTTP(httptest.NewRecorder(), req)
			close(third)
			panic(http.ErrAbortHandler)
		})
	})
	restarted := make(chan func())
	go func() {
		<-third
		stop()
		time.Sleep(300 * time.Millisecond) // a hub that is away
		_, stop := f.serve(t, strings.TrimPrefix(url, "http://"), plain)
		restarted <- stop
	}()
	var done, total int64
	sum, err := load.Run(t.Context(), load.Config{
		Invoker: &verb.Client{URL: url, Token: f.token(t, verb.Contributor)}, Inputs: []load.Input{text("in", many(n))},
		Progress: func(d, all int64) { done, total = d, all },
		Reject:   func(r load.Rejected) { t.Errorf("rejected %v", r) },
	})
	(<-restarted)()
	want := load.Summary{Artifacts: count(n, 0, 0), Links: load.LinkCounts{Counts: count(n, 0, 0)}, Lines: n}
	if d := cmp.Diff(want, counts(sum)); d != "" || err != nil {
		t.Errorf("load over a restart: error %v, summary (-want +got):\n%s", err, d)
	}
	if a, k := countOf(t, f, "artifact WHERE type <> 'schema'"), countOf(t, f, "link"); a != n || k != n {
		t.Errorf("the hub has %d artifacts and %d links, want %d of each", a, k, n)
	}
	if done != 2*n || total != 2*n {
		t.Errorf("progress ended at %d of %d, want %d", done, total, 2*n)
	}
}

// A flaky invoker calls before on each call, which may fail it.
type flaky struct {
	verb.Invoker
	before func(call int64) error
	calls  atomic.Int64
}

func (f *flaky) Invoke(ctx context.Context, name string, in, out any) error {
	if err := f.before(f.calls.Add(1)); err != nil {
		return err
	}
	return f.Invoker.Invoke(ctx, name, in, out)
}

func TestEndsEarlyAndGoesOn(t *testing.T) {
	const n = 1000 // five batches of artifacts, five of links
	away := &artifact.Error{Code: artifact.CodeUnavailable, Reason: "hub_unreachable", Message: "away", Retryable: true}
	run := func(ctx context.Context, f *fixture, from int64, before func(int64) error) (load.Summary, error) {
		return load.Run(as(ctx, verb.Contributor), load.Config{
			Invoker: &flaky{Invoker: f.Verbs(), before: before}, Inputs: []load.Input{text("in", many(n))}, From: from, RetryFor: -1,
			Reject: func(r load.Rejected) { t.Errorf("rejected %v", r) },
		})
	}
	always := func(int64) error { return nil }
	t.Run("when the hub stays away", func(t *testing.T) {
		f := newHub(t)
		sum, err := run(t.Context(), f, 0, func(call int64) error {
			if call >= 8 {
				return away
			}
			return nil
		})
		if !artifact.IsCode(err, artifact.CodeUnavailable) || sum.Artifacts.Created != n || sum.ResumeFrom < 201 || sum.ResumeFrom > 401 {
			t.Fatalf("load = %+v, %v; want all artifacts, an unavailable error and where to go on", sum, err)
		}
		links := sum.Links.Created
		sum, err = run(t.Context(), f, sum.ResumeFrom, always)
		if err != nil || links+sum.Links.Created != n || sum.Artifacts.Created != 0 || sum.Lines >= n {
			t.Errorf("going on after %d links = %+v, %v; want the other links", links, sum, err)
		}
	})
	t.Run("among the artifacts", func(t *testing.T) {
		f := newHub(t)
		sum, err := run(t.Context(), f, 0, func(call int64) error {
			if call >= 3 {
				return away
			}
			return nil
		})
		if err == nil || sum.ResumeFrom != 0 || sum.Links.Created != 0 {
			t.Fatalf("load = %+v, %v; want no line to go on from", sum, err)
		}
		if sum, err = run(t.Context(), f, 0, always); err != nil || sum.Links.Created != n || sum.Artifacts.Created+sum.Artifacts.Unchanged != n {
			t.Errorf("load again = %+v, %v", sum, err)
		}
	})
	t.Run("when it is interrupted", func(t *testing.T) {
		f := newHub(t)
		ctx, cancel := context.WithCancel(t.Context())
		sum, err := run(ctx, f, 0, func(call int64) error {
			if call == 7 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) || sum.ResumeFrom == 0 {
			t.Fatalf("load = %+v, %v; want an interruption and where to go on", sum, err)
		}
		if got := countOf(t, f, "link"); got != int(sum.Links.Created) || got == 0 {
			t.Errorf("the hub has %d links, the summary says %d: what was under way is finished and told", got, sum.Links.Created)
		}
		links := sum.Links.Created
		if sum, err = run(t.Context(), f, sum.ResumeFrom, always); err != nil || links+sum.Links.Created != n {
			t.Errorf("going on after %d links = %+v, %v; want the other links", links, sum, err)
		}
	})
	t.Run("at the first refusal", func(t *testing.T) {
		f := newHub(t)
		inv := &flaky{Invoker: f.Verbs(), before: always}
		_, err := load.Run(as(t.Context(), verb.Viewer), load.Config{Invoker: inv, Inputs: []load.Input{text("in", many(n))}})
		if !artifact.IsCode(err, artifact.CodePermissionDenied) || inv.calls.Load() > 2 {
			t.Errorf("load by a viewer: error = %v after %d calls, want permission_denied at once", err, inv.calls.Load())
		}
	})
}

func TestSpoolReadsMoreThanOnce(t *testing.T) {
	in, closeSpool, err := load.Spool(t.Context(), "-", strings.NewReader("a\nb\n"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := in.Open()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); string(got) != "a\nb\n" || err != nil {
			t.Errorf("read = %q, %v", got, err)
		}
	}
	if err := closeSpool(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, w := io.Pipe()
	defer w.Close()
	if _, _, err := load.Spool(ctx, "-", r); !errors.Is(err, context.Canceled) {
		t.Errorf("Spool of what blocks: error = %v, want context.Canceled", err)
	}
}

// realData returns the files of real data, or skips.
func realData(t testing.TB) []string {
	t.Helper()
	dir := os.Getenv("SCIDEX_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Skip("no real data: set SCIDEX_TEST_DATA")
	}
	return files
}

func TestLoadsRealLines(t *testing.T) {
	var inputs []load.Input
	lines := int64(0)
	for _, name := range realData(t) {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var head []byte
		for l := range bytes.Lines(raw) {
			if lines++; lines%50 == 0 {
				break
			}
			head = append(head, l...)
		}
		inputs = append(inputs, text(filepath.Base(name), string(head)))
	}
	f := newHub(t)
	url, stop := f.serve(t, "127.0.0.1:0", plain)
	defer stop()
	missing := int64(0)
	sum, err := load.Run(t.Context(), load.Config{
		Invoker: &verb.Client{URL: url, Token: f.token(t, verb.Admin)}, Inputs: inputs, Import: true,
		Reject: func(r load.Rejected) {
			if r.Constraint == "link_targets_exist" || r.Constraint == "not_found" {
				missing++ // it stands beyond the lines that were taken
			} else {
				t.Errorf("rejected %v", r)
			}
		},
	})
	if err != nil || sum.Artifacts.Created+sum.Signals.Created+sum.Signals.Rejected != sum.Lines || sum.Links.Rejected+sum.Signals.Rejected != missing {
		t.Errorf("load = %+v, %v, with %d targets missing", sum, err, missing)
	}
}
