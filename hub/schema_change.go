package hub

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// reserved are names in refs of what is no artifact.
var reserved = map[string]bool{
	replicate.LinkType: true, replicate.SignalType: true, replicate.KindScope: true, replicate.KindAgent: true, replicate.KindMembership: true,
	replicate.KindRevocation: true, "event": true, "candidate": true, "node": true, "node_invite": true,
}

// mayChangeTypes refuses those who may not make and change types at once.
func mayChangeTypes(c *verb.Caller) error {
	if c.Has(verb.Admin, artifact.Commons) {
		return nil
	}
	e := artifact.Denied("types are made and changed by an admin in commons, and proposed by a reviewer there")
	e.Details = map[string]any{"needs": verb.Admin}
	return e
}

// typeRequest returns a request for a new type with what may be left out of it:
// the id and the version.
func typeRequest(in *verb.CreateRequest) *verb.CreateRequest {
	full := *in
	content, problems := artifact.Canonical(in.Content, "")
	if problems != nil {
		return &full // they are told like those of any content
	}
	if artifact.SchemaVersionOf(content) == 0 {
		if stamped, err := artifact.WithSchemaVersion(content, 1); err == nil {
			full.Content = stamped
		}
	}
	if full.ID == "" {
		var named struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(content, &named) == nil && artifact.ValidType(named.Type) {
			full.ID = named.Type
		}
	}
	return &full
}

// checkNewType checks the content of a request for a new type.
func checkNewType(scope, id string, content []byte) (*artifact.Schema, []artifact.Problem) {
	schema, problems := artifact.CheckSchema(content, "/content")
	if scope != artifact.Commons {
		problems = append(problems, artifact.Problem{Path: "/scope", Constraint: "scope", Message: "types are in commons", Value: artifact.Received(scope)})
	}
	if reserved[id] {
		problems = append(problems, artifact.Problem{Path: "/id", Constraint: "reserved", Message: "the name stands for what is no artifact", Value: artifact.Received(id)})
	}
	if schema == nil {
		return nil, problems
	}
	if schema.SchemaVersion != 1 {
		problems = append(problems, artifact.Problem{
			Path: "/content/schema_version", Constraint: "schema_version", Message: "a new type begins with version 1; it may be left out",
			Value: json.RawMessage(strconv.Itoa(schema.SchemaVersion)),
		})
	}
	odd, _ := schema.CheckDeclarations(nil, "/content")
	return schema, append(append(problems, odd...), sameType(schema, id)...)
}

// oddities warns of what a document says for types and fields that are not there.
func (s *state) oddities(schema *artifact.Schema) []artifact.Problem {
	_, warned := schema.CheckDeclarations(s.hub.schemas.types(), "/content")
	return warned
}

func sameType(schema *artifact.Schema, id string) []artifact.Problem {
	if schema.Type == id {
		return nil
	}
	return []artifact.Problem{{
		Path: "/content/type", Constraint: "type_name", Message: "the id of a schema is the name of its type: " + id, Value: artifact.Received(schema.Type),
	}}
}

// checkChangedType checks what an update makes of a type, and stamps its version.
// The paths of the problems are those of the version as it will be.
func checkChangedType(current *head, next nextVersion) (nextVersion, *artifact.Schema, error) {
	if bytes.Equal(next.Content, current.content) {
		return next, nil, nil // another title is no other type
	}
	is := artifact.SchemaVersionOf(current.content)
	if named := artifact.SchemaVersionOf(next.Content); named != is && named != is+1 {
		return next, nil, artifact.Invalid(artifact.Problem{
			Path: "/content/schema_version", Constraint: "schema_version", Value: json.RawMessage(strconv.Itoa(named)),
			Message: "the next version is " + strconv.Itoa(is+1) + "; it may be left out, or left as it is", Suggestion: json.RawMessage(strconv.Itoa(is + 1)),
		})
	}
	content, err := artifact.WithSchemaVersion(next.Content, is+1)
	if err != nil {
		return next, nil, err
	}
	schema, problems := artifact.CheckSchema(content, "/content")
	if schema != nil {
		odd, _ := schema.CheckDeclarations(nil, "/content")
		problems = append(append(problems, odd...), sameType(schema, current.ID)...)
	}
	if problems != nil {
		return next, nil, artifact.Invalid(problems...)
	}
	next.Content = content
	next.hash = artifact.ContentHash(artifact.SchemaType, next.Title, next.State, content)
	return next, schema, nil
}

