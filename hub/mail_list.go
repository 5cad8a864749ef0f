package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// Mail is read as artifacts are, with the caller's scopes as $1 and the caller as
// $2. What is addressed to the caller is a delivery, or a broadcast without one.
const (
	ofMessage = ` JOIN artifact a ON a.type = 'message' AND a.id = m.message`

	deliveredMail = `
		SELECT m.message, m.thread, m.priority, m.sent_at, d.status, d.ack_at, d.response
		FROM delivery d JOIN mail m ON m.message = d.message` + ofMessage + `
		WHERE d.recipient = $2 AND` + visible
	broadcastMail = `
		SELECT m.message, m.thread, m.priority, m.sent_at, 'pending', NULL::timestamptz, ''
		FROM mail m` + ofMessage + `
		WHERE m.everyone AND m.sender <> $2 AND NOT EXISTS (SELECT FROM delivery d WHERE d.message = m.message AND d.recipient = $2) AND` + visible
	sentMail = `
		SELECT m.message, m.thread, m.priority, m.sent_at, coalesce(d.status, ''), d.ack_at, coalesce(d.response, '')
		FROM mail m` + ofMessage + `
		LEFT JOIN delivery d ON d.message = m.message AND d.recipient = $2
		WHERE m.sender = $2 AND` + visible
	threadMail = `
		SELECT m.message, m.thread, m.priority, m.sent_at,
			coalesce(d.status, CASE WHEN m.everyone AND m.sender <> $2 THEN 'pending' ELSE '' END), d.ack_at, coalesce(d.response, '')
		FROM mail m` + ofMessage + `
		LEFT JOIN delivery d ON d.message = m.message AND d.recipient = $2
		WHERE m.thread = $3 AND` + visible

	// mailColumns are those of messages q that were found.
	mailColumns = `
		SELECT q.message, q.thread, q.priority, q.sent_at, q.status, q.ack_at, q.response, a.scope, a.content_hash, a.created_by, r.content, r.redaction IS NOT NULL`
	mailOrder = ` q (message, thread, priority, sent_at, status, ack_at, response)
		JOIN artifact a ON a.type = 'message' AND a.id = q.message AND a.scope = ANY ($1)` + currentVersion + `
		ORDER BY q.sent_at DESC, q.message DESC`

	sentCountsQuery = `SELECT d.message, d.status, count(*) FROM delivery d WHERE d.message = ANY ($1) GROUP BY d.message, d.status`
	sentAcksQuery   = `
		SELECT k.message, d.recipient, d.status, d.ack_at, d.response
		FROM unnest($1::text[]) AS k (message) CROSS JOIN LATERAL (
			SELECT d.recipient, d.status, d.ack_at, d.response FROM delivery d
			WHERE d.message = k.message AND d.status <> 'pending' ORDER BY d.ack_at DESC, d.recipient LIMIT $2) d`

	// openMail is what is open, of all threads.
	openMail = `
		WITH q (message, thread, priority, sent_at, status, ack_at, response) AS (` + deliveredMail + ` AND d.status IN ('pending', 'read')
			UNION ALL` + broadcastMail + `)`
	openCountsQuery = openMail + `
		SELECT count(*) FILTER (WHERE q.status = 'pending'), count(*) FILTER (WHERE q.status = 'read'), count(*) FILTER (WHERE q.priority = 'high') FROM q`
	openThreadsQuery = openMail + `, t AS (
			SELECT DISTINCT ON (q.thread) q.*,
				count(*) FILTER (WHERE q.status = 'pending') OVER w AS pending, count(*) FILTER (WHERE q.status = 'read') OVER w AS read
			FROM q WINDOW w AS (PARTITION BY q.thread)
			ORDER BY q.thread, q.sent_at DESC, q.message DESC)
		SELECT q.message, q.thread, q.priority, q.sent_at, q.status, q.ack_at, q.response, a.scope, a.content_hash, a.created_by, r.content, r.redaction IS NOT NULL,
			q.pending, q.read
		FROM t q JOIN artifact a ON a.type = 'message' AND a.id = q.message AND a.scope = ANY ($1)` + currentVersion + `
		ORDER BY q.sent_at DESC, q.message DESC LIMIT $3`
)

// owner returns the caller, who has a mailbox if it has a token.
func owner(ctx context.Context) (*verb.Caller, error) {
	c, err := verb.CallerFrom(ctx)
	if err == nil && c.Anonymous {
		err = verb.Unauthenticated("a mailbox is an agent's: give a token")
	}
	return c, err
}

// messagesList answers the verb of that name.
func (h *Hub) messagesList(ctx context.Context, in verb.MessagesListRequest) (out verb.MessagesListResponse, err error) {
	c, err := owner(ctx)
	if err != nil {
		return out, err
	}
	p, err := in.Plan()
	if err != nil {
		return out, err
	}
	out.Messages = []verb.Message{}
	err = h.oneState(ctx, func(tx pgx.Tx) error {
		sql, args := mailQuery(c, &in, &p)
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (verb.Message, error) { return scanMessage(row, c.Now) })
		if err != nil {
			return err
		}
		if len(found) > p.Limit {
			found = found[:p.Limit]
			last := &found[p.Limit-1]
			out.NextCursor = in.NextCursor(verb.MailPlace{At: last.SentAt, ID: last.Ref.ID})
		}
		out.Messages = append(out.Messages, found...)
		return readSent(ctx, tx, c, out.Messages)
	})
	if err != nil {
		return verb.MessagesListResponse{}, callerError(fmt.Errorf("list messages: %w", err))
	}
	return out, nil
}

