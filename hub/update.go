package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const maxNoteLength = 2000

// update answers the verb of that name.
func (h *Hub) update(ctx context.Context, in verb.UpdateRequest) (out verb.WriteResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if ref, err := artifact.ParseRef(in.Ref); err == nil {
		if err := h.schemas.ensure(ctx, h.db, ref.Type); err != nil {
			return out, err
		}
	}
	return single[verb.WriteResult](ctx, h, c, &writeRequest{
		verb: "update", request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			if namesEdge(in.Ref) {
				return []op{&fixedOp{ref: in.Ref}}, nil
			}
			if ref, err := artifact.ParseRef(in.Ref); err == nil {
				if schema := h.schemas.get(ref.Type); schema != nil && proposes(c, schema) {
					o, err := h.newProposedUpdate(c, &in, schema)
					return []op{o}, err
				}
			}
			o, err := h.newUpdate(c, &in, "")
			return []op{o}, err
		},
	})
}

// movesOnly reports whether an update does nothing but move the lifecycle, which
// a reviewer may do too.
func movesOnly(in *verb.UpdateRequest) bool {
	change := strings.TrimSpace(string(in.MergePatch))
	return in.State != "" && in.Title == "" && len(in.Content) == 0 && len(in.Patch) == 0 && (change == "" || change == "{}")
}

// An updateOp writes a new version of one artifact.
type updateOp struct {
	schema     *artifact.Schema
	in         *verb.UpdateRequest
	ref        artifact.Ref
	content    []byte               // canonical, when the request gives the whole
	inspection *artifact.Inspection // of that content
	signatures []byte
	provenance replicate.Provenance
	requestID  string

	review       *review       // nil: the caller writes it in its own right
	unversioned  bool          // of a type, whose version the request leaves out
	incompatible error         // loaded: why a type is not changed so
	checked      artifact.Hash // loaded: of the change of a type that was found compatible
	upgraded     bool          // what is stored has the form of an earlier schema
	state        string        // of the artifact, in the current form

	warnings []artifact.Problem // decided
	base     artifact.Hash
	outcome  artifact.Ref // pinned
	version  int
	same     bool
	merged   bool
}

// newUpdate checks all of a request that can be checked without the database. Typ
// is the type of what an alias names.
func (h *Hub) newUpdate(c *verb.Caller, in *verb.UpdateRequest, typ string) (*updateOp, error) {
	return h.checkUpdate(c, in, typ, provenance(c, verb.Update.Name, false), nil)
}

// checkUpdate is newUpdate in its own right, or as part of a review.
func (h *Hub) checkUpdate(c *verb.Caller, in *verb.UpdateRequest, typ string, stamp replicate.Provenance, r *review) (*updateOp, error) {
	o := &updateOp{in: in, provenance: stamp, requestID: c.RequestID, review: r}
	var problems []artifact.Problem
	note := func(path, constraint, message string) {
		problems = append(problems, artifact.Problem{Path: path, Constraint: constraint, Message: message})
	}
	if o.ref.Type = typ; !o.aliased() || typ == "" {
		ref, err := artifact.ParseRef(in.Ref)
		if err != nil {
			return nil, at(err, "/ref")
		}
		o.ref = ref.Current()
	}
	if o.schema = h.schemas.get(o.ref.Type); o.schema == nil {
		return nil, artifact.NotFound(in.Ref).Typed(o.ref, h.schemas.addressed(), "/ref")
	}
	if err := o.mayChange(); err != nil {
		return nil, err
	}
	if o.ref.Type == artifact.SchemaType {
		if err := o.mayChangeTypes(c); err != nil {
			return nil, err
		}
		if o.ref.ID == artifact.SchemaType {
			return nil, builtIn("the type schema is a part of the program")
		}
	}
	base, fault := pinnedBase(in.Ref, in.BaseContentHash)
	if in.BaseContentHash = base; fault != nil {
		problems = append(problems, *fault)
	}
	if in.BaseContentHash.IsZero() && !o.aliased() { // what the batch made of it so far
		note("/base_content_hash", "required", "an update names the version it is based on")
	}
	given := 0
	for _, raw := range []json.RawMessage{in.Content, in.Patch, in.MergePatch} {
		if len(raw) > 0 {
			given++
		}
	}
	if given > 1 || given == 0 && in.Title == "" && in.State == "" {
		note("", "exactly_one", "give one of content, patch and merge_patch, or only title or state")
	}
	if in.Title != "" {
		if p := artifact.CheckTitle(in.Title, "/title"); p != nil {
			problems = append(problems, *p)
		}
	}
	if in.State != "" {
		if p := o.schema.CheckState(in.State, "/state"); p != nil {
			problems = append(problems, *p)
		}
	}
	if len(in.Note) > maxNoteLength {
		note("/note", "max_length", "a note is at most 2000 bytes")
	}
	signatures, faults := checkSignatures(in.AdditionalSignatures)
	o.signatures, problems = signatures, append(problems, faults...)
	problems = append(problems, o.parseChange(in)...)
	if o.content != nil {
		o.inspection = inspect(o.schema, o.content, false)
	}
	if problems == nil {
		return o, nil
	}
	return nil, &doubtful{error: artifact.Invalid(problems...), of: o.ref, inspection: o.inspection, place: func(path string) string { return path }}
}

