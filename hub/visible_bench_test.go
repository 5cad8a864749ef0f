package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/internal/pgtest"
)

// visibleArtifacts is how many artifacts the predicate is measured on.
const visibleArtifacts = 50_000

// BenchmarkVisible measures queries with the predicate of visibility against the
// same without it, in turn, and reports the ratio of their medians.
func BenchmarkVisible(b *testing.B) {
	db := pgtest.New(b, func(ctx context.Context, db *pgxpool.Pool) error {
		_, err := Init(ctx, db)
		return err
	})
	const fill = `
		INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, created_at, created_by, updated_at, updated_by, row_hash)
		SELECT 'gene', 'G' || n, CASE n % 10 WHEN 0 THEN 'lab-a' WHEN 1 THEN 'lab-x' ELSE 'commons' END, 1, sha256(n::text::bytea), 1, 'A gene', '', true,
			'2026-01-01'::timestamptz + n * interval '1 second', 'ada', now(), 'ada', sha256(n::text::bytea)
		FROM generate_series(1, $1) AS n`
	const bodies = `
		INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note, provenance, created_at, created_by, row_hash)
		SELECT type, id, 1, scope, content_hash, 1, title, state, '{"symbol":"G"}', '', '{}', created_at, created_by, row_hash FROM artifact`
	if _, err := db.Exec(b.Context(), fill, visibleArtifacts); err != nil {
		b.Fatal(err)
	}
	for _, sql := range []string{bodies, `VACUUM ANALYZE artifact, artifact_revision`} {
		if _, err := db.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	scopes := []string{"commons", "lab-a", "lab-b", "lab-c", "lab-d"}
	// What is left must name its parameters all the same.
	without := func(query string) string {
		return strings.ReplaceAll(query, visible, ` $1::text[] IS NOT NULL AND $2::text IS NOT NULL`)
	}
	page := listQuery + ` AND a.type = 'gene' ORDER BY a.created_at DESC, a.type, a.id LIMIT 51`
	for _, m := range []struct {
		name, query string
		args        func(n int) []any
	}{
		{"get", getCurrentQuery, func(n int) []any { return []any{scopes, "ada", "gene", fmt.Sprintf("G%d", n%visibleArtifacts+1), true} }},
		{"list", page, func(int) []any { return []any{scopes, "ada", false} }},
	} {
		b.Run(m.name, func(b *testing.B) {
			conn, err := db.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Release()
			var times [2][]time.Duration
			n := 0
			for b.Loop() {
				for i, query := range []string{without(m.query), m.query} {
					begun := time.Now()
					rows, err := conn.Query(b.Context(), query, m.args(n)...)
					if err != nil {
						b.Fatal(err)
					}
					for rows.Next() {
					}
					if rows.Err() != nil {
						b.Fatal(rows.Err())
					}
					times[i] = append(times[i], time.Since(begun))
				}
				n += 7919
			}
			floor, value := middle(times[0]), middle(times[1])
			b.ReportMetric(float64(value.Nanoseconds())/1000, "µs/query")
			b.ReportMetric(float64(floor.Nanoseconds())/1000, "µs/floor")
			b.ReportMetric(float64(value)/float64(floor), "ratio")
		})
	}
}

func middle(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
