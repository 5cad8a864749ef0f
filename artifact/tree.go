package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// maxTreeDepth keeps the recursion over a tree within any stack.
const maxTreeDepth = 10_000

// A tree is canonical JSON with an index of its values, so that a value is found
// without decoding. Values are equal when their bytes are.
type tree struct {
	raw   []byte
	spans []span // in the order of the text; an object holds keys and values in turn
}

// A span is where one value, or one key, stands in the text.
type span struct {
	start, end int32
	next       int32 // the first span that is not within this one
}

// newTree indexes raw, which it brings into canonical form first if need be.
func newTree(raw []byte) (*tree, error) {
	if t, ok := indexTree(raw); ok {
		return t, nil
	}
	canonical, err := jcs.Transform(raw)
	if err != nil {
		return nil, fmt.Errorf("put JSON into canonical form: %w", err)
	}
	t, ok := indexTree(canonical)
	if !ok {
		return nil, errors.New("the JSON has no canonical form")
	}
	return t, nil
}

// indexTree returns false when raw is not in canonical form.
func indexTree(raw []byte) (*tree, bool) {
	if len(raw) > 1<<30 || !utf8.Valid(raw) {
		return nil, false
	}
	x := indexer{raw: raw, spans: make([]span, 0, 16+len(raw)/16)}
	if !x.value(0) || x.pos != len(raw) {
		return nil, false
	}
	return &tree{raw: raw, spans: x.spans}, true
}

// root returns the whole of a tree.
func (t *tree) root() value { return value{t: t} }

// A value is one value of a tree. The zero value stands for one that is absent.
type value struct {
	t *tree
	i int32
}

func (v value) present() bool { return v.t != nil }

// kind returns the first byte of the value's text, 0 when it is absent.
func (v value) kind() byte {
	if v.t == nil {
		return 0
	}
	return v.t.raw[v.t.spans[v.i].start]
}

func (v value) raw() []byte {
	if v.t == nil {
		return nil
	}
	s := v.t.spans[v.i]
	return v.t.raw[s.start:s.end]
}

func (v value) equal(w value) bool {
	return v.present() == w.present() && bytes.Equal(v.raw(), w.raw())
}

// text returns the string that the value, a string or a key, stands for.
func (v value) text() string { return unquote(v.raw()) }

// items returns a cursor at the first element or key that the value holds.
func (v value) items() cursor {
	if k := v.kind(); k != '{' && k != '[' {
		return cursor{}
	}
	return cursor{t: v.t, i: v.i + 1, end: v.t.spans[v.i].next}
}

// A cursor stands at an element of an array or at a member of an object.
type cursor struct {
	t      *tree
	i, end int32
}

func (c *cursor) done() bool { return c.i >= c.end }

// element returns the element at the cursor and moves on.
func (c *cursor) element() value {
	v := value{c.t, c.i}
	c.i = c.t.spans[c.i].next
	return v
}

// key returns the key at the cursor in its raw form, nil at the end.
func (c *cursor) key() []byte {
	if c.done() {
		return nil
	}
	return value{c.t, c.i}.raw()
}

// take returns the value at the cursor and moves on if its key is this one; else
// it returns the absent value.
func (c *cursor) take(key []byte) value {
	if k := c.key(); k == nil || !bytes.Equal(k, key) {
		return value{}
	}
	c.i++
	return c.element()
}

// unquote returns what a canonical JSON string stands for.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	s, err := strconv.Unquote(string(raw)) // Go knows all the escapes that the canonical form has
	if err != nil {
		return string(inner)
	}
	return s
}

// compareKeys orders raw keys as RFC 8785 does: by UTF-16 code units.
func compareKeys(a, b []byte) int {
	if bytes.IndexByte(a, '\\') >= 0 || bytes.IndexByte(b, '\\') >= 0 {
		return compareUTF16(unquote(a), unquote(b))
	}
	return compareUTF16(a[1:len(a)-1], b[1:len(b)-1])
}

// compareUTF16 orders UTF-8 texts by their UTF-16 code units. That is the order
// of the bytes, but that a character beyond U+FFFF (from 0xF0) is written with
// surrogates, which precede U+E000 to U+FFFF (0xEE and 0xEF).
func compareUTF16[S []byte | string](a, b S) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
		if x < y {
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}

