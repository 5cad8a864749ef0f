package hub

import (
	"encoding/json"
	"maps"

	"github.com/scidex-ai/substrate/artifact"
)

// A checkedContent is a new artifact's content and all that its type alone says of
// it, which is most of the work of a create.
type checkedContent struct {
	schema     *artifact.Schema
	canonical  []byte // nil for what cannot be read
	problems   []artifact.Problem
	inspection *artifact.Inspection
}

func checkContent(schema *artifact.Schema, raw json.RawMessage, imported bool) *checkedContent {
	k := &checkedContent{schema: schema}
	k.canonical, k.problems = artifact.Canonical(raw, "/content")
	if k.canonical == nil {
		return k
	}
	if schema.Type != artifact.SchemaType { // which has more to be checked, with its id
		k.problems = append(k.problems, schema.Validate(k.canonical, "/content")...)
	}
	k.inspection = inspect(schema, k.canonical, imported)
	return k
}

// inspect looks for what the type's validators guard. An import brings prose as it
// is elsewhere, PubMed ids outside of markers among it.
func inspect(schema *artifact.Schema, content []byte, imported bool) *artifact.Inspection {
	modes := schema.ValidatorModes
	if imported {
		modes = maps.Clone(modes)
		if modes == nil {
			modes = make(map[string]artifact.ValidatorMode)
		}
		modes[artifact.GuardInlinePMID] = artifact.ModeShadow
	}
	return artifact.Inspect(content, schema.Validators, modes)
}

// shadow counts and returns what validators found that only watch.
func (h *Hub) shadow(typ string, found []artifact.Problem) []artifact.Problem {
	for _, p := range found {
		h.metrics.shadowed.WithLabelValues(p.Constraint).Inc()
	}
	if len(found) > 0 {
		h.log.Debug("validators in shadow mode found faults", "type", typ, "problems", len(found))
	}
	return found
}
