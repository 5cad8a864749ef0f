package hub

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
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
	if err := h.schemas.ensure(ctx, h.db, in.Type); err != nil {
		return out, err
	}
	return single[verb.WriteResult](ctx, h, c, &writeRequest{
		verb: "create", request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			if schema := h.schemas.get(in.Type); schema != nil && proposes(c, schema) {
				o, err := h.newProposedCreate(c, &in, schema)
				return []op{o}, err
			}
			o, err := h.newCreate(c, &in, "create", false, nil)
			return []op{o}, err
		},
	})
}

// A createOp makes one artifact.
type createOp struct {
	schema     *artifact.Schema
	makes      *artifact.Schema // the type that it makes, if it makes one
	ref        artifact.Ref     // pinned
	spare      string           // id instead of one by which a paper is cited, should an earlier paper have that
	scope      string
	title      string
	state      string
	content    []byte
	links      []*linkOp
	signatures []byte // canonical; nil for none
	provenance replicate.Provenance
	requestID  string
	fresh      bool // the hub made the id: there is nothing by that name
	imported   bool
	review     *review // nil: the caller writes it in its own right

	inspection *artifact.Inspection
	papers     []citation         // what a paper is cited by
	words      *words             // what it is found by; nil: made when decided
	warnings   []artifact.Problem // decided
	addressees []string           // of a type with participants, its author among them; loaded, as is mail
	mail       *mail
}

// newCreate checks all of a request that can be checked without the database.
// Of an item of a batch, what is known of its content is given in known.
func (h *Hub) newCreate(c *verb.Caller, in *verb.CreateRequest, verbName string, imported bool, known *checkedContent) (*createOp, error) {
	schema := h.schemas.get(in.Type)
	if schema == nil {
		return nil, artifact.Invalid(artifact.UnknownType(in.Type, h.schemas.types(), "/type"))
	}
	if err := directWrites(schema); err != nil {
		return nil, err
	}
	if in.Type == artifact.SchemaType {
		if err := mayChangeTypes(c); err != nil {
			return nil, err
		}
	}
	return h.checkCreate(c, in, schema, provenance(c, verbName, imported), nil, known)
}

