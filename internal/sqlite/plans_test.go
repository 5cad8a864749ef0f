package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "github.com/scidex-ai/substrate/internal/sqlite"
)

// TestPlansStay tells by what the driver allocates: it reads the names and types of
// the columns once for each plan.
func TestPlansStay(t *testing.T) {
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "plans.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), `
		CREATE TABLE head (type TEXT, id TEXT, n INTEGER, PRIMARY KEY (type, id));
		CREATE TABLE version (type TEXT, id TEXT, n INTEGER, a, b, c, d, e, f, g, h, PRIMARY KEY (type, id, n))`); err != nil {
		t.Fatal(err)
	}
	allocated := func(query string) float64 {
		stmt, err := db.PrepareContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer stmt.Close()
		return testing.AllocsPerRun(100, func() {
			rows, err := stmt.QueryContext(t.Context(), "gene", "TP53")
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			if _, err := rows.Columns(); err != nil || rows.Next() || rows.Err() != nil {
				t.Fatal(err, rows.Err())
			}
		})
	}
	one := allocated(`SELECT * FROM version WHERE type = ?1 AND id = ?2`)
	two := allocated(`SELECT v.* FROM head AS h JOIN version AS v ON v.type = h.type AND v.id = h.id AND v.n = h.n WHERE h.type = ?1 AND h.id = ?2`)
	if two > one+2 {
		t.Errorf("a join of the same columns allocates %v, not %v: it is planned anew each time", two, one)
	}
}
