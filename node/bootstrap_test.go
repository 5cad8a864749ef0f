package node_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

const sideName = node.ReplicaFile + ".new"

// runForever is the process that [TestFieldLesson16] kills.
func runForever(spec string) {
	t := &childT{}
	part := strings.SplitN(spec, "|", 3)
	if err := node.Recover(part[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	nd, err := node.Open(t.Context(), node.Config{Dir: part[0], HubURL: part[1], Token: part[2], RebuildWait: time.Millisecond})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = nd.Run(t.Context())
}

// slowly lets answers of the back-fill through line by line, each after a pause,
// so that a process can be killed between any two.
func slowly(pause time.Duration, resumed *atomic.Int64) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/feed/backfill" {
				if req.URL.Query().Get("kind") != "" {
					resumed.Add(1)
				}
				w = &slowWriter{w, pause}
			}
			next.ServeHTTP(w, req)
		})
	}
}

type slowWriter struct {
	http.ResponseWriter
	pause time.Duration
}

func (s *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(s.pause)
	return s.ResponseWriter.Write(b)
}

func (s *slowWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// TestFieldLesson16 is for row 16 of the lessons, an initial sync that is slow,
// times out and locks: a process that is killed again and again amid its first
// copy goes on where it was, while the hub is written to all the time.
func TestFieldLesson16(t *testing.T) {
	w := newWorld(t, initHub)
	w.lab("lab-a")
	w.some("h", "", 40, 60_000)
	w.some("p", "lab-a", 10, 60_000)
	stopWriting := w.keepWriting("lab-a")
	defer stopWriting()
	dir := t.TempDir()
	var resumed atomic.Int64
	w.meddle(slowly(8*time.Millisecond, &resumed))
	begun := 0
	for round := 0; round < 40 && resumed.Load() < 5; round++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "NODE_TEST_RUN_FOREVER="+dir+"|"+w.url+"|"+w.token("ada", verb.Contributor))
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(50+rand.IntN(150+100*round)) * time.Millisecond) // some moment
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
		if said.Len() > 0 {
			t.Fatalf("child: %s", said.String())
		}
		if _, err := os.Stat(filepath.Join(dir, sideName)); err == nil {
			begun++
		}
	}
	w.meddle(nil)
	r := w.node(dir, "ada", verb.Contributor)
	w.caughtUp(r)
	stopWriting()
	w.equal(r)
	checkFile(t, filepath.Join(dir, node.ReplicaFile))
	if _, err := os.Stat(filepath.Join(dir, sideName)); err == nil {
		t.Error("the side file is still there")
	}
	t.Logf("%d kills left a copy that was begun, %d times one was gone on with", begun, resumed.Load())
	if begun == 0 || resumed.Load() == 0 {
		t.Error("nothing was ever gone on with")
	}
}

// checkFile asks SQLite whether a file is sound and whether it has all indexes.
func checkFile(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var check string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&check); err != nil || check != "ok" {
		t.Errorf("integrity_check = %s, %v", check, err)
	}
	schema, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	var indexes int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL").Scan(&indexes); err != nil || indexes != bytes.Count(schema, []byte("CREATE INDEX")) {
		t.Errorf("%d indexes, %v", indexes, err)
	}
}

