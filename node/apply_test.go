package node_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("NODE_TEST_APPLY_FOREVER"); path != "" {
		applyForever(path)
	}
	if spec := os.Getenv("NODE_TEST_RUN_FOREVER"); spec != "" {
		runForever(spec)
		os.Exit(1)
	}
	os.Exit(pgtest.Main(m))
}

func get(tb testing.TB, s *node.Store, ref string) (artifact.Artifact, error) {
	tb.Helper()
	r := new(verb.Registry)
	s.Verbs(r, nil)
	parsed, err := artifact.ParseRef(ref)
	if err != nil {
		tb.Fatal(err)
	}
	out, err := verb.Get.Call(asAda(tb.Context()), r, verb.GetRequest{Ref: parsed})
	return out.Artifact, err
}

func TestApply(t *testing.T) {
	t.Run("keeps every artifact byte for byte", func(t *testing.T) {
		s, f := newStore(t), newFeed(t, 1)
		for range 20 {
			apply(t, s, f.commits(20))
		}
		p, err := s.Position(t.Context())
		if want := (replicate.Position{HubID: "hub-1", Epoch: 1, Seq: f.seq, Chain: f.chain}); err != nil || p != want {
			t.Errorf("Position() = %+v, %v, want %+v", p, err, want)
		}
		for ref, l := range f.heads {
			got, err := get(t, s, ref)
			if err != nil {
				t.Fatalf("get %s: %v", ref, err)
			}
			h := l.head
			want := artifact.Artifact{
				Ref: artifact.Ref{Type: h.Type, ID: h.ID, Hash: h.ContentHash}, Type: h.Type, ID: h.ID, Scope: h.Scope,
				Revision: h.Revision, ContentHash: h.ContentHash, SchemaVersion: 1, Title: h.Title, State: h.State,
				CreatedAt: h.CreatedAt, CreatedBy: "ada", UpdatedAt: h.UpdatedAt, UpdatedBy: "bob", IsLatest: true, Content: l.content, Provenance: l.stamped,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("get %s: (-want +got)\n%s", ref, diff)
			}
		}
		checkDigest(t, s)
	})
	t.Run("ignores what it has", func(t *testing.T) {
		s, f := newStore(t), newFeed(t, 2)
		first, second := f.commits(5), f.commits(5)
		apply(t, s, first)
		apply(t, s, first)
		apply(t, s, replicate.Batch{Rows: append(first.Rows, second.Rows...), To: second.To, Chain: second.Chain})
		d := checkDigest(t, s)
		apply(t, s, second)
		if diff := d.Diff(checkDigest(t, s)); diff != nil || s.Applied() != f.seq {
			t.Errorf("after a redelivery at %d, want %d: %v", s.Applied(), f.seq, diff)
		}
		if err := s.Apply(t.Context(), first); err == nil {
			t.Error("Apply of a batch that ends before the position is no error")
		}
	})
	t.Run("shows a commit in parts only at its end", func(t *testing.T) {
		s, f := newStore(t), newFeed(t, 3)
		apply(t, s, f.commits(3))
		before := s.Applied()
		b := f.batch(append(f.write("paper", "p1", "one"), f.write("paper", "p2", "two")...))
		beat := replicate.Batch{To: before}
		parts := []replicate.Batch{
			{Rows: b.Rows[:2], To: b.Rows[1].Seq, Partial: true}, beat, {Rows: b.Rows[:3], To: b.Rows[2].Seq, Partial: true}, beat,
		}
		for _, part := range parts {
			apply(t, s, part)
			if _, err := get(t, s, "paper:p1"); !artifact.IsCode(err, artifact.CodeNotFound) || s.Applied() != before {
				t.Errorf("amid a commit: get = %v at %d, want not_found at %d", err, s.Applied(), before)
			}
		}
		apply(t, s, replicate.Batch{Rows: b.Rows[3:], To: b.To, Chain: b.Chain})
		for _, ref := range []string{"paper:p1", "paper:p2"} {
			if _, err := get(t, s, ref); err != nil || s.Applied() != b.To {
				t.Errorf("after the commit: get %s = %v at %d, want it at %d", ref, err, s.Applied(), b.To)
			}
		}
		checkDigest(t, s)
	})
	t.Run("forgets a commit that is aborted", func(t *testing.T) {
		s, f := newStore(t), newFeed(t, 4)
		apply(t, s, f.commits(3))
		before := checkDigest(t, s)
		b := f.batch(append(f.write("paper", "p1", "one"), f.write("paper", "p2", "two")...))
		part := replicate.Batch{Rows: b.Rows[:2], To: b.Rows[1].Seq, Partial: true}
		apply(t, s, part)
		s.Abort(t.Context())
		s.Abort(t.Context())
		if diff := before.Diff(checkDigest(t, s)); diff != nil || s.Applied() != before.Seq {
			t.Errorf("after Abort at %d, want %d: %v", s.Applied(), before.Seq, diff)
		}
		apply(t, s, part)
		apply(t, s, replicate.Batch{Rows: b.Rows[2:], To: b.To, Chain: b.Chain})
		checkDigest(t, s)
		sub := s.Subscribe(before.Seq, nil)
		if page, err := sub.Next(asAda(t.Context())); err != nil || len(page.Events) != 2 {
			t.Errorf("events of a commit that was aborted once: %d, %v; want 2", len(page.Events), err)
		}
	})
	t.Run("keeps the rows of kinds it does not know out", func(t *testing.T) {
		s, f := newStore(t), newFeed(t, 5)
		apply(t, s, f.batch([]replicate.Row{{Scope: artifact.Commons, Kind: "of-later", Op: replicate.Put, Ref: "of-later:v", Hash: artifact.Hash{1}, At: f.at, Data: []byte(`[]`), Event: f.event("of-later.put", "of-later:v")}}))
		if d := checkDigest(t, s); len(d.Entries) != 1 || d.Entries[0].Kind != replicate.KindEvent {
			t.Errorf("digest = %v, want that of the event alone", d.Entries)
		}
	})
	t.Run("takes a head made at another time for the same one", func(t *testing.T) {
		s, f := newStore(t), newFeed(t, 5)
		apply(t, s, f.batch(f.write("paper", "p1", "one")))
		f.heads["paper:p1"].head.CreatedAt = f.at.Add(time.Hour)
		apply(t, s, f.batch(f.write("paper", "p1", "two")))
		if a, err := get(t, s, "paper:p1"); err != nil || a.Title != "two" || !a.CreatedAt.Equal(f.at.Add(time.Hour)) {
			t.Errorf("get = %+v, %v, want the later head", a, err)
		}
		checkDigest(t, s)
	})
	t.Run("moves over what is not for it", func(t *testing.T) {
		s := newStore(t)
		apply(t, s, replicate.Batch{To: 40, Chain: artifact.Hash{7}})
		p, err := s.Position(t.Context())
		if err != nil || p.Seq != 40 || p.Chain != (artifact.Hash{7}) {
			t.Errorf("Position() = %+v, %v, want 40", p, err)
		}
	})
}

