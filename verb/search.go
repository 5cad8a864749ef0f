package verb

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/query"
)

// Search finds artifacts by words.
var Search = Verb[SearchRequest, SearchResponse]{
	Name:    "search",
	Summary: "Find current artifacts by words, and by meaning where a model is configured, best first. What was written is found by its words at once.",
	Effect:  Read,
	Needs:   toRead,
}

// Modes of a search.
const (
	SearchAuto       = "auto"
	SearchLexical    = "lexical"
	SearchSemantic   = "semantic"
	SearchHybrid     = "hybrid"
	SearchStructured = "structured"
)

var searchModes = []string{SearchAuto, SearchLexical, SearchSemantic, SearchHybrid, SearchStructured}

// Limits of a search.
const (
	MaxSearchDepth  = 1000 // hits that its pages lead to
	MaxSearchTypes  = 50
	MaxFacets       = 8
	MaxFacetValues  = 50
	MaxFacetMatches = 10_000 // matches that are counted
)

// searchFacets are what hits can be counted by.
var searchFacets = []string{"type", "state", "scope"}

// SearchRequest asks for what holds some words.
type SearchRequest struct {
	Query          string          `json:"query,omitempty" jsonschema:"words that must all be there; \"quotes\" for a phrase, OR between alternatives, a minus before what must not be there, a star after the beginning of a word; at most 4096 bytes; in every mode but structured"`
	Types          []string        `json:"types,omitempty" jsonschema:"registered artifact types; absent for all"`
	Scope          string          `json:"scope,omitempty" jsonschema:"one scope; absent for all that you may see"`
	Filter         json.RawMessage `json:"filter,omitempty" jsonschema:"condition on the artifacts, as list takes it"`
	Mode           string          `json:"mode,omitempty" jsonschema:"auto (the default: hybrid where vectors are ready, else lexical), lexical (by words), semantic (the 100 nearest by meaning), hybrid (both, by the ranks that they have in each), or structured, which asks for a filter and no words; mode_used tells what ran"`
	Limit          int             `json:"limit,omitempty" jsonschema:"hits a page, 1 to 200; the default is 50"`
	Cursor         string          `json:"cursor,omitempty" jsonschema:"next_cursor of the page before, from a request alike but for the cursor; pages lead to the first 1000 hits"`
	Rerank         bool            `json:"rerank,omitempty" jsonschema:"true has a model order the first 50 hits anew, where one is configured; reranked tells how many it ordered"`
	Highlight      bool            `json:"highlight,omitempty" jsonschema:"true adds where the words stand"`
	Facets         []string        `json:"facets,omitempty" jsonschema:"what to count the hits by: type, state, scope"`
	IncludeContent bool            `json:"include_content,omitempty" jsonschema:"true adds each artifact's content"`
}

// SearchResponse is a page of hits, the best first, ties by ref.
type SearchResponse struct {
	Hits       []SearchHit             `json:"hits" jsonschema:"the page, the best first, ties by ref"`
	NextCursor string                  `json:"next_cursor,omitempty"` // absent on the last page
	ModeUsed   string                  `json:"mode_used" jsonschema:"what ran"`
	Reranked   int                     `json:"reranked,omitempty" jsonschema:"how many of the first hits a model ordered; absent for none"`
	Degraded   []Degradation           `json:"degraded" jsonschema:"in what ways the answer is less than was asked for; empty when it is not"`
	Facets     map[string][]FacetCount `json:"facets,omitempty" jsonschema:"by what was counted: each value with its count of all hits, the commonest first"`
	AsOf       artifact.Seq            `json:"as_of"`
	Warnings   []artifact.Problem      `json:"warnings" jsonschema:"what made the search slow: undeclared_facet and facet_building; and where hits or counts end early: depth and capped"`
}

// A SearchHit is an artifact that was found.
type SearchHit struct {
	Artifact   artifact.Artifact    `json:"artifact"`
	Score      float64              `json:"score" jsonschema:"higher is better; scores of one answer compare, those of several do not; by meaning it is the cosine, of hybrid and of reranked answers it is made of ranks"`
	Highlights []analysis.Highlight `json:"highlights,omitempty" jsonschema:"where the words stand, of at most 5 texts"`
}

