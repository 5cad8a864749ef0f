package analysis

import "strings"

// A syntax is how a store writes queries. Terms are ours, and quoted: no character of
// the query's text gets there otherwise.
type syntax struct {
	and, or, open, shut, follow string
	not                         func(all, none string) string
	term                        func(b *strings.Builder, term string, prefix bool)
}

var tsquery = syntax{
	and: " & ", or: " | ", open: "(", shut: ")", follow: " <-> ",
	not: func(all, none string) string { return "(" + all + ") & !(" + none + ")" },
	term: func(b *strings.Builder, term string, prefix bool) {
		quote(b, term)
		if prefix {
			b.WriteString(":*")
		}
	},
}

var fts5 = syntax{
	and: " AND ", or: " OR ", open: "(", shut: ")", follow: " + ",
	not: func(all, none string) string { return "(" + all + ") NOT (" + none + ")" },
	term: func(b *strings.Builder, term string, prefix bool) {
		b.WriteByte('"')
		b.WriteString(term)
		b.WriteByte('"')
		if prefix {
			b.WriteString(" *")
		}
	},
}

// TSQuery returns the query as the text of a PostgreSQL tsquery.
func (q *Query) TSQuery() string {
	s := q.write(&tsquery)
	if q.key != "" {
		s = "(" + s + ") | '" + q.key + "'"
	}
	return s
}

// TSKey returns the tsquery of what has the query's text for a name; where the text
// is none, of nothing.
func (q *Query) TSKey() string {
	if q.key == "" {
		return "'" + keyMark + "'"
	}
	return "'" + q.key + "'"
}

// Name returns the argument of MATCH for what has the query's text for a name; where
// the text is none, for nothing.
func (q *Query) Name() string {
	if q.key == "" {
		return `"` + keyMark + `"`
	}
	return `"` + q.key + `"`
}

// Match returns the query as the argument of FTS5's MATCH.
func (q *Query) Match() string {
	s := q.write(&fts5)
	if q.key != "" {
		s = "(" + s + `) OR "` + q.key + `"`
	}
	return s
}

// TSExcluded returns the tsquery of what the query excludes in each of its
// alternatives; "" when it excludes nothing.
func (q *Query) TSExcluded() string { return q.excluded(&tsquery) }

// MatchExcluded returns the same as the argument of FTS5's MATCH.
func (q *Query) MatchExcluded() string { return q.excluded(&fts5) }

func (q *Query) excluded(x *syntax) string {
	groups := make([]string, len(q.groups))
	for i := range q.groups {
		if q.groups[i].none == nil {
			return ""
		}
		groups[i] = list(x, q.groups[i].none, x.or)
	}
	return enclose(x, groups, x.and)
}

func (q *Query) write(x *syntax) string {
	groups := make([]string, len(q.groups))
	for i := range q.groups {
		g := &q.groups[i]
		groups[i] = list(x, g.all, x.and)
		if g.none != nil {
			groups[i] = x.not(groups[i], list(x, g.none, x.or))
		}
	}
	return enclose(x, groups, x.or)
}

func list(x *syntax, exprs []expr, between string) string {
	parts := make([]string, len(exprs))
	for i := range exprs {
		parts[i] = exprs[i].write(x)
	}
	return enclose(x, parts, between)
}

func (e *expr) write(x *syntax) string {
	var parts []string
	if e.all != nil {
		parts = append(parts, list(x, e.all, x.and))
	}
	for i := range e.any {
		var b strings.Builder
		p := &e.any[i]
		for j, term := range p.terms {
			if j > 0 {
				b.WriteString(x.follow)
			}
			x.term(&b, term, p.prefix && j == len(p.terms)-1)
		}
		parts = append(parts, b.String())
	}
	return enclose(x, parts, x.or)
}

func enclose(x *syntax, parts []string, between string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return x.open + strings.Join(parts, x.shut+between+x.open) + x.shut
}
