package verb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/scidex-ai/substrate/artifact"
)

// maxRequestDepth bounds the nesting of a request around its contents.
const maxRequestDepth = artifact.MaxContentDepth + 8

// A Registry binds verbs to the code that runs them. Bind every verb before the
// registry is used; from then on it is safe for concurrent use.
type Registry struct {
	order  []*binding // as bound
	byName map[string]*binding
}

// A binding is a verb with its type parameters erased.
type binding struct {
	name     string
	summary  string
	effect   Effect
	needs    Needs
	in, out  *jsonschema.Schema
	call     func(ctx context.Context, in, out any) error
	callJSON func(ctx context.Context, raw []byte, admit func(in any) error) (any, error) // admit sees the request before it runs
}

// Bind makes f the code that runs v in r. It panics if v is bound twice or if
// its types have no JSON Schema: both are mistakes in the program's own text.
func Bind[In, Out any](r *Registry, v Verb[In, Out], f func(context.Context, In) (Out, error)) {
	if _, dup := r.byName[v.Name]; dup {
		panic("verb: bound twice: " + v.Name)
	}
	if r.byName == nil {
		r.byName = make(map[string]*binding)
	}
	in := newCodec[In](v.Name)
	run := func(ctx context.Context, req In) (out Out, err error) {
		defer recovered(v.Name, &err)
		if err := mayCall(ctx, v.Name, v.Effect, v.Needs); err != nil {
			return out, err
		}
		return f(ctx, req)
	}
	b := &binding{
		name: v.Name, summary: v.Summary, effect: v.Effect, needs: v.Needs, in: in.schema, out: schemaOf[Out](),
		call: func(ctx context.Context, in, out any) (err error) {
			typed, ok := out.(*Out)
			req, ok2 := in.(In)
			if !ok || !ok2 {
				return fmt.Errorf("verb %s: called with %T and %T", v.Name, in, out)
			}
			*typed, err = run(ctx, req)
			return err
		},
		callJSON: func(ctx context.Context, raw []byte, admit func(in any) error) (out any, err error) {
			defer recovered(v.Name, &err)
			var req In
			if err := checkRequest(raw); err != nil {
				return nil, err
			}
			if err := in.decode(raw, &req); err != nil {
				return nil, err
			}
			if err := admit(req); err != nil {
				return nil, err
			}
			return run(ctx, req)
		},
	}
	r.order = append(r.order, b)
	r.byName[v.Name] = b
}

// recovered makes a panic the error of the one request that met it.
func recovered(name string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("verb %s: panic: %v\n%s", name, p, debug.Stack())
	}
}

// checkRequest refuses a body that is not JSON as requests must be.
func checkRequest(raw []byte) error {
	problems := artifact.CheckJSON(raw, "", maxRequestDepth)
	if problems == nil {
		return nil
	}
	e := artifact.Invalid(problems...)
	if slices.ContainsFunc(problems, func(p artifact.Problem) bool { return p.Constraint == "json" }) {
		e.Reason = artifact.ReasonInvalidJSON // it cannot be read at all
	}
	return e
}

// mayCall refuses callers who could not use a verb on anything.
func mayCall(ctx context.Context, name string, effect Effect, n Needs) error {
	c, err := CallerFrom(ctx)
	if err == nil && c.Anonymous && effect != Read {
		err = Unauthenticated("writing needs a token")
	}
	if err != nil || len(n.AnyOf) == 0 {
		return err
	}
	if n.Own && slices.ContainsFunc(c.VisibleScopes(), func(scope string) bool { return scope != artifact.Commons }) {
		return nil
	}
	if n.Where == InCommons {
		return c.need(artifact.Commons, name, n.AnyOf)
	}
	return c.needSomewhere(name, n.AnyOf)
}

// Invoke implements [Invoker] in process, without encoding anything.
func (r *Registry) Invoke(ctx context.Context, name string, in, out any) error {
	b, ok := r.byName[name]
	if !ok {
		return r.unknownVerb(name)
	}
	return b.call(ctx, in, out)
}

// unknownVerb is the answer for a verb that is not bound.
func (r *Registry) unknownVerb(name string) *artifact.Error {
	e := &artifact.Error{
		Code: artifact.CodeNotFound, Reason: artifact.ReasonUnknownVerb, Message: "no such verb",
		Details: map[string]any{"verb": name},
	}
	if near := artifact.Nearest(name, slices.Sorted(maps.Keys(r.byName))); near != "" {
		e.Details["suggestion"] = near
	}
	return e
}

// An Info is what there is to know of a bound verb. Its schemas are not to be
// changed.
type Info struct {
	Name    string
	Summary string
	Effect  Effect
	Needs   Needs
	In, Out *jsonschema.Schema // of the request and of the answer
}

// Verbs returns the bound verbs, in the order in which they were bound.
func (r *Registry) Verbs() []Info {
	all := make([]Info, len(r.order))
	for i, b := range r.order {
		all[i] = Info{Name: b.name, Summary: b.summary, Effect: b.effect, Needs: b.needs, In: b.in, Out: b.out}
	}
	return all
}

// A codec decodes requests of type T strictly: by the JSON Schema of T, with
// every fault named, unknown fields among them.
type codec[T any] struct {
	schema    *jsonschema.Schema
	validator *artifact.Validator
}

func newCodec[T any](name string) codec[T] {
	schema := schemaOf[T]()
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

func (c codec[T]) decode(raw []byte, into *T) error {
	if problems := c.validator.Validate(raw, ""); problems != nil {
		return artifact.Invalid(problems...)
	}
	err := json.Unmarshal(raw, into)
	var known *artifact.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if badTime, ok := errors.AsType[*time.ParseError](err); ok {
		return artifact.Invalid(artifact.Problem{
			Path: pathOf(raw, badTime.Value), Constraint: "date-time",
			Message: "a time is written as 2026-01-31T00:00:00Z", Value: artifact.Received(badTime.Value),
		})
	}
	return artifact.Invalid(artifact.Problem{Constraint: "json", Message: err.Error()})
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
	var item *jsonschema.Schema
	if reflect.TypeFor[T]() == reflect.TypeFor[BatchRequest]() {
		// The items' own codecs check them; here they are objects with op.
		var ops []any
		for _, name := range batchOpNames() {
			ops = append(ops, name)
		}
		item = &jsonschema.Schema{
			Type: "object", Required: []string{"op"},
			Description: "the members of the request of the verb that op names, but for its options; base_content_hash of an update may be absent where ref is an alias",
			Properties: map[string]*jsonschema.Schema{
				"op":        {Type: "string", Enum: ops, Description: "the verb"},
				"ref_alias": {Type: "string", Description: "a name for what this item makes, by which others refer to it: @name; an unlink has none"},
			},
		}
	}
	zero := 0.0
	types := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[artifact.Ref]():    {Type: "string", Format: artifact.FormatRef},
		reflect.TypeFor[artifact.Hash]():   {Type: "string", Format: artifact.FormatHash},
		reflect.TypeFor[artifact.Seq]():    {Type: "integer", Minimum: &zero},
		reflect.TypeFor[artifact.Error]():  {Type: "object"},
		reflect.TypeFor[json.Number]():     {Type: "number"},
		reflect.TypeFor[json.RawMessage](): {},
	}
	if item != nil {
		types[reflect.TypeFor[BatchItem]()] = item
	}
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		panic(fmt.Sprintf("verb: schema of %T: %v", *new(T), err))
	}
	return s
}
