package hub

import (
	"context"
	"encoding/json"
	"errors"

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
	id        string // "" for one that is named by its ends
	key       triple
	requestID string

	link *linkEnds // loaded; nil for none
	from *head
}

func newUnlink(c *verb.Caller, in *verb.UnlinkRequest) (*unlinkOp, error) {
	o := &unlinkOp{in: in, requestID: c.RequestID}
	problems := checkReason(in.Reason)
	byEnds := in.From != "" || in.Predicate != "" || in.To != ""
	parse := func(text, path string) artifact.Ref {
		ref, err := artifact.ParseRef(text)
		if err != nil {
			problems = append(problems, artifact.AsError(at(err, path)).Problems...)
		}
		return ref.Current()
	}
	switch {
	case (in.Ref != "") == byEnds:
		problems = append(problems, artifact.Problem{Constraint: "exactly_one", Message: "name the link by ref, or by from, predicate and to"})
	case byEnds:
		o.key = triple{parse(in.From, "/from"), in.Predicate, parse(in.To, "/to")}
	default:
		ref := parse(in.Ref, "/ref")
		if o.id = ref.ID; ref.Type != replicate.LinkType && ref.Type != "" {
			problems = append(problems, artifact.Problem{Path: "/ref", Constraint: "type", Message: "a link's ref is kg_edge:<id>", Value: artifact.Received(in.Ref)})
		}
	}
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	return o, nil
}

func (o *unlinkOp) needs(*needs) {}

const (
	// The row is locked: of two who take it back one finds it gone.
	lockLinkQuery = `
		SELECT l.id, l.from_type, l.from_id, l.predicate, l.to_ref, l.to_type, l.to_id, l.scope, l.evidence_refs, l.evidence, l.created_at, l.created_by, l.row_hash
		FROM link l
		WHERE l.scope = ANY ($1) AND (l.id = $2 OR $2 = '' AND l.from_type = $3 AND l.from_id = $4 AND l.predicate = $5 AND l.to_type = $6 AND l.to_id = $7 AND l.created_by = $8)
		FOR UPDATE`
	headQueryOf = `
		SELECT` + headColumns + `
		FROM artifact a
		WHERE a.type = $1 AND a.id = $2`
)

var _ loader = (*unlinkOp)(nil)

// load implements loader.
func (o *unlinkOp) load(ctx context.Context, db querier, s *state) error {
	o.link = nil
	l := new(linkEnds)
	var refs, evidence string
	var rowHash []byte
	err := db.QueryRow(ctx, lockLinkQuery, s.scopes, o.id, o.key.from.Type, o.key.from.ID, o.key.predicate, o.key.to.Type, o.key.to.ID, s.caller.Actor.ID).
		Scan(&l.ID, &l.key.from.Type, &l.key.from.ID, &l.Predicate, &l.To, &l.key.to.Type, &l.key.to.ID, &l.Scope, &refs, &evidence, &l.At, &l.By, &rowHash)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	l.hash = artifact.Hash(rowHash)
	if err := json.Unmarshal([]byte(refs), &l.EvidenceRefs); err != nil {
		return err
	}
	for _, ref := range []artifact.Ref{l.key.from, l.key.to} {
		h, err := scanHead(db.QueryRow(ctx, headQueryOf, ref.Type, ref.ID))
		if err != nil {
			return err
		}
		s.heads[ref] = h
	}
	if err := s.dropUnaddressed(ctx, db); err != nil {
		return err
	}
	from, ok := s.heads[l.key.from]
	if _, both := s.heads[l.key.to]; ok && both {
		o.link, o.from = l, from
	}
	return nil
}

func (o *unlinkOp) decide(s *state) error {
	if o.link == nil {
		if o.id == "" {
			return artifact.NotFound(o.in.From + " " + o.in.Predicate + " " + o.in.To)
		}
		return artifact.NotFound(replicate.LinkType + ":" + o.id)
	}
	l := o.link
	if own := l.By == s.caller.Actor.ID && s.caller.Has(verb.Contributor, l.Scope); !own {
		if err := s.caller.Need(l.Scope, "taking back another's link", verb.Reviewer); err != nil {
			return err
		}
	}
	// Before links that the same transaction makes: one may take its place.
	s.first = append(
		s.first,
		statement{retractLinksQuery, []any{[]string{l.ID}, s.caller.Now, s.caller.Actor.ID, o.in.Reason}},
		statement{deleteLinksQuery, []any{[]string{l.ID}}},
	)
	s.unlinked(l.key, l.ID)
	ref := replicate.LinkType + ":" + l.ID
	s.rows.internal = o.from.audience == participants || s.heads[l.key.to].audience == participants
	if err := s.rows.remove(l.Scope, replicate.KindLink, ref, 1, l.hash, &eventOf{typ: replicate.LinkType + ".retracted", ref: ref, payload: map[string]any{
		"from": l.key.from.String(), "predicate": l.Predicate, "reason": o.in.Reason, "to": l.To,
	}}); err != nil {
		return err
	}
	return s.rows.emit(l.Scope, l.key.from.String(), o.from.Head.Revision, &eventOf{
		typ: o.from.Type + ".unlinked", ref: o.from.ref().String(), payload: map[string]any{"link": ref, "predicate": l.Predicate, "to": l.To},
	})
}

func (o *unlinkOp) answer(seq artifact.Seq, token string) any {
	l := o.link
	return &verb.LinkResult{
		Ref: replicate.LinkType + ":" + l.ID, From: l.key.from.String(), Predicate: l.Predicate, To: l.To,
		RequestID: o.requestID, Idempotency: verb.IdempotencyNone, Seq: seq, ConsistencyToken: token,
	}
}
