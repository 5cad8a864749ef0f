package hub

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// gather makes one error of several, so that a caller is told all faults at once:
// that of the first which is no fault of the request, if there is one; else one
// with the problems of all. Nil when all are nil.
func gather(errs ...error) error {
	var problems []artifact.Problem
	var refs []string // that are missing
	var one error
	mixed := false
	for _, err := range errs {
		if err == nil {
			continue
		}
		e := artifact.AsError(err)
		if e.Code != artifact.CodeValidationFailed && e.Code != artifact.CodeLinkTargetMissing {
			return err
		}
		missing, _ := e.Details["refs"].([]string)
		mixed = mixed || one != nil && artifact.AsError(one).Code != e.Code
		problems, refs, one = append(problems, e.Problems...), append(refs, missing...), err
	}
	switch {
	case one == nil || len(problems) == len(artifact.AsError(one).Problems):
		return one
	case mixed || refs == nil:
		return artifact.Invalid(problems...)
	}
	slices.Sort(refs)
	return missingTargets(slices.Compact(refs), problems)
}

// A doubtful is the refusal of a request before its transaction, with what is still
// to be looked up for it to be complete.
type doubtful struct {
	error // an artifact.Error

	inspection *artifact.Inspection // of the content; nil for none
	of         artifact.Ref         // the artifact that is changed; zero for one that was to be made
	scope      string               // of what was to be made; "" for one that is not known
	papers     []citation           // what a paper was to be cited by
	links      []*linkOp            // of what was to be made
	schema     *artifact.Schema     // of what was to be made
	place      func(path string) string
}

func (d *doubtful) Unwrap() error { return d.error }

// at is as the function of that name.
func (d *doubtful) at(path string) *doubtful {
	moved, inner := *d, d.place
	moved.error = at(d.error, path)
	moved.place = func(p string) string { return path + inner(p) }
	return &moved
}

// reads implements reader.
func (d *doubtful) reads(round readRound, r *reads) {
	if round != roundFind {
		return
	}
	if d.inspection != nil {
		for _, l := range d.inspection.Lookups() {
			r.cited[l] = true
		}
	}
	for _, c := range d.papers {
		r.cited[c] = true
	}
	if d.of.ID != "" {
		r.heads[d.of] = true
	}
	for _, l := range d.links {
		for _, text := range append([]string{l.toText}, l.refTexts...) {
			if ref, err := artifact.ParseRef(text); err == nil {
				r.heads[ref.Current()] = true
			}
		}
	}
}

// complete returns the refusal with the problems of what was looked up.
func (d *doubtful) complete(s *state) error {
	e := *artifact.AsError(d.error)
	scope := d.scope
	if d.of.ID != "" {
		h := s.heads[d.of]
		if h == nil {
			return &e // what its faults are is told; whether it is there, is not
		}
		scope = h.Scope
	}
	found := e.Problems
	if d.inspection != nil {
		known := s.papers.known(d.inspection.Lookups(), scope)
		for k := range s.papers {
			if scope == "" {
				known[k.citation] = true
			}
		}
		refused, _ := d.inspection.Check(known, "/content")
		found = d.add(found, refused)
	}
	found = d.add(found, s.takenPapers(d.of, scope, d.papers))
	for i, l := range d.links {
		found = d.add(found, l.doubts(s, d.schema, "/links/"+strconv.Itoa(i)))
	}
	e.Problems = artifact.Invalid(found...).Problems
	return &e
}

// add adds problems, but for those that are told already.
func (d *doubtful) add(to, problems []artifact.Problem) []artifact.Problem {
	for _, p := range problems {
		p.Path = d.place(p.Path)
		told := func(q artifact.Problem) bool {
			return q.Path == p.Path && q.Constraint == p.Constraint && q.Message == p.Message
		}
		if !slices.ContainsFunc(to, told) {
			to = append(to, p)
		}
	}
	return to
}

// withProblems adds problems to a refusal that tells problems.
func withProblems(err error, problems []artifact.Problem) error {
	e := *artifact.AsError(err)
	if problems == nil || e.Problems == nil {
		return err
	}
	e.Problems = artifact.Invalid(append(problems, e.Problems...)...).Problems
	d, ok := errors.AsType[*doubtful](err)
	if !ok {
		return &e
	}
	more := *d
	more.error = &e
	return &more
}

// complete returns the error of a request that was refused before its transaction,
// with all of its problems: of what it cites and links to as well.
func (h *Hub) complete(ctx context.Context, c *verb.Caller, err error) error {
	d, ok := errors.AsType[*doubtful](err)
	if !ok {
		return err
	}
	s := newLoaded().view(h, &member{caller: c, request: new(writeRequest), needs: newNeeds(nil)})
	o := &refusedOp{d}
	if s.readMore(ctx, h.db, []op{o}) != nil {
		return d.error // its faults are faults whatever the database does
	}
	return o.decide(s)
}

// doubts returns what of a link that is not to be made was wrong besides.
func (o *linkOp) doubts(s *state, schema *artifact.Schema, path string) []artifact.Problem {
	var rest error
	if o.toText != "" && o.to.Type != "" {
		rest = gather(o.checkRule(schema), o.checkTargets(s))
	}
	if rest == nil {
		return nil
	}
	return artifact.AsError(at(rest, path)).Problems
}
