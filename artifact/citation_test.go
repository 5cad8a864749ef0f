package artifact_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// contentOf returns a content object with one text.
func contentOf(tb testing.TB, field, text string) []byte {
	tb.Helper()
	raw, err := json.Marshal(map[string]string{field: text})
	if err != nil {
		tb.Fatal(err)
	}
	return canonical(tb, string(raw))
}

func canonical(tb testing.TB, raw string) []byte {
	tb.Helper()
	content, problems := artifact.Canonical([]byte(raw), "")
	if problems != nil {
		tb.Fatalf("Canonical(%s): %v", raw, problems)
	}
	return content
}

// short writes citations as "kind placement id" of which a malformed one has
// its text in <>.
func short(found []artifact.Citation) string {
	var s []string
	places := map[artifact.Placement]string{artifact.InMarker: "marker", artifact.InField: "field", artifact.InProse: "prose", artifact.NearMiss: "near"}
	for _, c := range found {
		id := c.ID
		if id == "" {
			id = "<" + c.Text + ">"
		}
		s = append(s, fmt.Sprintf("%s %s %s", c.Kind, places[c.Placement], id))
	}
	return strings.Join(s, " | ")
}

func TestFindCitations(t *testing.T) {
	const field = "mechanism"
	tests := []struct{ name, field, text, want string }{
		{name: "a marker", text: "It is so [PMID:31452104].", want: "pmid marker 31452104"},
		{name: "markers side by side", text: "[PMID:1][PMID:2]", want: "pmid marker 1 | pmid marker 2"},
		{name: "a list", text: "[PMID:1, PMID:2;3,4]", want: "pmid marker 1 | pmid marker 2 | pmid marker 3 | pmid marker 4"},
		{name: "space and case", text: "[ pmid : 12 ]", want: "pmid marker 12"},
		{name: "a list of two kinds", text: "[DOI:10.1/A, PMID:1,2]", want: "doi marker <10.1/A> | pmid marker 1 | pmid marker 2"},
		{name: "a DOI with separators", text: "[PMID:7,DOI:10.1002/1096(199705)103:1<3::AID-AJPA2>3.0.CO;2-Q]", want: "pmid marker 7 | doi marker 10.1002/1096(199705)103:1<3::aid-ajpa2>3.0.co;2-q"},
		{name: "a DOI with brackets", text: "[DOI:10.1554/0014-3820(2002)056[1902:pragva]2.0.co;2] x", want: "doi marker 10.1554/0014-3820(2002)056[1902:pragva]2.0.co;2"},
		{name: "two DOIs", text: "[DOI:10.1038/a; 10.1038/b]", want: "doi marker 10.1038/a | doi marker 10.1038/b"},
		{name: "malformed markers", text: "[PMID:] [PMID:012] [PMID:NNNN] [PMID:0] [PMID:123456789] [PMID:1,]", want: "pmid marker <> | pmid marker <012> | pmid marker <NNNN> | pmid marker <0> | pmid marker <123456789> | pmid marker 1 | pmid marker <>"},
		{name: "an open marker", text: "[PMID:31452104 [PMID:1]", want: "pmid prose 31452104 | pmid marker 1"},
		{name: "a marker over two lines", text: "[PMID:31452104\n]", want: "pmid prose 31452104"},
		{name: "other brackets", text: "[see 1] [x](y) [PMCID:PMC12] [doing: x]", want: ""},
		{name: "bare", text: "PMID: 1, PMID2 (pmid:3) PMID 4 **PMID:** 5 PMID-6 _PMID#7_ PMID\u00a08", want: "pmid prose 1 | pmid prose 2 | pmid prose 3 | pmid prose 4 | pmid prose 5 | pmid prose 6 | pmid prose 7 | pmid prose 8"},
		{name: "bare lists", text: "PMIDs 31452104, 25058277 and 22366787; PMID: 1, 2019", want: "pmid prose 31452104 | pmid prose 25058277 | pmid prose 22366787 | pmid prose 1"},
		{name: "in brackets of another kind", text: "[see PMID:31452104]", want: "pmid prose 31452104"},
		{name: "not bare", text: "PMCID: PMC3 XPMID 4 PMID 3rd PMID 10.1038/x the PMID of 12 pmidx 3", want: ""},
		{name: "malformed bare", text: "PMID 0012 PMID: 123456789", want: "pmid prose <PMID 0012> | pmid prose <PMID: 123456789>"},
		{name: "addresses", text: "at https://pubmed.ncbi.nlm.nih.gov/31452104/ www.ncbi.nlm.nih.gov/pubmed/2 ncbi.nlm.nih.gov/pubmed/?term=3 identifiers.org/pubmed:4 europepmc.org/article/MED/5 https://europepmc.org/abstract/med/6", want: "pmid prose 31452104 | pmid prose 2 | pmid prose 3 | pmid prose 4 | pmid prose 5 | pmid prose 6"},
		{name: "not addresses", text: "PubMed: searched; pubmed.ncbi.nlm.nih.gov/advanced /med/7 PubMed/2a", want: ""},
		{name: "a marker's link", text: "[PMID:12](https://pubmed.ncbi.nlm.nih.gov/12/) and [PMID:13](https://pubmed.ncbi.nlm.nih.gov/14)", want: "pmid marker 12 | pmid marker 13 | pmid prose 14"},
		{name: "the link of another text", text: "[Smith](https://pubmed.ncbi.nlm.nih.gov/12/)", want: "pmid prose 12"},
		{name: "an address alone", text: "https://pubmed.ncbi.nlm.nih.gov/12/", want: ""},
		{name: "a field for PMIDs", field: "pmid", text: "PMID:12", want: ""},
		{name: "trials", text: "NCT02091141, (NCT02650401) nct02637687 NCT0209114 NCT-503 NCT1 NCT02091141x xNCT02091141", want: "nct prose NCT02091141 | nct prose NCT02650401 | nct prose <nct02637687> | nct prose <NCT0209114> | nct near <NCT1> | nct near <NCT02091141x>"},
		{name: "chemicals", text: "CHEBI:15377 [CHEBI:16236] chebi:1 CHEBI:012 CHEBI: CHEBI:12345678 CHEBI:7x", want: "chebi prose CHEBI:15377 | chebi prose CHEBI:16236 | chebi prose <chebi:1> | chebi prose <CHEBI:012> | chebi prose <CHEBI:12345678> | chebi near <CHEBI:7x>"},
		{name: "near misses", text: "NCT123 NCT 02091141 NCT: 02091141, nct1 NCT-503 NCT 503 NCTs NCT02O91141 NCT" + strings.Repeat("1", 30) + "x CHEBI:abc CHEBI 15377 CHEBI15377 chebi: the database, ChEBI has CHEBI", want: "nct near <NCT123> | nct near <NCT 02091141> | nct near <NCT: 02091141> | nct near <NCT02O91141> | chebi near <CHEBI:abc> | chebi near <CHEBI 15377> | chebi near <CHEBI15377>"},
		{name: "genes in markers", text: "[HGNC:TREM2] [HGNC:C9orf72, HLA-A, trem2] [HGNC:17761] TREM2", want: "gene marker TREM2 | gene marker C9orf72 | gene marker HLA-A | gene marker <trem2>"},
		{name: "a gene in a field", field: "target_gene", text: "TREM2", want: "gene field TREM2"},
		{name: "a gene in a symbol", field: "symbol", text: "HLA-DRB1", want: "gene field HLA-DRB1"},
		{name: "a DOI in a field", field: "doi", text: "10.1038/Nature11283", want: "doi field 10.1038/nature11283"},
		{name: "an address in a field for a DOI", field: "doi", text: "https://doi.org/10.1038/x", want: "doi field <https://doi.org/10.1038/x>"},
		{name: "an empty field", field: "doi", want: ""},
		{name: "not ASCII before", text: "éPMID 1 — PMID 2", want: "pmid prose 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := tt.field
			if name == "" {
				name = field
			}
			found, complete := artifact.FindCitations(contentOf(t, name, tt.text))
			if got := short(found); got != tt.want || !complete {
				t.Errorf("FindCitations(%q) = %s, %t, want %s", tt.text, got, complete, tt.want)
			}
		})
	}
}

