package analysis

import (
	"encoding/base32"
	"hash/fnv"
	"strconv"
	"strings"
)

// A Weight says how much the words of a field count.
type Weight byte

// The weights, as PostgreSQL names them: of titles, of the first text of a type's
// body, of the second, and of all others.
const (
	Title Weight = iota
	First
	Second
	Rest
	weights
)

// A Field is one text of a document.
type Field struct {
	Path   string // JSON pointer into {"title":…,"content":…}
	Weight Weight
	Text   string
}

// A Document is what a store indexes of a text.
type Document struct {
	tokens []weighted
	keys   []string
}

type weighted struct {
	token
	weight Weight
}

// New returns the document of some fields. Whoever searches for one of the names
// exactly finds it first.
func New(fields []Field, names ...string) *Document {
	size := 0
	for i := range fields {
		size += len(fields[i].Text)
	}
	d := &Document{tokens: make([]weighted, 0, min(size/5, 1<<16))}
	position := 1
	for i := range fields {
		f := &fields[i]
		before := len(d.tokens)
		scan(f.Text, false, func(w *word) {
			w.tokens(position, func(t token) { d.tokens = append(d.tokens, weighted{t, f.Weight}) })
			position += len(w.pieces)
		})
		if len(d.tokens) > before {
			position++ // no phrase leads from one text into the next
		}
	}
	seen := make(map[string]bool)
	for _, name := range names {
		if key := keyOf(name); key != "" && !seen[key] {
			seen[key] = true
			d.keys = append(d.keys, key)
		}
	}
	return d
}

// keyMark begins the keys of names; no word does.
const keyMark = "="

// keyOf returns the term by which a name is found as a whole, "" for one without a
// word.
func keyOf(name string) string {
	h := fnv.New128a()
	empty := true
	scan(name, true, func(w *word) {
		for i := range w.pieces {
			empty = false
			_, _ = h.Write([]byte(w.pieces[i].text)) // a hash takes anything
			_, _ = h.Write([]byte{' '})
		}
	})
	if empty {
		return ""
	}
	return keyMark + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:10]))
}

// Limits of PostgreSQL's tsvector. Words beyond them are found, but not where they
// stand: phrases are looked for before.
const (
	maxPosition  = 16_383
	maxPositions = 255     // of one term
	maxVector    = 900_000 // bytes, of 1 MiB
)

// Vector returns the document as the text of a PostgreSQL tsvector.
func (d *Document) Vector() string {
	type entry struct {
		places []byte
		n      int
	}
	entries := make(map[string]*entry, len(d.tokens))
	order := make([]string, 0, len(d.tokens))
	size := 0
	for i := range d.tokens {
		t := &d.tokens[i]
		e := entries[t.term]
		if e == nil {
			if size += len(t.term) + 8; size > maxVector {
				break
			}
			e = new(entry)
			entries[t.term] = e
			order = append(order, t.term)
		}
		if e.n == maxPositions || t.position > maxPosition && e.n > 0 {
			continue
		}
		if size += 2; size > maxVector {
			break
		}
		if e.n > 0 {
			e.places = append(e.places, ',')
		}
		e.n++
		e.places = strconv.AppendInt(e.places, int64(min(t.position, maxPosition)), 10)
		if t.weight != Rest { // D is the default
			e.places = append(e.places, "ABCD"[t.weight])
		}
	}
	var b strings.Builder
	b.Grow(size * 3)
	for _, term := range order {
		quote(&b, term)
		b.WriteByte(':')
		b.Write(entries[term].places)
		b.WriteByte(' ')
	}
	for _, key := range d.keys {
		quote(&b, key)
		b.WriteByte(' ')
	}
	return b.String()
}

// quote writes a term as PostgreSQL reads it. None holds a quote or backslash: those
// end a word.
func quote(b *strings.Builder, term string) {
	b.WriteByte('\'')
	b.WriteString(term)
	b.WriteByte('\'')
}

// Columns are the columns of a node's index, in order: names as a whole, the words by
// their weights, and the joined forms of words in titles and elsewhere, which have no
// place of their own.
var Columns = []string{"name", "title", "first", "second", "rest", "title_joined", "joined"}

// gap stands between two texts in one column; it is no term.
const gap = "_"

// Row returns the document's values of [Columns]: terms between spaces.
func (d *Document) Row() []string {
	var columns [7]strings.Builder
	var last [weights]int
	put := func(b *strings.Builder, term string) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(term)
	}
	for i := range d.tokens {
		t := &d.tokens[i]
		if t.joined {
			put(&columns[5+min(t.weight, 1)], t.term)
			continue
		}
		if last[t.weight] > 0 && t.position > last[t.weight]+1 {
			put(&columns[1+t.weight], gap)
		}
		last[t.weight] = t.position
		put(&columns[1+t.weight], t.term)
	}
	for _, key := range d.keys {
		put(&columns[0], key)
	}
	out := make([]string, len(columns))
	for i := range columns {
		out[i] = columns[i].String()
	}
	return out
}
