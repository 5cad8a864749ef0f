package hub

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// move answers the verb of that name.
func (h *Hub) move(ctx context.Context, in verb.MoveRequest) (out verb.WriteResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.WriteResult](ctx, h, c, &writeRequest{
		verb: verb.Move.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			if namesEdge(in.Ref) {
				return []op{&fixedOp{ref: in.Ref}}, nil
			}
			o := &moveOp{in: &in, requestID: c.RequestID}
			ref, err := artifact.ParseRef(in.Ref)
			if err != nil {
				return nil, at(err, "/ref")
			}
			o.ref = ref.Current()
			var problems []artifact.Problem
			if _, fault := pinnedBase(in.Ref, in.BaseContentHash); fault != nil {
				problems = append(problems, *fault)
			}
			if in.BaseContentHash.IsZero() {
				problems = append(problems, artifact.Problem{Path: "/base_content_hash", Constraint: "required", Message: "a move names the version you read"})
			}
			problems = append(problems, checkReason(in.Reason)...)
			if problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			return []op{o}, nil
		},
	})
}

func checkReason(reason string) []artifact.Problem {
	switch {
	case artifact.IsBlank(reason):
		return []artifact.Problem{{Path: "/reason", Constraint: "required", Message: "say why"}}
	case len(reason) > maxReasonLength:
		return []artifact.Problem{{Path: "/reason", Constraint: "max_length", Message: "a reason is at most 2000 bytes"}}
	}
	return nil
}

// A moveOp moves an artifact, the comments on it, its signals and its links to
// another scope. Those who see the old scope alone lose all of it.
type moveOp struct {
	in        *verb.MoveRequest
	ref       artifact.Ref
	requestID string

	whole        whole                   // loaded
	replacements map[artifact.Ref]string // scopes of what supersedes what is moved
	evidence     map[artifact.Ref]string // scopes of what backs the links; "" for what its participants alone see
	links        map[string]*linkEnds    // of the whole, by id
	signals      map[string]bool
	outcome      *head
	same         bool
}

// headQueryOf reads one head as it is.
const headQueryOf = `
	SELECT` + headColumns + `
	FROM artifact a
	WHERE a.type = $1 AND a.id = $2`

func (o *moveOp) needs(n *needs) { n.scopes[o.in.Scope] = true }

func (o *moveOp) load(ctx context.Context, db querier, s *state) (err error) {
	o.whole, o.outcome, o.same = whole{}, nil, false
	if _, err := db.Exec(ctx, turnQuery); err != nil {
		return err
	}
	root, err := scanHead(db.QueryRow(ctx, headQueryOf, o.ref.Type, o.ref.ID))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	s.heads[o.ref] = root
	if root.ContentHash != o.in.BaseContentHash { // what the conflict tells
		var content string
		if err := db.QueryRow(ctx, contentQuery, []string{o.ref.Type}, []string{o.ref.ID}).Scan(nil, nil, &content, &root.updatedKind); err != nil {
			return err
		}
		root.content = []byte(content)
	}
	if err := s.dropUnaddressed(ctx, db); err != nil {
		return err
	}
	if err := o.check(s); err != nil || o.same {
		return nil //nolint:nilerr // decide tells it
	}
	if err := o.whole.lockThread(ctx, db, o.ref, root.Scope, o.in.Scope); err != nil {
		return err
	}
	for _, h := range o.whole.heads {
		if h.ref().Current() == o.ref {
			s.heads[o.ref] = h // as it is now that nobody changes it; decide checks it again
		}
	}
	if s.heads[o.ref].Scope != root.Scope {
		return errors.New("an artifact moved while its move had the turn")
	}
	if err := o.whole.readRevisions(ctx, db); err != nil {
		return err
	}
	if o.evidence, err = o.whole.evidenceScopes(ctx, db); err != nil {
		return err
	}
	if o.replacements, err = o.whole.replacementScopes(ctx, db); err != nil {
		return err
	}
	shared, err := o.whole.sharedPapers(ctx, db, o.in.Scope)
	if err != nil {
		return err
	}
	if len(shared) > 0 {
		return artifact.Invalid(artifact.Problem{Path: "/scope", Constraint: "unique", Message: "this paper is there already: " + paperType + ":" + shared[0]})
	}
	if n := len(o.whole.revisions) + len(o.whole.links) + len(o.whole.signals); n > maxWhole {
		return errTooLarge("versions, links and signals", n)
	}
	authors := o.authors()
	for _, id := range slices.Sorted(maps.Keys(authors)) { // in one order for all: each is locked
		if err := s.announce(ctx, db, id, authors[id], []string{o.in.Scope}); err != nil {
			return err
		}
	}
	return nil
}

