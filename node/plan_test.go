package node

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestPlans reads what SQLite does for the reads of one thing: none walks a table,
// and a page of links is in order by its index, whatever number of links there is.
func TestPlans(t *testing.T) {
	s, err := OpenStore(t.Context(), filepath.Join(t.TempDir(), ReplicaFile))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const links = 100_000
	for _, sql := range []string{
		`INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by, created_at, created_by, updated_at, updated_by, row_hash)
			WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 100000)
			SELECT 'gene', 'G' || n, 'commons', 1, randomblob(32), 1, 'A gene', '', 1, '', n * 1000, 'ada', 0, 'ada', randomblob(32) FROM c`,
		`INSERT INTO link (id, from_type, from_id, predicate, to_type, to_id, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash)
			SELECT 'k-' || id, type, id, CASE WHEN rowid % 3 = 0 THEN 'cites' ELSE 'about' END, 'gene', 'G1', 'gene:G1', 'commons', '[]', 'null', 0, 'ada', randomblob(32) FROM artifact`,
	} {
		if _, err := s.conn.ExecContext(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var access verb.Directory
	ctx := verb.WithCaller(t.Context(), &verb.Caller{Actor: artifact.Actor{ID: "ada"}, Permissions: []verb.Permission{verb.Viewer}, Access: &access})
	for name, c := range map[string]struct {
		query  *scopedQuery
		args   []any
		sorted bool // by an index
	}{
		"history":          {&s.read.history, []any{"gene", "G1", 9, 9}, true},
		"links out":        {&s.read.out.page, []any{"gene", "G1", "[]", "[]", "", "", "", "", 51}, true},
		"links in":         {&s.read.in.page, []any{"gene", "G1", "[]", "[]", "", "", "", "", 51}, true},
		"links of a page":  {&s.read.out.listed, []any{`[["gene","G1"],["gene","G2"]]`, "[]", 4}, false},
		"links to a page":  {&s.read.in.listed, []any{`[["gene","G1"],["gene","G2"]]`, `["about"]`, 4}, false},
		"signals of those": {&s.read.listedSignals, []any{`[["gene","G1"],["gene","G2"]]`}, false},
		"predicates":       {&s.read.in.count, []any{"gene", "G1", "[]", "[]"}, false},
		"a link's past":    {&s.read.linkPast, []any{"kg_edge:k"}, true},
		"as of, by events": {&s.read.asOfEvents, []any{"gene:G1", 1, "[]", ""}, true},
		"as of":            {&s.read.getAsOf, []any{"gene", "G1", true, 1, false, []byte{}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			plan := &scopedQuery{pool: s.readers, text: "EXPLAIN QUERY PLAN " + c.query.text}
			rows, err := plan.rows(ctx, nil, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var id, parent, unused int
				var step string
				if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
					t.Fatal(err)
				}
				for _, table := range []string{"a", "r", "l", "o", "e", "t", "g", "s", "artifact", "artifact_revision", "link", "event"} {
					if step == "SCAN "+table || strings.HasPrefix(step, "SCAN "+table+" ") && !strings.Contains(step, "VIRTUAL TABLE") {
						t.Errorf("it walks a table: %s", step)
					}
				}
				if c.sorted && step == "USE TEMP B-TREE FOR ORDER BY" {
					t.Errorf("it sorts: %s", step)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		})
	}
	ref := artifact.Ref{Type: "gene", ID: "G1"}
	start, out := time.Now(), verb.LinksResponse{}
	for range 20 {
		if out, err = s.links(ctx, verb.LinksRequest{Ref: ref, Direction: verb.DirectionIn, Limit: 20, Cursor: out.NextCursor, IncludeTargets: true}); err != nil || len(out.Links) != 20 {
			t.Fatalf("links = %d, %v", len(out.Links), err)
		}
	}
	t.Logf("a page of %d links: %v", links, time.Since(start)/20)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("20 pages took %v", took)
	}
}
