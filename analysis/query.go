package analysis

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/scidex-ai/substrate/artifact"
)

// Limits of a query.
const (
	MaxQuery      = 4096 // bytes
	maxWords      = 64
	maxTerms      = 512 // with all forms of all words
	leastPrefix   = 2   // characters
	maxCompletion = 64
)

// A Query is what a document must hold.
type Query struct {
	groups  []group // one of them
	key     string  // of the text as a name; "" when it is none
	meaning string  // the text without what has a meaning for searches by words alone
}

// A group is words that stand between two ORs.
type group struct {
	all  []expr // each of them, at least one
	none []expr
}

// An expr is one word or phrase, in the forms that it may have.
type expr struct {
	any []phrase
	all []expr // instead of any: each of them
}

// A phrase is terms that follow one another.
type phrase struct {
	terms  []string
	prefix bool // the last one is how a term begins
}

// Parse reads a query: words, each of which must be there; "quotes" for those that
// follow one another; OR between alternatives; a minus before what must not be there;
// a star after the beginning of a word. Its error is a validation_failed whose
// problems have a path.
func Parse(text, at string) (*Query, error) {
	fault := func(constraint, message string) error {
		return artifact.Invalid(artifact.Problem{Path: at, Constraint: constraint, Message: message, Value: artifact.Received(text)})
	}
	switch {
	case len(text) > MaxQuery:
		return nil, artifact.Invalid(artifact.Problem{Path: at, Constraint: "max_length", Message: fmt.Sprintf("a search text is at most %d bytes, not %d", MaxQuery, len(text))})
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return nil, fault("utf8", "a search text is valid UTF-8 without NUL")
	case strings.Count(text, `"`)%2 == 1:
		return nil, fault("quotes", "a quotation mark is not closed; close it, or leave it out")
	}
	q := &Query{groups: make([]group, 1)}
	plain, words, short := true, 0, ""
	var meant []string
	for _, it := range items(text) {
		if !it.or && !it.minus {
			meant = append(meant, it.text)
		}
		if it.or {
			plain = false
			if last := &q.groups[len(q.groups)-1]; len(last.all)+len(last.none) > 0 {
				q.groups = append(q.groups, group{})
			}
			continue
		}
		plain = plain && !it.minus && !it.quoted && !it.prefix
		if it.prefix && utf8.RuneCountInString(it.text) < leastPrefix {
			short = it.text
			continue
		}
		exprs := it.exprs()
		if words += len(exprs); words > maxWords {
			return nil, fault("max_words", fmt.Sprintf("a search has at most %d words", maxWords))
		}
		g := &q.groups[len(q.groups)-1]
		for _, e := range exprs {
			if it.minus {
				g.none = append(g.none, e)
			} else {
				g.all = append(g.all, e)
			}
		}
	}
	if short != "" {
		return nil, fault("prefix", fmt.Sprintf("at least %d characters stand before a star", leastPrefix))
	}
	if last := q.groups[len(q.groups)-1]; len(last.all)+len(last.none) == 0 && len(q.groups) > 1 {
		q.groups = q.groups[:len(q.groups)-1] // an OR at the end
	}
	for i := range q.groups {
		if g := &q.groups[i]; len(g.all) == 0 {
			if len(g.none) > 0 {
				return nil, fault("positive", "beside what must not be there, say what must be")
			}
			return nil, fault("required", "the search text holds no word")
		}
	}
	terms := 0
	q.phrases(func(p *phrase) { terms += len(p.terms) })
	if terms > maxTerms {
		return nil, fault("max_words", fmt.Sprintf("the words of a search have at most %d parts", maxTerms))
	}
	if q.meaning = strings.Join(meant, " "); plain {
		q.key, q.meaning = keyOf(text), strings.TrimSpace(text)
	}
	return q, nil
}

// Meaning returns the text that a model is asked about: without what must not be
// there, and without what stands for an operator.
func (q *Query) Meaning() string { return q.meaning }

// An item is what stands between spaces, or in quotes.
type item struct {
	text   string
	quoted bool
	minus  bool
	prefix bool
	or     bool
}

// items splits a query. Quotes are balanced.
func items(text string) (out []item) {
	for {
		text = strings.TrimLeftFunc(text, unicode.IsSpace)
		if text == "" {
			return dropStopwords(out)
		}
		var it item
		if len(text) > 1 && text[0] == '-' && text[1] != ' ' {
			it.minus, text = true, text[1:]
		}
		if text[0] == '"' {
			end := 1 + strings.IndexByte(text[1:], '"')
			it.text, it.quoted, text = text[1:end], true, text[end+1:]
			if strings.HasPrefix(text, "*") {
				it.prefix, text = true, text[1:]
			}
		} else {
			end := strings.IndexFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == '"' })
			if end < 0 {
				end = len(text)
			}
			it.text, text = text[:end], text[end:]
			if it.text == "OR" && !it.minus {
				out = append(out, item{or: true})
				continue
			}
			if before, star := strings.CutSuffix(it.text, "*"); star {
				it.text, it.prefix = strings.TrimRight(before, "*"), true
				if it.text == "" { // a star alone
					continue
				}
			}
		}
		out = append(out, it)
	}
}

// stopwords stand in nearly every text. They count only in quotes, in capitals
// (vitamin A) and where nothing else is asked for.
var stopwords = map[string]bool{
	"a": true, "an": true, "and": true, "are": true, "as": true, "at": true, "be": true, "by": true, "for": true, "from": true, "has": true, "have": true,
	"in": true, "is": true, "it": true, "its": true, "of": true, "on": true, "or": true, "that": true, "the": true, "this": true, "to": true, "was": true,
	"were": true, "which": true, "with": true, "what": true, "how": true, "does": true, "do": true,
}