func (o *updateOp) parseChange(in *verb.UpdateRequest) (problems []artifact.Problem) {
	switch {
	case len(in.Content) > 0:
		content, faults := artifact.Canonical(in.Content, "/content")
		if content != nil && o.ref.Type == artifact.SchemaType && artifact.SchemaVersionOf(content) == 0 {
			if stamped, err := artifact.WithSchemaVersion(content, 1); err == nil {
				content, o.unversioned = stamped, true
			}
		}
		if content != nil {
			faults = o.schema.Validate(content, "/content")
		}
		o.content, problems = content, faults
	case len(in.MergePatch) > 0:
		canonical, faults := artifact.Canonical(in.MergePatch, "/merge_patch")
		if in.MergePatch = canonical; faults != nil {
			return faults
		}
	case len(in.Patch) > 0:
		problems = artifact.CheckJSON(in.Patch, "/patch", artifact.MaxContentDepth) // all else when it is applied
	}
	return problems
}

// mayShare implements sharer.
func (o *updateOp) mayShare() bool { return o.ref.Type != artifact.SchemaType }

// aliased reports whether the artifact is one that the batch makes or changes
// before.
func (o *updateOp) aliased() bool { return strings.HasPrefix(o.in.Ref, "@") }

func (o *updateOp) needs(n *needs) {
	// The whole needs the current content in a conflict only; that of a type always.
	whole := o.content != nil && o.ref.Type != artifact.SchemaType
	if o.ref.ID != "" {
		n.write[o.ref] = n.write[o.ref] || !whole
	}
	if whole {
		for _, c := range o.inspection.Lookups() {
			n.cited[c] = true
		}
	}
	n.types[o.ref.Type] = true
	n.versions[o.ref.Type] = o.schema.SchemaVersion
	n.still = n.still || o.ref.Type == artifact.SchemaType
}

