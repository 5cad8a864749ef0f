package artifact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// MigratorPatch is the migrator that runs the steps of its schema document.
const MigratorPatch = "patch"

// A migrator returns what makes a version of a breaking schema's form from one of
// the form before. What it returns does no I/O and keeps what it does not know.
type migrator func(s *Schema) (upgrade, []Problem)

type upgrade func(Version) (Version, error)

// migrators are all that a schema document may name. A new one is a row here; what
// steps can say needs none.
var migrators = map[string]migrator{
	MigratorPatch: func(s *Schema) (upgrade, []Problem) {
		steps, problems := parseSteps(s.Migrate, nil, "/migrate")
		return steps.apply, problems
	},
}

// Migrators returns the names of all migrators, in order.
func Migrators() []string { return slices.Sorted(maps.Keys(migrators)) }

// A step is one change of a stored version.
type step struct {
	op         string
	from, path []string
	value      value
	values     map[string]string
}

type steps []step

// parseSteps reads the steps of a schema document. With a lifecycle, states that
// steps lead to are among its own.
func parseSteps(raw json.RawMessage, lifecycle *Lifecycle, at string) (all steps, problems []Problem) {
	if len(raw) == 0 {
		return nil, nil
	}
	var documents []struct {
		Op     string            `json:"op"`
		From   *string           `json:"from"`
		Path   *string           `json:"path"`
		Value  json.RawMessage   `json:"value"`
		Values map[string]string `json:"values"`
	}
	if err := json.Unmarshal(raw, &documents); err != nil {
		return nil, []Problem{{Path: at, Constraint: "migrate", Message: err.Error()}}
	}
	for i, d := range documents {
		at := at + "/" + strconv.Itoa(i)
		note := func(member, constraint, message string) {
			problems = append(problems, Problem{Path: at + "/" + member, Constraint: constraint, Message: message})
		}
		pointer := func(member string, text *string, wanted bool) []string {
			switch {
			case text == nil && wanted:
				note(member, "required", "the step "+d.Op+" has "+member)
			case text != nil && !wanted:
				note(member, "unknown_field", "the step "+d.Op+" has no "+member)
			case text != nil:
				tokens, err := ParsePointer(*text)
				if err == nil && len(tokens) == 0 {
					err = errors.New("a step changes a field, not the whole content")
				}
				if err != nil {
					note(member, "json_pointer", err.Error())
				}
				return tokens
			}
			return nil
		}
		s := step{op: d.Op, values: d.Values}
		s.from = pointer("from", d.From, d.Op == "move" || d.Op == "copy")
		s.path = pointer("path", d.Path, d.Op != "state")
		switch valued := d.Op == "default" || d.Op == "replace"; {
		case valued && len(d.Value) == 0:
			note("value", "required", "the step "+d.Op+" has a value")
		case !valued && len(d.Value) > 0:
			note("value", "unknown_field", "the step "+d.Op+" has no value")
		case valued:
			t, err := newTree(d.Value)
			if err != nil {
				note("value", "json", err.Error())
				break
			}
			s.value = t.root()
		}
		switch mapped := d.Op == "map" || d.Op == "state"; {
		case mapped && len(d.Values) == 0:
			note("values", "required", "the step "+d.Op+" has values")
		case !mapped && len(d.Values) > 0:
			note("values", "unknown_field", "the step "+d.Op+" has no values")
		}
		if d.Op == "state" && lifecycle != nil {
			for _, old := range slices.Sorted(maps.Keys(d.Values)) {
				if !slices.Contains(lifecycle.States, d.Values[old]) {
					note("values/"+EscapePointer(old), "state", oneOf("a state", lifecycle.States))
				}
			}
		}
		all = append(all, s)
	}
	return all, problems
}

// apply takes the steps in turn. One whose place is not there does nothing. Without
// a content the steps of the state alone are taken.
func (all steps) apply(v Version) (Version, error) {
	if len(all) == 0 {
		return v, nil
	}
	if len(v.Content) == 0 { // it was not read
		for i := range all {
			if to, ok := all[i].values[v.State]; ok && all[i].op == "state" {
				v.State = to
			}
		}
		return v, nil
	}
	t, err := newTree(v.Content)
	if err != nil {
		return v, fmt.Errorf("upgrade content: %w", err)
	}
	e := editor{root: &draft{src: t.root()}}
	for i := range all {
		s := &all[i]
		if s.op == "state" {
			if to, ok := s.values[v.State]; ok {
				v.State = to
			}
			continue
		}
		if err := s.apply(&e); err != nil {
			return v, fmt.Errorf("upgrade content, step %d: %w", i, err)
		}
	}
	var out bytes.Buffer
	out.Grow(len(v.Content) + 256)
	if err := e.root.write(&out, 0, MaxContentBytes); err != nil {
		return v, fmt.Errorf("upgrade content: %w", err)
	}
	v.Content = out.Bytes()
	return v, nil
}

