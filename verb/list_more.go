package verb

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/scidex-ai/substrate/artifact"
)

// LinksInList is how many links of each artifact and direction list answers when it is
// not told, and MaxLinksInList the most.
const (
	LinksInList    = 3
	MaxLinksInList = LinksInGet
)

// ListedLinks are the first links of one artifact of a page.
type ListedLinks struct {
	Ref   string     `json:"ref"` // type:id of the artifact
	Links []LinkItem `json:"links" jsonschema:"out first, by predicate and the other end, as the verb links has them"`
	More  []string   `json:"more" jsonschema:"directions, out and in, in which there are more, which the verb links lists"`
}

// ListedSignals are what was made of the signals of one artifact of a page.
type ListedSignals struct {
	Ref     string                   `json:"ref"` // type:id of the artifact
	Signals []artifact.SignalSummary `json:"signals"`
}

// WithLinks reports whether the artifacts' links are asked for.
func (r *ListRequest) WithLinks() bool {
	return r.IncludeLinks || r.LinkLimit != 0 || len(r.LinkPredicates) > 0
}

// LinksEach returns how many links of each artifact and direction are asked for.
func (r *ListRequest) LinksEach() int {
	if r.LinkLimit == 0 {
		return LinksInList
	}
	return r.LinkLimit
}

// checkMore returns what is wrong with what is asked for beside the artifacts.
func (r *ListRequest) checkMore() (problems []artifact.Problem) {
	if r.LinkLimit < 0 || r.LinkLimit > MaxLinksInList {
		problems = append(problems, artifact.Problem{
			Path: "/link_limit", Constraint: "range", Message: fmt.Sprintf("1 to %d links of each artifact and direction", MaxLinksInList),
			Value: json.RawMessage(strconv.Itoa(r.LinkLimit)),
		})
	}
	return append(problems, tooMany("/link_predicates", len(r.LinkPredicates), maxLinkKeys)...)
}

// PlaceLinks begins the links of a page, for [ListResponse.AddLink] to fill.
func (r *ListResponse) PlaceLinks() {
	r.Links = make([]ListedLinks, len(r.Artifacts))
	for i := range r.Artifacts {
		r.Links[i] = ListedLinks{Ref: r.Artifacts[i].Ref.Current().String(), Links: []LinkItem{}, More: []string{}}
	}
}

// AddLink adds a link to those of an artifact of the page, of which one more than each
// is read in a direction.
func (r *ListResponse) AddLink(of int, l LinkItem, each int) {
	in, n := &r.Links[of], 0
	for i := range in.Links {
		if in.Links[i].Direction == l.Direction {
			n++
		}
	}
	if n == each {
		in.More = append(in.More, l.Direction)
		return
	}
	if l.EvidenceRefs == nil {
		l.EvidenceRefs = []string{}
	}
	in.Links = append(in.Links, l)
}

// PlaceSignals fills in what was made of signals. Schema returns the schema of a type,
// groups those of the artifacts of the page, and duels those of the types that have
// any.
func (r *ListResponse) PlaceSignals(schema func(typ string) *artifact.Schema, groups map[int][]artifact.SignalGroup, duels map[string]artifact.Duels, in *SignalsRequest) {
	r.Signals = make([]ListedSignals, len(r.Artifacts))
	for i := range r.Artifacts {
		ref := r.Artifacts[i].Ref.Current()
		r.Signals[i] = ListedSignals{Ref: ref.String(), Signals: []artifact.SignalSummary{}}
		if s := schema(ref.Type); s != nil {
			r.Signals[i].Signals = s.SummarizeSignals(ref.String(), groups[i], duels[ref.Type], *in.At)
		}
	}
}
