package hub_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/mcp"
	"github.com/scidex-ai/substrate/verb"
)

var update = flag.Bool("update", false, "write the generated references anew")

// TestReferences holds docs/VERBS.md, docs/PERMISSIONS.md, docs/openapi.json and the
// examples in them, and the skill for agents, to what the program does. The story calls with the typed client,
// so a verb that this has not is seen here too.
func TestReferences(t *testing.T) {
	registry := new(hub.Hub).Verbs() // nothing is called
	examples := newStory(t).tellAll()
	for _, v := range registry.Verbs() {
		if !slices.ContainsFunc(examples, func(e verb.Example) bool { return e.Verb == v.Name && e.Status == http.StatusOK }) {
			t.Errorf("%s has no example: tell of it in example_story_test.go", v.Name)
		}
	}
	reference := registry.Reference(examples)
	for _, row := range regexp.MustCompile("(?m)^\\| `.*\\|  \\|$").FindAllString(string(reference), -1) {
		t.Errorf("a field without a meaning: give it a jsonschema tag, or a place in answerFields: %s", row)
	}
	for file, want := range map[string][]byte{
		"../verb/examples.json":     indented(t, examples),
		"../docs/VERBS.md":          reference,
		"../docs/PERMISSIONS.md":    registry.Permissions(artifact.ShippedSchemas()),
		"../docs/openapi.json":      indented(t, registry.OpenAPI("1", examples)),
		"../skills/scidex/SKILL.md": mcp.Skill(registry.Verbs(), examples, mcp.Dots),
	} {
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run make generate\n%s", file, firstDifference(got, want))
		}
	}
}

// TestOpenAPI checks the document's own rules: what is named is there, no two
// operations have one name, and each example is what its schema says.
func TestOpenAPI(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			RequestBody *struct {
				Content map[string]media `json:"content"`
			} `json:"requestBody"`
			Responses map[string]struct {
				Description string           `json:"description"`
				Content     map[string]media `json:"content"`
			} `json:"responses"`
		} `json:"paths"`
		Components struct {
			Schemas         map[string]json.RawMessage `json:"schemas"`
			SecuritySchemes map[string]json.RawMessage `json:"securitySchemes"`
		} `json:"components"`
	}
	registry := new(hub.Hub).Verbs()
	if err := json.Unmarshal(indented(t, registry.OpenAPI("1", verb.Examples())), &doc); err != nil {
		t.Fatal(err)
	}
	ids, shown := map[string]bool{}, 0
	check := func(where string, content map[string]media) {
		for _, m := range content {
			schema := m.Schema
			var ref struct {
				Ref string `json:"$ref"`
			}
			if err := json.Unmarshal(schema, &ref); len(schema) > 0 && err == nil && ref.Ref != "" {
				name, _ := strings.CutPrefix(ref.Ref, "#/components/schemas/")
				if schema = doc.Components.Schemas[name]; schema == nil {
					t.Errorf("%s: %s leads nowhere", where, ref.Ref)
				}
			}
			if schema == nil {
				continue
			}
			v, err := artifact.NewValidator(schema)
			if err != nil {
				t.Errorf("%s: %v", where, err)
				continue
			}
			for name, e := range m.Examples {
				shown++
				if problems := v.Validate(e.Value, ""); problems != nil {
					t.Errorf("%s: %s is not what the schema says: %v", where, name, problems)
				}
			}
		}
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			where := method + " " + path
			if ids[op.OperationID] || op.OperationID == "" {
				t.Errorf("%s: the operation's id %q is not its own", where, op.OperationID)
			}
			ids[op.OperationID] = true
			if op.RequestBody != nil {
				check(where, op.RequestBody.Content)
			}
			if _, ok := op.Responses["200"]; !ok {
				t.Errorf("%s: no answer is described", where)
			}
			for status, r := range op.Responses {
				if r.Description == "" {
					t.Errorf("%s %s has no description", where, status)
				}
				check(where+" "+status, r.Content)
			}
		}
	}
	if shown < 2*len(registry.Verbs()) {
		t.Errorf("%d examples of %d verbs", shown, len(registry.Verbs()))
	}
}

type media struct {
	Schema   json.RawMessage `json:"schema"`
	Examples map[string]struct {
		Value json.RawMessage `json:"value"`
	} `json:"examples"`
}

// TestWritesTakeAKey holds verbs to what [verb.Client] relies on when it sends a call
// again: each that writes takes an idempotency key, and none that reads.
//
// Those of consumers say where a reader is to be: said again, they say the same. A
// refusal that is told twice counts twice, and can be taken back.
func TestWritesTakeAKey(t *testing.T) {
	for _, v := range new(hub.Hub).Verbs().Verbs() {
		if strings.HasPrefix(v.Name, "consumers/") {
			continue
		}
		if takes := v.In.Properties["idempotency_key"] != nil; takes != (v.Effect == verb.Write) {
			t.Errorf("%s (%s): it takes an idempotency key: %t", v.Name, v.Effect, takes)
		}
	}
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// firstDifference returns the first line that differs.
func firstDifference(got, want []byte) string {
	g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range min(len(g), len(w)) {
		if !bytes.Equal(g[i], w[i]) {
			return "-" + string(g[i]) + "\n+" + string(w[i])
		}
	}
	return ""
}
