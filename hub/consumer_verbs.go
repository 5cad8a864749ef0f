package hub

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// consumersGet answers the verb of that name.
func (h *Hub) consumersGet(ctx context.Context, in verb.ConsumersGetRequest) (out verb.ConsumersGetResponse, err error) {
	c, err := consumerCaller(ctx, in.ConsumerID, in.ConsumerID == "")
	if err != nil {
		return out, err
	}
	if in.ConsumerID != "" {
		k, err := findConsumer(ctx, h.db, c.Actor.ID, in.ConsumerID)
		if err != nil {
			return out, callerError(err)
		}
		out.Consumers = []verb.Consumer{h.told(k)}
		return out, nil
	}
	rows, err := h.db.Query(ctx, `SELECT `+consumerColumns+` FROM consumer_subscriptions c WHERE c.agent = $1 ORDER BY c.consumer_id`, c.Actor.ID)
	if err != nil {
		return out, callerError(fmt.Errorf("list consumers: %w", err))
	}
	out.Consumers, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (verb.Consumer, error) {
		k := new(consumer)
		err := k.scan(row)
		return h.told(k), err
	})
	if err != nil {
		return out, callerError(fmt.Errorf("list consumers: %w", err))
	}
	if out.Consumers == nil {
		out.Consumers = []verb.Consumer{}
	}
	return out, nil
}

// consumerCaller returns who calls, which takes a token, once a consumer is named
// as it may be.
func consumerCaller(ctx context.Context, id string, none bool, more ...artifact.Problem) (*verb.Caller, error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if c.Anonymous {
		return nil, verb.Unauthenticated("a consumer needs a token")
	}
	problems := more
	if !none {
		problems = append(verb.CheckConsumerID(id), more...)
	}
	if problems != nil {
		return nil, artifact.Invalid(problems...)
	}
	return c, nil
}

// checkEvent returns what is wrong with the id of an event.
func checkEvent(id, least artifact.Seq) (problems []artifact.Problem) {
	if id < least {
		problems = append(problems, artifact.Problem{Path: "/event_id", Constraint: "range", Message: fmt.Sprintf("an event's id is %d or more", least)})
	}
	return problems
}

// consumersAdvance answers the verb of that name.
func (h *Hub) consumersAdvance(ctx context.Context, in verb.ConsumersAdvanceRequest) (out verb.ConsumerResult, err error) {
	c, err := consumerCaller(ctx, in.ConsumerID, false, checkEvent(in.EventID, 0)...)
	if err != nil {
		return out, err
	}
	if err := h.checkPlace(ctx, in.EventID, in.Epoch); err != nil {
		return out, err
	}
	k, err := h.moveConsumer(ctx, c, in.ConsumerID, in.Generation, in.EventID, true)
	if err != nil {
		return out, callerError(err)
	}
	out.Consumer = h.told(k)
	return out, nil
}

// checkPlace refuses a place in the log that is none, or of an epoch in which it may
// have been another event.
func (h *Hub) checkPlace(ctx context.Context, at artifact.Seq, epoch int) error {
	head, err := h.Head(ctx)
	if err != nil {
		return callerError(err)
	}
	if err := h.checkCursor(ctx, at, head); err != nil {
		if e := artifact.AsError(err); e.Details["oldest"] == nil {
			return err // what is no longer kept may have been dealt with
		}
	}
	if epoch != 0 && epoch < h.id.epoch {
		var lost bool
		const query = `SELECT EXISTS (SELECT FROM epoch p WHERE p.epoch > $1 AND p.last_seq < $2)`
		if err := h.db.QueryRow(ctx, query, epoch, int64(at)).Scan(&lost); err != nil {
			return callerError(err)
		}
		if lost {
			return &artifact.Error{
				Code: artifact.CodeNotFound, Reason: artifact.ReasonCursorExpired, Details: map[string]any{"epoch": h.id.epoch, "head": head},
				Message: "the event is of an epoch whose end a restore of the hub lost",
			}
		}
	}
	return nil
}

