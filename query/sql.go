package query

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Dialect is the SQL of a store.
type Dialect int

// The dialects.
const (
	Postgres Dialect = iota
	SQLite
)

// A Statement is a query as it is put together: its arguments, and what conditions
// may count on. In its text the artifact is a, and the version that is current r.
type Statement struct {
	// Type is that of all artifacts that are looked at; "" for several.
	Type string
	// Indexed reports whether the facets of Type at a pointer are kept, as
	// [artifact.FacetsOf] makes them. Nil: none are.
	Indexed func(path string) bool
	// Replacing returns the types of whose signals of a kind each voter's last counts
	// alone. Nil: there are none.
	Replacing func(kind string) []string
	// Walks has the statement read what it is of in the order that is asked for and
	// look up the facets of each, where a filter lets so much pass that this is less
	// than to find and sort all of it. See [Statement.Probes].
	Walks bool
	// Table is where a is read from: of links and signals, what [TableOf] returns.
	Table string

	dialect Dialect
	args    []any
	scopes  string
	typ     string
}

// New returns a statement for a caller who may see some scopes. These are its first
// argument, an array or, for SQLite, a JSON text; others that are given follow.
func New(d Dialect, scopes []string, more ...any) *Statement {
	s := &Statement{dialect: d}
	s.scopes = s.list(scopes)
	s.args = append(s.args, more...)
	return s
}

// Args returns the arguments, in the order of their numbers.
func (s *Statement) Args() []any { return s.args }

// Arg adds an argument and returns what stands for it.
func (s *Statement) Arg(v any) string {
	s.args = append(s.args, v)
	n := strconv.Itoa(len(s.args))
	if s.dialect == SQLite {
		return "?" + n
	}
	switch v.(type) {
	case string:
		return "$" + n + "::text"
	case float64:
		return "$" + n + "::float8"
	case int, int64:
		return "$" + n + "::bigint"
	case time.Time:
		return "$" + n + "::timestamptz"
	case []string:
		return "$" + n + "::text[]"
	case []float64:
		return "$" + n + "::float8[]"
	case []time.Time:
		return "$" + n + "::timestamptz[]"
	}
	return "$" + n
}

// Visible returns the condition that a scope is one that the caller may see.
func (s *Statement) Visible(scope string) string { return scope + s.scopes }

// ReadsContent reports whether a part of the statement needs the version r.
func ReadsContent(sql string) bool { return strings.Contains(sql, "r.content") }

// list returns the condition that what stands before it is one of some texts.
func (s *Statement) list(texts []string) string {
	if s.dialect == Postgres {
		return " = ANY (" + s.Arg(append([]string{}, texts...)) + ")"
	}
	return " IN (SELECT value FROM json_each(" + s.json(append([]string{}, texts...)) + "))"
}

// json adds a list as an argument of SQLite, which has no arrays.
func (s *Statement) json(v any) string {
	raw, err := json.Marshal(v)
	if err != nil { // texts and numbers
		raw = []byte("[]")
	}
	return s.Arg(string(raw))
}

// From returns the table of a.
func (s *Statement) From() string {
	if s.Table == "" {
		return "artifact a"
	}
	return s.Table
}

// theType returns what stands for the one type.
func (s *Statement) theType() string {
	if s.typ == "" {
		s.typ = s.Arg(s.Type)
	}
	return s.typ
}

// Drives reports whether an index finds what a filter lets pass, so that not all needs
// to be looked at: that of facets, or of refs.
func (s *Statement) Drives(f *Filter) bool { return f != nil && s.drives(&f.root) }

func (s *Statement) drives(n *node) bool {
	if n.and != nil {
		return slices.ContainsFunc(n.and, func(n node) bool { return s.drives(&n) })
	}
	c := n.field
	switch {
	case c == nil:
		return false
	case c.field != nil:
		return (c.op == Eq || c.op == In) && (c.field.name == "ref" || c.field.name == "id" && s.Type != "")
	case s.edge() != nil:
		return (c.op == Eq || c.op == In) && EdgeIndexed(s.Type, c.pointer.text)
	case s.Walks || !c.pointer.indexed(s):
		return false
	}
	_, denied := c.op.denied()
	return !denied && c.op != Exists
}

