package hub

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/pgtest"
)

// TestPredecessorsOutliveTrimming checks that the last row of a scope is known
// when it is no longer in the log.
func TestPredecessorsOutliveTrimming(t *testing.T) {
	db := pgtest.New(t, func(ctx context.Context, db *pgxpool.Pool) error {
		_, err := Init(ctx, db)
		return err
	})
	//nolint:dupword // SQL's arguments
	const add = `
		INSERT INTO feed.change (seq, commit_seq, class, scope, kind, op, ref, revision, at)
		SELECT n, n, CASE WHEN n % 5 = 0 THEN 'internal' ELSE 'public' END, 'lab-' || n % 3, 'event', 'E', 'test:x', 1, now() FROM generate_series($1::bigint, $2) n`
	_, head, err := bounds(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), add, int64(head+1), int64(head+30)); err != nil {
		t.Fatal(err)
	}
	scopes := []string{artifact.Commons, "lab-0", "lab-1", "lab-2", "lab-3"}
	at := head + 25
	want, err := lastOfScopes(t.Context(), db, scopes, at)
	if err != nil || len(want) != len(scopes) || want["lab-0"] < at-10 || want["lab-3"] != 0 || want[artifact.Commons] == 0 || want[artifact.Commons] > head {
		t.Fatalf("last = %v, %v", want, err)
	}
	for _, before := range []artifact.Seq{head + 10, head + 20, head + 20, at + 1} {
		if err := noteScopesLast(t.Context(), db, before); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), `DELETE FROM feed.change WHERE seq < $1`, int64(before)); err != nil {
			t.Fatal(err)
		}
		got, err := lastOfScopes(t.Context(), db, scopes, at)
		if err != nil {
			t.Fatal(err)
		}
		for scope, seq := range want {
			if got[scope] != seq {
				t.Errorf("trimmed before %d, the last row of %s is %d, want %d", before, scope, got[scope], seq)
			}
		}
	}
}
