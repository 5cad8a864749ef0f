package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// visibleArtifacts is how many artifacts the predicate is measured on.
const visibleArtifacts = 50_000

// BenchmarkVisible measures queries with the predicate of visibility against the
// same without it, in turn, and reports the ratio of their medians.
func BenchmarkVisible(b *testing.B) {
	s, err := OpenStore(b.Context(), filepath.Join(b.TempDir(), ReplicaFile))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, sql := range []string{
		`WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 50000)
			INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by, created_at, created_by, updated_at, updated_by, row_hash)
			SELECT 'gene', 'G' || n, CASE n % 10 WHEN 0 THEN 'lab-a' WHEN 1 THEN 'lab-x' ELSE 'commons' END, 1, randomblob(32), 1, 'A gene', '', 1, '', n * 1000, 'ada', 0, 'ada', randomblob(32) FROM c`,
		`INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note, provenance, created_at, created_by, row_hash)
			SELECT type, id, 1, scope, content_hash, 1, title, state, '{"symbol":"G"}', '', '{}', created_at, created_by, row_hash FROM artifact`,
	} {
		if _, err := s.conn.ExecContext(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	var access verb.Directory
	for _, scope := range []string{"lab-a", "lab-b", "lab-c", "lab-d"} {
		access.SetRoles(scope, "ada", []verb.Permission{verb.Viewer})
	}
	ctx := verb.WithCaller(b.Context(), &verb.Caller{Actor: artifact.Actor{ID: "ada"}, Permissions: []verb.Permission{verb.Viewer}, Access: &access})
	for _, m := range []struct {
		name string
		text string
		args func(n int) []any
	}{
		{"get", getSQL, func(n int) []any { return []any{"gene", fmt.Sprintf("G%d", n%visibleArtifacts+1), true} }},
		{"list", listOfTypeSQL, func(int) []any { return []any{51, false, int64(1) << 60, "gene", ""} }},
	} {
		b.Run(m.name, func(b *testing.B) {
			with := &scopedQuery{pool: s.readers, text: m.text}
			floor, err := s.readers.PrepareContext(b.Context(), strings.ReplaceAll(m.text, "a.scope IN ({scopes})", "true"))
			if err != nil {
				b.Fatal(err)
			}
			defer floor.Close()
			var times [2][]time.Duration
			n := 0
			for b.Loop() {
				for i := range times {
					begun := time.Now()
					stmt, args := floor, m.args(n)
					if i == 1 {
						if stmt, args, err = with.bind(ctx, args...); err != nil {
							b.Fatal(err)
						}
					}
					rows, err := stmt.Query(args...)
					if err != nil {
						b.Fatal(err)
					}
					for rows.Next() {
					}
					if err := errors.Join(rows.Err(), rows.Close()); err != nil { //nolint:sqlclosecheck // a loop would gather what is deferred
						b.Fatal(err)
					}
					times[i] = append(times[i], time.Since(begun))
				}
				n += 7919
			}
			slices.Sort(times[0])
			slices.Sort(times[1])
			base, value := times[0][len(times[0])/2], times[1][len(times[1])/2]
			b.ReportMetric(float64(value.Nanoseconds())/1000, "µs/query")
			b.ReportMetric(float64(base.Nanoseconds())/1000, "µs/floor")
			b.ReportMetric(float64(value)/float64(base), "ratio")
		})
	}
}
