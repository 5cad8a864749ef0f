package verb

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/scidex-ai/substrate/artifact"
)

// A codec decodes requests of type T strictly: by the JSON Schema of T, with
// every fault named, unknown fields among them.
type codec[T any] struct {
	schema    *jsonschema.Schema
	validator *artifact.Validator
}

func newCodec[T any](name string) codec[T] {
	schema := schemaOf[T]()
	withoutNull(schema)
	raw, err := json.Marshal(schema)
	if err != nil {
		panic(fmt.Sprintf("verb: schema of %s: %v", name, err))
	}
	v, err := artifact.NewValidator(raw)
	if err != nil {
		panic(fmt.Sprintf("verb: schema of %s: %v", name, err))
	}
	return codec[T]{schema: schema, validator: v}
}

// withoutNull takes null out of what members may be: one that is not given is left
// out. What is any JSON value is any but null.
func withoutNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	types := slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" })
	switch {
	case s.Type == "" && s.Types == nil:
		s.Types = anyButNull
	case len(types) == 1:
		s.Type, s.Types = types[0], nil
	default:
		s.Types = types
	}
	withoutNull(s.Items)
	for name, member := range s.Properties {
		given := rawTypes[name]
		if of := member.Items; given != "" && of != nil && of.Type == "" && of.Types == nil {
			of.Type = given
		}
		if given != "" && member.Type == "" && member.Types == nil {
			member.Type = given
		}
		withoutNull(member)
	}
}

var anyButNull = []string{"array", "boolean", "number", "object", "string"}

// rawTypes are what members are that Go keeps as they come, or their elements.
var rawTypes = map[string]string{
	"additional_signatures": "object", "content": "object", "evidence": "object", "merge_patch": "object", "metadata": "object", "patch": "array",
}

func (c codec[T]) decode(raw []byte, into *T) error {
	problems := c.validator.Validate(raw, "")
	for i := range problems {
		if p := &problems[i]; p.Constraint == "type" && string(p.Value) == "null" && p.Path != "" {
			p.Message = "null is no value here: what is not given is left out"
		}
	}
	err := json.Unmarshal(raw, into)
	known, ok := errors.AsType[*artifact.Error](err)
	switch {
	case ok && problems == nil:
		return err
	case ok: // what a type finds by itself, such as a batch in its items
		return artifact.Invalid(withMore(problems, placed(known.Problems))...)
	case problems != nil:
		return artifact.Invalid(problems...)
	}
	if badTime, ok := errors.AsType[*time.ParseError](err); ok {
		return artifact.Invalid(artifact.Problem{
			Path: pathOf(raw, badTime.Value), Constraint: "date-time",
			Message: "a time is written as 2026-01-31T00:00:00Z", Value: artifact.Received(badTime.Value),
		})
	}
	if err != nil {
		return artifact.Invalid(artifact.Problem{Constraint: "json", Message: err.Error()})
	}
	return nil
}

// placed returns the problems that say where they are.
func placed(problems []artifact.Problem) []artifact.Problem {
	return slices.DeleteFunc(slices.Clone(problems), func(p artifact.Problem) bool { return p.Path == "" })
}

// withMore adds problems that are of other places than those that are known, in the
// order of the paths.
func withMore(known, more []artifact.Problem) []artifact.Problem {
	all := slices.Clone(known)
	for _, p := range more {
		if !slices.ContainsFunc(known, func(k artifact.Problem) bool {
			return p.Path == k.Path || strings.HasPrefix(p.Path, k.Path+"/")
		}) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b artifact.Problem) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// rehearsed is a request that can be checked without writing.
type rehearsed interface{ rehearse() }

// rehearse implements rehearsed.
func (o *WriteOptions) rehearse() { o.DryRun = true }

// rehearse returns why a request was refused that is not in its form, with what else
// is wrong with it: it is run dry, as far as it can be read.
func (c codec[T]) rehearse(refusal error, raw []byte, run func(T) error) error {
	var req T
	dry, ok := any(&req).(rehearsed)
	if !ok || json.Unmarshal(raw, &req) != nil {
		return refusal
	}
	dry.rehearse()
	known, err := artifact.AsError(refusal), run(req)
	if err == nil || known.Code != artifact.CodeValidationFailed {
		return refusal
	}
	more := artifact.AsError(err)
	if more.Code != artifact.CodeValidationFailed && more.Code != artifact.CodeLinkTargetMissing {
		return refusal
	}
	return artifact.Invalid(withMore(known.Problems, placed(more.Problems))...)
}

// pathOf returns where a text stands in a request, empty when it is in no member.
func pathOf(raw []byte, text string) string {
	var members map[string]any
	if json.Unmarshal(raw, &members) != nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if members[name] == text {
			return "/" + artifact.EscapePointer(name)
		}
	}
	return ""
}

// schemaOf infers the JSON Schema (2020-12) of T from its json and jsonschema tags.
func schemaOf[T any]() *jsonschema.Schema {
	zero := 0.0
	types := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[artifact.Ref]():    {Type: "string", Format: artifact.FormatRef},
		reflect.TypeFor[artifact.Hash]():   {Type: "string", Format: artifact.FormatHash},
		reflect.TypeFor[artifact.Seq]():    {Type: "integer", Minimum: &zero},
		reflect.TypeFor[artifact.Error]():  {Type: "object"},
		reflect.TypeFor[json.Number]():     {Type: "number"},
		reflect.TypeFor[json.RawMessage](): {},
	}
	if reflect.TypeFor[T]() == reflect.TypeFor[BatchRequest]() {
		types[reflect.TypeFor[BatchItem]()] = itemSchema()
	}
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		panic(fmt.Sprintf("verb: schema of %T: %v", *new(T), err))
	}
	return s
}

// itemSchema is what all items of a batch are: objects with op. The items' own codecs
// check the rest.
func itemSchema() *jsonschema.Schema {
	var ops []any
	for _, name := range batchOpNames() {
		ops = append(ops, name)
	}
	return &jsonschema.Schema{
		Type: "object", Required: []string{"op"},
		Description: "the members of the request of the verb that op names, but for its options; base_content_hash of an update may be absent where ref is an alias",
		Properties: map[string]*jsonschema.Schema{
			"op":        {Type: "string", Enum: ops, Description: "the verb"},
			"ref_alias": {Type: "string", Description: "a name for what this item makes, by which others refer to it: @name; an unlink has none"},
		},
	}
}
