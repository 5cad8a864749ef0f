package query

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// MaxSortKeys is how many keys a sort has at most.
const MaxSortKeys = 4

// A Sort is the order of a list: by its keys, then by type and id, so that it has
// no ties. What has no value comes last, whatever the direction. Values of a
// content are in the order of numbers, then texts, true and false among them; an
// array stands for the least of its values, a text for its first 250 characters.
type Sort struct {
	keys      []sortKey
	canonical []byte
}

// A sortKey is exactly one of a field, a pointer into the content and a sum of
// signals.
type sortKey struct {
	field   *field
	pointer pointer
	signal  *Aggregate
	desc    bool
	at      string // where it stands in the request
}

// sortable are the fields that lists are sorted by.
var sortable = []string{"created_at", "updated_at", "title", "quality_score"}

// ParseSort reads a sort that stands at a path of a request: a list of keys, each
// a name with - before it for descending, or an object {by, order} or {signal,
// order}. Nil, for none, is newest first.
func ParseSort(raw json.RawMessage, at string) (*Sort, []artifact.Problem) {
	if absent(raw) {
		return nil, nil
	}
	p := parser{}
	canonical, ok := p.canonical(raw, at)
	if !ok {
		return nil, p.problems
	}
	var keys []json.RawMessage
	if canonical[0] != '[' || json.Unmarshal(canonical, &keys) != nil {
		p.report(at, "type", `a sort is a list of keys, such as ["-created_at"]`, canonical)
		return nil, p.problems
	}
	switch {
	case len(keys) == 0:
		return nil, nil
	case len(keys) > MaxSortKeys:
		p.report(at, "max_items", fmt.Sprintf("a sort has at most %d keys, not %d", MaxSortKeys, len(keys)), nil)
		return nil, p.problems
	}
	s := &Sort{canonical: canonical, keys: make([]sortKey, len(keys))}
	for i := range keys {
		s.keys[i] = p.sortKey(keys[i], at+"/"+strconv.Itoa(i))
	}
	if p.problems != nil {
		return nil, p.problems
	}
	if len(s.keys) == 1 && s.keys[0].field != nil && s.keys[0].field.name == "created_at" && s.keys[0].desc {
		return nil, nil // as without
	}
	return s, nil
}

func (p *parser) sortKey(raw []byte, at string) (k sortKey) {
	k.at = at
	if raw[0] == '"' {
		var name string
		if json.Unmarshal(raw, &name) == nil {
			name, k.desc = strings.CutPrefix(name, "-")
			p.sortBy(&k, name, raw, at)
		}
		return k
	}
	members := p.object(raw, at, "a key", "by", "order", "signal")
	if members == nil {
		return k
	}
	orders := []string{"asc", "desc"}
	order := p.text(members, "order", at, false)
	if order != "" && !slices.Contains(orders, order) {
		p.unknown(at+"/order", "enum", "an order is asc, the default, or desc", order, orders)
	}
	k.desc = order == "desc"
	_, by := members["by"]
	sums, signal := members["signal"]
	switch {
	case by == signal:
		p.report(at, "one_form", "a key has either by or signal", raw)
	case by:
		if name := p.text(members, "by", at, true); name != "" {
			p.sortBy(&k, name, members["by"], at+"/by")
		}
	default:
		if members = p.object(sums, at+"/signal", "a sum of signals", "kind", "dimension", "agg"); members != nil {
			g := p.aggregate(members, at+"/signal")
			k.signal = &g
		}
	}
	return k
}

func (p *parser) sortBy(k *sortKey, name string, raw []byte, at string) {
	if strings.HasPrefix(name, contentPrefix+"/") {
		var err error
		if k.pointer, err = parsePointer(name); err != nil {
			p.report(at, "json_pointer", err.Error(), raw)
		}
		return
	}
	if !slices.Contains(sortable, name) {
		p.unknown(at, "enum", "lists are sorted by "+strings.Join(sortable, ", ")+", a JSON pointer that begins with "+contentPrefix+"/, or a signal", name, sortable)
		return
	}
	k.field = fieldNamed(name)
}

// Check returns what is wrong with the sort for artifacts of one type.
func (s *Sort) Check(schema *artifact.Schema) (problems []artifact.Problem) {
	if s != nil {
		for i := range s.keys {
			if g := s.keys[i].signal; g != nil {
				problems = append(problems, g.check(schema)...)
			}
		}
	}
	return problems
}

