package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// stillQuery lets nobody else read the registry until the transaction ends. Each
// write that keeps to a type's rules reads the version there, and so has the table
// until it commits: it either came before, and what it wrote is checked, or it
// reads the new version and begins again. Like every write, this one has its heads
// by then, so neither waits for the other.
const stillQuery = `LOCK TABLE schema_registry IN ACCESS EXCLUSIVE MODE`

// maxChecked bounds how many artifacts a change of their type is checked against,
// while all other writes wait.
const maxChecked = 100_000

// maxExamples bounds what an error tells of them.
const maxExamples = 10

// loadChange checks a change of a type against what is stored of it.
func (o *updateOp) loadChange(ctx context.Context, db querier, s *state, current *head) error {
	allowed := o.mayChangeTypes(s.caller) == nil
	if !allowed || o.base != current.ContentHash && s.content(o.ref.At(o.base)) == nil {
		return nil // decide says so
	}
	next, err := o.nextVersion(s, current)
	if err != nil {
		return nil //nolint:nilerr // decide tells it
	}
	next, now, err := checkChangedType(current, next)
	if err != nil || now == nil {
		return nil //nolint:nilerr // decide tells it
	}
	was, err := artifact.ParseSchema(current.content)
	if err != nil {
		return err
	}
	c := &compatibility{state: s, db: db, was: was, now: now, breaking: now.Compatibility == artifact.CompatibilityBreaking}
	if err := c.check(ctx); err != nil {
		return err
	}
	o.checked = next.hash
	if !s.caller.Has(verb.Admin, artifact.Commons) { // how many there are elsewhere is an admin's to know
		if c.problems != nil {
			o.incompatible = &artifact.Error{
				Code: artifact.CodeValidationFailed, Reason: artifact.ReasonIncompatible,
				Message: "the change does not go with what is stored of type " + now.Type + "; an admin's dry run of the update tells what is in its way",
			}
		}
		return nil
	}
	if o.warnings = c.warnings; c.problems != nil {
		o.incompatible = &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonIncompatible, Problems: c.problems, Details: c.details(),
			Message: "the change does not go with what is stored of type " + now.Type,
		}
	}
	return nil
}

// A compatibility is the check of a type's next schema against what is stored
// under the one before.
type compatibility struct {
	state    *state
	db       querier
	was, now *artifact.Schema
	breaking bool // what would be invalid is migrated, or may stay as it is

	stored   int // artifacts, counted to just above maxChecked
	invalid  int
	hidden   int // of the invalid, those that the caller may not see
	examples []example
	problems []artifact.Problem
	warnings []artifact.Problem
}

// An example is an artifact that would be invalid.
type example struct {
	Ref      string             `json:"ref"`
	Problems []artifact.Problem `json:"problems"`
}

const storedQuery = `SELECT count(*) FROM (SELECT FROM artifact WHERE type = $1 LIMIT $2) AS a`

func (c *compatibility) check(ctx context.Context) error {
	if err := c.db.QueryRow(ctx, storedQuery, c.now.Type, maxChecked+1).Scan(&c.stored); err != nil {
		return err
	}
	if c.stored == 0 {
		return nil
	}
	if c.was.Visibility != c.now.Visibility && participantsOnly(c.was) != participantsOnly(c.now) {
		c.report("/visibility", "fixed", "who sees artifacts of a type is settled when they are made, and there are some")
	}
	if !c.breaking && c.was.Mutability != c.now.Mutability {
		c.report("/mutability", "compatibility", "there are artifacts that were made as "+string(c.was.Mutability)+": make the version breaking")
	}
	if c.breaking && len(c.now.Migrate) > 0 && bytes.Equal(c.was.Migrate, c.now.Migrate) {
		c.report("/migrate", "compatibility", "these are the steps of the version before: take compatibility, migrator and migrate out, or give the steps of this change")
	}
	for _, check := range []func(context.Context) error{c.checkStates, c.checkLinks, c.checkSignals, c.checkArtifacts} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

func participantsOnly(s *artifact.Schema) bool {
	return s.Visibility == artifact.VisibilityParticipants
}

func (c *compatibility) report(path, constraint, message string) {
	c.problems = append(c.problems, artifact.Problem{Path: "/content" + path, Constraint: constraint, Message: message})
}

func (c *compatibility) details() map[string]any {
	d := map[string]any{"invalid": c.invalid}
	if c.hidden > 0 {
		d["hidden"] = c.hidden
	}
	if c.examples != nil {
		d["examples"] = c.examples
	}
	return d
}

const statesQuery = `SELECT state, count(*) FROM artifact WHERE type = $1 GROUP BY state ORDER BY state`

// checkStates finds states in use that the type would have no more. A breaking
// version's are checked with the artifacts, once its migrator has mapped them.
func (c *compatibility) checkStates(ctx context.Context) error {
	if c.breaking || reflect.DeepEqual(statesOf(c.was), statesOf(c.now)) {
		return nil
	}
	rows, err := c.db.Query(ctx, statesQuery, c.now.Type)
	if err != nil {
		return err
	}
	var state string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error {
		if !slices.Contains(statesOf(c.now), state) {
			c.report("/lifecycle/states", "compatibility", fmt.Sprintf("%d artifacts are in the state %q", n, state))
		}
		return nil
	})
	return err
}

