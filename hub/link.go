package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// maxEvidenceRefs bounds the refs that back one link.
const maxEvidenceRefs = 100

// link answers the verb of that name.
func (h *Hub) link(ctx context.Context, in verb.LinkRequest) (out verb.LinkResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.LinkResult](ctx, h, c, &writeRequest{
		verb: "link", request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o, problems := h.newLink(&in, "")
			if problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			o.requestID = c.RequestID
			return []op{o}, nil
		},
	})
}

// A linkOp makes one link. The same triple by the same agent is one link.
type linkOp struct {
	fromText  string
	toText    string
	from, to  artifact.Ref // to may be pinned; both are zero while they are aliases
	predicate string
	refTexts  []string
	refs      []string // as stored
	evidence  json.RawMessage
	single    bool // the predicate is of cardinality one
	toCreate  bool // what it leads to may be made by a later item of the batch
	requestID string
	of        map[string]edgeMaker // what makes the links and signals that aliases name
	asked     map[triple]bool      // links to them, in this transaction

	id     string // decided
	exists bool
	dry    bool
	stored *replicate.Link // as it is or will be
}

// A linkMaker is an op that makes one link.
type linkMaker interface {
	// mayMake returns the links that may be meant, as far as that is known before
	// the op is decided.
	mayMake(s *state) []triple
}

// mayMake implements linkMaker.
func (o *linkOp) mayMake(s *state) []triple {
	of := o.of[o.toText]
	if of == nil {
		return []triple{{o.from.Current(), o.predicate, o.to.Current()}}
	}
	var keys []triple
	for _, to := range of.mayBe(s) {
		keys = append(keys, triple{o.from.Current(), o.predicate, to})
	}
	return keys
}

var _ reader = (*linkOp)(nil)

// reads implements reader: it locks the links and signals that this link is about.
func (o *linkOp) reads(s *state, round readRound, r *reads) {
	switch round {
	case roundFind:
		o.asked = nil
	case roundAgain:
		if o.of[o.toText] == nil || o.from.ID == "" {
			return
		}
		if o.asked == nil {
			o.asked = make(map[triple]bool)
		}
		for _, key := range o.mayMake(s) {
			if !o.asked[key] {
				o.asked[key], r.links[key] = true, true
			}
		}
	case roundLinks:
		r.keepText(s, o.toText, o.of[o.toText])
		for _, text := range o.refTexts {
			r.keepText(s, text, o.of[text])
		}
	case roundEnds, rounds:
	}
}

// newLink checks all of a request that can be checked without the database.
func (h *Hub) newLink(in *verb.LinkRequest, at string) (*linkOp, []artifact.Problem) {
	o := &linkOp{fromText: in.From, toText: in.To, predicate: in.Predicate, refTexts: in.EvidenceRefs, evidence: json.RawMessage("null"), toCreate: in.ToCreateInBatch}
	var problems []artifact.Problem
	var p []artifact.Problem
	o.from, p = refOrAlias(in.From, at+"/from")
	problems = append(problems, p...)
	if isEdge(o.from.Type) {
		problems = append(problems, fromEdge(at+"/from", in.From))
	}
	o.single = h.isSingle(o.from.Type, in.Predicate)
	o.to, p = refOrAlias(in.To, at+"/to")
	problems = append(problems, p...)
	if len(in.EvidenceRefs) > maxEvidenceRefs {
		problems = append(problems, artifact.Problem{Path: at + "/evidence_refs", Constraint: "max_items", Message: "at most " + strconv.Itoa(maxEvidenceRefs) + " refs"})
	}
	for i, text := range in.EvidenceRefs[:min(len(in.EvidenceRefs), maxEvidenceRefs)] {
		_, p := refOrAlias(text, at+"/evidence_refs/"+strconv.Itoa(i))
		problems = append(problems, p...)
	}
	o.refs = make([]string, len(o.refTexts))
	if len(in.Evidence) > 0 {
		canonical, faults := artifact.Canonical(in.Evidence, at+"/evidence")
		problems = append(problems, faults...)
		o.evidence = canonical
	}
	schema := h.schemas.get(o.from.Type)
	if problems == nil || schema == nil {
		return o, problems // its rules are checked when it is decided
	}
	if _, known := schema.Links[o.predicate]; !known || o.to.Type != "" {
		if p := schema.CheckLink(o.predicate, o.to.Type, at); p != nil {
			problems = append(problems, *p)
		}
	}
	return o, problems
}

