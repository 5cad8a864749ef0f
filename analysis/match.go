package analysis

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A Highlight is a part of a text with the places in it that match a query.
type Highlight struct {
	Field  string   `json:"field" jsonschema:"JSON pointer into the artifact, such as /title or /content/statement"`
	Text   string   `json:"text" jsonschema:"the text around the first match, as it is stored: it may hold markup"`
	Offset int      `json:"offset" jsonschema:"where text begins in the field, in UTF-16 code units, as JavaScript counts"`
	Ranges [][2]int `json:"ranges" jsonschema:"[start, end) of each match in text, in UTF-16 code units"`
}

// Limits of highlights.
const (
	aroundMatch   = 120 // bytes before the first match
	fragment      = 400 // bytes
	maxRanges     = 50
	maxHighlights = 5
)

// Highlights returns where a query's words stand in some texts, by weight.
func (q *Query) Highlights(fields []Field) []Highlight {
	m := q.matcher()
	out := []Highlight{}
	for i := range fields {
		if found := m.in(fields[i].Text); found != nil && len(out) < maxHighlights {
			out = append(out, cutOut(&fields[i], found))
		}
	}
	return out
}

// A matcher finds phrases by their first term.
type matcher struct {
	exact    map[string][]*phrase
	prefixes []*phrase // of one term
}

func (q *Query) matcher() *matcher {
	m := &matcher{exact: make(map[string][]*phrase)}
	for i := range q.groups {
		for j := range q.groups[i].all {
			q.groups[i].all[j].phrases(func(p *phrase) {
				if p.prefix && len(p.terms) == 1 {
					m.prefixes = append(m.prefixes, p)
				} else {
					m.exact[p.terms[0]] = append(m.exact[p.terms[0]], p)
				}
			})
		}
	}
	return m
}

// in returns the places of matches in a text, in order and apart.
func (m *matcher) in(text string) [][2]int {
	var parts, all []token
	scan(text, false, func(w *word) {
		w.tokens(len(parts), func(t token) {
			all = append(all, t)
			if !t.joined {
				parts = append(parts, t)
			}
		})
	})
	var found [][2]int
	for i := range all {
		t := &all[i]
		end := 0
		for _, p := range m.exact[t.term] {
			if len(p.terms) == 1 {
				end = max(end, t.end)
			} else if !t.joined && p.at(parts[t.position:]) {
				end = max(end, parts[t.position+len(p.terms)-1].end)
			}
		}
		for _, p := range m.prefixes {
			if strings.HasPrefix(t.term, p.terms[0]) {
				end = max(end, t.end)
			}
		}
		if end > 0 {
			found = append(found, [2]int{t.start, end})
		}
	}
	slices.SortFunc(found, func(a, b [2]int) int {
		if a[0] != b[0] {
			return a[0] - b[0]
		}
		return b[1] - a[1]
	})
	merged := found[:0]
	for _, r := range found {
		if n := len(merged); n > 0 && r[0] <= merged[n-1][1] {
			merged[n-1][1] = max(merged[n-1][1], r[1])
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// at reports whether tokens begin with the phrase.
func (p *phrase) at(tokens []token) bool {
	if len(tokens) < len(p.terms) {
		return false
	}
	for i, term := range p.terms {
		if p.prefix && i == len(p.terms)-1 {
			return strings.HasPrefix(tokens[i].term, term)
		}
		if tokens[i].term != term {
			return false
		}
	}
	return true
}

// cutOut returns the part of a field around its first match.
func cutOut(f *Field, found [][2]int) Highlight {
	from := boundary(f.Text, max(0, found[0][0]-aroundMatch))
	to := boundary(f.Text, min(len(f.Text), max(from+fragment, found[0][1])))
	h := Highlight{Field: f.Path, Text: f.Text[from:to], Offset: units(f.Text[:from]), Ranges: [][2]int{}}
	at, passed := from, 0
	for _, r := range found {
		if r[1] > to || len(h.Ranges) == maxRanges {
			break
		}
		start := passed + units(f.Text[at:r[0]])
		passed = start + units(f.Text[r[0]:r[1]])
		at = r[1]
		h.Ranges = append(h.Ranges, [2]int{start, passed})
	}
	return h
}

// boundary returns the beginning of the character at i.
func boundary(s string, i int) int {
	for i < len(s) && i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

// units returns the length of a text in UTF-16 code units.
func units(s string) (n int) {
	for _, r := range s {
		if n++; r > 0xffff {
			n++
		}
	}
	return n
}
