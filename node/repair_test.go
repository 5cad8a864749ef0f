package node_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// tamper changes a replica's file behind the node's back.
func tamper(t *testing.T, at *lab, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(at.dir, node.ReplicaFile)+"?_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		res, err := db.ExecContext(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			t.Fatalf("%s changes nothing: %v", s, err)
		}
	}
}

// furnish writes some of each kind.
func (l *labs) furnish(t *testing.T) {
	t.Helper()
	ada := l.as(t, "ada")
	for i := range 4 {
		must(t, verb.Create, ada, statement("", fmt.Sprint("h", i), fmt.Sprint("statement ", i)))
	}
	mine := must(t, verb.Create, ada, statement("lab-a", "h1", "of the lab"))
	must(t, verb.Update, ada, verb.UpdateRequest{Ref: mine.Ref.Current().String(), BaseContentHash: mine.ContentHash, Title: "of the lab, again"})
	for i := range 3 {
		must(t, verb.Link, ada, verb.LinkRequest{From: "hypothesis:h0", LinkSpec: verb.LinkSpec{Predicate: "supports", To: fmt.Sprint("hypothesis:h", i+1)}})
	}
	for _, c := range []verb.Invoker{ada, l.as(t, "bob"), l.as(t, "root")} {
		_, _ = verb.Signal.Call(t.Context(), c, verb.SignalRequest{Ref: "hypothesis:h0", Kind: "vote", Value: "1"})
	}
	must(t, verb.Signal, ada, verb.SignalRequest{Ref: "hypothesis:h0", Kind: "vote", Value: "-1"})
	must(t, verb.Comment, ada, verb.CommentRequest{Ref: "hypothesis:h1", Body: "Why?"})
	l.caughtUp(t)
}

func TestRepair(t *testing.T) {
	l := newLabs(t)
	l.furnish(t)
	l.verify(t, l.a, l.b)
	const extra = `INSERT INTO artifact SELECT type, 'h-extra', scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by,
		quality_score, created_at, created_by, updated_at, updated_by, row_hash FROM artifact WHERE id = 'h1'`
	for name, statements := range map[string][]string{
		"a head":                      {`UPDATE artifact SET title = 'x' WHERE id = 'h1'`},
		"a head with its hash":        {`UPDATE artifact SET title = 'x', row_hash = zeroblob(32) WHERE id = 'h1'`},
		"a hash alone":                {`UPDATE artifact SET row_hash = x'00' WHERE id = 'h1'`},
		"a head's scope":              {`UPDATE artifact SET scope = 'lab-a' WHERE id = 'h1'`},
		"a missing head":              {`DELETE FROM artifact WHERE id = 'h1'`},
		"an extra head":               {extra},
		"a revision":                  {`UPDATE artifact_revision SET note = 'x' WHERE id = 'h1'`},
		"provenance that is no JSON":  {`UPDATE artifact_revision SET provenance = '{' WHERE id = 'h1'`},
		"content":                     {`UPDATE artifact_revision SET content = '{"statement":"x"}' WHERE id = 'h1'`},
		"a missing revision":          {`DELETE FROM artifact_revision WHERE id = 'lab-a/h1' AND revision = 1`},
		"a link":                      {`UPDATE link SET to_ref = 'hypothesis:h2' WHERE to_id = 'h3'`},
		"a missing link":              {`DELETE FROM link WHERE to_id = 'h3'`},
		"a signal":                    {`UPDATE signal SET value = '0' WHERE voter = 'ada' AND value = '1'`},
		"the last signal":             {`DELETE FROM signal WHERE voter = 'ada' AND value = '-1'`},
		"sums of signals":             {`UPDATE signal_aggregate SET n = n + 1`},
		"missing sums":                {`DELETE FROM signal_aggregate`},
		"an event":                    {`UPDATE event SET payload = '{}' WHERE ref LIKE 'hypothesis:h1@%'`},
		"missing events":              {`DELETE FROM event WHERE type = 'hypothesis.created'`},
		"an extra event":              {`INSERT INTO event SELECT seq + 1, type, ref, scope, actor_id, actor_kind, at, payload FROM event WHERE seq + 1 NOT IN (SELECT seq FROM event) LIMIT 1`},
		"an event's type":             {`UPDATE event SET type = 'hypothesis.updated' WHERE ref LIKE 'hypothesis:h2@%' AND type = 'hypothesis.created'`},
		"the digest":                  {`UPDATE digest SET acc = zeroblob(32) WHERE kind = 'artifact'`},
		"the digest gone":             {`DELETE FROM digest`},
		"rows and the digest of them": {`DELETE FROM link WHERE to_id = 'h3'`, `UPDATE digest SET n = n + 7 WHERE kind = 'link'`},
		"everything at once": {
			`DELETE FROM artifact WHERE id = 'h1'`, `DELETE FROM event`, `DELETE FROM digest`, `DELETE FROM signal`, `DELETE FROM link`,
			`UPDATE artifact_revision SET content = '{}', scope = 'commons'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := l.dump(t)
			tamper(t, l.a, statements...)
			report, err := l.a.Verify(t.Context())
			if err != nil || report.Equal() {
				t.Fatalf("Verify finds nothing: %v", err)
			}
			report, err = l.a.Repair(t.Context())
			if err != nil || !report.Equal() || report.Left > 0 {
				t.Fatalf("Repair: %v, %v, %+v", err, report.Differences, report.Rows)
			}
			if !strings.Contains(name, "digest") && report.Mended == 0 {
				t.Error("Repair tells of no row that it mended")
			}
			l.verify(t, l.a)
			if after := l.dump(t); after != before {
				t.Errorf("the tables differ after the repair:\n%s\n%s", before, after)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		report, err := l.a.Repair(t.Context())
		if err != nil || !report.Equal() || report.Asked != 1 || len(report.Rows) > 0 {
			t.Errorf("Repair of an equal replica = %+v, %v", report, err)
		}
	})
}

// dump returns all that a repair could change, as text.
func (l *labs) dump(t *testing.T) string {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(l.a.dir, node.ReplicaFile)+"?mode=ro&_busy_timeout=5000")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var b strings.Builder
	for _, table := range []string{"artifact", "artifact_revision", "link", "signal", "signal_aggregate", "event", "digest"} {
		dumpTable(t, db, table, &b)
	}
	return b.String()
}

func dumpTable(t *testing.T, db *sql.DB, table string, b *strings.Builder) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+table+" ORDER BY 1, 2, 3, 4")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		b.WriteString(table)
		for _, v := range values {
			fmt.Fprintf(b, " %v", *v.(*any))
		}
		b.WriteByte('\n')
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