func (it *item) isStopword() bool {
	lower := strings.ToLower(it.text)
	if it.quoted || it.minus || it.prefix || it.or || !stopwords[lower] {
		return false
	}
	return it.text == lower || len(lower) > 1 && it.text[1:] == lower[1:]
}

func dropStopwords(items []item) []item {
	kept := make([]item, 0, len(items))
	words := 0
	for _, it := range items {
		if it.isStopword() {
			continue
		}
		kept = append(kept, it)
		if !it.or {
			words++
		}
	}
	if words == 0 {
		return items
	}
	return kept
}

// exprs returns the words of an item; of a phrase one expression.
func (it *item) exprs() (out []expr) {
	if it.quoted {
		if e := phraseOf(it.text, it.prefix); e.any != nil {
			out = append(out, e)
		}
		return out
	}
	var words []word
	scan(it.text, true, func(w *word) {
		words = append(words, word{pieces: append([]piece(nil), w.pieces...)})
	})
	for i := range words {
		out = append(out, words[i].expr(it.prefix && i == len(words)-1))
	}
	if it.minus && len(out) > 1 { // -PMID:12 excludes what holds both
		out = []expr{{all: out}}
	}
	return out
}

// expr returns a word in all its forms. What a slash divides need not stand together.
func (w *word) expr(prefix bool) expr {
	var sides []expr
	from := 0
	for i := 1; i <= len(w.pieces); i++ {
		if i < len(w.pieces) && w.pieces[i].before != slash {
			continue
		}
		sides = append(sides, expr{any: formsOf(w.pieces[from:i], prefix && i == len(w.pieces))})
		from = i
	}
	if len(sides) == 1 {
		return sides[0]
	}
	e := expr{all: sides}
	for _, term := range joinedForms(w.pieces) {
		e.any = append(e.any, phrase{terms: []string{term}, prefix: prefix})
	}
	return e
}

// formsOf returns the parts of a word as they follow one another, and joined.
func formsOf(pieces []piece, prefix bool) (out []phrase) {
	terms := make([]string, len(pieces))
	for i := range pieces {
		terms[i] = termOf(pieces[i].text)
	}
	out = complete(terms, pieces[len(pieces)-1].text, prefix)
	if len(pieces) > 1 {
		for _, term := range joinedForms(pieces) {
			out = append(out, phrase{terms: []string{term}, prefix: prefix})
		}
	}
	return out
}

// endings are what words end with beside what their stems keep.
var endings = []string{
	"e", "es", "ed", "er", "ing", "ion", "ions", "ive", "ively", "or", "ation", "ational", "al", "ally", "ity", "ivity", "ic", "ical", "ism", "ist",
	"ize", "ized", "izing", "ment", "ness", "s", "y", "ies", "ied", "ly", "able", "ible", "ability", "ance", "ence", "ant", "ent", "ous", "ful",
}

// complete returns terms, and, where the last one is how a word begins, the stems of
// the words that may begin so: a stem can be shorter than that.
func complete(terms []string, last string, prefix bool) []phrase {
	if !prefix {
		return []phrase{{terms: terms}}
	}
	last = cut(last)
	ending := func(term string, prefix bool) phrase {
		p := phrase{terms: append([]string(nil), terms...), prefix: prefix}
		p.terms[len(terms)-1] = term
		return p
	}
	out := []phrase{ending(last, true)}
	seen := make(map[string]bool)
	for _, end := range append([]string{""}, endings...) {
		if term := termOf(last + end); !strings.HasPrefix(term, last) && !seen[term] && len(out) < maxCompletion {
			seen[term] = true
			out = append(out, ending(term, false))
		}
	}
	return out
}

// maxPhrases bounds the forms of one phrase.
const maxPhrases = 16

// phraseOf returns a phrase in all forms of its words.
func phraseOf(text string, prefix bool) (e expr) {
	forms := [][]string{nil}
	var last string
	scan(text, true, func(w *word) {
		parts := make([]string, len(w.pieces))
		for i := range w.pieces {
			parts[i] = termOf(w.pieces[i].text)
		}
		last = w.pieces[len(w.pieces)-1].text
		ways := [][]string{parts}
		if len(w.pieces) > 1 {
			for _, term := range joinedForms(w.pieces) {
				ways = append(ways, []string{term})
			}
		}
		if len(forms)*len(ways) > maxPhrases {
			ways = ways[:1]
		}
		next := make([][]string, 0, len(forms)*len(ways))
		for _, way := range ways {
			for _, f := range forms {
				next = append(next, append(append([]string(nil), f...), way...))
			}
		}
		forms = next
	})
	if forms[0] == nil {
		return e
	}
	for i, f := range forms {
		if i == 0 {
			e.any = append(e.any, complete(f, last, prefix)...)
		} else {
			e.any = append(e.any, phrase{terms: f})
		}
	}
	return e
}

// phrases calls f with all phrases of the query, those that must not be there too.
func (q *Query) phrases(f func(*phrase)) {
	for i := range q.groups {
		for _, exprs := range [][]expr{q.groups[i].all, q.groups[i].none} {
			for j := range exprs {
				exprs[j].phrases(f)
			}
		}
	}
}

func (e *expr) phrases(f func(*phrase)) {
	for i := range e.all {
		e.all[i].phrases(f)
	}
	for i := range e.any {
		f(&e.any[i])
	}
}
