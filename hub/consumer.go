package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/verb"
)

// A consumer is a durable reader of events, as the database has it. Its rows are the
// one thing beside the log that is written without a change: an advance that made an
// event would never end.
type consumer struct {
	agent, id string
	asked     string // {types, filter} as stored
	wanted    wanted // the same, read
	verb.Consumer
	session string
	dead    []artifact.Seq // after the cursor
	again   []artifact.Seq // given back, up to the cursor
	done    []artifact.Seq // of them, those that were delivered again since
	ahead   bool           // whether some were given back after the cursor, and not delivered again since
}

// wanted is which events a consumer is for.
type wanted struct {
	Types  []string        `json:"types,omitempty"`
	Filter json.RawMessage `json:"filter,omitempty"`
}

const consumerColumns = `c.agent, c.consumer_id, c.filter_json, c.epoch, c.generation, c.cursor, c.session, c.dead_letter_count, c.created_at, c.last_activity_at`

const consumerQuery = `
	SELECT ` + consumerColumns + `,
		ARRAY (SELECT r.event_id FROM consumer_refusal r WHERE r.agent = c.agent AND r.consumer_id = c.consumer_id AND r.dead_at IS NOT NULL AND r.event_id > c.cursor),
		ARRAY (SELECT r.event_id FROM consumer_refusal r WHERE r.agent = c.agent AND r.consumer_id = c.consumer_id AND r.dead_at IS NULL AND r.event_id <= c.cursor),
		ARRAY (SELECT r.event_id FROM consumer_refusal r WHERE r.agent = c.agent AND r.consumer_id = c.consumer_id AND r.dead_at IS NULL AND r.event_id <= c.cursor AND r.delivered),
		EXISTS (SELECT FROM consumer_refusal r WHERE r.agent = c.agent AND r.consumer_id = c.consumer_id AND r.dead_at IS NULL AND r.event_id > c.cursor AND NOT r.delivered)
	FROM consumer_subscriptions c
	WHERE c.agent = $1 AND c.consumer_id = $2`

func (c *consumer) scan(row pgx.Row, more ...any) error {
	err := row.Scan(append([]any{
		&c.agent, &c.id, &c.asked, &c.Epoch, &c.Generation, &c.Cursor, &c.session, &c.DeadLetters, &c.CreatedAt, &c.LastActivityAt,
	}, more...)...)
	if err != nil {
		return err
	}
	c.ConsumerID, c.CreatedAt, c.LastActivityAt = c.id, c.CreatedAt.UTC(), c.LastActivityAt.UTC()
	if err := json.Unmarshal([]byte(c.asked), &c.wanted); err != nil {
		return fmt.Errorf("the filter of consumer %s: %w", c.id, err)
	}
	c.Consumer.Types, c.Consumer.Filter = c.wanted.Types, c.wanted.Filter
	return nil
}

// findConsumer returns a consumer of the caller.
func findConsumer(ctx context.Context, db querier, agent, id string) (*consumer, error) {
	c := new(consumer)
	err := c.scan(db.QueryRow(ctx, consumerQuery, agent, id), &c.dead, &c.again, &c.done, &c.ahead)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noConsumer(id)
	}
	return c, err
}

// noConsumer is the answer for a consumer that is not there, or is another's.
func noConsumer(id string) error { return artifact.NotFound("consumer:" + id) }

// told returns the consumer as the caller is told of it.
func (h *Hub) told(c *consumer) verb.Consumer {
	c.Behind = max(0, h.pump.ring.end()-c.Cursor)
	return c.Consumer
}

func (c *consumer) place() verb.ConsumerPlace {
	return verb.ConsumerPlace{
		ConsumerID: c.id, Epoch: c.Epoch, Generation: c.Generation, Cursor: c.Cursor, Types: c.wanted.Types, Filter: c.wanted.Filter,
	}
}

// taken is the answer for a generation that no longer counts.
func taken(id string, generation int64) error {
	return &artifact.Error{
		Code: artifact.CodeVersionConflict, Reason: artifact.ReasonConsumerTaken,
		Message: "the consumer " + id + " is read by another now, or was rewound",
		Details: map[string]any{"consumer_id": id, "generation": generation},
	}
}

// activityNoted is how exactly it is known when a consumer was last used.
const activityNoted = time.Hour

// An opening asks for a consumer.
type opening struct {
	id      string
	wanted  wanted
	since   *artifact.Seq // where a new one begins; nil: after what has happened so far
	session string        // who is to read with it
}