func TestApplyRefuses(t *testing.T) {
	tests := map[string]func(rows []replicate.Row){
		"content that is not what its hash says": func(rows []replicate.Row) { rows[2].Content = []byte(`{"n":0}`) },
		"data of another artifact":               func(rows []replicate.Row) { rows[2].Ref = "paper:other" },
		"data of another scope":                  func(rows []replicate.Row) { rows[3].Scope = "lab-a" },
		"data that is not JSON":                  func(rows []replicate.Row) { rows[3].Data = []byte(`{`) },
		"an op it does not know":                 func(rows []replicate.Row) { rows[3].Op = "X" },
		"a row beyond the batch":                 func(rows []replicate.Row) { rows[3].Seq += 9 },
	}
	t.Run("a page that ends within a commit", func(t *testing.T) {
		s, f := newStore(t), newFeed(t, 6)
		b := f.batch(f.write("paper", "p1", "one"))
		if err := s.Apply(t.Context(), replicate.Batch{Rows: b.Rows[:1], To: b.Rows[0].Seq}); err == nil || s.Applied() != 0 {
			t.Errorf("Apply = %v, at %d, want an error", err, s.Applied())
		}
	})
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			s, f := newStore(t), newFeed(t, 6)
			apply(t, s, f.commits(3))
			before := checkDigest(t, s)
			b := f.batch(append(f.write("paper", "p1", "one"), f.write("paper", "p2", "two")...))
			spoil(b.Rows)
			if err := s.Apply(t.Context(), b); err == nil {
				t.Fatal("Apply is no error")
			}
			if _, err := get(t, s, "paper:p1"); !artifact.IsCode(err, artifact.CodeNotFound) {
				t.Errorf("get of the row before it = %v, want not_found", err)
			}
			if diff := before.Diff(checkDigest(t, s)); diff != nil || s.Applied() != before.Seq {
				t.Errorf("at %d, want %d: %v", s.Applied(), before.Seq, diff)
			}
		})
	}
}

func TestHello(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replica.db")
	s, err := node.OpenStore(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), newFeed(t, 7).commits(1)); err == nil {
		t.Error("Apply before a hello is no error")
	}
	newer := hello
	newer.MinReader = replicate.WireVersion + 1
	if err := s.Hello(t.Context(), newer); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("Hello of a newer feed = %v, want that the node is too old", err)
	}
	if err := s.Hello(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, path)
	if err := s.Hello(t.Context(), hello); err != nil {
		t.Errorf("Hello again = %v", err)
	}
	foreign, restored := hello, hello
	foreign.HubID, restored.Epoch = "hub-2", 2
	for name, h := range map[string]replicate.Hello{"of another hub": foreign, "of another epoch": restored} {
		if err := s.Hello(t.Context(), h); !errors.Is(err, node.ErrForeignHub) {
			t.Errorf("Hello %s = %v, want ErrForeignHub", name, err)
		}
	}
}

