package hub

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// filledHub returns a hub with genes, of which each has a facet, a link and a signal.
func filledHub(t *testing.T) *Hub {
	t.Helper()
	db := pgtest.New(t, func(ctx context.Context, db *pgxpool.Pool) error { _, err := Init(ctx, db); return err })
	h, err := Open(t.Context(), Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	const many = `
		WITH made AS (
			INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by, quality_score, created_at, created_by, updated_at, updated_by, row_hash, audience)
			SELECT t.type, t.type || n, 'commons', 1, sha256(n::text::bytea), 1, 'T' || n, '', true, '', CASE WHEN n % 3 = 0 THEN n END, now() - n * interval '1 s', 'ada', now() - n * interval '1 s', 'ada', sha256(n::text::bytea), 'scope'
			FROM generate_series(1, 20000) n, (VALUES ('gene'), ('paper')) t (type)
			RETURNING type, id, content_hash
		), versions AS (
			INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note, provenance, created_at, created_by, row_hash)
			SELECT type, id, 1, 'commons', content_hash, 1, 'T', '', '{"symbol":"' || id || '"}', '', '{}', now(), 'ada', content_hash FROM made
		)
		INSERT INTO facet (type, id, path, n, scope, kind, num, text) SELECT type, id, '/symbol', 0, 'commons', 's', NULL, id FROM made`
	const between = `
		INSERT INTO link (id, from_type, from_id, predicate, to_type, to_id, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash)
		SELECT 'k' || id, type, id, 'about', 'paper', 'paper' || n % 100, 'paper:paper' || n % 100, 'commons', '[]', 'null', now() - n * interval '1 s', 'ada', content_hash
		FROM (SELECT *, row_number() OVER () AS n FROM artifact WHERE type = 'gene') a`
	const votes = `
		INSERT INTO signal (id, type, artifact, scope, kind, dimension, voter, voter_kind, value, weight, reason, metadata, created_at, created_by, row_hash, aggregate)
		SELECT 's' || id, type, id, 'commons', 'vote', '', 'ada', 'human', 1, 1, '', 'null', created_at, 'ada', content_hash, '{}' FROM artifact WHERE type = 'gene'`
	for _, sql := range []string{many, between, votes, "ANALYZE"} {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// planOf returns what PostgreSQL does for a query of lists and searches.
func (h *Hub) planOf(t *testing.T, text string, args []any) (plan string) {
	t.Helper()
	if scopes, ok := args[0].([]string); !ok || len(scopes) == 0 {
		t.Fatal("the caller sees nothing")
	}
	err := pgx.BeginFunc(t.Context(), h.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), planListQuery); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), "EXPLAIN "+text, args...)
		if err != nil {
			return err
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		plan = strings.Join(lines, "\n")
		return err
	})
	if err != nil {
		t.Fatal(err, text)
	}
	for _, table := range []string{"artifact", "artifact_revision", "facet", "link", "signal", "signal_aggregate", "search_document", "artifact_vector"} {
		if strings.Contains(plan, fmt.Sprintf("Seq Scan on %s ", table)) {
			t.Errorf("it looks at %s whole:\n%s\n%s", table, plan, text)
		}
	}
	return plan
}

// TestListPlans checks that PostgreSQL finds what a declared pointer is asked for,
// and its order, by an index, and looks at no table whole.
func TestListPlans(t *testing.T) {
	h := filledHub(t)
	for _, c := range []struct{ name, filter, sort, uses string }{
		{"links, newest first", `{"field":"type","op":"eq","value":"kg_edge"}`, ``, "link_by_age"},
		{"links from", `{"and":[{"field":"type","op":"eq","value":"kg_edge"},{"field":"/content/from","op":"eq","value":"gene:gene7"}]}`, ``, "link_triple"},
		{"links to some", `{"and":[{"field":"type","op":"eq","value":"kg_edge"},{"field":"/content/to","op":"in","value":["paper:paper7","paper:none"]}]}`, ``, "link_to"},
		{"signals, oldest first", `{"field":"type","op":"eq","value":"signal"}`, `["created_at"]`, "signal_by_age"},
		{"signals on", `{"and":[{"field":"type","op":"eq","value":"signal"},{"field":"/content/ref","op":"in","value":["gene:gene7","gene:gene8"]}]}`, ``, "signal_latest"},
		{"one of, by title", `{"field":"/content/symbol","op":"in","value":["gene7","gene8"]}`, `["title"]`, "facet_text"},
		{"sort", ``, `["/content/symbol"]`, "facet_text"},
		{"sort, the other way", ``, `["-/content/symbol"]`, "facet_text"},
		{"newest first", ``, ``, "artifact_by_"},
		{"by title", ``, `["title"]`, "artifact_by_type_title"},
		{"by title, from the end", ``, `["-title"]`, "artifact_by_type_title"},
		{"changed last", ``, `["-updated_at"]`, "_update"},
		{"changed last, then by title", ``, `["-updated_at","title"]`, "_update"},
		{"changed first of all types", `{"field":"type","op":"ne","value":"x"}`, `["updated_at"]`, "artifact_by_update"},
		{"best first", ``, `["-quality_score"]`, "artifact_by_type_quality"},
		{"worst first", ``, `["quality_score"]`, "artifact_by_type_quality"},
	} {
		in := &verb.ListRequest{Filter: []byte(c.filter), Sort: []byte(c.sort), Limit: 20}
		if !strings.Contains(c.filter, `"type"`) {
			in.Type = "gene"
		}
		l, err := in.Listing(h.schemas.get, h.schemas.types)
		if err != nil {
			t.Fatal(err)
		}
		caller := &verb.Caller{Actor: artifact.Actor{ID: "vic"}, Permissions: []string{verb.Viewer}}
		r := &lister{hub: h, caller: caller, in: in, listing: l, indexed: func(string) bool { return true }}
		of, part := r.statement().Segments(l.Sort, l.Filter), 0
		if of > 2 {
			part = 1 // the texts
		}
		text, args, _, err := r.page(part, of, 20, true)
		if err != nil {
			t.Fatal(err)
		}
		plan := h.planOf(t, text, args)
		if sorted := strings.Contains(plan, "artifact_by_"); sorted && strings.Count(plan, "Sort Key") > 1+strings.Count(plan, "Presorted Key") {
			t.Errorf("%s sorts all:\n%s", c.name, plan) // the page is sorted once more, which is nothing
		}
		if !strings.Contains(plan, c.uses) {
			t.Errorf("%s does not use %s:\n%s", c.name, c.uses, plan)
		}
	}
}
