package artifact_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gowebpki/jcs"

	"github.com/scidex-ai/substrate/artifact"
)

func version(content string) artifact.Version {
	return artifact.Version{Content: []byte(content), State: "draft", Title: "T"}
}

func merge(tb testing.TB, b, o, t artifact.Version, texts ...string) artifact.Merged {
	tb.Helper()
	m, err := artifact.Merge(b, o, t, texts)
	if err != nil {
		tb.Fatalf("Merge(%s, %s, %s): error = %v", b.Content, o.Content, t.Content, err)
	}
	return m
}

func TestMerge(t *testing.T) {
	tests := []struct {
		name, base, ours, theirs string
		want                     string // when clean
		conflicts                string
	}{
		{"keeps changes of different members", `{"a":1,"b":1}`, `{"a":2,"b":1}`, `{"a":1,"b":2}`, `{"a":2,"b":2}`, ""},
		{"keeps changes deep within", `{"a":{"x":1,"y":1}}`, `{"a":{"x":2,"y":1}}`, `{"a":{"x":1,"y":2}}`, `{"a":{"x":2,"y":2}}`, ""},
		{"takes a change that both made", `{"a":1}`, `{"a":2}`, `{"a":2}`, `{"a":2}`, ""},
		{"adds what each adds, in canonical order", `{"b":1}`, `{"b":1,"€":1}`, `{"b":1,"a":1}`, `{"a":1,"b":1,"€":1}`, ""},
		{"orders keys by UTF-16", `{}`, `{"😀":1}`, `{"\ufb33":1}`, `{"😀":1,"` + "\ufb33" + `":1}`, ""},
		{"takes a deletion that both made", `{"a":1,"b":1}`, `{"b":1}`, `{"b":1}`, `{"b":1}`, ""},
		{"refuses two values", `{"a":1}`, `{"a":2}`, `{"a":3}`, "", "/content/a"},
		{"refuses two additions", `{}`, `{"a":{"x":1}}`, `{"a":{"y":1}}`, "", "/content/a"},
		{"refuses a deletion beside an edit", `{"a":1}`, `{}`, `{"a":2}`, "", "/content/a"},
		{"refuses a deletion beside an edit within", `{"a":{"x":1}}`, `{}`, `{"a":{"x":2}}`, "", "/content/a"},
		{"refuses a change of type beside an edit within", `{"a":{"x":1}}`, `{"a":[]}`, `{"a":{"x":2}}`, "", "/content/a"},
		{"names conflicts in order, escaped", `{"b":1,"a/~":1,"c":1}`, `{"b":2,"a/~":2,"c":1}`, `{"b":3,"a/~":3,"c":1}`, "", "/content/a~1~0 /content/b"},
		{"keeps what both append", `{"a":[1]}`, `{"a":[1,2]}`, `{"a":[1,3]}`, `{"a":[1,2,3]}`, ""},
		{"appends to an empty array", `{"a":[]}`, `{"a":["x"]}`, `{"a":["y"]}`, `{"a":["x","y"]}`, ""},
		{"appends once what both append", `{"a":[0]}`, `{"a":[0,1,2]}`, `{"a":[0,2,3,2]}`, `{"a":[0,1,2,3,2]}`, ""},
		{"takes no longer number for an appended one", `{"a":[1]}`, `{"a":[12]}`, `{"a":[1,3]}`, "", "/content/a"},
		{"merges arrays as a whole", `{"a":[1,2]}`, `{"a":[3,2]}`, `{"a":[1,4]}`, "", "/content/a"},
		{"refuses an append beside an edit", `{"a":[1]}`, `{"a":[2]}`, `{"a":[1,1]}`, "", "/content/a"},
		{"compares numbers by value", `{"a":1.0,"b":10}`, `{"b":1e1,"a":2}`, `{"a":1,"b":11}`, `{"a":2,"b":11}`, ""},
		{"merges lines", `{"text":"a\nb\nc"}`, `{"text":"A\nb\nc"}`, `{"text":"a\nb\nC"}`, `{"text":"A\nb\nC"}`, ""},
		{"merges lines of a field in a field", `{"o":{"text":"a\nb\nc"}}`, `{"o":{"text":"A\nb\nc"}}`, `{"o":{"text":"a\nb\nC"}}`, `{"o":{"text":"A\nb\nC"}}`, ""},
		{"merges no lines of other fields", `{"note":"a\nb\nc"}`, `{"note":"A\nb\nc"}`, `{"note":"a\nb\nC"}`, "", "/content/note"},
		{"refuses a text that is no text any more", `{"text":"a"}`, `{"text":1}`, `{"text":"b"}`, "", "/content/text"},
		{"refuses lines that both change", `{"text":"a\nb\nc"}`, `{"text":"a\nB\nc"}`, `{"text":"a\nbb\nc"}`, "", "/content/text"},
		{"refuses neighbouring lines", `{"text":"a\nb\nc"}`, `{"text":"A\nb\nc"}`, `{"text":"a\nB\nc"}`, "", "/content/text"},
		{"refuses two insertions in one place", `{"text":"a\nb"}`, `{"text":"a\nx\nb"}`, `{"text":"a\ny\nb"}`, "", "/content/text"},
		{"inserts once what both insert", `{"text":"a\nb\nc\nd"}`, `{"text":"a\nx\nb\nc\nd"}`, `{"text":"a\nx\nb\nc\nD"}`, `{"text":"a\nx\nb\nc\nD"}`, ""},
		{"writes after the last line", `{"text":"a\nb\n"}`, `{"text":"A\nb\n"}`, `{"text":"a\nb\nc"}`, `{"text":"A\nb\nc"}`, ""},
		{"appends to a text", `{"text":"a\nb"}`, `{"text":"A\nb"}`, `{"text":"a\nb\nc"}`, `{"text":"A\nb\nc"}`, ""},
		{"keeps escapes", `{"text":"\"\n\\\n\u0001"}`, `{"text":"\"q\n\\\n\u0001"}`, `{"text":"\"\n\\\n\u0001\u0002"}`, `{"text":"\"q\n\\\n\u0001\u0002"}`, ""},
		{"adds a paragraph after one that is edited", `{"text":"p1\n\np2\n\np3"}`, `{"text":"P1\n\np2\n\np3"}`, `{"text":"p1\n\nnew\n\np2\n\np3"}`, `{"text":"P1\n\nnew\n\np2\n\np3"}`, ""},
		{"compares escapes by value", `{"a":"\u000a","b":1}`, `{"a":"\n","b":2}`, `{"a":"x","b":1}`, `{"a":"x","b":2}`, ""},
		{"guesses not where among like lines one came", `{"text":"z\na\na\na\nb"}`, `{"text":"z\na\na\na\na\nb"}`, `{"text":"z\na\nX\na\nb"}`, "", "/content/text"},
		{"guesses not which of like lines went", `{"text":"z\na\na\na\nb"}`, `{"text":"z\na\na\nb"}`, `{"text":"y\na\na\nb"}`, "", "/content/text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := merge(t, version(tt.base), version(tt.ours), version(tt.theirs), "text", "/o/text")
			if got := strings.Join(m.Conflicts, " "); got != tt.conflicts || string(m.Version.Content) != tt.want {
				t.Errorf("Merge(%s, %s, %s) = %s, conflicts %q, want %s, %q", tt.base, tt.ours, tt.theirs, m.Version.Content, got, tt.want, tt.conflicts)
			}
		})
	}
}