// A Degradation says in what way an answer is less than was asked for.
type Degradation struct {
	Reason  string   `json:"reason" jsonschema:"index_building; or why the search was not by meaning too: embeddings_building, not_configured (at a node that has vectors and no endpoint), model_unavailable; or why the hits were not ordered anew: rerank_unavailable"`
	Message string   `json:"message"`
	Types   []string `json:"types,omitempty" jsonschema:"of which not all artifacts are indexed yet"`
}

// A FacetCount is how many hits have one value.
type FacetCount struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// IndexBuilding tells that artifacts of some types are not all indexed yet.
func IndexBuilding(types []string) Degradation {
	return Degradation{Reason: "index_building", Message: "not all artifacts of these types are indexed yet; it goes on by itself", Types: types}
}

// A SearchPlan is a request that was checked.
type SearchPlan struct {
	*SearchRequest
	Words  *analysis.Query // nil in the mode structured
	Where  *query.Filter   // nil for none
	Type   string          // the one type of all that is found; "" for several
	Size   int             // hits on the page
	Offset int             // hits before it
	// Slow are the warnings of what the filter asks contents for, one by one.
	Slow   []artifact.Problem
	filter string
}

// Plan checks a request. Schema returns the schema of a type, nil for one that there
// is not; types returns those that there are.
func (r *SearchRequest) Plan(schema func(typ string) *artifact.Schema, types func() []string) (*SearchPlan, error) {
	p := &SearchPlan{SearchRequest: r}
	known := types()
	var problems []artifact.Problem
	collect := func(err error) {
		if err != nil {
			problems = append(problems, artifact.AsError(err).Problems...)
		}
	}
	var err error
	filter, faults := query.Parse(r.Filter, "/filter")
	p.Where, problems = filter, append(problems, faults...)
	switch structured := r.Mode == SearchStructured; {
	case !structured:
		p.Words, err = analysis.Parse(r.Query, "/query")
		collect(err)
	case r.Query != "":
		problems = append(problems, artifact.Problem{Path: "/query", Constraint: "structured", Message: "a structured search has a filter and no words"})
	case filter == nil && faults == nil:
		problems = append(problems, artifact.Problem{Path: "/filter", Constraint: "required", Message: "a structured search has a filter"})
	}
	p.Size, err = PageSize(r.Limit)
	collect(err)
	if r.Mode != "" && !slices.Contains(searchModes, r.Mode) {
		problems = append(problems, notOneOf(r.Mode, searchModes, "/mode"))
	}
	if len(r.Types) > MaxSearchTypes {
		problems = append(problems, artifact.Problem{Path: "/types", Constraint: "max_items", Message: fmt.Sprintf("at most %d types", MaxSearchTypes)})
	} else {
		for i, typ := range r.Types {
			if !slices.Contains(known, typ) {
				problems = append(problems, artifact.UnknownType(typ, known, "/types/"+strconv.Itoa(i)))
			}
		}
	}
	if len(r.Facets) > MaxFacets {
		problems = append(problems, artifact.Problem{Path: "/facets", Constraint: "max_items", Message: fmt.Sprintf("at most %d facets", MaxFacets)})
	} else {
		for i, facet := range r.Facets {
			if !slices.Contains(searchFacets, facet) {
				problems = append(problems, notOneOf(facet, searchFacets, "/facets/"+strconv.Itoa(i)))
			}
		}
	}
	if r.Rerank && r.Mode == SearchStructured {
		problems = append(problems, artifact.Problem{Path: "/rerank", Constraint: "structured", Message: "a structured search has no words to order its hits by"})
	}
	if p.Type = filter.Type(); len(r.Types) == 1 {
		p.Type = r.Types[0]
	}
	if s := schema(p.Type); s == nil {
		p.Type = "" // of which there is nothing
	} else {
		problems = append(problems, filter.Check(s)...)
	}
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	p.filter = r.hits()
	p.Offset, err = decodeOffset(r.Cursor, p.filter)
	return p, err
}

// hits says what decides which artifacts are found, and in what order.
func (r *SearchRequest) hits() string {
	same := *r
	same.Limit, same.Cursor, same.Highlight, same.IncludeContent, same.Facets = 0, "", false, false, nil
	if filter, faults := query.Parse(r.Filter, ""); faults == nil {
		same.Filter = filter.Canonical()
	}
	raw, err := json.Marshal(same)
	if err != nil { // a struct of texts and JSON that was read
		return ""
	}
	return "search " + string(raw)
}

// After returns the cursor of the page that begins after so many hits.
func (r *SearchRequest) After(hits int) string { return encodeOffset(hits, r.hits()) }

