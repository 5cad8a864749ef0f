package hub

import (
	"context"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// create answers the verb of that name.
func (h *Hub) create(ctx context.Context, in verb.CreateRequest) (out verb.WriteResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if err := c.Need(verb.Contributor, "creating"); err != nil {
		return out, err
	}
	return single[verb.WriteResult](ctx, h, c, &writeRequest{
		verb: "create", request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o, err := h.newCreate(c, &in, "", "create", false)
			return []op{o}, err
		},
	})
}

// A createOp makes one artifact.
type createOp struct {
	schema     *artifact.Schema
	alias      string
	ref        artifact.Ref // pinned
	scope      string
	title      string
	state      string
	content    []byte
	links      []*linkOp
	provenance replicate.Provenance
	requestID  string
}

// newCreate checks all of a request that can be checked without the database.
func (h *Hub) newCreate(c *verb.Caller, in *verb.CreateRequest, alias, verbName string, imported bool) (*createOp, error) {
	schema := h.schemas.get(in.Type)
	if schema == nil {
		return nil, artifact.Invalid(artifact.UnknownType(in.Type, h.schemas.types(), "/type"))
	}
	if err := directWrites(schema); err != nil {
		return nil, err
	}
	var problems []artifact.Problem
	note := func(p *artifact.Problem) {
		if p != nil {
			problems = append(problems, *p)
		}
	}
	id := in.ID
	if id == "" {
		id = newID(schema)
	}
	note(schema.CheckID(id, "/id"))
	note(artifact.CheckTitle(in.Title, "/title"))
	state := in.State
	if state == "" {
		state = schema.Initial()
	} else {
		note(schema.CheckState(state, "/state"))
	}
	if len(in.Links) > verb.MaxLinksPerWrite {
		note(&artifact.Problem{Path: "/links", Constraint: "max_items", Message: "at most " + strconv.Itoa(verb.MaxLinksPerWrite) + " links"})
	}
	content, faults := artifact.Canonical(in.Content, "/content")
	problems = append(problems, faults...)
	if content != nil {
		problems = append(problems, schema.Validate(content, "/content")...)
	}
	o := &createOp{
		schema: schema, alias: alias, scope: orCommons(in.Scope), title: in.Title, state: state, content: content,
		provenance: provenance(c, verbName, imported), requestID: c.RequestID,
		ref: artifact.Ref{Type: in.Type, ID: id},
	}
	for i := range in.Links {
		l, faults := newLink(&verb.LinkRequest{From: o.ref.String(), LinkSpec: in.Links[i]}, "/links/"+strconv.Itoa(i))
		problems = append(problems, faults...)
		o.links = append(o.links, l)
	}
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	if !imported { // an import brings artifacts as they are elsewhere
		if err := schema.CheckTransition(schema.Initial(), state, c.Permissions); err != nil {
			return nil, err
		}
	}
	o.ref.Hash = artifact.ContentHash(in.Type, in.Title, state, content)
	return o, nil
}

// directWrites refuses types that are not written by the generic verbs.
func directWrites(s *artifact.Schema) error {
	if s.WritePolicy == "" || s.WritePolicy == "direct" {
		return nil
	}
	return &artifact.Error{
		Code: artifact.CodeMutability, Reason: s.WritePolicy,
		Message: "artifacts of type " + s.Type + " are not written by this verb",
		Details: map[string]any{"write_policy": s.WritePolicy},
	}
}

// newID makes an id by the type's strategy. UUIDv7 ids sort by age.
func newID(s *artifact.Schema) string {
	return strings.Replace(s.IDStrategy.Format, "{uuid}", newUUID(), 1)
}

func newUUID() string {
	id, err := uuid.NewV7()
	if err != nil { // the system has no randomness: nothing can go on
		panic(err)
	}
	return id.String()
}

func orCommons(scope string) string {
	if scope == "" {
		return artifact.Commons
	}
	return scope
}

func (o *createOp) needs(n *needs) {
	if _, ok := n.write[o.ref.Current()]; !ok {
		n.write[o.ref.Current()] = false
	}
	n.scopes[o.scope] = true
	n.types[o.schema.Type] = true
	n.versions[o.schema.Type] = o.schema.SchemaVersion
	for _, l := range o.links {
		l.needs(n)
	}
	delete(n.share, o.ref.Current())
}

func (o *createOp) decide(s *state) error {
	if !s.known[o.scope] {
		return artifact.Invalid(artifact.Problem{
			Path: "/scope", Constraint: "scope", Message: "no such scope that you may write to", Value: artifact.Received(o.scope),
		})
	}
	if current, ok := s.heads[o.ref.Current()]; ok {
		if current.content == nil {
			return errNeedsContent
		}
		return conflict(current, artifact.ReasonExists, "an artifact with this id exists", artifact.Hash{})
	}
	now, by := s.caller.Now, s.caller.Actor.ID
	h := &head{Head: replicate.Head{
		ContentHash: o.ref.Hash, CreatedAt: now, CreatedBy: by, ID: o.ref.ID, IsLatest: true, Revision: 1,
		SchemaVersion: o.schema.SchemaVersion, Scope: o.scope, State: o.state, Title: o.title, Type: o.ref.Type, UpdatedAt: now, UpdatedBy: by,
	}, created: true, content: o.content, updatedKind: s.caller.Actor.Kind}
	s.heads[o.ref.Current()] = h
	for i, l := range o.links {
		if err := l.check(s); err != nil {
			delete(s.heads, o.ref.Current())
			return at(err, "/links/"+strconv.Itoa(i))
		}
	}
	if err := s.addRevision(h, o.content, o.provenance, ""); err != nil {
		return err
	}
	err := s.addHead(h, &eventOf{typ: h.Type + ".created", ref: o.ref.String(), payload: map[string]any{"revision": 1, "title": o.title}})
	if err != nil {
		return err
	}
	for _, l := range o.links {
		if err := l.decide(s); err != nil {
			return err
		}
	}
	if o.alias != "" {
		s.aliases[o.alias] = o.ref.Current()
	}
	return nil
}

func (o *createOp) answer(seq artifact.Seq, token string) any {
	links := make([]string, len(o.links))
	for i, l := range o.links {
		links[i] = l.ref()
	}
	return &verb.WriteResult{
		Ref: o.ref, ContentHash: o.ref.Hash, Revision: 1, Created: true, Links: links, RequestID: o.requestID,
		Idempotency: verb.IdempotencyNone, ProvenanceRefs: []string{}, Warnings: []artifact.Problem{}, Seq: seq, ConsistencyToken: token,
	}
}

// conflict returns the version_conflict of a write against what is current.
func conflict(current *head, reason, message string, base artifact.Hash) error {
	c := &artifact.Conflict{Current: &artifact.ConflictVersion{
		Ref: current.ref(), Revision: current.Head.Revision, Title: current.Title, State: current.State, Content: current.content,
		ChangedBy: artifact.Actor{ID: current.UpdatedBy, Kind: current.updatedKind}, ChangedAt: current.UpdatedAt,
	}}
	if !base.IsZero() {
		c.YourBase = base.String()
	}
	return &artifact.Error{Code: artifact.CodeVersionConflict, Reason: reason, Message: message, Conflict: c}
}

// at places an error's problems under a path of the request.
func at(err error, path string) error {
	e := *artifact.AsError(err)
	if e.Code == artifact.CodeInternal {
		return err
	}
	problems := make([]artifact.Problem, len(e.Problems))
	for i, p := range e.Problems {
		p.Path = path + p.Path
		problems[i] = p
	}
	e.Problems = problems
	return &e
}
