package artifact_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

// A lineEdit replaces n lines from at by lines.
type lineEdit struct {
	at, n int
	lines []string
}

func applyLines(base []string, edits []lineEdit) string {
	slices.SortFunc(edits, func(a, b lineEdit) int { return a.at - b.at })
	var out []string
	at := 0
	for _, e := range edits {
		out = append(out, base[at:e.at]...)
		out = append(out, e.lines...)
		at = e.at + e.n
	}
	return strings.Join(append(out, base[at:]...), "\n")
}

func text(tb testing.TB, s string) artifact.Version {
	tb.Helper()
	raw, err := json.Marshal(map[string]string{"text": s})
	if err != nil {
		tb.Fatal(err)
	}
	return version(string(raw))
}

// TestMergeOfLines edits distinct lines, so that what changed is not in doubt.
func TestMergeOfLines(t *testing.T) {
	clean := 0
	for seed := range uint64(5_000) {
		g := newMaker(seed)
		base := make([]string, 1+g.IntN(40))
		for i := range base {
			base[i] = "line " + strconv.Itoa(i)
		}
		var sides [2][]lineEdit
		var owner []int // by the edits of both, in order
		var all []lineEdit
		touch := false
		for at, last := g.IntN(3), -1; at <= len(base); {
			e := lineEdit{at: at, n: min(g.IntN(3), len(base)-at)}
			for range g.IntN(3) {
				e.lines = append(e.lines, fmt.Sprintf("new %d", g.Int()))
			}
			if e.n > 0 || len(e.lines) > 0 {
				side := g.IntN(2)
				if len(all) > 0 && all[len(all)-1].at+all[len(all)-1].n == at && last != side {
					touch = true
				}
				sides[side], all, owner, last = append(sides[side], e), append(all, e), append(owner, side), side
			}
			at += e.n + g.IntN(4)
			if at == e.at {
				at++
			}
		}
		b, o, x := strings.Join(base, "\n"), applyLines(base, sides[0]), applyLines(base, sides[1])
		m := merge(t, text(t, b), text(t, o), text(t, x), "text")
		if touch != !m.Clean() {
			t.Fatalf("seed %d: base %q, ours %q, theirs %q: edits %v of %v, touching %v: conflicts %v", seed, b, o, x, all, owner, touch, m.Conflicts)
		}
		if want := text(t, applyLines(base, all)); m.Clean() && !reflect.DeepEqual(m.Version, want) {
			t.Fatalf("seed %d: base %q, ours %q, theirs %q: Merge = %s, want %s", seed, b, o, x, m.Version.Content, want.Content)
		}
		if m.Clean() {
			clean++
		}
	}
	if clean < 500 {
		t.Errorf("only %d merges were clean", clean)
	}
}

func TestMergeOfRepeatedLinesHoldsItsLaws(t *testing.T) {
	for seed := range uint64(20_000) {
		g := newMaker(seed)
		lines := func() string {
			s := make([]string, g.IntN(12))
			for i := range s {
				s[i] = string(rune('a' + g.IntN(3)))
			}
			return strings.Join(s, "\n")
		}
		b, o, x := lines(), lines(), lines()
		if checkTexts(t, b, o, x); t.Failed() {
			t.Fatalf("seed %d: base %q, ours %q, theirs %q", seed, b, o, x)
		}
	}
}

func checkTexts(t *testing.T, b, o, x string) {
	t.Helper()
	bv, ov, xv := text(t, b), text(t, o), text(t, x)
	for name, got := range map[string]artifact.Merged{
		"merge(b, x, b)": merge(t, bv, ov, bv, "text"),
		"merge(b, b, x)": merge(t, bv, bv, ov, "text"),
		"merge(b, x, x)": merge(t, bv, ov, ov, "text"),
	} {
		if !bytes.Equal(got.Version.Content, mustCanonical(t, ov.Content)) {
			t.Errorf("%s = %s, conflicts %v, want x", name, got.Version.Content, got.Conflicts)
		}
	}
	m, back := merge(t, bv, ov, xv, "text"), merge(t, bv, xv, ov, "text")
	if !reflect.DeepEqual(m, back) {
		t.Errorf("Merge = %+v one way and %+v the other", m, back)
	}
	// A line that stands in no version is not in the merge, and one that stands
	// once and moves nowhere is there once.
	if !m.Clean() {
		return
	}
	var got struct{ Text string }
	if err := json.Unmarshal(m.Version.Content, &got); err != nil {
		t.Fatal(err)
	}
	count := func(s string) map[string]int {
		n := map[string]int{}
		for line := range strings.SplitSeq(s, "\n") {
			n[line]++
		}
		return n
	}
	nb, no, nx, nm := count(b), count(o), count(x), count(got.Text)
	for line, n := range nm {
		if nb[line]+no[line]+nx[line] == 0 || n > no[line]+nx[line] {
			t.Errorf("line %q stands %d times in the merge %q", line, n, got.Text)
		}
	}
	for line, n := range nb {
		if n == 1 && no[line] == 1 && nx[line] == 1 && nm[line] == 0 {
			t.Errorf("line %q is lost in the merge %q", line, got.Text)
		}
	}
}

func FuzzMergeLines(f *testing.F) {
	f.Add("a\nb\nc", "a\nB\nc", "a\nb\nc\nd")
	f.Add("", "\n", "\n\n")
	f.Fuzz(func(t *testing.T, b, o, x string) {
		for _, s := range []string{b, o, x} {
			if artifact.CheckJSON(text(t, s).Content, "", 2) != nil {
				return
			}
		}
		valid := func(s string) string { return strings.ToValidUTF8(s, "?") }
		checkTexts(t, valid(b), valid(o), valid(x))
	})
}