// CheckEdge returns what is wrong with the sort for links or signals.
func (s *Sort) CheckEdge(typ string) (problems []artifact.Problem) {
	e := edgeOf(typ)
	if s != nil && e != nil {
		for i := range s.keys {
			if k := &s.keys[i]; k.signal != nil {
				problems = append(problems, e.checkSignal(k.signal.at)...)
			} else {
				problems = append(problems, e.check(k.field, k.pointer, k.at)...)
			}
		}
	}
	return problems
}

// Canonical returns the sort's canonical JSON, nil for no sort.
func (s *Sort) Canonical() []byte {
	if s == nil {
		return nil
	}
	return s.canonical
}

// Paths returns the JSON pointers into the content that the sort names.
func (s *Sort) Paths() (paths []string) {
	if s == nil {
		return nil
	}
	for i := range s.keys {
		if k := &s.keys[i]; k.field == nil && k.signal == nil {
			paths = append(paths, k.pointer.text)
		}
	}
	return paths
}

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

func (k *sortKey) isContent() bool { return k.field == nil && k.signal == nil }

func (k *sortKey) isQuality() bool { return k.field != nil && k.field.name == "quality_score" }

// Segment returns in which part of a list of several a place is.
func (p Place) Segment(of int) int {
	for i, v := range p.Values {
		if v != nil {
			return i
		}
	}
	return of - 1
}

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
	if by != nil && o.From == "artifact a" {
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
		add(s.sum(*k.signal), number, k.signal.Agg == "mean")
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

// A Place is where a row stands in an order: its values there, each a float64, a
// string or nil, and its ref. Times are milliseconds since 1970.
type Place struct {
	Values []any
	Type   string
	ID     string
}

// After returns the condition that a row comes after a place.
func (o *Order) After(p Place) string {
	var ways, same []string
	bound := ""
	for i, c := range o.columns {
		v := p.Values[i]
		if v == nil {
			same = append(same, c.sql+" IS NULL")
			continue
		}
		arg := o.s.Arg(c.argument(o.s.dialect, v))
		than := " > "
		if c.desc {
			than = " < "
		}
		later := c.sql + than + arg
		if c.nullable {
			later = "(" + later + " OR " + c.sql + " IS NULL)"
		} else if ways == nil {
			bound = c.sql + strings.TrimRight(than, " ") + "= " + arg + " AND " // for an index to begin there
		}
		ways = append(ways, strings.Join(append(slices.Clone(same), later), " AND "))
		same = append(same, c.sql+" = "+arg)
	}
	var later string
	if o.s.Type == "" {
		later = "(a.type, a.id) > (" + o.s.Arg(p.Type) + ", " + o.s.Arg(p.ID) + ")"
	} else {
		later = "a.id > " + o.s.Arg(p.ID)
	}
	ways = append(ways, strings.Join(append(same, later), " AND "))
	return bound + "(" + strings.Join(ways, " OR ") + ")"
}

func (c *orderColumn) argument(d Dialect, v any) any {
	n, isNumber := v.(float64)
	switch {
	case !isNumber || c.kind == number:
		return v
	case d == SQLite:
		return int64(n)
	}
	return time.UnixMilli(int64(n)).UTC()
}

// Fits reports whether a place is one in the order: a cursor is the caller's.
func (o *Order) Fits(p Place) bool {
	if len(p.Values) != len(o.columns) || !artifact.ValidType(p.Type) || !artifact.ValidID(p.ID) {
		return false
	}
	for i, c := range o.columns {
		switch v := p.Values[i].(type) {
		case nil:
			if !c.nullable {
				return false
			}
		case float64:
			if c.kind == text || c.kind == moment && (math.Abs(v) > 1e15 || v != math.Trunc(v)) {
				return false
			}
		case string:
			if c.kind != text || strings.ContainsRune(v, 0) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// Scans returns what the order's columns of a row are read into, and a function
// that returns what was read.
func (o *Order) Scans() (into []any, values func() []any) {
	into = make([]any, len(o.columns))
	for i, c := range o.columns {
		switch {
		case c.kind == text:
			into[i] = new(*string)
		case c.kind == moment && o.s.dialect == Postgres:
			into[i] = new(time.Time)
		default:
			into[i] = new(*float64)
		}
	}
	return into, func() []any {
		out := make([]any, len(into))
		for i, v := range into {
			switch v := v.(type) {
			case **string:
				if *v != nil {
					out[i] = **v
				}
			case *time.Time:
				out[i] = float64(v.UnixMilli())
			case **float64:
				if *v != nil {
					out[i] = **v
				}
			}
		}
		return out
	}
}
