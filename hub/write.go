package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// An op is one write of a request. It is made, with all that can be checked
// without the database, before the transaction.
type op interface {
	// needs names what the transaction locks and reads for the op.
	needs(n *needs)
	// decide checks the op against the state that was read, and then either
	// changes the state and adds its rows, or returns why not and changes
	// nothing. It does no I/O.
	decide(s *state) error
	// answer returns the op's part of the response, once its commit's last seq
	// is known; 0 when nothing was written.
	answer(seq artifact.Seq, token string) any
}

// A loader is an op that reads, and perhaps locks, more than needs can name. It
// does so after the rest was read, in the same transaction.
type loader interface {
	load(ctx context.Context, db querier, s *state) error
}

// A writeRequest is a verb's writes, to be done in one transaction.
type writeRequest struct {
	verb     string
	request  any // as received; its hash tells whether a key is reused
	options  verb.WriteOptions
	prepare  func() ([]op, error) // makes the ops by the schemas as they are now
	ops      []op                 // as prepared last
	partial  bool                 // leave out ops that fail, instead of failing whole
	keeps    bool                 // a batch: the answer is kept for its key even when nothing was written
	names    itemNames            // of a batch
	imported bool                 // an import by an admin
}

// A written is what became of a writeRequest.
type written struct {
	seq      artifact.Seq // last seq of the commit; 0 when nothing was written
	errs     []error      // by op; nil for those that were done
	failed   *opError     // what kept all from being done, where that is an answer to keep
	replayed []byte       // the stored answer, when the key had one
}

// maxTries bounds how often a write that lost a race is run again.
const maxTries = 6

// soloTimeout bounds how long a write waits to be run alone.
const soloTimeout = 30 * time.Second

// commitTimeout bounds the last message of a write, which a caller that hangs up
// no longer ends.
const commitTimeout = 30 * time.Second

// write is the one path that every write takes. Writes that come while others
// are under way share a transaction with those that wait beside them: see [lane].
// One that is alone, or that may not share, or that lost a race, has one to
// itself, and runs again when it loses.
func (h *Hub) write(ctx context.Context, c *verb.Caller, w *writeRequest, response func(*written) any) (*written, error) {
	start := time.Now()
	m, unkeyed := newMember(c, w, response)
	if err := m.prepare(); err != nil {
		return nil, gather(unkeyed, h.complete(ctx, c, err))
	}
	if unkeyed != nil {
		return nil, unkeyed
	}
	if err := h.turn(ctx, m); err != nil {
		if errors.Is(err, ctx.Err()) {
			return nil, err // the caller hung up
		}
		return nil, callerError(err)
	}
	h.metrics.commits.WithLabelValues(w.verb).Observe(time.Since(start).Seconds())
	return m.done, nil
}

// turn writes a member with others, or alone.
func (h *Hub) turn(ctx context.Context, m *member) error {
	if !m.mayShare() {
		return h.alone(ctx, m)
	}
	if served, err := h.lane.join(ctx, m); served || err != nil {
		return cmp.Or(err, m.err)
	}
	return h.alone(ctx, m)
}

// alone writes a member in a transaction of its own, again while it loses races.
func (h *Hub) alone(ctx context.Context, m *member) error {
	busy := time.NewTimer(soloTimeout)
	defer busy.Stop()
	select {
	case h.solo <- struct{}{}:
		defer func() { <-h.solo }()
	case <-ctx.Done():
		return ctx.Err()
	case <-busy.C:
		return errBusy()
	}
	for try := 1; ; try++ {
		err := h.transact(ctx, []*member{m}, true)
		if err == nil {
			return nil
		}
		reason := retryReason(err)
		if reason == "" || try == maxTries {
			return err
		}
		h.metrics.retries.WithLabelValues(reason).Inc()
		if full, ok := errors.AsType[*logFullError](err); ok {
			if err := ensurePartitions(ctx, h.db, h.config.PartitionRows, full.rows); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, errNeedsContent) {
			m.needs.conflict = true
			continue
		}
		if errors.Is(err, errStaleSchemas) {
			if err := h.schemas.load(ctx, h.db); err != nil {
				return err
			}
			if err := m.prepare(); err != nil {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(time.Millisecond << try)): //nolint:gosec // jitter, not a secret
		}
	}
}

