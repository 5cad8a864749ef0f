package verb

import (
	"encoding/json"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/query"
)

// ListRequest asks for a page of artifacts.
type ListRequest struct {
	Type           string          `json:"type,omitempty" jsonschema:"registered artifact type, such as hypothesis; kg_edge for links, signal for signals; absent for all artifacts"`
	Scope          string          `json:"scope,omitempty" jsonschema:"only what is in this scope; absent: all scopes that you may see"`
	Filter         json.RawMessage `json:"filter,omitempty" jsonschema:"condition: {and: [filters]}, {or: [filters]}, {not: filter}, {field, op, value} of a member of the artifact or a JSON pointer from /content on, {link: {predicate, direction, min, max, to, types}} or {signal: {kind, dimension, agg, op, value}}; an op is eq, ne, in, nin, lt, lte, gt, gte, contains, starts_with or exists"`
	Sort           json.RawMessage `json:"sort,omitempty" jsonschema:"list of up to 4 keys: created_at, updated_at, title, quality_score or a JSON pointer from /content on, with - before it for descending; or {by, order} or {signal: {kind, dimension, agg}, order}; what has no value comes last; the default is -created_at, and ties are in the order of refs"`
	Limit          int             `json:"limit,omitempty" jsonschema:"artifacts a page, 1 to 200; the default is 50"`
	Cursor         string          `json:"cursor,omitempty" jsonschema:"next_cursor of the page before, from a request alike but for the cursor"`
	IncludeContent bool            `json:"include_content,omitempty" jsonschema:"true adds each artifact's content"`
	IncludeLinks   bool            `json:"include_links,omitempty" jsonschema:"true adds the first links from and to each artifact, with the title and state of what is at the other end"`
	LinkPredicates []string        `json:"link_predicates,omitempty" jsonschema:"predicates of the links that are added; absent for all"`
	LinkLimit      int             `json:"link_limit,omitempty" jsonschema:"links of each artifact and direction that are added, 1 to 25; the default is 3"`
	IncludeSignals bool            `json:"include_signals,omitempty" jsonschema:"true adds what was made of each artifact's signals, by kind and dimension"`
	Count          bool            `json:"count,omitempty" jsonschema:"true counts all that the filter lets pass, up to 10,000"`
}

// ListResponse is a page of artifacts, in the order that was asked for.
type ListResponse struct {
	Artifacts  []artifact.Artifact `json:"artifacts"`
	Links      []ListedLinks       `json:"links,omitempty" jsonschema:"the first links of each artifact, in the order of artifacts, when they are asked for"`
	Signals    []ListedSignals     `json:"signals,omitempty" jsonschema:"what was made of each artifact's signals, in the order of artifacts, when it is asked for"`
	NextCursor string              `json:"next_cursor,omitempty"`                                                    // absent on the last page
	Count      *Count              `json:"count,omitempty" jsonschema:"how many the filter lets pass, on all pages"` // when it was asked for
	Warnings   []artifact.Problem  `json:"warnings,omitempty" jsonschema:"what made the list slow: undeclared_facet and facet_building"`
	AsOf       artifact.Seq        `json:"as_of"`
}

// MaxCount is up to where lists are counted.
const MaxCount = 10_000

// A Count is how many there are, or, when it is capped, the number up to which it
// was counted, beyond which there are more.
type Count struct {
	Count  int  `json:"count" jsonschema:"at most 10,000"`
	Capped bool `json:"capped" jsonschema:"whether there are more"`
}

// CountOf returns the count of n, which was counted to one above MaxCount.
func CountOf(n int) *Count { return &Count{Count: min(n, MaxCount), Capped: n > MaxCount} }

// A Listing is a list as it was asked for, checked.
type Listing struct {
	Filter *query.Filter
	Sort   *query.Sort
	Type   string // the one type of all that is listed; "" for several
	Limit  int
	After  *query.Place // where the page begins; nil for the first

	key string
}

// Plain reports whether all of a type, or of all types, is listed newest first.
func (r *ListRequest) Plain() bool {
	return len(r.Filter) == 0 && len(r.Sort) == 0 && r.Scope == "" && !r.Count && !query.IsEdge(r.Type)
}

