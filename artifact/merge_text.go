package artifact

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

// mergeLines merges two edits of a text by lines. It returns false where the
// sides change the same or neighbouring lines, each in its own way, and where
// repeated lines leave open which of them a side changed.
func mergeLines(base, ours, theirs string) (string, bool) {
	n := numbering{}
	b, o, t := n.lines(base), n.lines(ours), n.lines(theirs)
	left, ok := diffLines(b.ids, o.ids, len(n))
	if !ok {
		return "", false
	}
	right, ok := diffLines(b.ids, t.ids, len(n))
	if !ok {
		return "", false
	}
	merged := make([]string, 0, len(o.text)+len(t.text))
	at := 0 // lines of base that are dealt with
	apply := func(h hunk, side *lines) {
		merged = append(merged, b.text[at:h.start]...)
		merged = append(merged, side.text[h.from:h.to]...)
		at = h.end
	}
	for len(left) > 0 || len(right) > 0 {
		switch {
		case len(right) == 0:
			apply(left[0], o)
			left = left[1:]
		case len(left) == 0:
			apply(right[0], t)
			right = right[1:]
		case same(left[0], right[0], o, t):
			apply(left[0], o)
			left, right = left[1:], right[1:]
		case left[0].meets(right[0]):
			return "", false
		case left[0].start < right[0].start:
			apply(left[0], o)
			left = left[1:]
		default:
			apply(right[0], t)
			right = right[1:]
		}
	}
	return strings.Join(append(merged, b.text[at:]...), "\n"), true
}

// lines is a text as lines, which newlines part, and a number for each. Equal
// lines have equal numbers.
type lines struct {
	text []string
	ids  []int32
}

type numbering map[string]int32

func (n numbering) lines(text string) *lines { return n.number(strings.Split(text, "\n")) }

func (n numbering) number(text []string) *lines {
	l := &lines{text: text}
	l.ids = make([]int32, len(l.text))
	for i, s := range l.text {
		id, known := n[s]
		if !known {
			id = int32(len(n)) //nolint:gosec // fewer than bytes of content
			n[s] = id
		}
		l.ids[i] = id
	}
	return l
}

// A hunk replaces lines [start, end) of the base by lines [from, to) of a side.
// An insertion or a deletion among repeated lines may as well stand elsewhere in
// [low, high) of the base; elsewhere those are start and end.
type hunk struct {
	start, end int
	from, to   int
	low, high  int
}

// same reports whether two sides' hunks are one change.
func same(h, g hunk, o, t *lines) bool {
	return h.start == g.start && h.end == g.end && slices.Equal(o.ids[h.from:h.to], t.ids[g.from:g.to])
}

// meets reports whether two hunks touch or might overlap.
func (h hunk) meets(g hunk) bool {
	return h.start <= g.end && g.start <= h.end || h.low < g.high && g.low < h.high
}

// diffLines returns the hunks that make x of b, in order, no two touching. The
// numbers of the lines are below count. It returns false should the hunks not
// make x exactly.
func diffLines(b, x []int32, count int) ([]hunk, bool) {
	d := lineDiff{b: b, x: x, seen: make([]occurrences, count), budget: maxLineWork}
	d.diff(0, len(b), 0, len(x), 0)
	d.slide()
	at, from := 0, 0
	for _, h := range d.hunks {
		if h.start < at || h.from < from || !slices.Equal(b[at:h.start], x[from:h.from]) {
			return nil, false
		}
		at, from = h.end, h.to
	}
	return d.hunks, slices.Equal(b[at:], x[from:])
}

// Bounds of a diff. Beyond them it is coarser, never wrong.
const (
	maxAnchorDepth = 8
	maxLineWork    = 1 << 24 // squares of the lengths that are compared line by line
)

// A lineDiff finds hunks. Lines that stand once on either side part the texts
// (Cohen's patience diff), which takes near linear time; diff-match-patch
// compares what lies between.
type lineDiff struct {
	b, x   []int32
	seen   []occurrences // by line; all zero between uses
	budget int
	hunks  []hunk
}

type occurrences struct {
	inB, inX uint8 // 0, 1 or many
	atB      int32
}

func (d *lineDiff) diff(b0, b1, x0, x1, depth int) {
	for b0 < b1 && x0 < x1 && d.b[b0] == d.x[x0] {
		b0++
		x0++
	}
	for b0 < b1 && x0 < x1 && d.b[b1-1] == d.x[x1-1] {
		b1--
		x1--
	}
	if b0 == b1 || x0 == x1 {
		d.add(b0, b1, x0, x1)
		return
	}
	if depth < maxAnchorDepth {
		if anchors := d.anchors(b0, b1, x0, x1); len(anchors) > 0 {
			for _, a := range anchors {
				d.diff(b0, a.b, x0, a.x, depth+1)
				b0, x0 = a.b+1, a.x+1
			}
			d.diff(b0, b1, x0, x1, depth+1)
			return
		}
	}
	n := b1 - b0 + x1 - x0
	if n*n > d.budget {
		d.add(b0, b1, x0, x1)
		return
	}
	d.budget -= n * n
	d.compare(b0, b1, x0, x1)
}

