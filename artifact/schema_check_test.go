package artifact_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
)

type object = map[string]any

// assay returns a sound schema document with other members.
func assay(change object) []byte {
	document := object{
		"type": "assay", "schema_version": 1, "title": "Assay", "id_strategy": object{"format": "as-{uuid}"}, "mutability": "mutable_with_history",
		"content_schema": object{"type": "object", "properties": object{"reagent": object{"type": "string"}}},
	}
	maps.Copy(document, change)
	maps.DeleteFunc(document, func(_ string, v any) bool { return v == nil })
	raw, err := json.Marshal(document)
	if err != nil {
		panic(err)
	}
	return raw
}

func contentSchema(members object) object {
	schema := object{"type": "object"}
	maps.Copy(schema, members)
	return object{"content_schema": schema}
}

func many(n int, v func(int) any) (list []any) {
	for i := range n {
		list = append(list, v(i))
	}
	return list
}

// doubling returns definitions of which each checks the next one twice.
func doubling(n int) object {
	defs := object{fmt.Sprint("d", n): object{"type": "string"}}
	for i := range n {
		next := object{"$ref": fmt.Sprint("#/$defs/d", i+1)}
		defs[fmt.Sprint("d", i)] = object{"allOf": []any{next, next}}
	}
	return object{"$defs": defs, "properties": object{"x": object{"$ref": "#/$defs/d0"}}}
}

