package hub_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
)

var update = flag.Bool("update", false, "write the generated references anew")

// TestReferences holds docs/VERBS.md, docs/PERMISSIONS.md and docs/openapi.json to
// the program.
func TestReferences(t *testing.T) {
	registry := new(hub.Hub).Verbs() // nothing is called
	openAPI, err := json.MarshalIndent(registry.OpenAPI("1"), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]byte{
		"../docs/VERBS.md":       registry.Reference(),
		"../docs/PERMISSIONS.md": registry.Permissions(artifact.ShippedSchemas()),
		"../docs/openapi.json":   append(openAPI, '\n'),
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
			t.Errorf("%s is stale: run make generate", file)
		}
	}
}
