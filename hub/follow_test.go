package hub_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// A rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// appendRows appends n rows to the log that are nothing but events, as a
// transaction of the hub would, and returns the last one's seq.
func appendRows(t *testing.T, q rowQuerier, n int, class, scope, ref string) artifact.Seq {
	t.Helper()
	//nolint:dupword // SQL's arguments
	const query = `
		SELECT $4::int + feed.append(
			array_fill(1, ARRAY[$4]), array_fill($1::text, ARRAY[$4]), array_fill($2::text, ARRAY[$4]), array_fill('event'::text, ARRAY[$4]), array_fill('E'::text, ARRAY[$4]),
			(SELECT array_agg($3 || n ORDER BY n) FROM generate_series(1, $4) n), array_fill(1, ARRAY[$4]),
			array_fill(NULL::bytea, ARRAY[$4]), array_fill(NULL::bytea, ARRAY[$4]), array_fill(NULL::text, ARRAY[$4]),
			array_fill('test.happened'::text, ARRAY[$4]), array_fill($3::text, ARRAY[$4]), array_fill('{}'::text, ARRAY[$4]),
			ARRAY[$4::int], ARRAY[date_trunc('milliseconds', now())], ARRAY['tester'], ARRAY['human'], ARRAY[gen_random_uuid()], ARRAY['test'], ARRAY[''], ARRAY[''], ARRAY['[]'], ARRAY[''],
			NULL, NULL, NULL)`
	var last artifact.Seq
	if err := q.QueryRow(t.Context(), query, class, scope, ref, n).Scan(&last); err != nil {
		t.Errorf("append: %v", err) // not Fatal: goroutines call this
	}
	return last
}

// A rawFrame is a frame with its rows as they came.
type rawFrame struct {
	Type   string            `json:"type"`
	Hello  *replicate.Hello  `json:"hello"`
	From   artifact.Seq      `json:"from"`
	To     artifact.Seq      `json:"to"`
	Head   artifact.Seq      `json:"head"`
	Chain  string            `json:"chain"`
	Rows   []json.RawMessage `json:"rows"`
	Reason string            `json:"reason"`
	size   int
}

// A stream is an open feed.
type stream struct {
	t     *testing.T
	lines *bufio.Reader
	close context.CancelFunc
	at    artifact.Seq // where the last frame led
	chain string       // the last one told
	rows  []string     // all that came
	ends  []position   // of all pages
	parts int          // frames
	open  bool         // a part came and its commit's end did not
}

// A position is where a follower may resume.
type position struct {
	seq   artifact.Seq
	chain string
	rows  int // that came up to it
}

func (p position) query() string { return fmt.Sprintf("cursor=%d&chain=%s", p.seq, p.chain) }

const (
	plain      = "identity"
	compressed = "zstd"
)

// follow opens a feed and reads its hello.
func follow(t *testing.T, url, token, query, encoding string) (*stream, replicate.Hello) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/feed?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept-Encoding", encoding)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(resp.Body)
		t.Fatalf("GET /feed?%s = %s %s", query, resp.Status, raw)
	}
	var body io.Reader = resp.Body
	if got := resp.Header.Get("Content-Encoding"); (encoding == compressed) != (got == compressed) {
		t.Fatalf("Content-Encoding = %q for Accept-Encoding %q", got, encoding)
	}
	if encoding == compressed {
		dec, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(dec.Close)
		body = dec
	}
	s := &stream{t: t, lines: bufio.NewReader(body), close: cancel}
	f := s.next()
	if f.Type != replicate.FrameHello || f.Hello == nil {
		t.Fatalf("first frame = %+v, want a hello", f)
	}
	s.at = f.To
	return s, *f.Hello
}

// next reads a frame and checks what holds for every one.
func (s *stream) next() rawFrame {
	s.t.Helper()
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		s.t.Fatalf("read the feed after %d: %v", s.at, err)
	}
	if _, err := replicate.DecodeFrame(line); err != nil {
		s.t.Fatalf("a client refuses the frame: %v", err)
	}
	var f rawFrame
	if err := json.Unmarshal(line, &f); err != nil {
		s.t.Fatal(err)
	}
	f.size = len(line)
	switch f.Type {
	case replicate.FramePage, replicate.FramePart, replicate.FrameBeat:
		if f.From != s.at || f.To < f.From {
			s.t.Fatalf("%s from %d to %d, after one that led to %d", f.Type, f.From, f.To, s.at)
		}
		if len(f.Rows) > replicate.MaxPageRows {
			s.t.Errorf("%s of %d rows", f.Type, len(f.Rows))
		}
		if f.Head < f.To {
			s.t.Errorf("%s to %d of a log whose head is %d", f.Type, f.To, f.Head)
		}
		s.at, s.open = f.To, f.Type == replicate.FramePart
		for _, row := range f.Rows {
			s.rows = append(s.rows, string(row))
			checkCut(s.t, row, f.To, s.open)
		}
		if s.open {
			s.parts++
			break
		}
		s.ends = append(s.ends, position{f.To, f.Chain, len(s.rows)})
		if s.chain = f.Chain; f.Chain == "" && f.To > 0 {
			s.t.Errorf("a %s to %d without chain", f.Type, f.To)
		}
	}
	return f
}

