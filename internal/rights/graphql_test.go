package rights_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/scidex-ai/substrate/verb"
)

// graphQLVerbs are the verbs that answer the root fields of GraphQL; "" for a
// field that names nothing.
var graphQLVerbs = map[string]string{
	"artifact": "get", "artifacts": "list", "createArtifact": "create", "updateArtifact": "update", "replica": "", "events": "",
}

// graphQLNames are the properties of verbs' requests by their names in GraphQL,
// where these are not the same words; "" for an object around others.
var graphQLNames = map[string]string{
	"after": "cursor", "change": "", "filter": "", "first": "limit", "input": "", "lifecycleState": "state", "localId": "id", "replace": "content",
}

// positions are arguments of events that name a place in the log or kinds of
// events, and nothing in it.
var positions = []string{"types", "since", "maxBatch"}

// field asks a root field for what each caller may not know of.
func (o *outsider) field(t *testing.T, g *generator, schema *ast.Schema, root *ast.Definition, f *ast.FieldDefinition) {
	t.Helper()
	name, known := graphQLVerbs[f.Name]
	if !known {
		t.Fatalf("graphQLVerbs does not know the field %s: teach it the verb that answers it", f.Name)
	}
	if name == "" {
		o.unnamed(t, schema, root, f)
		return
	}
	i := slices.IndexFunc(verbs(), func(v verb.Info) bool { return v.Name == name })
	v := verbs()[i]
	document := documentOf(schema, root, f)
	o.settle(t)
	for _, s := range g.shapes(v) {
		r, ok := variables(t, g, schema, f, v, s.request)
		if !ok {
			continue
		}
		if input, ok := r["input"].(map[string]any); ok {
			input["dryRun"] = true
		}
		a := post(t, o.doors[atNode]+"/graphql", o.root.Token, map[string]any{"query": document, "variables": r})
		if strings.Contains(a.body, `"errors"`) || root == schema.Mutation && !strings.Contains(a.body, `"WriteResult"`) {
			t.Errorf("%s %s, which names nothing private, = %s", f.Name, text(r), a.body)
		}
	}
	for _, x := range g.variants(v) {
		real, ok := variables(t, g, schema, f, v, x.real)
		twins, _ := variables(t, g, schema, f, v, x.twin)
		if !ok {
			continue // GraphQL has no such argument
		}
		for _, c := range o.callers {
			door := c.doors[len(c.doors)-1]
			if door == atHub {
				continue
			}
			if input, ok := real["input"].(map[string]any); ok && triesOnly(v, c, x) {
				input["dryRun"] = true
				twins["input"].(map[string]any)["dryRun"] = true
			}
			ask := func(variables map[string]any) answer {
				a := post(t, o.doors[door]+"/graphql", c.token, map[string]any{"query": document, "variables": variables})
				if x.hashed && strings.Contains(a.body, `"WriteResult"`) {
					a.body = hashes.ReplaceAllString(a.body, "<hash>")
				}
				if strings.Contains(a.body, "GRAPHQL_") {
					t.Fatalf("%s %s: %s", document, text(variables), a.body)
				}
				a.body = freshInGraphQL.ReplaceAllString(a.body, "<fresh>")
				a.head.Del("Content-Length")
				return level(a, v.Effect, x)
			}
			o.pairs++
			o.judge(t, v.Name+"."+x.of, c, fmt.Sprintf("%s (%s) %s", f.Name, x.name, text(real)), ask(real), ask(twins))
		}
	}
}

// freshInGraphQL is what differs between two answers of GraphQL.
var freshInGraphQL = regexp.MustCompile(`"[a-zA-Z]+At":"[^"]*"|"eventId":"[0-9]+"|"consistencyToken":"[^"]*"|"replica":\{[^}]*\}|"requestId":"[0-9a-f-]{36}"`)

// unnamed checks a field whose arguments name nothing: a query's answer tells of
// nothing private. Subscriptions are read by events.
func (o *outsider) unnamed(t *testing.T, schema *ast.Schema, root *ast.Definition, f *ast.FieldDefinition) {
	t.Helper()
	for _, a := range f.Arguments {
		if !slices.Contains(positions, a.Name) {
			t.Errorf("%s: positions does not know the argument %s: teach it, or graphQLVerbs the verb that answers the field", f.Name, a.Name)
		}
	}
	if root != schema.Query {
		return
	}
	for _, c := range o.callers {
		door := c.doors[len(c.doors)-1]
		if door == atHub {
			continue
		}
		a := post(t, o.doors[door]+"/graphql", c.token, map[string]any{"query": documentOf(schema, root, f)})
		if told := o.tells(a.body); a.status != http.StatusOK || strings.Contains(a.body, `"errors"`) || told != "" {
			t.Errorf("%s = %d, which tells of %q: %s", f.Name, a.status, told, a.body)
		}
	}
}