// openConsumer returns a consumer that a session reads with from now on, and makes
// it when there is none. What another session reads with, it takes over.
func (h *Hub) openConsumer(ctx context.Context, c *verb.Caller, o opening) (*consumer, error) {
	asked, err := json.Marshal(o.wanted)
	if err != nil {
		return nil, err
	}
	for range maxTries {
		now, err := findConsumer(ctx, h.db, c.Actor.ID, o.id)
		if artifact.IsCode(err, artifact.CodeNotFound) {
			if err := h.registerConsumer(ctx, c, &o, string(asked)); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		filter := now.asked
		if o.wanted.Types != nil || o.wanted.Filter != nil {
			filter = string(asked)
		}
		takeover := now.session != o.session
		if !takeover && filter == now.asked && c.Now.Sub(now.LastActivityAt) < activityNoted {
			return now, nil
		}
		const update = `
			UPDATE consumer_subscriptions
			SET session = $4, filter_json = $5, generation = generation + CASE WHEN session = $4 THEN 0 ELSE 1 END, last_activity_at = now()
			WHERE agent = $1 AND consumer_id = $2 AND generation = $3`
		tag, err := h.db.Exec(ctx, update, c.Actor.ID, o.id, now.Generation, o.session, filter)
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() == 0 {
			continue // another was faster
		}
		now, err = findConsumer(ctx, h.db, c.Actor.ID, o.id)
		if err != nil || now.session != o.session {
			continue
		}
		if takeover {
			h.live.end(c.Actor.ID, o.id, now.Generation)
		}
		return now, nil
	}
	return nil, errBusy()
}

// consumersLock makes those who make consumers of one agent take turns.
const consumersLock = 0x5c1de51

// registerConsumer makes a consumer, unless another has made it meanwhile.
func (h *Hub) registerConsumer(ctx context.Context, c *verb.Caller, o *opening, asked string) error {
	head, err := h.Head(ctx)
	if err != nil {
		return err
	}
	cursor := head
	if o.since != nil {
		cursor = *o.since
		if err := h.checkCursor(ctx, cursor, head); err != nil {
			return err
		}
	}
	return pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, hashtext($2))`, consumersLock, c.Actor.ID); err != nil {
			return err
		}
		var has int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM consumer_subscriptions WHERE agent = $1 AND consumer_id <> $2`, c.Actor.ID, o.id).Scan(&has); err != nil {
			return err
		}
		if has >= h.config.Consumers.PerAgent {
			return tooMany("consumers of an agent", h.config.Consumers.PerAgent)
		}
		const insert = `
			INSERT INTO consumer_subscriptions (agent, consumer_id, filter_json, epoch, generation, cursor, session, created_at, last_activity_at)
			VALUES ($1, $2, $3, $4, 1, $5, $6, now(), now())
			ON CONFLICT DO NOTHING`
		_, err := tx.Exec(ctx, insert, c.Actor.ID, o.id, asked, h.id.epoch, int64(cursor), o.session)
		return err
	})
}

func tooMany(of string, limit int) error {
	return &artifact.Error{
		Code: artifact.CodeValidationFailed, Reason: artifact.ReasonTooMany, Message: fmt.Sprintf("there are %d %s already", limit, of),
		Details: map[string]any{"of": of, "limit": limit},
	}
}

