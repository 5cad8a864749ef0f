package artifact

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Schema is the document that describes one type: what its content must hold,
// how its ids are made, and which links, signals and state changes it allows.
type Schema struct {
	Type          string                `json:"type"`
	SchemaVersion int                   `json:"schema_version"`
	Title         string                `json:"title,omitempty"`
	Description   string                `json:"description,omitempty"`
	IDStrategy    IDStrategy            `json:"id_strategy"`
	LockMode      string                `json:"lock_mode,omitempty"` // content_hash
	Mutability    Mutability            `json:"mutability"`
	WritePolicy   string                `json:"write_policy,omitempty"` // direct (default), propose or family
	Use           []string              `json:"use,omitempty"`          // the verbs that write the type instead
	Visibility    string                `json:"visibility,omitempty"`   // scope (default) or participants
	Evidence      *EvidenceRule         `json:"evidence,omitempty"`
	ContentSchema json.RawMessage       `json:"content_schema"`
	Links         map[string]LinkRule   `json:"links,omitempty"`
	Signals       map[string]SignalRule `json:"signals,omitempty"`
	Lifecycle     *Lifecycle            `json:"lifecycle,omitempty"`
	Validators    []string              `json:"validators,omitempty"`
	// ValidatorModes say how validators run for the type: enforce, shadow or off.
	// One that is absent runs in its own mode.
	ValidatorModes map[string]ValidatorMode `json:"validator_modes,omitempty"`
	Merge          *MergeRule               `json:"merge,omitempty"`
	Search         *SearchRule              `json:"search,omitempty"`
	// Compatibility is of this version with artifacts of the one before. A breaking
	// one names a migrator.
	Compatibility string          `json:"compatibility,omitempty"` // compatible (default) or breaking
	Migrator      string          `json:"migrator,omitempty"`
	Migrate       json.RawMessage `json:"migrate,omitempty"` // the steps of [MigratorPatch]

	document []byte // canonical, as it was given
	content  *Validator
	fields   []string // that content declares at the top; nil when they are not all
	id       *regexp.Regexp
}

// SchemaType is the type of artifact whose content is a [Schema]. Its own schema is
// a part of the program, which no update changes.
const SchemaType = "schema"

// Ways in which artifacts of a type are written.
const (
	WriteDirect  = "direct"  // by create and update
	WritePropose = "propose" // by candidates
	WriteFamily  = "family"  // by verbs of their own
)

// CompatibilityBreaking is the compatibility of a version that not all artifacts
// of the one before are valid under.
const CompatibilityBreaking = "breaking"

// Mutability says which writes a type allows after creation.
type Mutability string

// The mutability modes.
const (
	Immutable          Mutability = "immutable"
	AppendOnly         Mutability = "append_only"
	MutableWithHistory Mutability = "mutable_with_history"
	SupersededOnly     Mutability = "superseded_only"
)

// An IDStrategy makes and checks a type's ids.
type IDStrategy struct {
	Format         string   `json:"format"` // how an absent id is made: "h-{uuid}"
	Stable         bool     `json:"stable,omitempty"`
	ForbiddenChars []string `json:"forbidden_chars,omitempty"` // default: ":"
	Pattern        string   `json:"pattern,omitempty"`         // RE2; the whole id must match
}

// VisibilityParticipants is the visibility of a type whose artifacts only their
// author and those they are addressed to may see.
const VisibilityParticipants = "participants"

// An EvidenceRule says what artifacts of a type are to reasoning on evidence.
type EvidenceRule struct {
	Role               string `json:"role"` // root, derived, configuration or none
	GenerationEligible bool   `json:"generation_eligible,omitempty"`
}

// A LinkRule says where links with one predicate may lead.
type LinkRule struct {
	Description      string   `json:"description,omitempty"`
	ToTypes          []string `json:"to_types"` // empty: any
	EvidenceRequired bool     `json:"evidence_required,omitempty"`
	Cardinality      string   `json:"cardinality,omitempty"` // many (default) or one
}

// A SignalRule says what values one kind of signal takes.
type SignalRule struct {
	Description string    `json:"description,omitempty"`
	Dimensions  []string  `json:"dimensions,omitempty"` // empty: the kind has none
	Values      []float64 `json:"values,omitempty"`
	ValueRange  []float64 `json:"value_range,omitempty"` // [least, greatest]
	Aggregation string    `json:"aggregation"`           // replace, sum or append
	Currency    string    `json:"currency,omitempty"`
	Metric      string    `json:"metric,omitempty"`
}

// Modes of aggregation: what a voter's later signal does to the earlier one.
const (
	AggregateReplace = "replace"
	AggregateSum     = "sum"
	AggregateAppend  = "append"
)