// checkCreate is newCreate for those who may: in its own right, or as part of a review.
func (h *Hub) checkCreate(c *verb.Caller, in *verb.CreateRequest, schema *artifact.Schema, stamp replicate.Provenance, r *review, known *checkedContent) (*createOp, error) {
	imported := stamp.Import
	if in.Type == artifact.SchemaType {
		in = typeRequest(in)
	}
	var problems []artifact.Problem
	note := func(p *artifact.Problem) {
		if p != nil {
			problems = append(problems, *p)
		}
	}
	scope := orCommons(in.Scope)
	if scope != artifact.Commons && !verb.ValidScope(scope) { // no id begins with it: it names none
		note(unknownScope(in.Scope))
		scope = artifact.Commons
	}
	inBatch := known != nil
	if known == nil || known.schema != schema || in.Type == artifact.SchemaType {
		known = checkContent(schema, in.Content, imported)
	}
	content := known.canonical
	id, fault := idIn(scope, schema, in.ID, imported)
	spare := ""
	if in.ID == "" && in.Type == paperType {
		if cited := paperID(content); cited != "" {
			if named, unfit := idIn(scope, schema, cited, imported); unfit == nil {
				id, spare = named, id
			}
		}
	}
	if schema.Visibility == artifact.VisibilityParticipants && in.ID != "" {
		// One that is taken would tell of an artifact that is for others alone.
		fault = &artifact.Problem{Path: "/id", Constraint: "server_id", Message: "an id of type " + schema.Type + " is made by the hub; an idempotency_key makes a retry safe"}
	}
	note(fault)
	note(artifact.CheckTitle(in.Title, "/title"))
	state := in.State
	if state == "" {
		state = schema.Initial()
	} else {
		note(schema.CheckState(state, "/state"))
	}
	signatures, faults := checkSignatures(in.AdditionalSignatures)
	problems = append(problems, faults...)
	if len(in.Links) > verb.MaxLinksPerWrite {
		note(&artifact.Problem{Path: "/links", Constraint: "max_items", Message: "at most " + strconv.Itoa(verb.MaxLinksPerWrite) + " links"})
	}
	problems = append(problems, known.problems...)
	var makes *artifact.Schema
	if content != nil && in.Type == artifact.SchemaType {
		makes, faults = checkNewType(scope, id, content)
		problems = append(problems, faults...)
	}
	o := &createOp{
		schema: schema, makes: makes, scope: scope, signatures: signatures, title: in.Title, state: state, content: content,
		provenance: stamp, requestID: c.RequestID, review: r,
		ref: artifact.Ref{Type: in.Type, ID: id}, spare: spare, fresh: in.ID == "" && spare == "", imported: imported,
		inspection: known.inspection,
	}
	for i := range in.Links[:min(len(in.Links), verb.MaxLinksPerWrite)] {
		l, faults := h.newLink(&verb.LinkRequest{From: o.ref.String(), LinkSpec: in.Links[i]}, "/links/"+strconv.Itoa(i))
		problems = append(problems, slices.DeleteFunc(faults, func(p artifact.Problem) bool {
			return p.Path == "/links/"+strconv.Itoa(i)+"/from" // the id's fault, which is told
		})...)
		for _, other := range o.links {
			if l.single && other.predicate == l.predicate && other.toText != l.toText {
				note(&artifact.Problem{
					Path: "/links/" + strconv.Itoa(i) + "/to", Constraint: "cardinality", Message: l.predicate + " leads to one artifact", Value: artifact.Received(l.toText),
				})
				break
			}
		}
		o.links = append(o.links, l)
	}
	if in.Type == paperType {
		note(checkPaperID(strings.TrimPrefix(id, scope+"/")))
		o.papers = paperKeys(strings.TrimPrefix(id, scope+"/"), content)
	}
	var misplaced error
	if !imported { // an import brings artifacts as they are elsewhere
		misplaced = schema.CheckTransition(schema.Initial(), state, r.roles(c, scope))
	}
	switch {
	case problems != nil:
		if e := artifact.AsError(misplaced); misplaced != nil && schema.CheckState(state, "") == nil {
			problems = append(problems, e.Problems...)
		}
		return nil, o.doubtful(artifact.Invalid(problems...))
	case misplaced != nil:
		return nil, o.doubtful(misplaced)
	}
	o.ref.Hash = artifact.ContentHash(in.Type, in.Title, state, content)
	if !inBatch { // whose words are made side by side
		o.makeWords()
	}
	return o, nil
}

// makeWords makes what the artifact is found by, which decide does otherwise, while
// others wait.
func (o *createOp) makeWords() { o.words = wordsBy(o.schema, o.ref.ID, o.title, o.content) }