// variables returns the arguments of a field that ask what a verb's request asks.
// They are not ok if the field has no argument for one of its properties.
func variables(t *testing.T, g *generator, schema *ast.Schema, f *ast.FieldDefinition, v verb.Info, r request) (values map[string]any, ok bool) {
	t.Helper()
	used := map[string]bool{}
	values = map[string]any{}
	for _, a := range f.Arguments {
		if value, given := argument(t, g, schema, v, a.Name, a.Name, a.Type, r, used); given {
			values[a.Name] = value
		}
	}
	if input, isInput := values["input"].(map[string]any); isInput && v.Name == verb.Update.Name && input["change"] == nil {
		input["change"] = map[string]any{"mergePatch": map[string]any{}} // it must be there
	}
	for property := range r {
		if !used[property] {
			return nil, false
		}
	}
	return values, true
}

// argument returns the value of an argument, or of a member of one, whose parent
// has a name.
func argument(t *testing.T, g *generator, schema *ast.Schema, v verb.Info, parent, name string, typ *ast.Type, r request, used map[string]bool) (value any, given bool) {
	t.Helper()
	property, renamed := graphQLNames[name]
	if !renamed {
		property = snake(name)
	}
	if name == "eq" {
		property = parent
	}
	def := schema.Types[typ.Name()]
	if list, isList := r[property].([]any); isList && def.Kind == ast.InputObject {
		used[property] = true
		var objects []any
		for _, item := range list {
			inner := map[string]bool{}
			object := map[string]any{}
			for _, f := range def.Fields {
				if member, given := argument(t, g, schema, v, name, f.Name, f.Type, item.(request), inner); given {
					object[f.Name] = member
				}
			}
			objects = append(objects, object)
		}
		return objects, true
	}
	if def.Kind == ast.InputObject && typ.NamedType != "" {
		object := map[string]any{}
		for _, f := range def.Fields {
			if member, given := argument(t, g, schema, v, name, f.Name, f.Type, r, used); given {
				object[f.Name] = member
			}
		}
		return object, len(object) > 0
	}
	if _, known := g.open[property]; !known && property != "links" && property != "cursor" {
		t.Errorf("graphQLNames does not know %q: teach it the property of %s that it is", name, v.Name)
	}
	used[property] = true
	value, given = r[property]
	return value, given
}

// snake returns a name in camel case as verbs write it.
func snake(name string) string {
	var s strings.Builder
	for _, c := range name {
		if c >= 'A' && c <= 'Z' {
			s.WriteByte('_')
			c += 'a' - 'A'
		}
		s.WriteRune(c)
	}
	return s.String()
}

// documentOf returns an operation of one field with all that can be selected.
func documentOf(schema *ast.Schema, root *ast.Definition, f *ast.FieldDefinition) string {
	var declared, passed []string
	for _, a := range f.Arguments {
		declared, passed = append(declared, "$"+a.Name+": "+a.Type.String()), append(passed, a.Name+": $"+a.Name)
	}
	if declared == nil {
		return "query { " + f.Name + selection(schema, f.Type, 5) + " }"
	}
	return fmt.Sprintf("%s(%s) { %s(%s)%s }", strings.ToLower(root.Name), strings.Join(declared, ", "), f.Name, strings.Join(passed, ", "), selection(schema, f.Type, 5))
}

func selection(schema *ast.Schema, typ *ast.Type, depth int) string {
	def := schema.Types[typ.Name()]
	if def.IsLeafType() {
		return ""
	}
	var b strings.Builder
	b.WriteString(" { __typename")
	for _, f := range def.Fields {
		if strings.HasPrefix(f.Name, "__") || f.Arguments.ForName("first") != nil || depth == 0 && !schema.Types[f.Type.Name()].IsLeafType() {
			continue
		}
		b.WriteString(" " + f.Name + selection(schema, f.Type, depth-1))
	}
	for _, possible := range schema.GetPossibleTypes(def) {
		if possible.Name != def.Name {
			b.WriteString(" ... on " + possible.Name + selection(schema, ast.NamedType(possible.Name, nil), depth-1))
		}
	}
	return b.String() + " }"
}
