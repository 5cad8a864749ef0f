package hub

import (
	"context"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// supersede answers the verb of that name.
func (h *Hub) supersede(ctx context.Context, in verb.SupersedeRequest) (out verb.WriteResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	types := []string{}
	if ref, err := artifact.ParseRef(in.Ref); err == nil {
		types = append(types, ref.Type)
	}
	if in.Replacement != nil {
		types = append(types, in.Replacement.Type)
	}
	if err := h.schemas.ensure(ctx, h.db, types...); err != nil {
		return out, err
	}
	return single[verb.WriteResult](ctx, h, c, &writeRequest{
		verb: verb.Supersede.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			if namesEdge(in.Ref) {
				return []op{&fixedOp{ref: in.Ref}}, nil
			}
			o, err := h.newSupersede(c, &in, "")
			return []op{o}, err
		},
	})
}

// A supersedeOp marks an artifact as replaced, or retires it.
type supersedeOp struct {
	in          *verb.SupersedeRequest
	ref         artifact.Ref
	base        artifact.Hash // that must be current; zero for any
	typ         string        // of what is replaced, "" while that is not known
	replacement artifact.Ref  // zero for none; of one to be made too
	make        *createOp     // nil for one that is there
	mutability  int           // schema version that allows it; 0 for an unknown type
	requestID   string

	outcome *head // decided
	same    bool
}

// newSupersede checks all of a request that can be checked without the database. Typ
// is the type of what an alias names.
func (h *Hub) newSupersede(c *verb.Caller, in *verb.SupersedeRequest, typ string) (*supersedeOp, error) {
	o := &supersedeOp{in: in, requestID: c.RequestID}
	problems := checkReason(in.Reason)
	parse := func(text, path string) artifact.Ref {
		ref, faults := refOrAlias(text, path)
		problems = append(problems, faults...)
		return ref.Current()
	}
	o.ref = parse(in.Ref, "/ref")
	o.base = pinOf(in.Ref)
	if in.BaseContentHash != nil {
		base, fault := pinnedBase(in.Ref, *in.BaseContentHash)
		if o.base = base; fault != nil {
			problems = append(problems, *fault)
		}
	}
	if o.typ = o.ref.Type; o.typ == "" {
		o.typ = typ
	}
	if o.typ == artifact.SchemaType {
		return nil, builtIn("a type stays what it is: change it by an update of its schema")
	}
	if schema := h.schemas.get(o.typ); schema != nil {
		if err := mayChange(schema, "superseded", artifact.MutableWithHistory, artifact.SupersededOnly); err != nil {
			return nil, err
		}
		o.mutability = schema.SchemaVersion
	}
	switch {
	case in.ReplacementRef != "" && in.Replacement != nil:
		problems = append(problems, artifact.Problem{Constraint: "exactly_one", Message: "give replacement_ref or replacement, not both"})
	case in.ReplacementRef != "":
		if o.replacement = parse(in.ReplacementRef, "/replacement_ref"); o.replacement == o.ref && o.ref.Type != "" {
			problems = append(problems, replacesItself())
		}
		if isEdge(o.replacement.Type) {
			problems = append(problems, replacedByEdge(in.ReplacementRef))
		}
	case in.Replacement != nil:
		req := in.Replacement.Request()
		made, err := h.newCreate(c, &req, verb.Supersede.Name, false, nil)
		if err != nil {
			return nil, withProblems(at(err, "/replacement"), problems)
		}
		o.make, o.replacement = made, made.ref.Current()
	}
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	return o, nil
}

func (o *supersedeOp) needs(n *needs) {
	if o.make != nil {
		o.make.needs(n)
	} else if _, ok := n.write[o.replacement]; !ok && o.replacement.ID != "" {
		n.write[o.replacement] = false // of two that would close a circle, one comes after the other
	}
	if o.ref.ID != "" {
		n.write[o.ref] = true // with the content, for a conflict
	}
	if o.mutability > 0 {
		n.types[o.typ], n.versions[o.typ] = true, o.mutability
	}
}

var (
	_ loader = (*supersedeOp)(nil)
	_ reader = (*supersedeOp)(nil)
)

// load implements loader.
func (o *supersedeOp) load(ctx context.Context, db querier, s *state) error {
	if o.make == nil {
		return nil
	}
	return o.make.load(ctx, db, s)
}

// reads implements reader: what the replacement was itself replaced by.
func (o *supersedeOp) reads(s *state, round readRound, r *reads) {
	if o.make != nil {
		o.make.reads(s, round, r)
	}
	if round == roundFind && o.make == nil && o.in.ReplacementRef != "" {
		r.turn = true
		if o.replacement.ID != "" {
			r.chains[o.replacement] = true
		}
	}
}

// resolve finds what aliases name.
func (o *supersedeOp) resolve(s *state) error {
	ref, err := s.resolve(o.in.Ref)
	if err != nil {
		return at(err, "/ref")
	}
	if o.ref = ref.Current(); o.in.ReplacementRef == "" {
		return nil
	}
	next, err := s.resolve(o.in.ReplacementRef)
	if err != nil {
		return at(err, "/replacement_ref")
	}
	if o.replacement = next.Current(); o.replacement == o.ref {
		return artifact.Invalid(replacesItself())
	}
	if isEdge(next.Type) {
		return artifact.Invalid(replacedByEdge(o.in.ReplacementRef))
	}
	return nil
}

func replacesItself() artifact.Problem {
	return artifact.Problem{Path: "/replacement_ref", Constraint: artifact.GuardSelf, Message: "an artifact does not replace itself"}
}