func (o *updateOp) decide(s *state) error {
	o.same, o.merged, o.base = false, false, o.in.BaseContentHash
	if o.aliased() {
		ref, err := s.resolve(o.in.Ref)
		if err != nil {
			return at(err, "/ref")
		}
		o.ref = ref
	}
	current, err := s.visible(o.ref, "/ref")
	if err != nil {
		return err
	}
	if o.base.IsZero() {
		o.base = current.ContentHash
	}
	if err := o.allowed(s, current); err != nil {
		return err
	}
	if o.base != current.ContentHash && s.content(o.ref.At(o.base)) == nil {
		e := artifact.Invalid(artifact.Problem{
			Path: "/base_content_hash", Constraint: "known_version", Message: "the artifact never had this version",
			Value: artifact.Received(o.base.String()),
		})
		e.Reason = artifact.ReasonUnknownBase
		return e
	}
	next, err := o.nextVersion(s, current)
	if artifact.IsCode(err, artifact.CodeValidationFailed) && next.Content != nil {
		return gather(err, o.guard(s, current, next))
	} else if err != nil {
		return err
	}
	changes := (*artifact.Schema)(nil)
	if o.ref.Type == artifact.SchemaType {
		if o.incompatible != nil {
			return o.incompatible
		}
		if next, changes, err = checkChangedType(current, next); err != nil {
			return err
		}
		if changes != nil && o.checked != next.hash {
			return errStaleSchemas // it is another change than the one that was checked
		}
	}
	if next.hash == current.ContentHash {
		o.outcome, o.version, o.same = current.ref(), current.Head.Revision, true
		return nil
	}
	misplaced, refused := o.schema.CheckTransition(o.state, next.State, o.review.roles(s.caller, current.Scope)), o.guard(s, current, next)
	switch {
	case misplaced != nil && refused != nil:
		return withProblems(misplaced, artifact.AsError(refused).Problems)
	case misplaced != nil || refused != nil:
		return cmp.Or(misplaced, refused)
	}
	edit(s, current)
	was := o.inForm(s, current)
	set(s, s.contents, current.ref(), &was)
	moved := map[string]any{"from": current.State, "to": next.State}
	stateChanged := current.State != next.State
	current.ContentHash, current.Title, current.State, current.SchemaVersion = next.hash, next.Title, next.State, o.schema.SchemaVersion
	current.Head.Revision++
	current.UpdatedAt, current.UpdatedBy, current.content = s.caller.Now, s.author.ID, next.Content
	current.updatedKind = s.author.Kind
	o.outcome, o.version = current.ref(), current.Head.Revision
	if changes != nil {
		o.warnings = append(o.warnings, s.oddities(changes)...)
		if err := s.putType(changes); err != nil {
			return err
		}
	}
	if err := s.addRevision(current, next.Content, o.provenance, o.in.Note, o.signatures); err != nil {
		return err
	}
	s.putFacets(current, was.Content, next.Content)
	err = s.addHead(current, &eventOf{typ: o.ref.Type + ".updated", ref: o.outcome.String(), payload: map[string]any{
		"base": o.base.String(), "revision": o.version,
	}})
	if err != nil || !stateChanged {
		return err
	}
	return s.rows.emit(current.Scope, o.ref.String(), o.version, &eventOf{typ: o.ref.Type + ".lifecycle", ref: o.outcome.String(), payload: moved})
}

// guard runs the type's validators, and keeps what a paper is cited by.
func (o *updateOp) guard(s *state, current *head, next nextVersion) error {
	inspection := o.inspection
	if inspection == nil || !bytes.Equal(next.Content, o.content) {
		inspection = inspect(o.schema, next.Content, false)
	}
	refused, shadowed := s.papers.check(inspection, current.Scope)
	var faults []error
	if refused != nil {
		faults = append(faults, artifact.Invalid(refused...))
	}
	if o.ref.Type == paperType && current.IsLatest {
		s.disclaimPaper(o.ref.ID)
		faults = append(faults, s.claimPaper(o.ref, current.Scope, paperKeys(strings.TrimPrefix(o.ref.ID, current.Scope+"/"), next.Content)))
	}
	if err := gather(faults...); err != nil {
		return err
	}
	o.warnings = append(s.hub.shadow(o.schema.Type, shadowed), o.undeclared(next.Content, current.content)...)
	if !current.IsLatest {
		o.warnings = append(o.warnings, supersededBy(current))
	}
	return nil
}

// supersededBy warns of a change to what is current no more.
func supersededBy(h *head) artifact.Problem {
	p := artifact.Problem{Path: "/ref", Constraint: "superseded", Message: "the artifact was retired before: few will read this"}
	if h.SupersededBy != "" {
		p.Message = "the artifact was superseded before, and what replaces it stays as it is"
		p.Suggestion = artifact.Received(h.SupersededBy)
	}
	return p
}

// undeclared warns of fields that the type does not declare.
func (o *updateOp) undeclared(next, was []byte) []artifact.Problem {
	if o.content != nil {
		was = nil // it need not have been read, and what stands in the whole was meant
	}
	warnings := o.schema.Undeclared(next, was, "/content")
	for i, p := range warnings {
		if len(o.in.MergePatch) > 0 && p.Path == "/content/content" {
			warnings[i].Message += "; a merge_patch is of what is inside the content, and has no content of its own"
		}
	}
	return warnings
}

// inForm returns what an artifact is, in the form of its type's current schema: the
// form that a patch speaks of, and that the update will store.
func (o *updateOp) inForm(s *state, current *head) artifact.Version {
	now, moved := s.inForm(o.ref.Type, current.SchemaVersion, artifact.Version{Content: current.content, State: current.State, Title: current.Title})
	o.upgraded, o.state = moved, now.State
	return now
}

var _ loader = (*updateOp)(nil)

// load implements loader: it checks a change of a type against what is stored.
func (o *updateOp) load(ctx context.Context, db querier, s *state) error {
	o.incompatible, o.checked = nil, artifact.Hash{}
	current, ok := s.heads[o.ref]
	if o.ref.Type != artifact.SchemaType || !ok {
		return nil
	}
	o.base, o.merged = o.in.BaseContentHash, false
	return o.loadChange(ctx, db, s, current)
}