// Where returns the filter as a condition, which is true or false and never null.
func (s *Statement) Where(f *Filter) string {
	if f == nil {
		return "TRUE"
	}
	return s.node(&f.root)
}

func (s *Statement) node(n *node) string {
	switch {
	case n.and != nil:
		return s.junction(n.and, " AND ")
	case n.or != nil:
		return s.junction(n.or, " OR ")
	case n.not != nil:
		return "NOT " + s.node(n.not)
	case n.link != nil:
		return s.link(n.link)
	case n.signal != nil:
		return s.signal(n.signal)
	}
	c := n.field
	op, denied := c.op.denied()
	var sql string
	switch {
	case op == Exists:
		denied = !c.exists
		sql = s.present(c)
	case c.field == nil:
		sql = s.content(c.pointer, op, c.values)
	case c.field.kind == ref:
		sql = s.refs("a.", op, c.values)
	default:
		sql = s.compare(s.column(c.field), c.field.kind, op, c.values)
		if c.field.optional {
			sql = "(" + s.present(c) + " AND " + sql + ")"
		}
	}
	if denied {
		return "NOT " + sql
	}
	return sql
}

func (s *Statement) junction(parts []node, by string) string {
	texts := make([]string, len(parts))
	for i := range parts {
		texts[i] = s.node(&parts[i])
	}
	return "(" + strings.Join(texts, by) + ")"
}

// column returns a field of the artifact. PostgreSQL compares bytewise in the
// collation "C", which not all columns have.
func (s *Statement) column(f *field) string {
	column := "a." + f.name
	switch {
	case s.dialect == Postgres && f.kind == text:
		column += ` COLLATE "C"`
	case s.dialect == Postgres && f.kind == number:
		column += "::float8"
	}
	return "(" + column + ")"
}

func (s *Statement) present(c *fieldCondition) string {
	switch {
	case c.field == nil:
		return s.leads(c.pointer)
	case c.field.kind == number:
		return "(a." + c.field.name + " IS NOT NULL)"
	}
	return "(a." + c.field.name + " <> '')"
}

// refs compares a ref, whose type and id are in columns that begin alike.
func (s *Statement) refs(of string, op Op, values []value) string {
	if op == Eq || len(values) == 1 {
		r := values[0].ref
		return "(" + of + "type = " + s.Arg(r.Type) + " AND " + of + "id = " + s.Arg(r.ID) + ")"
	}
	types, ids := make([]string, len(values)), make([]string, len(values))
	pairs := make([][2]string, len(values))
	for i, v := range values {
		types[i], ids[i], pairs[i] = v.ref.Type, v.ref.ID, [2]string{v.ref.Type, v.ref.ID}
	}
	if s.dialect == Postgres {
		return "((" + of + "type, " + of + "id) IN (SELECT k.type, k.id FROM unnest(" + s.Arg(types) + ", " + s.Arg(ids) + ") AS k (type, id)))"
	}
	return "((" + of + "type, " + of + "id) IN (SELECT json_extract(k.value, '$[0]'), json_extract(k.value, '$[1]') FROM json_each(" + s.json(pairs) + ") AS k))"
}

var comparisons = map[Op]string{Eq: " = ", Lt: " < ", Lte: " <= ", Gt: " > ", Gte: " >= "}

// compare returns a condition on an expression whose value is of one kind.
func (s *Statement) compare(x string, of kind, op Op, values []value) string {
	switch op { //nolint:exhaustive // what is denied has gone, and exists is asked elsewhere
	case In:
		return "(" + x + s.in(of, values) + ")"
	case Contains:
		part := s.Arg(values[0].text)
		if s.dialect == Postgres {
			return "(strpos(" + x + ", " + part + ") > 0)"
		}
		return "(instr(" + x + ", " + part + ") > 0)"
	case StartsWith:
		return s.startsWith(x, values[0].text)
	}
	if of == boolean {
		return "(" + x + " = " + strings.ToUpper(values[0].text) + ")"
	}
	return "(" + x + comparisons[op] + s.Arg(s.argument(values[0])) + ")"
}