// transact writes some members in one transaction: it locks and reads, decides in
// memory, and sends the writes, the log's rows and COMMIT in one message, so that
// the lock that orders commits never spans a round trip.
//
// With wait set there is one member, whose failure is the transaction's. Without,
// it waits for no lock on an artifact: what becomes of each member is in the
// member, and an error is that of all, none of whom has written.
func (h *Hub) transact(ctx context.Context, members []*member, wait bool) error {
	conn, err := h.db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire a connection: %w", err)
	}
	defer conn.Release()
	committed := false
	defer func() {
		if !committed {
			rollback(ctx, conn)
		}
	}()

	// Message 1: lock and read.
	l := newLoaded()
	if err := l.read(ctx, conn, members, wait); err != nil {
		return err
	}

	// Message 2 is none: decide in memory.
	var writers []*member
	for _, m := range members {
		m.done, m.err = nil, nil
		if m.err = m.decide(ctx, conn, h, l); m.err != nil {
			if wait || isFatal(m.err) {
				return m.err
			}
			continue
		}
		if m.writes() {
			l.take(m.state)
			writers = append(writers, m)
		}
	}
	if writers == nil {
		return nil
	}
	if err := announceWriters(ctx, conn, writers); err != nil {
		return err
	}

	// Message 3: write, append, commit. From here on the caller's hanging up
	// changes nothing.
	w := newWrites()
	commits := make([]commit, len(writers))
	rows := 0
	for i, m := range writers {
		answer, err := m.replayable()
		if err != nil {
			return err
		}
		w.add(&m.state.writes)
		commits[i] = commit{rows: &m.state.rows, caller: m.caller, verb: m.request.verb, answer: answer}
		rows += len(m.state.rows.kind)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	b := new(pgx.Batch)
	w.queue(b)
	var last artifact.Seq
	if rows == 0 { // one batch that failed, whose answer is kept
		a := commits[0].answer
		b.Queue(insertAnswerQuery, writers[0].caller.Actor.ID, a.key, a.requestHash[:], string(a.response), writers[0].caller.Now)
	} else {
		queueAppend(b, commits).QueryRow(func(row pgx.Row) error { return row.Scan(&last) })
	}
	b.Queue("COMMIT")
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return commitError(err, rows)
	}
	committed = true
	if rows, ok := logRows(last, commits, w.revisions); ok {
		h.pump.offers.put(rows)
	}
	access := false
	for _, m := range writers {
		last += artifact.Seq(len(m.state.rows.kind))
		if len(m.state.rows.kind) > 0 {
			m.done.seq = last
		}
		for _, seen := range m.state.announced {
			h.agents.Store(seen, struct{}{})
		}
		access = access || m.state.rows.touchAccess()
		if err := h.schemas.learn(&m.state.rows); err != nil {
			h.log.WarnContext(ctx, "a type could not be taken in; the feed brings it", "err", err)
		}
	}
	if rows > 0 {
		h.pump.wake(last)
	}
	if access {
		// What was granted or revoked counts from the answer on.
		if err := h.access.load(ctx, h.db); err != nil {
			h.log.WarnContext(ctx, "memberships and revocations could not be read again; the feed brings them", "err", err)
		}
	}
	return nil
}

// rollback ends a transaction that is not to be committed. A connection on which
// that fails is closed, which ends it too.
func rollback(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		_ = conn.Conn().Close(ctx) // it is broken; the pool drops it
	}
}

// An opError is the error of one op of several.
type opError struct {
	index int
	err   error
}

func (e *opError) Error() string { return e.err.Error() }
func (e *opError) Unwrap() error { return e.err }

