package node_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/verb"
)

// loadReal writes the real artifacts, without links and signals, and brings them to
// the store.
func (w *twin) loadReal(t *testing.T) {
	t.Helper()
	dir := os.Getenv("SCIDEX_TEST_DATA")
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if dir == "" || err != nil || len(files) == 0 {
		t.Skip("no real data: set SCIDEX_TEST_DATA")
	}
	root := w.atHub(t.Context(), "root", verb.Admin, verb.Contributor)
	var items []verb.BatchItem
	size := 0
	send := func() {
		out := mustCall(t, root, w.verbs, verb.Batch, verb.BatchRequest{Items: items, Import: true})
		for i, it := range out.Items {
			if it.Error != nil {
				t.Fatalf("%s %s: %v", items[i].Create.Type, items[i].Create.ID, it.Error)
			}
		}
		items, size = nil, 0
		w.catchUp(t)
	}
	for _, name := range files {
		if strings.HasPrefix(filepath.Base(name), "signal") {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var in verb.CreateRequest
			var line struct {
				Type, ID, Title string
				Content         json.RawMessage
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			in.Type, in.ID, in.Title, in.Content = line.Type, line.ID, line.Title, line.Content
			items, size = append(items, verb.BatchItem{Create: &in}), size+len(lines.Bytes())
			if len(items) == 500 || size > 4<<20 {
				send()
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	send()
}

// found returns the refs of all hits of a search, page by page, in order.
func found(t *testing.T, call func(verb.SearchRequest) verb.SearchResponse, in verb.SearchRequest) (refs []string) {
	t.Helper()
	in.Limit = verb.MaxPage
	for {
		out := call(in)
		if len(out.Degraded) > 0 {
			t.Fatalf("search %q is degraded: %+v", in.Query, out.Degraded)
		}
		for _, hit := range out.Hits {
			refs = append(refs, hit.Artifact.Ref.Current().String())
		}
		if in.Cursor = out.NextCursor; in.Cursor == "" {
			return refs
		}
	}
}

func TestSearchOfRealData(t *testing.T) {
	w := newTwin(t, "commons")
	w.loadReal(t)
	atHub, atNode := w.atHub(t.Context(), "ada", verb.Viewer), w.atNode(t.Context(), "ada", verb.Viewer)
	hub := func(in verb.SearchRequest) verb.SearchResponse { return mustCall(t, atHub, w.verbs, verb.Search, in) }
	node := func(in verb.SearchRequest) verb.SearchResponse { return mustCall(t, atNode, w.reads, verb.Search, in) }
	for _, test := range realQueries {
		in := verb.SearchRequest{Query: test.query, Types: test.types}
		a, b := found(t, hub, in), found(t, node, in)
		if os.Getenv("SHOW") != "" {
			t.Logf("## %s: %d %d\n   hub  %v\n   node %v", test.query, len(a), len(b), a[:min(10, len(a))], b[:min(10, len(b))])
		}
		for name, refs := range map[string][]string{"hub": a, "node": b} {
			for _, want := range test.want {
				if !slices.Contains(refs[:min(10, len(refs))], want) {
					t.Errorf("%s: %q does not find %s among the first ten: it is number %d of %d; %v", name, test.query, want, slices.Index(refs, want)+1, len(refs), refs[:min(10, len(refs))])
				}
			}
			if test.none && len(refs) > 0 {
				t.Errorf("%s: %q finds %v", name, test.query, refs)
			}
		}
		if len(a) < verb.MaxSearchDepth && len(b) < verb.MaxSearchDepth {
			slices.Sort(a)
			slices.Sort(b)
			if !slices.Equal(a, b) {
				t.Errorf("%q: the hub finds %d, the node %d", test.query, len(a), len(b))
			}
		}
	}
}

var realQueries = []struct {
	query string
	types []string
	want  []string
	none  bool
}{
	{query: "APOE4"}, {query: "APOE 4"}, {query: "Aβ42"}, {query: "Abeta42"}, {query: "abeta"}, {query: "β-amyloid"}, {query: "beta-amyloid"}, {query: `"beta amyloid"`},
	{query: "TNF-α"}, {query: "TNFα"}, {query: "TNF alpha"}, {query: "tnf-alpha"}, {query: "NF-κB"}, {query: "NFkB"}, {query: "p53"}, {query: "TP53", types: []string{"gene"}}, {query: "IL-6"}, {query: "IL6"},
	{query: "5-HT"}, {query: "5HT1A"}, {query: "Sjögren's syndrome"}, {query: "sjogren syndrome"}, {query: "PI3K/AKT"}, {query: "α-synuclein"}, {query: "alpha synuclein aggregation"}, {query: "γ-secretase inhibitor"}, {query: "semagacestat"},
	{query: "BRAF V600E melanoma"}, {query: "IFN-γ"}, {query: "IFN-gamma"}, {query: "TGF-β"}, {query: "C. elegans"}, {query: "CD4+ T lymphocytes"}, {query: "miR-124"}, {query: "miR-107 Alzheimer"}, {query: "HIF-1α"}, {query: "HIF1alpha"},
	{query: "TREM2"}, {query: "TREM2 microglia"}, {query: "SARS-CoV-2"}, {query: "type 2 diabetes"}, {query: "vitamin D"}, {query: `"vitamin D" -calcium`}, {query: "omega-3"}, {query: "lncRNA OR \"long non-coding RNA\""}, {query: "CRISPR screen*"}, {query: "Neutralizing SARS-CoV-2"},
	{query: "Pérez-Losada"}, {query: "Perez Losada"}, {query: "Dahlen"}, {query: "A2M"}, {query: "gene:A2M"}, {query: "PMID:11053064"}, {query: "11053064"}, {query: "10.1145/2976749.2978318"}, {query: "hypothesis:pqa-11053064"},
	{query: "Parkinson's disease"}, {query: "parkinsons"}, {query: "neurodegenerat* tau"}, {query: "H3K27me3"}, {query: "ERα"}, {query: "fibroblast ﬁb"}, {query: "Differential Privacy"}, {query: "VHL"}, {query: "Ca2+"}, {query: "zzzz", none: true},
}
