package event

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// MaxTypes is how many type names one filter has at most.
const MaxTypes = 100

// A Filter chooses events by their type and by a rule. The zero value lets all
// pass. It is safe for concurrent use.
type Filter struct {
	exact    map[string]bool
	prefixes []string // of wildcards, with the dot
	rule     *interned
}

// NewFilter reads a filter: types such as hypothesis.created or hypothesis.*, none
// meaning all, and a JSONLogic rule over the event, which may be absent. Names as
// they were before agents were called so, actor.*, mean agent.*. The error is a
// validation_failed with paths /types and /filter.
func NewFilter(types []string, rule json.RawMessage) (*Filter, error) {
	f := new(Filter)
	problems := f.addTypes(types)
	if len(rule) > 0 && string(rule) != "null" {
		compiled, faults := CompileRule(rule, "/filter")
		if problems = append(problems, faults...); faults == nil {
			f.rule = intern(compiled)
		}
	}
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	return f, nil
}

func (f *Filter) addTypes(types []string) (problems []artifact.Problem) {
	if len(types) > MaxTypes {
		return []artifact.Problem{{Path: "/types", Constraint: "max_items", Message: "at most " + strconv.Itoa(MaxTypes) + " types"}}
	}
	every := false
	for i, name := range types {
		if rest, legacy := strings.CutPrefix(name, "actor."); legacy {
			name = "agent." + rest
		}
		entity, of, dotted := strings.Cut(name, ".")
		switch {
		case name == "*":
			every = true
		case !dotted || !artifact.ValidType(entity) || of != "*" && !artifact.ValidType(strings.ReplaceAll(of, ".", "_")):
			problems = append(problems, artifact.Problem{
				Path: "/types/" + strconv.Itoa(i), Constraint: "event_type", Value: artifact.Received(types[i]),
				Message: "a type is <type>.<what happened>, such as hypothesis.created; its last part may be *, and * alone means all",
			})
		case of == "*":
			f.prefixes = append(f.prefixes, entity+".")
		default:
			if f.exact == nil {
				f.exact = make(map[string]bool)
			}
			f.exact[name] = true
		}
	}
	if every {
		f.exact, f.prefixes = nil, nil
	}
	return problems
}

// Match reports whether an event passes.
func (f *Filter) Match(e *artifact.Event) bool {
	return f.Wants(e.Type) && (f.rule == nil || f.rule.match(e))
}

// Wants reports whether events of a type may pass.
func (f *Filter) Wants(typ string) bool {
	if f.exact == nil && f.prefixes == nil {
		return true
	}
	return f.exact[typ] || slices.ContainsFunc(f.prefixes, func(prefix string) bool { return strings.HasPrefix(typ, prefix) })
}

// All reports whether all events pass.
func (f *Filter) All() bool { return f.exact == nil && f.prefixes == nil && f.rule == nil }

// Text returns the filter in one form for equal ones, to bind a cursor to.
func (f *Filter) Text() string {
	var b strings.Builder
	names := append(slices.Clone(f.prefixes), keys(f.exact)...)
	slices.Sort(names)
	b.WriteString(strings.Join(names, " "))
	if f.rule != nil {
		b.WriteString("\n" + f.rule.text)
	}
	return b.String()
}

func keys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

// tree returns an event as rules see it: see [verb.Event].
func tree(e *artifact.Event) any {
	raw, err := json.Marshal(verb.EventOf(e))
	if err != nil { // it was read from JSON
		return nil
	}
	var data any
	if json.Unmarshal(raw, &data) != nil {
		return nil
	}
	return data
}