// cites returns what the next version may be looked up for, as far as it is known
// before the merge. Base is nil for one that the batch makes.
func (o *updateOp) cites(current *head, base *artifact.Version) []citation {
	if len(o.schema.Validators) == 0 && o.ref.Type != paperType {
		return nil
	}
	var contents [][]byte
	if current != nil {
		contents = append(contents, current.content)
	}
	if base != nil {
		if next, _ := o.apply(*base); next.Content != nil { // also of one that is refused: all of its faults are told
			contents = append(contents, next.Content)
		}
	} else {
		contents = append(contents, o.changed())
	}
	var cited []citation
	for _, content := range contents {
		cited = append(cited, inspect(o.schema, content, false).Lookups()...)
		if o.ref.Type == paperType {
			cited = append(cited, paperKeys(o.ref.ID, content)...)
		}
	}
	return cited
}

// changed returns what the request itself says of the next content.
func (o *updateOp) changed() []byte {
	switch {
	case o.content != nil:
		return o.content
	case len(o.in.MergePatch) > 0:
		return o.in.MergePatch
	}
	members := make(map[string]json.RawMessage) // by the last step of the path
	var patch []struct {
		Path  string          `json:"path"`
		Value json.RawMessage `json:"value"`
	}
	_ = json.Unmarshal(o.in.Patch, &patch) // one that cannot be read is refused when it is applied
	for i, p := range patch {
		if len(p.Value) > 0 {
			members[strconv.Itoa(i)] = p.Value
			members[p.Path[strings.LastIndexByte(p.Path, '/')+1:]] = p.Value
		}
	}
	raw, err := json.Marshal(members)
	if err != nil {
		return []byte("{}")
	}
	return raw
}

// allowed refuses those who may not write the artifact: a contributor may, a
// reviewer who only moves the lifecycle, and in a private scope who made it.
func (o *updateOp) allowed(s *state, current *head) error {
	if o.ref.Type == artifact.SchemaType {
		return o.mayChangeTypes(s.caller)
	}
	if movesOnly(o.in) && s.caller.Has(verb.Reviewer, current.Scope) ||
		current.Scope != artifact.Commons && current.CreatedBy == s.caller.Actor.ID {
		return nil
	}
	return s.needWriter(current.Scope, "updating")
}

// mayChange refuses artifacts of types that are not updated, or not by the caller
// alone.
func (o *updateOp) mayChange() error {
	if o.review == nil {
		return mayChange(o.schema, "updated", artifact.MutableWithHistory)
	}
	return mutable(o.schema, "updated", artifact.MutableWithHistory)
}

func (o *updateOp) mayChangeTypes(c *verb.Caller) error {
	if o.review != nil {
		return nil // a reviewer proposes, and a reviewer approves
	}
	return mayChangeTypes(c)
}

var _ reader = (*updateOp)(nil)

// reads implements reader: it reads the base, but only when it is not current, and
// then what the next version cites.
func (o *updateOp) reads(s *state, round readRound, r *reads) {
	current, ok := s.heads[o.ref]
	base := o.ref.At(o.in.BaseContentHash)
	if round == roundFind {
		if ok && current.ContentHash != base.Hash {
			r.contents[base] = true
		}
		return
	}
	if round != roundLinks || !ok && !o.aliased() {
		return // it was asked, or will not be found
	}
	if ok && o.content != nil && current.ContentHash == base.Hash && o.ref.Type != paperType {
		return // its needs had all
	}
	for _, c := range o.cites(current, s.content(base)) {
		r.cited[c] = true
	}
}

func (o *updateOp) made() artifact.Ref { return o.ref }
func (o *updateOp) answer(seq artifact.Seq, token string) any {
	r := &verb.WriteResult{
		Ref: o.outcome, ContentHash: o.outcome.Hash, Revision: o.version, RequestID: o.requestID, Idempotency: verb.IdempotencyNone,
		ProvenanceRefs: []string{}, Warnings: append([]artifact.Problem{}, o.warnings...), Signatures: o.signatures, Merged: o.merged, Seq: seq, ConsistencyToken: token,
	}
	if o.same {
		r.Signatures = nil
		r.Idempotency = verb.IdempotencyDeduplicated
	}
	return r
}