func TestOpenStoreRefusesAnotherSchema(t *testing.T) {
	for name, statement := range map[string]string{"a later version": "PRAGMA user_version = 99", "no replica": "CREATE TABLE t (x)"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "other.db")
			db, err := sql.Open("sqlite3", path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
			db.Close()
			if _, err := node.OpenStore(t.Context(), path); !errors.Is(err, node.ErrOtherSchema) {
				t.Errorf("OpenStore = %v, want ErrOtherSchema", err)
			}
		})
	}
}

// TestDigest checks that the digest that is kept is that of the tables, whatever
// is written, and that it does not depend on how the log is cut.
func TestDigest(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			whole, cut, f := newStore(t), newStore(t), newFeed(t, 100+seed)
			var log replicate.Batch
			for range 30 {
				b := f.commits(1 + f.rand.IntN(10))
				apply(t, whole, b)
				checkDigest(t, whole)
				log = replicate.Batch{Rows: append(log.Rows, b.Rows...), To: b.To, Chain: b.Chain}
			}
			for rest := log.Rows; len(rest) > 0; {
				n := min(len(rest), 1+f.rand.IntN(200))
				apply(t, cut, replicate.Batch{Rows: rest[:n], To: rest[n-1].Seq, Partial: rest[n-1].Seq < rest[n-1].Commit || f.rand.IntN(3) == 0})
				if rest = rest[n:]; f.rand.IntN(8) == 0 {
					cut.Abort(t.Context())
					at := cut.Applied()
					for rest = log.Rows; len(rest) > 0 && rest[0].Seq <= at; {
						rest = rest[1:]
					}
				}
			}
			cut.Abort(t.Context())
			apply(t, cut, log)
			if diff := checkDigest(t, whole).Diff(checkDigest(t, cut)); diff != nil || whole.Applied() != cut.Applied() {
				t.Errorf("two replicas of one log differ at %d and %d: %v", whole.Applied(), cut.Applied(), diff)
			}
		})
	}
}

// TestRecount checks that a row changed behind the store's back is found.
func TestRecountFindsATamperedRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replica.db")
	s, f := openStore(t, path), newFeed(t, 8)
	if err := s.Hello(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	apply(t, s, f.commits(30))
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `UPDATE event SET payload = '{"n":-1}' WHERE seq = (SELECT min(seq) FROM event)`); err != nil {
		t.Fatal(err)
	}
	kept, _ := s.Digest(t.Context())
	counted, err := s.Recount(t.Context())
	if diff := kept.Diff(counted); err != nil || len(diff) != 1 {
		t.Errorf("Diff after a change of one event = %v, %v, want one key", diff, err)
	}
}

// TestKill kills a process amid its applying, again and again, and checks that
// the file is whole each time.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replica.db")
	var last artifact.Seq
	for round := range 6 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "NODE_TEST_APPLY_FOREVER="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var seen artifact.Seq
		lines := bufio.NewScanner(out)
		stop := time.After(time.Duration(50+rand.IntN(150)) * time.Millisecond)
		for killed := false; lines.Scan(); {
			if _, err := fmt.Sscan(lines.Text(), &seen); err != nil {
				t.Fatalf("child: %s", lines.Text())
			}
			select {
			case <-stop:
				killed = true
			default:
			}
			if killed {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				stop = nil
			}
		}
		_ = cmd.Wait() // it was killed
		s, err := node.OpenStore(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if at := s.Applied(); at < seen || at <= last {
			t.Errorf("round %d: at %d after a kill, but %d was committed, and %d before", round, at, seen, last)
		}
		last = s.Applied()
		checkDigest(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite3", path)
		if err != nil {
			t.Fatal(err)
		}
		var check string
		if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&check); err != nil || check != "ok" {
			t.Errorf("round %d: integrity_check = %s, %v", round, check, err)
		}
		// All of the log up to the position is there, and nothing after it.
		f := newFeed(t, 9)
		var events, most artifact.Seq
		for f.seq < last {
			for _, r := range f.commits(40).Rows {
				if r.Event != nil && r.Seq <= last {
					events++
				}
			}
		}
		if f.seq != last {
			t.Errorf("round %d: position %d is within a batch", round, last)
		}
		var n artifact.Seq
		if err := db.QueryRowContext(t.Context(), "SELECT count(*), max(seq) FROM event").Scan(&n, &most); err != nil || n != events || most > last {
			t.Errorf("round %d: %d events up to %d, want %d up to %d (%v)", round, n, most, events, last, err)
		}
		db.Close()
	}
}

