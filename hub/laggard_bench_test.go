package hub

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/replicate"
)

// BenchmarkLaggard reads a log of five scopes, of which one is quiet, as a follower
// of some of them does that comes after a long time. The floor reads all rows, as
// computing the chain on the way would have to.
func BenchmarkLaggard(b *testing.B) {
	const rows = 1_000_000
	db := pgtest.New(b, func(ctx context.Context, db *pgxpool.Pool) error {
		_, err := Init(ctx, db)
		return err
	})
	//nolint:dupword // SQL's columns
	const add = `
		INSERT INTO feed.change (seq, commit_seq, class, scope, kind, op, ref, revision, data, at)
		SELECT n, n, 'public', CASE WHEN n % 1000 = 0 THEN 'quiet' ELSE 'lab-' || n % 4 END, 'scope', 'P', 'scope:x', 1, repeat('x', 300), now()
		FROM generate_series($1::bigint, $2) n`
	_, head, err := bounds(b.Context(), db)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := db.Exec(b.Context(), add, int64(head+1), int64(head+rows)); err != nil {
		b.Fatal(err)
	}
	if _, err := db.Exec(b.Context(), `VACUUM ANALYZE feed.change`); err != nil {
		b.Fatal(err)
	}
	upTo := head + rows
	read := func(b *testing.B, next func(at artifact.Seq) artifact.Seq) {
		b.Helper()
		pages := 0
		for b.Loop() {
			for at := head; at < upTo; pages++ {
				at = next(at)
			}
		}
		b.ReportMetric(float64(pages)/float64(b.N), "pages/op")
	}
	b.Run("all rows", func(b *testing.B) {
		read(b, func(at artifact.Seq) artifact.Seq {
			rows, err := readLog(b.Context(), db, at, replicate.MaxPageRows)
			if err != nil {
				b.Fatal(err)
			}
			return rows[len(rows)-1].Seq
		})
	})
	for _, scopes := range [][]string{{"quiet"}, {"lab-0"}, {"quiet", "lab-0", "lab-1"}} {
		b.Run(fmt.Sprint(scopes), func(b *testing.B) {
			read(b, func(at artifact.Seq) artifact.Seq {
				rows, all, err := readScopes(b.Context(), db, scopes, at, upTo, replicate.MaxPageRows)
				if err != nil {
					b.Fatal(err)
				}
				if all {
					return upTo
				}
				return rows[len(rows)-1].Seq
			})
		})
	}
	b.Run("the chain of a place", func(b *testing.B) {
		at, err := chainAt(b.Context(), db, head)
		if err != nil {
			b.Fatal(err)
		}
		if err := noteCheckpoint(b.Context(), db, chainCursor{head + 1, at}); err != nil { // whatever it is
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := chainAt(b.Context(), db, head+501); err != nil { // as far as on average
				b.Fatal(err)
			}
		}
	})
}