// startsWith is a range, for an index to serve it.
func (s *Statement) startsWith(x, prefix string) string {
	sql := "(" + x + " >= " + s.Arg(prefix)
	if after, ok := successor(prefix); ok {
		sql += " AND " + x + " < " + s.Arg(after)
	}
	return sql + ")"
}

// successor returns the least text that is greater than all that begin with
// prefix, and false when none is.
func successor(prefix string) (string, bool) {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		switch runes[i] {
		case utf8.MaxRune:
			continue
		case 0xD7FF: // surrogates are no characters
			runes[i] = 0xE000
		default:
			runes[i]++
		}
		return string(runes[:i+1]), true
	}
	return "", false
}

// argument returns a value as the store holds it.
func (s *Statement) argument(v value) any {
	switch v.kind {
	case number:
		return v.num
	case moment:
		if s.dialect == SQLite {
			return v.at.UnixMilli()
		}
		return v.at
	case text, boolean, null, ref:
	}
	return v.text
}

// in returns the condition that what stands before it is one of the values of one
// kind.
func (s *Statement) in(of kind, values []value) string {
	texts, numbers, times := []string{}, []float64{}, []time.Time{}
	millis := []int64{}
	for _, v := range values {
		texts, numbers, times = append(texts, v.text), append(numbers, v.num), append(times, v.at)
		millis = append(millis, v.at.UnixMilli())
	}
	if s.dialect == Postgres {
		switch of {
		case number:
			return " = ANY (" + s.Arg(numbers) + ")"
		case moment:
			return " = ANY (" + s.Arg(times) + ")"
		case boolean:
			return "::text = ANY (" + s.Arg(texts) + ")"
		case text, null, ref:
		}
		return " = ANY (" + s.Arg(texts) + ")"
	}
	list := s.json(texts)
	switch of {
	case number:
		s.args[len(s.args)-1] = mustJSON(numbers)
	case moment:
		s.args[len(s.args)-1] = mustJSON(millis)
	case boolean:
		return " IN (SELECT value = 'true' FROM json_each(" + list + "))"
	case text, null, ref:
	}
	return " IN (SELECT value FROM json_each(" + list + "))"
}

// mustJSON encodes a list of numbers.
func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil { // JSON numbers are finite
		return "[]"
	}
	return string(raw)
}

// other are the columns of a link at its other end.
func (c *linkCondition) ends() (own, other string) {
	if c.in {
		return "to", "from"
	}
	return "from", "to"
}

// link counts the links of an artifact that the caller may see, with both ends.
func (s *Statement) link(c *linkCondition) string {
	own, other := c.ends()
	var sql strings.Builder
	sql.WriteString("SELECT 1 FROM link l WHERE l." + own + "_type = a.type AND l." + own + "_id = a.id")
	if c.predicate != "" {
		sql.WriteString(" AND l.predicate = " + s.Arg(c.predicate))
	}
	if c.to != nil {
		sql.WriteString(" AND l." + other + "_type = " + s.Arg(c.to.Type) + " AND l." + other + "_id = " + s.Arg(c.to.ID))
	}
	if len(c.types) > 0 {
		sql.WriteString(" AND l." + other + "_type" + s.list(c.types))
	}
	sql.WriteString(" AND " + s.SeenLink("l", other))
	counted := func(limit int) string {
		return "(SELECT count(*) FROM (" + sql.String() + " LIMIT " + strconv.Itoa(limit) + ") AS k)"
	}
	switch {
	case c.most < 0 && c.least == 0:
		return "TRUE"
	case c.most < 0 && c.least == 1:
		return "EXISTS (" + sql.String() + ")"
	case c.most == 0:
		return "NOT EXISTS (" + sql.String() + ")"
	case c.most < 0:
		return "(" + counted(c.least) + " >= " + strconv.Itoa(c.least) + ")"
	}
	return "(" + counted(c.most+1) + " BETWEEN " + strconv.Itoa(c.least) + " AND " + strconv.Itoa(c.most) + ")"
}

