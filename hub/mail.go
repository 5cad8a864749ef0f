package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/verb"
)

const messageType = "message"

// mail is a message as it is sent: whom it is for was found.
type mail struct {
	content struct {
		Recipient string `json:"recipient"`
		Subject   string `json:"subject,omitempty"`
		Body      string `json:"body"`
		Priority  string `json:"priority,omitempty"`
		InReplyTo string `json:"in_reply_to,omitempty"`
	}
	recipients []string // in order; none for everyone
	everyone   bool
	thread     string // id of the message that the thread began with; "" for this one
	answered   string // who sent the message that it answers; "" for none, as for scope
	scope      string // of that message
}

const (
	insertMailQuery = `
		INSERT INTO mail (message, thread, sender, priority, sent_at, everyone) VALUES ($1, $2, $3, $4, $5, $6)`
	insertDeliveriesQuery = `
		INSERT INTO delivery (recipient, message, sent_at, status, response)
		SELECT k.agent, $1, $2, 'pending', '' FROM unnest($3::text[]) AS k (agent)`
	threadQueryOf = `
		SELECT m.thread, m.sender, a.scope
		FROM mail m JOIN artifact a ON a.type = 'message' AND a.id = m.message
		WHERE m.message = $3 AND` + visible
)

// readMail finds whom a new message is for, and what it answers. Its sender is told
// of it only if it names itself; in a private scope only members are.
func readMail(ctx context.Context, db querier, s *state, o *createOp) (*mail, error) {
	m := new(mail)
	if err := json.Unmarshal(o.content, &m.content); err != nil {
		return nil, err
	}
	to := m.content.Recipient
	found, err := verb.Recipients(ctx, agentSource{db, s.caller}, s.caller, to)
	if err != nil {
		return nil, err
	}
	m.everyone = found.Everyone
	m.recipients = slices.Compact(slices.Sorted(slices.Values(found.Agents)))
	if len(m.recipients) > 1 || strings.HasPrefix(to, "group:") || strings.HasPrefix(to, "agents:") {
		m.recipients = slices.DeleteFunc(m.recipients, func(id string) bool { return id == s.caller.Actor.ID })
	}
	if m.content.InReplyTo != "" {
		if err := m.readThread(ctx, db, s); err != nil {
			return nil, err
		}
		if to == "agent:"+m.answered { // who wrote to the caller is known to it, by that alone
			m.recipients = []string{m.answered}
		}
	}
	// Of a scope that the caller may not know of, decide tells that alone.
	if scope := o.scopeOf(m); scope != artifact.Commons && slices.Contains(s.scopes, scope) {
		m.recipients = slices.DeleteFunc(m.recipients, func(id string) bool { return len(s.hub.access.Roles(id)[scope]) == 0 })
	}
	switch {
	case len(m.recipients) == 0 && !m.everyone:
		return nil, verb.UnknownRecipient("/content/recipient", to)
	case len(m.recipients) > verb.MaxRecipients:
		return nil, artifact.Invalid(artifact.Problem{
			Path: "/content/recipient", Constraint: "max_recipients", Value: artifact.Received(to),
			Message: fmt.Sprintf("a message reaches at most %d agents: address a group of fewer, or agents:* for everyone", verb.MaxRecipients),
		})
	}
	return m, nil
}

// readThread finds what a message answers.
func (m *mail) readThread(ctx context.Context, db querier, s *state) error {
	const at = "/content/in_reply_to"
	ref, fault := verb.ParseMessageRef(m.content.InReplyTo, at)
	if fault != nil {
		return artifact.Invalid(*fault)
	}
	err := db.QueryRow(ctx, threadQueryOf, s.scopes, s.caller.Actor.ID, ref.ID).Scan(&m.thread, &m.answered, &m.scope)
	if errors.Is(err, pgx.ErrNoRows) {
		return artifact.Invalid(artifact.Problem{
			Path: at, Constraint: "thread", Value: artifact.Received(m.content.InReplyTo), Message: "a message answers one that you sent or that was sent to you",
		})
	}
	return err
}

