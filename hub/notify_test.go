package hub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// TestHubsTellEachOther checks that a hub that never polls is woken by another's
// commits, whatever their size, and that it hears of those that were made while
// its connection was cut.
func TestHubsTellEachOther(t *testing.T) {
	db := pgtest.New(t, initHub)
	a := newHubWith(t, hub.Config{DB: db, PollInterval: time.Hour})
	b := newHubWith(t, hub.Config{DB: db, PollInterval: time.Hour})
	s, _ := follow(t, b.serve(t), b.token(t, "vic", verb.Viewer), fmt.Sprintf("cursor=%d", b.head(t)), compressed)
	for i := range 20 {
		a.mustCreate(t, hypothesis(fmt.Sprint("small", i), "x"))
		s.until(a.head(t))
	}
	a.mustCreate(t, hypothesis("large", strings.Repeat("x", 1<<20-100)))
	s.until(a.head(t))

	listeners := func() int {
		return a.count(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'scidex listen' AND query LIKE 'LISTEN%'")
	}
	for round, cut := range []string{"listen", "listen", "notify"} {
		eventually(t, "both listen", func() bool { return listeners() == 2 })
		execute(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1", "scidex "+cut)
		a.mustCreate(t, hypothesis(fmt.Sprint("cut", round), "x"))
		s.until(a.head(t))
	}
	want, _ := readTo(t, newHubOn(t, db), 0, a.head(t))
	sameRows(t, "a follower of the other hub", s.rows, want[len(want)-len(s.rows):])
	if n := b.count(t, "SELECT count(*) FROM feed.change WHERE class = 'public' AND scope = 'commons' AND seq > $1", int64(s.ends[0].seq)); len(s.rows) < n {
		t.Errorf("%d rows, want %d", len(s.rows), n)
	}
}

// TestNotificationsStandAlone checks that a commit itself notifies nobody.
func TestNotificationsStandAlone(t *testing.T) {
	db := pgtest.New(t, initHub)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "LISTEN scidex_log"); err != nil {
		t.Fatal(err)
	}
	h, err := hub.Open(t.Context(), hub.Config{DB: db}) // not run
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verb.Create.Call(contributor(t.Context()), h.Verbs(), hypothesis("h", "x")); err != nil {
		t.Fatal(err)
	}
	// Notifications come in order: this one would come after.
	execute(t, db, "SELECT pg_notify('scidex_log', 'mark')")
	n, err := conn.Conn().WaitForNotification(t.Context())
	if err != nil || n.Payload != "mark" {
		t.Errorf("notified of %v, %v: a write's transaction does that", n, err)
	}
}