// TestFieldLesson13 is for row 13 of the lessons, a bootstrap that gave a broken
// file: nothing is served until all of it is there, checked and equal to the hub's.
func TestFieldLesson13(t *testing.T) {
	w := newWorld(t, initHub)
	w.some("h", "", 12, 2000)
	lie := func(f func(line string) string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
				if req.URL.Path != "/feed/backfill" {
					next.ServeHTTP(rw, req)
					return
				}
				req.Header.Del("Accept-Encoding")
				got := httptest.NewRecorder()
				next.ServeHTTP(got, req)
				for line := range strings.Lines(got.Body.String()) {
					_, _ = rw.Write([]byte(f(line)))
				}
			})
		}
	}
	for name, f := range map[string]func(line string) string{
		"what is not as its hash says": func(line string) string { return strings.Replace(line, `"title":"h"`, `"title":"g"`, 1) },
		"a page without one of its rows": func(line string) string {
			a, b := strings.Index(line, `{"seq":0,"commit":0,"prev":0,"scope":"commons","kind":"link"`), -1
			if a >= 0 {
				b = strings.Index(line[a+1:], `{"seq":0,"commit":0,"prev":0,"scope":"commons","kind":"link"`)
			}
			if b < 0 {
				return line
			}
			return line[:a] + line[a+1+b:]
		},
		"another content": func(line string) string { return strings.Replace(line, "yyyy", "zzzz", 1) },
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			w.meddle(lie(f))
			r := w.node(t.TempDir(), "ada", verb.Contributor)
			eventually(t, 20*time.Second, "it is told", func() bool { return r.Building().Error != "" })
			if r.Store() != nil {
				t.Error("a copy that is not the hub's is served")
			}
			status, body := r.ask("/readyz")
			if status != http.StatusServiceUnavailable || !strings.Contains(body, `"bootstrapping"`) || !strings.Contains(body, `"error"`) {
				t.Errorf("readyz = %d %s", status, body)
			}
			if status, _ := r.ask("/healthz"); status != http.StatusOK {
				t.Errorf("healthz = %d", status)
			}
			if err := r.get(t, "hypothesis:h0"); why(err) != artifact.ReasonBootstrapping || artifact.AsError(err).Details["percent"] == nil {
				t.Errorf("get = %v", err)
			}
			w.meddle(nil)
			w.equal(r)
			if err := r.get(t, "hypothesis:h0"); err != nil {
				t.Errorf("get = %v", err)
			}
			if status, body := r.ask("/readyz"); status != http.StatusOK {
				t.Errorf("readyz = %d %s", status, body)
			}
			checkFile(t, filepath.Join(r.dir, node.ReplicaFile))
		})
	}
	t.Run("throws away what is no copy of this hub", func(t *testing.T) {
		other := newWorld(t, initOther)
		other.some("o", "", 3, 10)
		var resumed atomic.Int64
		other.meddle(slowly(300*time.Millisecond, &resumed))
		foreign := t.TempDir()
		r := other.node(foreign, "ada", verb.Contributor)
		eventually(t, 20*time.Second, "it is begun", func() bool { return r.Building().Rows > 0 })
		r.stop()
		for name, make := range map[string]func(path string) error{
			"text":          func(path string) error { return os.WriteFile(path, []byte("no database"), 0o600) },
			"nothing":       func(path string) error { return os.WriteFile(path, nil, 0o600) },
			"another hub's": func(path string) error { return copyDatabase(filepath.Join(foreign, sideName), path) },
			"one cut short": func(path string) error {
				if err := copyDatabase(filepath.Join(foreign, sideName), path); err != nil {
					return err
				}
				return os.Truncate(path, 20_000)
			},
		} {
			dir := t.TempDir()
			if err := make(filepath.Join(dir, sideName)); err != nil {
				t.Fatal(err)
			}
			r := w.node(dir, "ada", verb.Contributor)
			w.equal(r)
			if err := r.get(t, "hypothesis:o0"); why(err) != "not_found" {
				t.Errorf("%s: get of another hub's = %v", name, err)
			}
			r.stop()
		}
	})
}

