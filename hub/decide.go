package hub

import (
	"context"
	"errors"
	"slices"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A waitingLink is a link that is made once all items of a batch are decided,
// since a later one makes what it leads to.
type waitingLink struct {
	item int
	link *linkOp
	path string // of the link in the item; "" for an item that is a link
}

// A naming says that an item of a batch names, in some ref, what another makes.
type naming struct {
	by  int
	ref verb.ItemRef
}

// An itemNames is what a batch's items call each other.
type itemNames struct {
	own   []string       // by item: its alias, "" for none
	maker map[string]int // the item that makes what an alias or a ref means
	named [][]naming     // by item: who names what it makes
}

// maxPasses bounds how often a batch is decided again. One more time is enough,
// but for batches made to need more.
const maxPasses = 8

// run decides the ops of a request, by what was read and what they read more. Of a
// batch whose failure is an answer to keep, what became of it is told.
func (w *writeRequest) run(ctx context.Context, db querier, s *state) (*written, error) {
	lost, err := w.load(ctx, db, s)
	start := s.savepoint()
	done := new(written)
	if err == nil {
		done.errs, err = w.decide(s, lost)
	}
	failed, ok := errors.AsType[*opError](err)
	if !ok || !w.keeps || artifact.AsError(failed.err).Code == artifact.CodeInternal {
		return done, err
	}
	s.rollback(start)
	return &written{failed: failed}, nil
}

// load reads what the ops need beyond their needs. The errors are by op.
func (w *writeRequest) load(ctx context.Context, db querier, s *state) (errs []error, err error) {
	if err := s.readMore(ctx, db, w.ops); err != nil {
		return nil, err
	}
	errs = make([]error, len(w.ops))
	for i, o := range w.ops {
		l, ok := o.(loader)
		if !ok {
			continue
		}
		if err := l.load(ctx, db, s); err != nil {
			if w.fatal(err) {
				return nil, &opError{i, err}
			}
			errs[i] = err
		}
	}
	return errs, nil
}

// fatal reports whether the error of one op ends them all.
func (w *writeRequest) fatal(err error) bool {
	return !w.partial || artifact.AsError(err).Code == artifact.CodeInternal
}

// decide decides the ops in order, and then the links that waited for what later
// ones make. Where such a link fails, its whole item does, and so does what hangs
// on that: all are decided again without them. The errors are by op; those in lost
// count from the start.
func (w *writeRequest) decide(s *state, lost []error) ([]error, error) {
	start := s.savepoint()
	s.maker = w.names.maker
	for pass := 1; ; pass++ {
		errs := slices.Clone(lost)
		for i, o := range w.ops {
			if lost[i] != nil {
				continue
			}
			s.item = i
			if err := s.attempt(func() error { return w.decideOne(s, o) }); err != nil {
				if w.fatal(err) {
					return nil, &opError{i, err}
				}
				errs[i] = err
			}
		}
		failed, err := w.decideWaiting(s, errs)
		if err != nil || failed == nil {
			return errs, err
		}
		if pass == maxPasses {
			for _, l := range s.waiting {
				failed = append(failed, l.item)
				errs[l.item] = &artifact.Error{Code: artifact.CodeLinkTargetMissing, Message: "the items of this batch hang together in too many ways: send it in parts"}
			}
		}
		for _, i := range failed {
			lost[i] = errs[i]
		}
		s.rollback(start)
		w.spread(s, lost, errs, failed)
	}
}

// decideOne decides one op, and gives its alias to what it made.
func (w *writeRequest) decideOne(s *state, o op) error {
	if err := o.decide(s); err != nil {
		return err
	}
	if w.names.own == nil || w.names.own[s.item] == "" {
		return nil
	}
	if m, ok := o.(maker); ok {
		if ref := m.made(); ref.ID != "" {
			if err := s.meetMade(ref); err != nil {
				return err
			}
			set(s, s.aliases, w.names.own[s.item], ref)
		}
	}
	return nil
}

// decideWaiting makes the links that waited. It returns the items that fail with
// theirs; one that is nothing but a link fails by itself.
func (w *writeRequest) decideWaiting(s *state, errs []error) (failed []int, err error) {
	s.ending = true
	defer func() { s.ending = false }()
	for _, l := range slices.Clone(s.waiting) {
		if errs[l.item] != nil {
			continue
		}
		s.item = l.item
		err := s.attempt(func() error { return l.link.decideAt(s, l.path) })
		switch {
		case err == nil:
			continue
		case w.fatal(err):
			return nil, &opError{l.item, err}
		case l.path != "":
			failed = append(failed, l.item)
		}
		errs[l.item] = err
	}
	return failed, nil
}

// spread adds to those that are lost the items whose links wait for what they were
// to make, and so on, but for those that failed on their own. What names them
// otherwise is told so when it is decided.
func (w *writeRequest) spread(s *state, lost, errs []error, failed []int) {
	seen := make(map[int]bool)
	for len(failed) > 0 {
		to := failed[0]
		failed = failed[1:]
		if seen[to] {
			continue
		}
		seen[to] = true
		for _, n := range w.names.named[to] {
			if errs[n.by] != nil && lost[n.by] == nil {
				continue
			}
			if ref, err := artifact.ParseRef(n.ref.Text); err == nil && s.heads[ref.Current()] != nil {
				continue // it is there all the same
			}
			if n.by < to && lost[n.by] == nil {
				lost[n.by] = missingTargets([]string{n.ref.Text}, []artifact.Problem{missingTarget(n.ref.Path, n.ref.Text)})
			}
			failed = append(failed, n.by)
		}
	}
}

// attempt runs f, and undoes what it made of the state when it fails.
func (s *state) attempt(f func() error) error {
	p := s.savepoint()
	err := f()
	if err != nil {
		s.rollback(p)
	}
	return err
}

// A maker is an op that makes something an alias can name.
type maker interface {
	// made returns it, once that is decided; zero for nothing.
	made() artifact.Ref
}
