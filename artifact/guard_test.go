package artifact_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

func TestInspect(t *testing.T) {
	known := map[artifact.Lookup]bool{
		{Kind: artifact.CitePMID, ID: "1"}:                  true,
		{Kind: artifact.CiteDOI, ID: "10.1038/nature11283"}: true,
	}
	tests := []struct {
		name, guard, content string
		want                 []string // path, value → suggestion
		shadow               bool
	}{
		{
			name: "PMIDs that resolve", guard: artifact.GuardResolvePMID,
			content: `{"x":"[PMID:1] PMID: 2 https://pubmed.ncbi.nlm.nih.gov/3"}`,
		},
		{
			name: "PMIDs that do not resolve", guard: artifact.GuardResolvePMID,
			content: `{"x":["[PMID:1, 2]"],"y":"[PMID:002] [PMID:pmid:3] [PMID:x]"}`,
			want:    []string{`/content/x/0 "2"`, `/content/y "002" → "2"`, `/content/y "pmid:3" → "3"`, `/content/y "x"`},
		},
		{
			name: "DOIs", guard: artifact.GuardResolveDOI,
			content: `{"doi":"10.1038/none","x":"[DOI:10.1038/NATURE11283] [DOI:10.1038/x] [DOI:https://doi.org/10.1038/y]"}`,
			want:    []string{`/content/x "10.1038/x"`, `/content/x "https://doi.org/10.1038/y" → "10.1038/y"`},
		},
		{
			name: "bare PMIDs", guard: artifact.GuardInlinePMID, shadow: true,
			content: `{"x":"[PMID:9] PMID: 2, pubmed.ncbi.nlm.nih.gov/3 PMID 0"}`,
			want:    []string{`/content/x "PMID: 2" → "[PMID:2]"`, `/content/x "pubmed.ncbi.nlm.nih.gov/3" → "[PMID:3]"`, `/content/x "PMID 0"`},
		},
		{
			name: "DOI syntax", guard: artifact.GuardDOI,
			content: `{"doi":"doi:10.1038/x.","x":"[DOI:10.1/x] [DOI:10.1038/x]"}`,
			want:    []string{`/content/doi "doi:10.1038/x." → "10.1038/x"`, `/content/x "10.1/x"`},
		},
		{
			name: "trials", guard: artifact.GuardNCT,
			content: `{"x":"NCT02091141 nct02091142 NCT020911"}`,
			want:    []string{`/content/x "nct02091142" → "NCT02091142"`, `/content/x "NCT020911"`},
		},
		{
			name: "genes", guard: artifact.GuardGene,
			content: `{"symbol":" c9ORF72","target_gene":"trem2","target_genes":["APOE","?"],"x":"[HGNC:Apoe] tau"}`,
			want:    []string{`/content/symbol " c9ORF72" → "C9orf72"`, `/content/target_gene "trem2" → "TREM2"`, `/content/target_genes/1 "?"`, `/content/x "Apoe" → "APOE"`},
		},
		{
			name: "chemicals", guard: artifact.GuardChEBI,
			content: `{"x":"CHEBI:15377 chebi:015377"}`,
			want:    []string{`/content/x "chebi:015377" → "CHEBI:15377"`},
		},
		{
			name: "what looks like a trial", guard: artifact.GuardNCT, shadow: true,
			content: `{"x":"NCT123, NCT 02091141 and NCT02091141"}`,
			want:    []string{`/content/x "NCT123"`, `/content/x "NCT 02091141" → "NCT02091141"`},
		},
		{
			name: "what looks like a chemical", guard: artifact.GuardChEBI, shadow: true,
			content: `{"x":"CHEBI:abc, CHEBI 15377 and CHEBI:15377"}`,
			want:    []string{`/content/x "CHEBI:abc"`, `/content/x "CHEBI 15377" → "CHEBI:15377"`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := artifact.Inspect(canonical(t, tt.content), []string{tt.guard}, nil)
			refused, shadowed := n.Check(known, "/content")
			got, none := refused, shadowed
			if tt.shadow {
				got, none = none, got
			}
			if len(none) != 0 {
				t.Errorf("in the other mode: %v", none)
			}
			var texts []string
			for _, p := range got {
				text := p.Path + " " + string(p.Value)
				if p.Suggestion != nil {
					text += " → " + string(p.Suggestion)
				}
				texts = append(texts, text)
				if p.Constraint != tt.guard || p.Message == "" {
					t.Errorf("problem %+v, want constraint %s", p, tt.guard)
				}
			}
			if !slices.Equal(texts, tt.want) {
				t.Errorf("Check = %q, want %q", texts, tt.want)
			}
		})
	}
}