// A logFullError reports that the log's partitions do not take a commit of so
// many rows. Partitions are made ahead; this is for what outruns that.
type logFullError struct {
	rows int64
	err  error
}

func (e *logFullError) Error() string { return e.err.Error() }
func (e *logFullError) Unwrap() error { return e.err }

// commitError tells apart what the server refused, which left nothing behind,
// and a connection that broke while the commit was under way.
func commitError(err error, rows int) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.SeverityUnlocalized != "FATAL" && pg.SeverityUnlocalized != "PANIC" {
		if pg.Code == checkViolation && pg.ConstraintName == "" && (pg.TableName == "change" || pg.TableName == "event") {
			return &logFullError{int64(rows), err}
		}
		return err
	}
	return &artifact.Error{
		Code: artifact.CodeUnavailable, Reason: artifact.ReasonOutcomeUnknown, Retryable: true, RetryAfterMS: 1000,
		Message: "the database did not confirm the commit; retry with the same idempotency key",
		Details: map[string]any{"outcome_unknown": true},
	}
}

// SQLSTATEs that a write meets.
const (
	uniqueViolation      = "23505"
	checkViolation       = "23514" // with a table and no constraint: no partition for the row
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	queryCanceled        = "57014"
)

// retryReason returns why a failed try is worth another, or "".
func retryReason(err error) string {
	switch {
	case errors.Is(err, errStaleSchemas):
		return "schema_changed"
	case errors.Is(err, errNeedsContent):
		return "conflict"
	}
	if _, ok := errors.AsType[*logFullError](err); ok {
		return "log_full"
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return ""
	}
	switch pg.Code {
	case serializationFailure:
		return "serialization"
	case deadlockDetected:
		return "deadlock"
	case uniqueViolation:
		return "raced" // another made the same thing; the next try reads it
	}
	return ""
}

// callerError turns what a caller can act on into an [artifact.Error].
func callerError(err error) error {
	if _, ok := errors.AsType[*artifact.Error](err); ok {
		return err
	}
	busy := errBusy()
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case lockNotAvailable, queryCanceled, serializationFailure, deadlockDetected, uniqueViolation:
			return busy
		}
		if pg.Code[:2] == "57" || pg.Code[:2] == "53" || pg.Code[:2] == "08" { // shutdown, resources, connection
			return busy
		}
		return err
	}
	var connect *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connect) || pgconn.SafeToRetry(err) || errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) {
		busy.Reason, busy.Message = artifact.ReasonDatabaseUnreachable, "the hub cannot reach its database"
		return busy
	}
	return err
}

func errBusy() *artifact.Error {
	return &artifact.Error{Code: artifact.CodeUnavailable, Reason: artifact.ReasonBusy, Message: "the hub is busy; try again", Retryable: true, RetryAfterMS: 1000}
}

// idempotencyOf returns the request's key, nil for none, and the hash by which a
// second request with that key is known to be the same.
func idempotencyOf(w *writeRequest) (*uuid.UUID, artifact.Hash, error) {
	if w.options.IdempotencyKey == "" {
		return nil, artifact.Hash{}, nil
	}
	key, err := uuid.Parse(w.options.IdempotencyKey)
	if err != nil || len(w.options.IdempotencyKey) != 36 {
		return nil, artifact.Hash{}, artifact.Invalid(artifact.Problem{
			Path: "/idempotency_key", Constraint: "uuid", Message: "an idempotency key is a UUID",
			Value: artifact.Received(w.options.IdempotencyKey),
		})
	}
	raw, err := json.Marshal(w.request)
	if err != nil {
		return nil, artifact.Hash{}, fmt.Errorf("hash the request: %w", err)
	}
	return &key, artifact.HashBytes(append([]byte(w.verb+"\n"), raw...)), nil
}

// token returns the consistency token of a commit, "" when nothing was written.
func (h *Hub) token(seq artifact.Seq) string {
	if seq == 0 {
		return ""
	}
	return replicate.Token(h.id.epoch, seq)
}