// TestHostileSchemas gives each fault that a document can have, with the one error
// that it is told by.
func TestHostileSchemas(t *testing.T) {
	lifecycle := func(change object) object {
		l := object{"states": []string{"open", "done"}, "transitions": []any{[]string{"open", "done"}}}
		maps.Copy(l, change)
		return object{"lifecycle": l}
	}
	signals := func(rule object) object { return object{"signals": object{"rank": rule}} }
	for name, c := range map[string]struct {
		document         []byte
		path, constraint string
	}{
		"no type":                         {assay(object{"type": nil}), "/type", "required"},
		"a type in capitals":              {assay(object{"type": "Assay"}), "/type", "pattern"},
		"a type of homoglyphs":            {assay(object{"type": "аssay"}), "/type", "pattern"},
		"version 0":                       {assay(object{"schema_version": 0}), "/schema_version", "minimum"},
		"a version in words":              {assay(object{"schema_version": "1"}), "/schema_version", "type"},
		"half a version":                  {assay(object{"schema_version": 1.5}), "/schema_version", "type"},
		"an unknown member":               {assay(object{"muteability": "x"}), "/muteability", "unknown_field"},
		"a slip in the mutability":        {assay(object{"mutability": "append-only"}), "/mutability", "enum"},
		"a format without uuid":           {assay(object{"id_strategy": object{"format": "assay-id"}}), "/id_strategy/format", "format"},
		"a format with two":               {assay(object{"id_strategy": object{"format": "{uuid}{uuid}"}}), "/id_strategy/format", "format"},
		"a format that the pattern bars":  {assay(object{"id_strategy": object{"format": "as-{uuid}", "pattern": "[0-9]+"}}), "/id_strategy/format", "format"},
		"a format with a colon":           {assay(object{"id_strategy": object{"format": "as:{uuid}"}}), "/id_strategy/format", "format"},
		"a lookahead in the id":           {assay(object{"id_strategy": object{"format": "as-{uuid}", "pattern": "(?!x).*"}}), "/id_strategy/pattern", "re2"},
		"a pattern of the id that closes": {assay(object{"id_strategy": object{"format": "as-{uuid}", "pattern": ".*)|(.*"}}), "/id_strategy/pattern", "re2"},
		"no schema of the content":        {assay(object{"content_schema": nil}), "/content_schema", "required"},
		"a content that is a list":        {assay(object{"content_schema": object{"type": "array"}}), "/content_schema/type", "const"},
		"a keyword of another kind":       {assay(contentSchema(object{"required": "reagent"})), "/content_schema/required", "type"},
		"a lookahead":                     {assay(contentSchema(object{"properties": object{"x": object{"pattern": "^(?=a)b"}}})), "/content_schema/properties/x/pattern", "re2"},
		"a back-reference":                {assay(contentSchema(object{"properties": object{"x": object{"pattern": `(a)\1`}}})), "/content_schema/properties/x/pattern", "re2"},
		"a lookbehind for names":          {assay(contentSchema(object{"patternProperties": object{"(?<=a)b": true}})), "/content_schema/patternProperties/(?<=a)b", "re2"},
		"a pattern in a definition":       {assay(contentSchema(object{"$defs": object{"d": object{"pattern": "("}}})), "/content_schema/$defs/d/pattern", "re2"},
		"repeats of repeats":              {assay(contentSchema(object{"propertyNames": object{"pattern": "((a{99}){99}){99}"}})), "/content_schema/propertyNames/pattern", "re2"},
		"a long pattern":                  {assay(contentSchema(object{"propertyNames": object{"pattern": strings.Repeat("a", 1001)}})), "/content_schema/propertyNames/pattern", "re2"},
		"a schema that holds itself":      {assay(contentSchema(object{"properties": object{"child": object{"$ref": "#"}}})), "/content_schema/properties/child/$ref", "recursive_ref"},
		"a definition that holds itself":  {assay(contentSchema(object{"$defs": object{"a": object{"items": object{"$ref": "#/$defs/b"}}, "b": object{"not": object{"$ref": "#/$defs/a"}}}})), "/content_schema/$defs/b/not/$ref", "recursive_ref"},
		"a schema from elsewhere":         {assay(contentSchema(object{"$ref": "https://example.org/schema.json"})), "/content_schema/$ref", "remote_ref"},
		"a schema from a file":            {assay(contentSchema(object{"properties": object{"x": object{"$ref": "file:///etc/passwd"}}})), "/content_schema/properties/x/$ref", "remote_ref"},
		"a name for the schema":           {assay(contentSchema(object{"$id": "https://example.org/"})), "/content_schema/$id", "keyword"},
		"a dynamic reference":             {assay(contentSchema(object{"$dynamicRef": "#x"})), "/content_schema/$dynamicRef", "keyword"},
		"another draft":                   {assay(contentSchema(object{"$schema": "http://json-schema.org/draft-04/schema#"})), "/content_schema/$schema", "draft"},
		"a definition that is not there":  {assay(contentSchema(object{"$ref": "#/$defs/none"})), "/content_schema/$ref", "ref"},
		"definitions in a part":           {assay(contentSchema(object{"items": object{"$defs": object{}}})), "/content_schema/items/$defs", "keyword"},
		"checks that double":              {assay(contentSchema(doubling(40))), "/content_schema", "max_work"},
		"a huge enum":                     {assay(contentSchema(object{"properties": object{"x": object{"enum": many(1001, func(i int) any { return i })}}})), "/content_schema/properties/x/enum", "max_items"},
		"a huge document":                 {assay(object{"description": strings.Repeat("a", 256<<10)}), "", "max_bytes"},
		"a deep document":                 {[]byte(`{"content_schema":` + strings.Repeat(`{"not":`, 100) + `true` + strings.Repeat(`}`, 100) + `}`), "/content_schema" + strings.Repeat("/not", 63), "max_depth"},
		"a member twice":                  {[]byte(`{"type":"assay","type":"other"}`), "/type", "duplicate_key"},
		"a list":                          {[]byte(`[]`), "", "type"},
		"no JSON":                         {[]byte(`{`), "", "json"},
		"a link to no type":               {assay(object{"links": object{"cites": object{"to_types": []string{"Paper"}}}}), "/links/cites/to_types/0", "pattern"},
		"a predicate with a space":        {assay(object{"links": object{"leads to": object{}}}), "/links/leads to", "unknown_field"},
		"a cardinality":                   {assay(object{"links": object{"cites": object{"cardinality": "two"}}}), "/links/cites/cardinality", "enum"},
		"too many predicates":             {assay(object{"links": manyMembers(201)}), "/links", "maxProperties"},
		"an aggregation":                  {assay(signals(object{"aggregation": "mean"})), "/signals/rank/aggregation", "enum"},
		"a range that ends before it":     {assay(signals(object{"aggregation": "sum", "value_range": []int{1, 0}})), "/signals/rank/value_range", "range"},
		"a range of one":                  {assay(signals(object{"aggregation": "sum", "value_range": []int{1}})), "/signals/rank/value_range", "minItems"},
		"a value outside of the range":    {assay(signals(object{"aggregation": "sum", "value_range": []int{0, 1}, "values": []int{0, 2}})), "/signals/rank/values/1", "range"},
		"an infinite value":               {[]byte(strings.Replace(string(assay(signals(object{"aggregation": "sum", "values": []int{7}}))), "[7]", "[1e999]", 1)), "/signals/rank/values/0", "ieee_double"},
		"no states":                       {assay(lifecycle(object{"states": []string{}})), "/lifecycle/states", "minItems"},
		"an unknown initial state":        {assay(lifecycle(object{"initial": "opne"})), "/lifecycle/initial", "state"},
		"a move from nowhere":             {assay(lifecycle(object{"transitions": []any{[]string{"new", "done"}}})), "/lifecycle/transitions/0/0", "state"},
		"a move to anywhere":              {assay(lifecycle(object{"transitions": []any{[]string{"open", "*"}}})), "/lifecycle/transitions/0/1", "state"},
		"a move of three":                 {assay(lifecycle(object{"transitions": []any{[]string{"open", "done", "open"}}})), "/lifecycle/transitions/0", "maxItems"},
		"a role in an unknown state":      {assay(lifecycle(object{"roles": object{"gone": []string{"reviewer"}}})), "/lifecycle/roles/gone", "state"},
		"an unknown role":                 {assay(lifecycle(object{"roles": object{"done": []string{"root"}}})), "/lifecycle/roles/done/0", "enum"},
		"too many states":                 {assay(lifecycle(object{"states": many(201, func(i int) any { return fmt.Sprint("s", i) }), "transitions": []any{}})), "/lifecycle/states", "maxItems"},
		"an unknown validator":            {assay(object{"validators": []string{"resolve_pmid"}}), "/validators/0", "validator"},
		"a mode without validator":        {assay(object{"validator_modes": object{"doi_syntax": "off"}}), "/validator_modes/doi_syntax", "validator"},
		"a pointer without slash":         {assay(object{"search": object{"facets": []string{"reagent"}}}), "/search/facets/0", "json_pointer"},
		"a pointer to all":                {assay(object{"search": object{"body": []string{""}}}), "/search/body/0", "json_pointer"},
		"a pointer with a tilde":          {assay(object{"search": object{"body": []string{"/a~2"}}}), "/search/body/0", "json_pointer"},
		"lines of a number":               {assay(object{"merge": object{"text_fields": []string{"n"}}, "content_schema": object{"type": "object", "properties": object{"n": object{"type": "integer"}}}}), "/merge/text_fields/0", "text"},
		"a family without verbs":          {assay(object{"write_policy": "family"}), "/use", "required"},
		"verbs of a direct type":          {assay(object{"use": []string{"assays/run"}}), "/use", "write_policy"},
		"breaking without migrator":       {assay(object{"schema_version": 2, "compatibility": "breaking"}), "/migrator", "required"},
		"breaking from the start":         {assay(object{"compatibility": "breaking", "migrator": "patch"}), "/compatibility", "breaking"},
		"a migrator of nothing":           {assay(object{"migrator": "patch"}), "/compatibility", "breaking"},
		"an unknown migrator":             {breaking(object{"migrator": "path"}), "/migrator", "migrator"},
		"a step without place":            {breaking(object{"migrate": []any{object{"op": "move", "path": "/a"}}}), "/migrate/0/from", "required"},
		"a step with too much":            {breaking(object{"migrate": []any{object{"op": "remove", "path": "/a", "value": 1}}}), "/migrate/0/value", "unknown_field"},
		"a step of no kind":               {breaking(object{"migrate": []any{object{"op": "test", "path": "/a"}}}), "/migrate/0/op", "enum"},
		"a step to no state":              {breaking(object{"migrate": []any{object{"op": "state", "values": object{"a": "b"}}}, "lifecycle": lifecycle(nil)["lifecycle"]}), "/migrate/0/values/a", "state"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := artifact.ParseSchema(c.document)
			e := artifact.AsError(err)
			if len(e.Problems) != 1 || e.Problems[0].Path != c.path || e.Problems[0].Constraint != c.constraint || e.Problems[0].Message == "" {
				t.Errorf("ParseSchema = %v %+v, want one problem: %s %s", err, e.Problems, c.path, c.constraint)
			}
		})
	}
	if _, err := artifact.ParseSchema(assay(nil)); err != nil {
		t.Errorf("the document that all others differ from is refused: %v", err)
	}
	t.Run("all faults at once", func(t *testing.T) {
		_, err := artifact.ParseSchema(assay(object{"mutability": "no", "title": "", "validators": []string{"x"}, "content_schema": object{"type": "object", "pattern": "("}}))
		got := map[string]string{}
		for _, p := range artifact.AsError(err).Problems {
			got[p.Path] = p.Constraint
		}
		want := map[string]string{"/mutability": "enum", "/title": "minLength", "/validators/0": "validator", "/content_schema/pattern": "re2"}
		if !maps.Equal(got, want) {
			t.Errorf("problems = %v, want %v", got, want)
		}
	})
	t.Run("a pattern that would catch others out", func(t *testing.T) {
		s, err := artifact.ParseSchema(assay(contentSchema(object{"properties": object{"x": object{"type": "string", "pattern": "^(a+)+$"}}})))
		if err != nil {
			t.Fatal(err)
		}
		if p := s.Validate([]byte(`{"x":"`+strings.Repeat("a", 100_000)+`!"}`), ""); len(p) != 1 { // in linear time
			t.Errorf("problems = %v", p)
		}
	})
}