// isSingle reports whether a predicate of a type is of cardinality one.
func (h *Hub) isSingle(typ, predicate string) bool {
	schema := h.schemas.get(typ)
	return schema != nil && schema.Links[predicate].Cardinality == cardinalityOne
}

// refOrAlias parses a ref; an alias of a batch is left for later.
func refOrAlias(text, at string) (artifact.Ref, []artifact.Problem) {
	if len(text) > 1 && text[0] == '@' {
		return artifact.Ref{}, nil
	}
	ref, err := artifact.ParseRef(text)
	if err != nil {
		problems := artifact.AsError(err).Problems
		for i := range problems {
			problems[i].Path = at
		}
		return ref, problems
	}
	return ref, nil
}

func (o *linkOp) ref() string { return replicate.LinkType + ":" + o.id }

// mayShare implements sharer: links and signals that it is about are locked after
// all artifacts.
func (o *linkOp) mayShare() bool {
	return !isEdge(o.to.Type) && !slices.ContainsFunc(o.refTexts, namesEdge)
}

func (o *linkOp) needs(n *needs) {
	for _, ref := range []artifact.Ref{o.from, o.to} {
		if ref.Type != "" && !isEdge(ref.Type) {
			n.share[ref.Current()] = true
			if ref.IsPinned() {
				n.bases[ref] = true
			}
		}
	}
	for _, text := range o.refTexts {
		if ref, err := artifact.ParseRef(text); err == nil && !isEdge(ref.Type) {
			n.share[ref.Current()] = true
		}
	}
	if o.from.Type != "" {
		n.types[o.from.Type] = true
		if o.single {
			n.needSingle(singleKey{o.from.Current(), o.predicate})
		}
	}
	if o.from.Type != "" && o.to.Type != "" {
		n.links[triple{o.from.Current(), o.predicate, o.to.Current()}] = true
	}
}

// ends checks the link and returns what it joins. It changes nothing but the op's
// own refs.
func (o *linkOp) ends(s *state) (from, to *head, err error) {
	if o.from, err = s.resolve(o.fromText); err != nil {
		return nil, nil, at(err, "/from")
	}
	if isEdge(o.from.Type) {
		return nil, nil, artifact.Invalid(fromEdge("/from", o.fromText))
	}
	if o.to, err = s.resolve(o.toText); err != nil {
		return nil, nil, cmp.Or(o.checkTargets(s), at(err, "/to"))
	}
	if from, err = s.visible(o.from, "/from"); err != nil {
		return nil, nil, err
	}
	if err := checkPin(o.fromText, from); err != nil {
		return nil, nil, err
	}
	schema, err := s.schemaOf(from.Type)
	if err != nil {
		return nil, nil, err
	}
	if err := gather(o.checkRule(schema), o.checkTargets(s)); err != nil {
		return nil, nil, err
	}
	to = s.heads[o.to.Current()]
	scope, err := narrower(from.Scope, to.Scope)
	if err != nil {
		return nil, nil, err
	}
	if o.to.IsPinned() && !s.baseIn[scopedRef{o.to, scope}] && !s.baseIn[scopedRef{o.to, artifact.Commons}] {
		return nil, nil, artifact.Invalid(artifact.Problem{
			Path: "/to", Constraint: "scope", Message: "this version stayed in a scope that not all know of who see the link: name a later one",
		})
	}
	if staysWith(o.predicate) && to.audience == participants {
		return nil, nil, artifact.Invalid(artifact.Problem{
			Path: "/to", Constraint: "visibility", Message: "what is for its participants alone is answered by a message, not by a comment",
		})
	}
	if staysWith(o.predicate) && from.Scope != scope {
		return nil, nil, artifact.Invalid(artifact.Problem{
			Path: "/to", Constraint: "scope", Message: "a comment stands in the scope of what it is on, or in a narrower one",
		})
	}
	if err := s.needWriter(scope, "linking"); err != nil {
		return nil, nil, err
	}
	if schema.Links[o.predicate].Cardinality == cardinalityOne {
		if err := s.checkSingle(triple{o.from.Current(), o.predicate, o.to.Current()}, scope, from); err != nil {
			return nil, nil, err
		}
	}
	return from, to, o.checkEvidence(s, scope)
}