func copyDatabase(from, to string) error {
	for _, suffix := range []string{"", "-wal"} {
		raw, err := os.ReadFile(from + suffix)
		if err != nil {
			if suffix != "" && os.IsNotExist(err) {
				continue
			}
			return err
		}
		if err := os.WriteFile(to+suffix, raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// events reads the events of commons from a cursor until a position is reached.
func readEvents(ctx context.Context, sub *node.Subscription, to artifact.Seq) (ids []artifact.Seq, err error) {
	ctx = verb.WithCaller(ctx, &verb.Caller{Actor: artifact.Actor{ID: "vic"}, Permissions: []string{verb.Viewer}})
	for at := artifact.Seq(0); at < to; {
		page, err := sub.Next(ctx)
		if err != nil {
			return ids, err
		}
		for _, e := range page.Events {
			ids = append(ids, e.ID)
		}
		at = page.Cursor
	}
	return ids, nil
}

// sameEvents checks that a subscription got each event of commons once, in order.
func (w *world) sameEvents(t *testing.T, got []artifact.Seq, after, upTo artifact.Seq) {
	t.Helper()
	rows, err := w.db.Query(t.Context(), `SELECT seq FROM event WHERE class = 'public' AND scope = 'commons' AND seq > $1 AND seq <= $2 ORDER BY seq`, int64(after), int64(upTo))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	i := 0
	for rows.Next() {
		var seq artifact.Seq
		if err := rows.Scan(&seq); err != nil {
			t.Fatal(err)
		}
		if i >= len(got) || got[i] != seq {
			t.Fatalf("event %d is missing after %d others, or comes again", seq, i)
		}
		i++
	}
	if i < len(got) && got[i] <= upTo {
		t.Errorf("there are %d events more than at the hub", len(got)-i)
	}
}

// TestFieldLesson14 is for row 14 of the lessons, a divergence whose only cure was
// to delete the volume: the old file is served, marked stale, while a new one is
// built beside it and takes its place.
func TestFieldLesson14(t *testing.T) {
	t.Run("when it is asked for, under writers, readers and subscribers", func(t *testing.T) {
		w := newWorld(t, initHub)
		w.some("h", "", 20, 500)
		r := w.node(t.TempDir(), "ada", verb.Contributor)
		w.caughtUp(r)
		stopWriting := w.keepWriting("")
		defer stopWriting()
		start := r.Store().Applied()
		first := r.Store()
		// Someone changed the file by hand.
		db, err := sql.Open("sqlite3", filepath.Join(r.dir, node.ReplicaFile)+"?_busy_timeout=5000")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "UPDATE artifact SET title = 'forged', row_hash = zeroblob(32) WHERE id = 'h3'"); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		type result struct {
			ids []artifact.Seq
			err error
		}
		var end atomic.Int64
		end.Store(1 << 60)
		results := make(chan result, 3)
		for range 3 {
			sub := r.Follow(start, nil)
			go func() {
				var all []artifact.Seq
				for at := start; int64(at) < end.Load(); {
					ids, err := readEvents(t.Context(), sub, at+1)
					if err != nil {
						results <- result{all, err}
						return
					}
					all = append(all, ids...)
					at = sub.Cursor()
				}
				results <- result{all, nil}
			}()
		}
		reads := make(chan error, 1)
		reading, stopReading := context.WithCancel(t.Context())
		go func() {
			for reading.Err() == nil {
				if err := r.get(t, "hypothesis:h5"); err != nil && reading.Err() == nil {
					reads <- err
					return
				}
			}
			reads <- nil
		}()
		for range 3 { // again and again
			before := r.Store()
			r.Rebuild("a test wants it")
			eventually(t, 30*time.Second, "another is served", func() bool { return r.Store() != before })
		}
		if r.Store() == first {
			t.Error("the first replica is served still")
		}
		stopWriting()
		stopReading()
		if err := <-reads; err != nil {
			t.Errorf("a read failed: %v", err)
		}
		w.equal(r)
		last := do(w, w.as("ada", verb.Contributor), verb.Create, statement("", "last", "the last")).Seq
		end.Store(int64(last))
		w.caughtUp(r)
		for range cap(results) {
			got := <-results
			if got.err != nil {
				t.Errorf("a subscription ended: %v", got.err)
			}
			w.sameEvents(t, got.ids, start, last)
		}
		eventually(t, 10*time.Second, "the old files are gone", func() bool {
			_, err := os.Stat(filepath.Join(r.dir, node.ReplicaFile+".old"))
			return os.IsNotExist(err)
		})
		checkFile(t, filepath.Join(r.dir, node.ReplicaFile))
	})
	t.Run("when the log was trimmed past it", func(t *testing.T) {
		w := newWorld(t, initSmall)
		w.some("h", "", 5, 100)
		dir := t.TempDir()
		r := w.node(dir, "ada", verb.Contributor)
		w.equal(r)
		start := r.Store().Applied()
		r.stop()
		w.some("n", "", 60, 100)
		if dropped, err := hub.Trim(t.Context(), w.db, hub.Retention{Age: time.Nanosecond}, false); err != nil || len(dropped) == 0 {
			t.Fatalf("Trim = %v, %v", dropped, err)
		}
		var blocked atomic.Bool
		blocked.Store(true)
		release := make(chan struct{})
		w.meddle(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/feed/backfill" && blocked.Load() {
					<-release
				}
				next.ServeHTTP(rw, req)
			})
		})
		r = w.node(dir, "ada", verb.Contributor)
		eventually(t, 20*time.Second, "it is being built", func() bool { return r.Building().Reason != "" })
		if err := r.get(t, "hypothesis:h0"); err != nil {
			t.Errorf("the old replica is not served: %v", err)
		}
		if status, body := r.ask("/readyz"); status != http.StatusOK || !strings.Contains(body, `"degraded"`) || !strings.Contains(body, "trimmed") {
			t.Errorf("readyz = %d %s", status, body)
		}
		r.stop() // in the middle
		r = w.node(dir, "ada", verb.Contributor)
		if err := r.get(t, "hypothesis:h0"); err != nil {
			t.Errorf("after a restart the old replica is not served: %v", err)
		}
		sub := r.Follow(start, nil)
		blocked.Store(false)
		close(release)
		w.equal(r)
		head := r.Store().Applied()
		ids, err := readEvents(t.Context(), sub, head)
		if err != nil {
			t.Fatal(err)
		}
		w.sameEvents(t, ids, start, head)
	})
	t.Run("when the hub was restored", func(t *testing.T) {
		w := newWorld(t, initHub)
		w.some("h", "", 5, 100)
		r := w.node(t.TempDir(), "ada", verb.Contributor)
		w.equal(r)
		kept := r.Follow(r.Store().Applied(), nil)
		do(w, w.as("ada", verb.Contributor), verb.Create, statement("", "kept", "kept"))
		start := r.Store().Applied()
		w.caughtUp(r)
		lost := r.Store().Applied() + 3 // as one that read what the hub then lost
		w.stop()
		if err := hub.Adopt(t.Context(), w.db, hub.AdoptRestore); err != nil {
			t.Fatal(err)
		}
		gone := r.Follow(lost, nil)
		w.start()
		made := do(w, w.as("ada", verb.Contributor), verb.Create, statement("", "after", "after"))
		w.equal(r)
		if p, err := r.Store().Position(t.Context()); err != nil || p.Epoch < 2 {
			t.Errorf("position = %+v, %v", p, err)
		}
		ids, err := readEvents(t.Context(), kept, made.Seq)
		if err != nil {
			t.Fatalf("a subscription from before the restore: %v", err)
		}
		w.sameEvents(t, ids, start, made.Seq)
		if _, err := readEvents(t.Context(), gone, made.Seq); why(err) != artifact.ReasonCursorExpired || fmt.Sprint(artifact.AsError(err).Details["epoch"]) == "1" {
			t.Errorf("a cursor in the gap: %v", err)
		}
		ahead := made.Seq + 1<<40
		ctx := verb.WithCaller(t.Context(), &verb.Caller{Actor: artifact.Actor{ID: "vic"}, Permissions: []string{verb.Viewer}})
		if _, err := r.Subscribe(ctx, &ahead, nil, 1); why(err) != artifact.ReasonCursorExpired || artifact.AsError(err).Code != artifact.CodeNotFound {
			t.Errorf("a cursor ahead of the log: %v", err)
		}
		for token, want := range map[string]string{
			fmt.Sprintf("1:%d", start): "", fmt.Sprintf("1:%d", lost): artifact.ReasonCursorExpired, made.ConsistencyToken: "",
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/api/scidex/get", strings.NewReader(`{"ref":"hypothesis:kept"}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+r.token)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("SciDEX-Consistency", token)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var e struct {
				Details struct{ Reason string } `json:"details"`
			}
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Details.Reason != want {
				t.Errorf("with token %s: %s %q, %v", token, resp.Status, e.Details.Reason, err)
			}
			resp.Body.Close()
		}
	})
}

