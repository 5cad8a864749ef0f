package artifact

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compile prepares s and returns what the meta-schema cannot say, in the order of
// the paths.
func (s *Schema) compile(at string) (problems []Problem) {
	c := schemaCheck{at: at}
	s.checkID(&c)
	s.checkPolicy(&c)
	s.checkLifecycle(&c)
	for _, kind := range slices.Sorted(maps.Keys(s.Signals)) {
		s.Signals[kind].check(&c, "/signals/"+EscapePointer(kind))
	}
	c.problems = append(c.problems, CheckValidators(s.Validators, at+"/validators")...)
	c.problems = append(c.problems, CheckValidatorModes(s.ValidatorModes, s.Validators, at+"/validator_modes")...)
	s.checkFields(&c)
	s.checkMigration(&c)
	faults := CheckContentSchema(s.ContentSchema, at+"/content_schema")
	if c.problems = append(c.problems, faults...); faults == nil {
		s.content, s.fields = c.validator(s.ContentSchema), declaredFields(s.ContentSchema)
	}
	return c.problems
}

// A schemaCheck gathers the faults of a document.
type schemaCheck struct {
	at       string
	problems []Problem
}

func (c *schemaCheck) report(path, constraint, message string) {
	c.problems = append(c.problems, Problem{Path: c.at + path, Constraint: constraint, Message: message})
}

// validator compiles a content schema that was checked.
func (c *schemaCheck) validator(raw []byte) *Validator {
	v, err := NewValidator(raw)
	if err == nil {
		return v
	}
	const path = "/content_schema"
	if refused, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		var invalid *jsonschema.ValidationError
		var doc any
		if errors.As(refused.Err, &invalid) && json.Unmarshal(raw, &doc) == nil {
			(&Validator{}).collect(invalid, doc, c.at+path, &c.problems)
			return nil
		}
	}
	c.report(path, "json_schema", err.Error())
	return nil
}

// sampleUUID stands for the ids that a format makes.
const sampleUUID = "01890a5d-ac96-774b-bcce-b302099a8057"

func (s *Schema) checkID(c *schemaCheck) {
	format, pattern := s.IDStrategy.Format, s.IDStrategy.Pattern
	if strings.Count(format, "{uuid}") != 1 {
		c.report("/id_strategy/format", "format", "the format of an id contains {uuid} once")
		return
	}
	if pattern != "" {
		if message := checkPattern(pattern); message != "" {
			c.report("/id_strategy/pattern", "re2", message)
			return
		}
		// The group keeps an alternative from matching a part of the id alone.
		re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
		if err != nil {
			c.report("/id_strategy/pattern", "re2", err.Error())
			return
		}
		s.id = re
	}
	if p := s.CheckID(strings.Replace(format, "{uuid}", sampleUUID, 1), ""); p != nil {
		c.report("/id_strategy/format", "format", "an id that the format makes is refused: "+p.Message)
	}
}

func (s *Schema) checkPolicy(c *schemaCheck) {
	switch {
	case s.WritePolicy == WriteFamily && len(s.Use) == 0:
		c.report("/use", "required", "a type of the write policy family names the verbs that write it")
	case s.WrittenDirectly() && len(s.Use) > 0:
		c.report("/use", "write_policy", "the generic verbs write the type: its write policy is direct")
	}
	if s.Compatibility == CompatibilityBreaking && s.Migrator == "" {
		c.report("/migrator", "required", "a breaking version names its migrator: "+strings.Join(Migrators(), ", "))
	}
	if s.Compatibility != CompatibilityBreaking && (s.Migrator != "" || len(s.Migrate) > 0) {
		c.report("/compatibility", "breaking", "a migrator is of a breaking version")
	}
}

func (s *Schema) checkLifecycle(c *schemaCheck) {
	l := s.Lifecycle
	if l == nil || len(l.States) == 0 {
		return
	}
	state := func(path, name string) {
		if !slices.Contains(l.States, name) {
			c.problems = append(c.problems, Problem{
				Path: c.at + path, Constraint: "state", Value: Received(name), Suggestion: suggest(name, l.States),
				Message: oneOf("a state", l.States),
			})
		}
	}
	if l.Initial != "" {
		state("/lifecycle/initial", l.Initial)
	}
	for i, t := range l.Transitions {
		path := "/lifecycle/transitions/" + strconv.Itoa(i)
		if t[0] != "*" {
			state(path+"/0", t[0])
		}
		state(path+"/1", t[1])
	}
	for _, name := range slices.Sorted(maps.Keys(l.Roles)) {
		state("/lifecycle/roles/"+EscapePointer(name), name)
	}
}

func (r SignalRule) check(c *schemaCheck, path string) {
	if len(r.ValueRange) != 2 {
		return
	}
	least, greatest := r.ValueRange[0], r.ValueRange[1]
	if least > greatest {
		c.report(path+"/value_range", "range", "a range is [least, greatest]")
		return
	}
	for i, v := range r.Values {
		if v < least || v > greatest {
			c.report(path+"/values/"+strconv.Itoa(i), "range", fmt.Sprintf("the value is outside of the range from %v to %v", least, greatest))
		}
	}
}

// checkFields checks what the document says of single fields of the content.
func (s *Schema) checkFields(c *schemaCheck) {
	pointer := func(path, text string) {
		tokens, err := ParsePointer(text)
		switch {
		case err != nil:
			c.report(path, "json_pointer", err.Error())
		case len(tokens) == 0:
			c.report(path, "json_pointer", "a pointer leads to a field, not to the whole content")
		}
	}
	if s.Search != nil {
		if s.Search.Title != "" {
			pointer("/search/title", s.Search.Title)
		}
		for i, text := range s.Search.Body {
			pointer("/search/body/"+strconv.Itoa(i), text)
		}
		for i, text := range s.Search.Facets {
			pointer("/search/facets/"+strconv.Itoa(i), text)
		}
	}
	if s.Merge == nil {
		return
	}
	var content struct {
		Properties map[string]struct {
			Type json.RawMessage `json:"type"`
		} `json:"properties"`
	}
	if json.Unmarshal(s.ContentSchema, &content) != nil {
		return // the content schema's own faults are told
	}
	for i, name := range s.Merge.TextFields {
		field, declared := content.Properties[name]
		if declared && len(field.Type) > 0 && !strings.Contains(string(field.Type), `"string"`) {
			c.report("/merge/text_fields/"+strconv.Itoa(i), "text", name+" is no text")
		}
	}
}

// checkMigration checks the steps that a breaking version brings.
func (s *Schema) checkMigration(c *schemaCheck) {
	if s.Migrator == "" {
		return
	}
	if !slices.Contains(Migrators(), s.Migrator) {
		c.problems = append(c.problems, Problem{
			Path: c.at + "/migrator", Constraint: "migrator", Value: Received(s.Migrator), Suggestion: suggest(s.Migrator, Migrators()),
			Message: oneOf("a migrator", Migrators()),
		})
		return
	}
	if s.Migrator != MigratorPatch && len(s.Migrate) > 0 {
		c.report("/migrate", "migrator", "the steps are of the migrator "+MigratorPatch)
		return
	}
	if s.SchemaVersion == 1 && s.Compatibility == CompatibilityBreaking {
		c.report("/compatibility", "breaking", "the first version breaks nothing")
	}
	_, faults := parseSteps(s.Migrate, s.Lifecycle, c.at+"/migrate")
	c.problems = append(c.problems, faults...)
}
