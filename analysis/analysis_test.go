package analysis

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// terms returns the parts of a text, and then its joined forms after a bar.
func terms(text string) string {
	var parts, joined []string
	scan(text, false, func(w *word) {
		w.tokens(1, func(t token) {
			if t.joined {
				joined = append(joined, t.term)
			} else {
				parts = append(parts, t.term)
			}
		})
	})
	if joined == nil {
		return strings.Join(parts, " ")
	}
	return strings.Join(parts, " ") + " | " + strings.Join(joined, " ")
}

func TestTerms(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"Neurons spread", "neuron spread"},
		{"APOE4", "apoe 4 | apoe4"},
		{"APOE-4", "apoe 4 | apoe4"},
		{"APOE 4", "apoe 4"},
		{"TNF-α", "tnf alpha | tnfalpha tnfa"},
		{"TNFα", "tnf alpha | tnfalpha tnfa"},
		{"TNFalpha", "tnf alpha | tnfalpha tnfa"},
		{"Aβ42", "a beta 42 | abeta42 ab42"},
		{"Abeta42", "a beta 42 | abeta42 ab42"},
		{"Aβ₄₂", "a beta 42 | abeta42 ab42"},
		{"β-amyloid", "beta amyloid | betaamyloid bamyloid"},
		{"beta-amyloid", "beta amyloid | betaamyloid bamyloid"},
		{"&beta;-amyloid", "beta amyloid | betaamyloid bamyloid"},
		{"NF-κB", "nf kappa b | kappab kb nfkappab nfkb"},
		{"NFkappaB", "nf kappa b | nfkappab nfkb"},
		{"NF-kB", "nf kb | nfkb"},
		{"p53", "p 53 | p53"},
		{"IL-6", "il 6 | il6"},
		{"5-HT", "5 ht | 5ht"},
		{"PI3K/AKT", "pi 3 k akt | pi3k pi3kakt"},
		{"Sjögren’s syndrome", "sjogren syndrom"},
		{"Alzheimer's disease", "alzheim diseas"},
		{"ﬁbrosis of the œsophagus", "fibrosi of the oesophagus"},
		{"CO₂ and H<sub>2</sub>O", "co 2 and h 2 o | co2 h2o"},
		{"<p>a</p>b <!-- no --> p < 0.05", "a b p 0.05"},
		{"see [the page](https://example.org/x) now", "see the page now"},
		{"ALS IDS rats genes virus", "als ids rat gene virus"},
		{"ΔF508 and ∆F508", "delta f 508 and delta f 508 | deltaf508 df508 deltaf508 df508"},
		{"νόσος", "νοσοσ"},
		{"μg", "mu g | mug ug"},
		{"北京 test", "北 京 test | 北京"},
		{"-- - /", ""},
		{"theta eta", "theta eta"},
	} {
		if got := terms(test.text); got != test.want {
			t.Errorf("terms of %q = %q, want %q", test.text, got, test.want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, test := range []struct{ query, tsquery, match string }{
		{`neurons`, `('neuron') | 'K'`, `("neuron") OR "K"`},
		{`"tau protein"`, `'tau' <-> 'protein'`, `"tau" + "protein"`},
		{`tau -mouse`, `('tau') & !('mous')`, `("tau") NOT ("mous")`},
		{`tau OR amyloid`, `('tau') | ('amyloid')`, `("tau") OR ("amyloid")`},
		{`micro*`, `'micro':*`, `"micro" *`},
		{`the role of tau`, `(('role') & ('tau')) | 'K'`, `(("role") AND ("tau")) OR "K"`},
		{`"vitamin A" IL-6`, `('vitamin' <-> 'a') & (('il' <-> '6') | ('il6'))`, `("vitamin" + "a") AND (("il" + "6") OR ("il6"))`},
		{`PI3K/AKT -x`, `(((('pi' <-> '3' <-> 'k') | ('pi3k')) & ('akt')) | ('pi3kakt')) & !('x')`, `(((("pi" + "3" + "k") OR ("pi3k")) AND ("akt")) OR ("pi3kakt")) NOT ("x")`},
		{`-gef "non small" OR x`, `(('non' <-> 'small') & !('gef')) | ('x')`, `(("non" + "small") NOT ("gef")) OR ("x")`},
		{`a' | b:* & !c`, ``, ``},
		{`x NEAR(y z) col:w ^q {a}`, ``, ``},
	} {
		q, err := Parse(test.query, "/query")
		if err != nil {
			t.Errorf("Parse(%q): %v", test.query, err)
			continue
		}
		ts, match := q.TSQuery(), q.Match()
		if q.key != "" {
			ts, match = strings.ReplaceAll(ts, q.key, "K"), strings.ReplaceAll(match, q.key, "K")
		}
		if test.match == "" {
			continue
		}
		if ts != test.tsquery {
			t.Errorf("Parse(%q).TSQuery() = %s, want %s", test.query, ts, test.tsquery)
		}
		if match != test.match {
			t.Errorf("Parse(%q).Match() = %s, want %s", test.query, match, test.match)
		}
	}
	for _, query := range []string{"", "  ", "-tau", `"open`, "a*", "OR", strings.Repeat("x", 10_000), strings.Repeat("ab ", 65), "!!! ...", "a\xffb", "a\x00b", "tau OR -b", `""`, `*`} {
		if q, err := Parse(query, "/query"); err == nil {
			t.Errorf("Parse(%.20q) = %v, want an error", query, q.Match())
		}
	}
}

func TestHighlights(t *testing.T) {
	q, err := Parse(`"amyloid beta" APOE4 neurodegenerat*`, "/query")
	if err != nil {
		t.Fatal(err)
	}
	text := "😀 Amyloid-β and APOE-4 in <b>neurodegeneration</b>; amyloid alone"
	got := q.Highlights([]Field{{Path: "/title", Text: text}, {Path: "/x", Text: "nothing"}})
	if len(got) != 1 || got[0].Text != text {
		t.Fatalf("highlights = %+v", got)
	}
	var words []string
	wide := []rune(text)
	for _, r := range got[0].Ranges { // one character before takes two units
		words = append(words, string(wide[r[0]-1:r[1]-1]))
	}
	if want := []string{"Amyloid-β", "APOE-4", "neurodegeneration"}; !slices.Equal(words, want) {
		t.Errorf("highlighted %q, want %q", words, want)
	}
}

func TestLinear(t *testing.T) {
	for _, unit := range []string{"a", "aB", "<a", "<!--", "α", "é", "1-", "a/", "[x](", "&b", "1.", "x'", "alphaB", "北", "word "} {
		text := strings.Repeat(unit, 1<<20/len(unit))
		start := time.Now()
		d := New([]Field{{Text: text}})
		d.Vector()
		d.Row()
		if took := time.Since(start); took > time.Minute {
			t.Errorf("1 MiB of %q took %s", unit, took)
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{"Aβ42 <b>x</b> [a](b.c) &amp; ﬁ x's 1.2-3/4", "'\\\"", "\xff𝛽"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, raw := range []bool{true, false} {
			scan(s, raw, func(w *word) {
				w.tokens(1, func(tok token) {
					switch {
					case tok.term == "" || len(tok.term) > MaxTerm:
						t.Errorf("the term %q of %q", tok.term, s)
					case tok.start < 0 || tok.start >= tok.end || tok.end > len(s):
						t.Errorf("%q of %q stands at %d to %d", tok.term, s, tok.start, tok.end)
					case strings.ContainsAny(tok.term, "'\\\" \t\n=*:&|!()+^{}-"):
						t.Errorf("the term %q of %q holds syntax", tok.term, s)
					case utf8.ValidString(s) && !utf8.ValidString(tok.term):
						t.Errorf("the term %q of %q is no UTF-8", tok.term, s)
					}
				})
			})
		}
		New([]Field{{Text: s}}, s).Vector()
		if q, err := Parse(s, ""); err == nil {
			q.Highlights([]Field{{Text: s}})
		}
	})
}

func BenchmarkDocument(b *testing.B) {
	text := strings.Repeat("Amyloid beta (Aβ42) and tau spread along connected neurons in patients with APOE4. ", 20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		d := New([]Field{{Text: text}}, "A title")
		d.Vector()
	}
}
