package query

import (
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// indexed reports whether facets are kept at a pointer.
func (p pointer) indexed(s *Statement) bool {
	return s.Type != "" && s.Indexed != nil && artifact.IndexablePath(p.text) && s.Indexed(p.text)
}

// UsesFacets reports whether what the statement asks counts on the index of facets.
func (s *Statement) UsesFacets(f *Filter, by *Sort) bool {
	return slices.ContainsFunc(append(f.Paths(), by.Paths()...), func(path string) bool { return pointer{text: path}.indexed(s) })
}

// facet asks the index of facets for the ids of artifacts. Of those whose values
// it does not hold it asks the contents.
func (s *Statement) facet(p pointer, op Op, values []value) string {
	found := s.found(p, op, values)
	if found == "" {
		return "FALSE"
	}
	return "(a.id IN (" + found + "))"
}

// found returns a query of the ids, "" when none are asked for.
func (s *Statement) found(p pointer, op Op, values []value) string {
	byKind := "" // SQLite would walk all facets of the type, which hold all that is asked for
	if s.dialect == SQLite {
		byKind = " INDEXED BY facet_other"
	}
	of := " WHERE f.type = " + s.theType() + " AND f.path = " + s.Arg(p.text) + " AND "
	found := s.facetValues("f", op, values)
	if len(found) == 0 {
		return ""
	}
	for i, condition := range found {
		found[i] = "SELECT f.id FROM facet f" + of + condition
		if strings.HasSuffix(condition, ofNeither("f")) {
			found[i] = "SELECT f.id FROM facet f" + byKind + of + condition
		}
	}
	return strings.Join(append(found, `SELECT h.id FROM facet f`+byKind+`
		JOIN artifact h ON h.type = f.type AND h.id = f.id
		JOIN artifact_revision v ON v.type = h.type AND v.id = h.id AND v.revision = h.revision
		WHERE f.type = `+s.theType()+" AND f.path = "+s.Arg(p.text)+" AND f.kind = '"+string(artifact.FacetElsewhere)+"'"+ofNeither("f")+" AND "+s.stored("v.content", p, op, values)), " UNION ALL ")
}

// facetOfEach looks up the facets of an artifact. Without the sign before their
// values SQLite would find them by these.
func (s *Statement) facetOfEach(p pointer, op Op, values []value) string {
	found := s.facetValues("+f", op, values)
	if len(found) == 0 {
		return "FALSE"
	}
	of := " WHERE f.type = a.type AND f.id = a.id AND f.path = " + s.Arg(p.text) + " AND "
	return "(EXISTS (SELECT 1 FROM facet f" + of + "(" + strings.Join(found, " OR ") + ")) OR EXISTS (SELECT 1 FROM facet f CROSS JOIN artifact_revision v" + of +
		"+f.kind = '" + string(artifact.FacetElsewhere) + "'" + ofNeither("+f") + " AND v.type = a.type AND v.id = a.id AND v.revision = a.revision AND " + s.stored("v.content", p, op, values) + "))"
}

// ofNeither is the condition of the rows that have neither a number nor a text.
func ofNeither(f string) string { return " AND " + f + ".num IS NULL AND " + f + ".text IS NULL" }

// facetValues returns the conditions on the values of a row of facets, one for each
// kind.
func (s *Statement) facetValues(f string, op Op, values []value) (found []string) {
	of := group(values)
	for _, k := range kinds {
		if len(of[k]) == 0 {
			continue
		}
		condition := f + ".kind = '" + string(k) + "'"
		switch k { //nolint:exhaustive // a content holds no others
		case text:
			condition += " AND " + f + ".text IS NOT NULL AND " + s.compare(f+".text", text, op, of[k])
		case number:
			condition += " AND " + f + ".num IS NOT NULL AND " + s.compare(f+".num", number, op, of[k])
		case boolean:
			condition += " AND " + f + ".text IS NOT NULL AND " + f + ".text" + s.in(text, of[k])
		case null:
			condition += ofNeither(f)
		}
		found = append(found, condition)
	}
	return found
}

// Probes returns queries that count, each up to most, what the index of facets finds
// for the conditions by which [Statement.Drives] is true. Where one finds fewer, it is
// best to begin with what it finds. None: that is so at any rate.
func (s *Statement) Probes(f *Filter, most int) []string {
	if f == nil || s.edge() != nil {
		return nil
	}
	parts := []node{f.root}
	if f.root.and != nil {
		parts = f.root.and
	}
	var probes []string
	for i := range parts {
		switch c := parts[i].field; {
		case !s.drives(&parts[i]):
		case c == nil || c.field != nil: // a ref, or what stands deeper
			return nil
		default:
			if found := s.found(c.pointer, c.op, c.values); found != "" {
				probes = append(probes, "SELECT count(*) FROM (SELECT 1 FROM ("+found+") LIMIT "+strconv.Itoa(most)+")")
			}
		}
	}
	return probes
}
