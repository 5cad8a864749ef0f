package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// A Validator checks JSON values against one JSON Schema (draft 2020-12) and
// tells every fault, not the first.
type Validator struct {
	schema *jsonschema.Schema
	doc    any // the schema's own JSON, to suggest field names from
}

// NewValidator compiles a JSON Schema. Patterns are RE2; a schema that names
// another document is refused.
func NewValidator(raw []byte) (*Validator, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{})
	c.AssertFormat()
	c.RegisterFormat(&jsonschema.Format{Name: FormatRef, Validate: checkText(func(s string) error {
		_, err := ParseRef(s)
		return err
	})})
	c.RegisterFormat(&jsonschema.Format{Name: FormatHash, Validate: checkText(func(s string) error {
		_, err := ParseHash(s)
		return err
	})})
	const name = "mem:///schema.json"
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	schema, err := c.Compile(name)
	if err != nil {
		return nil, err
	}
	return &Validator{schema: schema, doc: doc}, nil
}

// The formats of our own that a JSON Schema may name.
const (
	FormatRef  = "ref"          // type:id[@sha256:<64 hex>]
	FormatHash = "content_hash" // sha256:<64 hex>
)

func checkText(check func(string) error) func(any) error {
	return func(v any) error {
		if s, ok := v.(string); ok {
			return check(s)
		}
		return nil // another keyword says what type it is
	}
}

// Validate reports every fault of a JSON value, with paths that begin with at; of
// a value that is broken all through, little more than the first 100.
func (v *Validator) Validate(raw []byte, at string) []Problem {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return []Problem{{Path: at, Constraint: "json", Message: err.Error()}}
	}
	err = v.schema.Validate(doc)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil
	}
	var problems []Problem
	v.collect(invalid, doc, at, &problems)
	slices.SortStableFunc(problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return problems
}

var english = message.NewPrinter(language.English)

// collect turns the leaves of a validation error into problems.
func (v *Validator) collect(e *jsonschema.ValidationError, doc any, at string, out *[]Problem) {
	if len(*out) >= maxCheckProblems {
		return
	}
	if k, ok := e.ErrorKind.(*kind.PropertyNames); ok { // the library does not keep where it is
		*out = append(*out, Problem{Path: at, Constraint: "propertyNames", Message: "the name " + k.Property + " is not allowed", Value: Received(k.Property)})
		return
	}
	if len(e.Causes) > 0 {
		for _, cause := range e.Causes {
			v.collect(cause, doc, at, out)
		}
		return
	}
	var pointer strings.Builder
	pointer.WriteString(at)
	for _, token := range e.InstanceLocation {
		pointer.WriteString("/" + EscapePointer(token))
	}
	path := pointer.String()
	keyword := e.ErrorKind.KeywordPath()
	p := Problem{Path: path, Message: e.ErrorKind.LocalizedString(english)}
	if len(keyword) > 0 {
		p.Constraint = keyword[len(keyword)-1]
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			*out = append(*out, Problem{Path: path + "/" + EscapePointer(name), Constraint: "required", Message: name + " is required"})
		}
		return
	case *kind.AdditionalProperties:
		known := v.properties(e.SchemaURL)
		names := slices.Sorted(slices.Values(k.Properties)) // they come in no order
		for _, name := range names[:min(len(names), maxCheckProblems)] {
			*out = append(*out, Problem{
				Path: path + "/" + EscapePointer(name), Constraint: "unknown_field",
				Message: notAField(name, known), Suggestion: suggest(name, known),
			})
		}
		return
	case *kind.Enum:
		var want []string
		for _, w := range k.Want {
			if s, ok := w.(string); ok {
				want = append(want, s)
			}
		}
		if got, ok := k.Got.(string); ok {
			p.Suggestion = suggest(got, want)
		}
	case *kind.Format:
		p.Constraint = k.Want
		var own *Error
		if errors.As(k.Err, &own) && len(own.Problems) == 1 {
			p.Message = own.Problems[0].Message
			p.Suggestion = own.Problems[0].Suggestion
		}
	case *kind.FalseSchema:
		p.Constraint, p.Message = "unknown_field", "not a field here"
	}
	p.Value = receivedAt(doc, e.InstanceLocation)
	*out = append(*out, p)
}

// properties returns the field names of the object schema at a URL.
func (v *Validator) properties(url string) []string {
	_, pointer, _ := strings.Cut(url, "#")
	at := v.doc
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if token == "" {
			continue
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch x := at.(type) {
		case map[string]any:
			at = x[token]
		case []any:
			if i, err := strconv.Atoi(token); err == nil && i < len(x) {
				at = x[i]
			}
		}
	}
	object, ok := at.(map[string]any)
	if !ok {
		return nil
	}
	fields, ok := object["properties"].(map[string]any)
	if !ok {
		return nil
	}
	return slices.Sorted(maps.Keys(fields))
}

// receivedAt returns the value at a location, cut to a bearable size.
// receivedRaw is what was sent, of a value that is JSON.
func receivedRaw(raw []byte) json.RawMessage {
	var doc any
	if json.Unmarshal(raw, &doc) != nil {
		return nil
	}
	return receivedAt(doc, nil)
}

func receivedAt(doc any, location []string) json.RawMessage {
	for _, token := range location {
		switch v := doc.(type) {
		case map[string]any:
			doc = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			doc = v[i]
		default:
			return nil
		}
	}
	if s, ok := doc.(string); ok {
		return Received(s)
	}
	raw, err := json.Marshal(doc)
	if err != nil || len(raw) > maxReceived {
		return Received(fmt.Sprintf("(%d bytes of JSON)", len(raw)))
	}
	return raw
}

// maxListed is how many fields a message lists.
const maxListed = 15

func notAField(name string, known []string) string {
	if len(known) == 0 || len(known) > maxListed || Nearest(name, known) != "" {
		return name + " is not a field here"
	}
	return name + " is not a field here; there are " + strings.Join(known, ", ")
}

// suggest returns the known word nearest to got, as JSON, or nil.
func suggest(got string, known []string) json.RawMessage {
	if word := Nearest(got, known); word != "" {
		return Received(word)
	}
	return nil
}

// Nearest returns the known word nearest to got when it is near enough to be a slip:
// one letter in a short word, two or three in a longer one. Otherwise it returns "".
func Nearest(got string, known []string) string {
	limit := 3
	switch n := len(got); {
	case n > 100:
		return ""
	case n < 4:
		limit = 1
	case n < 9:
		limit = 2
	}
	best, least := "", limit+1
	for _, word := range known {
		if d := levenshtein.ComputeDistance(strings.ToLower(got), strings.ToLower(word)); d < least {
			best, least = word, d
		}
	}
	return best
}

// Suggest returns the word of some known ones that is nearest to what was given, as
// a problem's suggestion; nil when none is near.
func Suggest(got string, known []string) json.RawMessage { return suggest(got, known) }