// An indexer walks raw once. Its methods return false where raw is not canonical.
type indexer struct {
	raw   []byte
	pos   int
	spans []span
}

func (x *indexer) next() byte {
	if x.pos < len(x.raw) {
		return x.raw[x.pos]
	}
	return 0
}

func (x *indexer) value(depth int) bool {
	i := len(x.spans)
	x.spans = append(x.spans, span{start: int32(x.pos)}) //nolint:gosec // at most 1<<30
	var ok bool
	switch x.next() {
	case '{':
		ok = depth < maxTreeDepth && x.object(depth+1)
	case '[':
		ok = depth < maxTreeDepth && x.array(depth+1)
	case '"':
		ok = x.str()
	case 't':
		ok = x.word("true")
	case 'f':
		ok = x.word("false")
	case 'n':
		ok = x.word("null")
	default:
		ok = x.number()
	}
	x.spans[i].end, x.spans[i].next = int32(x.pos), int32(len(x.spans)) //nolint:gosec // at most 1<<30
	return ok
}

func (x *indexer) word(w string) bool {
	ok := bytes.HasPrefix(x.raw[x.pos:], []byte(w))
	x.pos += len(w)
	return ok
}

func (x *indexer) object(depth int) bool {
	if x.pos++; x.next() == '}' {
		x.pos++
		return true
	}
	var before []byte
	for {
		start := x.pos
		if x.next() != '"' || !x.str() {
			return false
		}
		key := x.raw[start:x.pos]
		if before != nil && compareKeys(before, key) >= 0 {
			return false
		}
		before = key
		x.spans = append(x.spans, span{int32(start), int32(x.pos), int32(len(x.spans) + 1)}) //nolint:gosec // at most 1<<30
		if x.next() != ':' {
			return false
		}
		x.pos++
		if !x.value(depth) {
			return false
		}
		b := x.next()
		x.pos++
		if b != ',' {
			return b == '}'
		}
	}
}

func (x *indexer) array(depth int) bool {
	if x.pos++; x.next() == ']' {
		x.pos++
		return true
	}
	for {
		if !x.value(depth) {
			return false
		}
		b := x.next()
		x.pos++
		if b != ',' {
			return b == ']'
		}
	}
}

// str walks a string that escapes what must be escaped and nothing else.
func (x *indexer) str() bool {
	for x.pos++; x.pos < len(x.raw); x.pos++ {
		switch b := x.raw[x.pos]; {
		case b == '"':
			x.pos++
			return true
		case b < ' ':
			return false
		case b == '\\':
			x.pos++
			switch c := x.next(); {
			case c == 'u':
				if !bareEscape(x.raw[x.pos:min(x.pos+5, len(x.raw))]) {
					return false
				}
				x.pos += 4
			case c == 0 || strings.IndexByte(`"\btnfr`, c) < 0:
				return false
			}
		}
	}
	return false
}

// bareEscape reports whether u is the u00XX of a control character that has no
// shorter escape.
func bareEscape(u []byte) bool {
	if len(u) != 5 || u[1] != '0' || u[2] != '0' || u[3] != '0' && u[3] != '1' {
		return false
	}
	if strings.IndexByte("0123456789abcdef", u[4]) < 0 {
		return false
	}
	return u[3] == '1' || strings.IndexByte("89acd", u[4]) < 0 // \b \t \n \f \r
}

func (x *indexer) number() bool {
	start := x.pos
	for x.pos < len(x.raw) && strings.IndexByte("+-.0123456789e", x.raw[x.pos]) >= 0 {
		x.pos++
	}
	return canonicalNumber(x.raw[start:x.pos])
}

func canonicalNumber(raw []byte) bool {
	digits := bytes.TrimPrefix(raw, []byte("-"))
	if len(digits) == 0 || len(digits) > 32 {
		return false
	}
	if digits[0] == '0' && len(digits) == 1 {
		return len(raw) == 1
	}
	plain := digits[0] != '0' && len(digits) <= 15 // exact in a double
	for _, b := range digits {
		plain = plain && b >= '0' && b <= '9'
	}
	if plain {
		return true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return false
	}
	s, err := jcs.NumberToJSON(f)
	return err == nil && s == string(raw)
}