// authors returns those who wrote what is moved, with the kinds of the new ones
// among them. They become known in the scope that it is moved to.
func (o *moveOp) authors() map[string]string {
	authors := make(map[string]string)
	for _, r := range o.whole.revisions {
		authors[r.CreatedBy] = r.Provenance.ActorKind
	}
	for _, l := range o.whole.links {
		authors[l.By] = "human" // it is known already
	}
	for _, g := range o.whole.signals {
		authors[g.By] = "human"
	}
	return authors
}

// check finds what keeps the artifact from being moved.
func (o *moveOp) check(s *state) error {
	root, ok := s.heads[o.ref]
	if !ok || !s.sees(root) {
		return s.hub.notFound(o.ref, "/ref")
	}
	if err := s.caller.Need(root.Scope, "moving", verb.Admin); err != nil {
		return err
	}
	if !s.known[o.in.Scope] {
		return noScopeToWrite(o.in.Scope)
	}
	if err := s.caller.Need(o.in.Scope, "moving", verb.Admin); err != nil {
		return err
	}
	if root.Type == artifact.SchemaType {
		return builtIn("types stay in commons")
	}
	if root.audience == participants {
		return &artifact.Error{Code: artifact.CodeMutability, Reason: artifact.ReasonParticipants, Message: "what is for its participants alone is not moved"}
	}
	if root.ContentHash != o.in.BaseContentHash {
		return conflict(root, artifact.ReasonStaleBase, "the artifact changed since the version you read", o.in.BaseContentHash)
	}
	o.outcome, o.same = root, root.Scope == o.in.Scope
	return nil
}

func (o *moveOp) decide(s *state) error {
	if err := o.check(s); err != nil || o.same {
		return err
	}
	from, to := o.outcome.Scope, o.in.Scope
	moves := make(map[artifact.Ref]*head, len(o.whole.heads))
	for _, h := range o.whole.heads {
		moves[h.ref().Current()] = h
	}
	o.outcome = moves[o.ref]
	s.also(allowRewrite)
	s.rows.internal = false
	links, err := o.leave(s, moves, from, to)
	if err != nil {
		return err
	}
	return o.arrive(s, moves, links, from, to)
}

// movedLink is a link that stays legal, with its scope after the move.
type movedLink struct {
	*linkEnds
	scope string
}

// stays reports whether a version keeps its scope: earlier ones do when an
// artifact is published without its history.
func (o *moveOp) stays(r *revisionRow, h *head, from, to string) bool {
	return r.Scope != from || to == artifact.Commons && !o.in.WithHistory && r.Revision.Revision != h.Head.Revision
}

// scopeAfter returns the scope of a link after the move, or an error when none may
// hold it.
func (o *moveOp) scopeAfter(l *linkEnds, moves map[artifact.Ref]*head, public map[artifact.Ref]bool, to string) (string, error) {
	ends := [2]string{l.fromScope, l.toScope}
	for i, ref := range []artifact.Ref{l.key.from, l.key.to} {
		if at, goes := o.scopeOf(ref, moves, public, to); goes {
			ends[i] = at
		}
	}
	if ends[1] == "" {
		return "", errLeft // it leads to a link that is gone
	}
	scope, err := narrower(ends[0], ends[1])
	if err != nil {
		return "", err
	}
	if staysWith(l.Predicate) && ends[0] != scope {
		return "", errLeft
	}
	if pinned, err := artifact.ParseRef(l.To); err != nil || pinned.IsPinned() && moves[l.key.to] != nil && !public[pinned] {
		return "", errLeft // it leads to a version that stays behind
	}
	if l.pinnedIn != nil && moves[l.key.to] == nil && !slices.Contains(l.pinnedIn, artifact.Commons) && !slices.Contains(l.pinnedIn, scope) {
		return "", errLeft // to one that stayed behind before
	}
	for _, text := range l.EvidenceRefs {
		ref, err := artifact.ParseRef(text)
		if err != nil {
			return "", errLeft
		}
		at := o.evidence[ref.Current()]
		if moved, goes := o.scopeOf(ref.Current(), moves, public, to); goes {
			at = moved
		}
		if at != artifact.Commons && at != scope {
			return "", errLeft
		}
	}
	return scope, nil
}

