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
	{query: "APOE4", want: []string{"evidence:bel-c0e66a17fee47101ea33", "evidence:bel-b9fecddf21f65f3930bf"}},
	{query: "APOE 4", want: []string{"evidence:bel-66f68d1f0e18769f23f8", "evidence:bel-b9fecddf21f65f3930bf"}},
	{query: "Aβ42", want: []string{"evidence:bel-95581c3005ee28bbb03b", "hypothesis:ei-12548"}},
	{query: "Abeta42", want: []string{"evidence:bel-95581c3005ee28bbb03b", "hypothesis:ei-12548"}},
	{query: "abeta", want: []string{"evidence:bel-c18e2968e42be667b965", "evidence:bel-4bd8171abfc8708780e4"}},
	{query: "β-amyloid", want: []string{"evidence:bel-35681286e854da0d6202", "evidence:bel-9708f6c1c217c3bb0e76"}},
	{query: "beta-amyloid", want: []string{"evidence:bel-35681286e854da0d6202", "evidence:bel-9708f6c1c217c3bb0e76"}},
	{query: "\"beta amyloid\"", want: []string{"evidence:bel-a1a797f7b38f4df78468", "evidence:bel-35681286e854da0d6202"}},
	{query: "TNF-α", want: []string{"evidence:bel-7fdc5f3d439fce5a30f1", "hypothesis:ei-13297"}},
	{query: "TNFα", want: []string{"evidence:bel-7fdc5f3d439fce5a30f1", "hypothesis:ei-13297"}},
	{query: "TNF alpha", want: []string{"evidence:bel-7fdc5f3d439fce5a30f1", "evidence:bel-212e5a8be8490ec4f089"}},
	{query: "tnf-alpha", want: []string{"evidence:bel-7fdc5f3d439fce5a30f1", "hypothesis:ei-13297"}},
	{query: "NF-κB", want: []string{"hypothesis:bel-d27c60fe7a4d2b6e3e59", "hypothesis:bel-a586447cc8c5c25c2b7e"}},
	{query: "NFkB", want: []string{"hypothesis:bel-31f456f58587c35ca4b5", "hypothesis:bel-b9cd75cf41dc28b71911"}},
	{query: "p53", want: []string{"evidence:bel-8a5a4c871dc86b59d68b", "gene:TP53"}},
	{query: "TP53", types: []string{"gene"}, want: []string{"gene:TP53", "gene:TP53INP1"}},
	{query: "IL-6", want: []string{"gene:IL6", "evidence:bel-2b091a10ec8de80ccd63"}},
	{query: "IL6", want: []string{"gene:IL6", "evidence:bel-2b091a10ec8de80ccd63"}},
	{query: "5-HT", want: []string{"evidence:bel-b02a8251834e04953614", "evidence:bel-ad9344b35961bf305972"}},
	{query: "5HT1A", want: []string{"evidence:bel-b91a668602c15fd2dff3", "gene:HTR1A"}},
	{query: "Sjögren's syndrome", want: []string{"hypothesis:bel-54848a090da75cf00fe8", "hypothesis:bel-fb5136e055293f6718de"}},
	{query: "sjogren syndrome", want: []string{"hypothesis:bel-54848a090da75cf00fe8", "hypothesis:bel-fb5136e055293f6718de"}},
	{query: "PI3K/AKT", want: []string{"hypothesis:bel-fb4a18f49a2aca8c7437", "hypothesis:bel-81de75452922222a4fb8"}},
	{query: "α-synuclein", want: []string{"hypothesis:bel-a74d3755b101fc7b4def", "hypothesis:bel-e4b6ea1c9730f025f963"}},
	{query: "alpha synuclein aggregation", want: []string{"paper:doi-1fb415b1f851613c2376", "paper:doi-b96ffd5552401cf9a17d"}},
	{query: "γ-secretase inhibitor", want: []string{"paper:pmid-26064192", "evidence:bel-042ddf06241f3a41f796"}},
	{query: "semagacestat", want: []string{"paper:pmid-26064192"}},
	{query: "BRAF V600E melanoma", want: []string{"hypothesis:civic-b58142161edc2e5bd68d", "hypothesis:civic-61054ac4358077903ea8"}},
	{query: "IFN-γ", want: []string{"evidence:bel-47ca1c5cbdc67c4f0799", "evidence:bel-4dcd11e498be220f09be"}},
	{query: "IFN-gamma", want: []string{"evidence:bel-47ca1c5cbdc67c4f0799", "evidence:bel-4dcd11e498be220f09be"}},
	{query: "TGF-β", want: []string{"gene:TGFB1", "evidence:bel-a0c93fca0f7293607e10"}},
	{query: "C. elegans", want: []string{"gene:DPY19L3", "gene:LIN28B"}},
	{query: "CD4+ T lymphocytes", want: []string{"paper:pmid-29285227", "evidence:bel-3fbb5d3ad5488a3ee366"}},
	{query: "miR-124", want: []string{"hypothesis:bel-3b64e8df17bb17782f5b"}},
	{query: "miR-107 Alzheimer", want: []string{"hypothesis:bel-10a290fdcaf25a7740e1", "hypothesis:bel-3ec2e737fd78a7a02be8"}},
	{query: "HIF-1α", want: []string{"evidence:bel-55d995b00b1d6a62cb41", "hypothesis:bel-11f0de0ad820852d6b76"}},
	{query: "HIF1alpha", want: []string{"evidence:bel-55d995b00b1d6a62cb41", "hypothesis:bel-11f0de0ad820852d6b76"}},
	{query: "TREM2", want: []string{"gene:TREM2", "hypothesis:bel-1be8d098bed507e2dec6"}},
	{query: "TREM2 microglia", want: []string{"hypothesis:bel-c67cc3003eee7ec5a607", "evidence:bel-cb1d810f5f2c5e76acbc"}},
	{query: "SARS-CoV-2", want: []string{"paper:doi-0ffb8bb5e997f194295e", "paper:doi-7f491faf36e5c9db92d7"}},
	{query: "type 2 diabetes", want: []string{"disease:doid-9352", "hypothesis:pqa-15125825"}},
	{query: "vitamin D", want: []string{"hypothesis:ei-12778", "hypothesis:pqa-20684175"}},
	{query: "\"vitamin D\" -calcium", want: []string{"hypothesis:ei-12778", "hypothesis:pqa-20684175"}},
	{query: "omega-3", want: []string{"hypothesis:pqa-15208005", "evidence:pqa-15208005"}},
	{query: "lncRNA OR \"long non-coding RNA\"", want: []string{"paper:doi-2c8fe4ac8b845ffb5b0c", "evidence:bel-be3e2fc239468ad07814"}},
	{query: "CRISPR screen*", want: []string{"paper:doi-1309054f99b8b8c90d4b", "paper:doi-ee87a6ac6f15f8fc8b63"}},
	{query: "Neutralizing SARS-CoV-2", want: []string{"paper:doi-0ffb8bb5e997f194295e", "wiki_page:elife-64496"}},
	{query: "Pérez-Losada", want: []string{"paper:pmid-10828883"}},
	{query: "Perez Losada", want: []string{"paper:pmid-10828883"}},
	{query: "Dahlen", want: []string{"paper:pmid-15555571"}},
	{query: "A2M", want: []string{"gene:A2M", "hypothesis:bel-ab63355b75b58863388e"}},
	{query: "gene:A2M", want: []string{"gene:A2M", "evidence:bel-ee9319ff4e5a8443704e"}},
	{query: "PMID:11053064", want: []string{"paper:pmid-11053064"}},
	{query: "11053064", want: []string{"paper:pmid-11053064"}},
	{query: "Fatigue in primary Sjögren's syndrome: is there a link with the fibromyalgia syndrome?", want: []string{"hypothesis:pqa-11053064", "paper:pmid-11053064"}},
	{query: "10.1145/2976749.2978318", want: []string{"paper:doi-0015bba6dcebbd80f37e", "wiki_page:deep-review-06-6"}},
	{query: "hypothesis:pqa-11053064", want: []string{"hypothesis:pqa-11053064"}},
	{query: "Parkinson's disease", want: []string{"disease:doid-14330", "hypothesis:bel-7143345eeca54f7c46c5"}},
	{query: "neurodegenerat* tau", want: []string{"evidence:bel-07d6d173ee95c8b84682", "hypothesis:bel-69e4c76b917625fa7f32"}},
	{query: "H3K27me3", want: []string{"evidence:civic-eid10394", "evidence:civic-eid9412"}},
	{query: "ERα", want: []string{"evidence:bel-7a8c7bdb3ff4348eb6c8", "evidence:civic-eid9336"}},
	{query: "Differential Privacy", want: []string{"paper:doi-0015bba6dcebbd80f37e", "paper:doi-aebe80e51842afadc230"}},
	{query: "VHL", want: []string{"gene:VHL"}},
	{query: "Ca2+", want: []string{"evidence:bel-fe00d98063e444062eea", "evidence:bel-2ae2c425313fca6d2ac9"}},
	{query: "zzzz", none: true},
	{query: "mTOR autophagy", want: []string{"evidence:bel-056303bf10c1272419ee", "hypothesis:bel-0ca7bfe932c0902df0f8"}},
	{query: "KRAS G12D", want: []string{"hypothesis:civic-3dfaa5271c3be68ffe9e", "hypothesis:civic-05146464766f10d28f81"}},
	{query: "K-RAS", want: []string{"hypothesis:civic-75a75f3ce9053e3d5091", "hypothesis:civic-1915fd025953f0cd7f3d"}},
	{query: "rs1802295", want: []string{"evidence:gwas-01350d6a098eedd5bbd9"}},
	{query: "Guillain-Barre OR \"respiratory failure\"", types: []string{"paper"}, want: []string{"paper:pmid-29069260", "paper:pmid-21745374"}},
	{query: "ﬁbrosis", want: []string{"disease:doid-0050156", "hypothesis:bel-55f7aad85445a7c8ceae"}},
	{query: "\"non-small cell lung\" -gefitinib", want: []string{"hypothesis:pqa-16968876", "evidence:pqa-16968876"}},
	{query: "EGFR T790M resist*", want: []string{"hypothesis:civic-ffae2f6a6df554e554d1", "hypothesis:civic-17279605e0441f03c4a6"}},
	{query: "BACE1", want: []string{"gene:BACE1", "hypothesis:bel-eb68bec2832364268e47"}},
	{query: "β-secretase", want: []string{"evidence:bel-c7f138e3a370413eb45e", "evidence:bel-0d22c6250b2d3f097e77"}},
	{query: "disease:doid-14330", want: []string{"disease:doid-14330"}},
}
