package artifact_test

import (
	"slices"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

func TestReservedTypes(t *testing.T) {
	for typ, refused := range map[string]bool{"agent": true, "kg_edge": true, "scope": true, "signal": true, "signals": false} {
		_, problems := artifact.CheckSchema([]byte(`{"type":"`+typ+`"}`), "/content")
		told := slices.ContainsFunc(problems, func(p artifact.Problem) bool { return p.Path == "/content/type" && p.Constraint == "reserved" })
		if told != refused {
			t.Errorf("a type named %s: reserved = %v, want %v", typ, told, refused)
		}
	}
}