func TestMergeOfStateAndTitle(t *testing.T) {
	b := artifact.Version{Content: []byte(`{"a":1}`), State: "draft", Title: "T"}
	o := artifact.Version{Content: []byte(`{"a":2}`), State: "open", Title: "T"}
	x := artifact.Version{Content: []byte(`{"a":1}`), State: "draft", Title: "U"}
	want := artifact.Version{Content: []byte(`{"a":2}`), State: "open", Title: "U"}
	if m := merge(t, b, o, x); !m.Clean() || !reflect.DeepEqual(m.Version, want) {
		t.Errorf("Merge = %+v, want %+v", m, want)
	}
	x = artifact.Version{Content: []byte(`{"a":3}`), State: "closed", Title: "T"}
	if m := merge(t, b, o, x); fmt.Sprint(m.Conflicts) != "[/content/a /state]" {
		t.Errorf("Merge conflicts in %v, want [/content/a /state]", m.Conflicts)
	}
}

func TestMergeRefusesWhatIsTooLarge(t *testing.T) {
	large := strings.Repeat("x", artifact.MaxContentBytes*2/3)
	b, o, x := version(`{"x":1}`), version(`{"a":"`+large+`","x":1}`), version(`{"b":"`+large+`","x":1}`)
	if m := merge(t, b, o, x); fmt.Sprint(m.Conflicts) != "[/content]" {
		t.Errorf("Merge conflicts in %v, want [/content]", m.Conflicts)
	}
	o, x = version(`{"a":"`+large+`","x":2}`), version(`{"b":"`+large+`","x":3}`)
	if m := merge(t, b, o, x); fmt.Sprint(m.Conflicts) != "[/content/x]" {
		t.Errorf("Merge conflicts in %v, want [/content/x]", m.Conflicts)
	}
}