// scopeOf returns the scope after the move of what it may take along; "" for a link
// that does not go on.
func (o *moveOp) scopeOf(ref artifact.Ref, moves map[artifact.Ref]*head, public map[artifact.Ref]bool, to string) (scope string, known bool) {
	if moves[ref] != nil || ref.Type == replicate.SignalType && o.signals[ref.ID] {
		return to, true
	}
	if l := o.links[ref.ID]; ref.Type == replicate.LinkType && l != nil {
		// Links are about older ones alone, so this comes to an end.
		scope, err := o.scopeAfter(l, moves, public, to)
		if err != nil {
			return "", true
		}
		return scope, true
	}
	return "", false
}

// leave adds the rows of what is gone from the old scope.
func (o *moveOp) leave(s *state, moves map[artifact.Ref]*head, from, to string) (kept []movedLink, err error) {
	going := make(map[artifact.Ref]bool) // versions
	for _, r := range o.whole.revisions {
		if ref := (artifact.Ref{Type: r.Type, ID: r.ID}); !o.stays(r, moves[ref], from, to) {
			going[ref.At(r.ContentHash)] = true
		}
	}
	o.links, o.signals = make(map[string]*linkEnds), make(map[string]bool)
	for _, l := range o.whole.links {
		o.links[l.ID] = l
	}
	for _, g := range o.whole.signals {
		o.signals[g.ID] = true
	}
	gone := make(map[string][]string) // kind → refs
	var retracted []string
	for _, l := range o.whole.links {
		scope, illegal := o.scopeAfter(l, moves, going, to)
		if illegal == nil && scope == l.Scope {
			continue
		}
		ref := replicate.LinkType + ":" + l.ID
		event := &eventOf{typ: replicate.LinkType + ".removed", ref: ref, payload: map[string]any{}}
		if err := s.rows.remove(l.Scope, replicate.KindLink, ref, 1, l.hash, event); err != nil {
			return nil, err
		}
		if illegal != nil {
			retracted = append(retracted, l.ID)
		} else {
			kept = append(kept, movedLink{l, scope})
		}
		gone[replicate.KindLink] = append(gone[replicate.KindLink], ref)
	}
	if retracted != nil {
		s.also(retractLinksQuery, retracted, s.caller.Now, s.caller.Actor.ID, "moved: "+o.in.Reason)
		s.also(deleteLinksQuery, retracted)
	}
	for _, g := range o.whole.signals {
		ref := replicate.SignalType + ":" + g.ID
		gone[replicate.KindSignal] = append(gone[replicate.KindSignal], ref)
		if err := s.rows.remove(g.Scope, replicate.KindSignal, ref, 1, g.hash, nil); err != nil {
			return nil, err
		}
	}
	for _, r := range o.whole.revisions {
		ref := artifact.Ref{Type: r.Type, ID: r.ID}
		if o.stays(r, moves[ref], from, to) {
			continue
		}
		if err := s.rows.remove(r.Scope, replicate.KindRevision, ref.String(), r.Revision.Revision, r.hash, nil); err != nil {
			return nil, err
		}
	}
	for _, h := range o.whole.heads {
		ref := h.ref().Current().String()
		gone[replicate.KindArtifact] = append(gone[replicate.KindArtifact], ref)
		event := &eventOf{typ: h.Type + ".removed", ref: ref, payload: map[string]any{}}
		if err := s.rows.remove(h.Scope, replicate.KindArtifact, ref, h.Head.Revision, h.hash, event); err != nil {
			return nil, err
		}
	}
	if to != artifact.Commons { // who reads the log from its start must not meet it where it was
		gone[replicate.KindVector] = gone[replicate.KindArtifact]
		for kind, refs := range gone {
			s.also(withholdQuery, kind, refs)
		}
	}
	return kept, nil
}