func manyMembers(n int) object {
	all := object{}
	for i := range n {
		all[fmt.Sprint("p", i)] = object{}
	}
	return all
}

func breaking(change object) []byte {
	document := object{"schema_version": 2, "compatibility": "breaking", "migrator": "patch"}
	maps.Copy(document, change)
	return assay(document)
}

// TestShippedDocuments checks what the table of the types promises.
func TestShippedDocuments(t *testing.T) {
	types := map[string]bool{}
	for _, s := range artifact.ShippedSchemas() {
		types[s.Type] = true
	}
	for _, s := range artifact.ShippedSchemas() {
		if again, err := artifact.ParseSchema(s.Document()); err != nil || string(again.Document()) != string(s.Document()) {
			t.Errorf("%s: its stored document is read as another: %v", s.Type, err)
		}
		if s.Title == "" || s.Description == "" {
			t.Errorf("%s has no title or description", s.Type)
		}
		for predicate, rule := range s.Links {
			for _, to := range rule.ToTypes {
				if !types[to] {
					t.Errorf("%s: %s leads to the type %s, which is not shipped", s.Type, predicate, to)
				}
			}
		}
	}
	for typ, want := range map[string]artifact.Mutability{ // SPEC-001 §5.3
		"comment": artifact.AppendOnly, "debate_round": artifact.AppendOnly, "tool_call": artifact.AppendOnly,
		"hypothesis": artifact.MutableWithHistory, "wiki_page": artifact.MutableWithHistory, "knowledge_gap": artifact.MutableWithHistory,
		"analysis": artifact.SupersededOnly, "model": artifact.SupersededOnly, "dataset": artifact.SupersededOnly,
		"finding": artifact.Immutable, "evidence_record": artifact.Immutable,
	} {
		if got := schemaOf(t, typ).Mutability; got != want {
			t.Errorf("%s is %s, want %s", typ, got, want)
		}
	}
	for _, typ := range []string{"experience", "memory", "skill", "profile", "topic_memory", "handoff", "prompt", "source"} { // decisions D.3
		if s := schemaOf(t, typ); s.WritePolicy != artifact.WriteFamily || s.WrittenDirectly() || len(s.Use) == 0 {
			t.Errorf("%s is written directly", typ)
		}
	}
	if p := schemaOf(t, artifact.SchemaType).Validate(schemaOf(t, artifact.SchemaType).Document(), ""); p != nil {
		t.Errorf("the document of the type schema is none: %v", p)
	}
}

