package artifact

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Facet is one value of a content at a pointer that its type's schema declares,
// as the stores index it. The first one of a pointer is the one by which artifacts
// are sorted: the least number, else the least text, a truth value being the text
// of its name; neither when there is none.
type Facet struct {
	Path string
	N    int // 0 for the first of a pointer
	Kind FacetKind
	Num  *float64
	Text *string
}

// Equal reports whether two facets are the same.
func (f Facet) Equal(g Facet) bool {
	return f.Path == g.Path && f.N == g.N && f.Kind == g.Kind && compareFacets(f, g) == 0
}

// FacetKeyOf returns what tells apart how facets are made: at which pointers, and of
// which form of the content, named by the schema version that began it.
func FacetKeyOf(form int, paths []string) string {
	return strconv.Itoa(form) + " " + strings.Join(paths, " ")
}

// A FacetKind says what a facet stands for.
type FacetKind byte

// The kinds of facet.
const (
	FacetText   FacetKind = 's'
	FacetNumber FacetKind = 'n'
	FacetBool   FacetKind = 'b' // its text is true or false
	FacetNull   FacetKind = 'z'
	FacetOther  FacetKind = 'e' // there is something that is no value to compare
	// FacetKey is what artifacts are sorted by whose values are not indexed, and
	// FacetElsewhere says that these are: the content is to be asked.
	FacetKey       FacetKind = 'k'
	FacetElsewhere FacetKind = 'x'
)

// Bounds of what is indexed at one pointer of a content.
const (
	MaxFacetValues = 64  // different ones
	MaxFacetText   = 250 // characters; by those longer texts are sorted
	maxFacetPath   = 400 // bytes
)

// IndexablePath reports whether values at a pointer are indexed when a schema
// declares it.
func IndexablePath(path string) bool { return path != "" && len(path) <= maxFacetPath }

// FacetPaths returns the pointers at which a type's contents are indexed, in order.
func (s *Schema) FacetPaths() (paths []string) {
	if s.Search == nil || s.Visibility == VisibilityParticipants {
		return nil
	}
	for _, path := range s.Search.Facets {
		if _, err := ParsePointer(path); err == nil && IndexablePath(path) && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// FacetsOf returns the facets of a canonical content at pointers.
func FacetsOf(content []byte, paths []string) (facets []Facet) {
	if len(paths) == 0 {
		return nil
	}
	t, err := newTree(content)
	if err != nil {
		return nil // it is no content
	}
	for _, path := range paths {
		tokens, err := ParsePointer(path)
		if err != nil {
			continue
		}
		if v := t.root().at(tokens); v.present() {
			facets = append(facets, facetsAt(path, v)...)
		}
	}
	return facets
}

// at returns the value that tokens of a pointer lead to, absent when there is none.
func (v value) at(tokens []string) value {
	for _, token := range tokens {
		c := v.items()
		next := value{}
		switch v.kind() {
		case '{':
			for !c.done() {
				key := value{c.t, c.i}
				c.i++
				if member := c.element(); key.text() == token {
					next = member
					break
				}
			}
		case '[':
			n, err := strconv.ParseUint(token, 10, 31)
			if err != nil || strconv.FormatUint(n, 10) != token {
				return value{}
			}
			for ; n > 0 && !c.done(); n-- {
				c.element()
			}
			if !c.done() {
				next = c.element()
			}
		}
		if v = next; !v.present() {
			return v
		}
	}
	return v
}

func facetsAt(path string, v value) []Facet {
	var all []Facet
	elsewhere := false
	add := func(v value) {
		f := Facet{Path: path}
		switch v.kind() {
		case '"':
			text := v.text()
			if utf8.RuneCountInString(text) > MaxFacetText {
				text, elsewhere = string([]rune(text)[:MaxFacetText]), true
			}
			f.Kind, f.Text = FacetText, &text
		case 't', 'f':
			text := string(v.raw())
			f.Kind, f.Text = FacetBool, &text
		case 'n':
			f.Kind = FacetNull
		case '{', '[':
			return
		default:
			n, err := strconv.ParseFloat(string(v.raw()), 64)
			if err != nil || math.IsInf(n, 0) {
				return
			}
			f.Kind, f.Num = FacetNumber, &n
		}
		all = append(all, f)
	}
	if v.kind() == '[' {
		for c := v.items(); !c.done(); {
			add(c.element())
		}
	} else {
		add(v)
	}
	slices.SortFunc(all, compareFacets)
	all = slices.CompactFunc(all, func(x, y Facet) bool { return compareFacets(x, y) == 0 })
	switch {
	case len(all) == 0:
		return []Facet{{Path: path, Kind: FacetOther}}
	case elsewhere || len(all) > MaxFacetValues:
		all[0].Kind = FacetKey
		return append(all[:1:1], Facet{Path: path, N: 1, Kind: FacetElsewhere})
	}
	for i := range all {
		all[i].N = i
	}
	return all
}

// compareFacets puts numbers first, then texts, then nulls.
func compareFacets(x, y Facet) int {
	rank := func(f Facet) int {
		switch {
		case f.Num != nil:
			return 0
		case f.Text != nil:
			return 1
		}
		return 2
	}
	c := cmp.Compare(rank(x), rank(y))
	switch {
	case c != 0:
		return c
	case x.Num != nil:
		return cmp.Compare(*x.Num, *y.Num)
	case x.Text != nil:
		return cmp.Or(strings.Compare(*x.Text, *y.Text), cmp.Compare(y.Kind, x.Kind))
	}
	return 0
}

// QuoteJSON returns a text as a canonical JSON string.
func QuoteJSON(s string) string {
	var b bytes.Buffer
	writeString(&b, s)
	return b.String()
}