func TestMergeRefusesWhatIsNotJSON(t *testing.T) {
	good := version(`{}`)
	for _, bad := range []string{``, `{`, `{"a":}`, "{\"a\":\"\xff\"}", `{"a":1,"a":2}`, `{}{}`, `[1,]`, `{"a"`} {
		for i := range 3 {
			v := []artifact.Version{good, good, good}
			v[i] = version(bad)
			if _, err := artifact.Merge(v[0], v[1], v[2], nil); err == nil {
				t.Errorf("Merge with content %q: error = nil", bad)
			}
		}
	}
}

func TestMergeHoldsItsLaws(t *testing.T) {
	for seed := range uint64(20_000) {
		b, o, x := newMaker(seed).triple()
		checkLaws(t, b, o, x)
		if t.Failed() {
			t.Fatalf("seed %d: base %s, ours %s, theirs %s", seed, b.Document(), o.Document(), x.Document())
		}
	}
}

// checkLaws checks what holds for all versions of canonical content.
func checkLaws(t *testing.T, b, o, x artifact.Version) {
	t.Helper()
	texts := []string{"a", "b", "~/", "/c/a"}
	before := [][]byte{b.Document(), o.Document(), x.Document()}
	for name, got := range map[string]artifact.Merged{
		"merge(b, x, b)": merge(t, b, o, b, texts...),
		"merge(b, b, x)": merge(t, b, b, o, texts...),
		"merge(b, x, x)": merge(t, b, o, o, texts...),
	} {
		if !reflect.DeepEqual(got, artifact.Merged{Version: o}) {
			t.Errorf("%s = %s, conflicts %v, want x", name, got.Version.Document(), got.Conflicts)
		}
	}
	m, back := merge(t, b, o, x, texts...), merge(t, b, x, o, texts...)
	if !slices.Equal(m.Conflicts, back.Conflicts) {
		t.Errorf("conflicts are %q one way and %q the other", m.Conflicts, back.Conflicts)
	}
	if !slices.IsSorted(m.Conflicts) {
		t.Errorf("conflicts %q are not sorted", m.Conflicts)
	}
	for _, p := range m.Conflicts {
		for _, q := range m.Conflicts {
			if strings.HasPrefix(q, p+"/") {
				t.Errorf("conflicts hold %q and %q within it", p, q)
			}
		}
	}
	if m.Clean() {
		if canonical, err := jcs.Transform(m.Version.Content); err != nil || !bytes.Equal(canonical, m.Version.Content) {
			t.Errorf("merged content is not canonical: %s", m.Version.Content)
		}
	}
	for _, pair := range [][2]artifact.Version{{b, o}, {o, b}, {o, x}, {b, b}} {
		checkDiff(t, pair[0], pair[1])
	}
	if after := [][]byte{b.Document(), o.Document(), x.Document()}; !reflect.DeepEqual(before, after) {
		t.Errorf("the versions changed: %s, before %s", after, before)
	}
}

func checkDiff(t *testing.T, from, to artifact.Version) {
	t.Helper()
	patch, err := artifact.Diff(from, to)
	if err != nil {
		t.Fatal(err)
	}
	got, problems := from.Patch(patch, "/patch")
	if problems != nil || !reflect.DeepEqual(got, to) {
		t.Errorf("Diff(%s, %s) = %s, which makes %s, %v", from.Document(), to.Document(), patch, got.Document(), problems)
	}
	if canonical, err := jcs.Transform(patch); err != nil || !bytes.Equal(canonical, patch) {
		t.Errorf("Diff is not canonical: %s", patch)
	}
}

