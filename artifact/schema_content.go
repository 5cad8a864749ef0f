package artifact

import (
	"encoding/json"
	"maps"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a content schema. How long it takes to check a content is at most
// its size times maxSchemaWork.
const (
	maxSchemaWork  = 20_000 // subschemas, each counted as often as it is referred to
	maxEnum        = 1000
	maxPatternSize = 20_000 // of a pattern's program, with repeats written out
	maxPattern     = 1000   // bytes
)

const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// The keywords of a JSON Schema that hold schemas.
var (
	schemaMaps  = []string{"properties", "patternProperties", "dependentSchemas", "$defs"}
	schemaLists = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaOnes  = []string{
		"additionalProperties", "items", "contains", "propertyNames", "not", "if", "then", "else",
		"unevaluatedItems", "unevaluatedProperties",
	}
	refusedKeywords = map[string]string{
		"$id":              "a content schema is one document: it has no $id",
		"$dynamicRef":      "a content schema refers by $ref alone",
		"$recursiveRef":    "a content schema refers by $ref alone",
		"definitions":      "definitions stand in $defs",
		"dependencies":     "dependencies are dependentSchemas and dependentRequired",
		"additionalItems":  "items after prefixItems are items",
		"$vocabulary":      "a content schema has the vocabulary of draft 2020-12",
		"$dynamicAnchor":   "a content schema refers by $ref alone",
		"$recursiveAnchor": "a content schema refers by $ref alone",
		"contentSchema":    "texts are not checked as JSON",
	}
)

// CheckContentSchema returns what must not stand in a content schema, beside what
// JSON Schema refuses itself: patterns that RE2 does not have, references that
// leave the document or lead back to themselves, and what would take too long to
// check a content against.
func CheckContentSchema(raw json.RawMessage, at string) []Problem {
	var root any
	if json.Unmarshal(raw, &root) != nil {
		return nil
	}
	w := schemaWalk{at: at, weight: map[string]int{}}
	if object, ok := root.(map[string]any); ok {
		if w.defs, _ = object["$defs"].(map[string]any); w.defs == nil {
			w.defs = map[string]any{}
		}
	}
	work := w.walk(root, "", false)
	// Definitions are walked when they are referred to; the others here.
	for _, name := range slices.Sorted(maps.Keys(w.defs)) {
		work = min(work+w.definition(name, ""), maxSchemaWork+1)
	}
	if work > maxSchemaWork && w.problems == nil {
		w.report("", "max_work", "checking a content would take too long: the schemas that $ref repeats are more than "+strconv.Itoa(maxSchemaWork))
	}
	return w.problems
}

// A schemaWalk goes through all subschemas once.
type schemaWalk struct {
	at       string
	defs     map[string]any
	weight   map[string]int // of a definition; -1 while it is walked
	problems []Problem
}

func (w *schemaWalk) report(path, constraint, message string) {
	if len(w.problems) < maxCheckProblems {
		w.problems = append(w.problems, Problem{Path: w.at + path, Constraint: constraint, Message: message})
	}
}

// walk returns how many schemas are checked for a schema, at most maxSchemaWork+1.
// Definitions stand in the root alone.
func (w *schemaWalk) walk(schema any, path string, nested bool) int {
	object, ok := schema.(map[string]any)
	if !ok {
		return 1 // true or false, or a fault that JSON Schema tells
	}
	work := 1
	sub := func(schema any, path string) { work = min(work+w.walk(schema, path, true), maxSchemaWork+1) }
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value, path := object[key], path+"/"+EscapePointer(key)
		if why, no := refusedKeywords[key]; no {
			w.report(path, "keyword", why)
			continue
		}
		switch {
		case key == "$defs":
			if nested {
				w.report(path, "keyword", "definitions stand in the $defs of the content schema, not of a part")
			}
		case slices.Contains(schemaMaps, key):
			members, _ := value.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(members)) {
				if key == "patternProperties" {
					w.pattern(name, path+"/"+EscapePointer(name))
				}
				sub(members[name], path+"/"+EscapePointer(name))
			}
		case slices.Contains(schemaLists, key):
			list, _ := value.([]any)
			for i, s := range list {
				sub(s, path+"/"+strconv.Itoa(i))
			}
		case slices.Contains(schemaOnes, key):
			sub(value, path)
		default:
			work = min(work+w.keyword(key, value, path), maxSchemaWork+1)
		}
	}
	return work
}

// keyword checks a keyword that holds no schema, and returns the work of what it
// refers to.
func (w *schemaWalk) keyword(key string, value any, path string) int {
	text, isText := value.(string)
	switch key {
	case "$ref":
		name, local := strings.CutPrefix(text, "#/$defs/")
		switch {
		case !isText:
		case strings.HasPrefix(text, "#") && (text == "#" || !local):
			w.report(path, "recursive_ref", "a $ref leads to #/$defs/<name>, so that no schema holds itself")
		case !local:
			w.report(path, "remote_ref", "a content schema is one document: a $ref leads to #/$defs/<name>")
		default:
			return w.definition(pointerUnescapes.Replace(name), path)
		}
	case "$schema":
		if text != draft2020 {
			w.report(path, "draft", "a content schema is of draft 2020-12: "+draft2020)
		}
	case "pattern":
		if isText {
			w.pattern(text, path)
		}
	case "enum":
		if list, ok := value.([]any); ok && len(list) > maxEnum {
			w.report(path, "max_items", "an enum has at most "+strconv.Itoa(maxEnum)+" values, not "+strconv.Itoa(len(list)))
		}
	}
	return 0
}

// definition returns the work of a definition that stands under $defs.
func (w *schemaWalk) definition(name, from string) int {
	schema, ok := w.defs[name]
	if !ok {
		w.report(from, "ref", "there is no such definition in $defs")
		return 0
	}
	switch work, known := w.weight[name]; {
	case known && work < 0:
		w.report(from, "recursive_ref", "the definition "+name+" holds itself: how long checking takes would depend on the content alone")
		return 0
	case known:
		return work
	}
	w.weight[name] = -1
	work := w.walk(schema, "/$defs/"+EscapePointer(name), true)
	w.weight[name] = work
	return work
}

func (w *schemaWalk) pattern(pattern, path string) {
	if message := checkPattern(pattern); message != "" {
		w.report(path, "re2", message)
	}
}

// checkPattern returns what is wrong with a pattern, or "". RE2 has neither
// lookaround nor back-references and takes time linear in the text; its program is
// as large as the repeats written out, so that has a bound.
func checkPattern(pattern string) string {
	if len(pattern) > maxPattern {
		return "a pattern is at most " + strconv.Itoa(maxPattern) + " bytes"
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return "not a pattern of RE2: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	if patternSize(re) > maxPatternSize {
		return "the pattern is too large once its repeats are written out"
	}
	return ""
}

func patternSize(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		size = min(size+patternSize(sub), maxPatternSize+1)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1)
	}
	return min(size, maxPatternSize+1)
}
