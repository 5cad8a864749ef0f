package sample

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

type record struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Title   string          `json:"title"`
	Content json.RawMessage `json:"content"`
	Links   []link          `json:"links"`
}

type link struct {
	Rel string `json:"rel"`
	To  string `json:"to"`
}

// ref is what a link to r reads.
func (r record) ref() string { return r.Type + ":" + r.ID }

// content has the keys that the tests look at.
type content struct {
	PMID       string `json:"pmid"`
	NCBIGene   string `json:"ncbi_gene"`
	Symbol     string `json:"symbol"`
	Statement  string `json:"statement"`
	Mechanism  string `json:"mechanism"`
	Direction  string `json:"direction"`
	Markdown   string `json:"markdown"`
	Provenance struct {
		Source  string `json:"source"`
		Licence string `json:"licence"`
	} `json:"provenance"`
}

var (
	idPattern   = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	digits      = regexp.MustCompile(`^[0-9]+$`)
	placeholder = regexp.MustCompile(`(?i)\b(todo|tbd|fixme|xxx|lorem|ipsum|dummy|placeholder|foo|bar|baz|example\.(com|org))\b`)
)

// rels maps a predicate to the "from>to" pairs of types that it may join.
var rels = map[string]string{
	"about":       "paper>gene hypothesis>gene hypothesis>disease evidence>gene",
	"cites":       "paper>paper evidence>paper wiki_page>paper",
	"supports":    "evidence>hypothesis",
	"contradicts": "evidence>hypothesis hypothesis>hypothesis",
	"describes":   "wiki_page>paper",
	"comments_on": "comment>paper comment>hypothesis",
	"rates":       "signal>hypothesis",
}

// records parses the sample and refuses fields that the format does not have.
func records(t *testing.T) []record {
	t.Helper()
	if !utf8.Valid(JSONL) {
		t.Fatal("JSONL is not UTF-8")
	}
	if !bytes.HasSuffix(JSONL, []byte("\n")) {
		t.Fatal("JSONL does not end in a newline")
	}
	var all []record
	for line := range bytes.Lines(JSONL) {
		var r record
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			t.Fatalf("line %d: %v", len(all)+1, err)
		}
		if rest := bytes.TrimSpace(line[d.InputOffset():]); len(rest) > 0 {
			t.Fatalf("line %d: more after the object: %.40q", len(all)+1, rest)
		}
		all = append(all, r)
	}
	return all
}

func TestSampleIsSmallAndCoversAllTypes(t *testing.T) {
	count := map[string]int{}
	artifacts := 0
	for _, r := range records(t) {
		count[r.Type]++
		if r.Type != "signal" {
			artifacts++
		}
	}
	if artifacts < 55 || artifacts > 70 {
		t.Errorf("artifacts = %d, want 55 to 70", artifacts)
	}
	for _, typ := range []string{"paper", "hypothesis", "evidence", "wiki_page", "comment", "gene", "disease", "signal"} {
		if count[typ] == 0 {
			t.Errorf("no %s", typ)
		}
		delete(count, typ)
	}
	if len(count) > 0 {
		t.Errorf("unknown types: %v", count)
	}
}

func TestLinksResolveToEarlierLines(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range records(t) {
		if !idPattern.MatchString(r.ID) {
			t.Errorf("%s: id does not match %v", r.ref(), idPattern)
		}
		once := map[link]bool{}
		for _, l := range r.Links {
			to, _, _ := strings.Cut(l.To, ":")
			if !strings.Contains(" "+rels[l.Rel]+" ", " "+r.Type+">"+to+" ") {
				t.Errorf("%s: %s may not join %s to %s", r.ref(), l.Rel, r.Type, to)
			}
			if !seen[l.To] {
				t.Errorf("%s: %s %s is on no earlier line", r.ref(), l.Rel, l.To)
			}
			if once[l] {
				t.Errorf("%s: %s %s is there twice", r.ref(), l.Rel, l.To)
			}
			once[l] = true
		}
		if seen[r.ref()] {
			t.Errorf("%s is there twice", r.ref())
		}
		seen[r.ref()] = true
	}
}

func TestContentsFitTheirTypes(t *testing.T) {
	for _, r := range records(t) {
		var c content
		if err := json.Unmarshal(r.Content, &c); err != nil {
			t.Errorf("%s: content: %v", r.ref(), err)
			continue
		}
		if r.Title == "" || utf8.RuneCountInString(r.Title) > 400 {
			t.Errorf("%s: title has %d characters, want 1 to 400", r.ref(), utf8.RuneCountInString(r.Title))
		}
		if c.Provenance.Source != "scidex-sample" || c.Provenance.Licence != "CC0-1.0" {
			t.Errorf("%s: provenance = %+v", r.ref(), c.Provenance)
		}
		if found := placeholder.FindString(r.Title + "\n" + string(r.Content)); found != "" {
			t.Errorf("%s: has the placeholder %q", r.ref(), found)
		}
		switch r.Type {
		case "paper":
			if !digits.MatchString(c.PMID) || r.ID != "pmid-"+c.PMID {
				t.Errorf("%s: pmid = %q, want the digits of the id", r.ref(), c.PMID)
			}
		case "gene":
			if c.Symbol != r.ID || !digits.MatchString(c.NCBIGene) {
				t.Errorf("%s: symbol = %q, ncbi_gene = %q, want the id and digits", r.ref(), c.Symbol, c.NCBIGene)
			}
		case "hypothesis":
			if c.Statement == "" || utf8.RuneCountInString(c.Mechanism) < 20 {
				t.Errorf("%s: statement = %q, mechanism = %q, want both, the latter of 20 characters or more", r.ref(), c.Statement, c.Mechanism)
			}
		case "evidence":
			testEvidence(t, r, c)
		case "wiki_page":
			if len(c.Markdown) < 1000 || len(c.Markdown) > 3000 {
				t.Errorf("%s: markdown has %d bytes, want 1000 to 3000", r.ref(), len(c.Markdown))
			}
		case "comment":
			if c.Markdown == "" || len(r.Links) == 0 {
				t.Errorf("%s: markdown = %q, links = %v, want both", r.ref(), c.Markdown, r.Links)
			}
		case "signal":
			testVote(t, r)
		}
	}
}

// testEvidence checks that the evidence cites a paper and that its direction is also that of its links to hypotheses.
func testEvidence(t *testing.T, r record, c content) {
	t.Helper()
	judged, cited := false, false
	for _, l := range r.Links {
		switch l.Rel {
		case "supports", "contradicts":
			judged = true
			if l.Rel != c.Direction {
				t.Errorf("%s: direction = %q but it %s %s", r.ref(), c.Direction, l.Rel, l.To)
			}
		case "cites":
			cited = true
		}
	}
	if c.Statement == "" || !judged || !cited {
		t.Errorf("%s: want a statement, a judged hypothesis and a cited paper", r.ref())
	}
}

// testVote checks the whole content of a signal.
func testVote(t *testing.T, r record) {
	t.Helper()
	var v struct {
		Kind  string `json:"kind"`
		Value *int   `json:"value"`
		By    string `json:"by"`
	}
	if err := json.Unmarshal(r.Content, &v); err != nil {
		t.Errorf("%s: content: %v", r.ref(), err)
		return
	}
	if v.Kind != "vote" || v.Value == nil || *v.Value < -1 || *v.Value > 1 || v.By == "" || len(r.Links) != 1 {
		t.Errorf("%s: content = %s, want a vote of -1, 0 or 1 by someone on one hypothesis", r.ref(), r.Content)
	}
}