// doubtful returns why the artifact is not made, with what else may be wrong.
func (o *createOp) doubtful(err error) error {
	return &doubtful{
		error: err, inspection: o.inspection, scope: o.scope, papers: o.papers, links: o.links, schema: o.schema,
		place: func(path string) string { return path },
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

// idIn returns the id of a new artifact. In a private scope ids begin with it, so
// that no collision tells anything to those outside; in commons none may look so.
func idIn(scope string, schema *artifact.Schema, id string, imported bool) (string, *artifact.Problem) {
	if id == "" {
		id = newID(schema)
	}
	if scope == artifact.Commons {
		if first, _, nested := strings.Cut(id, "/"); nested && verb.ValidScope(first) && !imported {
			return id, &artifact.Problem{
				Path: "/id", Constraint: "scoped_id", Value: artifact.Received(id),
				Message: "an id in commons does not begin as those of private scopes do: with lower-case letters, digits and hyphens before a /",
			}
		}
		return id, schema.CheckID(id, "/id")
	}
	local := strings.TrimPrefix(id, scope+"/")
	if p := schema.CheckID(local, "/id"); p != nil {
		return id, p
	}
	if !verb.ValidScope(scope) {
		return id, unknownScope(scope)
	}
	id = scope + "/" + local
	if !artifact.ValidID(id) {
		return id, &artifact.Problem{Path: "/id", Constraint: "max_bytes", Message: "an id is at most 256 bytes, its scope's id and a / among them"}
	}
	return id, nil
}

// checkSignatures returns additional signatures in canonical form, nil for none.
func checkSignatures(given []json.RawMessage) ([]byte, []artifact.Problem) {
	const at = "/additional_signatures"
	if len(given) == 0 {
		return nil, nil
	}
	if len(given) > verb.MaxSignatures {
		return nil, []artifact.Problem{{Path: at, Constraint: "max_items", Message: "at most " + strconv.Itoa(verb.MaxSignatures) + " signatures"}}
	}
	var problems []artifact.Problem
	list := []byte{'['}
	for i, raw := range given {
		canonical, faults := artifact.Canonical(raw, at+"/"+strconv.Itoa(i))
		problems = append(problems, faults...)
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, canonical...)
	}
	list = append(list, ']')
	if len(list) > verb.MaxSignatureBytes {
		problems = append(problems, artifact.Problem{Path: at, Constraint: "max_bytes", Message: "signatures are at most " + strconv.Itoa(verb.MaxSignatureBytes) + " bytes together"})
	}
	return list, problems
}

// insertParticipantQuery may meet an agent twice: as author and addressee.
const insertParticipantQuery = `
	INSERT INTO participant (type, id, agent) SELECT $1, $2, k.agent FROM unnest($3::text[]) AS k (agent)
	ON CONFLICT DO NOTHING`

var _ loader = (*createOp)(nil)

// load implements loader: it finds whom an artifact is for whose type has
// participants.
func (o *createOp) load(ctx context.Context, db querier, s *state) (err error) {
	o.addressees = nil
	if o.schema.Visibility != artifact.VisibilityParticipants {
		return nil
	}
	if o.mail, err = readMail(ctx, db, s, o); err != nil {
		return err
	}
	o.addressees = append([]string{s.caller.Actor.ID}, o.mail.recipients...)
	if o.mail.everyone {
		o.addressees = append(o.addressees, anyParticipant)
	}
	return nil
}

// noScopeToWrite is the answer for a scope that is not there or that the caller
// may not know of.
func noScopeToWrite(id string) error {
	return artifact.Invalid(*unknownScope(id))
}

func unknownScope(id string) *artifact.Problem {
	return &artifact.Problem{Path: "/scope", Constraint: "scope", Message: "no such scope that you may write to", Value: artifact.Received(id)}
}

func orCommons(scope string) string {
	if scope == "" {
		return artifact.Commons
	}
	return scope
}

// mayShare implements sharer. Whom a message is for is looked up, which locks.
func (o *createOp) mayShare() bool {
	return o.schema.Visibility != artifact.VisibilityParticipants && !slices.ContainsFunc(o.links, func(l *linkOp) bool { return !l.mayShare() })
}

var _ reader = (*createOp)(nil)

// reads implements reader, for its links.
func (o *createOp) reads(s *state, round readRound, r *reads) {
	for _, l := range o.links {
		l.reads(s, round, r)
	}
}

func (o *createOp) needs(n *needs) {
	if o.fresh {
		n.fresh[o.ref.Current()] = true
	} else if _, ok := n.write[o.ref.Current()]; !ok {
		n.write[o.ref.Current()] = false
	}
	n.scopes[o.scope] = true
	n.types[o.schema.Type] = true
	n.versions[o.schema.Type] = o.schema.SchemaVersion
	for _, c := range append(o.inspection.Lookups(), o.papers...) {
		n.cited[c] = true
	}
	for _, l := range o.links {
		l.needs(n)
	}
	delete(n.share, o.ref.Current())
}

// rename gives what is made another id.
func (o *createOp) rename(id string) {
	o.ref.ID, o.words = id, nil // the id is one of them
	for _, l := range o.links {
		l.fromText = o.ref.Current().String()
		l.from = o.ref.Current()
	}
}

func (o *createOp) decide(s *state) error {
	if !s.known[o.scope] {
		return noScopeToWrite(o.scope)
	}
	if o.makes == nil { // whose maker was asked for more
		if err := s.needWriter(o.scope, "creating"); err != nil {
			return err
		}
	}
	if _, exists := s.heads[o.ref.Current()]; o.spare != "" && (exists || s.taken[o.ref.Current()]) {
		o.rename(o.spare) // whether this paper is here already, claimPaper tells
	}
	if s.taken[o.ref.Current()] { // it was in commons once, or is another's message
		return &artifact.Error{Code: artifact.CodeVersionConflict, Reason: artifact.ReasonIDTaken, Message: "the id is taken: give another"}
	}
	if current, ok := s.heads[o.ref.Current()]; ok {
		if current.content == nil {
			return errNeedsContent
		}
		return conflict(current, artifact.ReasonExists, "an artifact with this id exists", artifact.Hash{})
	}
	refused, shadowed := s.papers.check(o.inspection, o.scope)
	now, by := s.caller.Now, s.author.ID
	h := &head{Head: replicate.Head{
		ContentHash: o.ref.Hash, CreatedAt: now, CreatedBy: by, ID: o.ref.ID, IsLatest: true, Revision: 1,
		SchemaVersion: o.schema.SchemaVersion, Scope: o.scope, State: o.state, Title: o.title, Type: o.ref.Type, UpdatedAt: now, UpdatedBy: by,
	}, created: true, audience: everyone, content: o.content, updatedKind: s.author.Kind, words: o.words}
	if o.addressees != nil {
		h.audience = participants
	}
	set(s, s.heads, o.ref.Current(), h)
	faults := []error{s.claimPaper(o.ref, o.scope, o.papers)}
	if refused != nil {
		faults = append(faults, artifact.Invalid(refused...))
	}
	if h.Type == geneType {
		s.addGene(h.ID, h.Scope)
		s.addSynonyms(h.ID, h.Scope, o.content)
	}
	if o.makes != nil {
		if err := s.putType(o.makes); err != nil {
			return err
		}
	}
	if err := s.addRevision(h, o.content, o.provenance, "", o.signatures); err != nil {
		return err
	}
	s.putFacets(h, nil, o.content)
	told := map[string]any{"revision": 1}
	if o.addressees != nil {
		s.also(insertParticipantQuery, h.Type, h.ID, o.addressees)
		if h.Type == messageType {
			s.putMail(h, o.mail)
		}
		told["recipient"] = o.mail.content.Recipient
	}
	err := s.addHead(h, &eventOf{typ: h.Type + ".created", ref: o.ref.String(), payload: told})
	if err != nil {
		return err
	}
	for i, l := range o.links {
		faults = append(faults, l.decideAt(s, "/links/"+strconv.Itoa(i)))
	}
	if err := gather(faults...); err != nil {
		return err
	}
	o.warnings = s.hub.shadow(o.schema.Type, shadowed)
	if !o.imported {
		o.warnings = append(o.warnings, o.schema.Undeclared(o.content, nil, "/content")...)
	}
	if o.makes != nil {
		o.warnings = append(o.warnings, s.oddities(o.makes)...)
	}
	if s.dry && (o.fresh || o.ref.ID == o.spare) {
		o.warnings = append(o.warnings, passingID())
	}
	return nil
}

// passingID warns of a name that a dry run has made: nothing will have it.
func passingID() artifact.Problem {
	return artifact.Problem{Path: "", Constraint: "dry_run", Message: "the id in ref was made for this dry run: the write itself will make another"}
}

func (o *createOp) made() artifact.Ref { return o.ref.Current() }

func (o *createOp) answer(seq artifact.Seq, token string) any {
	links := make([]string, len(o.links))
	for i, l := range o.links {
		links[i] = l.ref()
	}
	return &verb.WriteResult{
		Ref: o.ref, ContentHash: o.ref.Hash, Revision: 1, Created: true, Links: links, RequestID: o.requestID,
		Idempotency: verb.IdempotencyNone, ProvenanceRefs: []string{}, Warnings: append([]artifact.Problem{}, o.warnings...), Signatures: o.signatures,
		Seq: seq, ConsistencyToken: token,
	}
}

// conflict returns the version_conflict of a write against what is current.
func conflict(current *head, reason, message string, base artifact.Hash) *artifact.Error {
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
	if d, ok := errors.AsType[*doubtful](err); ok {
		return d.at(path)
	}
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
