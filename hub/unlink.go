package hub

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// unlink answers the verb of that name.
func (h *Hub) unlink(ctx context.Context, in verb.UnlinkRequest) (out verb.LinkResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.LinkResult](ctx, h, c, &writeRequest{
		verb: verb.Unlink.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o, err := newUnlink(c, &in)
			return []op{o}, err
		},
	})
}

// An unlinkOp takes a link back. What it said goes to link_retraction.
type unlinkOp struct {
	in        *verb.UnlinkRequest
	id        string    // "" for one that is named by its ends or an alias
	key       triple    // with zero ends where they are aliases
	of        linkMaker // of what an alias names
	requestID string

	link *linkRow // decided
}

// A retraction is a link that is taken back.
type retraction struct {
	*linkRow
	at     time.Time
	by     string
	reason string
}

func newUnlink(c *verb.Caller, in *verb.UnlinkRequest) (*unlinkOp, error) {
	o := &unlinkOp{in: in, requestID: c.RequestID}
	problems := checkReason(in.Reason)
	byEnds := in.From != "" || in.Predicate != "" || in.To != ""
	parse := func(text, path string) artifact.Ref {
		ref, faults := refOrAlias(text, path)
		problems = append(problems, faults...)
		return ref.Current()
	}
	switch {
	case (in.Ref != "") == byEnds, byEnds && (in.From == "" || in.Predicate == "" || in.To == ""):
		problems = append(problems, artifact.Problem{Constraint: "exactly_one", Message: "name the link by ref, or by from, predicate and to"})
	case byEnds:
		o.key = triple{parse(in.From, "/from"), in.Predicate, parse(in.To, "/to")}
	default:
		ref := parse(in.Ref, "/ref")
		if o.id = ref.ID; ref.Type != replicate.LinkType && ref.Type != "" {
			problems = append(problems, notALink(in.Ref))
		}
	}
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	return o, nil
}

func notALink(ref string) artifact.Problem {
	return artifact.Problem{Path: "/ref", Constraint: "type", Message: "a link's ref is kg_edge:<id>", Value: artifact.Received(ref)}
}

func (o *unlinkOp) needs(n *needs) {
	if o.key.from.ID != "" && o.key.to.ID != "" {
		n.links[o.key] = true
	}
}

var _ reader = (*unlinkOp)(nil)

// reads implements reader: it locks the link, and looks for its ends.
func (o *unlinkOp) reads(s *state, round readRound, r *reads) {
	for _, id := range o.mayTake(s) {
		switch l := s.linkRows[id]; {
		case round == roundLinks:
			r.linkRows[id], r.taken = true, true
		case round == roundEnds && l != nil:
			r.heads[l.key.from], r.heads[l.key.to] = true, true
		}
	}
}