// replacedByEdge is the problem of an artifact that a link or a signal is to replace.
func replacedByEdge(ref string) artifact.Problem {
	return artifact.Problem{Path: "/replacement_ref", Constraint: "type", Message: "an artifact is replaced by an artifact", Value: artifact.Received(ref)}
}

// circle reports whether the replacement was itself replaced by what it replaces,
// at however many removes.
func (o *supersedeOp) circle(s *state) bool {
	seen := make(map[artifact.Ref]bool)
	for ref := o.replacement; ref.ID != "" && !seen[ref]; ref = s.replacedBy(ref) {
		if ref == o.ref {
			return true
		}
		seen[ref] = true
	}
	return false
}

// made is what takes the place of the old, or the old itself.
func (o *supersedeOp) made() artifact.Ref {
	if o.replacement.ID != "" {
		return o.replacement
	}
	return o.ref
}

func (o *supersedeOp) decide(s *state) error {
	o.same = false
	if err := o.resolve(s); err != nil {
		return err
	}
	old, err := s.visible(o.ref, "/ref")
	if err != nil {
		return err
	}
	o.outcome = old
	if o.ref.Type == artifact.SchemaType {
		if err := mayChangeTypes(s.caller); err != nil {
			return err
		}
	} else if old.Scope == artifact.Commons || old.CreatedBy != s.caller.Actor.ID {
		if err := s.needWriter(old.Scope, "superseding"); err != nil {
			return err
		}
	}
	by := ""
	if o.replacement.Type != "" {
		by = o.replacement.String()
	}
	if !old.IsLatest {
		if o.same = old.SupersededBy == by && o.make == nil; o.same {
			return nil
		}
		return &artifact.Error{
			Code: artifact.CodeVersionConflict, Reason: artifact.ReasonSuperseded, Message: "the artifact was superseded already",
			Details: map[string]any{"superseded_by": old.SupersededBy},
		}
	}
	if !o.base.IsZero() && o.base != old.ContentHash {
		return conflict(old, artifact.ReasonStaleBase, "the artifact changed since the version you read", o.base)
	}
	if old.Type == paperType { // it is current no more; what replaces it may take its ids
		s.disclaimPaper(old.ID)
	}
	if err := o.replace(s, old); err != nil {
		return err
	}
	payload := map[string]any{"reason": o.in.Reason, "revision": old.Head.Revision}
	if o.make != nil {
		by = o.replacement.String()
	}
	if by != "" {
		payload["superseded_by"] = by
	}
	edit(s, old)
	old.IsLatest, old.SupersededBy = false, by
	s.dropFacets(old)
	return s.addHead(old, &eventOf{typ: old.Type + ".superseded", ref: old.ref().String(), payload: payload})
}

// replace makes or checks the replacement. It must be visible to all who see what
// it replaces, or they would be told of what they may not know of.
func (o *supersedeOp) replace(s *state, old *head) error {
	if o.replacement.Type == "" {
		return nil
	}
	if o.make != nil {
		if o.make.scope != artifact.Commons && o.make.scope != old.Scope {
			return narrowReplacement("/replacement/scope")
		}
		waiting := len(s.waiting)
		if err := o.make.decide(s); err != nil {
			return at(err, "/replacement")
		}
		for i := range s.waiting[waiting:] {
			s.waiting[waiting+i].path = "/replacement" + s.waiting[waiting+i].path
		}
		o.replacement = o.make.ref.Current()
		return nil
	}
	next, ok := s.heads[o.replacement]
	switch {
	case !ok:
		return &artifact.Error{
			Code: artifact.CodeLinkTargetMissing, Message: "an artifact is replaced by one that is there",
			Details:  map[string]any{"refs": []string{o.in.ReplacementRef}},
			Problems: []artifact.Problem{{Path: "/replacement_ref", Constraint: artifact.GuardTargets, Message: "there is nothing of this name that you may see", Value: artifact.Received(o.in.ReplacementRef)}},
		}
	case checkPin(o.in.ReplacementRef, next) != nil:
		return artifact.Invalid(artifact.Problem{
			Path: "/replacement_ref", Constraint: "current", Value: artifact.Received(o.in.ReplacementRef),
			Message: "an artifact is replaced by another as it is now: leave the hash out, or name the current version",
		})
	case next.audience == participants, next.Scope != artifact.Commons && next.Scope != old.Scope:
		return narrowReplacement("/replacement_ref")
	case o.circle(s):
		return artifact.Invalid(artifact.Problem{Path: "/replacement_ref", Constraint: "no_cycle", Message: "the replacement was itself replaced by this artifact"})
	}
	return nil
}

func narrowReplacement(path string) error {
	return artifact.Invalid(artifact.Problem{Path: path, Constraint: "scope", Message: "a replacement stands where all see it who see what it replaces: in the same scope or in commons"})
}

func (o *supersedeOp) answer(seq artifact.Seq, token string) any {
	r := wholeResult(o.outcome, o.same, o.requestID, seq, token)
	if o.replacement.Type != "" {
		r.SupersededBy = o.replacement.String()
	}
	if o.make != nil && !o.same {
		for _, p := range o.make.warnings {
			if p.Constraint == passingID().Constraint {
				p.Message = "the id in superseded_by was made for this dry run: the write itself will make another"
			} else {
				p.Path = "/replacement" + p.Path
			}
			r.Warnings = append(r.Warnings, p)
		}
	}
	return r
}