// SeenLink returns the condition that the caller may see a link, whose row has an
// alias, and what stands at one end of it, from or to: an artifact, or a link or
// signal, which is in a scope of its own.
func (s *Statement) SeenLink(alias, end string) string {
	typ, id := alias+"."+end+"_type", alias+"."+end+"_id"
	everyone := ""
	if s.dialect == Postgres {
		everyone = " AND e.audience = 'scope'"
	}
	return "(" + s.Visible(alias+".scope") +
		" AND (EXISTS (SELECT 1 FROM artifact e WHERE e.type = " + typ + " AND e.id = " + id + " AND " + s.Visible("e.scope") + everyone + ")" +
		" OR " + typ + " = 'kg_edge' AND EXISTS (SELECT 1 FROM link e WHERE e.id = " + id + " AND " + s.Visible("e.scope") + ")" +
		" OR " + typ + " = 'signal' AND EXISTS (SELECT 1 FROM signal e WHERE e.id = " + id + " AND " + s.Visible("e.scope") + ")))"
}

// signal compares a number that is kept of an artifact's signals. They are in its
// own scope: whoever sees it may see all of them.
func (s *Statement) signal(c *signalCondition) string {
	x := s.sum(c.Aggregate)
	if c.op == Exists {
		if c.exists {
			return "(" + x + " IS NOT NULL)"
		}
		return "(" + x + " IS NULL)"
	}
	op, denied := c.op.denied()
	sql := "coalesce(" + s.compare(x, number, op, c.values) + ", FALSE)"
	if denied {
		return "NOT " + sql
	}
	return sql
}

// double makes a number of what is kept exactly.
func (s *Statement) double(x string) string {
	if s.dialect == Postgres {
		return x + "::float8"
	}
	return "CAST(" + x + " AS REAL)"
}

// sum returns the number. Both stores divide doubles.
func (s *Statement) sum(g Aggregate) string {
	if g.extreme() {
		return s.extreme(g)
	}
	double := s.double
	column, otherwise := map[string]string{"count": "g.n", "voters": "g.voters", "sum": "g.sum"}[g.Agg], "0"
	if column != "" {
		column = double(column)
	} else {
		column, otherwise = "CASE WHEN g.n > 0 THEN "+double("g.sum")+" / "+double("g.n")+" END", "NULL"
	}
	if s.dialect == Postgres {
		otherwise += "::float8"
	}
	return "coalesce((SELECT " + column + " FROM signal_aggregate g WHERE g.type = a.type AND g.artifact = a.id AND g.kind = " + s.Arg(g.Kind) +
		" AND g.dimension = " + s.Arg(g.Dimension) + "), " + otherwise + ")"
}

// extreme returns the least or the greatest of the signals that count.
func (s *Statement) extreme(g Aggregate) string {
	sql := "(SELECT " + g.Agg + "(" + s.double("x.value") + ") FROM signal x WHERE x.type = a.type AND x.artifact = a.id AND x.kind = " + s.Arg(g.Kind) + " AND x.dimension = " + s.Arg(g.Dimension) + " AND " + s.Visible("x.scope")
	const last = "NOT EXISTS (SELECT 1 FROM signal y WHERE y.type = x.type AND y.artifact = x.artifact AND y.kind = x.kind AND y.dimension = x.dimension AND y.voter = x.voter AND y.id > x.id)"
	var types []string
	if s.Replacing != nil {
		types = s.Replacing(g.Kind)
	}
	switch {
	case s.Type == "" && len(types) > 0:
		sql += " AND (NOT x.type" + s.list(types) + " OR " + last + ")"
	case slices.Contains(types, s.Type):
		sql += " AND " + last
	}
	return sql + ")"
}

// group returns the values of each kind.
func group(values []value) map[kind][]value {
	of := make(map[kind][]value)
	for _, v := range values {
		of[v.kind] = append(of[v.kind], v)
	}
	return of
}

// kinds are those of values in a content, in the order of their conditions.
var kinds = []kind{text, number, boolean, null}