// mayTake returns the ids of the links that are there and may be meant.
func (o *unlinkOp) mayTake(s *state) (ids []string) {
	keys := []triple{o.key}
	switch {
	case o.id != "":
		return []string{o.id}
	case o.of != nil:
		keys = o.of.mayMake(s)
	}
	for _, key := range keys {
		if id := s.links[key]; id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// find returns the link that is meant, nil for none.
func (o *unlinkOp) find(s *state) (*linkRow, error) {
	id := o.id
	switch {
	case id != "":
	case o.in.Ref != "":
		ref, err := s.resolve(o.in.Ref)
		if err != nil {
			return nil, at(err, "/ref")
		}
		if id = ref.ID; ref.Type != replicate.LinkType {
			return nil, artifact.Invalid(notALink(o.in.Ref))
		}
	default:
		from, err := s.resolve(o.in.From)
		if err != nil {
			return nil, at(err, "/from")
		}
		to, err := s.resolve(o.in.To)
		if err != nil {
			return nil, at(err, "/to")
		}
		id = s.links[triple{from.Current(), o.key.predicate, to.Current()}]
	}
	return s.linkRows[id], nil
}

func (o *unlinkOp) decide(s *state) error {
	l, err := o.find(s)
	if err != nil {
		return err
	}
	var from, to *head
	if l != nil {
		if from, to = s.heads[l.key.from], s.heads[l.key.to]; to == nil && isEdge(l.key.to.Type) {
			to = &head{audience: everyone} // it may be gone
		}
	}
	switch {
	case from != nil && to != nil:
	case o.in.Ref != "":
		return artifact.NotFound(o.in.Ref)
	default:
		return artifact.NotFound(o.in.From + " " + o.in.Predicate + " " + o.in.To)
	}
	if pin := pinOf(o.in.Ref); !pin.IsZero() && !s.bases[artifact.Ref{Type: replicate.LinkType, ID: l.ID, Hash: pin}] {
		return artifact.NotFound(o.in.Ref) // a link has one version
	}
	o.link = l
	if own := l.By == s.caller.Actor.ID && s.caller.Has(verb.Contributor, l.Scope); !own {
		if err := s.caller.Need(l.Scope, "taking back another's link", verb.Reviewer); err != nil {
			return err
		}
	}
	if err := directWrites(s.hub.schemas.get(l.key.from.Type)); err != nil && !s.caller.Has(verb.Reviewer, l.Scope) {
		return err // who reviews what is linked takes links back
	}
	set(s, s.retracted, l.ID, retraction{l, s.caller.Now, s.caller.Actor.ID, o.in.Reason})
	unset(s, s.linkRows, l.ID)
	unset(s, s.heads, artifact.Ref{Type: replicate.LinkType, ID: l.ID})
	s.unlinked(l.key, l.ID)
	ref := replicate.LinkType + ":" + l.ID
	s.rows.internal = from.audience == participants || to.audience == participants
	if err := s.rows.remove(l.Scope, replicate.KindLink, ref, 1, l.hash, &eventOf{typ: replicate.LinkType + ".retracted", ref: ref, payload: map[string]any{
		"from": l.key.from.String(), "predicate": l.Predicate, "reason": o.in.Reason, "to": l.To,
	}}); err != nil {
		return err
	}
	return s.rows.emit(l.Scope, l.key.from.String(), from.Head.Revision, &eventOf{
		typ: from.Type + ".unlinked", ref: from.ref().String(), payload: map[string]any{"link": ref, "predicate": l.Predicate, "to": l.To},
	})
}

// insertRetractionsQuery keeps links as their table has them, those among them that
// the same batch made.
const insertRetractionsQuery = `
	INSERT INTO link_retraction (id, link, retracted_at, retracted_by, reason)
	SELECT k.id, (to_jsonb(k) - '{retracted_at,retracted_by,reason}'::text[])::text, k.retracted_at, k.retracted_by, k.reason
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
		$11::timestamptz[], $12::text[], $13::bytea[], $14::timestamptz[], $15::text[], $16::text[])
		AS k (id, from_type, from_id, predicate, to_type, to_id, to_ref, scope, evidence_refs, evidence, created_at, created_by, row_hash,
			retracted_at, retracted_by, reason)`

// queueRetractions queues the links that are taken back. It goes before those that
// are made, one of which may take the place of one of them.
func (w *writes) queueRetractions(b *pgx.Batch) {
	if len(w.retracted) == 0 {
		return
	}
	ids := slices.Sorted(maps.Keys(w.retracted))
	var links []*linkRow
	var reasons, by []string
	var at []time.Time
	for _, id := range ids {
		r := w.retracted[id]
		links, reasons, at, by = append(links, r.linkRow), append(reasons, r.reason), append(at, r.at), append(by, r.by)
	}
	b.Queue(insertRetractionsQuery, append(columnsOfLinks(links), at, by, reasons)...)
	b.Queue(deleteLinksQuery, ids)
	w.newLinks = slices.DeleteFunc(w.newLinks, func(l *linkRow) bool { _, gone := w.retracted[l.ID]; return gone })
}

func (o *unlinkOp) answer(seq artifact.Seq, token string) any {
	return linkResult(&o.link.Link, o.requestID, seq, token)
}
