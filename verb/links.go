package verb

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// Links reads what an artifact is linked to.
var Links = Verb[LinksRequest, LinksResponse]{
	Name:    "links",
	Summary: "List the links from and to an artifact, a link or a signal, page by page, and how many there are by predicate.",
	Effect:  Read,
	Needs:   toRead,
}

// Directions of links, as seen from one end.
const (
	DirectionOut  = "out"
	DirectionIn   = "in"
	DirectionBoth = "both"
)

var directions = []string{DirectionOut, DirectionIn, DirectionBoth}

// Bounds of links.
const (
	// MaxLinkCount is as far as links of one predicate and direction are counted.
	MaxLinkCount = 1000
	// LinksInGet is how many links of each direction get answers.
	LinksInGet  = 25
	maxLinkKeys = 100 // predicates, or types, of a request
)

// LinksRequest names one end. Links are on it and not on a version: the hash of a
// pinned ref counts for nothing.
type LinksRequest struct {
	Ref            artifact.Ref `json:"ref" jsonschema:"type:id of the artifact; kg_edge:<id> of a link or signal:<id> of a signal, on which there are comments"`
	Direction      string       `json:"direction,omitempty" jsonschema:"out for links that lead from it, in for those that lead to it, both, the default, for all, out first"`
	Predicates     []string     `json:"predicates,omitempty" jsonschema:"predicates, such as supports; absent for all"`
	Types          []string     `json:"types,omitempty" jsonschema:"types of the other end; absent for all"`
	IncludeTargets bool         `json:"include_targets,omitempty" jsonschema:"true adds the title and state of the artifact at the other end"`
	Limit          int          `json:"limit,omitempty" jsonschema:"links a page, 1 to 200; the default is 50"`
	Cursor         string       `json:"cursor,omitempty" jsonschema:"next_cursor of the page before, from a request alike but for limit, include_targets and the cursor"`
}

// LinksResponse is a page of links: by direction, out first, predicate, the other
// end's type and id, and the link's id.
type LinksResponse struct {
	Ref        string       `json:"ref"` // type:id
	Links      []LinkItem   `json:"links"`
	Counts     []LinkCount  `json:"counts,omitempty" jsonschema:"how many all pages hold, by direction and predicate; on the first page alone"`
	NextCursor string       `json:"next_cursor,omitempty"` // absent on the last page
	AsOf       artifact.Seq `json:"as_of"`
}

// A LinkItem is a link as seen from one of its ends.
type LinkItem struct {
	Ref          string          `json:"ref"` // kg_edge:<id>
	Direction    string          `json:"direction" jsonschema:"out or in, as seen from the ref that was asked for"`
	Predicate    string          `json:"predicate"`
	From         string          `json:"from"`
	To           string          `json:"to"` // as given: pinned where it names a version
	Scope        string          `json:"scope"`
	EvidenceRefs []string        `json:"evidence_refs" jsonschema:"refs that back the link"`
	Evidence     json.RawMessage `json:"evidence" jsonschema:"an object that says more, or null"`
	CreatedAt    time.Time       `json:"created_at"`
	CreatedBy    string          `json:"created_by"`
	Target       *LinkTarget     `json:"target,omitempty" jsonschema:"the current version of the artifact at the other end, where that is asked for and is an artifact"`
}

// A LinkTarget is the head of what is at the other end.
type LinkTarget struct {
	Ref          artifact.Ref `json:"ref"` // of the current version
	Type         string       `json:"type"`
	Title        string       `json:"title"`
	State        string       `json:"state,omitempty"`
	Revision     int          `json:"revision"`
	IsLatest     bool         `json:"is_latest"`
	SupersededBy string       `json:"superseded_by,omitempty"`
}

// A LinkCount is how many links of a direction and predicate there are.
type LinkCount struct {
	Direction string `json:"direction" jsonschema:"out or in"`
	Predicate string `json:"predicate"`
	Count     int    `json:"count"`
	More      bool   `json:"more,omitempty" jsonschema:"true: there are more than 1000, and no further is counted"`
}

// Counted returns the count of n links, which were counted to one more than
// [MaxLinkCount].
func Counted(direction, predicate string, n int) LinkCount {
	return LinkCount{direction, predicate, min(n, MaxLinkCount), n > MaxLinkCount}
}

// A LinkPlan is a checked [LinksRequest].
type LinkPlan struct {
	Directions []string // to be read, in order
	Size       int      // of the page
	After      LinkPlace
	filter     string
}

// A LinkPlace is where a link stands in the order of links.
type LinkPlace struct {
	Direction string // "" before all
	Predicate string
	Type, ID  string // of the other end
	Link      string // id
}

