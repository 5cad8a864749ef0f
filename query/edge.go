package query

import (
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// An edgeType is a type of what is written once and listed as artifacts are, though it is
// none: links and signals. What they have for a content stands in columns.
type edgeType struct {
	typ, plural string
	table       string
	columns     []string // beside id, scope and by whom it was made when
	members     []member
}

// A member is one of an edge's content.
type member struct {
	name string
	kind kind   // text or number; 0 for JSON
	sql  string // of a; "" for the column of that name
	// end is the beginning of the columns type and id of a ref, which an index has.
	end string
}

var edges = []edgeType{
	{
		typ: "kg_edge", plural: "links", table: "link",
		columns: []string{"from_type", "from_id", "predicate", "to_type", "to_id", "to_ref", "evidence_refs", "evidence"},
		members: []member{
			{name: "evidence"},
			{name: "evidence_refs"},
			{name: "from", kind: text, sql: "a.from_type || ':' || a.from_id", end: "a.from_"},
			{name: "predicate", kind: text},
			{name: "to", kind: text, sql: "a.to_ref", end: "a.to_"},
		},
	},
	{
		typ: "signal", plural: "signals", table: "signal",
		columns: []string{"type AS on_type", "artifact AS on_id", "kind", "dimension", "voter", "voter_kind", "value", "weight", "reason", "metadata"},
		members: []member{
			{name: "dimension", kind: text},
			{name: "kind", kind: text},
			{name: "metadata"},
			{name: "reason", kind: text},
			{name: "ref", kind: text, sql: "a.on_type || ':' || a.on_id", end: "a.on_"},
			{name: "value", kind: number},
			{name: "voter", kind: text},
			{name: "voter_kind", kind: text},
			{name: "weight", kind: number},
		},
	},
}

// edgeFields are the fields that edges have.
var edgeFields = []string{"type", "id", "ref", "scope", "created_at", "created_by", "updated_at", "updated_by"}

func edgeOf(typ string) *edgeType {
	if i := slices.IndexFunc(edges, func(e edgeType) bool { return e.typ == typ }); i >= 0 {
		return &edges[i]
	}
	return nil
}

// IsEdge reports whether what has a type is a link or a signal.
func IsEdge(typ string) bool { return edgeOf(typ) != nil }

// EdgeIndexed reports whether an index finds links or signals by what they hold at a
// pointer.
func EdgeIndexed(typ, path string) bool {
	if e := edgeOf(typ); e != nil {
		m := e.named(strings.TrimPrefix(path, "/"))
		return m != nil && m.end != ""
	}
	return false
}

func (e *edgeType) named(name string) *member {
	if i := slices.IndexFunc(e.members, func(m member) bool { return m.name == name }); i >= 0 {
		return &e.members[i]
	}
	return nil
}

// at returns the member that a pointer leads to or into, and the way within, or nil.
func (e *edgeType) at(p pointer) (m *member, within pointer) {
	within.tokens = p.tokens[1:]
	if m = e.named(p.tokens[0]); m != nil && m.kind != 0 && len(within.tokens) > 0 {
		return nil, within
	}
	return m, within
}

// TableOf returns the links l or signals s that a condition lets pass, as a statement
// of their type has artifacts: its table a.
func TableOf(typ, seen string) string {
	e := edgeOf(typ)
	return "(SELECT '" + e.typ + "' AS type, id, scope, created_at, created_by, created_at AS updated_at, created_by AS updated_by, " +
		strings.Join(e.columns, ", ") + " FROM " + e.table + " " + e.table[:1] + " WHERE " + seen + ") a"
}

// check returns what is wrong with a field or pointer that is asked of edges.
func (e *edgeType) check(f *field, p pointer, at string) []artifact.Problem {
	name, known := contentPrefix+p.text, make([]string, 0, len(edgeFields)+len(e.members))
	known = append(known, edgeFields...)
	for i := range e.members {
		known = append(known, contentPrefix+"/"+e.members[i].name)
	}
	if f != nil {
		name = f.name
		if slices.Contains(edgeFields, name) {
			return nil
		}
	} else if m, _ := e.at(p); m != nil {
		return nil
	}
	return []artifact.Problem{{
		Path: at, Constraint: "unknown_field", Value: artifact.Received(cut(name)), Suggestion: artifact.Suggest(name, known),
		Message: e.plural + " have no " + strconv.Quote(cut(name)) + "; there are " + strings.Join(known, ", "),
	}}
}

func (e *edgeType) checkSignal(at string) []artifact.Problem {
	return []artifact.Problem{{Path: at, Constraint: "signal", Message: "there are no signals on " + e.plural}}
}

// edge returns what is listed, nil for artifacts.
func (s *Statement) edge() *edgeType { return edgeOf(s.Type) }

// value returns the expression of a member that is no JSON.
func (s *Statement) value(m *member) string {
	sql := m.sql
	if sql == "" {
		sql = "a." + m.name
	}
	switch {
	case s.dialect == SQLite && m.kind == number: // kept as an exact text
		return "CAST(" + sql + " AS REAL)"
	case s.dialect == SQLite:
		return sql
	case m.kind == number:
		return sql + "::float8"
	}
	return "((" + sql + `) COLLATE "C")`
}

// member compares what edges hold at a pointer with values.
func (s *Statement) member(e *edgeType, p pointer, op Op, values []value) string {
	m, within := e.at(p)
	switch {
	case m == nil:
		return "FALSE"
	case m.kind == 0:
		return s.stored("a."+m.name, within, op, values)
	}
	of := group(values)[m.kind]
	switch {
	case len(of) == 0:
		return "FALSE"
	case m.end == "" || op != Eq && op != In:
		return s.compare(s.value(m), m.kind, op, of)
	}
	// What is no ref is at no end.
	ends := slices.DeleteFunc(slices.Clone(of), func(v value) bool { _, err := artifact.ParseRef(v.text); return err != nil })
	for i := range ends {
		ends[i].ref, _ = artifact.ParseRef(ends[i].text)
	}
	if len(ends) == 0 {
		return "FALSE"
	}
	return "(" + s.refs(m.end, In, ends) + " AND " + s.compare(s.value(m), text, In, ends) + ")"
}