func mustCanonical(t *testing.T, raw []byte) []byte {
	t.Helper()
	canonical, err := jcs.Transform(raw)
	if err != nil {
		t.Fatal(err)
	}
	return canonical
}

// TestMergeIsBounded gives it the inputs that are worst for it. A minute is no measure of
// speed: what grows with the square of the input takes hours.
func TestMergeIsBounded(t *testing.T) {
	const size = 1 << 20
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	g := newMaker(1)
	letters := func() string {
		b := []byte(repeat("a\n"))
		for i := 0; i < len(b); i += 2 {
			b[i] = byte('a' + g.IntN(3))
		}
		return string(b)
	}
	deep := func(leaf string) string {
		return strings.Repeat(`{"a":`, 60) + `{"k":"` + repeat("x") + `","v":` + leaf + `}` + strings.Repeat("}", 60)
	}
	members := func(v string) string {
		var b strings.Builder
		b.WriteString(`{"` + strings.Repeat("k", size/2) + `":{`)
		for i := range 40_000 {
			fmt.Fprintf(&b, `"%d":%s,`, 100_000+i, v)
		}
		return strings.TrimSuffix(b.String(), ",") + "}}"
	}
	array := func(v string) string {
		return `{"a":[` + strings.TrimSuffix(repeat(v+","), ",") + `]}`
	}
	tests := []struct {
		name      string
		b, o, x   artifact.Version
		conflicts []string
	}{
		{"texts of three letters", text(t, letters()), text(t, letters()), text(t, letters()), []string{"/content/text"}},
		{"texts without a line in common", text(t, repeat("a\n")), text(t, repeat("b\n")), text(t, repeat("c\n")), []string{"/content/text"}},
		{"texts of empty lines", text(t, repeat("\n")), text(t, repeat("\n")+"\n"), text(t, "\n"), []string{"/content/text"}},
		{"deep objects", version(deep("1")), version(deep("2")), version(deep("3")), []string{"/content" + strings.Repeat("/a", 60) + "/v"}},
		{"a long key of many conflicts", version(members("1")), version(members("2")), version(members("3")), []string{"/content"}},
		{"long arrays", version(array("1")), version(array("2")), version(array("1") /* unchanged */), nil},
		{"appended arrays", version(`{"a":[]}`), version(array("1")), version(array("2")), []string{"/content"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			m := merge(t, tt.b, tt.o, tt.x, "text")
			if took := time.Since(start); took > time.Minute {
				t.Errorf("Merge took %v", took)
			}
			if !slices.Equal(m.Conflicts, tt.conflicts) {
				t.Errorf("Merge conflicts in %.200q, want %q", m.Conflicts, tt.conflicts)
			}
			start = time.Now()
			patch, err := artifact.Diff(tt.b, tt.o)
			if err != nil || len(patch) > len(tt.o.Content)+1000 {
				t.Errorf("Diff is %d bytes of content of %d, %v", len(patch), len(tt.o.Content), err)
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("Diff took %v", took)
			}
		})
	}
}

func FuzzMerge(f *testing.F) {
	for seed := range uint64(20) {
		b, o, x := newMaker(seed).triple()
		f.Add(string(b.Content), string(o.Content), string(x.Content))
	}
	f.Add(`{"a":1e400}`, `[]`, `"\ud800"`)
	f.Add(` 1.0 `, `1`, `-0`)
	f.Fuzz(func(t *testing.T, b, o, x string) {
		for _, raw := range []string{b, o, x} {
			if artifact.CheckJSON([]byte(raw), "", artifact.MaxContentDepth) != nil {
				_, _ = artifact.Merge(version(b), version(o), version(x), []string{"a"}) // must not panic
				_, _ = artifact.Diff(version(b), version(x))
				return
			}
		}
		loose := merge(t, version(b), version(o), version(x), "a", "b", "~/", "/c/a")
		v := make([]artifact.Version, 3)
		for i, raw := range []string{b, o, x} {
			v[i] = version(string(mustCanonical(t, []byte(raw))))
		}
		if strict := merge(t, v[0], v[1], v[2], "a", "b", "~/", "/c/a"); !reflect.DeepEqual(loose, strict) {
			t.Errorf("Merge = %+v, of canonical content %+v", loose, strict)
		}
		for _, raw := range v {
			if raw.Content[0] != '{' {
				return
			}
		}
		checkLaws(t, v[0], v[1], v[2])
	})
}
