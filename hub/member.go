package hub

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// A member is one request of a write transaction.
type member struct {
	caller      *verb.Caller
	request     *writeRequest
	key         *uuid.UUID    // nil without an idempotency key
	requestHash artifact.Hash // by which a second request with the key is known to be the same
	response    func(*written) any
	needs       *needs

	state *state   // of the last try
	done  *written // what became of it
	err   error    // or why nothing did
}

func newMember(c *verb.Caller, w *writeRequest, response func(*written) any) (m *member, err error) {
	m = &member{caller: c, request: w, response: response}
	m.key, m.requestHash, err = idempotencyOf(w)
	return m, err
}

// prepare makes the ops by the schemas as they are now.
func (m *member) prepare() (err error) {
	if m.request.ops, err = m.request.prepare(); err != nil {
		return err
	}
	m.needs = newNeeds(m.request.ops)
	return nil
}

// A sharer is an op that may stand in one transaction with those of other
// requests: it locks nothing beside its needs.
type sharer interface {
	mayShare() bool
}

func (m *member) mayShare() bool {
	if m.request.options.DryRun || m.request.keeps {
		return false
	}
	return !slices.ContainsFunc(m.request.ops, func(o op) bool {
		s, ok := o.(sharer)
		return !ok || !s.mayShare()
	})
}

func (m *member) answerKey() answerKey { return answerKey{m.caller.Actor.ID, *m.key} }

// errHeld means that another transaction holds what this one did not wait for.
var errHeld = errors.New("held by another transaction")

// goesAlone reports whether the error means that the member is to be run by
// itself.
func goesAlone(err error) bool {
	return errors.Is(err, errHeld) || errors.Is(err, errNeedsContent) || errors.Is(err, errStaleSchemas)
}

// isFatal reports whether the error of one member is the whole transaction's: the
// database failed, or the program.
func isFatal(err error) bool {
	return !goesAlone(err) && artifact.AsError(err).Code == artifact.CodeInternal
}

// held returns errHeld when what the member needs is held by another transaction.
func (m *member) held(l *loaded) error {
	if m.key != nil && !l.held[m.answerKey()] {
		return errHeld
	}
	if len(l.missed) == 0 {
		return nil
	}
	for ref := range l.missed {
		_, write := m.needs.write[ref]
		if write || m.needs.share[ref] {
			return errHeld
		}
	}
	return nil
}

// decide finds what the member writes, in memory but for what its loaders read.
func (m *member) decide(ctx context.Context, db querier, h *Hub, l *loaded) error {
	m.state = nil
	if err := m.held(l); err != nil {
		return err
	}
	if m.key != nil {
		if stored := l.answers[m.answerKey()]; stored != nil {
			return m.replay(stored)
		}
	}
	s := l.view(h, m)
	if err := s.checkSchemas(m.needs); err != nil {
		return err
	}
	if err := s.dropUnaddressed(ctx, db); err != nil {
		return err
	}
	start := s.savepoint()
	done, err := m.request.run(ctx, db, s)
	if err != nil {
		s.rollback(start) // others see what is one for all
		return err
	}
	m.state, m.done = s, done
	return nil
}

// settle takes in how the transaction ended and reports whether the member is done
// with. Otherwise it was not written, and is to be run alone.
func (m *member) settle(err error) bool {
	if err == nil {
		m.needs.conflict = m.needs.conflict || errors.Is(m.err, errNeedsContent)
		return !goesAlone(m.err)
	}
	unknown, ok := errors.AsType[*artifact.Error](err) // whether it was written
	if ok {
		m.err = unknown
	}
	return ok
}

// replay answers what the key gave before.
func (m *member) replay(stored *storedAnswer) error {
	if stored.requestHash != m.requestHash {
		return &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonIdempotencyConflict,
			Message: "the idempotency key was used for another request",
			Details: map[string]any{"first_seen_at": stored.at},
		}
	}
	m.done = &written{seq: stored.seq, replayed: stored.response}
	return nil
}

// writes reports whether the member has something to write.
func (m *member) writes() bool {
	return m.state != nil && !m.request.options.DryRun && (len(m.state.rows.kind) > 0 || m.answersOnly())
}

// answersOnly reports whether the member writes nothing but its answer.
func (m *member) answersOnly() bool {
	return len(m.state.rows.kind) == 0 && m.key != nil && m.request.keeps
}

// replayable returns the answer that is kept for the member's key, nil without.
func (m *member) replayable() (*replayable, error) {
	if m.key == nil {
		return nil, nil
	}
	raw, err := json.Marshal(m.response(m.done))
	if err != nil {
		return nil, err
	}
	return &replayable{key: *m.key, requestHash: m.requestHash, response: raw}, nil
}

// announceWriters makes known the callers in the scopes that they write to for
// the first time, in the order of their ids: each is locked.
func announceWriters(ctx context.Context, db querier, writers []*member) error {
	if len(writers) > 1 {
		writers = slices.Clone(writers)
		slices.SortStableFunc(writers, func(a, b *member) int { return strings.Compare(a.caller.Actor.ID, b.caller.Actor.ID) })
	}
	told := make(map[seenIn]bool)
	for _, m := range writers {
		if err := m.state.announceWriter(ctx, db, told); err != nil {
			return err
		}
	}
	return nil
}