// checkRule refuses a link that its type does not have.
func (o *linkOp) checkRule(schema *artifact.Schema) error {
	var problems []artifact.Problem
	if p := schema.CheckLink(o.predicate, o.to.Type, ""); p != nil {
		problems = append(problems, *p)
	}
	if schema.Links[o.predicate].EvidenceRequired && len(o.refTexts) == 0 {
		problems = append(problems, artifact.Problem{
			Path: "/evidence_refs", Constraint: "evidence_required", Message: o.predicate + " needs evidence_refs",
		})
	}
	if o.from.Current() == o.to.Current() {
		problems = append(problems, artifact.Problem{
			Path: "/to", Constraint: "no_self_link", Message: "an artifact does not link to itself", Value: artifact.Received(o.toText),
		})
	}
	if problems == nil {
		return nil
	}
	return artifact.Invalid(problems...)
}

// checkTargets refuses a link to what is not there, and one that names such a thing
// as its evidence.
func (o *linkOp) checkTargets(s *state) error {
	var missing []string
	var problems []artifact.Problem
	for i, text := range append([]string{o.toText}, o.refTexts...) {
		path := "/to"
		if i > 0 {
			path = "/evidence_refs/" + strconv.Itoa(i-1)
		}
		ref, err := s.resolve(text)
		_, known := s.maker[text] // to an item that did not make it
		if err != nil && !known {
			return at(err, path)
		}
		if err != nil || !s.there(ref, ref == o.to) {
			missing, problems = append(missing, text), append(problems, missingTarget(path, text))
		}
	}
	if missing == nil {
		return nil
	}
	return missingTargets(missing, problems)
}

// missingTarget is the problem of a ref of a link that names nothing that is there.
func missingTarget(path, text string) artifact.Problem {
	p := artifact.Problem{Path: path, Constraint: artifact.GuardTargets, Message: "a link leads to what exists", Value: artifact.Received(text)}
	if strings.Contains(path, "/evidence_refs/") {
		p.Constraint, p.Message = artifact.GuardEvidence, "evidence is what exists"
	}
	return p
}

// missingTargets is the error of a link to what is not there.
func missingTargets(refs []string, problems []artifact.Problem) *artifact.Error {
	return &artifact.Error{
		Code: artifact.CodeLinkTargetMissing, Message: "a link leads to what exists",
		Details: map[string]any{"refs": refs}, Problems: problems,
	}
}

// cardinalityOne is that of predicates of which an artifact has one live link.
const cardinalityOne = "one"

// Predicates of a comment's links to what it is on and to what it answers.
const (
	commentsOn = "comments_on"
	repliesTo  = "replies_to"
)

// staysWith reports whether what links by a predicate stands in the scope of what
// it links to, or in a narrower one.
func staysWith(predicate string) bool { return predicate == commentsOn || predicate == repliesTo }

// checkEvidence refuses evidence that not all who see the link may know of, and
// puts refs in the place of aliases.
func (o *linkOp) checkEvidence(s *state, scope string) error {
	for i, text := range o.refTexts {
		ref, err := s.resolve(text)
		if err != nil {
			return at(err, "/evidence_refs/"+strconv.Itoa(i))
		}
		h := s.heads[ref.Current()]
		if h == nil || h.audience == participants || h.Scope != artifact.Commons && h.Scope != scope {
			return artifact.Invalid(artifact.Problem{
				Path: "/evidence_refs/" + strconv.Itoa(i), Constraint: "scope", Value: artifact.Received(text),
				Message: "evidence stands where all see it who see the link: in its scope or in commons",
			})
		}
		if o.refs[i] = text; text[0] == '@' {
			o.refs[i] = ref.String()
		}
	}
	return nil
}

func (o *linkOp) decide(s *state) error { return o.decideAt(s, "") }

// decideAt decides a link whose members stand at a path of the request. One to
// what a later item of the batch makes waits until all items are decided.
func (o *linkOp) decideAt(s *state, path string) error {
	if o.id = ""; !s.ending && o.waits(s) {
		s.waiting = append(s.waiting, waitingLink{item: s.item, link: o, path: path})
		return nil
	}
	if err := o.make(s); err != nil {
		if path == "" {
			return err
		}
		return at(err, path)
	}
	return nil
}

func (o *linkOp) made() artifact.Ref {
	return artifact.Ref{Type: replicate.LinkType, ID: o.id}
}

// waits reports whether a later item is to make what the link leads to, or what
// backs it.
func (o *linkOp) waits(s *state) bool {
	if o.waitsFor(s, o.toText) {
		return true
	}
	return slices.ContainsFunc(o.refTexts, func(text string) bool { return o.waitsFor(s, text) })
}

func (o *linkOp) waitsFor(s *state, text string) bool {
	if alias, ok := strings.CutPrefix(text, "@"); ok {
		_, made := s.aliases[alias]
		item, known := s.maker[text]
		return known && !made && item > s.item
	}
	if !o.toCreate {
		return false
	}
	ref, err := artifact.ParseRef(text)
	return err == nil && !s.there(ref, text == o.toText)
}

