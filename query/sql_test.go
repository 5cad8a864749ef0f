package query

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/scidex-ai/substrate/artifact"
)

// open returns a replica's file with a world in it.
func open(t *testing.T, w *world) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", filepath.Join(t.TempDir(), "replica.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	tables, err := os.ReadFile("../node/schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatalf("%.60s: %v", query, err)
		}
	}
	exec(string(tables))
	exec("BEGIN")
	for _, x := range w.things {
		exec(`INSERT INTO artifact (type, id, scope, revision, content_hash, schema_version, title, state, is_latest, superseded_by, quality_score, created_at, created_by, updated_at, updated_by, row_hash)
			VALUES (?, ?, ?, ?, x'', 1, ?, ?, 1, '', ?, ?, ?, ?, ?, x'')`,
			x.typ, x.id, x.scope, x.revision, x.title, x.state, x.quality, x.created.UnixMilli(), x.by, x.updated.UnixMilli(), x.by)
		exec(`INSERT INTO artifact_revision (type, id, revision, scope, content_hash, schema_version, title, state, created_at, created_by, row_hash, note, provenance, content)
			VALUES (?, ?, ?, ?, x'', 1, '', '', 0, '', x'', '', '', ?)`, x.typ, x.id, x.revision, x.scope, string(x.content))
		for _, f := range artifact.FacetsOf(x.content, places) {
			exec(`INSERT INTO facet (type, id, path, n, scope, kind, num, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, x.typ, x.id, f.Path, f.N, x.scope, string(f.Kind), f.Num, f.Text)
		}
		for of, votes := range x.votes {
			for i, v := range votes {
				exec(`INSERT INTO signal (id, type, artifact, scope, kind, dimension, voter, voter_kind, value, weight, reason, metadata, created_at, created_by, row_hash)
					VALUES (?, ?, ?, ?, ?, ?, ?, 'human', ?, '1', '', 'null', 0, ?, x'')`, fmt.Sprint(x.id, of, i), x.typ, x.id, x.scope, of[0], of[1], v.voter, marshal(v.value), v.voter)
			}
		}
		for k, s := range x.signals {
			exec(`INSERT INTO signal_aggregate (type, artifact, kind, dimension, n, voters, sum, sum_sq) VALUES (?, ?, ?, ?, ?, ?, ?, '0')`, x.typ, x.id, k[0], k[1], int(s[0]), int(s[1]), marshal(s[2]))
		}
	}
	for i, e := range w.edges {
		from, _ := artifact.ParseRef(e.from)
		to, _ := artifact.ParseRef(e.to)
		exec(`INSERT INTO link (id, from_type, from_id, predicate, to_type, to_id, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', '', 0, '', x'')`, i, from.Type, from.ID, e.predicate, to.Type, to.ID, e.to, e.scope)
	}
	exec("COMMIT")
	return db
}

// statement returns one for things of a type, or of all types.
func statement(w *world, typ string) *Statement {
	s := New(SQLite, w.scopes)
	s.Type = typ
	s.Replacing = func(kind string) []string {
		if kind == "vote" {
			return []string{"gene"}
		}
		return nil
	}
	if typ != "" {
		s.Indexed = func(string) bool { return true }
	}
	return s
}

func from(s *Statement, tables string, f *Filter) string {
	text := " FROM " + tables + " CROSS JOIN artifact_revision r WHERE r.type = a.type AND r.id = a.id AND r.revision = a.revision AND " +
		s.Visible("a.scope") + " AND " + s.Where(f)
	if s.Type != "" {
		text += " AND a.type = " + s.Arg(s.Type)
	}
	return text
}

// TestFilters compares what made-up filters find with what they say, with facets
// and without.
func TestFilters(t *testing.T) {
	for seed := range uint64(2) {
		m := maker{rand.New(rand.NewPCG(seed, 1))}
		w := m.world(120)
		db := open(t, w)
		some := 0
		for range 300 {
			raw := marshal(m.filter(w, 3))
			f, problems := Parse([]byte(raw), "/filter")
			if problems != nil {
				t.Fatalf("Parse(%s) = %+v", raw, problems)
			}
			for _, typ := range []string{"", "gene"} {
				var want []string
				for _, x := range w.things {
					if slices.Contains(w.scopes, x.scope) && (typ == "" || x.typ == typ) && w.meets(&f.root, x) {
						want = append(want, x.ref())
					}
				}
				slices.Sort(want)
				var got []string
				for _, walks := range []bool{false, true} {
					s := statement(w, typ)
					s.Walks = walks
					text := "SELECT a.type || ':' || a.id" + from(s, "artifact a", f)
					got = refs(t, db, text, s.Args())
					slices.Sort(got)
					if !slices.Equal(got, want) {
						t.Fatalf("%s of %q finds\n%v, want\n%v\n%s\n%v", raw, typ, got, want, text, s.Args())
					}
				}
				if len(got) > 0 && len(got) < 40 {
					some++
				}
			}
		}
		if some < 100 {
			t.Errorf("only %d filters told things apart", some)
		}
	}
}

// TestSorts reads pages in made-up orders.
func TestSorts(t *testing.T) {
	for seed := range uint64(2) {
		m := maker{rand.New(rand.NewPCG(seed, 2))}
		w := m.world(80)
		db := open(t, w)
		for range 30 {
			raw := marshal(m.sort())
			by, problems := ParseSort([]byte(raw), "/sort")
			if problems != nil {
				t.Fatalf("ParseSort(%s) = %+v", raw, problems)
			}
			model := by
			if by == nil {
				model = &Sort{keys: []sortKey{{field: fieldNamed("created_at"), desc: true}}}
			}
			for _, typ := range []string{"", "gene"} {
				var want []string
				for _, x := range slices.SortedFunc(slices.Values(w.things), func(x, y *thing) int { return w.compare(model, x, y) }) {
					if slices.Contains(w.scopes, x.scope) && (typ == "" || x.typ == typ) {
						want = append(want, x.ref())
					}
				}
				got := pages(t, db, w, typ, by, 1+m.IntN(7))
				if !slices.Equal(got, want) {
					t.Fatalf("%s of %q is\n%v, want\n%v", raw, typ, got, want)
				}
			}
		}
	}
}

func pages(t *testing.T, db *sql.DB, w *world, typ string, by *Sort, size int) (all []string) {
	t.Helper()
	var after *Place
	for {
		first := 0
		of := statement(w, typ).Segments(by, nil)
		if after != nil && of > 1 {
			first = after.Segment(of)
		}
		n := 0
		for part := first; part < of && n < size; part++ {
			s := statement(w, typ)
			o := s.Order(by, nil, part, of)
			tables := from(s, o.From, nil) + " AND " + o.Where
			if after != nil && part == first {
				if !o.Fits(*after) {
					t.Fatalf("%+v does not fit", after)
				}
				tables += " AND " + o.After(*after)
			}
			text := "SELECT a.type, a.id" + o.As() + tables + " ORDER BY " + o.By() + " LIMIT " + s.Arg(size-n)
			text = "SELECT q.* FROM (" + text + ") q ORDER BY " + o.Again()
			read(t, db, text, s.Args(), func(rows *sql.Rows) error {
				n++
				p := new(Place)
				into, values := o.Scans()
				err := rows.Scan(append([]any{&p.Type, &p.ID}, into...)...)
				p.Values, after = values(), p
				all = append(all, p.Type+":"+p.ID)
				return err
			})
		}
		if n < size {
			return all
		}
	}
}

func refs(t *testing.T, db *sql.DB, query string, args []any) (all []string) {
	t.Helper()
	read(t, db, query, args, func(rows *sql.Rows) error {
		var ref string
		err := rows.Scan(&ref)
		all = append(all, ref)
		return err
	})
	return all
}

func read(t *testing.T, db *sql.DB, query string, args []any, row func(*sql.Rows) error) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%v\n%s\n%v", err, query, args)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}