func TestFindCitationsPaths(t *testing.T) {
	content := canonical(t, `{
		"a/b~": [1, {"x": ["[PMID:1]", "see \"[PMID:2]\" \u00e9 [PMID:3]"]}, []],
		"[PMID:9]": true, "doi": null, "n": {"doi": ["10.1038/a"], "symbol": "mg", "target_gene": "x"},
		"provenance": {"at": "pmid:10173769", "note": "[PMID:4]"}, "target_genes": ["APOE", "trem2"]}`)
	found, complete := artifact.FindCitations(content)
	if !complete {
		t.Error("FindCitations is not complete")
	}
	var got []string
	for _, c := range found {
		got = append(got, fmt.Sprintf("%s %d %s", c.Path, c.Offset, c.Text))
	}
	want := []string{
		"/a~1b~0/1/x/0 6 1", "/a~1b~0/1/x/1 11 2", "/a~1b~0/1/x/1 24 3",
		"/n/doi/0 0 10.1038/a", "/provenance/note 6 4", "/target_genes/0 0 APOE", "/target_genes/1 0 trem2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("FindCitations = %q, want %q", got, want)
	}
}

func TestFindCitationsBounds(t *testing.T) {
	t.Run("stops after so many", func(t *testing.T) {
		for n, want := range map[int]bool{artifact.MaxCitations: true, artifact.MaxCitations + 1: false} {
			found, complete := artifact.FindCitations(contentOf(t, "x", strings.Repeat("[PMID:1]", n)))
			if len(found) != artifact.MaxCitations || complete != want {
				t.Errorf("FindCitations of %d markers = %d, %t, want %d, %t", n, len(found), complete, artifact.MaxCitations, want)
			}
		}
	})
	t.Run("stops after so much of long paths", func(t *testing.T) {
		raw := `{"` + strings.Repeat("k", 100_000) + `":["[PMID:1]"` + strings.Repeat(`,"[PMID:1]"`, 5_000) + `]}`
		if found, complete := artifact.FindCitations(canonical(t, raw)); complete || len(found) > 100 {
			t.Errorf("FindCitations = %d, %t", len(found), complete)
		}
	})
	// What would be looked at again and again, were the scan not linear. A
	// quadratic one takes minutes.
	for _, unit := range []string{
		"[", "[PMID:", "[DOI:[", "[PMID:1](", "PMID ", "PMIDs 12345,", "[HGNC:1,", "[PMID: [x", "CHEBI:", "NCT", "pubmed/", "/med/", "[DOI:;", "\\", "[ \t", "]",
	} {
		t.Run("is linear in "+unit, func(t *testing.T) {
			content := contentOf(t, "x", strings.Repeat(unit, 900_000/(len(unit)+strings.Count(unit, `\`))/2))
			start := time.Now()
			artifact.FindCitations(content)
			if took := time.Since(start); took > time.Minute {
				t.Errorf("FindCitations took %v over %d bytes", took, len(content))
			}
		})
	}
}

func TestNormalize(t *testing.T) {
	tests := []struct {
		kind artifact.CitationKind
		good []string
		bad  []string
	}{
		{
			artifact.CitePMID,
			[]string{"1", "31452104", "99999999"},
			[]string{"", "0", "01", "123456789", "+1", "1 ", "1\n", "１", "1.0", "-1"},
		},
		{
			artifact.CiteDOI,
			[]string{"10.1038/nature11283", "10.1000.10/123", "10.123456789/x", "10.1002/(sici)1097(1996)60:3<1::aid>3.0.co;2-q", "10.1554/0014(2002)056[1902:pragva]2.0.co;2", "10.1038/" + strings.Repeat("x", 244)},
			[]string{"", "10.123/x", "10.1234567890/x", "10.1038/", "10.1038", "11.1038/x", "doi:10.1038/x", "10.1038/a b", "10.1038/a\"", "10.1038/é", "10.1038/a@b", "10.1038/" + strings.Repeat("x", 245), "10.1038/x\n"},
		},
		{
			artifact.CiteNCT,
			[]string{"NCT00000000", "NCT02091141"},
			[]string{"", "NCT0209114", "NCT020911411", "nct02091141", "NCT 02091141", "02091141"},
		},
		{
			artifact.CiteGene,
			[]string{"T", "TREM2", "HLA-DRB1", "C1orf112", "CXorf38", "C2orf27A", "ZHX1-C8orf76", "C15orf38-AP3S2", "MT-ND1", "NKX2-5", "TRNAV-UAC", "A1BG"},
			[]string{"", "trem2", "Trem2", "TREM2 ", "-A", "A-", "A--B", "2A", "HLA A", "C1ORF1x", "Corf1", "C123orf1", "IL2RΑ", "TREM2, APOE", strings.Repeat("A", 33)},
		},
		{
			artifact.CiteChEBI,
			[]string{"CHEBI:1", "CHEBI:15377", "CHEBI:1234567"},
			[]string{"", "CHEBI:", "CHEBI:0", "CHEBI:01", "chebi:1", "CHEBI:12345678", "15377", "CHEBI: 1"},
		},
		{"other", nil, []string{"", "1"}},
	}
	for _, tt := range tests {
		for _, s := range tt.good {
			want := s
			if tt.kind == artifact.CiteDOI {
				want = strings.ToLower(s)
			}
			if id, ok := tt.kind.Normalize(s); id != want || !ok {
				t.Errorf("%s.Normalize(%q) = %q, %t, want %q", tt.kind, s, id, ok, want)
			}
		}
		for _, s := range tt.bad {
			if id, ok := tt.kind.Normalize(s); id != "" || ok {
				t.Errorf("%s.Normalize(%q) = %q, %t, want none", tt.kind, s, id, ok)
			}
		}
	}
	if id, _ := artifact.CiteDOI.Normalize("10.1038/ABC"); id != "10.1038/abc" {
		t.Errorf("a DOI in capitals is %q", id)
	}
}

// FuzzFindCitations checks that every citation stands where it says, within
// bounds, with an ID that is normal; and that a well-formed marker put before
// any text is found in it.
func FuzzFindCitations(f *testing.F) {
	for _, s := range []string{
		"", "[PMID:1, DOI:10.1038/x[1]2; 3] PMID: 4", "PMIDs 12345 and 67890", "[PMID:1](https://pubmed.ncbi.nlm.nih.gov/1)",
		"CHEBI:1 NCT01234567 [HGNC:C1orf1]", "\xff[PMID:\x00", "europepmc.org/article/med/1",
	} {
		f.Add("doi", s)
		f.Add("mechanism", s)
	}
	f.Fuzz(func(t *testing.T, key, text string) {
		artifact.FindCitations([]byte(text)) // not JSON; it need not panic
		raw, err := json.Marshal(map[string]any{"l": []any{0, map[string]string{key: text}}, key: text, "~": "[PMID:77]\n" + text})
		if err != nil {
			t.Fatal(err)
		}
		content, problems := artifact.Canonical(raw, "")
		if problems != nil {
			return
		}
		var doc any
		if err := json.Unmarshal(content, &doc); err != nil {
			t.Fatal(err)
		}
		found, complete := artifact.FindCitations(content)
		if len(found) > artifact.MaxCitations {
			t.Fatalf("%d citations", len(found))
		}
		marked := false
		for _, c := range found {
			s, ok := textAt(doc, c.Path)
			if !ok || c.Offset < 0 || c.Offset+len(c.Text) > len(s) || s[c.Offset:c.Offset+len(c.Text)] != c.Text {
				t.Fatalf("%+v is not in %q", c, s)
			}
			if id, ok := c.Kind.Normalize(c.ID); c.ID != "" && (!ok || id != c.ID) {
				t.Fatalf("%+v: the id is not normal", c)
			}
			marked = marked || c.Path == "/~0" && c.ID == "77" && c.Placement == artifact.InMarker
		}
		if complete && key != "~" && !marked {
			t.Fatalf("FindCitations(%s) misses the marker", content)
		}
		all := make([]string, 0, 16)
		for _, g := range artifact.Guards() {
			all = append(all, g.Name)
		}
		n := artifact.Inspect(content, all, nil)
		n.Lookups()
		refused, shadowed := n.Check(nil, "/content")
		for _, p := range append(refused, shadowed...) {
			if !json.Valid(p.Value) && p.Value != nil || !json.Valid(p.Suggestion) && p.Suggestion != nil || p.Message == "" {
				t.Fatalf("%+v", p)
			}
		}
	})
}

// textAt returns the string at a JSON pointer.
func textAt(doc any, pointer string) (string, bool) {
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch v := doc.(type) {
		case map[string]any:
			doc = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i >= len(v) {
				return "", false
			}
			doc = v[i]
		}
	}
	s, ok := doc.(string)
	return s, ok
}

func BenchmarkFindCitations(b *testing.B) {
	text := strings.Repeat("Loss of TREM2 impairs phagocytosis in microglia, as PubMed has it [PMID:31452104]. ", 1000)
	raw, err := json.Marshal(map[string]string{"markdown": text})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		artifact.FindCitations(raw)
	}
}