// Plan checks the request. Known are the types that may be at the other end.
func (r *LinksRequest) Plan(known []string) (p LinkPlan, err error) {
	var problems []artifact.Problem
	switch r.Direction {
	case "", DirectionBoth:
		p.Directions = []string{DirectionOut, DirectionIn}
	case DirectionOut, DirectionIn:
		p.Directions = []string{r.Direction}
	default:
		fault := artifact.Problem{Path: "/direction", Constraint: "enum", Message: "a direction is out, in or both", Value: artifact.Received(r.Direction)}
		if near := artifact.Nearest(r.Direction, directions); near != "" {
			fault.Suggestion = artifact.Received(near)
		}
		problems = append(problems, fault)
	}
	problems = append(problems, tooMany("/predicates", len(r.Predicates), maxLinkKeys)...)
	problems = append(problems, tooMany("/types", len(r.Types), maxLinkKeys)...)
	for i, typ := range r.Types[:min(len(r.Types), maxLinkKeys)] {
		if !slices.Contains(known, typ) {
			problems = append(problems, artifact.UnknownType(typ, known, "/types/"+strconv.Itoa(i)))
		}
	}
	size, err := PageSize(r.Limit)
	if err != nil {
		problems = append(problems, artifact.AsError(err).Problems...)
	}
	if problems != nil {
		return p, artifact.Invalid(problems...)
	}
	p.Size = size
	filter := struct {
		Ref               string
		Directions        []string
		Predicates, Types []string
	}{r.Ref.Current().String(), p.Directions, sorted(r.Predicates), sorted(r.Types)}
	raw, err := json.Marshal(filter)
	if err != nil {
		return p, err
	}
	p.filter = "links" + string(raw)
	p.After, err = decodeLinkCursor(r.Cursor, p.filter, p.Directions)
	if p.After.Direction != "" {
		p.Directions = p.Directions[slices.Index(p.Directions, p.After.Direction):]
	}
	return p, err
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

func tooMany(path string, n, limit int) []artifact.Problem {
	if n <= limit {
		return nil
	}
	return []artifact.Problem{{Path: path, Constraint: "max_items", Message: fmt.Sprintf("at most %d are named at a time, not %d", limit, n)}}
}

// AfterIn returns where the page begins in a direction; a zero place is before all
// links.
func (p *LinkPlan) AfterIn(direction string) LinkPlace {
	if p.After.Direction == direction {
		return p.After
	}
	return LinkPlace{Direction: direction}
}

// Counts reports whether the answer has counts.
func (p *LinkPlan) Counts() bool { return p.After.Direction == "" }

// A PlacedLink is a link with its place.
type PlacedLink struct {
	LinkItem
	LinkPlace
}

// Place fills the response in with up to one link more than a page holds, each
// direction's in order.
func (r *LinksResponse) Place(in *LinksRequest, p *LinkPlan, links []PlacedLink) {
	r.Ref = in.Ref.Current().String()
	r.Links = make([]LinkItem, 0, min(len(links), p.Size))
	for i := range links {
		if i == p.Size {
			r.NextCursor = p.LinkCursor(links[i-1].LinkPlace)
			break
		}
		item := links[i].LinkItem
		if item.EvidenceRefs == nil {
			item.EvidenceRefs = []string{}
		}
		if !in.IncludeTargets {
			item.Target = nil
		}
		r.Links = append(r.Links, item)
	}
}

// LinkCursor returns the cursor of a page that goes on after a link.
func (p *LinkPlan) LinkCursor(after LinkPlace) string { return encodeLinkCursor(after, p.filter) }

type linkCursor struct {
	Version   int    `json:"v"`
	Direction string `json:"d"`
	Predicate string `json:"p"`
	Type      string `json:"ty"`
	ID        string `json:"id"`
	Link      string `json:"l"`
	Filter    string `json:"f"`
}

func encodeLinkCursor(at LinkPlace, filter string) string {
	raw, err := json.Marshal(linkCursor{cursorVersion, at.Direction, at.Predicate, at.Type, at.ID, at.Link, filterHash(filter)})
	if err != nil { // a struct of numbers and strings
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

func decodeLinkCursor(s, filter string, directions []string) (at LinkPlace, err error) {
	if s == "" {
		return at, nil
	}
	var c linkCursor
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	switch {
	case len(s) > maxCursor || err != nil || json.Unmarshal(raw, &c) != nil || c.Version != cursorVersion || c.Link == "" || strings.ContainsRune(string(raw), 0):
		return at, invalidCursor(s, "it was not given by links")
	case c.Filter != filterHash(filter) || !slices.Contains(directions, c.Direction):
		return at, invalidCursor(s, "it is from another request")
	}
	return LinkPlace{c.Direction, c.Predicate, c.Type, c.ID, c.Link}, nil
}