// readFrom returns a reader of what a consumer is to get, from a cursor on.
func (h *Hub) readFrom(ctx context.Context, c *verb.Caller, k *consumer, since *artifact.Seq, size int) (event.Reader, error) {
	f, err := event.NewFilter(k.wanted.Types, k.wanted.Filter)
	if err != nil {
		return nil, err
	}
	after := k.Cursor
	if since != nil {
		after = *since
	}
	reader, err := h.Read(ctx, &after, f, size)
	if err != nil {
		return nil, err
	}
	r := &event.Redelivery{Reader: reader, Dead: make(map[artifact.Seq]bool, len(k.dead))}
	for _, id := range k.dead {
		r.Dead[id] = true
	}
	if len(k.again) > 0 && since == nil {
		if r.First, err = h.redelivered(ctx, c, k, f, size); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// redelivered returns the events that a consumer gave back, as far as it may still
// see them, and notes that it has them again.
func (h *Hub) redelivered(ctx context.Context, c *verb.Caller, k *consumer, f *event.Filter, size int) ([]artifact.Event, error) {
	slices.Sort(k.again)
	ids := k.again[:min(size, len(k.again))]
	events, err := h.namedEvents(ctx, h.db, c, ids)
	if err != nil {
		return nil, err
	}
	const note = `UPDATE consumer_refusal SET delivered = true WHERE agent = $1 AND consumer_id = $2 AND event_id = ANY ($3) AND dead_at IS NULL`
	if _, err := h.db.Exec(ctx, note, k.agent, k.id, ids); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(events, func(e artifact.Event) bool { return !f.Match(&e) }), nil
}

// comesAgain notes that a consumer has events again that it gave back and that are
// after its cursor: it reads them anew, up to a seq, or will.
func (h *Hub) comesAgain(ctx context.Context, k *consumer, upTo artifact.Seq) error {
	if !k.ahead {
		return nil
	}
	const note = `UPDATE consumer_refusal SET delivered = true WHERE agent = $1 AND consumer_id = $2 AND event_id > $3 AND event_id <= $4 AND dead_at IS NULL AND NOT delivered`
	_, err := h.db.Exec(ctx, note, k.agent, k.id, int64(k.Cursor), int64(upTo))
	return err
}

// pollConsumer answers a poll that names a consumer.
func (h *Hub) pollConsumer(ctx context.Context, in verb.PollRequest) (out verb.PollResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	size, err := in.Size()
	if err != nil {
		return out, err
	}
	o := opening{id: in.ConsumerID, wanted: wanted{in.Types, in.Filter}, since: in.Since, session: "poll@" + c.NodeID}
	k, err := h.openConsumer(ctx, c, o)
	if err != nil {
		return out, callerError(err)
	}
	if in.Advances() && len(k.done) > 0 { // the page with them was taken
		const forget = `DELETE FROM consumer_refusal WHERE agent = $1 AND consumer_id = $2 AND event_id = ANY ($3) AND dead_at IS NULL AND delivered`
		if _, err := h.db.Exec(ctx, forget, k.agent, k.id, k.done); err != nil {
			return out, callerError(err)
		}
		k.again = slices.DeleteFunc(k.again, func(id artifact.Seq) bool { return slices.Contains(k.done, id) })
	}
	reader, err := h.readFrom(ctx, c, k, in.Since, size)
	if err != nil {
		return out, callerError(err)
	}
	if out, err = event.ReadPage(ctx, reader); err == nil {
		err = h.comesAgain(ctx, k, out.Cursor)
	}
	if err != nil {
		return out, callerError(err)
	}
	if in.Advances() && out.Cursor > k.Cursor {
		moved, err := h.moveConsumer(ctx, c, k.id, k.Generation, out.Cursor, false)
		if err != nil {
			return verb.PollResult{}, callerError(err)
		}
		k.Consumer = moved.Consumer
	}
	place := k.place()
	out.Consumer = &place
	return out, nil
}

// moveConsumer moves a cursor forward. With accept set, the events that were given
// back and delivered again are done with too.
func (h *Hub) moveConsumer(ctx context.Context, c *verb.Caller, id string, generation int64, to artifact.Seq, accept bool) (*consumer, error) {
	const update = `
		WITH before AS (
			SELECT b.cursor FROM consumer_subscriptions b WHERE b.agent = $1 AND b.consumer_id = $2
		), c AS (
			UPDATE consumer_subscriptions SET epoch = CASE WHEN cursor < $4 THEN $5 ELSE epoch END, cursor = greatest(cursor, $4), last_activity_at = now()
			WHERE agent = $1 AND consumer_id = $2 AND generation = $3
			RETURNING *
		), done AS (
			DELETE FROM consumer_refusal r USING c, before
			WHERE r.agent = $1 AND r.consumer_id = $2 AND r.dead_at IS NULL AND r.event_id <= $4 AND (r.event_id > before.cursor OR r.delivered AND $6)
		)
		SELECT ` + consumerColumns + ` FROM c`
	k := new(consumer)
	err := k.scan(h.db.QueryRow(ctx, update, c.Actor.ID, id, generation, int64(to), h.id.epoch, accept))
	if !errors.Is(err, pgx.ErrNoRows) {
		return k, err
	}
	if k, err = findConsumer(ctx, h.db, c.Actor.ID, id); err != nil {
		return nil, err
	}
	return nil, taken(id, k.Generation)
}

// streamConsumer begins the stream of a consumer. It implements [event.Stream]'s
// Durable.
func (h *Hub) streamConsumer(ctx context.Context, in verb.SubscribeRequest) (*event.Session, error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return nil, err
	}
	o := opening{id: in.ConsumerID, wanted: wanted{in.Types, in.Filter}, since: in.Since, session: "stream " + uuid.NewString()}
	k, err := h.openConsumer(ctx, c, o)
	if err != nil {
		return nil, callerError(err)
	}
	live := h.live.begin(c.Actor.ID, k.id, k.Generation)
	reader, err := h.readFrom(ctx, c, k, in.Since, event.StreamPage)
	if err == nil {
		err = h.comesAgain(ctx, k, math.MaxInt64)
	}
	if err != nil {
		h.live.close(live)
		return nil, callerError(err)
	}
	return &event.Session{
		Reader: reader, Place: k.place(), Ended: live.ended,
		Why:   func() error { return live.why },
		Close: func() { h.live.close(live) },
	}, nil
}
