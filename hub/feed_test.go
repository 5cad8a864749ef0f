package hub_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// TestFeedOrder checks that transactions that overlap appear whole, in the order
// of their commits, with no seq left out.
func TestFeedOrder(t *testing.T) {
	f := newHub(t)
	f.mustCreate(t, hypothesis("first", "x")) // tells of its author too
	s, hello := follow(t, f.serve(t), f.token(t, "vic", verb.Viewer), fmt.Sprintf("cursor=%d", f.head(t)), plain)
	at := hello.Head
	begin := func() pgx.Tx {
		tx, err := f.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
		return tx
	}
	wrote := func(tx pgx.Tx, scope string) {
		if _, err := tx.Exec(t.Context(), "INSERT INTO scope (id, title, created_at, created_by) VALUES ($1, '', now(), '')", scope); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(refs ...string) {
		t.Helper()
		from := len(s.rows)
		s.until(f.head(t))
		var got []string
		for _, row := range s.rows[from:] {
			var r replicate.Row
			if err := json.Unmarshal([]byte(row), &r); err != nil {
				t.Fatal(err)
			}
			if at++; r.Seq != at {
				t.Errorf("row %d comes as number %d", r.Seq, at)
			}
			if n := len(got); n == 0 || got[n-1] != r.Ref {
				got = append(got, r.Ref)
			}
		}
		if strings.Join(got, " ") != strings.Join(refs, " ") {
			t.Errorf("the feed has %v, want %v", got, refs)
		}
	}
	commit := func(tx pgx.Tx) {
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("one that began first and appends last comes last", func(t *testing.T) {
		slow := begin()
		wrote(slow, "slow") // it has its rows and its transaction id
		f.mustCreate(t, hypothesis("quick", "x"))
		expect("hypothesis:quick")
		appendRows(t, slow, 1, "public", artifact.Commons, "test:slow")
		f.mustReadNothing(t, s.at)
		commit(slow)
		expect("test:slow1")
	})
	t.Run("one that has appended holds up those after it and is not skipped", func(t *testing.T) {
		open := begin()
		wrote(open, "open")
		appendRows(t, open, 3, "public", artifact.Commons, "test:open")
		waits := make(chan error, 1)
		go func() {
			_, err := verb.Create.Call(contributor(t.Context()), f.verbs, hypothesis("waits", "x"))
			waits <- err
		}()
		f.mustReadNothing(t, s.at)
		select {
		case err := <-waits:
			t.Fatalf("a commit passed one that had its seqs: %v", err)
		default:
		}
		commit(open)
		if err := <-waits; err != nil {
			t.Fatal(err)
		}
		expect("test:open1", "test:open2", "test:open3", "hypothesis:waits")
	})
	t.Run("one that rolls back leaves no gap", func(t *testing.T) {
		gone := begin()
		appendRows(t, gone, 5, "public", artifact.Commons, "test:gone")
		if err := gone.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.mustCreate(t, hypothesis("next", "x"))
		expect("hypothesis:next")
		f.checkDense(t)
	})
}

// mustReadNothing checks that a follower at a seq gets nothing for a while.
func (f *fixture) mustReadNothing(t *testing.T, at artifact.Seq) {
	t.Helper()
	reader, _, err := f.Open(t.Context(), replicate.Position{Seq: at}, commons)
	if err != nil {
		t.Fatal(err)
	}
	if page, err := reader.Next(t.Context(), time.After(400*time.Millisecond)); page != nil || err != nil { // more than a poll
		t.Errorf("a follower at %d reads %+v (%v): what is not committed shows", at, page, err)
	}
}

// TestFollowersAgree writes from eight goroutines, with rows that are for nobody
// in between, while followers of all kinds read along.
func TestFollowersAgree(t *testing.T) {
	db := pgtest.New(t, initHub)
	f := newHubOn(t, db)
	laggard := newHubWith(t, hub.Config{DB: db, RingBytes: 1}) // a second hub, which learns by its poll
	small := newHubWith(t, hub.Config{DB: db, RingBytes: 30_000, PollInterval: 2 * time.Millisecond})
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)

	const writers, each = 8, 30
	live := make(map[string]*stream)
	for name, served := range map[string]string{"plain": url, "zstd": url, "a hub with a small ring": small.serve(t)} {
		encoding := plain
		if name == "zstd" {
			encoding = compressed
		}
		live[name], _ = follow(t, served, token, "cursor=0", encoding)
	}
	g := new(errgroup.Group)
	for w := range writers {
		g.Go(func() error {
			ctx := as(t.Context(), fmt.Sprint("w", w), verb.Contributor)
			for n := range each {
				var err error
				switch rand.IntN(4) {
				case 0:
					appendRows(t, f.db, 1+rand.IntN(3), "internal", artifact.Commons, "test:hidden")
				case 1:
					appendRows(t, f.db, 1, "public", "lab", "test:lab")
				case 2:
					items := make([]verb.BatchItem, 1+rand.IntN(40))
					for i := range items {
						items[i] = gene(fmt.Sprintf("G-%d-%d-%d", w, n, i))
					}
					_, err = verb.Batch.Call(ctx, f.verbs, verb.BatchRequest{Items: items})
				default:
					_, err = verb.Create.Call(ctx, f.verbs, hypothesis(fmt.Sprintf("h-%d-%d", w, n), "x"))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	written := make(chan struct{})
	followed := new(errgroup.Group)
	followed.Go(func() error { // reads along, so that it meets the ring at all its ends
		s := live["a hub with a small ring"]
		for {
			select {
			case <-written:
				return nil
			default:
				s.next()
			}
		}
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	close(written)
	if err := followed.Wait(); err != nil {
		t.Fatal(err)
	}
	f.checkDense(t)
	head := f.head(t)
	want, chain := readTo(t, f, 0, head)
	if n := f.count(t, "SELECT count(*) FROM feed.change WHERE class = 'public' AND scope = 'commons'"); len(want) != n {
		t.Errorf("%d rows, want the %d that are public and in commons", len(want), n)
	}
	for _, row := range want {
		if strings.Contains(row, "test:") {
			t.Errorf("a row that is not for followers of commons: %s", row)
		}
	}
	for name, s := range live {
		s.until(head)
		sameRows(t, name, s.rows, want)
		if s.chain != chain.String() {
			t.Errorf("chain = %s, want %s", s.chain, chain)
		}
	}
	lagged, lagChain := readTo(t, laggard, 0, head)
	sameRows(t, "a hub with no ring", lagged, want)
	if lagChain != chain {
		t.Errorf("chain of another hub = %s, want %s", lagChain, chain)
	}
	ends := f.commitEnds(t)
	for _, p := range live["plain"].ends {
		if !ends[p.seq] {
			t.Errorf("a page ends at %d, within a commit", p.seq)
		}
	}
	seqs := live["plain"].ends
	for range 20 {
		p := seqs[rand.IntN(len(seqs))]
		for _, served := range []string{url, laggard.serve(t)} {
			s, hello := follow(t, served, token, p.query(), compressed)
			if hello.Head != head || hello.Floor != 0 {
				t.Errorf("hello = %+v, want head %d and floor 0", hello, head)
			}
			s.until(head)
			sameRows(t, fmt.Sprint("resumed at ", p.seq), s.rows, want[p.rows:])
			if s.at > p.seq && s.chain != chain.String() {
				t.Errorf("resumed at %d, the chain is %s, want %s", p.seq, s.chain, chain)
			}
		}
	}
}

// TestLargeCommits checks that a commit larger than a page comes in parts that
// end with a page.
func TestLargeCommits(t *testing.T) {
	f := newHub(t)
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)
	s, _ := follow(t, url, token, "cursor=0", compressed)
	f.mustCreate(t, hypothesis("hub", "x"))
	s.until(f.head(t))

	check := func(t *testing.T, wantRows int) {
		t.Helper()
		head, from, parts := f.head(t), len(s.rows), 0
		begun := s.at
		for {
			frame := s.next()
			if frame.To == begun {
				continue // a beat, before the commit
			}
			last := replicate.Row{}
			if n := len(frame.Rows); n > 0 {
				if err := json.Unmarshal(frame.Rows[n-1], &last); err != nil {
					t.Fatal(err)
				}
			}
			if frame.size > replicate.MaxPageBytes+64<<10 && len(frame.Rows) > 1 {
				t.Errorf("a %s of %d rows has %d bytes", frame.Type, len(frame.Rows), frame.size)
			}
			if frame.Type == replicate.FramePart {
				if parts++; frame.Chain != "" || last.Seq == last.Commit {
					t.Errorf("part to %d with chain %q of the commit to %d", frame.To, frame.Chain, last.Commit)
				}
				continue
			}
			if frame.Type != replicate.FramePage || frame.To != head || last.Commit != last.Seq {
				t.Errorf("%s from %d to %d, want a page to %d", frame.Type, frame.From, frame.To, head)
			}
			break
		}
		if parts == 0 || len(s.rows)-from != wantRows {
			t.Errorf("%d rows in %d parts, want %d in some", len(s.rows)-from, parts, wantRows)
		}
		lag, _ := readTo(t, newHubWith(t, hub.Config{DB: f.db, RingBytes: 1}), begun, head)
		sameRows(t, "by SQL", lag, s.rows[from:])
	}
	t.Run("of many rows", func(t *testing.T) {
		items := make([]verb.BatchItem, 0, verb.MaxBatchItems)
		for i := range verb.MaxBatchItems / 2 {
			g := gene(fmt.Sprint("G", i))
			items = append(items, g, verb.BatchItem{Link: &verb.LinkRequest{From: "hypothesis:hub", LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:" + g.Create.ID}}})
		}
		out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: items, Atomic: true})
		if err != nil || !out.Committed {
			t.Fatal(out, err)
		}
		check(t, 4*verb.MaxBatchItems/2)
	})
	t.Run("of large rows", func(t *testing.T) {
		items := make([]verb.BatchItem, 9)
		for i := range items {
			in := hypothesis(fmt.Sprint("large", i), strings.Repeat("x", 1<<20-100))
			items[i] = verb.BatchItem{Create: &in}
		}
		out, err := verb.Batch.Call(contributor(t.Context()), f.verbs, verb.BatchRequest{Items: items, Atomic: true})
		if err != nil || !out.Committed {
			t.Fatal(out, err)
		}
		check(t, 2*len(items))
	})
}

// TestPositions checks which positions are refused, and how.
func TestPositions(t *testing.T) {
	f := newHub(t)
	for i := range 3 {
		f.mustCreate(t, hypothesis(fmt.Sprint("h", i), "x"))
	}
	url, viewer, head := f.serve(t), f.token(t, "vic", verb.Viewer), f.head(t)
	_, chain := readTo(t, f, 0, head)
	wrong := artifact.HashBytes([]byte("another log")).String()
	for _, c := range []struct {
		name, token, query string
		status             int
		reason             string
	}{
		{"a viewer at the head", viewer, fmt.Sprintf("cursor=1:%d&chain=%s", head, chain), 200, ""},
		{"a bare seq", viewer, fmt.Sprintf("cursor=%d", head-1), 200, ""},
		{"no cursor", viewer, "", 200, ""},
		{"no token", "", "cursor=0", 401, artifact.ReasonUnauthenticated},
		{"a token without permissions", f.token(t, "vic"), "cursor=0", 403, ""},
		{"ahead", viewer, fmt.Sprintf("cursor=1:%d", head+1), 409, artifact.ReasonCursorAhead},
		{"far ahead", viewer, "cursor=9223372036854775807", 409, artifact.ReasonCursorAhead},
		{"another chain", viewer, fmt.Sprintf("cursor=1:%d&chain=%s", head, wrong), 409, artifact.ReasonCursorDiverged},
		{"another chain before", viewer, fmt.Sprintf("cursor=1:%d&chain=%s", head-2, chain), 409, artifact.ReasonCursorDiverged},
		{"another epoch", viewer, fmt.Sprintf("cursor=2:%d&chain=%s", head, chain), 409, artifact.ReasonCursorDiverged},
		{"a word", viewer, "cursor=latest", 400, artifact.ReasonInvalidCursor},
		{"a negative seq", viewer, "cursor=1:-1", 400, artifact.ReasonInvalidCursor},
		{"a negative epoch", viewer, "cursor=-1:1", 400, artifact.ReasonInvalidCursor},
		{"a seq beyond 64 bits", viewer, "cursor=9223372036854775808", 400, artifact.ReasonInvalidCursor},
		{"half a token", viewer, "cursor=1:", 400, artifact.ReasonInvalidCursor},
		{"three parts", viewer, "cursor=1:2:3", 400, artifact.ReasonInvalidCursor},
		{"no hash for a chain", viewer, "cursor=1&chain=abc", 400, artifact.ReasonInvalidCursor},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.status == 200 {
				follow(t, url, c.token, c.query, plain)
				return
			}
			status, e := getError(t, url+"/feed?"+c.query, c.token)
			if status != c.status || c.reason != "" && e.Reason != c.reason || e.RequestID == "" {
				t.Errorf("answer = %d %+v, want %d %s", status, e, c.status, c.reason)
			}
		})
	}
	t.Run("a client takes the refusal for final", func(t *testing.T) {
		c := &replicate.Client{URL: url, Token: viewer}
		err := c.Follow(t.Context(), replicate.Position{Epoch: 1, Seq: head + 7}, func(replicate.Frame) error { return nil })
		var e *artifact.Error
		if !errors.As(err, &e) || e.Reason != artifact.ReasonCursorAhead {
			t.Errorf("Follow = %v", err)
		}
	})
}

// TestHiddenRows checks that the cursor moves over rows that are not sent.
func TestHiddenRows(t *testing.T) {
	f := newHub(t)
	s, _ := follow(t, f.serve(t), f.token(t, "vic", verb.Viewer), fmt.Sprintf("cursor=%d", f.head(t)), plain)
	for _, c := range []struct{ class, scope string }{{"internal", artifact.Commons}, {"public", "lab"}, {"internal", "lab"}} {
		last := appendRows(t, f.db, 1500, c.class, c.scope, "test:hidden")
		s.until(last)
		if len(s.rows) > 0 {
			t.Fatalf("%s row of %s was sent: %s", c.class, c.scope, s.rows[0])
		}
	}
	f.mustCreate(t, hypothesis("h", "x"))
	s.until(f.head(t))
	if len(s.rows) != 3 {
		t.Errorf("%d rows, want the hypothesis's two and its author's", len(s.rows))
	}
}

// BenchmarkWakeup measures how long after its commit a row reaches a reader.
func BenchmarkWakeup(b *testing.B) {
	f := newHub(b)
	head, err := f.Head(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	reader, _, err := f.Open(b.Context(), replicate.Position{Seq: head}, []string{artifact.Commons})
	if err != nil {
		b.Fatal(err)
	}
	var waited time.Duration
	for i := 0; b.Loop(); i++ {
		if _, err := verb.Create.Call(contributor(b.Context()), f.verbs, hypothesis(fmt.Sprint("h", i), "x")); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		if _, err := reader.Next(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
		waited += time.Since(begun)
	}
	b.ReportMetric(float64(waited.Microseconds())/float64(b.N), "µs/wakeup")
}