// consumersRewind answers the verb of that name.
func (h *Hub) consumersRewind(ctx context.Context, in verb.ConsumersRewindRequest) (out verb.ConsumerResult, err error) {
	c, err := consumerCaller(ctx, in.ConsumerID, false, checkEvent(in.EventID, 0)...)
	if err != nil {
		return out, err
	}
	head, err := h.Head(ctx)
	if err == nil {
		err = h.checkCursor(ctx, in.EventID, head)
	}
	if err != nil {
		return out, callerError(err)
	}
	const update = `
		UPDATE consumer_subscriptions AS c SET cursor = $3, epoch = $4, generation = generation + 1, session = '', last_activity_at = now()
		WHERE agent = $1 AND consumer_id = $2 AND cursor >= $3
		RETURNING ` + consumerColumns
	k := new(consumer)
	err = k.scan(h.db.QueryRow(ctx, update, c.Actor.ID, in.ConsumerID, int64(in.EventID), h.id.epoch))
	if errors.Is(err, pgx.ErrNoRows) {
		if k, err = findConsumer(ctx, h.db, c.Actor.ID, in.ConsumerID); err == nil {
			err = artifact.Invalid(artifact.Problem{
				Path: "/event_id", Constraint: "backward", Message: fmt.Sprintf("the consumer is at %d: consumers/advance moves it forward", k.Cursor),
			})
		}
	}
	if err != nil {
		return out, callerError(err)
	}
	h.live.end(c.Actor.ID, k.id, k.Generation)
	out.Consumer = h.told(k)
	return out, nil
}

