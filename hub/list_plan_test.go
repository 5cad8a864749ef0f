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

// TestListPlans checks that PostgreSQL finds what a declared pointer is asked for,
// and its order, by an index, and looks at no table whole.
func TestListPlans(t *testing.T) {
	db := pgtest.New(t, func(ctx context.Context, db *pgxpool.Pool) error { _, err := Init(ctx, db); return err })
	h, err := Open(t.Context(), Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	const many = `
		WITH made AS (
			INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by, created_at, created_by, updated_at, updated_by, row_hash, audience)
			SELECT t.type, t.type || n, 'commons', 1, sha256(n::text::bytea), 1, 'T' || n, '', true, '', now() - n * interval '1 s', 'ada', now(), 'ada', sha256(n::text::bytea), 'scope'
			FROM generate_series(1, 20000) n, (VALUES ('gene'), ('paper')) t (type)
			RETURNING type, id, content_hash
		), versions AS (
			INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, content, note, provenance, created_at, created_by, row_hash)
			SELECT type, id, 1, 'commons', content_hash, 1, 'T', '', '{"symbol":"' || id || '"}', '', '{}', now(), 'ada', content_hash FROM made
		)
		INSERT INTO facet (type, id, path, n, scope, kind, num, text) SELECT type, id, '/symbol', 0, 'commons', 's', NULL, id FROM made`
	for _, sql := range []string{many, "ANALYZE"} {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, filter, sort, uses string }{
		{"equal text", `{"field":"/content/symbol","op":"eq","value":"gene7"}`, ``, "facet_text"},
		{"one of", `{"field":"/content/symbol","op":"in","value":["gene7","gene8"]}`, `["title"]`, "facet_text"},
		{"prefix", `{"field":"/content/symbol","op":"starts_with","value":"gene77"}`, ``, "facet_text"},
		{"range", `{"field":"/content/symbol","op":"gt","value":"gene9998"}`, ``, "facet_text"},
		{"sort", ``, `["/content/symbol"]`, "facet_text"},
		{"sort, the other way", ``, `["-/content/symbol"]`, "facet_text"},
		{"newest first", ``, ``, "artifact_by_"},
	} {
		in := &verb.ListRequest{Type: "gene", Filter: []byte(c.filter), Sort: []byte(c.sort), Limit: 20}
		l, err := in.Listing(h.schemas.get, h.schemas.types)
		if err != nil {
			t.Fatal(err)
		}
		caller := &verb.Caller{Actor: artifact.Actor{ID: "vic"}, Permissions: []string{verb.Viewer}}
		r := &lister{hub: h, caller: caller, in: in, listing: l, indexed: func(string) bool { return true }}
		of, part := r.statement().Segments(l.Sort, l.Filter), 0
		if of > 1 {
			part = 1 // the texts
		}
		text, args, _, err := r.page(part, of, 20, true)
		if err != nil {
			t.Fatal(err)
		}
		if scopes, ok := args[0].([]string); !ok || len(scopes) == 0 {
			t.Fatal("the caller sees nothing")
		}
		plan := ""
		err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
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
		for _, table := range []string{"artifact", "artifact_revision", "facet"} {
			if strings.Contains(plan, fmt.Sprintf("Seq Scan on %s ", table)) {
				t.Errorf("%s looks at %s whole:\n%s", c.name, table, plan)
			}
		}
		if !strings.Contains(plan, c.uses) {
			t.Errorf("%s does not use %s:\n%s", c.name, c.uses, plan)
		}
	}
}
