package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/verb"
)

// jobs are those that a hub does beside its verbs: they clear away what has expired.
// Verbs judge by the clock whether something has, and do not wait for them.
var jobs = []job{
	{"idempotency_keys", (*Hub).clearKeys},
	{"idle_consumers", (*Hub).clearConsumers},
	{"completed_mail", (*Hub).archiveMail},
}

const (
	// clearPage is how many rows are cleared away by one statement: those who need
	// one of them wait that long.
	clearPage = 1000
	// clearLate is how much longer keys are kept than they hold: the clocks of hubs
	// differ, and a request takes its time.
	clearLate = 10 * time.Minute
)

// What is locked is in use, and is cleared away by a later run.
const (
	clearKeysQuery = `
		DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
			SELECT i.ctid FROM idempotency i WHERE i.created_at <= $1 ORDER BY i.created_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
	clearConsumersQuery = `
		DELETE FROM consumer_subscriptions WHERE ctid = ANY (ARRAY(
			SELECT c.ctid FROM consumer_subscriptions c WHERE c.last_activity_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))
		RETURNING agent, consumer_id`
	archiveMailQuery = `
		UPDATE delivery SET archived = true WHERE ctid = ANY (ARRAY(
			SELECT d.ctid FROM delivery d WHERE d.status = 'completed' AND NOT d.archived AND d.ack_at < $1
			ORDER BY d.ack_at LIMIT $2 FOR UPDATE SKIP LOCKED))`
)

// inPages calls clear until it finds less than a page.
func inPages(clear func() (int, error)) (n int, err error) {
	for {
		some, err := clear()
		if n += some; err != nil || some < clearPage {
			return n, err
		}
	}
}

// clearKeys deletes idempotency keys whose answers are not given again.
func (h *Hub) clearKeys(ctx context.Context) (int, error) {
	return inPages(func() (int, error) {
		tag, err := h.db.Exec(ctx, clearKeysQuery, time.Now().Add(-idempotencyTTL-clearLate), clearPage)
		if err != nil {
			return 0, fmt.Errorf("delete idempotency keys: %w", err)
		}
		return int(tag.RowsAffected()), nil
	})
}

// clearConsumers deletes the consumers that nobody has used for so long as
// Config.Consumers says. Streams of this process that read with them end at once,
// those of others when they look.
func (h *Hub) clearConsumers(ctx context.Context) (int, error) {
	return inPages(func() (n int, err error) {
		rows, err := h.db.Query(ctx, clearConsumersQuery, time.Now().Add(-h.config.Consumers.Idle), clearPage)
		if err != nil {
			return 0, fmt.Errorf("delete idle consumers: %w", err)
		}
		var agent, id string
		if _, err := pgx.ForEachRow(rows, []any{&agent, &id}, func() error {
			n++
			h.live.end(agent, id, deleted)
			return nil
		}); err != nil {
			return n, fmt.Errorf("delete idle consumers: %w", err)
		}
		return n, nil
	})
}

// archiveMail takes what was completed long ago out of the index of inboxes.
func (h *Hub) archiveMail(ctx context.Context) (int, error) {
	return inPages(func() (int, error) {
		tag, err := h.db.Exec(ctx, archiveMailQuery, time.Now().Add(-verb.MailKept), clearPage)
		if err != nil {
			return 0, fmt.Errorf("archive mail: %w", err)
		}
		return int(tag.RowsAffected()), nil
	})
}