func FuzzParseSchema(f *testing.F) {
	for _, s := range artifact.ShippedSchemas()[:6] {
		f.Add([]byte(s.Document()))
	}
	f.Add(assay(contentSchema(doubling(20))))
	f.Add(breaking(object{"migrate": []any{object{"op": "move", "from": "/a/0", "path": "/b/c"}, object{"op": "wrap", "path": "/b"}}}))
	f.Add(assay(contentSchema(object{"patternProperties": object{"((a{9}){9}){9}": object{"$ref": "#/$defs/x"}}})))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := artifact.ParseSchema(raw)
		if err != nil {
			e := artifact.AsError(err)
			if e.Code != artifact.CodeValidationFailed || len(e.Problems) == 0 || len(e.Problems) > 200 {
				t.Errorf("error = %v with %d problems", err, len(e.Problems))
			}
			return
		}
		again, err := artifact.ParseSchema(s.Document())
		if err != nil || string(again.Document()) != string(s.Document()) {
			t.Errorf("the canonical document is read as another: %v", err)
		}
		s.Validate([]byte(`{"a":[{"b":1}],"c":"x"}`), "")
		var u artifact.Upgrades
		if err := u.Add(s.Document()); err != nil {
			t.Errorf("Add: %v", err)
		}
		if v, changed, err := u.Upgrade(s.Type, s.SchemaVersion-1, artifact.Version{Content: []byte(`{"a":[{"b":1}],"c":"x"}`)}); err == nil && changed {
			if _, problems := artifact.Canonical(v.Content, ""); problems != nil {
				t.Errorf("upgraded to what is not canonical: %s", v.Content)
			}
		}
	})
}
