package node

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/query"
	"github.com/scidex-ai/substrate/verb"
)

// many fills a replica with genes, of which each has a facet, a link and a signal.
var many = []string{
	`INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by, quality_score, created_at, created_by, updated_at, updated_by, row_hash)
		WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 20000)
		SELECT 'gene', 'G' || n, 'commons', 1, randomblob(32), 1, 'T' || n, '', 1, '', CASE WHEN n % 3 = 0 THEN n END, n * 1000, 'ada', n * 1000, 'ada', randomblob(32) FROM c`,
	`INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, created_at, created_by, row_hash, note, provenance, content)
		SELECT type, id, 1, scope, content_hash, 1, title, '', created_at, 'ada', row_hash, '', '{}', '{"symbol":"' || id || '"}' FROM artifact`,
	`INSERT INTO facet (type, id, path, n, scope, kind, num, text) SELECT type, id, '/symbol', 0, scope, 's', NULL, id FROM artifact`,
	`INSERT INTO facet (type, id, path, n, scope, kind, num, text) SELECT type, id, '/chromosome', 0, scope, 's', NULL, 'c' || (rowid % 4) FROM artifact`,
	`INSERT INTO link (id, from_type, from_id, predicate, to_type, to_id, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash)
		SELECT 'k' || id, type, id, 'about', 'gene', 'G' || (rowid % 100), 'gene:G' || (rowid % 100), scope, '[]', 'null', created_at, 'ada', row_hash FROM artifact`,
	`INSERT INTO signal (id, type, artifact, scope, kind, dimension, voter, voter_kind, value, weight, reason, metadata, created_at, created_by, row_hash)
		SELECT 's' || id, type, id, scope, 'vote', '', 'ada', 'human', '1', '1', '', 'null', created_at, 'ada', row_hash FROM artifact`,
	`INSERT INTO digest (scope, kind, type, n, acc) SELECT 'commons', 'artifact', 'gene', count(*), x'' FROM artifact`,
	`INSERT INTO signal_aggregate (type, artifact, kind, dimension, n, voters, sum, sum_sq) SELECT type, id, 'vote', '', 1, 1, rowid % 7, 1 FROM artifact`,
}

// filled returns a store with many, and a caller's context.
func filled(t *testing.T) (*Store, *verb.Caller, context.Context) {
	t.Helper()
	s, err := OpenStore(t.Context(), filepath.Join(t.TempDir(), ReplicaFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for _, sql := range many {
		if _, err := s.conn.ExecContext(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	c := &verb.Caller{Actor: artifact.Actor{ID: "ada"}, Permissions: []verb.Permission{verb.Viewer}, Access: new(verb.Directory)}
	return s, c, verb.WithCaller(t.Context(), c)
}

// planOf returns what SQLite does for a query, a step a line.
func planOf(ctx context.Context, t *testing.T, s *Store, text string, args []any) string {
	t.Helper()
	rows, err := s.readers.QueryContext(ctx, "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		t.Fatal(err, text)
	}
	defer rows.Close()
	var steps strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps.WriteString(step + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps.String()
}

// walks returns the step that looks at a table whole, "" when none does.
func walks(plan string) string {
	for step := range strings.Lines(plan) {
		if strings.HasPrefix(step, "SEARCH f ") && strings.HasSuffix(step, "(type=?)\n") {
			return step
		}
		if strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, " USING ") && !strings.Contains(step, "VIRTUAL TABLE") && !strings.Contains(step, "CONSTANT ROW") {
			name, _, _ := strings.Cut(strings.TrimSpace(step[5:]), " ")
			made := name == "h" || strings.Contains(plan, "CO-ROUTINE "+name+"\n") || strings.Contains(plan, "MATERIALIZE "+name+"\n")
			if !made && name != "replica_state" && !strings.HasPrefix(name, "(") { // that has one row
				return step
			}
		}
	}
	return ""
}

// TestListPlans reads what SQLite does for lists as they are asked: a declared filter
// is found by its index, an order is read from one, and no table is looked at whole.
func TestListPlans(t *testing.T) {
	s, c, ctx := filled(t)
	for _, c1 := range []struct {
		name, typ, filter, sort, uses string
		sorts                         bool // what an index has found
	}{
		{"one of, by title", "gene", `{"field":"/content/symbol","op":"in","value":["G7","G8"]}`, `["title"]`, "facet_text", true},
		{"sort", "gene", ``, `["/content/symbol"]`, "facet_text", false},
		{"by title", "gene", `{"field":"state","op":"ne","value":"x"}`, `["title"]`, "artifact_by_type_title", false},
		{"by title, from the end", "gene", ``, `["-title"]`, "artifact_by_type_title", false},
		{"oldest first", "gene", ``, `["created_at"]`, "artifact_by_type_age", false},
		{"changed last", "gene", ``, `["-updated_at"]`, "artifact_by_type_update", false},
		{"changed last, then by title", "gene", ``, `["-updated_at","title"]`, "artifact_by_type_update", false},
		{"changed first of all types", "", ``, `["updated_at"]`, "artifact_by_update", false},
		{"best first", "gene", ``, `["-quality_score"]`, "artifact_by_type_quality", false},
		{"worst first", "gene", ``, `["quality_score"]`, "artifact_by_type_quality", false},
		{"newest first", "gene", `{"field":"state","op":"eq","value":"x"}`, ``, "artifact_by_type_age", false},
		{"links, newest first", "kg_edge", ``, ``, "link_by_age", false},
		{"links from", "kg_edge", `{"field":"/content/from","op":"eq","value":"gene:G7"}`, ``, "link_from", true},
		{"links to some", "kg_edge", `{"field":"/content/to","op":"in","value":["gene:G7","gene:none"]}`, ``, "link_to", true},
		{"signals, oldest first", "signal", ``, `["created_at"]`, "signal_by_age", false},
		{"signals on", "signal", `{"field":"/content/ref","op":"in","value":["gene:G7","gene:G8"]}`, ``, "signal_latest", true},
	} {
		t.Run(c1.name, func(t *testing.T) {
			in := &verb.ListRequest{Type: c1.typ, Filter: []byte(c1.filter), Sort: []byte(c1.sort), Limit: 20}
			l, err := in.Listing(func(string) *artifact.Schema { return new(artifact.Schema) }, func() []string { return nil })
			if err != nil {
				t.Fatal(err)
			}
			p := &page{store: s, in: in, listing: l, form: formOf(l.Type), scopes: in.Scopes(c), facets: facets{indexed: func(string) bool { return !query.IsEdge(l.Type) }}}
			of, part := p.statement().Segments(l.Sort, l.Filter), 0
			if of > 2 {
				part = 1 // the texts
			}
			text, args, _, err := p.query(part, of, true)
			if err != nil {
				t.Fatal(err)
			}
			plan := planOf(ctx, t, s, text, args)
			if step := walks(plan); step != "" {
				t.Errorf("it looks at a table whole: %s\n%s", step, plan)
			}
			if !strings.Contains(plan, c1.uses) {
				t.Errorf("it does not use %s:\n%s", c1.uses, plan)
			}
			found, _, _ := strings.Cut(plan, "SCAN q") // then the page is sorted once more, which is nothing
			if sorts := strings.Contains(found, "TEMP B-TREE FOR ORDER BY"); sorts != c1.sorts {
				t.Errorf("it sorts all: %v, want %v\n%s", sorts, c1.sorts, plan)
			}
		})
	}
}
