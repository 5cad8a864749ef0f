package analysis

import (
	"strings"
	"unicode/utf8"
)

// A token is a term at a place of a text.
type token struct {
	term       string
	position   int  // 1, 2, …; a joined form has that of its first part
	start, end int  // bytes of the text
	joined     bool // a form beside the parts
}

// A piece is a part of a word.
type piece struct {
	text       string // folded
	term       string // of the text; "" when it was not made yet
	brief      string // of a Greek letter: the Latin one for it
	start, end int
	before     class // hyphen or slash that divides it from the piece before; other for neither
}

// Limits of the joined form of a word.
const (
	maxJoined      = MaxTerm
	maxJoinedParts = 12
)

// A word is the parts between two spaces or the like.
type word struct {
	pieces     []piece
	start, end int
}

// A scanner splits a text into words.
type scanner struct {
	text   string
	raw    bool // a query: no markup
	word   func(*word)
	at     word
	buf    []byte // of the piece under way
	kind   class  // of the piece under way; other for none
	start  int    // of it
	end    int
	upper  bool // its last letter is a capital
	plain  bool // it is of ASCII alone
	before class
	folded []rune
}

// scan calls f with each word of a text. Tags and link targets of HTML and Markdown
// are no words.
func scan(text string, raw bool, f func(*word)) {
	s := &scanner{text: text, raw: raw, word: f}
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf {
			if c == '<' && !raw {
				if n, inline := tag(text[i:]); n > 0 {
					if !inline {
						s.endWord()
					}
					i += n
					continue
				}
			}
			if c == '&' && !raw {
				if n := entity(text[i:]); n > 0 {
					if r, ok := greekByName[strings.ToLower(text[i+1:i+n-1])]; ok { // &beta;
						s.take(r, greek, i, i+n, false)
					} else {
						s.endWord()
					}
					i += n
					continue
				}
			}
			if c == ']' && !raw {
				s.endWord()
				i += 1 + target(text[i+1:])
				continue
			}
			i = s.ascii(i, c)
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		s.folded = fold(s.folded[:0], text[i:], r)
		for _, r := range s.folded {
			s.take(r, classOf(r), i, i+n, false)
		}
		i += n
	}
	s.endWord()
}

// ascii takes the character at i and returns where the next one is.
func (s *scanner) ascii(i int, c byte) int {
	if c >= 'a' && c <= 'z' && s.kind == letter { // most of any text: a word goes on
		n := i + 1
		for n < len(s.text) && s.text[n] >= 'a' && s.text[n] <= 'z' {
			n++
		}
		s.buf, s.end, s.upper = append(s.buf, s.text[i:n]...), n, false
		return n
	}
	k := asciiClass[c]
	upper := c >= 'A' && c <= 'Z'
	if upper {
		c += 'a' - 'A'
	}
	s.take(rune(c), k, i, i+1, upper)
	return i + 1
}

// take adds a folded character that stands at text[start:end].
func (s *scanner) take(r rune, k class, start, end int, upper bool) {
	switch k { //nolint:exhaustive // the others are of a word
	case silent:
		return
	case hyphen, slash:
		if s.kind == other && s.before == other || !s.wordAt(end) {
			s.endWord()
			return
		}
		s.endPiece()
		s.before = max(s.before, k) // a slash divides more
		return
	case dot:
		if s.kind == digit && s.digitAt(end) {
			s.buf = append(s.buf, '.')
			return
		}
		s.endWord()
		return
	case apostrophe:
		s.endWord()
		if s.possessive(end) {
			s.kind = silent // the s belongs to nothing
		}
		return
	case other:
		s.endWord()
		return
	}
	if s.kind == silent { // the s of a possessive
		s.kind = other
		return
	}
	if s.kind != other && (k != s.kind || k == single || k == letter && upper && !s.upper && nameEnds(s.buf)) {
		s.endPiece()
	}
	if s.kind == other {
		s.kind, s.start, s.plain = k, start, true
	}
	s.plain = s.plain && r < utf8.RuneSelf
	s.buf, s.end, s.upper = utf8.AppendRune(s.buf, r), end, upper
}

