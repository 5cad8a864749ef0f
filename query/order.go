package query

import (
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// An Order is a sort as a statement has it.
type Order struct {
	// From are the statement's tables, the version aside.
	From string
	// Where is a condition that holds for all rows, "TRUE" for none.
	Where string
	// Columns are to be read with each row, in this order, for its place.
	Columns []string
	columns []orderColumn
	found   bool // by an index that is not in the order
	s       *Statement
}

// An orderColumn is an expression that rows are sorted by, of which some are null,
// which are last.
type orderColumn struct {
	sql      string
	kind     kind
	desc     bool
	nullable bool
}

// Segments of a list that is read by an index which has not all of it. The index of
// facets has numbers and texts, and not what has neither; that of qualities has not
// what has none.
const (
	facetSegments   = 3
	qualitySegments = 2
)

// Segments returns in how many parts a list of what a filter lets pass is read, one
// after the other.
func (s *Statement) Segments(by *Sort, f *Filter) int {
	if by == nil || len(by.keys) != 1 || s.Type == "" || s.Drives(f) {
		return 1
	}
	switch k := &by.keys[0]; {
	case k.isQuality():
		return qualitySegments
	case k.isContent() && k.pointer.indexed(s):
		return facetSegments
	}
	return 1
}

// Ordered reports whether an index of a type's artifacts is in the order of a sort, or
// of its first key.
func (s *Statement) Ordered(by *Sort) bool {
	if s.Type == "" || by == nil {
		return s.Type != ""
	}
	k := &by.keys[0]
	if k.isContent() || k.isQuality() {
		return len(by.keys) == 1 && (k.field != nil || k.pointer.indexed(s))
	}
	return k.field != nil
}

func (k *sortKey) isContent() bool { return k.field == nil && k.signal == nil }

func (k *sortKey) isQuality() bool { return k.field != nil && k.field.name == "quality_score" }

// Order adds what a sort of what a filter lets pass needs to a statement, for one part
// of several.
func (s *Statement) Order(by *Sort, f *Filter, segment, of int) *Order {
	o := &Order{s: s, From: s.From(), Where: "TRUE", found: s.Drives(f)}
	keys := []sortKey{{field: fieldNamed("created_at"), desc: true}}
	if by != nil {
		keys = by.keys
	}
	switch {
	case of == 1:
		for i := range keys {
			o.key(&keys[i], "k"+strconv.Itoa(i))
		}
	case keys[0].isQuality():
		o.quality(&keys[0], segment)
	default:
		o.segment(&keys[0], segment)
	}
	for _, c := range o.columns {
		o.Columns = append(o.Columns, c.sql)
	}
	if (by != nil || s.Walks) && o.From == "artifact a" {
		o.From += o.index(&keys[0], segment)
	}
	return o
}

// index names the index that begins with the first key, for SQLite, which would sort
// all where it leaves more than one term of the order open.
func (o *Order) index(k *sortKey, part int) string {
	s := o.s
	if s.dialect != SQLite || o.found || k.field == nil {
		return ""
	}
	name := map[string]string{"created_at": "age", "updated_at": "update", "title": "title", "quality_score": "quality"}[k.field.name]
	switch {
	case s.Type != "" && (name != "quality" || o.Where != "TRUE" && part == 0):
		name = "type_" + name
	case name != "age" && name != "update":
		return ""
	}
	return " INDEXED BY artifact_by_" + name
}

// quality is the order of a part of what has a quality, or of what has none.
func (o *Order) quality(k *sortKey, part int) {
	c := orderColumn{"a.quality_score", number, k.desc, false}
	o.Where = "a.quality_score IS NOT NULL"
	if part > 0 {
		o.Where, c.nullable = "a.quality_score IS NULL", true
		c.sql = o.null("float8")
	}
	o.columns = []orderColumn{c}
}

// null is a column of a part that has no value of it.
func (o *Order) null(typ string) string {
	if o.s.dialect == Postgres {
		return "NULL::" + typ
	}
	return "NULL"
}

// segment is the order of a part that the index of facets is read in.
func (o *Order) segment(k *sortKey, part int) {
	s := o.s
	num, txt := orderColumn{o.null("float8"), number, k.desc, true}, orderColumn{o.null("text"), text, k.desc, true}
	o.Where = "k.type = " + s.theType() + " AND k.path = " + s.Arg(k.pointer.text) + " AND k.n = 0"
	o.From = "facet k CROSS JOIN artifact a" // SQLite reads them in this order
	switch part {
	case 0:
		num.sql, num.nullable = "k.num", false
		o.Where += " AND k.num IS NOT NULL"
	case 1:
		txt.sql, txt.nullable = "k.text", false
		o.Where += " AND k.text IS NOT NULL"
	default:
		o.From = "artifact a"
		o.Where = "a.type = " + s.theType() + " AND NOT EXISTS (SELECT 1 FROM facet k WHERE k.id = a.id AND " + o.Where + " AND (k.num IS NOT NULL OR k.text IS NOT NULL))"
	}
	if part < facetSegments-1 {
		o.Where += " AND a.type = k.type AND a.id = k.id"
	}
	o.columns = []orderColumn{num, txt}
}

func (o *Order) key(k *sortKey, alias string) {
	s, column := o.s, "r.content"
	add := func(sql string, of kind, nullable bool) {
		o.columns = append(o.columns, orderColumn{sql, of, k.desc, nullable})
	}
	switch {
	case k.signal != nil:
		add(s.sum(*k.signal), number, k.signal.optional())
	case k.field != nil && k.field.kind == moment:
		add("a."+k.field.name, moment, false)
	case k.field != nil && k.field.kind == text:
		add(strings.Trim(s.column(k.field), "()"), text, false)
	case k.field != nil:
		add("a."+k.field.name, number, true)
	case k.pointer.indexed(s):
		o.From += " LEFT JOIN facet " + alias + " ON " + alias + ".type = a.type AND " + alias + ".id = a.id AND " + alias + ".path = " + s.Arg(k.pointer.text) + " AND " + alias + ".n = 0"
		add(alias+".num", number, true)
		add(alias+".text", text, true)
	default:
		if e := s.edge(); e != nil {
			m, within := e.at(k.pointer)
			if m.kind != 0 {
				add(s.value(m), m.kind, false)
				return
			}
			column, k = "a."+m.name, &sortKey{pointer: within, desc: k.desc}
		}
		num, txt := s.least(column, k.pointer)
		add(num, number, true)
		add("CASE WHEN "+num+" IS NULL THEN "+txt+" END", text, true)
	}
}

// least returns what an artifact is sorted by that is asked for in its content: the
// least number and the least text.
func (s *Statement) least(column string, p pointer) (num, txt string) {
	const cut = ", 1, " // characters
	most := strconv.Itoa(artifact.MaxFacetText)
	var nums, texts []string
	for _, elements := range s.elements(column, p) {
		if s.dialect == Postgres {
			nums = append(nums, "(SELECT min(CASE WHEN jsonb_typeof(e.value) = 'number' THEN (e.value #>> '{}')::float8 END) FROM "+elements+")")
			texts = append(texts, "(SELECT min(substr(e.value #>> '{}'"+cut+most+`) COLLATE "C") FROM `+elements+" AND jsonb_typeof(e.value) IN ('string', 'boolean'))")
			continue
		}
		nums = append(nums, "(SELECT min(e.value) FROM "+elements+" AND e.type IN ('integer', 'real'))")
		texts = append(texts, "(SELECT min(CASE WHEN e.type = 'text' THEN substr(e.value"+cut+most+") ELSE e.type END) FROM "+elements+" AND e.type IN ('text', 'true', 'false'))")
	}
	if len(nums) == 1 {
		return nums[0], texts[0]
	}
	return "coalesce(" + strings.Join(nums, ", ") + ")", "coalesce(" + strings.Join(texts, ", ") + ")"
}

// By returns what stands behind ORDER BY. No index is used for it where another one
// finds the rows.
func (o *Order) By() string {
	return o.by(func(i int) string {
		if o.found && o.s.dialect == SQLite {
			return "+" + o.columns[i].sql
		}
		return o.columns[i].sql
	}, o.id())
}

// id returns the id of a row as the index that it is read from has it.
func (o *Order) id() string {
	if strings.HasPrefix(o.From, "facet k ") {
		return "k.id"
	}
	if o.s.Type != "" {
		return "a.id"
	}
	return "a.type, a.id"
}

// As returns the columns with names for [Order.Again].
func (o *Order) As() string {
	var sql strings.Builder
	for i, c := range o.columns {
		sql.WriteString(", " + c.sql + " AS c" + strconv.Itoa(i))
	}
	return sql.String()
}

// Again returns what sorts the rows of a page in the same order once more, whose
// columns a table q has from As.
func (o *Order) Again() string {
	return o.by(func(i int) string { return "q.c" + strconv.Itoa(i) }, "q.type, q.id")
}

func (o *Order) by(column func(int) string, id string) string {
	terms := make([]string, 0, len(o.columns)+1)
	for i, c := range o.columns {
		if strings.HasPrefix(c.sql, "NULL") { // nothing to sort by
			continue
		}
		sql := column(i)
		if c.desc {
			sql += " DESC"
		}
		if c.nullable && (o.s.dialect == SQLite || c.desc) {
			sql += " NULLS LAST"
		}
		terms = append(terms, sql)
	}
	return strings.Join(append(terms, id), ", ")
}