// A Lifecycle is a type's states and the moves between them.
type Lifecycle struct {
	States      []string            `json:"states"`
	Initial     string              `json:"initial,omitempty"` // default: the first state
	Transitions [][2]string         `json:"transitions"`       // "*" is any state
	Roles       map[string][]string `json:"roles,omitempty"`   // state entered → permissions, any of which will do
}

// A MergeRule names the text fields that merge by lines.
type MergeRule struct {
	TextFields []string `json:"text_fields,omitempty"`
}

// A SearchRule names, as JSON pointers into the content, what is searched.
type SearchRule struct {
	Title  string   `json:"title,omitempty"`
	Body   []string `json:"body,omitempty"`
	Facets []string `json:"facets,omitempty"`
}

// Document returns the document that s was read from, in canonical form.
func (s *Schema) Document() json.RawMessage { return s.document }

// WrittenDirectly reports whether the generic verbs write artifacts of the type.
func (s *Schema) WrittenDirectly() bool { return s.WritePolicy == "" || s.WritePolicy == WriteDirect }

// Validate checks canonical content against the type's schema. The problems
// name every fault, with paths that begin with at.
func (s *Schema) Validate(content []byte, at string) []Problem {
	return s.content.Validate(content, at)
}

// CheckID returns what is wrong with an id of this type, or nil.
func (s *Schema) CheckID(id, at string) *Problem {
	p := Problem{Path: at, Constraint: "id_strategy", Value: Received(id)}
	forbidden := s.IDStrategy.ForbiddenChars
	if forbidden == nil {
		forbidden = []string{":"}
	}
	switch {
	case !ValidID(id):
		p.Message = "an id is 1 to 256 bytes of printable ASCII without space or @"
	case slices.ContainsFunc(forbidden, func(c string) bool { return c != "@" && strings.Contains(id, c) }):
		p.Message = "an id of type " + s.Type + " holds none of " + strings.Join(forbidden, " ")
	case s.id != nil && !s.id.MatchString(id):
		p.Message = "an id of type " + s.Type + " matches " + s.IDStrategy.Pattern
	default:
		return nil
	}
	return &p
}

// CheckTitle returns what is wrong with a title, or nil.
func CheckTitle(title, at string) *Problem {
	p := Problem{Path: at, Constraint: "title", Value: Received(title)}
	switch n := utf8.RuneCountInString(title); {
	case IsBlank(title):
		p.Constraint, p.Message = "required", "a title must not be empty"
	case n > MaxTitleLength:
		p.Constraint, p.Message = "max_length", fmt.Sprintf("a title is at most %d characters, not %d", MaxTitleLength, n)
	case !utf8.ValidString(title) || strings.ContainsAny(title, "\n\r\v\f\u0085\u2028\u2029\x00"):
		p.Message = "a title is one line of valid UTF-8"
	default:
		return nil
	}
	return &p
}

// Initial returns the state of a new artifact, "" for a type without lifecycle.
func (s *Schema) Initial() string {
	if s.Lifecycle == nil {
		return ""
	}
	if s.Lifecycle.Initial != "" {
		return s.Lifecycle.Initial
	}
	return s.Lifecycle.States[0]
}

// CheckState returns what is wrong with a state of this type, or nil.
func (s *Schema) CheckState(state, at string) *Problem {
	if s.Lifecycle == nil {
		return &Problem{Path: at, Constraint: "lifecycle", Message: "type " + s.Type + " has no lifecycle", Value: Received(state)}
	}
	if slices.Contains(s.Lifecycle.States, state) {
		return nil
	}
	return &Problem{
		Path: at, Constraint: "enum", Value: Received(state), Suggestion: suggest(state, s.Lifecycle.States),
		Message: "a state of " + s.Type + " is one of " + strings.Join(s.Lifecycle.States, ", "),
	}
}

// CheckTransition returns a lifecycle_violation unless the schema lets an agent
// with these permissions move an artifact from one state to another.
func (s *Schema) CheckTransition(from, to string, permissions []string) error {
	if s.Lifecycle == nil || from == to {
		return nil
	}
	var allowed []string
	legal := false
	for _, t := range s.Lifecycle.Transitions {
		if t[0] == from || t[0] == "*" {
			allowed = append(allowed, t[1])
			legal = legal || t[1] == to
		}
	}
	if !legal {
		message := fmt.Sprintf("a %s does not go from %q to %q", s.Type, from, to)
		return &Error{
			Code: CodeLifecycleViolation, Message: message, Details: map[string]any{"from": from, "to": to, "allowed": allowed},
			Problems: []Problem{{Path: "/state", Constraint: GuardTransition, Message: message, Value: Received(to), Suggestion: suggest(to, allowed)}},
		}
	}
	if roles := s.Lifecycle.Roles[to]; len(roles) > 0 &&
		!slices.ContainsFunc(roles, func(r string) bool { return slices.Contains(permissions, r) }) {
		e := Denied(fmt.Sprintf("moving a %s to %q takes one of: %s", s.Type, to, strings.Join(roles, ", ")))
		e.Details = map[string]any{"needs": strings.Join(roles, " or ")}
		e.Problems = []Problem{{Path: "/state", Constraint: GuardActor, Message: e.Message, Value: Received(to)}}
		return e
	}
	return nil
}

