package artifact

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxExactInteger is the largest integer that every reader of JSON keeps exact.
const maxExactInteger = 1<<53 - 1

// CheckJSON reports everything that keeps raw from being exactly one JSON value
// that every store and client reads alike: bad syntax, invalid UTF-8, lone
// surrogates, U+0000, duplicate keys, numbers beyond IEEE double, integers
// beyond ±(2^53-1) and nesting deeper than maxDepth. Paths begin with at.
// A syntax error ends the check, since nothing after it can be trusted.
func CheckJSON(raw []byte, at string, maxDepth int) []Problem {
	c := checker{raw: raw, maxDepth: maxDepth}
	c.space()
	root := place{key: at}
	if c.value(&root, 0) {
		if c.space(); c.pos < len(raw) {
			c.syntax(&root, "nothing may follow the value")
		}
	}
	return c.problems
}

// maxCheckProblems bounds a report: past it a body is noise, not a mistake.
const maxCheckProblems = 100

// A checker walks raw once. Its methods return false when the walk must end.
type checker struct {
	raw      []byte
	pos      int
	maxDepth int
	problems []Problem
}

// A place is where in the value the walk is. It becomes a pointer's text only
// when there is a fault to report.
type place struct {
	parent  *place // nil for the root, whose key is the whole path
	key     string
	index   int // when inArray
	inArray bool
}

func (p *place) String() string {
	switch {
	case p.parent == nil:
		return p.key
	case p.inArray:
		return p.parent.String() + "/" + strconv.Itoa(p.index)
	}
	return p.parent.String() + "/" + EscapePointer(p.key)
}

func (c *checker) report(at *place, constraint, message, value string) {
	p := Problem{Path: at.String(), Constraint: constraint, Message: message}
	if value != "" {
		p.Value = Received(value)
	}
	if n := len(c.problems); n > 0 && constraint == "utf8" && c.problems[n-1].Constraint == "utf8" && c.problems[n-1].Path == p.Path {
		return // a text is told of once, not by the byte
	}
	c.problems = append(c.problems, p)
}

func (c *checker) syntax(at *place, message string) bool {
	c.report(at, "json", "byte "+strconv.Itoa(c.pos)+": "+message, "")
	return false
}