func TestInspectModes(t *testing.T) {
	content := canonical(t, `{"x":"[PMID:5] PMID: 6 [DOI:10.1038/x] [DOI:10.1038/X] [PMID:5]"}`)
	names := []string{artifact.GuardResolvePMID, artifact.GuardInlinePMID, "link_targets_exist", "unknown"}
	t.Run("asks for what is to be resolved, once", func(t *testing.T) {
		got := artifact.Inspect(content, append(names, artifact.GuardResolveDOI), nil).Lookups()
		want := []artifact.Lookup{{Kind: artifact.CitePMID, ID: "5"}, {Kind: artifact.CiteDOI, ID: "10.1038/x"}}
		if !slices.Equal(got, want) {
			t.Errorf("Lookups = %v, want %v", got, want)
		}
	})
	t.Run("swaps modes", func(t *testing.T) {
		refused, shadowed := artifact.Inspect(content, names, map[string]artifact.ValidatorMode{
			artifact.GuardResolvePMID: artifact.ModeShadow, artifact.GuardInlinePMID: artifact.ModeEnforce,
		}).Check(nil, "")
		if len(refused) != 1 || refused[0].Constraint != artifact.GuardInlinePMID || len(shadowed) != 2 {
			t.Errorf("Check = %v, %v", refused, shadowed)
		}
	})
	t.Run("is silent when off", func(t *testing.T) {
		n := artifact.Inspect(content, names[:1], map[string]artifact.ValidatorMode{artifact.GuardResolvePMID: artifact.ModeOff})
		if refused, shadowed := n.Check(nil, ""); refused != nil || shadowed != nil || n.Lookups() != nil {
			t.Errorf("Check = %v, %v", refused, shadowed)
		}
	})
	t.Run("refuses what it could not look through", func(t *testing.T) {
		n := artifact.Inspect(contentOf(t, "x", strings.Repeat("[PMID:1]", artifact.MaxCitations+1)), names[:1], nil)
		refused, _ := n.Check(map[artifact.Lookup]bool{{Kind: artifact.CitePMID, ID: "1"}: true}, "/content")
		if len(refused) != 1 || refused[0].Path != "/content" {
			t.Errorf("Check = %v", refused)
		}
	})
	t.Run("tells at most 100 faults", func(t *testing.T) {
		refused, _ := artifact.Inspect(contentOf(t, "x", strings.Repeat("[PMID:1]", 200)), names[:1], nil).Check(nil, "")
		if len(refused) != 100 {
			t.Errorf("Check: %d problems", len(refused))
		}
	})
}

func TestCheckValidators(t *testing.T) {
	var all []string
	for _, g := range artifact.Guards() {
		all = append(all, g.Name)
		if g.Doc == "" {
			t.Errorf("%s has no doc", g.Name)
		}
		if mode, err := artifact.ParseValidatorMode(string(g.Mode)); mode != g.Mode || err != nil {
			t.Errorf("%s: mode %q", g.Name, g.Mode)
		}
	}
	if got := artifact.CheckValidators(all, ""); got != nil {
		t.Errorf("CheckValidators of all = %v", got)
	}
	got := artifact.CheckValidators([]string{artifact.GuardNCT, "resolve_pmid_citation", "zzz", artifact.GuardNCT}, "/validators")
	var texts []string
	for _, p := range got {
		texts = append(texts, fmt.Sprintf("%s %s %s", p.Path, p.Constraint, p.Suggestion))
	}
	want := []string{`/validators/1 validator "resolve_pmid_citations"`, "/validators/2 validator ", "/validators/3 unique_items "}
	if !slices.Equal(texts, want) {
		t.Errorf("CheckValidators = %q, want %q", texts, want)
	}
}

func TestParseValidatorMode(t *testing.T) {
	for _, s := range []string{"enforce", "shadow", "off"} {
		if m, err := artifact.ParseValidatorMode(s); string(m) != s || err != nil {
			t.Errorf("ParseValidatorMode(%q) = %q, %v", s, m, err)
		}
	}
	_, err := artifact.ParseValidatorMode("shadw")
	var e *artifact.Error
	if !errors.As(err, &e) || len(e.Problems) != 1 || string(e.Problems[0].Suggestion) != `"shadow"` {
		t.Errorf("ParseValidatorMode(shadw) error = %v", err)
	}
}
