package hub

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// isEdge reports whether things of a type are links or signals: what is written
// once, and addressed as artifacts are, but is none.
func isEdge(typ string) bool { return typ == replicate.LinkType || typ == replicate.SignalType }

// namesEdge reports whether a text is the ref of one.
func namesEdge(text string) bool {
	ref, err := artifact.ParseRef(text)
	return err == nil && isEdge(ref.Type)
}

// fromEdge is the problem of a link from a link or a signal.
func fromEdge(path, ref string) artifact.Problem {
	return artifact.Problem{Path: path, Constraint: "type", Message: "a link leads from an artifact", Value: artifact.Received(ref)}
}

// meetLink makes a link something that others may be about.
func (s *state) meetLink(l *linkRow) error {
	a, err := l.Artifact()
	s.meetEdge(&a)
	return err
}

// meetSignal does so of a signal.
func (s *state) meetSignal(g *replicate.Signal) error {
	a, err := g.Artifact()
	s.meetEdge(&a)
	return err
}

func (s *state) meetEdge(a *artifact.Artifact) {
	ref := a.Ref.Current()
	if s.heads[ref] != nil {
		return
	}
	h := &head{audience: everyone}
	h.Type, h.ID, h.Scope, h.ContentHash, h.Title = a.Type, a.ID, a.Scope, a.ContentHash, a.Title
	h.Head.Revision, h.IsLatest = a.Revision, true
	set(s, s.heads, ref, h)
	set(s, s.bases, a.Ref, true)
	set(s, s.baseIn, scopedRef{a.Ref, a.Scope}, true)
}

// meetMade lets later items of a batch be about a link or a signal that one has
// made.
func (s *state) meetMade(ref artifact.Ref) error {
	switch l := s.linkRows[ref.ID]; {
	case ref.Type == replicate.LinkType && l != nil:
		for _, end := range []artifact.Ref{l.key.from, l.key.to} {
			if h := s.heads[end]; h != nil && h.audience == participants {
				return nil // nobody is told of it
			}
		}
		return s.meetLink(l)
	case ref.Type == replicate.SignalType:
		for _, g := range slices.Backward(s.newSignals) {
			if h := s.heads[g.key.ref]; g.ID == ref.ID && h != nil && h.audience != participants {
				return s.meetSignal(&g.Signal)
			}
		}
	}
	return nil
}

func (s *state) scanSignals(rows pgx.Rows) error {
	for rows.Next() {
		g, err := signalOf(rows)
		if err != nil {
			return err
		}
		if err := s.meetSignal(g); err != nil {
			return err
		}
	}
	return rows.Err()
}

// keep names a link or a signal that must stay while others are made about it.
func (r *reads) keep(ref artifact.Ref) {
	switch ref.Type {
	case replicate.LinkType:
		r.linkRows[ref.ID] = true
	case replicate.SignalType:
		r.signals[ref.ID] = true
	}
}

// keepText does so of what a text names: a ref, or the alias of an op that may find
// that what it makes is there.
func (r *reads) keepText(s *state, text string, of edgeMaker) {
	if of != nil {
		for _, ref := range of.mayBe(s) {
			r.keep(ref)
		}
	} else if ref, err := artifact.ParseRef(text); err == nil {
		r.keep(ref)
	}
}

// An edgeMaker is an op that makes a link or a signal, or finds it there.
type edgeMaker interface {
	// mayBe returns what is there and may be meant, as far as that is known before
	// the op is decided.
	mayBe(s *state) []artifact.Ref
}

func (o *linkOp) mayBe(s *state) []artifact.Ref { return s.linksOf(o.mayMake(s)) }
func (o *citeOp) mayBe(s *state) []artifact.Ref { return s.linksOf(o.mayMake(s)) }

func (o *signalOp) mayBe(s *state) []artifact.Ref {
	if last := s.signals[signalKey{o.ref.Current(), o.kind, o.dimension, o.voter}]; last != nil {
		return []artifact.Ref{{Type: replicate.SignalType, ID: last.id}}
	}
	return nil
}

// linksOf returns those of the caller's links that are there.
func (s *state) linksOf(keys []triple) (refs []artifact.Ref) {
	for _, key := range keys {
		if id := s.links[key]; id != "" {
			refs = append(refs, artifact.Ref{Type: replicate.LinkType, ID: id})
		}
	}
	return refs
}

// A fixedOp is a write that would change a link or a signal. It is refused: who may
// not see that is told that it is not there.
type fixedOp struct {
	ref string
	of  edgeMaker // that makes what an alias names
}

func (*fixedOp) needs(*needs) {}

func (o *fixedOp) reads(s *state, round readRound, r *reads) {
	if round == roundLinks {
		r.keepText(s, o.ref, o.of)
	}
}

func (o *fixedOp) decide(s *state) error {
	ref, err := s.resolve(o.ref)
	if err != nil {
		return at(err, "/ref")
	}
	if _, err := s.visible(ref, "/ref"); err != nil {
		return err
	}
	verbs := []string{verb.Comment.Name, verb.Link.Name}
	if ref.Type == replicate.LinkType {
		verbs = append(verbs, verb.Unlink.Name)
	}
	return &artifact.Error{
		Code: artifact.CodeMutability, Reason: artifact.ReasonNotUpdated, Message: "a link or a signal is written once",
		Details: map[string]any{"mutability": artifact.AppendOnly, "allowed_verbs": verbs},
	}
}

func (*fixedOp) answer(artifact.Seq, string) any { return nil }