// putMail adds what the mailbox knows of a new message.
func (s *state) putMail(h *head, m *mail) {
	s.also(insertMailQuery, h.ID, cmp.Or(m.thread, h.ID), h.CreatedBy, cmp.Or(m.content.Priority, "normal"), h.CreatedAt, m.everyone)
	if len(m.recipients) > 0 {
		s.also(insertDeliveriesQuery, h.ID, h.CreatedAt, m.recipients)
	}
}

// scopeOf is where a message is to stand: where it says, or for a sendOp that says
// nothing where what it answers does.
func (o *createOp) scopeOf(m *mail) string {
	if o.scope == "" {
		return orCommons(m.scope)
	}
	return o.scope
}

// messagesSend answers the verb of that name.
func (h *Hub) messagesSend(ctx context.Context, in verb.MessagesSendRequest) (out verb.MessageResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if err := h.schemas.ensure(ctx, h.db, messageType); err != nil {
		return out, err
	}
	return single[verb.MessageResult](ctx, h, c, &writeRequest{
		verb: verb.MessagesSend.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			o, err := h.newSend(c, &in)
			return []op{o}, err
		},
	})
}

// A sendOp makes a message. Its scope is known only once what it answers was read.
type sendOp struct {
	*createOp
	in    *verb.MessagesSendRequest
	local string // id within the scope
}

func (h *Hub) newSend(c *verb.Caller, in *verb.MessagesSendRequest) (*sendOp, error) {
	var m mail
	m.content.Recipient, m.content.Subject, m.content.Body = in.Recipient, in.Subject, in.Body
	m.content.Priority, m.content.InReplyTo = in.Priority, in.InReplyTo
	raw, err := json.Marshal(m.content)
	if err != nil {
		return nil, err
	}
	o := &sendOp{in: in}
	made, err := h.newCreate(c, &verb.CreateRequest{
		Type: messageType, Scope: in.Scope, Title: cmp.Or(in.Subject, headline(in.Body)), Content: raw,
	}, verb.MessagesSend.Name, false, nil)
	if err != nil {
		return nil, o.placed(err)
	}
	o.createOp = made
	o.local = strings.TrimPrefix(made.ref.ID, in.Scope+"/")
	return o, nil
}

// load implements loader.
func (o *sendOp) load(ctx context.Context, db querier, s *state) error {
	o.scope = o.in.Scope
	if err := o.createOp.load(ctx, db, s); err != nil {
		return o.placed(err)
	}
	o.settle()
	if o.in.Scope == "" {
		s.known[o.scope] = slices.Contains(s.scopes, o.scope)
	}
	return nil
}

// settle gives the message its scope and the id that goes with it.
func (o *sendOp) settle() {
	id := o.local
	if o.scope = o.scopeOf(o.mail); o.scope != artifact.Commons {
		id = o.scope + "/" + o.local
	}
	o.rename(id)
}

func (o *sendOp) decide(s *state) error {
	if err := o.createOp.decide(s); err != nil {
		return o.placed(err)
	}
	return nil
}

// placed returns an error of making the message with the paths of the request.
func (o *sendOp) placed(err error) error {
	e, ok := errors.AsType[*artifact.Error](err)
	if !ok {
		return err
	}
	own := *e
	own.Problems = slices.Clone(e.Problems)
	for i, p := range own.Problems {
		switch path, inContent := strings.CutPrefix(p.Path, "/content"); {
		case inContent:
			own.Problems[i].Path = path
		case p.Path == "/title" && o.in.Subject == "":
			own.Problems[i].Path = "/body"
		case p.Path == "/title":
			own.Problems[i].Path = "/subject"
		}
	}
	return &own
}

func (o *sendOp) answer(seq artifact.Seq, token string) any {
	r := &verb.MessageResult{Ref: o.ref, Thread: messageType + ":" + o.ref.ID, Receipt: verb.NewReceipt(o.requestID)}
	if o.mail != nil {
		r.Recipients, r.Everyone = len(o.mail.recipients), o.mail.everyone
		if o.mail.thread != "" {
			r.Thread = messageType + ":" + o.mail.thread
		}
	}
	r.Place(seq, token, "")
	return r
}
