package hub

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// changeRows gathers the rows of a commit, column by column, as feed.append
// takes them.
type changeRows struct {
	internal                         bool // of rows added from now on: they are in no feed
	class, scope, kind, op, ref      []string
	revision                         []int32
	hash, prevHash                   [][]byte
	data                             []*string
	eventType, eventRef, eventDetail []*string
}

// eventOf is the event that rides on a row.
type eventOf struct {
	typ     string
	ref     string // pinned where the thing has versions
	payload map[string]any
}

// put adds the row of a thing that is now as data says. It returns the error of
// encoding data, which only a mistake in the program can cause.
func (r *changeRows) put(scope, kind, ref string, revision int, prev artifact.Hash, data any, e *eventOf) error {
	raw, hash, err := replicate.Encode(data)
	if err != nil {
		return err
	}
	r.putEncoded(scope, kind, ref, revision, hash, prev, raw)
	return r.event(e)
}

// putEncoded adds the row of data that is encoded already. The caller adds its
// event, or nil.
func (r *changeRows) putEncoded(scope, kind, ref string, revision int, hash, prev artifact.Hash, raw []byte) {
	text := string(raw)
	r.add(scope, kind, replicate.Put, ref, revision)
	r.hash = append(r.hash, hash[:])
	r.prevHash = append(r.prevHash, bytesOf(prev))
	r.data = append(r.data, &text)
}

// remove adds the row of a thing that is gone from its scope.
func (r *changeRows) remove(scope, kind, ref string, revision int, prev artifact.Hash, e *eventOf) error {
	r.add(scope, kind, replicate.Delete, ref, revision)
	r.hash = append(r.hash, nil)
	r.prevHash = append(r.prevHash, bytesOf(prev))
	r.data = append(r.data, nil)
	return r.event(e)
}

// emit adds a row that is nothing but an event.
func (r *changeRows) emit(scope, ref string, revision int, e *eventOf) error {
	r.add(scope, replicate.KindEvent, replicate.Emit, ref, revision)
	r.hash = append(r.hash, nil)
	r.prevHash = append(r.prevHash, nil)
	r.data = append(r.data, nil)
	return r.event(e)
}

func (r *changeRows) add(scope, kind, op, ref string, revision int) {
	class := replicate.Public
	if r.internal {
		class = replicate.Internal
	}
	r.class = append(r.class, class)
	r.scope = append(r.scope, scope)
	r.kind = append(r.kind, kind)
	r.op = append(r.op, op)
	r.ref = append(r.ref, ref)
	r.revision = append(r.revision, int32(revision)) //nolint:gosec // revisions count writes of one artifact
}

// extend adds the rows of other.
func (r *changeRows) extend(other *changeRows) {
	r.class, r.scope, r.kind = append(r.class, other.class...), append(r.scope, other.scope...), append(r.kind, other.kind...)
	r.op, r.ref, r.revision = append(r.op, other.op...), append(r.ref, other.ref...), append(r.revision, other.revision...)
	r.hash, r.prevHash, r.data = append(r.hash, other.hash...), append(r.prevHash, other.prevHash...), append(r.data, other.data...)
	r.eventType, r.eventRef = append(r.eventType, other.eventType...), append(r.eventRef, other.eventRef...)
	r.eventDetail = append(r.eventDetail, other.eventDetail...)
}

// touchAccess reports whether rows change who may do what.
func (r *changeRows) touchAccess() bool {
	return slices.ContainsFunc(r.kind, func(kind string) bool {
		return kind == replicate.KindMembership || kind == replicate.KindRevocation || kind == kindNode
	})
}

func (r *changeRows) event(e *eventOf) error {
	if e == nil {
		r.eventType = append(r.eventType, nil)
		r.eventRef = append(r.eventRef, nil)
		r.eventDetail = append(r.eventDetail, nil)
		return nil
	}
	payload, _, err := replicate.Encode(e.payload)
	if err != nil {
		return err
	}
	text := string(payload)
	r.eventType = append(r.eventType, &e.typ)
	r.eventRef = append(r.eventRef, &e.ref)
	r.eventDetail = append(r.eventDetail, &text)
	return nil
}

