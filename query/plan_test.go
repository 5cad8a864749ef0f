package query

import (
	"database/sql"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestPlans checks that SQLite finds what a declared pointer is asked for, and its
// order, by the index of facets, and looks at no table whole.
func TestPlans(t *testing.T) {
	w := maker{rand.New(rand.NewPCG(5, 5))}.world(400)
	db := open(t, w)
	for _, c := range []struct{ name, filter, sort, uses string }{
		{"equal text", `{"field":"/content/a","op":"eq","value":"ab"}`, ``, "facet_text"},
		{"one of", `{"field":"/content/a","op":"in","value":["ab",1]}`, `["title"]`, "facet_num"},
		{"range of numbers", `{"field":"/content/a","op":"gte","value":10}`, `["-created_at"]`, "facet_num"},
		{"prefix", `{"and":[{"field":"/content/a","op":"starts_with","value":"a"},{"field":"state","op":"eq","value":"open"}]}`, ``, "facet_text"},
		{"part of a text", `{"field":"/content/a","op":"contains","value":"b"}`, ``, "facet_text"},
		{"sort", ``, `["/content/a"]`, "facet_"},
		{"sort, the other way", ``, `["-/content/a"]`, "facet_"},
		{"newest first", `{"field":"state","op":"eq","value":"open"}`, ``, "artifact_by_type_age"},
		{"links", `{"link":{"predicate":"cites","direction":"in"}}`, ``, "link_to"},
	} {
		f, faults := Parse([]byte(c.filter), "")
		by, problems := ParseSort([]byte(c.sort), "")
		if faults != nil || problems != nil {
			t.Fatal(faults, problems)
		}
		of := statement(w, "gene").Segments(by, f)
		for part := range of {
			s := statement(w, "gene")
			o := s.Order(by, f, part, of)
			text := "SELECT a.type, a.id" + o.As() + from(s, o.From, f) + " AND " + o.Where + " ORDER BY " + o.By() + " LIMIT " + s.Arg(5)
			plan := ""
			read(t, db, "EXPLAIN QUERY PLAN "+text, s.Args(), func(rows *sql.Rows) error {
				var id, parent, unused int
				var detail string
				err := rows.Scan(&id, &parent, &unused, &detail)
				plan += detail + "\n"
				return err
			})
			for line := range strings.Lines(plan) {
				if strings.HasPrefix(line, "SEARCH f ") && strings.HasSuffix(line, "(type=?)\n") {
					t.Errorf("%s, part %d, looks at all facets of the type:\n%s", c.name, part, plan)
				}
				if strings.HasPrefix(line, "SCAN ") && !strings.Contains(line, "json_each") && !strings.Contains(line, "VIRTUAL") {
					t.Errorf("%s, part %d, looks at a table whole:\n%s\n%s", c.name, part, plan, text)
				}
			}
			if part < facetSegments-1 && !strings.Contains(plan, c.uses) {
				t.Errorf("%s, part %d, does not use %s:\n%s", c.name, part, c.uses, plan)
			}
			if of > 1 && strings.Contains(plan, "TEMP B-TREE FOR ORDER BY") {
				t.Errorf("%s, part %d, sorts:\n%s", c.name, part, plan)
			}
		}
	}
}