// Listing checks the request. Schema returns the schema of a type, nil for one that
// there is not; types returns those that there are.
func (r *ListRequest) Listing(schema func(typ string) *artifact.Schema, types func() []string) (*Listing, error) {
	var problems []artifact.Problem
	l := new(Listing)
	var faults []artifact.Problem
	l.Filter, faults = query.Parse(r.Filter, "/filter")
	problems = append(problems, faults...)
	l.Sort, faults = query.ParseSort(r.Sort, "/sort")
	problems = append(problems, faults...)
	var err error
	if l.Limit, err = PageSize(r.Limit); err != nil {
		problems = append(problems, artifact.AsError(err).Problems...)
	}
	problems = append(problems, r.checkMore()...)
	if r.Type != "" && !query.IsEdge(r.Type) && schema(r.Type) == nil {
		problems = append(problems, artifact.UnknownType(r.Type, types(), "/type"))
	}
	if l.Type = r.Type; l.Type == "" {
		l.Type = l.Filter.Type()
	}
	if s := schema(l.Type); s != nil && l.Type != "" {
		problems = append(problems, l.Filter.Check(s)...)
		problems = append(problems, l.Sort.Check(s)...)
	}
	problems = append(append(problems, l.Filter.CheckEdge(l.Type)...), l.Sort.CheckEdge(l.Type)...)
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	l.key = r.Type
	if parts := []string{r.Scope, string(l.Filter.Canonical()), string(l.Sort.Canonical())}; strings.Join(parts, "") != "" {
		l.key += "\n" + strings.Join(parts, "\n")
	}
	if r.Cursor == "" {
		return l, nil
	}
	if l.Sort == nil {
		after, err := DecodeCursor(r.Cursor, l.key)
		if err != nil {
			return nil, err
		}
		l.After = &query.Place{Values: []any{float64(after.At.UnixMilli())}, Type: after.Type, ID: after.ID}
		return l, nil
	}
	l.After, err = decodePlace(r.Cursor, l.key)
	return l, err
}

// Cursor returns the cursor of a page that ends with an artifact at a place.
func (l *Listing) Cursor(last *artifact.Artifact, at query.Place) string {
	if l.Sort == nil {
		return EncodeCursor(ListCursor{At: last.CreatedAt, Type: last.Type, ID: last.ID}, l.key)
	}
	return encodePlace(at, l.key)
}

// BadCursor is the error of a cursor whose place is none in the list's order.
func (r *ListRequest) BadCursor() error { return invalidCursor(r.Cursor, "it was not given by list") }

// Scopes returns those of the caller's scopes that are listed.
func (r *ListRequest) Scopes(c *Caller) []string {
	scopes := c.VisibleScopes()
	if r.Scope == "" {
		return scopes
	}
	for _, scope := range scopes {
		if scope == r.Scope {
			return []string{scope}
		}
	}
	return []string{}
}

// Unindexed returns the warnings of a list: which pointers it asked the contents
// for, one by one. Declared reports whether the type declares one, building that
// facets of the type are still made.
func (l *Listing) Unindexed(declared func(path string) bool, building bool) []artifact.Problem {
	return append(unindexed(l.Type, l.Filter, "/filter", declared, building), unindexed(l.Type, l.Sort, "/sort", declared, building)...)
}

// unindexed returns the warnings of what names pointers at a path of a request.
func unindexed(typ string, of interface{ Paths() []string }, at string, declared func(path string) bool, building bool) (warnings []artifact.Problem) {
	for _, path := range of.Paths() {
		p := artifact.Problem{Path: at, Value: artifact.Received("/content" + path)}
		switch is := declared(path); {
		case is && building:
			p.Constraint, p.Message = "facet_building", "not indexed yet: the index of /content"+path+" is being made; until then every content is looked at"
		case is:
			continue
		case query.IsEdge(typ):
			if query.EdgeIndexed(typ, path) {
				continue
			}
			p.Constraint, p.Message = "undeclared_facet", "not indexed: /content"+path+" is looked for in every "+typ
		case typ == "":
			p.Constraint, p.Message = "undeclared_facet", "not indexed: /content"+path+" is looked for in every content; name one type that declares it in search.facets"
		default:
			p.Constraint, p.Message = "undeclared_facet", "not indexed: /content"+path+" is looked for in every content; the schema of "+typ+" does not declare it in search.facets"
		}
		warnings = append(warnings, p)
	}
	return warnings
}
