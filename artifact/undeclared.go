package artifact

import (
	"encoding/json"
	"maps"
	"slices"
)

// declaredFields returns the fields that a content schema declares at the top, in
// order; nil when it may have others that cannot be told by their names alone.
func declaredFields(contentSchema []byte) []string {
	var s map[string]json.RawMessage
	var properties map[string]json.RawMessage
	if json.Unmarshal(contentSchema, &s) != nil || json.Unmarshal(s["properties"], &properties) != nil {
		return nil
	}
	for _, word := range []string{"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"} {
		if _, there := s[word]; there {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(properties))
}

// Undeclared warns of the fields of a canonical content that the type does not
// declare, though it keeps them: without a version before it, of those that look like
// slips; else of those that are new.
func (s *Schema) Undeclared(content, before []byte, at string) (warnings []Problem) {
	if s.fields == nil {
		return nil
	}
	names, had := topFields(content), topFields(before)
	for _, name := range names {
		if slices.Contains(s.fields, name) || slices.Contains(had, name) {
			continue
		}
		near := Nearest(name, s.fields)
		if before == nil && (near == "" || slices.Contains(names, near)) {
			continue // kept on purpose
		}
		p := Problem{Path: at + "/" + EscapePointer(name), Constraint: "undeclared", Value: Received(name), Message: "the type " + s.Type + " declares no field " + name + ": it is kept, and nothing reads it"}
		if near != "" {
			p.Message, p.Suggestion = p.Message+"; did you mean "+near+"?", Received(near)
		}
		warnings = append(warnings, p)
	}
	return warnings
}

// topFields returns the names of an object's members; of canonical JSON, which has no
// blanks. It runs at each write, and so reads no more than it must.
func topFields(object []byte) (names []string) {
	depth, key := 0, false // whether a string here is a name
	for i := 0; i < len(object); i++ {
		switch object[i] {
		case '{', '[':
			depth++
			key = depth == 1
		case '}', ']':
			depth--
		case ',':
			key = depth == 1
		case '"':
			start := i
			for i++; i < len(object) && object[i] != '"'; i++ {
				if object[i] == '\\' {
					i++
				}
			}
			var name string
			if key && i < len(object) && json.Unmarshal(object[start:i+1], &name) == nil {
				names = append(names, name)
			}
			key = false
		}
	}
	return names
}
