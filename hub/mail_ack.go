package hub

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

// kindDelivery is the kind of the log's rows of deliveries. They are in no feed.
const kindDelivery = "delivery"

const (
	// lockDeliveryQuery makes those who acknowledge one delivery take turns.
	lockDeliveryQuery = `
		SELECT status, coalesce(ack_at, 'epoch'), response FROM delivery WHERE message = $1 AND recipient = $2 FOR UPDATE`
	addressedQuery = `
		SELECT a.scope, m.everyone AND m.sender <> $2
		FROM mail m JOIN artifact a ON a.type = 'message' AND a.id = m.message
		WHERE m.message = $3 AND` + visible
	// insertAckQuery is for a broadcast: of two at once one finds the other's.
	insertAckQuery = `
		INSERT INTO delivery (recipient, message, sent_at, status, ack_at, response)
		SELECT $2, m.message, m.sent_at, $3, $4, $5 FROM mail m WHERE m.message = $1`
	updateAckQuery = `
		UPDATE delivery SET status = $3, ack_at = $4, response = $5 WHERE message = $1 AND recipient = $2`
)

// messagesAck answers the verb of that name.
func (h *Hub) messagesAck(ctx context.Context, in verb.MessagesAckRequest) (out verb.AckResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	return single[verb.AckResult](ctx, h, c, &writeRequest{
		verb: verb.MessagesAck.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o := &ackOp{status: in.Status, response: in.Response, requestID: c.RequestID}
			if o.status == "" {
				o.status = verb.AckCompleted
			}
			var problems []artifact.Problem
			ref, fault := verb.ParseMessageRef(in.Ref, "/ref")
			if o.ref = ref; fault != nil {
				problems = append(problems, *fault)
			}
			if !slices.Contains(verb.Acks, o.status) {
				problems = append(problems, artifact.Problem{Path: "/status", Constraint: "enum", Message: "give one of " + strings.Join(verb.Acks, ", "), Value: artifact.Received(in.Status)})
			}
			if utf8.RuneCountInString(in.Response) > verb.MaxAckResponse {
				problems = append(problems, artifact.Problem{Path: "/response", Constraint: "max_length", Message: "a response is at most 65,536 characters"})
			}
			if problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			return []op{o}, nil
		},
	})
}

// An ackOp says what became of a message to the caller.
type ackOp struct {
	ref              artifact.Ref
	status, response string
	requestID        string

	found     bool // the message; loaded, as what follows
	addressed bool
	scope     string
	current   verb.Delivery // of a broadcast that nothing was done with: pending
	stored    bool          // there is a row of it

	next verb.Delivery // decided
	same bool
}

func (o *ackOp) needs(*needs) {}

func (o *ackOp) load(ctx context.Context, db querier, s *state) error {
	self := s.caller.Actor.ID
	o.found, o.stored, o.current = false, false, verb.Delivery{Recipient: self, AckStatus: verb.AckPending}
	switch err := db.QueryRow(ctx, lockDeliveryQuery, o.ref.ID, self).Scan(&o.current.AckStatus, &o.current.AckAt, &o.current.Response); {
	case err == nil:
		o.stored = true
	case !errors.Is(err, pgx.ErrNoRows):
		return err
	}
	err := db.QueryRow(ctx, addressedQuery, s.scopes, self, o.ref.ID).Scan(&o.scope, &o.addressed)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	o.found, o.addressed = err == nil, o.addressed || o.stored
	return err
}

// ackRank orders the statuses: one moves to another of higher rank.
var ackRank = map[string]int{verb.AckPending: 0, verb.AckRead: 1, verb.AckCompleted: 2, verb.AckRejected: 2}

func (o *ackOp) decide(s *state) error {
	switch {
	case !o.found:
		return s.hub.notFound(o.ref, "/ref")
	case !o.addressed:
		return artifact.Denied("only who a message is addressed to says what became of it")
	}
	from := o.current.AckStatus
	if o.same = from == o.status && (o.response == "" || o.response == o.current.Response); o.same {
		o.next = o.current
		return nil
	}
	if ackRank[o.status] <= ackRank[from] {
		return cannotAck(from, o.status)
	}
	o.next = verb.Delivery{Recipient: o.current.Recipient, AckStatus: o.status, AckAt: s.caller.Now, Response: o.response}
	if o.response == "" {
		o.next.Response = o.current.Response
	}
	query := updateAckQuery
	if !o.stored {
		query = insertAckQuery
	}
	s.also(query, o.ref.ID, o.next.Recipient, o.next.AckStatus, o.next.AckAt, o.next.Response)
	s.rows.internal = true
	told := struct {
		AckAt     time.Time `json:"ack_at"`
		AckStatus string    `json:"ack_status"`
	}{o.next.AckAt, o.next.AckStatus}
	return s.rows.put(o.scope, kindDelivery, kindDelivery+":"+o.ref.ID+"/"+o.next.Recipient, 1, noHash, told, nil)
}

func cannotAck(from, to string) error {
	allowed := []string{}
	for _, status := range verb.Acks {
		if ackRank[status] > ackRank[from] {
			allowed = append(allowed, status)
		}
	}
	message := "a message that is " + from + " does not become " + to
	if from == to {
		message = "a message that is " + from + " has the response that was given with it"
	}
	return &artifact.Error{
		Code: artifact.CodeLifecycleViolation, Message: message, Details: map[string]any{"from": from, "to": to, "allowed": allowed},
		Problems: []artifact.Problem{{Path: "/status", Constraint: artifact.GuardTransition, Message: message, Value: artifact.Received(to)}},
	}
}

func (o *ackOp) answer(seq artifact.Seq, token string) any {
	r := &verb.AckResult{
		Ref: o.ref.String(), AckStatus: o.next.AckStatus, AckAt: o.next.AckAt.UTC(), Response: o.next.Response, Receipt: verb.NewReceipt(o.requestID),
	}
	outcome := ""
	if o.same {
		outcome = verb.IdempotencyDeduplicated
	}
	r.Place(seq, token, outcome)
	return r
}
