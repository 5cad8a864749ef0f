package hub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestManyLinks pages through the links of an artifact that very many lead to, and
// asks how an artifact stood early in a long log, each in short time.
func TestManyLinks(t *testing.T) {
	f := newHub(t)
	ctx := as(t.Context(), "ada", verb.Viewer)
	for _, sql := range []string{
		`INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, created_at, created_by, updated_at, updated_by, row_hash)
			SELECT 'gene', 'G' || n, 'commons', 1, sha256(n::text::bytea), 1, 'A gene', '', true, now(), 'ada', now(), 'ada', sha256(n::text::bytea) FROM generate_series(1, 50000) AS n`,
		`INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note, provenance, created_at, created_by, row_hash)
			SELECT type, id, 1, scope, content_hash, 1, title, state, '{}', '', '{}', created_at, created_by, row_hash FROM artifact WHERE type = 'gene'`,
		`INSERT INTO link (id, from_type, from_id, predicate, to_type, to_id, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash)
			SELECT 'k-' || id, type, id, CASE WHEN length(id) % 3 = 0 THEN 'cites' ELSE 'about' END, 'gene', 'G1', 'gene:G1', 'commons', '[]', 'null', now(), 'ada', row_hash
			FROM artifact WHERE type = 'gene' AND id <> 'G1'`,
		`INSERT INTO event (seq, type, ref, scope, class, actor_id, actor_kind, at, payload)
			SELECT 10000 + n, 'gene.updated', 'gene:G' || n, 'commons', 'public', 'ada', 'human', now(), '{"revision":1}' FROM generate_series(2, 50000) AS n`,
		`ANALYZE artifact, link, event, artifact_revision`,
	} {
		if _, err := f.db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	plans := func(query string, args ...any) string {
		t.Helper()
		rows, err := f.db.Query(t.Context(), "EXPLAIN "+query, args...)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var plan strings.Builder
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan.WriteString(line + "\n")
		}
		return plan.String()
	}
	if plan := plans(`SELECT e.type FROM event e WHERE e.scope = ANY ($1) AND split_part(e.ref COLLATE "C", '@', 1) = $2
		AND right(e.type, 9) <> '.signaled' AND right(e.type, 10) <> '.commented' AND right(e.type, 7) <> '.linked' AND e.seq > $3 ORDER BY e.seq LIMIT 1`,
		[]string{"commons"}, "gene:G7", 5); strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "split_part") {
		t.Errorf("events of one thing are found by\n%s", plan)
	}
	start, out := time.Now(), verb.LinksResponse{}
	var err error
	for i := range 20 {
		in := verb.LinksRequest{Ref: artifact.Ref{Type: "gene", ID: "G1"}, Direction: verb.DirectionIn, Limit: 20, Cursor: out.NextCursor, IncludeTargets: true}
		if out, err = verb.Links.Call(ctx, f.verbs, in); err != nil || len(out.Links) != 20 {
			t.Fatalf("page %d of links: %d, %v", i, len(out.Links), err)
		}
	}
	t.Logf("a page of links: %v", time.Since(start)/20)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("20 pages took %v", took)
	}
	in := verb.GetRequest{Ref: artifact.Ref{Type: "gene", ID: "G7"}, IncludeLinks: true}
	start = time.Now()
	for range 20 {
		if _, err := verb.Get.Call(ctx, f.verbs, in); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("a get with links: %v", time.Since(start)/20)
}
