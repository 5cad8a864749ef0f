package hub_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// TestGenes checks gene symbols against the genes that are here.
func TestGenes(t *testing.T) {
	f := twoLabs(t)
	ada := f.member(t.Context(), "ada", verb.Contributor)
	claim := func(scope, gene, text string) verb.CreateRequest {
		fields := map[string]any{"statement": text}
		if gene != "" {
			fields["target_gene"] = gene
		}
		return verb.CreateRequest{Type: "hypothesis", Scope: scope, Title: "T", Content: content(fields)}
	}
	gene := func(scope, symbol string) verb.CreateRequest {
		return verb.CreateRequest{Type: "gene", ID: symbol, Scope: scope, Title: symbol, Content: content(map[string]any{"symbol": symbol})}
	}
	warned := func(name string, in verb.CreateRequest, paths ...string) {
		t.Helper()
		out, err := verb.Create.Call(ada, f.verbs, in)
		if err != nil || len(out.Warnings) != len(paths) {
			t.Fatalf("%s = %+v, %v; want %d warnings", name, out.Warnings, err, len(paths))
		}
		for i, path := range paths {
			if out.Warnings[i].Constraint != artifact.GuardResolveGene || out.Warnings[i].Path != path {
				t.Errorf("%s: warned of %+v, want %s", name, out.Warnings[i], path)
			}
		}
	}
	warned("while there are no genes", claim("", "TREM2", "x"))
	if _, err := verb.Create.Call(ada, f.verbs, gene("lab-a", "APP")); err != nil {
		t.Fatal(err)
	}
	warned("while there are none but a lab's", claim("", "TREM2", "x"))
	f.mustCreate(t, gene("", "TREM2"))
	warned("a gene that is here", claim("", "TREM2", "As [HGNC:TREM2]."))
	warned("a gene that is not", claim("", "TREM3", "As [HGNC:TREM2]."), "/content/target_gene")
	warned("one in a marker that is not", claim("", "", "As [HGNC:TREM3]."), "/content/statement")
	warned("a lab's gene in commons", claim("", "APP", "x"), "/content/target_gene")
	warned("a lab's gene in the lab", claim("lab-a", "APP", "As [HGNC:TREM2]."))
	if _, err := verb.Create.Call(ada, f.verbs, claim("", "trem2", "x")); code(err) != "validation_failed" {
		t.Errorf("a symbol that is none = %v", err)
	}
	made, after := gene("", "APOE"), claim("", "APOE", "x")
	out, err := verb.Batch.Call(ada, f.verbs, verb.BatchRequest{Items: []verb.BatchItem{{Create: &made}, {Create: &after}}, Atomic: true})
	if err != nil || !out.Committed || len(out.Items[1].Write.Warnings) != 0 {
		t.Errorf("one that the batch made before = %+v, %v", out, err)
	}
}

// TestFormerGeneNames: who names a gene by a name that it had is told its symbol.
func TestFormerGeneNames(t *testing.T) {
	f := twoLabs(t)
	ada := f.member(t.Context(), "ada", verb.Contributor)
	gene := func(scope, symbol string, synonyms ...string) verb.CreateRequest {
		return verb.CreateRequest{Type: "gene", ID: symbol, Scope: scope, Title: symbol, Content: content(map[string]any{"symbol": symbol, "synonyms": synonyms})}
	}
	claim := verb.CreateRequest{Type: "hypothesis", Title: "T", Content: content(map[string]any{"target_gene": "PLOSL2", "statement": "As [HGNC:OLD1] and [HGNC:GONE]."})}
	warnings := func(scope string) string {
		t.Helper()
		in := claim
		in.Scope, in.DryRun = scope, true
		out, err := verb.Create.Call(ada, f.verbs, in)
		if err != nil {
			t.Fatal(err)
		}
		return told(slices.DeleteFunc(out.Warnings, func(p artifact.Problem) bool { return p.Constraint == "dry_run" }))
	}
	f.mustCreate(t, gene("", "TREM2", "PLOSL2", "TREM-2"))
	old := f.mustCreate(t, gene("", "NEW1", "OLD1"))
	if _, err := verb.Create.Call(ada, f.verbs, gene("lab-a", "SECRET", "GONE")); err != nil {
		t.Fatal(err)
	}
	const missing = "/content/statement resolve_gene_symbols, "
	const inCommons = `/content/statement resolve_gene_symbols "NEW1", ` + missing + `/content/target_gene resolve_gene_symbols "TREM2"`
	if got := warnings(""); got != inCommons {
		t.Errorf("warnings = %s, want %s", got, inCommons)
	}
	if got, want := warnings("lab-a"), strings.Replace(inCommons, missing, `/content/statement resolve_gene_symbols "SECRET", `, 1); got != want {
		t.Errorf("in the lab: warnings = %s, want %s", got, want)
	}
	if _, err := verb.Update.Call(ada, f.verbs, verb.UpdateRequest{Ref: "gene:NEW1", BaseContentHash: old.ContentHash, MergePatch: json.RawMessage(`{"synonyms":["OTHER"]}`)}); err != nil {
		t.Fatal(err)
	}
	if got, want := warnings(""), strings.Replace(inCommons, ` "NEW1"`, "", 1); got != want {
		t.Errorf("once the name is none of it: warnings = %s, want %s", got, want)
	}
	made := gene("", "NEW2", "OLD1")
	out, err := verb.Batch.Call(ada, f.verbs, verb.BatchRequest{Items: []verb.BatchItem{{Create: &made}, {Create: &claim}}, DryRun: true})
	if err != nil || !strings.Contains(told(out.Items[1].Write.Warnings), `"NEW2"`) {
		t.Errorf("of a gene that the batch made before: %+v, %v", out, err)
	}
}