func notOneOf(got string, known []string, at string) artifact.Problem {
	return artifact.Problem{
		Path: at, Constraint: "enum", Message: "one of: " + strings.Join(known, ", "), Value: artifact.Received(got), Suggestion: artifact.Suggest(got, known),
	}
}

// Indexed notes which pointers declared ones are, and whether the facets of the type
// are still made.
func (p *SearchPlan) Indexed(declared func(path string) bool, building bool) {
	p.Slow = unindexed(p.Type, p.Where, "/filter", declared, building)
}

// ReadSize is how many hits to read for the page: one more tells whether another
// follows.
func (p *SearchPlan) ReadSize() int { return p.Size + 1 }

// Finish cuts the hits that were read to the page, and adds the cursor of the next one.
func (p *SearchPlan) Finish(out *SearchResponse) {
	if p.Words == nil {
		out.ModeUsed = SearchStructured
	} else if out.ModeUsed == "" {
		out.ModeUsed = SearchLexical
	}
	if out.Degraded == nil {
		out.Degraded = []Degradation{}
	}
	if out.Hits == nil {
		out.Hits = []SearchHit{}
	}
	out.Warnings = append([]artifact.Problem{}, p.Slow...)
	if len(out.Hits) <= p.Size {
		return
	}
	out.Hits = out.Hits[:p.Size]
	if next := p.Offset + p.Size; next < MaxSearchDepth {
		out.NextCursor = encodeOffset(next, p.filter)
		return
	}
	out.Warnings = append(out.Warnings, artifact.Problem{
		Path: "/query", Constraint: "depth", Message: fmt.Sprintf("there are more than %d hits, and pages lead no further: ask for less", MaxSearchDepth),
	})
}

type offsetCursor struct {
	Version int    `json:"v"`
	Offset  int    `json:"o"`
	Filter  string `json:"f"`
}

func encodeOffset(offset int, filter string) string {
	raw, err := json.Marshal(offsetCursor{cursorVersion, offset, filterHash(filter)})
	if err != nil { // a struct of numbers and strings
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

func decodeOffset(s, filter string) (int, error) {
	if s == "" {
		return 0, nil
	}
	var c offsetCursor
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	switch {
	case len(s) > maxCursor || err != nil || json.Unmarshal(raw, &c) != nil || c.Version != cursorVersion || c.Offset < 1 || c.Offset >= MaxSearchDepth:
		return 0, invalidCursor(s, "it was not given by search")
	case c.Filter != filterHash(filter):
		return 0, invalidCursor(s, "it is from another search")
	}
	return c.Offset, nil
}

// SortFacet puts the commonest values first and drops those beyond the limit.
func SortFacet(counts []FacetCount) []FacetCount {
	slices.SortFunc(counts, func(a, b FacetCount) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Value, b.Value)
	})
	return counts[:min(len(counts), MaxFacetValues)]
}

// A FacetCounter counts hits by what was asked for.
type FacetCounter struct {
	plan   *SearchPlan
	counts map[string]map[string]int
	n      int
}

// NewFacetCounter returns a counter of a search's facets.
func NewFacetCounter(p *SearchPlan) *FacetCounter {
	f := &FacetCounter{plan: p, counts: make(map[string]map[string]int)}
	for _, facet := range p.Facets {
		f.counts[facet] = make(map[string]int)
	}
	return f
}

// Add counts one hit, unless enough were counted.
func (f *FacetCounter) Add(typ, state, scope string) {
	if f.n++; f.n > MaxFacetMatches {
		return
	}
	for facet, counts := range f.counts {
		value := typ
		switch facet {
		case "state":
			value = state
		case "scope":
			value = scope
		}
		if value != "" {
			counts[value]++
		}
	}
}

// Finish adds the counts to an answer, and whether they are of all hits.
func (f *FacetCounter) Finish(out *SearchResponse) {
	out.Facets = make(map[string][]FacetCount, len(f.counts))
	for facet, counts := range f.counts {
		list := make([]FacetCount, 0, len(counts))
		for value, n := range counts {
			list = append(list, FacetCount{value, n})
		}
		out.Facets[facet] = SortFacet(list)
	}
	if f.n > MaxFacetMatches {
		out.Warnings = append(out.Warnings, artifact.Problem{
			Path: "/facets", Constraint: "capped", Message: fmt.Sprintf("the counts are of %d of the hits: there are more", MaxFacetMatches),
		})
	}
}
