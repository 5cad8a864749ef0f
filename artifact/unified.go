package artifact

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Bounds of a unified diff.
const (
	// MaxUnified is the longest one that is told, in bytes.
	MaxUnified = 2 << 20
	// maxLaidOut is the longest form of a version that is compared by lines, in
	// bytes: deep contents of many small values grow as they are laid out.
	maxLaidOut = 8 << 20
	// unifiedContext is how many lines that are alike stand around a change.
	unifiedContext = 3
	// shortLine is how long an object or array may be that stands on one line.
	shortLine = 80
)

// Unified returns the difference of two versions in the unified format of diff -u,
// which patch(1) reads; it is empty for versions that are alike. The versions are
// laid out as text: title, state, and the content by its members, a string of many
// lines line by line.
func Unified(nameA string, a Version, nameB string, b Version) (string, error) {
	linesA, err := layOut(a)
	if err != nil {
		return "", err
	}
	linesB, err := layOut(b)
	if err != nil {
		return "", err
	}
	n := numbering{}
	la, lb := n.number(linesA), n.number(linesB)
	hunks, ok := diffLines(la.ids, lb.ids, len(n))
	if !ok { // it would not make b of a: all is replaced
		hunks = []hunk{{start: 0, end: len(la.ids), from: 0, to: len(lb.ids)}}
	}
	if len(hunks) == 0 {
		return "", nil
	}
	var out strings.Builder
	out.WriteString("--- " + nameA + "\n+++ " + nameB + "\n")
	for len(hunks) > 0 {
		k := 1 // hunks whose surroundings touch are told together
		for k < len(hunks) && hunks[k].start-hunks[k-1].end <= 2*unifiedContext {
			k++
		}
		writeHunks(&out, la.text, lb.text, hunks[:k])
		if hunks = hunks[k:]; out.Len() > MaxUnified {
			return "", tooMuch("the difference", MaxUnified)
		}
	}
	return out.String(), nil
}

func tooMuch(what string, limit int) *Error {
	return &Error{
		Code: CodeValidationFailed, Reason: ReasonResponseTooLarge, Message: fmt.Sprintf("%s is longer than %d bytes: read both versions with get", what, limit),
		Details: map[string]any{"max_bytes": limit},
	}
}

func writeHunks(out *strings.Builder, a, b []string, hunks []hunk) {
	first, last := hunks[0], hunks[len(hunks)-1]
	before, after := min(unifiedContext, first.start), min(unifiedContext, len(a)-last.end)
	start, from := first.start-before, first.from-before
	fmt.Fprintf(out, "@@ -%s +%s @@\n", spanOf(start, last.end+after), spanOf(from, last.to+after))
	lines := func(mark byte, text []string) {
		for _, line := range text {
			out.WriteByte(mark)
			out.WriteString(line)
			out.WriteByte('\n')
		}
	}
	for _, h := range hunks {
		lines(' ', a[start:h.start])
		lines('-', a[h.start:h.end])
		lines('+', b[h.from:h.to])
		start = h.end
	}
	lines(' ', a[start:last.end+after])
}

// spanOf writes lines [start, end), counted from 1, as diff -u does.
func spanOf(start, end int) string {
	switch n := end - start; n {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return strconv.Itoa(start + 1)
	default:
		return fmt.Sprintf("%d,%d", start+1, n)
	}
}

// layOut writes a version as lines.
func layOut(v Version) ([]string, error) {
	t, err := newTree(v.Content)
	if err != nil {
		return nil, fmt.Errorf("content: %w", err)
	}
	l := layer{}
	l.line(0, "title: "+v.Title)
	if v.State != "" {
		l.line(0, "state: "+v.State)
	}
	l.value(0, "content: ", t.root())
	if l.size > maxLaidOut {
		return nil, tooMuch("a version, laid out by lines,", maxLaidOut)
	}
	return l.lines, nil
}

// A layer lays values out. It stops once it has written too much.
type layer struct {
	lines []string
	size  int
}

func (l *layer) line(depth int, text string) {
	line := strings.Repeat("  ", depth) + text
	l.size += len(line) + 1
	l.lines = append(l.lines, line)
}

// value writes a value after what stands before it on its line.
func (l *layer) value(depth int, head string, v value) {
	if l.size > maxLaidOut {
		return
	}
	raw := v.raw()
	short := len(raw) <= shortLine && depth > 0
	switch kind := v.kind(); {
	case kind == '{' && !short:
		l.line(depth, head+"{")
		for c := v.items(); !c.done(); {
			key := c.key()
			l.value(depth+1, string(key)+": ", c.take(key))
		}
		l.line(depth, "}")
	case kind == '[' && !short:
		l.line(depth, head+"[")
		for c := v.items(); !c.done(); {
			l.value(depth+1, "", c.element())
		}
		l.line(depth, "]")
	case kind == '"' && bytes.Contains(raw, []byte(`\n`)) && isProse(v.text()):
		l.line(depth, head+"|")
		for line := range strings.SplitSeq(v.text(), "\n") {
			l.line(depth+1, line)
		}
	default:
		l.line(depth, head+string(raw))
	}
}

// isProse reports whether a text is of printed lines, which may stand as they are.
func isProse(text string) bool {
	if !strings.Contains(text, "\n") {
		return false
	}
	return strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) < 0
}