// consumersRefuse answers the verb of that name.
func (h *Hub) consumersRefuse(ctx context.Context, in verb.ConsumersRefuseRequest) (out verb.RefuseResult, err error) {
	problems := checkEvent(in.EventID, 1)
	if len(in.Reason) > verb.MaxRefuseReason {
		problems = append(problems, artifact.Problem{Path: "/reason", Constraint: "max_bytes", Message: fmt.Sprintf("a reason has at most %d bytes", verb.MaxRefuseReason)})
	}
	c, err := consumerCaller(ctx, in.ConsumerID, false, problems...)
	if err != nil {
		return out, err
	}
	out.EventID = in.EventID
	err = pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
		var generation int64
		err := tx.QueryRow(ctx, `SELECT generation FROM consumer_subscriptions WHERE agent = $1 AND consumer_id = $2 FOR UPDATE`, c.Actor.ID, in.ConsumerID).Scan(&generation)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return noConsumer(in.ConsumerID)
		case err != nil:
			return err
		case generation != in.Generation:
			return taken(in.ConsumerID, generation)
		}
		events, err := h.namedEvents(ctx, tx, c, []artifact.Seq{in.EventID})
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return artifact.NotFound(fmt.Sprintf("event:%d", in.EventID))
		}
		var others int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM consumer_refusal WHERE agent = $1 AND consumer_id = $2 AND event_id <> $3`, c.Actor.ID, in.ConsumerID, int64(in.EventID)).Scan(&others); err != nil {
			return err
		}
		if others >= verb.MaxRefused {
			return tooMany("refused events of a consumer", verb.MaxRefused)
		}
		// What was not delivered since it was given back is the same refusal again.
		const refuse = `
			INSERT INTO consumer_refusal AS r (agent, consumer_id, event_id, refusals, reason, dead_at, delivered)
			VALUES ($1, $2, $3, 1, $4, CASE WHEN $5 <= 1 THEN now() END, false)
			ON CONFLICT (agent, consumer_id, event_id) DO UPDATE SET
				refusals = CASE WHEN r.delivered AND r.dead_at IS NULL THEN r.refusals + 1 ELSE r.refusals END,
				reason = CASE WHEN r.delivered AND r.dead_at IS NULL THEN excluded.reason ELSE r.reason END, delivered = false,
				dead_at = coalesce(r.dead_at, CASE WHEN r.delivered AND r.refusals + 1 >= $5 THEN now() END)
			RETURNING refusals, dead_at IS NOT NULL`
		if err := tx.QueryRow(ctx, refuse, c.Actor.ID, in.ConsumerID, int64(in.EventID), in.Reason, h.config.Consumers.Refusals).Scan(&out.Refusals, &out.Dead); err != nil {
			return err
		}
		return countDeadLetters(ctx, tx, c.Actor.ID, in.ConsumerID)
	})
	return out, callerError(err)
}

// countDeadLetters notes how many a consumer has.
func countDeadLetters(ctx context.Context, tx pgx.Tx, agent, id string) error {
	const count = `
		UPDATE consumer_subscriptions SET last_activity_at = now(),
			dead_letter_count = (SELECT count(*) FROM consumer_refusal r WHERE r.agent = $1 AND r.consumer_id = $2 AND r.dead_at IS NOT NULL)
		WHERE agent = $1 AND consumer_id = $2`
	_, err := tx.Exec(ctx, count, agent, id)
	return err
}

// consumersDeadLetters answers the verb of that name.
func (h *Hub) consumersDeadLetters(ctx context.Context, in verb.DeadLettersRequest) (out verb.DeadLettersResponse, err error) {
	limit, err := verb.PageSize(in.Limit)
	if err != nil {
		return out, err
	}
	c, err := consumerCaller(ctx, in.ConsumerID, false)
	if err != nil {
		return out, err
	}
	if _, err := findConsumer(ctx, h.db, c.Actor.ID, in.ConsumerID); err != nil {
		return out, callerError(err)
	}
	const query = `
		SELECT r.event_id, r.refusals, r.reason, r.dead_at FROM consumer_refusal r
		WHERE r.agent = $1 AND r.consumer_id = $2 AND r.dead_at IS NOT NULL AND r.event_id > $3
		ORDER BY r.event_id LIMIT $4`
	rows, err := h.db.Query(ctx, query, c.Actor.ID, in.ConsumerID, int64(in.Since), limit+1)
	if err != nil {
		return out, callerError(err)
	}
	out.DeadLetters, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d verb.DeadLetter, err error) {
		err = row.Scan(&d.EventID, &d.Refusals, &d.Reason, &d.DeadAt)
		d.DeadAt = d.DeadAt.UTC()
		return d, err
	})
	if err != nil {
		return out, callerError(err)
	}
	if out.More = len(out.DeadLetters) > limit; out.More {
		out.DeadLetters = out.DeadLetters[:limit]
	}
	ids := make([]artifact.Seq, len(out.DeadLetters))
	at := make(map[artifact.Seq]*verb.DeadLetter, len(ids))
	for i := range out.DeadLetters {
		ids[i] = out.DeadLetters[i].EventID
		at[ids[i]] = &out.DeadLetters[i]
	}
	events, err := h.namedEvents(ctx, h.db, c, ids)
	if err != nil {
		return out, callerError(err)
	}
	for i := range events {
		e := verb.EventOf(&events[i])
		at[e.ID].Event = &e
	}
	if out.DeadLetters == nil {
		out.DeadLetters = []verb.DeadLetter{}
	}
	return out, nil
}

// consumersReplay answers the verb of that name.
func (h *Hub) consumersReplay(ctx context.Context, in verb.ConsumersReplayRequest) (out verb.ConsumerResult, err error) {
	var problems []artifact.Problem
	if len(in.EventIDs) > verb.MaxReplayed {
		problems = append(problems, artifact.Problem{Path: "/event_ids", Constraint: "max_items", Message: fmt.Sprintf("at most %d events", verb.MaxReplayed)})
	}
	c, err := consumerCaller(ctx, in.ConsumerID, false, problems...)
	if err != nil {
		return out, err
	}
	err = pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
		// The consumer first, as all who change both.
		if _, err := tx.Exec(ctx, `SELECT FROM consumer_subscriptions WHERE agent = $1 AND consumer_id = $2 FOR UPDATE`, c.Actor.ID, in.ConsumerID); err != nil {
			return err
		}
		const revive = `
			UPDATE consumer_refusal SET dead_at = NULL, refusals = 0, delivered = false
			WHERE agent = $1 AND consumer_id = $2 AND dead_at IS NOT NULL AND ($3::bigint[] IS NULL OR event_id = ANY ($3))`
		if _, err := tx.Exec(ctx, revive, c.Actor.ID, in.ConsumerID, in.EventIDs); err != nil {
			return err
		}
		if err := countDeadLetters(ctx, tx, c.Actor.ID, in.ConsumerID); err != nil {
			return err
		}
		k, err := findConsumer(ctx, tx, c.Actor.ID, in.ConsumerID)
		if err == nil {
			out.Consumer = h.told(k)
		}
		return err
	})
	return out, callerError(err)
}

// consumersDelete answers the verb of that name.
func (h *Hub) consumersDelete(ctx context.Context, in verb.ConsumersDeleteRequest) (out verb.ConsumersDeleteResult, err error) {
	c, err := consumerCaller(ctx, in.ConsumerID, false)
	if err != nil {
		return out, err
	}
	out.ConsumerID = in.ConsumerID
	err = h.db.QueryRow(ctx, `DELETE FROM consumer_subscriptions WHERE agent = $1 AND consumer_id = $2 RETURNING cursor`, c.Actor.ID, in.ConsumerID).Scan(&out.Cursor)
	if errors.Is(err, pgx.ErrNoRows) {
		err = noConsumer(in.ConsumerID)
	}
	if err == nil {
		h.live.end(c.Actor.ID, in.ConsumerID, deleted)
	}
	return out, callerError(err)
}
