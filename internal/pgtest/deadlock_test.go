package pgtest_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/internal/pgtest"
)

// A witness is a test that only notes its failures and its cleanups.
type witness struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (w *witness) Cleanup(f func()) { w.cleanups = append(w.cleanups, f) }
func (w *witness) Errorf(format string, _ ...any) {
	w.errors = append(w.errors, format)
}

// TestDeadlockFails checks that a test fails in whose database two transactions
// waited for each other, however well its program took that.
func TestDeadlockFails(t *testing.T) {
	w := &witness{TB: t}
	db := pgtest.New(w, notes)
	if _, err := db.Exec(t.Context(), "INSERT INTO note VALUES ('a'), ('b')"); err != nil {
		t.Fatal(err)
	}
	var txs [2]pgx.Tx
	lock := func(i int, text string) error {
		_, err := txs[i].Exec(t.Context(), "SELECT FROM note WHERE text = $1 FOR UPDATE", text)
		return err
	}
	for i, text := range []string{"a", "b"} {
		var err error
		if txs[i], err = db.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lock(i, text); err != nil {
			t.Fatal(err)
		}
	}
	other := make(chan error, 1)
	go func() {
		err := lock(1, "a")
		_ = txs[1].Rollback(context.WithoutCancel(t.Context()))
		other <- err
	}()
	err := lock(0, "b")
	_ = txs[0].Rollback(t.Context())
	if err == nil {
		err = <-other
	} else {
		<-other
	}
	if err == nil || !strings.Contains(err.Error(), "deadlock") {
		t.Fatalf("neither of two that wait for each other was ended: %v", err)
	}
	for _, f := range slices.Backward(w.cleanups) {
		f()
	}
	if len(w.errors) != 1 || !strings.Contains(w.errors[0], "deadlocks") {
		t.Errorf("the test failed with %q, want one failure for the deadlock", w.errors)
	}
}