// CheckLink returns what is wrong with a link of this type's artifact, or nil.
func (s *Schema) CheckLink(predicate, toType, at string) *Problem {
	rule, ok := s.Links[predicate]
	if !ok {
		known := make([]string, 0, len(s.Links))
		for p := range s.Links {
			known = append(known, p)
		}
		slices.Sort(known)
		return &Problem{
			Path: at + "/predicate", Constraint: "predicate", Value: Received(predicate), Suggestion: suggest(predicate, known),
			Message: oneOf("a link of a "+s.Type, known),
		}
	}
	if len(rule.ToTypes) > 0 && !slices.Contains(rule.ToTypes, toType) {
		return &Problem{
			Path: at + "/to", Constraint: "to_types", Value: Received(toType), Suggestion: suggest(toType, rule.ToTypes),
			Message: predicate + " leads to: " + strings.Join(rule.ToTypes, ", "),
		}
	}
	return nil
}

// CheckSignal returns what is wrong with a signal on this type's artifact. Its
// value is compared as it is stored, not as the double next to it.
func (s *Schema) CheckSignal(kind, dimension string, value Decimal, at string) (problems []Problem) {
	rule, ok := s.Signals[kind]
	if !ok {
		known := make([]string, 0, len(s.Signals))
		for k := range s.Signals {
			known = append(known, k)
		}
		slices.Sort(known)
		return []Problem{{
			Path: at + "/kind", Constraint: "signal_kind", Value: Received(kind), Suggestion: suggest(kind, known),
			Message: oneOf("a signal on a "+s.Type, known),
		}}
	}
	if (len(rule.Dimensions) > 0 || dimension != "") && !slices.Contains(rule.Dimensions, dimension) {
		problems = append(problems, Problem{
			Path: at + "/dimension", Constraint: "enum", Value: Received(dimension), Suggestion: suggest(dimension, rule.Dimensions),
			Message: oneOf("a dimension of "+kind, rule.Dimensions),
		})
	}
	if len(rule.Values) > 0 && !slices.ContainsFunc(rule.Values, func(v float64) bool { return DecimalOf(v).Equal(value) }) {
		problems = append(problems, Problem{
			Path: at + "/value", Constraint: "enum", Value: json.RawMessage(value.String()), Message: kind + " takes one of the values " + strings.Trim(fmt.Sprint(rule.Values), "[]"),
		})
	}
	if r := rule.ValueRange; len(r) == 2 && (value.Compare(DecimalOf(r[0])) < 0 || value.Compare(DecimalOf(r[1])) > 0) {
		problems = append(problems, Problem{Path: at + "/value", Constraint: "range", Value: json.RawMessage(value.String()), Message: fmt.Sprintf("values of %s lie from %v to %v", kind, r[0], r[1])})
	}
	return problems
}

// oneOf says what something may be.
func oneOf(what string, known []string) string {
	if len(known) == 0 {
		return "there is none here: " + what
	}
	return what + " is one of: " + strings.Join(known, ", ")
}

// UnknownType returns the problem of a type that is not registered.
func UnknownType(typ string, known []string, at string) Problem {
	return Problem{
		Path: at, Constraint: "registered_type", Value: Received(typ), Suggestion: suggest(typ, known),
		Message: "no such type is registered; the verb schema lists those that are",
	}
}

// Typed adds to a not_found of a ref what is wrong with the ref's type, should that not
// be a known one: of such a type there is nothing, for anyone.
func (e *Error) Typed(ref Ref, known []string, at string) *Error {
	if slices.Contains(known, ref.Type) {
		return e
	}
	p := UnknownType(ref.Type, known, at)
	p.Value, p.Suggestion = Received(ref.String()), nil
	if typ := Nearest(ref.Type, known); typ != "" {
		p.Suggestion = Received(Ref{Type: typ, ID: ref.ID, Hash: ref.Hash}.String())
	}
	e.Problems = []Problem{p}
	return e
}