func (s *step) apply(e *editor) error {
	here, missing := e.root.at(s.path)
	switch s.op {
	case "default":
		if missing != nil {
			e.place(s.path, &draft{src: s.value})
		}
	case "move":
		if missing == nil {
			return nil // what is there is not written over
		}
		moved, err := e.remove(s.from)
		if err == nil && !e.place(s.path, moved) {
			return e.add(s.from, moved)
		}
	case "copy":
		source, err := e.root.at(s.from)
		if missing == nil || err != nil {
			return nil //nolint:nilerr // nothing to copy
		}
		twin, err := e.copy(source)
		if err != nil {
			return err
		}
		e.place(s.path, twin)
	case "replace":
		if missing == nil {
			*here = draft{src: s.value}
		}
	case "remove":
		if missing == nil {
			_, err := e.remove(s.path)
			return err
		}
	case "wrap":
		if missing == nil {
			if here.open(); here.kind != '[' {
				inner := *here
				*here = draft{kind: '[', elements: []*draft{&inner}}
			}
		}
	case "map":
		if missing == nil {
			return s.mapWord(here)
		}
	}
	return nil
}

func (s *step) mapWord(d *draft) error {
	var text bytes.Buffer
	if err := d.write(&text, 0, MaxContentBytes); err != nil {
		return err
	}
	var word string
	if json.Unmarshal(text.Bytes(), &word) != nil {
		return nil //nolint:nilerr // it is no text
	}
	to, ok := s.values[word]
	if !ok {
		return nil
	}
	var b bytes.Buffer
	writeString(&b, to)
	t, err := newTree(b.Bytes())
	if err == nil {
		*d = draft{src: t.root()}
	}
	return err
}

// place puts a value where none is, and makes the objects around it. It reports
// whether it could: what stands in the way stays.
func (e *editor) place(path []string, d *draft) bool {
	at := 0
	for ; at < len(path)-1; at++ {
		if _, err := e.root.at(path[:at+1]); err != nil {
			break
		}
	}
	if parent, err := e.root.at(path[:at]); err != nil {
		return false
	} else if parent.open(); parent.kind != '{' {
		return at == len(path)-1 && e.add(path, d) == nil
	}
	for i := len(path) - 1; i > at; i-- {
		d = &draft{kind: '{', members: map[string]*draft{path[i]: d}}
	}
	return e.add(path[:at+1], d) == nil
}

// Upgrades say how versions that were stored under earlier schema versions become
// those of the current ones, by type. The zero value has none.
type Upgrades struct {
	current map[string]int
	steps   map[string]map[int]upgrade // by type and the schema version that they lead to; nil: unknown here
}

// Add takes in a schema document, of whatever version. Its members that do not
// concern upgrades are not looked at.
func (u *Upgrades) Add(document []byte) error {
	var s Schema
	var d struct {
		Type          string          `json:"type"`
		SchemaVersion int             `json:"schema_version"`
		Compatibility string          `json:"compatibility"`
		Migrator      string          `json:"migrator"`
		Migrate       json.RawMessage `json:"migrate"`
	}
	if err := json.Unmarshal(document, &d); err != nil {
		return fmt.Errorf("read a schema document: %w", err)
	}
	if u.current == nil {
		u.current, u.steps = make(map[string]int), make(map[string]map[int]upgrade)
	}
	u.current[d.Type] = max(u.current[d.Type], d.SchemaVersion)
	if d.Compatibility != CompatibilityBreaking {
		return nil
	}
	if u.steps[d.Type] == nil {
		u.steps[d.Type] = make(map[int]upgrade)
	}
	u.steps[d.Type][d.SchemaVersion] = nil // of a migrator that a newer program has
	if make, ok := migrators[d.Migrator]; ok {
		s.Migrate = d.Migrate
		if run, problems := make(&s); problems == nil {
			u.steps[d.Type][d.SchemaVersion] = run
		}
	}
	return nil
}

// Due reports whether versions of a type and schema version have another form now.
func (u *Upgrades) Due(typ string, version int) bool {
	for to := range u.steps[typ] {
		if to > version {
			return true
		}
	}
	return false
}

// Form returns the schema version that began the form which contents of a type have
// now, 0 for the first.
func (u *Upgrades) Form(typ string) (form int) {
	for to := range u.steps[typ] {
		form = max(form, to)
	}
	return form
}

// Upgrade returns a version in the form of its type's current schema, and whether
// that is another form than it had.
func (u *Upgrades) Upgrade(typ string, version int, v Version) (Version, bool, error) {
	if !u.Due(typ, version) {
		return v, false, nil
	}
	for _, to := range slices.Sorted(maps.Keys(u.steps[typ])) {
		if to <= version {
			continue
		}
		run := u.steps[typ][to]
		if run == nil {
			return v, false, fmt.Errorf("upgrade %s to schema version %d: this program does not know the migrator", typ, to)
		}
		var err error
		if v, err = run(v); err != nil {
			return v, false, fmt.Errorf("upgrade %s to schema version %d: %w", typ, to, err)
		}
	}
	return v, true, nil
}

// Beside puts the upgraded content beside the stored one, if there is another. A
// version that cannot be upgraded is given as it is stored.
func (u *Upgrades) Beside(a *Artifact) {
	if len(u.steps) == 0 || len(a.Content) == 0 || len(a.Redaction) > 0 {
		return
	}
	v, changed, err := u.Upgrade(a.Type, a.SchemaVersion, Version{Content: a.Content, State: a.State, Title: a.Title})
	if err == nil && changed && !bytes.Equal(v.Content, a.Content) {
		a.UpgradedContent = v.Content
	}
}