// statesOf returns the states of a type; "" alone is that of a type without.
func statesOf(s *artifact.Schema) []string {
	if s.Lifecycle == nil {
		return []string{""}
	}
	return s.Lifecycle.States
}

const (
	linkedQuery = `SELECT predicate, to_type, count(*) FROM link WHERE from_type = $1 GROUP BY predicate, to_type ORDER BY predicate, to_type`
	manyQuery   = `
		SELECT count(*) FROM (
			SELECT from_id FROM link WHERE from_type = $1 AND predicate = $2
			GROUP BY from_id HAVING count(DISTINCT (to_type, to_id)) > 1) AS f`
)

// checkLinks finds links that could no more be made.
func (c *compatibility) checkLinks(ctx context.Context) error {
	if c.breaking || reflect.DeepEqual(c.was.Links, c.now.Links) {
		return nil
	}
	rows, err := c.db.Query(ctx, linkedQuery, c.now.Type)
	if err != nil {
		return err
	}
	var predicate, to string
	var n int
	linked := make(map[string]bool)
	if _, err := pgx.ForEachRow(rows, []any{&predicate, &to, &n}, func() error {
		linked[predicate] = true
		if p := c.now.CheckLink(predicate, to, ""); p != nil {
			c.report("/links/"+artifact.EscapePointer(predicate), "compatibility", fmt.Sprintf("%d links lead by %s to artifacts of type %s", n, predicate, to))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, predicate := range slices.Sorted(maps.Keys(linked)) {
		if c.now.Links[predicate].Cardinality != "one" || c.was.Links[predicate].Cardinality == "one" {
			continue
		}
		if err := c.db.QueryRow(ctx, manyQuery, c.now.Type, predicate).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			c.report("/links/"+artifact.EscapePointer(predicate)+"/cardinality", "compatibility", fmt.Sprintf("%d artifacts have several links by %s", n, predicate))
		}
	}
	return nil
}

const (
	signaledQuery = `
		SELECT kind, dimension, count(*), min(value)::float8, max(value)::float8 FROM signal
		WHERE type = $1 GROUP BY kind, dimension ORDER BY kind, dimension`
	otherValuesQuery = `SELECT count(*) FROM signal WHERE type = $1 AND kind = $2 AND value <> ALL ($3::float8[]::numeric[])`
)

// checkSignals finds signals that could no more be given.
func (c *compatibility) checkSignals(ctx context.Context) error {
	if reflect.DeepEqual(c.was.Signals, c.now.Signals) {
		return nil
	}
	rows, err := c.db.Query(ctx, signaledQuery, c.now.Type)
	if err != nil {
		return err
	}
	var kind, dimension string
	var n int
	var least, greatest float64
	given := make(map[string]bool)
	if _, err := pgx.ForEachRow(rows, []any{&kind, &dimension, &n, &least, &greatest}, func() error {
		given[kind] = true
		rule := c.now.Signals[kind]
		rule.Values = nil // below
		probe := artifact.Schema{Type: c.now.Type, Signals: map[string]artifact.SignalRule{}}
		if _, ok := c.now.Signals[kind]; ok {
			probe.Signals[kind] = rule
		}
		faults := append(probe.CheckSignal(kind, dimension, artifact.DecimalOf(least), ""), probe.CheckSignal(kind, dimension, artifact.DecimalOf(greatest), "")...)
		if len(faults) > 0 && !c.breaking {
			c.report("/signals/"+artifact.EscapePointer(kind), "compatibility", fmt.Sprintf("%d signals of the kind %s would be refused: %s", n, kind, faults[0].Message))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, kind := range slices.Sorted(maps.Keys(given)) {
		was, now := c.was.Signals[kind], c.now.Signals[kind]
		if now.Aggregation != "" && was.Aggregation != now.Aggregation {
			c.report("/signals/"+artifact.EscapePointer(kind)+"/aggregation", "fixed", "there are signals of this kind, which were added up as "+was.Aggregation)
		}
		if c.breaking || len(now.Values) == 0 {
			continue
		}
		if err := c.db.QueryRow(ctx, otherValuesQuery, c.now.Type, kind, now.Values).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			c.report("/signals/"+artifact.EscapePointer(kind)+"/values", "compatibility", fmt.Sprintf("%d signals have other values", n))
		}
	}
	return nil
}

// artifactsQuery reads all of a type: it is an admin's change of the type, and what
// it tells of them the check keeps to what the caller may see.
const artifactsQuery = `
	SELECT a.id, a.scope, a.audience, r.schema_version, r.title, r.state, r.content
	FROM artifact a JOIN artifact_revision r ON r.type = a.type AND r.id = a.id AND r.revision = a.revision
	WHERE a.type = $1 AND r.redaction IS NULL
	ORDER BY a.id`

// checkArtifacts finds artifacts that would be invalid: those of a compatible
// version as they are, those of a breaking one as its migrator leaves them.
func (c *compatibility) checkArtifacts(ctx context.Context) error {
	sameIDs := reflect.DeepEqual(c.was.IDStrategy, c.now.IDStrategy)
	sameContent := bytes.Equal(rulesOf(c.was.ContentSchema), rulesOf(c.now.ContentSchema))
	switch {
	case !c.breaking && sameIDs && sameContent:
		return nil
	case c.stored > maxChecked && c.breaking:
		c.warnings = append(c.warnings, artifact.Problem{
			Path: "/content/migrate", Constraint: "unchecked", Message: fmt.Sprintf("there are more than %d artifacts of the type: none was checked", maxChecked),
		})
		return nil
	case c.stored > maxChecked:
		c.report("/content_schema", "compatibility", fmt.Sprintf("there are more than %d artifacts of the type, too many to check: make the version breaking", maxChecked))
		return nil
	}
	upgrades, err := c.state.hub.schemas.upgradesWith(c.now)
	if err != nil {
		return err
	}
	rows, err := c.db.Query(ctx, artifactsQuery, c.now.Type)
	if err != nil {
		return err
	}
	defer rows.Close()
	checked := 0
	for rows.Next() {
		var h head
		var version int
		var content string
		if err := rows.Scan(&h.ID, &h.Scope, &h.audience, &version, &h.Title, &h.State, &content); err != nil {
			return err
		}
		checked++
		c.judge(&h, c.faults(upgrades, &h, version, []byte(content)))
	}
	if err := rows.Err(); err != nil || c.invalid == 0 {
		return err
	}
	path, message := "/content_schema", fmt.Sprintf("%d of %d artifacts would be invalid: make the version breaking, with a migrator", c.invalid, checked)
	if c.breaking {
		path, message = "/migrate", fmt.Sprintf("the migrator leaves %d of %d artifacts invalid", c.invalid, checked)
	}
	c.report(path, "compatibility", message)
	return nil
}

func (c *compatibility) faults(upgrades *artifact.Upgrades, h *head, version int, content []byte) (problems []artifact.Problem) {
	v, _, err := upgrades.Upgrade(c.now.Type, version, artifact.Version{Content: content, State: h.State, Title: h.Title})
	if err != nil {
		return []artifact.Problem{{Path: "/content", Constraint: "migrator", Message: err.Error()}}
	}
	problems = c.now.Validate(v.Content, "/content")
	if c.breaking {
		if !slices.Contains(statesOf(c.now), v.State) {
			problems = append(problems, artifact.Problem{Path: "/state", Constraint: "state", Message: "the type has no such state", Value: artifact.Received(v.State)})
		}
		return problems
	}
	if p := c.now.CheckID(strings.TrimPrefix(h.ID, h.Scope+"/"), "/id"); p != nil {
		problems = append(problems, *p)
	}
	return problems
}

// judge counts an artifact that would be invalid.
func (c *compatibility) judge(h *head, problems []artifact.Problem) {
	if len(problems) == 0 {
		return
	}
	c.invalid++
	switch {
	case h.audience == participants || !c.state.sees(h):
		c.hidden++
	case len(c.examples) < maxExamples:
		c.examples = append(c.examples, example{c.now.Type + ":" + h.ID, problems[:min(len(problems), maxExamples)]})
	}
}

// annotations are keywords that say nothing about what is valid.
var annotations = []string{"title", "description", "examples", "default", "$comment", "deprecated", "readOnly", "writeOnly"}

// rulesOf returns a JSON Schema in canonical form without what only describes.
func rulesOf(raw json.RawMessage) []byte {
	var schema any
	if json.Unmarshal(raw, &schema) != nil {
		return raw
	}
	out, err := json.Marshal(withoutAnnotations(schema))
	if err != nil {
		return raw
	}
	return out
}

func withoutAnnotations(schema any) any {
	object, ok := schema.(map[string]any)
	if !ok {
		if list, ok := schema.([]any); ok {
			for i := range list {
				list[i] = withoutAnnotations(list[i])
			}
		}
		return schema
	}
	for key, value := range object {
		switch {
		case slices.Contains(annotations, key):
			delete(object, key)
		case key == "enum" || key == "const" || key == "required" || key == "dependentRequired":
		case key == "properties" || key == "patternProperties" || key == "$defs" || key == "dependentSchemas":
			if members, ok := value.(map[string]any); ok { // whose names are no keywords
				for name := range members {
					members[name] = withoutAnnotations(members[name])
				}
			}
		default:
			object[key] = withoutAnnotations(value)
		}
	}
	return object
}