func (c *checker) space() {
	for c.pos < len(c.raw) {
		switch c.raw[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// next returns the byte at the position, or 0 at the end.
func (c *checker) next() byte {
	if c.pos < len(c.raw) {
		return c.raw[c.pos]
	}
	return 0
}

func (c *checker) value(at *place, depth int) bool {
	if len(c.problems) >= maxCheckProblems {
		return false
	}
	switch b := c.next(); {
	case b == '{' || b == '[':
		if depth == c.maxDepth {
			c.report(at, "max_depth", "nesting is at most "+strconv.Itoa(c.maxDepth)+" deep", "")
			return false
		}
		if b == '{' {
			return c.object(at, depth+1)
		}
		return c.array(at, depth+1)
	case b == '"':
		_, ok := c.str(at)
		return ok
	case b == '-' || b >= '0' && b <= '9':
		return c.number(at)
	case c.word("true"), c.word("false"), c.word("null"):
		return true
	case c.pos >= len(c.raw):
		return c.syntax(at, "unexpected end")
	default:
		return c.syntax(at, "no JSON value begins with "+strconv.QuoteToASCII(string(rune(b))))
	}
}

func (c *checker) word(w string) bool {
	if bytes.HasPrefix(c.raw[c.pos:], []byte(w)) {
		c.pos += len(w)
		return true
	}
	return false
}

func (c *checker) object(at *place, depth int) bool {
	c.pos++
	seen := make(map[string]struct{})
	for first := true; ; first = false {
		c.space()
		if c.next() == '}' && first {
			c.pos++
			return true
		}
		if c.next() != '"' {
			return c.syntax(at, "a key is a string")
		}
		key, ok := c.str(at)
		if !ok {
			return false
		}
		member := place{parent: at, key: key}
		if _, dup := seen[key]; dup {
			c.report(&member, "duplicate_key", "a key may stand once in an object", "")
		}
		seen[key] = struct{}{}
		c.space()
		if c.next() != ':' {
			return c.syntax(&member, "a colon follows a key")
		}
		c.pos++
		c.space()
		if !c.value(&member, depth) {
			return false
		}
		c.space()
		switch c.next() {
		case ',':
			c.pos++
		case '}':
			c.pos++
			return true
		default:
			return c.syntax(at, "a comma or } follows a member")
		}
	}
}

func (c *checker) array(at *place, depth int) bool {
	c.pos++
	c.space()
	if c.next() == ']' {
		c.pos++
		return true
	}
	for i := 0; ; i++ {
		c.space()
		element := place{parent: at, index: i, inArray: true}
		if !c.value(&element, depth) {
			return false
		}
		c.space()
		switch c.next() {
		case ',':
			c.pos++
		case ']':
			c.pos++
			return true
		default:
			return c.syntax(at, "a comma or ] follows an element")
		}
	}
}

// str walks a string and returns its value. What cannot be stored is reported
// and the walk goes on.
func (c *checker) str(at *place) (string, bool) {
	c.pos++
	start, plain := c.pos, true
	var buf []byte
	for c.pos < len(c.raw) {
		b := c.raw[c.pos]
		switch {
		case b == '"':
			s := string(c.raw[start:c.pos])
			if !plain {
				s = string(buf)
			}
			c.pos++
			return s, true
		case b < ' ':
			return "", c.syntax(at, "control characters are escaped in strings")
		case b == '\\':
			if plain {
				plain, buf = false, append(buf, c.raw[start:c.pos]...)
			}
			r, ok := c.escape(at)
			if !ok {
				return "", false
			}
			buf = utf8.AppendRune(buf, r)
		case b < utf8.RuneSelf:
			c.pos++
			if !plain {
				buf = append(buf, b)
			}
		default:
			r, n := utf8.DecodeRune(c.raw[c.pos:])
			if r == utf8.RuneError && n == 1 {
				c.report(at, "utf8", "text is valid UTF-8", "")
			}
			if !plain {
				buf = append(buf, c.raw[c.pos:c.pos+n]...)
			}
			c.pos += n
		}
	}
	return "", c.syntax(at, "unexpected end of a string")
}

// escape walks one escape sequence, a surrogate pair being one.
func (c *checker) escape(at *place) (rune, bool) {
	c.pos++
	b := c.next()
	c.pos++
	if i := strings.IndexByte(`"\/bfnrt`, b); b != 0 && i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), true
	}
	if b != 'u' {
		return 0, c.syntax(at, "unknown escape in a string")
	}
	r, ok := c.hex4()
	if !ok {
		return 0, c.syntax(at, `four hex digits follow \u`)
	}
	if r == 0 {
		c.report(at, "no_nul", "text cannot hold U+0000", "")
	}
	if !utf16.IsSurrogate(r) {
		return r, true
	}
	if c.pos+1 < len(c.raw) && c.raw[c.pos] == '\\' && c.raw[c.pos+1] == 'u' {
		back := c.pos
		c.pos += 2
		low, ok := c.hex4()
		if !ok {
			return 0, c.syntax(at, `four hex digits follow \u`)
		}
		if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
			return full, true
		}
		c.pos = back
	}
	c.report(at, "utf8", "a surrogate stands only in a pair", "")
	return utf8.RuneError, true
}

func (c *checker) hex4() (rune, bool) {
	if c.pos+4 > len(c.raw) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(c.raw[c.pos:c.pos+4]), 16, 16)
	if err != nil {
		return 0, false
	}
	c.pos += 4
	return rune(n), true
}

// number walks a number of RFC 8259's grammar.
func (c *checker) number(at *place) bool {
	start := c.pos
	if c.next() == '-' {
		c.pos++
	}
	switch {
	case c.next() == '0':
		c.pos++
	case !c.digits():
		return c.syntax(at, "a digit is missing in a number")
	}
	if c.next() == '.' {
		c.pos++
		if !c.digits() {
			return c.syntax(at, "a digit follows the decimal point")
		}
	}
	if b := c.next(); b == 'e' || b == 'E' {
		c.pos++
		if b := c.next(); b == '+' || b == '-' {
			c.pos++
		}
		if !c.digits() {
			return c.syntax(at, "a digit follows the exponent's sign")
		}
	}
	text := string(c.raw[start:c.pos])
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v == 0 && strings.ContainsAny(mantissa(text), "123456789") { // too large, or so small that nothing is left
		c.report(at, "ieee_double", "a number fits an IEEE 754 double; send larger ones as strings", text)
		return true
	}
	// From 1e21 up the canonical form has an exponent and reads as the
	// measurement it is; below, it is written as an integer, and must be exact.
	if abs := math.Abs(v); abs > maxExactInteger && (abs < 1e21 || !strings.ContainsAny(text, ".eE")) {
		c.report(at, "exact_integer", "an integer is at most 2^53-1 in size; send larger ones as strings", text)
	}
	return true
}

// mantissa returns a number without its exponent.
func mantissa(text string) string {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		return text[:i]
	}
	return text
}

func (c *checker) digits() bool {
	start := c.pos
	for b := c.next(); b >= '0' && b <= '9'; b = c.next() {
		c.pos++
	}
	return c.pos > start
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// EscapePointer escapes one reference token of a JSON pointer (RFC 6901).
func EscapePointer(token string) string {
	if !strings.ContainsAny(token, "~/") {
		return token
	}
	return pointerEscapes.Replace(token)
}
