package verb

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Reference returns the page docs/VERBS.md: every bound verb with the fields of
// its request and of its answer.
func (r *Registry) Reference() []byte {
	var b bytes.Buffer
	b.WriteString(`# Verbs

Generated from the program by ` + "`make generate`" + `; do not edit.

Each verb is ` + "`POST " + PathPrefix + "<verb>`" + ` with a JSON object and a bearer token, on the hub; a
node answers reads from its replica and forwards writes. Unknown fields are refused.
Errors are described in [PROTOCOL.md](PROTOCOL.md#errors).
`)
	for _, v := range r.order {
		fmt.Fprintf(&b, "\n## %s\n\n%s (%s)\n", v.name, v.summary, v.effect)
		writeFields(&b, "Request", v.in)
		writeFields(&b, "Answer", v.out)
	}
	return b.Bytes()
}

func writeFields(b *bytes.Buffer, title string, s *jsonschema.Schema) {
	fmt.Fprintf(b, "\n%s:\n\n| field | type | meaning |\n|---|---|---|\n", title)
	names := s.PropertyOrder
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(s.Properties))
	}
	for _, name := range names {
		p := s.Properties[name]
		mark := ""
		if title == "Request" && slices.Contains(s.Required, name) {
			mark = " (required)"
		}
		fmt.Fprintf(b, "| `%s`%s | %s | %s |\n", name, mark, typeName(p), strings.ReplaceAll(p.Description, "|", `\|`))
	}
}

// typeName names a field's type in a word or two.
func typeName(s *jsonschema.Schema) string {
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return t == "null" })
	name := strings.Join(types, " or ")
	switch {
	case name == "array" && s.Items != nil:
		return "array of " + typeName(s.Items)
	case s.Format != "":
		return s.Format
	case name == "":
		return "any"
	}
	return name
}