// until reads frames up to the commit that ends at a seq.
func (s *stream) until(seq artifact.Seq) {
	s.t.Helper()
	for s.at < seq || s.open {
		if f := s.next(); f.Type == replicate.FrameReset {
			s.t.Fatalf("reset after %d: %s", s.at, f.Reason)
		}
	}
}

// readTo reads a log without HTTP up to a seq.
func readTo(t *testing.T, log replicate.Log, from, to artifact.Seq) (rows []string, chain artifact.Hash) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	reader, _, err := log.Open(ctx, replicate.Position{Seq: from}, []string{artifact.Commons})
	if err != nil {
		t.Fatalf("Open at %d: %v", from, err)
	}
	for at := from; at < to; {
		p, err := reader.Next(ctx, nil)
		if err != nil {
			t.Fatalf("Next after %d: %v", at, err)
		}
		if p.From != at || p.To <= at || p.Head < p.To {
			t.Fatalf("page from %d to %d of a log to %d, after %d", p.From, p.To, p.Head, at)
		}
		for _, r := range p.Rows {
			rows = append(rows, string(r))
			checkCut(t, r, p.To, p.Partial)
		}
		at, chain = p.To, p.Chain
	}
	return rows, chain
}

// checkCut checks that a page that leads to a seq holds the whole of a row's
// commit, unless it is a part.
func checkCut(t *testing.T, row []byte, to artifact.Seq, part bool) {
	t.Helper()
	var r struct {
		Seq    artifact.Seq `json:"seq"`
		Commit artifact.Seq `json:"commit"`
	}
	if err := json.Unmarshal(row, &r); err != nil {
		t.Fatal(err)
	}
	if r.Commit > to && !part {
		t.Errorf("a page ends at %d, within the commit of row %d, which ends at %d", to, r.Seq, r.Commit)
	}
}

// sameRows compares what two followers got.
func sameRows(t *testing.T, who string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("%s: row %d of %d = %.200s, want %.200s", who, i, len(got), got[i], want[i])
			return
		}
	}
	t.Errorf("%s: %d rows, want %d", who, len(got), len(want))
}

func (f *fixture) head(t *testing.T) artifact.Seq {
	t.Helper()
	return artifact.Seq(f.count(t, "SELECT coalesce(max(seq), 0) FROM feed.change"))
}

// checkDense checks that the log has all seqs up to its head, once.
func (f *fixture) checkDense(t *testing.T) {
	t.Helper()
	if n, head := f.count(t, "SELECT count(*) FROM feed.change"), f.head(t); n != int(head) {
		t.Errorf("the log has %d rows up to %d", n, head)
	}
	const split = `SELECT count(*) FROM feed.change c WHERE NOT EXISTS (SELECT FROM feed.change l WHERE l.seq = c.commit_seq AND l.commit_seq = l.seq)`
	if n := f.count(t, split); n != 0 {
		t.Errorf("%d rows are of commits without an end", n)
	}
}

// checkRing checks that followers are sent what the log says: the rows of the
// hub that wrote them are those of one that begins now.
func (f *fixture) checkRing(t *testing.T) {
	t.Helper()
	head := f.head(t)
	got, chain := readTo(t, f, 0, head)
	want, stored := readTo(t, newHubOn(t, f.db), 0, head)
	sameRows(t, "a follower of the hub that wrote", got, want)
	if chain != stored {
		t.Errorf("chain = %s, want %s", chain, stored)
	}
}

// commitEnds returns the last seqs of all commits.
func (f *fixture) commitEnds(t *testing.T) map[artifact.Seq]bool {
	t.Helper()
	rows, err := f.db.Query(t.Context(), "SELECT DISTINCT commit_seq FROM feed.change")
	if err != nil {
		t.Fatal(err)
	}
	seqs, err := pgx.CollectRows(rows, pgx.RowTo[artifact.Seq])
	if err != nil {
		t.Fatal(err)
	}
	ends := map[artifact.Seq]bool{0: true}
	for _, s := range seqs {
		ends[s] = true
	}
	return ends
}

func gene(id string) verb.BatchItem {
	return verb.BatchItem{Create: &verb.CreateRequest{Type: "gene", ID: id, Title: id, Content: content(map[string]any{"symbol": id})}}
}

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

// TestLargeCommitOfAnother checks that what another hub wrote, more than one read
// of the log brings, is read to its end at once.
func TestLargeCommitOfAnother(t *testing.T) {
	f := newHub(t)
	var items []verb.BatchItem
	for i := range 12 {
		items = append(items, verb.BatchItem{Create: &verb.CreateRequest{
			Type: "hypothesis", ID: fmt.Sprint("big", i), Title: "b", Content: content(map[string]any{"statement": "x", "description": strings.Repeat("y", 900_000)}),
		}})
	}
	f.must(t, f.batchOf(t, true, items...))
	r := prometheus.NewRegistry()
	newHubWith(t, hub.Config{DB: f.db, PollInterval: time.Hour, Metrics: r})
	head := float64(f.head(t))
	for end := time.Now().Add(20 * time.Second); gauge(t, r, "scidex_hub_log_head") != head; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the pump stands at %v of %v", gauge(t, r, "scidex_hub_log_head"), head)
		}
	}
}

// gauge returns the value of a metric.
func gauge(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
