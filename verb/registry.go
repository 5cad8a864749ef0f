package verb

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

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
				return nil, in.rehearse(err, raw, func(req In) error {
					_, err := run(ctx, req)
					return err
				})
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