// wordAt reports whether a word goes on at i.
func (s *scanner) wordAt(i int) bool {
	r, n := utf8.DecodeRuneInString(s.text[i:])
	if n == 0 {
		return false
	}
	if r < utf8.RuneSelf {
		k := asciiClass[r]
		return k == letter || k == digit
	}
	for _, r := range fold(nil, s.text[i:], r) {
		k := classOf(r)
		return k == letter || k == digit || k == greek || k == single
	}
	return false
}

func (s *scanner) digitAt(i int) bool { return i < len(s.text) && s.text[i] >= '0' && s.text[i] <= '9' }

// possessive reports whether what follows an apostrophe is a lone s.
func (s *scanner) possessive(i int) bool {
	if i >= len(s.text) || s.text[i] != 's' && s.text[i] != 'S' {
		return false
	}
	return !s.wordAt(i + 1)
}

func (s *scanner) endPiece() {
	if s.kind == other || s.kind == silent {
		s.kind = other
		return
	}
	add := func(p piece) {
		p.before, s.before = s.before, other
		s.at.pieces = append(s.at.pieces, p)
	}
	if s.kind == letter && s.plain && len(s.buf) <= MaxTerm && !nameEnds(s.buf) {
		k := known(s.buf)
		add(piece{text: k.word, term: k.term, start: s.start, end: s.end})
		s.buf, s.kind = s.buf[:0], other
		return
	}
	text := string(s.buf)
	switch s.kind {
	case greek:
		if utf8.RuneCountInString(text) > maxGreekLetters {
			add(piece{text: text, start: s.start, end: s.end}) // a word in Greek
			break
		}
		for _, r := range text {
			add(piece{text: greekNames[r][0], brief: greekNames[r][1], start: s.start, end: s.end})
		}
	case letter:
		name := nameAtEnd(text)
		if name == "" || len(name) == len(text) {
			add(piece{text: text, brief: brief[name], start: s.start, end: s.end})
			break
		}
		middle := s.end - len(name)
		if s.end-s.start != len(text) { // characters were folded: the bytes are not those
			middle = s.start
		}
		add(piece{text: text[:len(text)-len(name)], start: s.start, end: max(middle, s.start)})
		add(piece{text: name, brief: brief[name], start: middle, end: s.end})
	default:
		add(piece{text: text, start: s.start, end: s.end})
	}
	s.buf, s.kind = s.buf[:0], other
}

func (s *scanner) endWord() {
	s.endPiece()
	if n := len(s.at.pieces); n > 0 {
		s.at.start, s.at.end = s.at.pieces[0].start, s.at.pieces[n-1].end
		s.word(&s.at)
		clear(s.at.pieces)
		s.at.pieces = s.at.pieces[:0]
	}
	s.before = other
}

// maxGreekLetters is how many Greek letters in a row are symbols; more are a word.
const maxGreekLetters = 3

// brief has the names that words end with when a Greek letter is written out, such as
// TNFalpha, with the Latin letters for them; the short ones end too many other words.
var brief = map[string]string{
	"alpha": "a", "beta": "b", "gamma": "g", "delta": "d", "epsilon": "e", "kappa": "k", "lambda": "", "omega": "", "sigma": "", "theta": "",
}

const longestName = len("epsilon")

// nameAtEnd returns the name that a word ends with, or "".
func nameAtEnd(text string) string {
	if len(text) < 4 || text[len(text)-1] != 'a' && text[len(text)-1] != 'n' {
		return ""
	}
	for n := min(len(text), longestName); n >= 4; n-- {
		end := text[len(text)-n:]
		if _, ok := brief[end]; ok {
			return end
		}
	}
	return ""
}

// nameEnds reports whether a word ends with a name, or is one.
func nameEnds(buf []byte) bool {
	if n := len(buf); n < 4 || buf[n-1] != 'a' && buf[n-1] != 'n' {
		return false
	}
	return nameAtEnd(string(buf[max(0, len(buf)-longestName):])) != ""
}

