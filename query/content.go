package query

import (
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// content compares what the content holds at a pointer with values: any of the
// one with any of the other.
func (s *Statement) content(p pointer, op Op, values []value) string {
	switch e := s.edge(); {
	case e != nil:
		return s.member(e, p, op, values)
	case p.indexed(s) && s.Walks:
		return s.facetOfEach(p, op, values)
	case p.indexed(s):
		return s.facet(p, op, values)
	}
	return s.stored("r.content", p, op, values)
}

// stored asks a column that holds JSON.
func (s *Statement) stored(column string, p pointer, op Op, values []value) string {
	conditions := []string{}
	of := group(values)
	for _, k := range kinds {
		if len(of[k]) > 0 {
			conditions = append(conditions, s.element(k, op, of[k]))
		}
	}
	if len(conditions) == 0 {
		return "FALSE"
	}
	condition := "(" + strings.Join(conditions, " OR ") + ")"
	found := make([]string, 0, 1)
	for _, elements := range s.elements(column, p) {
		found = append(found, "EXISTS (SELECT 1 FROM "+elements+" AND "+condition+")")
	}
	return "(" + strings.Join(found, " OR ") + ")"
}

// element compares one value e of a content.
func (s *Statement) element(of kind, op Op, values []value) string {
	if s.dialect == Postgres {
		switch of {
		case text:
			return "(jsonb_typeof(e.value) = 'string' AND " + s.compare(`((e.value #>> '{}') COLLATE "C")`, text, op, values) + ")"
		case number:
			return "(CASE WHEN jsonb_typeof(e.value) = 'number' THEN " + s.compare("(e.value #>> '{}')::float8", number, op, values) + " ELSE FALSE END)"
		case boolean:
			return "(jsonb_typeof(e.value) = 'boolean' AND (e.value #>> '{}')" + s.in(text, values) + ")"
		case null, moment, ref:
		}
		return "(jsonb_typeof(e.value) = 'null')"
	}
	switch of {
	case text:
		return "(e.type = 'text' AND " + s.compare("e.value", text, op, values) + ")"
	case number:
		return "(e.type IN ('integer', 'real') AND " + s.compare("e.value", number, op, values) + ")"
	case boolean:
		return "(e.type" + s.in(text, values) + ")"
	case null, moment, ref:
	}
	return "(e.type = 'null')"
}

// elements returns tables e of the values that a pointer stands for, with the
// beginning of a condition: one for PostgreSQL, and for SQLite one for each way to
// read its numbers, as places and as names, of which one at most leads somewhere.
func (s *Statement) elements(column string, p pointer) (all []string) {
	if s.dialect == Postgres {
		return []string{"(SELECT " + column + "::jsonb #> " + s.Arg(p.tokens) + ` AS v OFFSET 0) c
			CROSS JOIN LATERAL jsonb_array_elements(CASE WHEN jsonb_typeof(c.v) = 'array' THEN c.v WHEN c.v IS NOT NULL THEN jsonb_build_array(c.v) END) e (value) WHERE TRUE`}
	}
	for _, path := range p.paths() {
		arg := s.Arg(path)
		all = append(all, "json_each("+column+", "+arg+") e WHERE json_type("+column+", "+arg+") <> 'object'")
	}
	return all
}

// paths returns the pointer as paths of SQLite.
func (p pointer) paths() []string {
	paths := []string{"$"}
	for _, token := range p.tokens {
		name := "." + artifact.QuoteJSON(token)
		var next []string
		for _, path := range paths {
			next = append(next, path+name)
			if isIndex(token) == index {
				next = append(next, path+"["+token+"]")
			}
		}
		paths = next
	}
	return paths
}

// leads asks whether there is anything at a pointer.
func (s *Statement) leads(p pointer) string {
	column := "r.content"
	switch e := s.edge(); {
	case e != nil:
		m, within := e.at(p)
		if m == nil || len(within.tokens) == 0 { // each has all its members
			return map[bool]string{true: "TRUE", false: "FALSE"}[m != nil]
		}
		column, p = "a."+m.name, within
	case p.indexed(s):
		return "EXISTS (SELECT 1 FROM facet f WHERE f.type = a.type AND f.id = a.id AND f.path = " + s.Arg(p.text) + ")"
	}
	if s.dialect == Postgres {
		return "((" + column + "::jsonb #> " + s.Arg(p.tokens) + ") IS NOT NULL)"
	}
	found := []string{}
	for _, path := range p.paths() {
		found = append(found, "json_type("+column+", "+s.Arg(path)+") IS NOT NULL")
	}
	return "(" + strings.Join(found, " OR ") + ")"
}