// TestFieldLesson20 is for row 20 of the lessons, a copy over a foreign file: a
// replica is never rebuilt from another hub.
func TestFieldLesson20(t *testing.T) {
	w, other := newWorld(t, initHub), newWorld(t, initOther)
	w.some("h", "", 3, 100)
	other.some("o", "", 3, 100)
	dir := t.TempDir()
	r := w.node(dir, "ada", verb.Contributor)
	w.equal(r)
	r.stop()
	r = w.nodeWith(node.Config{Dir: dir, HubURL: other.url, Token: other.token("ada", verb.Contributor)})
	eventually(t, 20*time.Second, "it says so", func() bool {
		_, body := r.ask("/readyz")
		return strings.Contains(body, "another hub")
	})
	r.Rebuild("a test wants it")
	eventually(t, 20*time.Second, "it was tried", func() bool { return len(r.Building().Reason) > 0 })
	if page, err := r.Store().Position(t.Context()); err != nil || page.HubID != w.hub.HubID() {
		t.Errorf("position = %+v, %v", page, err)
	}
	r.stop()
	r = w.node(dir, "ada", verb.Contributor)
	w.equal(r)
	if err := r.get(t, "hypothesis:h0"); err != nil {
		t.Error(err)
	}
}

// TestOtherVersion checks that a replica which this build cannot read is copied
// anew from its hub, and from no other.
func TestOtherVersion(t *testing.T) {
	w, other := newWorld(t, initHub), newWorld(t, initOther)
	w.some("h", "", 3, 100)
	dir := t.TempDir()
	r := w.node(dir, "ada", verb.Contributor)
	w.equal(r)
	r.stop()
	path := filepath.Join(dir, node.ReplicaFile)
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "PRAGMA user_version = 1"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	r = other.node(dir, "ada", verb.Contributor)
	eventually(t, 20*time.Second, "it says so", func() bool {
		_, body := r.ask("/readyz")
		return strings.Contains(body, "another hub")
	})
	r.stop()
	r = w.node(dir, "ada", verb.Contributor)
	w.equal(r)
	checkFile(t, path)
	r.stop()
	if err := os.WriteFile(path, []byte("no database at all, and long enough not to be taken for an empty one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Open(t.Context(), node.Config{Dir: dir, HubURL: w.url, Token: r.token}); err == nil {
		t.Error("a file that is no replica was taken")
	}
}

// TestScopesOfANode checks a node that gains a scope and loses it: what is there
// comes at once, whole, and what is lost leaves no bytes.
func TestScopesOfANode(t *testing.T) {
	w := newWorld(t, initHub)
	w.lab("lab-a")
	w.some("h", "", 5, 100)
	private := w.some("secret", "lab-a", 5, 100)
	out := do(w, w.as("ada", verb.Contributor), verb.Create, statement("", "out", "goes in"))
	r := w.node(t.TempDir(), "bob", verb.Viewer)
	w.equal(r)
	if err := r.get(t, private[0]); why(err) != "not_found" {
		t.Errorf("get before = %v", err)
	}
	stopWriting := w.keepWriting("lab-a")
	defer stopWriting()
	start := r.Store().Applied()
	sub := r.Follow(start, nil)
	do(w, w.as("root", verb.Admin), verb.ScopesGrant, verb.ScopesGrantRequest{Scope: "lab-a", Agent: "bob", Roles: []string{verb.Viewer}})
	eventually(t, 30*time.Second, "the scope is there", func() bool { return r.get(t, private[0]) == nil })
	for _, ref := range private {
		if err := r.get(t, ref); err != nil {
			t.Errorf("get %s = %v: the scope came in part", ref, err)
		}
	}
	in := do(w, w.as("root", verb.Admin), verb.Move, verb.MoveRequest{Ref: "hypothesis:out", BaseContentHash: out.ContentHash, Scope: "lab-a", Reason: "so"})
	do(w, w.as("root", verb.Admin), verb.Redact, verb.RedactRequest{Ref: private[1], Reason: "so", Revisions: 1})
	stopWriting()
	w.equal(r)
	if err := r.get(t, in.Ref.Current().String()); err != nil {
		t.Errorf("get what was moved into it = %v", err)
	}
	head := r.Store().Applied()
	ids, err := readEvents(t.Context(), sub, head)
	if err != nil {
		t.Fatal(err)
	}
	w.sameEvents(t, ids, start, head)
	checkFile(t, filepath.Join(r.dir, node.ReplicaFile))

	bob := verb.WithCaller(t.Context(), &verb.Caller{Actor: artifact.Actor{ID: "bob"}, Permissions: []string{verb.Viewer}, Access: r.Access()})
	inside := r.Follow(head, nil)
	do(w, w.as("ada", verb.Contributor), verb.Create, statement("lab-a", "more", "more of it"))
	if page, err := inside.Next(bob); err != nil || len(page.Events) == 0 {
		t.Errorf("a subscription of the scope: %v, %v", page, err)
	}
	do(w, w.as("root", verb.Admin), verb.ScopesRevoke, verb.ScopesRevokeRequest{Scope: "lab-a", Agent: "bob"})
	eventually(t, 30*time.Second, "the scope is gone", func() bool { return why(r.get(t, private[0])) == "not_found" })
	do(w, w.as("ada", verb.Contributor), verb.Create, statement("", "public", "public"))
	w.equal(r)
	for {
		page, err := inside.Next(bob)
		if err != nil {
			if why(err) != artifact.ReasonScopeLeft {
				t.Errorf("the subscription ends with %v", err)
			}
			break
		}
		if page.CaughtUp {
			t.Error("a subscription that saw the scope goes on")
			break
		}
	}
	eventually(t, 10*time.Second, "no bytes are left", func() bool {
		for _, suffix := range []string{"", "-wal"} {
			raw, err := os.ReadFile(filepath.Join(r.dir, node.ReplicaFile+suffix))
			if err != nil || bytes.Contains(raw, []byte("lab-a/secret")) {
				return false
			}
		}
		return true
	})
}

// initOther makes another hub: those of other tests are clones of one.
func initOther(ctx context.Context, db *pgxpool.Pool) error {
	if err := initHub(ctx, db); err != nil {
		return err
	}
	_, err := db.Exec(ctx, "UPDATE hub SET hub_id = gen_random_uuid()::text")
	return err
}

// initSmall makes a hub whose log has one small partition.
func initSmall(ctx context.Context, db *pgxpool.Pool) error {
	if err := initHub(ctx, db); err != nil {
		return err
	}
	var head int
	if err := db.QueryRow(ctx, "SELECT max(seq) FROM feed.change").Scan(&head); err != nil {
		return err
	}
	for _, parent := range []string{"feed.change", "event"} {
		for _, step := range []string{
			`CREATE TABLE kept AS SELECT * FROM %[1]s`,
			`DROP TABLE %[1]s_0, %[1]s_1048576`,
			`CREATE TABLE %[1]s_0 PARTITION OF %[1]s FOR VALUES FROM (0) TO (%[2]d)`,
			`INSERT INTO %[1]s SELECT * FROM kept`,
			`DROP TABLE kept`,
		} {
			if _, err := db.Exec(ctx, fmt.Sprintf(step+" --%[2]d %[1]s", parent, (head/64+1)*64)); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestSwapGoesOn: a replica whose place cannot be taken is put there once it can, and
// what was before is read until then.
func TestSwapGoesOn(t *testing.T) {
	for name, in := range map[string]string{"the old one cannot be moved aside": node.ReplicaFile + ".old", "nor its WAL": node.ReplicaFile + ".old-wal"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, initHub)
			w.some("h", "", 5, 100)
			r := w.node(t.TempDir(), "ada", verb.Contributor)
			w.caughtUp(r)
			before := r.Store()
			block := filepath.Join(r.dir, in)
			if err := os.MkdirAll(filepath.Join(block, "full"), 0o700); err != nil {
				t.Fatal(err)
			}
			r.Rebuild("a test wants it")
			eventually(t, 30*time.Second, "the swap fails", func() bool { return strings.Contains(r.Building().Error, "aside") })
			do(w, w.as("ada", verb.Contributor), verb.Create, statement("", "later", "later"))
			if err := r.get(t, "hypothesis:h3"); err != nil || r.Store() != before {
				t.Errorf("meanwhile a read fails: %v", err)
			}
			if err := os.RemoveAll(block); err != nil {
				t.Fatal(err)
			}
			eventually(t, 30*time.Second, "the new one is served", func() bool { return r.Store() != before })
			w.equal(r)
			if err := r.get(t, "hypothesis:later"); err != nil {
				t.Error(err)
			}
		})
	}
}