func (o *linkOp) make(s *state) error {
	o.exists, o.dry = false, s.dry
	from, to, err := o.ends(s)
	if err != nil {
		return err
	}
	if !s.decides && !from.created { // a link says something of what it is from
		if err := directWrites(s.hub.schemas.get(o.from.Type)); err != nil {
			return err
		}
	}
	scope, err := narrower(from.Scope, to.Scope)
	if err != nil {
		return err
	}
	key := triple{o.from.Current(), o.predicate, o.to.Current()}
	if id, ok := s.links[key]; ok {
		o.id, o.exists, o.stored = id, true, s.knownLinks[id]
		return nil
	}
	o.id = "k-" + newUUID()
	l := &linkRow{key: key, Link: replicate.Link{
		At: s.caller.Now, By: s.author.ID, Evidence: o.evidence, EvidenceRefs: o.refs,
		From: o.from.Current().String(), ID: o.id, Predicate: o.predicate, Scope: scope, To: o.to.String(),
	}}
	raw, hash, err := replicate.Encode(l.Link)
	if err != nil {
		return err
	}
	l.hash = hash
	s.linked(key, o.id, scope, s.hub.schemas.get(o.from.Type).Links[o.predicate].Cardinality == cardinalityOne)
	set(s, s.linkRows, o.id, l)
	set(s, s.knownLinks, o.id, &l.Link)
	o.stored = &l.Link
	s.newLinks = append(s.newLinks, l)
	s.rows.internal = from.audience == participants || to.audience == participants
	detail := map[string]any{"from": l.From, "predicate": o.predicate, "to": l.To}
	s.rows.putEncoded(scope, replicate.KindLink, o.ref(), 1, hash, artifact.Hash{}, raw)
	if err := s.rows.event(&eventOf{typ: replicate.LinkType + ".created", ref: o.ref(), payload: detail}); err != nil {
		return err
	}
	return s.rows.emit(scope, l.From, from.Head.Revision, &eventOf{
		typ: from.Type + ".linked", ref: from.ref().String(),
		payload: map[string]any{"link": o.ref(), "predicate": o.predicate, "to": l.To},
	})
}

// narrower returns the scope of a link between two scopes: the private one of
// the two. Two different private scopes are not linked.
func narrower(a, b string) (string, error) {
	switch {
	case a == b || b == artifact.Commons:
		return a, nil
	case a == artifact.Commons:
		return b, nil
	}
	return "", artifact.Invalid(artifact.Problem{Path: "/to", Constraint: "scope", Message: "a link does not join two private scopes"})
}

func (o *linkOp) answer(seq artifact.Seq, token string) any {
	r := linkResult(o.stored, o.requestID, seq, token)
	if o.exists {
		r.Idempotency = verb.IdempotencyDeduplicated
		r.Warnings = append(r.Warnings, o.unkept()...)
	} else if o.dry {
		r.Warnings = append(r.Warnings, passingID())
	}
	return r
}

// unkept warns of what the request says otherwise than the link that was there,
// which stays as it is.
func (o *linkOp) unkept() (warnings []artifact.Problem) {
	warn := func(path, what string) {
		warnings = append(warnings, artifact.Problem{
			Path: path, Constraint: "kept", Message: "the link was there, with other " + what + ", and is written once: unlink it first to say this",
		})
	}
	if o.to.IsPinned() && o.to.String() != o.stored.To {
		warn("/to", "version of what it leads to")
	}
	if len(o.refs) > 0 && !slices.Equal(o.refs, o.stored.EvidenceRefs) {
		warn("/evidence_refs", "evidence_refs")
	}
	if string(o.evidence) != "null" && string(o.evidence) != string(o.stored.Evidence) {
		warn("/evidence", "evidence")
	}
	return warnings
}

// linkResult confirms a link, its hash being that which get answers.
func linkResult(l *replicate.Link, requestID string, seq artifact.Seq, token string) *verb.LinkResult {
	r := &verb.LinkResult{
		Ref: replicate.LinkType + ":" + l.ID, Revision: 1, From: l.From, Predicate: l.Predicate, To: l.To,
		ProvenanceRefs: append([]string{}, l.EvidenceRefs...), Warnings: []artifact.Problem{},
		RequestID: requestID, Idempotency: verb.IdempotencyNone, Seq: seq, ConsistencyToken: token,
	}
	if a, err := l.Artifact(); err == nil { // it was encoded before
		r.ContentHash = a.ContentHash
	}
	return r
}
