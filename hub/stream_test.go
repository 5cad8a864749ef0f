package hub_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// serveFeed serves a log to anyone, as h says.
func serveFeed(t *testing.T, h *replicate.Handler) string {
	t.Helper()
	h.Scopes = func(*http.Request) ([]string, error) { return []string{artifact.Commons}, nil }
	h.Fail = func(w http.ResponseWriter, req *http.Request, err error) { verb.WriteError(req.Context(), w, nil, err) }
	if h.Logger == nil {
		h.Logger = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /feed", h)
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL
}

func TestStream(t *testing.T) {
	f := newHub(t)
	head := f.head(t)
	_, chain := readTo(t, f, 0, head)
	t.Run("says hello", func(t *testing.T) {
		_, hello := follow(t, f.serve(t), f.token(t, "vic", verb.Viewer), "cursor=3", compressed)
		if hello.HubID != f.HubID() || hello.Epoch != 1 || hello.Head != head || hello.Floor != 0 || hello.MinReader != replicate.WireVersion || len(hello.Scopes) != 1 {
			t.Errorf("hello = %+v", hello)
		}
	})
	t.Run("beats at a quiet tail", func(t *testing.T) {
		url := serveFeed(t, &replicate.Handler{Log: f, Beat: 20 * time.Millisecond})
		s, _ := follow(t, url, "", fmt.Sprintf("cursor=%d", head), plain)
		for range 3 {
			if b := s.next(); b.Type != replicate.FrameBeat || b.From != head || b.To != head || b.Head != head || b.Chain != chain.String() {
				t.Errorf("frame = %+v, want a beat at %d with chain %s", b, head, chain)
			}
		}
	})
	t.Run("ends with a reset when the server stops", func(t *testing.T) {
		for _, encoding := range []string{plain, compressed} {
			done := make(chan struct{})
			s, _ := follow(t, serveFeed(t, &replicate.Handler{Log: f, Done: done}), "", fmt.Sprintf("cursor=%d", head), encoding)
			close(done)
			if r := s.next(); r.Type != replicate.FrameReset || r.Reason == "" {
				t.Errorf("last frame = %+v, want a reset", r)
			}
			if _, err := s.lines.ReadByte(); err == nil {
				t.Error("the stream goes on after its reset")
			}
		}
	})
	t.Run("ends with its token", func(t *testing.T) {
		c := verb.Claims{ActorKind: "human", Permissions: []string{verb.Viewer}}
		c.Subject = "vic"
		c.IssuedAt, c.ID = jwt.NewNumericDate(time.Now().Add(-time.Minute)), "t"
		c.Audience, c.ExpiresAt = jwt.ClaimStrings{verb.Audience}, jwt.NewNumericDate(time.Now().Add(-25*time.Second)) // within the leeway for clocks
		unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, &c)
		unsigned.Header["kid"] = f.SigningKey().ID
		token, err := unsigned.SignedString(f.SigningKey().Private)
		if err != nil {
			t.Fatal(err)
		}
		s, _ := follow(t, f.serve(t), token, fmt.Sprintf("cursor=%d", head), plain)
		begun := time.Now()
		if r := s.next(); r.Type != replicate.FrameReset || !strings.Contains(r.Reason, "expired") || time.Since(begun) > 30*time.Second {
			t.Errorf("frame after %s = %+v, want a reset by the token's end", time.Since(begun), r)
		}
	})
	t.Run("a beat within a commit does not end it", func(t *testing.T) {
		stuck := &stuckLog{Log: f, after: 2}
		at := f.head(t)
		appendRows(t, f.db, 3*replicate.MaxPageRows, "public", artifact.Commons, "test:long")
		s, _ := follow(t, serveFeed(t, &replicate.Handler{Log: stuck, Beat: 20 * time.Millisecond}), "", fmt.Sprintf("cursor=%d", at), plain)
		for n := 0; n < 5; n++ {
			p := s.next()
			if p.To == at {
				n-- // a beat, before the commit
				continue
			}
			if p.Type != replicate.FramePart {
				t.Errorf("frame = %s from %d to %d of a commit to %d, want a part", p.Type, p.From, p.To, at+3*replicate.MaxPageRows)
			}
		}
	})
}