// applyForever is the process that [TestKill] kills. It tells what it committed.
func applyForever(path string) {
	t := &childT{}
	f := newFeed(t, 9)
	s, err := node.OpenStore(t.Context(), path)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	if err := s.Hello(t.Context(), hello); err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	for {
		b := f.commits(40)
		if b.To <= s.Applied() {
			continue
		}
		if err := s.Apply(t.Context(), b); err != nil {
			fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stdout, s.Applied())
	}
}

func TestReadsGoOnWhileApplying(t *testing.T) {
	s, f := newStore(t), newFeed(t, 10)
	apply(t, s, f.batch(f.write("paper", "p0", "first")))
	b := f.batch(append(f.write("paper", "p1", "one"), f.write("paper", "p2", "two")...))
	apply(t, s, replicate.Batch{Rows: b.Rows[:2], To: b.Rows[1].Seq, Partial: true}) // the writer's lock is held now
	done := make(chan error)
	for range 20 {
		go func() {
			_, err := get(t, s, "paper:p0")
			done <- err
		}()
	}
	for range 20 {
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("get = %v", err)
			}
		case <-time.After(4 * time.Second): // less than the busy timeout
			t.Fatal("a read waits for the writer")
		}
	}
}

// BenchmarkApply compares a transaction of 1000 rows of feed with one of 1000
// prepared INSERTs of a body alone, in turn, so that both meet the same disk.
func BenchmarkApply(b *testing.B) {
	const rows, body = 1000, 1400
	for name, write := range map[string]func(*feed) []replicate.Row{
		// A revision and a head with an event: two rows and one body.
		"create": func(f *feed) []replicate.Row {
			return f.write("paper", "p-"+f.newID(), "a title of usual length for a paper")
		},
		"create with words": func(f *feed) []replicate.Row {
			if f.words == nil {
				f.words = rand.NewZipf(f.rand, 1.1, 3, 20_000) // as texts have them
				return append(f.schemas("paper"), f.write("paper", "p-"+f.newID(), "a title")...)
			}
			return f.write("paper", "p-"+f.newID(), "a title of usual length for a paper")
		},
		"create with keys in no order": func(f *feed) []replicate.Row {
			return f.write("paper", fmt.Sprintf("p-%016x", f.rand.Uint64()), "a title of usual length for a paper")
		},
		"update": func(f *feed) []replicate.Row {
			n := len(f.ids)
			if n < 5000 {
				return f.write("paper", fmt.Sprintf("p-%016x", f.rand.Uint64()), "a title")
			}
			return f.write("paper", strings.TrimPrefix(f.ids[f.rand.IntN(n)], "paper:"), "a title of usual length for a paper")
		},
		"link": func(f *feed) []replicate.Row {
			if len(f.ids) < 2 {
				f.write("paper", "p1", "one")
				f.write("paper", "p2", "two")
			}
			return f.link(f.ids[0], f.ids[1])
		},
	} {
		b.Run(name, func(b *testing.B) {
			s, f := newStore(b), newFeed(b, 12)
			f.body = body
			insert := rawInserts(b, rows, body)
			var floor, took time.Duration
			for range b.N {
				var batch replicate.Batch
				for len(batch.Rows) < rows {
					c := f.batch(write(f))
					batch = replicate.Batch{Rows: append(batch.Rows, c.Rows...), To: c.To, Chain: c.Chain}
				}
				start := time.Now()
				insert()
				middle := time.Now()
				apply(b, s, batch)
				floor, took = floor+middle.Sub(start), took+time.Since(middle)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(rows*b.N)/took.Seconds(), "rows/s")
			b.ReportMetric(float64(rows*b.N)/floor.Seconds(), "raw-rows/s")
			b.ReportMetric(floor.Seconds()/took.Seconds(), "of-raw")
		})
	}
}

// rawInserts returns a function that inserts so many bodies in a transaction.
func rawInserts(b *testing.B, rows, body int) func() {
	b.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(b.TempDir(), "raw.db")+"?_journal_mode=WAL&_synchronous=NORMAL&_cache_size=-65536")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(b.Context(), "CREATE TABLE body (id INTEGER PRIMARY KEY, body TEXT NOT NULL)"); err != nil {
		b.Fatal(err)
	}
	f := newFeed(b, 11)
	f.body = body
	text := string(f.write("paper", "p", "t")[0].Content)
	ctx := context.WithoutCancel(b.Context())
	return func() {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			b.Fatal(err)
		}
		stmt, err := tx.PrepareContext(ctx, "INSERT INTO body (body) VALUES (?1)") //nolint:sqlclosecheck // the transaction closes it
		if err != nil {
			b.Fatal(err)
		}
		for range rows {
			if _, err := stmt.ExecContext(ctx, text); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}
