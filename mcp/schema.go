package mcp

import (
	"encoding/json"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// formats are those that JSON Schema knows. Ours, such as ref, make some clients warn of
// each field, and say nothing to others.
var formats = []string{"date-time", "date", "uri", "email", "uuid"}

// clientSchema returns a schema as clients read it. Anything may stand where JSON Schema
// says true, but the protocol's TypeScript SDK takes objects alone for properties, and
// refuses the whole list of tools for the sake of one.
func clientSchema(s *jsonschema.Schema) any {
	var out any
	raw, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		panic(err) // the program's own schemas
	}
	return objects(out)
}

// answerSchema returns the schema of what a tool answers: what its verb does, or the
// body of an error, which some clients hold to it too.
func answerSchema(s *jsonschema.Schema) any {
	return map[string]any{"type": "object", "anyOf": []any{clientSchema(s), errorSchema}}
}

var errorSchema = map[string]any{
	"type":        "object",
	"description": "what was wrong",
	"required":    []string{"error", "message"},
	"properties": map[string]any{
		"error":          map[string]any{"type": "string", "description": "code, such as not_found"},
		"message":        map[string]any{"type": "string"},
		"details":        map[string]any{"type": "object", "description": "reason, which is finer than the code, and what belongs to it"},
		"problems":       map[string]any{"type": "array", "description": "each fault: path, constraint, message, value, suggestion", "items": map[string]any{"type": "object"}},
		"request_id":     map[string]any{"type": "string"},
		"retryable":      map[string]any{"type": "boolean"},
		"retry_after_ms": map[string]any{"type": []string{"integer", "null"}},
	},
}

// objects returns what is in a schema with each boolean property as an object, and
// without formats of our own.
func objects(in any) any {
	switch v := in.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = objects(value)
		}
		if format, ok := v["format"].(string); ok && !slices.Contains(formats, format) {
			delete(v, "format")
		}
		properties, _ := v["properties"].(map[string]any)
		for name, s := range properties {
			switch s {
			case true:
				properties[name] = map[string]any{}
			case false:
				properties[name] = map[string]any{"not": map[string]any{}}
			}
		}
	case []any:
		for i := range v {
			v[i] = objects(v[i])
		}
	}
	return in
}