// errLeft marks a link that does not go with what it is on, or that would tell of
// what stays behind.
var errLeft = artifact.Invalid()

// arrive adds the rows of what the new scope gains.
func (o *moveOp) arrive(s *state, moves map[artifact.Ref]*head, links []movedLink, from, to string) error {
	for _, r := range o.whole.revisions {
		if o.stays(r, moves[artifact.Ref{Type: r.Type, ID: r.ID}], from, to) {
			continue
		}
		r.Scope = to
		if err := o.whole.putRevision(s, r, noHash); err != nil {
			return err
		}
	}
	o.whole.writeRevisions(s, to != artifact.Commons)
	var movedTypes, movedIDs []string
	for _, h := range o.whole.heads {
		movedTypes, movedIDs = append(movedTypes, h.Type), append(movedIDs, h.ID)
		if h.Type == paperType {
			s.also(movePaperKeyQuery, h.ID, to)
		}
		h.Scope, h.hash = to, noHash
		if by, err := artifact.ParseRef(h.SupersededBy); err == nil && moves[by] == nil {
			if at := o.replacements[by]; at != artifact.Commons && at != to {
				h.SupersededBy = "" // those who see it here may not know of that
			}
		}
		payload := map[string]any{"revision": h.Head.Revision}
		if h == o.outcome {
			payload["reason"] = o.in.Reason
		}
		if err := s.addHead(h, &eventOf{typ: h.Type + ".moved", ref: h.ref().String(), payload: payload}); err != nil {
			return err
		}
	}
	s.also(moveFacetsQuery, movedTypes, movedIDs, to)
	s.also(dropVectorsQuery, movedTypes, movedIDs) // they are made anew for those who see it now
	var ids, scopes []string
	var hashes [][]byte
	put := func(kind, ref, id, scope string, data any) error {
		raw, hash, err := replicate.Encode(data)
		if err != nil {
			return err
		}
		ids, scopes, hashes = append(ids, id), append(scopes, scope), append(hashes, hash[:])
		s.rows.putEncoded(scope, kind, ref, 1, hash, noHash, raw)
		return s.rows.event(nil)
	}
	for _, l := range links {
		l.Scope = l.scope
		if err := put(replicate.KindLink, replicate.LinkType+":"+l.ID, l.ID, l.Scope, l.Link); err != nil {
			return err
		}
	}
	s.also(rewriteLinksQuery, ids, scopes, hashes)
	ids, scopes, hashes = nil, nil, nil
	var aggregates []string
	for _, g := range o.whole.signals {
		g.Scope = to
		aggregates = append(aggregates, aggregateText(&g.Signal))
		if err := put(replicate.KindSignal, replicate.SignalType+":"+g.ID, g.ID, g.Scope, g.Signal); err != nil {
			return err
		}
	}
	s.also(rewriteSignalsQuery, ids, scopes, hashes, aggregates)
	return nil
}

func (o *moveOp) answer(seq artifact.Seq, token string) any {
	return wholeResult(o.outcome, o.same, o.requestID, seq, token)
}

// wholeResult confirms a write that made no new version.
func wholeResult(h *head, same bool, requestID string, seq artifact.Seq, token string) *verb.WriteResult {
	r := &verb.WriteResult{
		Ref: h.ref(), ContentHash: h.ContentHash, Revision: h.Head.Revision, RequestID: requestID, Idempotency: verb.IdempotencyNone,
		ProvenanceRefs: []string{}, Warnings: []artifact.Problem{}, Seq: seq, ConsistencyToken: token,
	}
	if same {
		r.Idempotency = verb.IdempotencyDeduplicated
	}
	return r
}