const (
	retireSchemaQuery = `UPDATE schema_registry SET is_current = false WHERE artifact_type = $1 AND is_current`
	insertSchemaQuery = `
		INSERT INTO schema_registry (id, artifact_type, schema_version, is_current, document, proposed_by, created_at)
		VALUES ($1, $2, $3, true, $4, $5, $6)`
)

// putType makes schema the current one of its type, with the row by which nodes
// learn of it. Its artifact is put beside it.
func (s *state) putType(schema *artifact.Schema) error {
	now := s.caller.Now
	s.also(retireSchemaQuery, schema.Type)
	s.also(insertSchemaQuery, schemaID(schema.Type, schema.SchemaVersion), schema.Type, schema.SchemaVersion, string(schema.Document()), s.author.ID, now)
	s.rows.internal = false
	data := replicate.Schema{CreatedAt: now, Document: schema.Document(), SchemaVersion: schema.SchemaVersion, Type: schema.Type}
	return s.rows.put(artifact.Commons, replicate.KindSchema, artifact.SchemaType+":"+schema.Type, schema.SchemaVersion, artifact.Hash{}, data, nil)
}

// builtIn refuses what is not done to the types themselves.
func builtIn(message string) error {
	return &artifact.Error{Code: artifact.CodeMutability, Reason: artifact.ReasonBuiltIn, Message: message}
}

// allowedVerbs are what may be done with artifacts of a type, the first of them
// instead of a change.
func allowedVerbs(s *artifact.Schema) (verbs []string) {
	switch s.Mutability {
	case artifact.AppendOnly:
		verbs = append(verbs, verb.Create.Name)
	case artifact.SupersededOnly:
		verbs = append(verbs, verb.Supersede.Name)
	case artifact.Immutable:
	case artifact.MutableWithHistory:
		verbs = append(verbs, verb.Update.Name, verb.Supersede.Name)
	}
	if s.Visibility != artifact.VisibilityParticipants {
		verbs = append(verbs, verb.Comment.Name)
	}
	if len(s.Links) > 0 {
		verbs = append(verbs, verb.Link.Name)
	}
	if len(s.Signals) > 0 {
		verbs = append(verbs, verb.Signal.Name)
	}
	return verbs
}

// mayChange refuses an update or a supersede that the type's mutability excludes.
func mayChange(s *artifact.Schema, how string, modes ...artifact.Mutability) error {
	if err := directWrites(s); err != nil {
		return err
	}
	return mutable(s, how, modes...)
}

func mutable(s *artifact.Schema, how string, modes ...artifact.Mutability) error {
	if slices.Contains(modes, s.Mutability) {
		return nil
	}
	return &artifact.Error{
		Code: artifact.CodeMutability, Reason: artifact.ReasonNotUpdated, Message: "artifacts of type " + s.Type + " are not " + how,
		Details: map[string]any{"mutability": s.Mutability, "allowed_verbs": allowedVerbs(s)},
	}
}

// directWrites refuses types that are not written by the generic verbs.
func directWrites(s *artifact.Schema) error {
	if s.WrittenDirectly() {
		return nil
	}
	use := s.Use
	message := "artifacts of type " + s.Type + " are written by " + strings.Join(use, ", ")
	if s.WritePolicy == artifact.WritePropose {
		use = []string{verb.Create.Name, verb.Update.Name}
		message = "a change of type " + s.Type + " is a candidate until it is approved: propose it by create or update, alone"
	}
	return &artifact.Error{
		Code: artifact.CodeMutability, Reason: artifact.ReasonWritePolicy, Message: message,
		Details: map[string]any{"write_policy": s.WritePolicy, "use": use},
	}
}