var noHash artifact.Hash

func bytesOf(h artifact.Hash) []byte {
	if h.IsZero() {
		return nil
	}
	return h[:]
}

// A replayable is the answer that an idempotency key is to give again.
type replayable struct {
	key         uuid.UUID
	requestHash artifact.Hash
	response    []byte
}

// A commit is what the log takes from one member of a transaction.
type commit struct {
	rows   *changeRows
	caller *verb.Caller
	verb   string
	answer *replayable // nil without an idempotency key
}

// insertAnswerQuery keeps the answer of a request that changed nothing.
const insertAnswerQuery = `
	INSERT INTO idempotency (actor, key, request_hash, response, seq, created_at) VALUES ($1, $2, $3, $4, 0, $5)`

// appendQuery is the last statement before COMMIT. It returns the seq before the
// first row.
const appendQuery = `
	SELECT feed.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
		$14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)`

// queueAppend queues the call that gives the rows their seqs: those of the first
// commit, then those of the next, and so on.
func queueAppend(b *pgx.Batch, commits []commit) *pgx.QueuedQuery {
	var r changeRows
	var member, last []int32
	var at []time.Time
	var actorID, actorKind, verbName, session, parent, delegation, task []string
	var requestID []string
	var key []*uuid.UUID
	var requestHash [][]byte
	var response []*string
	keyed := false
	for i := range commits {
		c := &commits[i]
		r.extend(c.rows)
		for range c.rows.kind {
			member = append(member, int32(i+1))
		}
		last = append(last, int32(len(r.kind))) //nolint:gosec // and some thousand rows
		at, actorID, actorKind = append(at, c.caller.Now), append(actorID, c.caller.Actor.ID), append(actorKind, c.caller.Actor.Kind)
		requestID, verbName = append(requestID, c.caller.RequestID), append(verbName, c.verb)
		session, parent, task = append(session, c.caller.SessionID), append(parent, c.caller.ParentSessionID), append(task, c.caller.TaskID)
		delegation = append(delegation, delegationOf(c.caller))
		if c.answer == nil {
			key, requestHash, response = append(key, nil), append(requestHash, nil), append(response, nil)
			continue
		}
		keyed = true
		text := string(c.answer.response)
		key, requestHash, response = append(key, &c.answer.key), append(requestHash, c.answer.requestHash[:]), append(response, &text)
	}
	if !keyed {
		key, requestHash, response = nil, nil, nil
	}
	return b.Queue(appendQuery,
		member, r.class, r.scope, r.kind, r.op, r.ref, r.revision, r.hash, r.prevHash, r.data,
		r.eventType, r.eventRef, r.eventDetail,
		last, at, actorID, actorKind,
		requestID, verbName, session, parent, delegation, task,
		key, requestHash, response)
}

func delegationOf(c *verb.Caller) string {
	if len(c.Delegation) > 0 {
		if raw, err := json.Marshal(c.Delegation); err == nil {
			return string(raw)
		}
	}
	return "[]"
}

// provenance is what the hub stamps on a version.
func provenance(c *verb.Caller, verbName string, imported bool) replicate.Provenance {
	p := replicate.Provenance{
		ActorID: c.Actor.ID, ActorKind: c.Actor.Kind, Delegation: c.Delegation, Import: imported,
		ParentSessionID: c.ParentSessionID, RequestID: c.RequestID, SessionID: c.SessionID, TaskID: c.TaskID, Verb: verbName,
	}
	if p.Delegation == nil {
		p.Delegation = []artifact.DelegationStep{}
	}
	return p
}

// idempotencyTTL is how long an answer is kept for its key.
const idempotencyTTL = 24 * time.Hour
