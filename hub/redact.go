package hub

import (
	"context"
	"fmt"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// redactedTitle stands for the title of a redacted version.
const redactedTitle = "[redacted]"

// redact answers the verb of that name.
func (h *Hub) redact(ctx context.Context, in verb.RedactRequest) (out verb.WriteResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.WriteResult](ctx, h, c, &writeRequest{
		verb: verb.Redact.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			if namesEdge(in.Ref) {
				return []op{&fixedOp{ref: in.Ref}}, nil
			}
			ref, err := artifact.ParseRef(in.Ref)
			if err != nil {
				return nil, at(err, "/ref")
			}
			if problems := checkReason(in.Reason); problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			return []op{&redactOp{in: &in, ref: ref.Current(), requestID: c.RequestID}}, nil
		},
	})
}

// A redactOp takes the title, content and note out of every version of an
// artifact. Hashes stay: they prove what was there to whoever kept it.
type redactOp struct {
	in        *verb.RedactRequest
	ref       artifact.Ref
	requestID string

	whole whole // loaded
	kept  keptAnswers
	due   int // versions that are whole
	same  bool
}

func (o *redactOp) needs(*needs) {}

func (o *redactOp) load(ctx context.Context, db querier, s *state) error {
	o.whole, o.same, o.due = whole{}, false, 0
	if _, err := db.Exec(ctx, turnQuery); err != nil {
		return err
	}
	if err := o.whole.lock(ctx, db, []artifact.Ref{o.ref}); err != nil || len(o.whole.heads) == 0 {
		return err
	}
	s.heads[o.ref] = o.whole.heads[0]
	if err := s.dropUnaddressed(ctx, db); err != nil {
		return err
	}
	if err := o.whole.readRevisions(ctx, db); err != nil {
		return err
	}
	var err error
	o.kept, err = answersWithout(ctx, db, o.ref)
	return err
}

func (o *redactOp) decide(s *state) error {
	h, ok := s.heads[o.ref]
	if !ok || !s.sees(h) {
		return s.hub.notFound(o.ref, "/ref")
	}
	if err := s.caller.Need(h.Scope, "redacting", verb.Admin); err != nil {
		return err
	}
	if err := checkPin(o.in.Ref, h); err != nil {
		return err
	}
	if h.Type == artifact.SchemaType {
		return builtIn("what a type was is not taken out: artifacts name its versions")
	}
	for _, r := range o.whole.revisions {
		if r.Redaction != nil {
			continue
		}
		o.due++
		// Earlier ones may have stayed in another scope.
		if err := s.caller.Need(r.Scope, "redacting", verb.Admin); err != nil {
			return err
		}
	}
	if o.same = o.due == 0; o.same {
		return nil
	}
	if !s.dry && o.in.Revisions != o.due || s.dry && o.in.Revisions != 0 && o.in.Revisions != o.due {
		return &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonUnconfirmed, Details: map[string]any{"revisions": o.due},
			Message:  fmt.Sprintf("a redaction cannot be undone: confirm it with revisions: %d", o.due),
			Problems: []artifact.Problem{{Path: "/revisions", Constraint: "confirm", Message: fmt.Sprintf("%d versions would be redacted", o.due)}},
		}
	}
	s.also(allowRewrite)
	s.rows.internal = h.audience == participants
	mark := &replicate.Redaction{At: s.caller.Now, By: s.caller.Actor.ID, Reason: o.in.Reason}
	for _, r := range o.whole.revisions {
		if r.Redaction == nil {
			r.Title, r.Note, r.Redaction = redactedTitle, "", mark
		}
		// Those that were redacted before are put again too: the log no longer
		// says what they are.
		if err := o.whole.putRevision(s, r, r.hash); err != nil {
			return err
		}
	}
	o.whole.writeRevisions(s, true)
	h.Title = redactedTitle
	if h.Type == paperType && h.IsLatest { // its id alone still says what it is cited by
		s.disclaimPaper(h.ID)
		if err := s.claimPaper(o.ref, h.Scope, paperKeys(h.ID, nil)); err != nil {
			return err
		}
	}
	s.dropFacets(h)
	s.also(withholdQuery, replicate.KindArtifact, []string{o.ref.String()})
	s.also(forgetWordsQuery, h.Type, h.ID)
	s.also(dropVectorsQuery, []string{h.Type}, []string{h.ID})
	s.also(withholdQuery, replicate.KindVector, []string{o.ref.String()})
	s.also(redactCandidatesQuery, h.Type, h.ID)
	s.also(redactDecisionsQuery, h.Type, h.ID)
	s.also(rewriteAnswersQuery, o.kept.actors, o.kept.keys, o.kept.responses)
	return s.addHead(h, &eventOf{typ: h.Type + ".redacted", ref: h.ref().String(), payload: map[string]any{"reason": o.in.Reason, "revisions": o.due}})
}

func (o *redactOp) answer(seq artifact.Seq, token string) any {
	r := wholeResult(o.whole.heads[0], o.same, o.requestID, seq, token)
	if o.in.DryRun && !o.same {
		r.Warnings = append(r.Warnings, artifact.Problem{
			Path: "/revisions", Constraint: "confirm", Message: fmt.Sprintf("to redact for good, send it without dry_run and with revisions: %d", o.due),
		})
	}
	return r
}