// add notes a hunk, as part of the one before if they touch.
func (d *lineDiff) add(b0, b1, x0, x1 int) {
	if b0 == b1 && x0 == x1 {
		return
	}
	if last := len(d.hunks) - 1; last >= 0 && d.hunks[last].end == b0 && d.hunks[last].to == x0 {
		d.hunks[last].end, d.hunks[last].high, d.hunks[last].to = b1, b1, x1
		return
	}
	d.hunks = append(d.hunks, hunk{b0, b1, x0, x1, b0, b1})
}

// An anchor is a line that both texts hold.
type anchor struct{ b, x int }

// anchors returns the longest run of lines that are unique in both ranges and in
// the same order.
func (d *lineDiff) anchors(b0, b1, x0, x1 int) []anchor {
	for i := b0; i < b1; i++ {
		s := &d.seen[d.b[i]]
		s.inB = min(s.inB+1, 2)
		s.atB = int32(i) //nolint:gosec // fewer than bytes of content
	}
	for _, id := range d.x[x0:x1] {
		d.seen[id].inX = min(d.seen[id].inX+1, 2)
	}
	var (
		found []anchor
		piles []int // by length of run, the anchor with the least place in b that ends one
		back  []int // by anchor, the one before it in the longest run that it ends
	)
	for i := x0; i < x1; i++ {
		s := d.seen[d.x[i]]
		if s.inB != 1 || s.inX != 1 {
			continue
		}
		a := anchor{int(s.atB), i}
		p, _ := slices.BinarySearchFunc(piles, a.b, func(j, at int) int { return found[j].b - at })
		before := -1
		if p > 0 {
			before = piles[p-1]
		}
		if p == len(piles) {
			piles = append(piles, 0)
		}
		piles[p] = len(found)
		found, back = append(found, a), append(back, before)
	}
	for _, id := range d.b[b0:b1] {
		d.seen[id] = occurrences{}
	}
	for _, id := range d.x[x0:x1] {
		d.seen[id] = occurrences{}
	}
	run := make([]anchor, len(piles))
	if len(piles) > 0 {
		for i, j := len(run)-1, piles[len(piles)-1]; i >= 0; i, j = i-1, back[j] {
			run[i] = found[j]
		}
	}
	return run
}

// compare finds the hunks of short ranges by diff-match-patch, in its line mode:
// a character stands for each line.
func (d *lineDiff) compare(b0, b1, x0, x1 int) {
	chars := map[int32]rune{}
	text := func(ids []int32) []rune {
		runes := make([]rune, len(ids))
		for i, id := range ids {
			if chars[id] == 0 {
				chars[id] = rune(len(chars) + 1) //nolint:gosec // below the surrogates, as the ranges are short
			}
			runes[i] = chars[id]
		}
		return runes
	}
	dmp := diffmatchpatch.New()
	dmp.DiffTimeout = 0 // the result depends on no clock
	for _, e := range dmp.DiffMainRunes(text(d.b[b0:b1]), text(d.x[x0:x1]), false) {
		n := utf8.RuneCountInString(e.Text)
		switch e.Type {
		case diffmatchpatch.DiffEqual:
			b0 += n
			x0 += n
		case diffmatchpatch.DiffDelete:
			d.add(b0, b0+n, x0, x0)
			b0 += n
		case diffmatchpatch.DiffInsert:
			d.add(b0, b0, x0, x0+n)
			x0 += n
		}
	}
}

// slide moves each insertion and deletion down as far as repeated lines allow,
// so that one change has one form, and notes how far it might move.
func (d *lineDiff) slide() {
	floor := 0 // of the base, where the hunk before ends
	for i := range d.hunks {
		h := &d.hunks[i]
		ceiling := len(d.b)
		if i+1 < len(d.hunks) {
			ceiling = d.hunks[i+1].start - 1 // hunks stay apart
		}
		switch {
		case h.from == h.to:
			for h.low > floor && d.b[h.low-1] == d.b[h.low-1+h.end-h.start] {
				h.low--
			}
			for h.end < ceiling && d.b[h.start] == d.b[h.end] {
				h.start, h.end, h.from, h.to = h.start+1, h.end+1, h.from+1, h.to+1
			}
		case h.start == h.end:
			up := 0
			for h.low > floor && d.b[h.low-1] == d.line(h, up-1) {
				h.low--
				up--
			}
			for h.end < ceiling && d.b[h.end] == d.x[h.from] {
				h.start, h.end, h.from, h.to = h.start+1, h.end+1, h.from+1, h.to+1
			}
		}
		h.high = h.end
		floor = h.end
	}
}

// line returns the line at i of an endless repetition of the inserted lines.
func (d *lineDiff) line(h *hunk, i int) int32 {
	n := h.to - h.from
	return d.x[h.from+((i%n)+n)%n]
}
