package artifact

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// CheckDeclarations looks for what a document may say and cannot mean. Refused is what
// no artifact could ever meet; warned, what is meant for types or fields that may
// still come. Types are those that are registered. Stored documents are not held to
// it: it is for those who write one.
func (s *Schema) CheckDeclarations(types []string, at string) (refused, warned []Problem) {
	for _, predicate := range slices.Sorted(maps.Keys(s.Links)) {
		for i, typ := range s.Links[predicate].ToTypes {
			if typ == s.Type || slices.Contains(types, typ) {
				continue
			}
			warned = append(warned, Problem{
				Path: at + "/links/" + EscapePointer(predicate) + "/to_types/" + strconv.Itoa(i), Constraint: "registered_type", Value: Received(typ), Suggestion: suggest(typ, types),
				Message: "no such type is registered: until it is, " + predicate + " cannot lead there",
			})
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Signals)) {
		rule := s.Signals[kind]
		refused = append(refused, tooLarge(rule.ValueRange, at+"/signals/"+EscapePointer(kind)+"/value_range")...)
		refused = append(refused, tooLarge(rule.Values, at+"/signals/"+EscapePointer(kind)+"/values")...)
	}
	var content any
	if json.Unmarshal(s.ContentSchema, &content) == nil {
		refused = append(refused, emptyEnums(content, at+"/content_schema")...)
	}
	missing, closed := s.undeclaredTexts(at)
	if closed {
		return append(refused, missing...), warned
	}
	return refused, append(warned, missing...)
}

// tooLarge returns the numbers that no signal has.
func tooLarge(numbers []float64, at string) (problems []Problem) {
	for i, v := range numbers {
		if _, err := ParseDecimal(DecimalOf(v).String()); err != nil {
			problems = append(problems, Problem{
				Path: at + "/" + strconv.Itoa(i), Constraint: "decimal", Value: strconv.AppendFloat(nil, v, 'g', -1, 64),
				Message: "no signal has this value: one has at most " + strconv.Itoa(MaxDecimalDigits) + " digits before and after the point",
			})
		}
	}
	return problems
}

// undeclaredTexts returns the text fields that the content schema does not declare, and
// whether it has no others at all.
func (s *Schema) undeclaredTexts(at string) (missing []Problem, closed bool) {
	if s.Merge == nil || s.fields == nil {
		return nil, false
	}
	var open struct {
		Additional *bool `json:"additionalProperties"`
	}
	closed = json.Unmarshal(s.ContentSchema, &open) == nil && open.Additional != nil && !*open.Additional
	for i, name := range s.Merge.TextFields {
		if !slices.Contains(s.fields, name) {
			missing = append(missing, Problem{
				Path: at + "/merge/text_fields/" + strconv.Itoa(i), Constraint: "declared", Value: Received(name), Suggestion: suggest(name, s.fields),
				Message: "the content schema declares no field " + name,
			})
		}
	}
	return missing, closed
}

// emptyEnums finds the enums of a schema that no value is in.
func emptyEnums(schema any, at string) (problems []Problem) {
	switch x := schema.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			path := at + "/" + EscapePointer(key)
			if slices.Contains([]string{"const", "default", "examples"}, key) {
				continue // a value, not a schema
			}
			if list, ok := x[key].([]any); key == "enum" && ok {
				if len(list) == 0 {
					problems = append(problems, Problem{Path: path, Constraint: "min_items", Message: "an enum of nothing allows no value"})
				}
				continue
			}
			problems = append(problems, emptyEnums(x[key], path)...)
		}
	case []any:
		for i, element := range x {
			problems = append(problems, emptyEnums(element, at+"/"+strconv.Itoa(i))...)
		}
	}
	return problems
}