// tokens calls f with the tokens of a word whose first part is at a position.
func (w *word) tokens(position int, f func(token)) {
	for i := range w.pieces {
		p := &w.pieces[i]
		if p.term == "" {
			p.term = termOf(p.text)
		}
		f(token{term: p.term, position: position + i, start: p.start, end: p.end})
	}
	if len(w.pieces) < 2 {
		return
	}
	// The part between hyphens, that between slashes, and the whole.
	part, side := 0, 0
	hyphens, slashes := false, false
	for i := 1; i <= len(w.pieces); i++ {
		before := slash
		if i < len(w.pieces) {
			before = w.pieces[i].before
		}
		if before == other {
			continue
		}
		if i < len(w.pieces) {
			hyphens, slashes = hyphens || before == hyphen, slashes || before == slash
		}
		w.join(part, i, position, f)
		if before == slash {
			if hyphens {
				w.join(side, i, position, f)
			}
			side, hyphens = i, false
		}
		part = i
	}
	if slashes {
		w.join(0, len(w.pieces), position, f)
	}
}

// join calls f with the joined forms of some parts of a word.
func (w *word) join(from, to, position int, f func(token)) {
	if to-from < 2 {
		return
	}
	for _, term := range joinedForms(w.pieces[from:to]) {
		f(token{term: term, position: position + from, start: w.pieces[from].start, end: w.pieces[to-1].end, joined: true})
	}
}

// joinedForms returns the terms of parts that are written as one.
func joinedForms(pieces []piece) []string {
	if len(pieces) > maxJoinedParts {
		return nil
	}
	var long, short strings.Builder
	named := false
	for i := range pieces {
		p := &pieces[i]
		long.WriteString(p.text)
		if p.brief != "" {
			named = true
			short.WriteString(p.brief)
		} else {
			short.WriteString(p.text)
		}
		if long.Len() > maxJoined {
			return nil
		}
	}
	forms := []string{termOf(long.String())}
	if named {
		forms = append(forms, termOf(short.String()))
	}
	return forms
}

// inlineTags do not divide the word that they stand in.
var inlineTags = map[string]bool{"i": true, "b": true, "em": true, "strong": true, "sub": true, "sup": true, "span": true, "u": true, "small": true}

// maxTag is the longest tag that is taken for one.
const maxTag = 512

// tag returns the length of the HTML tag or comment that s begins with, 0 for none.
func tag(s string) (n int, inline bool) {
	if len(s) < 3 {
		return 0, false
	}
	if strings.HasPrefix(s, "<!--") {
		if end := strings.Index(s[:min(len(s), maxTag)], "-->"); end > 0 {
			return end + 3, false
		}
		return 0, false
	}
	i := 1
	if s[i] == '/' {
		i++
	}
	from := i
	for i < len(s) && i-from < 16 && (asciiClass[s[i]&0x7f] == letter || i > from && asciiClass[s[i]&0x7f] == digit) && s[i] < utf8.RuneSelf {
		i++
	}
	if i == from || i == len(s) || s[i] != '>' && s[i] != ' ' && s[i] != '/' && s[i] != '\n' && s[i] != '\t' {
		return 0, false
	}
	end := strings.IndexAny(s[i:min(len(s), maxTag)], "<>")
	if end < 0 || s[i+end] == '<' {
		return 0, false
	}
	return i + end + 1, inlineTags[strings.ToLower(s[from:i])]
}

// entity returns the length of the HTML entity that s begins with, 0 for none.
func entity(s string) int {
	i := 1
	if i < len(s) && s[i] == '#' {
		i++
	}
	from := i
	for i < len(s) && i < 12 && s[i] < utf8.RuneSelf && (asciiClass[s[i]] == letter || asciiClass[s[i]] == digit) {
		i++
	}
	if i == from || i == len(s) || s[i] != ';' {
		return 0
	}
	return i + 1
}

// target returns the length of a Markdown link's target in parentheses, 0 for none.
func target(s string) int {
	if !strings.HasPrefix(s, "(") {
		return 0
	}
	end := strings.IndexAny(s[:min(len(s), maxTag)], ") \n")
	if end < 0 || s[end] != ')' || !strings.ContainsAny(s[:end], "/#:.") {
		return 0
	}
	return end + 1
}
