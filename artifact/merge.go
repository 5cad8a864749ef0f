package artifact

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// A Version is what an update of an artifact may change.
type Version struct {
	Content []byte // canonical JSON
	State   string // empty: the type has no lifecycle
	Title   string
}

// Document returns the canonical {"content":…,"state":…,"title":…} that patches
// and conflicting paths speak of. An empty state is null.
func (v Version) Document() []byte {
	var b bytes.Buffer
	b.Grow(len(v.Content) + len(v.Title) + len(v.State) + 64)
	b.WriteString(`{"content":`)
	b.Write(v.Content)
	b.WriteString(`,"state":`)
	writeState(&b, v.State)
	b.WriteString(`,"title":`)
	writeString(&b, v.Title)
	b.WriteByte('}')
	return b.Bytes()
}

func writeState(b *bytes.Buffer, state string) {
	if state == "" {
		b.WriteString("null")
	} else {
		writeString(b, state)
	}
}

// Merged is the outcome of a three-way merge.
type Merged struct {
	Version Version // holds both sides' changes; zero unless the merge is clean
	// Conflicts are the places that both sides changed, each in its own way: JSON
	// pointers into {content, state, title}, sorted, none within another. Sides
	// that conflict in too many places to list conflict in /content.
	Conflicts []string
}

// Clean reports whether both sides' changes could be kept.
func (m *Merged) Clean() bool { return len(m.Conflicts) == 0 }

// Merge merges two edits of base: ours, which the hub has, and theirs, which the
// caller wants. It is clean where the sides change disjoint places or change one
// alike; deleting a value changes all within it, and an array is one value. Two
// exceptions: texts in the fields that a [MergeRule] names merge by lines, and
// arrays to which both sides only append hold ours and then what theirs has
// beyond it. Merged content is canonical but otherwise unchecked. The error is
// for content that is not JSON.
func Merge(base, ours, theirs Version, textFields []string) (Merged, error) {
	b, err := newTree(base.Content)
	if err != nil {
		return Merged{}, fmt.Errorf("content of base: %w", err)
	}
	o, err := newTree(ours.Content)
	if err != nil {
		return Merged{}, fmt.Errorf("content of ours: %w", err)
	}
	t, err := newTree(theirs.Content)
	if err != nil {
		return Merged{}, fmt.Errorf("content of theirs: %w", err)
	}
	m := merger{path: []byte("/content"), texts: make(map[string]bool, len(textFields))}
	for _, name := range textFields {
		if !strings.HasPrefix(name, "/") {
			name = "/" + EscapePointer(name)
		}
		m.texts["/content"+name] = true
	}
	m.out.Grow(max(len(o.raw), len(t.raw)) + 1024)
	m.value(b.root(), o.root(), t.root())
	if m.size == 0 && m.out.Len() > max(MaxContentBytes, len(o.raw), len(t.raw)) {
		m.conflict() // each side fits, both together do not
	}
	if m.size > maxConflictBytes {
		m.conflicts = []string{"/content"}
	}
	out := Merged{Conflicts: m.conflicts}
	field := func(path, b, o, t string) string {
		switch {
		case o == t || b == t:
			return o
		case b == o:
			return t
		}
		out.Conflicts = append(out.Conflicts, path)
		return ""
	}
	state := field("/state", base.State, ours.State, theirs.State)
	title := field("/title", base.Title, ours.Title, theirs.Title)
	if out.Clean() {
		out.Version = Version{Content: m.out.Bytes(), State: state, Title: title}
	}
	slices.Sort(out.Conflicts)
	return out, nil
}

// maxConflictBytes bounds the paths of a merge together. Keys may be long.
const maxConflictBytes = 256 << 10

// A merger writes the merged text as it walks the three values side by side. What
// it writes has no meaning once there is a conflict.
type merger struct {
	texts     map[string]bool // pointers of what merges by lines
	out       bytes.Buffer
	path      []byte // of the value at hand
	conflicts []string
	size      int // bytes of the conflicts
}

func (m *merger) conflict() {
	if m.size += len(m.path); m.size <= maxConflictBytes {
		m.conflicts = append(m.conflicts, string(m.path))
	}
}

// pick returns the value, present or not, that needs no merging.
func pick(b, o, t value) (v value, ok bool) {
	switch {
	case o.equal(t), b.equal(t):
		return o, true
	case b.equal(o):
		return t, true
	}
	return value{}, false
}

func (m *merger) value(b, o, t value) {
	if v, ok := pick(b, o, t); ok {
		m.out.Write(v.raw())
		return
	}
	kind := b.kind()
	switch {
	case o.kind() != kind || t.kind() != kind:
		m.conflict()
	case kind == '{':
		m.object(b, o, t)
	case kind == '[':
		m.array(b, o, t)
	case kind == '"' && m.texts[string(m.path)]:
		merged, ok := mergeLines(b.text(), o.text(), t.text())
		if !ok {
			m.conflict()
			return
		}
		writeString(&m.out, merged)
	default:
		m.conflict()
	}
}

func (m *merger) object(b, o, t value) {
	m.out.WriteByte('{')
	bs, os, ts := b.items(), o.items(), t.items()
	for first := true; ; {
		key := leastKey(leastKey(bs.key(), os.key()), ts.key())
		if key == nil {
			break
		}
		bv, ov, tv := bs.take(key), os.take(key), ts.take(key)
		v, settled := pick(bv, ov, tv)
		if settled && !v.present() {
			continue
		}
		if !first {
			m.out.WriteByte(',')
		}
		first = false
		m.out.Write(key)
		m.out.WriteByte(':')
		if settled {
			m.out.Write(v.raw())
			continue
		}
		length := len(m.path)
		m.path = appendToken(m.path, key)
		m.value(bv, ov, tv)
		m.path = m.path[:length]
	}
	m.out.WriteByte('}')
}

// leastKey returns the key that comes first; nil is none.
func leastKey(a, b []byte) []byte {
	if a == nil || b != nil && !bytes.Equal(a, b) && compareKeys(b, a) < 0 {
		return b
	}
	return a
}

// appendToken adds a raw key to a JSON pointer.
func appendToken(path, key []byte) []byte {
	return append(append(path, '/'), EscapePointer(unquote(key))...)
}

// array merges arrays to which both sides only append. What both append, as
// often as both do, stands once.
func (m *merger) array(b, o, t value) {
	if !appends(b, o) || !appends(b, t) {
		m.conflict()
		return
	}
	os, ts := o.items(), t.items()
	for bs := b.items(); !bs.done(); bs.element() {
		os.element()
		ts.element()
	}
	both := map[string]int{}
	for !os.done() {
		both[string(os.element().raw())]++
	}
	raw := o.raw()
	m.out.Write(raw[:len(raw)-1])
	for !ts.done() {
		raw := ts.element().raw()
		if n := both[string(raw)]; n > 0 {
			both[string(raw)] = n - 1
			continue
		}
		m.out.WriteByte(',')
		m.out.Write(raw)
	}
	m.out.WriteByte(']')
}

// appends reports whether array x is array b with elements added at its end.
func appends(b, x value) bool {
	start, longer := b.raw(), x.raw()
	start = start[:len(start)-1]
	if len(longer) < len(start)+2 || !bytes.HasPrefix(longer, start) {
		return false
	}
	return len(start) == 1 || longer[len(start)] == ','
}