// mailQuery returns the query of a page, with one message more.
func mailQuery(c *verb.Caller, in *verb.MessagesListRequest, p *verb.MailPlan) (string, []any) {
	args := []any{c.VisibleScopes(), c.Actor.ID}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	parts := []string{}
	switch {
	case p.Thread != "":
		arg(p.Thread)
		parts = append(parts, threadMail)
	case in.Box == verb.BoxSent:
		parts = append(parts, sentMail)
	default:
		of := arg(p.Statuses)
		kept := `` // by the index of those
		if !in.IncludeArchived {
			kept = ` AND NOT d.archived`
		}
		parts = append(parts, deliveredMail+kept+` AND d.status = ANY (`+of+`)`, broadcastMail+` AND 'pending' = ANY (`+of+`)`)
	}
	both := ""
	if p.Priority != "" {
		both += ` AND m.priority = ` + arg(p.Priority)
	}
	if p.After != nil {
		both += ` AND (m.sent_at, m.message) < (` + arg(p.After.At) + `, ` + arg(p.After.ID) + `)`
	}
	if !in.IncludeArchived {
		both += ` AND NOT EXISTS (SELECT FROM delivery o WHERE o.message = m.message AND o.recipient = $2 AND o.status = 'completed' AND o.ack_at < ` + arg(c.Now.Add(-verb.MailKept)) + `)`
	}
	limit := strconv.Itoa(p.Limit + 1)
	for i, part := range parts {
		parts[i] = `(` + part + both + ` ORDER BY m.sent_at DESC, m.message DESC LIMIT ` + limit + `)`
	}
	return mailColumns + ` FROM (` + strings.Join(parts, ` UNION ALL `) + `)` + mailOrder + ` LIMIT ` + limit, args
}

// scanMessage reads mailColumns and more.
func scanMessage(row pgx.Row, now time.Time, more ...any) (m verb.Message, err error) {
	var hash []byte
	var content, thread string
	var ackAt *time.Time
	if err := row.Scan(append([]any{
		&m.Ref.ID, &thread, &m.Priority, &m.SentAt, &m.AckStatus, &ackAt, &m.Response, &m.Scope, &hash, &m.From, &content, &m.Redacted,
	}, more...)...); err != nil {
		return m, err
	}
	m.Ref.Type, m.Ref.Hash, m.Thread = messageType, artifact.Hash(hash), messageType+":"+thread
	m.SentAt = m.SentAt.UTC()
	if ackAt != nil {
		m.AckAt = ackAt.UTC()
		m.Archived = m.AckStatus == verb.AckCompleted && m.AckAt.Before(now.Add(-verb.MailKept))
	}
	if m.Redacted || content == "" {
		return m, nil
	}
	var said mail
	if err := json.Unmarshal([]byte(content), &said.content); err != nil {
		return m, err
	}
	m.Recipient, m.Subject, m.Body, m.InReplyTo = said.content.Recipient, said.content.Subject, said.content.Body, said.content.InReplyTo
	return m, nil
}

// readSent tells of those messages that the caller sent what became of them.
func readSent(ctx context.Context, tx pgx.Tx, c *verb.Caller, messages []verb.Message) error {
	sent := make(map[string]*verb.SentTo)
	var ids []string
	for i := range messages {
		if m := &messages[i]; m.From == c.Actor.ID {
			m.Sent = &verb.SentTo{Counts: map[string]int{}, Deliveries: []verb.Delivery{}}
			sent[m.Ref.ID], ids = m.Sent, append(ids, m.Ref.ID)
		}
	}
	if ids == nil {
		return nil
	}
	rows, err := tx.Query(ctx, sentCountsQuery, ids)
	if err != nil {
		return err
	}
	var id, status string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &status, &n}, func() error {
		sent[id].Counts[status] = n
		return nil
	}); err != nil {
		return err
	}
	if rows, err = tx.Query(ctx, sentAcksQuery, ids, verb.MaxSentReceipts); err != nil {
		return err
	}
	var d verb.Delivery
	_, err = pgx.ForEachRow(rows, []any{&id, &d.Recipient, &d.AckStatus, &d.AckAt, &d.Response}, func() error {
		d.AckAt = d.AckAt.UTC()
		sent[id].Deliveries = append(sent[id].Deliveries, d)
		return nil
	})
	return err
}

// mailbox answers the verb of that name.
func (h *Hub) mailbox(ctx context.Context, in verb.MailboxRequest) (out verb.MailboxResponse, err error) {
	c, err := owner(ctx)
	if err != nil {
		return out, err
	}
	limit, err := verb.PageSize(in.Limit)
	if err != nil {
		return out, err
	}
	out.Threads = []verb.MailThread{}
	err = h.oneState(ctx, func(tx pgx.Tx) error {
		scopes := c.VisibleScopes()
		if err := tx.QueryRow(ctx, openCountsQuery, scopes, c.Actor.ID).Scan(&out.Pending, &out.Read, &out.High); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, openThreadsQuery, scopes, c.Actor.ID, limit+1)
		if err != nil {
			return err
		}
		threads, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t verb.MailThread, err error) {
			t.Latest, err = scanMessage(row, c.Now, &t.Pending, &t.Read)
			t.Thread = t.Latest.Thread
			return t, err
		})
		if out.More = len(threads) > limit; out.More {
			threads = threads[:limit]
		}
		out.Threads = append(out.Threads, threads...)
		return err
	})
	if err != nil {
		return verb.MailboxResponse{}, callerError(fmt.Errorf("read a mailbox: %w", err))
	}
	return out, nil
}
