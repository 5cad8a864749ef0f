package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const (
	maxNoteLength = 2000
	maxPatchOps   = 1000
)

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
	content    []byte          // canonical, when the request gives the whole
	patch      jsonpatch.Patch // of {content, state, title}
	signatures []byte
	provenance replicate.Provenance
	requestID  string

	outcome artifact.Ref // decided; pinned
	version int
	same    bool
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
			Code: artifact.CodeMutability, Reason: string(m), Message: "artifacts of type " + o.schema.Type + " are not updated",
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
		problems = artifact.CheckJSON(in.Patch, "/patch", artifact.MaxContentDepth)
		if problems != nil {
			return problems
		}
		patch, err := jsonpatch.DecodePatch(in.Patch)
		if err != nil || len(patch) > maxPatchOps {
			return []artifact.Problem{{Path: "/patch", Constraint: "json_patch", Message: "a patch is an array of at most 1000 operations of RFC 6902"}}
		}
		o.patch = patch
	}
	return problems
}

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
	if current.ContentHash != o.in.BaseContentHash {
		return conflict(current, artifact.ReasonStaleBase, "the artifact changed since the version you read", o.in.BaseContentHash)
	}
	next, err := o.next(current)
	if err != nil {
		return err
	}
	if next.hash == current.ContentHash {
		o.outcome, o.version, o.same = current.ref(), current.Head.Revision, true
		return nil
	}
	if err := o.schema.CheckTransition(current.State, next.state, s.caller.RolesIn(current.Scope)); err != nil {
		return err
	}
	moved := map[string]any{"from": current.State, "to": next.state}
	stateChanged := current.State != next.state
	current.ContentHash, current.Title, current.State, current.SchemaVersion = next.hash, next.title, next.state, o.schema.SchemaVersion
	current.Head.Revision++
	current.UpdatedAt, current.UpdatedBy, current.content = s.caller.Now, s.caller.Actor.ID, next.content
	o.outcome, o.version = current.ref(), current.Head.Revision
	if err := s.addRevision(current, next.content, o.provenance, o.in.Note, o.signatures); err != nil {
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

// allowed refuses those who may not write the artifact: a contributor may, a
// reviewer who only moves the lifecycle, and in a private scope who made it.
func (o *updateOp) allowed(s *state, current *head) error {
	if movesOnly(o.in) && s.caller.Has(verb.Reviewer, current.Scope) ||
		current.Scope != artifact.Commons && current.CreatedBy == s.caller.Actor.ID {
		return nil
	}
	return s.needWriter(current.Scope, "updating")
}

// A nextVersion is what an update makes of an artifact.
type nextVersion struct {
	title, state string
	content      []byte
	hash         artifact.Hash
}

func (o *updateOp) next(current *head) (n nextVersion, err error) {
	n = nextVersion{title: current.Title, state: current.State, content: current.content}
	if o.content != nil {
		n.content = o.content
	}
	if o.in.Title != "" {
		n.title = o.in.Title
	}
	if o.in.State != "" {
		n.state = o.in.State
	}
	switch {
	case len(o.in.MergePatch) > 0:
		merged, err := jsonpatch.MergePatch(current.content, o.in.MergePatch)
		if err != nil {
			return n, artifact.Invalid(artifact.Problem{Path: "/merge_patch", Constraint: "merge_patch", Message: "the patch does not apply to the base"})
		}
		n.content = merged
	case o.patch != nil:
		if err := o.applyPatch(current, &n); err != nil {
			return n, err
		}
	}
	if o.content == nil && (o.patch != nil || len(o.in.MergePatch) > 0) {
		content, problems := artifact.Canonical(n.content, "/content")
		if content != nil {
			problems = o.schema.Validate(content, "/content")
		}
		if problems != nil {
			return n, artifact.Invalid(problems...)
		}
		n.content = content
	}
	n.hash = artifact.ContentHash(o.ref.Type, n.title, n.state, n.content)
	return n, nil
}

// applyPatch applies a JSON Patch to {content, state, title}.
func (o *updateOp) applyPatch(current *head, n *nextVersion) error {
	refuse := func(message string) error {
		return artifact.Invalid(artifact.Problem{Path: "/patch", Constraint: "json_patch", Message: message})
	}
	type document struct {
		Content json.RawMessage `json:"content"`
		State   string          `json:"state"`
		Title   string          `json:"title"`
	}
	raw, err := json.Marshal(document{current.content, n.state, n.title})
	if err != nil {
		return err
	}
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices = false // RFC 6901 has none
	options.AccumulatedCopySizeLimit = artifact.MaxContentBytes
	options.EscapeHTML = false
	patched, err := o.patch.ApplyWithOptions(raw, options)
	if err != nil {
		return refuse("the patch does not apply to the base: " + err.Error())
	}
	var d document
	dec := json.NewDecoder(bytes.NewReader(patched))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil || d.Content == nil {
		return refuse("the patched document is {content, state, title}")
	}
	if p := artifact.CheckTitle(d.Title, "/title"); p != nil {
		return artifact.Invalid(*p)
	}
	if d.State != n.state {
		if p := o.schema.CheckState(d.State, "/state"); p != nil {
			return artifact.Invalid(*p)
		}
	}
	n.content, n.state, n.title = d.Content, d.State, d.Title
	return nil
}

func (o *updateOp) answer(seq artifact.Seq, token string) any {
	r := &verb.WriteResult{
		Ref: o.outcome, ContentHash: o.outcome.Hash, Revision: o.version, RequestID: o.requestID, Idempotency: verb.IdempotencyNone,
		ProvenanceRefs: []string{}, Warnings: []artifact.Problem{}, Signatures: o.signatures, Seq: seq, ConsistencyToken: token,
	}
	if o.same {
		r.Signatures = nil
		r.Idempotency = verb.IdempotencyDeduplicated
	}
	return r
}
