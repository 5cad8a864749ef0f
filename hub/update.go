package hub

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/jackc/pgx/v5"

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
	return single[verb.WriteResult](ctx, h, c, &writeRequest{
		verb: "update", request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o, err := h.newUpdate(c, &in)
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
	content    []byte // canonical, when the request gives the whole
	signatures []byte
	provenance replicate.Provenance
	requestID  string

	warnings []artifact.Problem // decided
	base     *artifact.Version  // loaded, when it is not current
	outcome  artifact.Ref       // decided; pinned
	version  int
	same     bool
	merged   bool
}

// newUpdate checks all of a request that can be checked without the database.
func (h *Hub) newUpdate(c *verb.Caller, in *verb.UpdateRequest) (*updateOp, error) {
	o := &updateOp{in: in, provenance: provenance(c, "update", false), requestID: c.RequestID}
	var problems []artifact.Problem
	note := func(path, constraint, message string) {
		problems = append(problems, artifact.Problem{Path: path, Constraint: constraint, Message: message})
	}
	ref, err := artifact.ParseRef(in.Ref)
	if err != nil {
		return nil, at(err, "/ref")
	}
	o.ref = ref.Current()
	if o.schema = h.schemas.get(ref.Type); o.schema == nil {
		return nil, artifact.NotFound(o.ref.String())
	}
	if err := directWrites(o.schema); err != nil {
		return nil, err
	}
	if m := o.schema.Mutability; m != artifact.MutableWithHistory {
		return nil, &artifact.Error{
			Code: artifact.CodeMutability, Reason: artifact.ReasonNotUpdated, Message: "artifacts of type " + o.schema.Type + " are not updated",
			Details: map[string]any{"mutability": m, "allowed_verbs": []string{"create", "link", "signal"}},
		}
	}
	if in.BaseContentHash.IsZero() {
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
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	return o, nil
}

func (o *updateOp) parseChange(in *verb.UpdateRequest) (problems []artifact.Problem) {
	switch {
	case len(in.Content) > 0:
		content, faults := artifact.Canonical(in.Content, "/content")
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
func (o *updateOp) mayShare() bool { return true }

func (o *updateOp) needs(n *needs) {
	n.write[o.ref] = true
	n.bases[o.ref.At(o.in.BaseContentHash)] = true
	n.types[o.ref.Type] = true
	n.versions[o.ref.Type] = o.schema.SchemaVersion
}

func (o *updateOp) decide(s *state) error {
	o.same = false
	current, err := s.visible(o.ref)
	if err != nil {
		return err
	}
	if err := o.allowed(s, current); err != nil {
		return err
	}
	if !s.bases[o.ref.At(o.in.BaseContentHash)] {
		e := artifact.Invalid(artifact.Problem{
			Path: "/base_content_hash", Constraint: "known_version", Message: "the artifact never had this version",
			Value: artifact.Received(o.in.BaseContentHash.String()),
		})
		e.Reason = artifact.ReasonUnknownBase
		return e
	}
	next, err := o.nextVersion(s, current)
	if err != nil {
		return err
	}
	if next.hash == current.ContentHash {
		o.outcome, o.version, o.same = current.ref(), current.Head.Revision, true
		return nil
	}
	if err := o.schema.CheckTransition(current.State, next.State, s.caller.RolesIn(current.Scope)); err != nil {
		return err
	}
	if err := o.guard(s, current, next); err != nil {
		return err
	}
	moved := map[string]any{"from": current.State, "to": next.State}
	stateChanged := current.State != next.State
	current.ContentHash, current.Title, current.State, current.SchemaVersion = next.hash, next.Title, next.State, o.schema.SchemaVersion
	current.Head.Revision++
	current.UpdatedAt, current.UpdatedBy, current.content = s.caller.Now, s.caller.Actor.ID, next.Content
	o.outcome, o.version = current.ref(), current.Head.Revision
	if err := s.addRevision(current, next.Content, o.provenance, o.in.Note, o.signatures); err != nil {
		return err
	}
	err = s.addHead(current, &eventOf{typ: o.ref.Type + ".updated", ref: o.outcome.String(), payload: map[string]any{
		"base": o.in.BaseContentHash.String(), "revision": o.version,
	}})
	if err != nil || !stateChanged {
		return err
	}
	return s.rows.emit(current.Scope, o.ref.String(), o.version, &eventOf{typ: o.ref.Type + ".lifecycle", ref: o.outcome.String(), payload: moved})
}

// guard runs the type's validators, and keeps what a paper is cited by.
func (o *updateOp) guard(s *state, current *head, next nextVersion) error {
	inspection := inspect(o.schema, next.Content, false)
	refused, shadowed := inspection.Check(s.papers.known(inspection.Lookups(), current.Scope), "/content")
	if refused != nil {
		return artifact.Invalid(refused...)
	}
	o.warnings = s.hub.shadow(o.schema.Type, shadowed)
	if o.ref.Type != paperType || !current.IsLatest {
		return nil
	}
	s.also(deletePaperKeyQuery, o.ref.ID)
	keys := paperKeys(strings.TrimPrefix(o.ref.ID, current.Scope+"/"), next.Content)
	for _, k := range keys {
		if s.papers[k][current.Scope] == o.ref.ID {
			delete(s.papers[k], current.Scope) // it is written again
		}
	}
	return s.claimPaper(o.ref, current.Scope, keys)
}

// cites adds what the next version will be looked up for, as far as it is known
// before the merge.
func (o *updateOp) cites(ctx context.Context, db querier, s *state, current *head) error {
	if len(o.schema.Validators) == 0 && o.ref.Type != paperType {
		return nil
	}
	from := artifact.Version{Content: current.content, State: current.State, Title: current.Title}
	contents := [][]byte{current.content}
	if o.base != nil {
		from = *o.base
	}
	if next, err := o.apply(from); err == nil {
		contents = append(contents, next.Content)
	}
	cited := make(map[citation]bool)
	for _, content := range contents {
		for _, c := range append(inspect(o.schema, content, false).Lookups(), paperKeys(o.ref.ID, content)...) {
			cited[c] = true
		}
	}
	if len(cited) == 0 {
		return nil
	}
	b := new(pgx.Batch)
	s.queuePapers(b, cited)
	return db.SendBatch(ctx, b).Close()
}

// allowed refuses those who may not write the artifact: a contributor may, a
// reviewer who only moves the lifecycle, and in a private scope who made it.
func (o *updateOp) allowed(s *state, current *head) error {
	if movesOnly(o.in) && s.caller.Has(verb.Reviewer, current.Scope) ||
		current.Scope != artifact.Commons && current.CreatedBy == s.caller.Actor.ID {
		return nil
	}
	return s.needWriter(current.Scope, "updating")
}

// nextVersion returns what the update makes of the artifact. When its base is not
// current, that is the merge of both changes, if it was asked for and is clean;
// else the error is the conflict.
func (o *updateOp) nextVersion(s *state, current *head) (n nextVersion, err error) {
	now := artifact.Version{Content: current.content, State: current.State, Title: current.Title}
	if current.ContentHash == o.in.BaseContentHash {
		return o.apply(now)
	}
	if o.base == nil {
		return n, errNeedsContent // it became stale after the base was looked for
	}
	theirs, err := o.apply(*o.base)
	if err != nil {
		return n, err
	}
	if theirs.hash == current.ContentHash {
		return theirs, nil // both made the same of it
	}
	merged, hint, err := o.merge(s, current, now, theirs)
	if err != nil {
		return n, err
	}
	if hint.Clean && o.in.AutoMerge {
		o.merged = true
		return merged, nil
	}
	conflict := conflict(current, artifact.ReasonStaleBase, "the artifact changed since the version you read", o.in.BaseContentHash)
	conflict.Conflict.Merge = hint
	if conflict.Conflict.Diff, err = artifact.Diff(*o.base, now); err != nil {
		return n, err
	}
	return n, conflict
}

// merge merges the change with what changed since its base. What it makes must
// itself be allowed, or it is not clean.
func (o *updateOp) merge(s *state, current *head, now artifact.Version, theirs nextVersion) (n nextVersion, hint *artifact.MergeHint, err error) {
	var fields []string
	if o.schema.Merge != nil {
		fields = o.schema.Merge.TextFields
	}
	m, err := artifact.Merge(*o.base, now, theirs.Version, fields)
	if err != nil {
		return n, nil, err
	}
	hint = &artifact.MergeHint{Conflicting: append([]string{}, m.Conflicts...), Base: current.ContentHash}
	if !m.Clean() {
		return n, hint, nil
	}
	if n, hint.Problems = o.check(m.Version, "/content"); hint.Problems != nil {
		return n, hint, nil
	}
	if err := o.schema.CheckTransition(current.State, n.State, s.caller.RolesIn(current.Scope)); err != nil {
		hint.Problems = []artifact.Problem{{Path: "/state", Constraint: "lifecycle", Message: artifact.AsError(err).Message}}
		return n, hint, nil
	}
	hint.Clean, hint.Title, hint.State, hint.Content = true, n.Title, n.State, n.Content
	return n, hint, nil
}

// A nextVersion is what an update makes of an artifact.
type nextVersion struct {
	artifact.Version
	hash artifact.Hash
}

// apply applies the request to a version.
func (o *updateOp) apply(to artifact.Version) (n nextVersion, err error) {
	v := to
	whole := o.content != nil // it was checked already
	switch {
	case whole:
		v.Content = o.content
	case len(o.in.MergePatch) > 0:
		if v.Content, err = jsonpatch.MergePatch(v.Content, o.in.MergePatch); err != nil {
			return n, artifact.Invalid(artifact.Problem{Path: "/merge_patch", Constraint: "merge_patch", Message: "the patch does not apply to the base"})
		}
	case len(o.in.Patch) > 0:
		var problems []artifact.Problem
		if v, problems = v.Patch(o.in.Patch, "/patch"); problems != nil {
			return n, artifact.Invalid(problems...)
		}
	}
	if o.in.Title != "" {
		v.Title = o.in.Title
	}
	if o.in.State != "" {
		v.State = o.in.State
	}
	if whole || len(o.in.MergePatch)+len(o.in.Patch) == 0 {
		n.Version, n.hash = v, artifact.ContentHash(o.ref.Type, v.Title, v.State, v.Content)
		return n, nil
	}
	n, problems := o.check(v, "/content")
	if problems != nil {
		return n, artifact.Invalid(problems...)
	}
	return n, nil
}

// check returns a version in canonical form, or what is wrong with it.
func (o *updateOp) check(v artifact.Version, at string) (n nextVersion, problems []artifact.Problem) {
	content, problems := artifact.Canonical(v.Content, at)
	if content != nil {
		problems = o.schema.Validate(content, at)
	}
	if p := artifact.CheckTitle(v.Title, "/title"); p != nil {
		problems = append(problems, *p)
	}
	if v.State != o.schema.Initial() {
		if p := o.schema.CheckState(v.State, "/state"); p != nil {
			problems = append(problems, *p)
		}
	}
	v.Content = content
	n.Version = v
	if problems == nil {
		n.hash = artifact.ContentHash(o.ref.Type, v.Title, v.State, content)
	}
	return n, problems
}

var _ loader = (*updateOp)(nil)

const baseQuery = `
	SELECT r.title, r.state, r.content FROM artifact_revision r
	WHERE r.scope = ANY ($1) AND r.type = $2 AND r.id = $3 AND r.content_hash = $4
	ORDER BY r.revision DESC LIMIT 1`

// load implements loader: it reads the base, but only when it is not current.
func (o *updateOp) load(ctx context.Context, db querier, s *state) error {
	o.base, o.merged = nil, false
	current, ok := s.heads[o.ref]
	if !ok {
		return nil
	}
	if current.ContentHash == o.in.BaseContentHash {
		return o.cites(ctx, db, s, current)
	}
	var v artifact.Version
	var content string
	err := db.QueryRow(ctx, baseQuery, s.scopes, o.ref.Type, o.ref.ID, o.in.BaseContentHash[:]).Scan(&v.Title, &v.State, &content)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // decide says that there is no such version
	}
	v.Content, o.base = []byte(content), &v
	if err != nil {
		return err
	}
	return o.cites(ctx, db, s, current)
}

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