// A stuckLog is a log whose readers get no more after some pages.
type stuckLog struct {
	replicate.Log
	after int
}

type stuckReader struct {
	replicate.Reader
	left int
}

func (l *stuckLog) Open(ctx context.Context, from replicate.Position, scopes []string) (replicate.Reader, replicate.Hello, error) {
	r, hello, err := l.Log.Open(ctx, from, scopes)
	return &stuckReader{r, l.after}, hello, err
}

func (r *stuckReader) Next(ctx context.Context, quiet <-chan time.Time) (*replicate.Page, error) {
	if r.left == 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-quiet:
			return nil, nil //nolint:nilnil // as the interface has it
		}
	}
	p, err := r.Reader.Next(ctx, quiet)
	if p != nil {
		r.left--
	}
	return p, err
}

// A logBuffer takes what is logged.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestSlowFollower checks that a client that does not read is dropped, and that
// nobody waits for it.
func TestSlowFollower(t *testing.T) {
	f := newHub(t)
	logged := new(logBuffer)
	url := serveFeed(t, &replicate.Handler{Log: f, WriteWait: 200 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(logged, nil))})
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /feed?cursor=0 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	s, _ := follow(t, url, "", "cursor=0", plain)
	reached := 0 // writes that came to another follower while the slow one hung on
	for ; !strings.Contains(logged.String(), "feed follower dropped"); reached++ {
		if reached == 60 {
			t.Fatal("a client that reads nothing is not dropped after 120 MB")
		}
		s.until(appendRows(t, f.db, 3000, "public", artifact.Commons, "test:"+strings.Repeat("x", 250))) // some 2 MB
	}
	if reached == 0 {
		t.Error("the slow follower was dropped before it could hold anybody up")
	}
}

// TestPumpStart checks that a hub feeds a log that was there before it.
func TestPumpStart(t *testing.T) {
	follows := func(t *testing.T, f *fixture) {
		t.Helper()
		head := f.head(t)
		want, _ := readTo(t, f, 0, head) // all or mostly by SQL
		if head > 0 && len(want) == 0 {
			t.Error("no rows")
		}
		s, _ := follow(t, f.serve(t), f.token(t, "vic", verb.Viewer), "cursor=0", plain)
		f.mustCreate(t, hypothesis("h", "x")) // two rows, and one that tells of its author
		s.until(f.head(t))
		rows, chain := readTo(t, f, 0, f.head(t))
		sameRows(t, "over HTTP", s.rows, rows)
		if len(rows) != len(want)+3 || s.chain != chain.String() {
			t.Errorf("%d rows with chain %s, want %d with %s", len(rows), s.chain, len(want)+3, chain)
		}
		// A hub that began elsewhere computes the same chain.
		fresh := newHubOn(t, f.db)
		if _, other := readTo(t, fresh, 0, f.head(t)); other != chain {
			t.Errorf("chain = %s, and of a hub begun later %s", chain, other)
		}
	}
	t.Run("from a checkpoint", func(t *testing.T) {
		db := pgtest.New(t, initHub)
		first := newHubOn(t, db)
		for range 6 {
			appendRows(t, db, 900, "public", artifact.Commons, "test:old")
		}
		eventually(t, "checkpoints are noted", func() bool { return first.count(t, "SELECT count(*) FROM feed.checkpoint") == 5 })
		follows(t, newHubOn(t, db))
	})
	t.Run("at a checkpoint", func(t *testing.T) {
		db := pgtest.New(t, initHub)
		first := newHubOn(t, db)
		appendRows(t, db, 2000-int(first.head(t)), "public", artifact.Commons, "test:old")
		eventually(t, "the checkpoint is noted", func() bool { return first.count(t, "SELECT count(*) FROM feed.checkpoint") == 2 })
		h, err := hub.Open(t.Context(), hub.Config{DB: db})
		if err != nil {
			t.Fatal(err)
		}
		reader, _, err := h.Open(t.Context(), replicate.Position{}, []string{artifact.Commons})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		go func() { // waits before the pump begins, which finds nothing to add
			_, err := reader.Next(ctx, nil)
			got <- err
		}()
		time.Sleep(50 * time.Millisecond)
		run, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- h.Run(run) }()
		if err := <-got; err != nil {
			t.Errorf("a follower that came before the pump began gets no rows: %v", err)
		}
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	t.Run("without checkpoints", func(t *testing.T) {
		db := pgtest.New(t, initHub)
		for range 6 {
			appendRows(t, db, 900, "public", artifact.Commons, "test:old")
		}
		follows(t, newHubOn(t, db))
	})
	t.Run("on an empty log", func(t *testing.T) {
		db := pgtest.New(t, initHub)
		if _, err := db.Exec(t.Context(), "TRUNCATE feed.change, event"); err != nil {
			t.Fatal(err)
		}
		f := newHubOn(t, db)
		if status, e := getError(t, f.serve(t)+"/feed?cursor=1", f.token(t, "vic", verb.Viewer)); status != http.StatusConflict || e.Reason != artifact.ReasonCursorAhead {
			t.Errorf("cursor 1 = %d %s", status, e.Reason)
		}
		follows(t, f)
	})
}

// TestPumpOutlivesTheDatabase checks that followers lose nothing when all of the
// hub's connections are cut in mid-stream, or a checkpoint cannot be noted.
func TestPumpOutlivesTheDatabase(t *testing.T) {
	db := pgtest.New(t, initHub)
	pool, err := hub.OpenPool(t.Context(), db.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	f := newHubOn(t, pool)
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)
	s, _ := follow(t, url, token, "cursor=0", compressed)
	t.Run("cut connections", func(t *testing.T) {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			const cut = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()`
			for {
				select {
				case <-stop:
					return
				case <-time.After(250 * time.Millisecond): // in which a busy machine still gets some reads done
					if _, err := db.Exec(t.Context(), cut); err != nil {
						t.Error(err)
					}
				}
			}
		}()
		acked, failed := 0, 0
		deadline := time.Now().Add(30 * time.Second)
		for i := 0; i < 100 || failed == 0 && time.Now().Before(deadline); i++ {
			_, err := verb.Create.Call(contributor(t.Context()), f.verbs, hypothesis(fmt.Sprint("h", i), "x"))
			switch e := artifact.AsError(err); {
			case err == nil:
				acked++
			case e.Code == artifact.CodeUnavailable && e.Retryable:
				failed++
			default:
				t.Errorf("create while connections are cut: %v", err)
			}
		}
		close(stop)
		<-stopped
		if failed == 0 {
			t.Error("no write met a cut connection")
		}
		f.db = db // the pool's own connections may be dead still
		head := f.head(t)
		s.until(head)
		f.checkDense(t)
		if n := f.count(t, "SELECT count(*) FROM artifact"); n < acked {
			t.Errorf("%d artifacts, %d acknowledged", n, acked)
		}
		want, _ := readTo(t, newHubOn(t, db), 0, head)
		sameRows(t, "a follower across cuts", s.rows, want)
	})
	t.Run("a checkpoint that cannot be noted", func(t *testing.T) {
		const refuse = `
			CREATE FUNCTION refuse_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
			CREATE TRIGGER refuse BEFORE INSERT ON feed.checkpoint FOR EACH ROW EXECUTE FUNCTION refuse_checkpoint()`
		if _, err := db.Exec(t.Context(), refuse); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			appendRows(t, db, 700, "public", artifact.Commons, "test:more")
		}
		s.until(f.head(t)) // they come all the same
		if _, err := db.Exec(t.Context(), "DROP TRIGGER refuse ON feed.checkpoint"); err != nil {
			t.Fatal(err)
		}
		appendRows(t, db, 700, "public", artifact.Commons, "test:more")
		head := f.head(t)
		s.until(head)
		want, chain := readTo(t, newHubOn(t, db), 0, head)
		sameRows(t, "a follower", s.rows, want)
		if s.chain != chain.String() {
			t.Errorf("chain = %s, want %s", s.chain, chain)
		}
	})
}
