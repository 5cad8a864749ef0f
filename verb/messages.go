package verb

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// The verbs of the mailbox. Nodes forward all of them: no replica holds mail.
var (
	MessagesSend = Verb[MessagesSendRequest, MessageResult]{
		Name:    "messages/send",
		Summary: "Send a message to an agent, a role, a group or everyone. Nobody else may read it, admins included.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Contributor}, Note: "recipients are found as agents/resolve does; in a private scope they are its members alone"},
	}
	MessagesList = Verb[MessagesListRequest, MessagesListResponse]{
		Name:    "messages/list",
		Summary: "List messages to you, by you, or of a thread, newest first.",
		Effect:  Read,
		Needs:   Needs{AnyOf: []Permission{Viewer}, Note: "your own messages alone"},
	}
	MessagesAck = Verb[MessagesAckRequest, AckResult]{
		Name:    "messages/ack",
		Summary: "Say what became of a message to you: read, completed or rejected, with an answer to its sender.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Viewer}, Note: "only who the message is addressed to"},
	}
	Mailbox = Verb[MailboxRequest, MailboxResponse]{
		Name:    "mailbox",
		Summary: "Count the messages to you that are open, and list their threads.",
		Effect:  Read,
		Needs:   Needs{AnyOf: []Permission{Viewer}, Note: "your own messages alone"},
	}
)

// Statuses of a delivery, which only move forward: from pending to read, and from
// either to completed or rejected.
const (
	AckPending   = "pending"
	AckRead      = "read"
	AckCompleted = "completed"
	AckRejected  = "rejected"
)

// AckAny lists messages whatever became of them.
const AckAny = "any"

// Boxes of messages.
const (
	BoxInbox = "inbox"
	BoxSent  = "sent"
)

// MailKept is how long a message is listed after it was completed. Then it is in the
// archive.
const MailKept = 90 * 24 * time.Hour

// Limits of messages.
const (
	MaxRecipients   = 10_000 // whom one message reaches, but for a broadcast
	MaxAckResponse  = 65_536 // characters
	MaxSentReceipts = 100    // deliveries that are told of a message that was sent
)

// MessagesSendRequest is a message.
type MessagesSendRequest struct {
	Recipient string `json:"recipient" jsonschema:"agent:<id>, @handle, agents:role:<role>, @role (a handle wins over a role), group:<id>, or agents:* for everyone in the scope"`
	Body      string `json:"body" jsonschema:"1 to 65,536 characters"`
	Subject   string `json:"subject,omitempty" jsonschema:"one line; absent: the first of the body"`
	Priority  string `json:"priority,omitempty" jsonschema:"low, normal or high; the default is normal"`
	InReplyTo string `json:"in_reply_to,omitempty" jsonschema:"ref of the message that this one answers: it joins the thread of that"`
	Scope     string `json:"scope,omitempty" jsonschema:"where it stands; absent: where the message that it answers does, or commons"`
	WriteOptions
}

// MessageResult confirms a message.
type MessageResult struct {
	Ref        artifact.Ref `json:"ref"`
	Thread     string       `json:"thread" jsonschema:"ref of the message that the thread began with"`
	Recipients int          `json:"recipients" jsonschema:"whom it reaches; 0 for everyone"`
	Everyone   bool         `json:"everyone,omitempty"`
	Receipt
}

// MessagesListRequest asks for a page of messages.
type MessagesListRequest struct {
	Box             string `json:"box,omitempty" jsonschema:"inbox, the default, or sent"`
	Thread          string `json:"thread,omitempty" jsonschema:"instead of a box: ref of the first message of a thread, of which all are listed that you may read"`
	AckStatus       string `json:"ack_status,omitempty" jsonschema:"of the inbox: pending, the default, read, completed, rejected, or any"`
	Priority        string `json:"priority,omitempty" jsonschema:"only messages of this priority: low, normal or high"`
	IncludeArchived bool   `json:"include_archived,omitempty" jsonschema:"true lists also what you completed more than 90 days ago"`
	Limit           int    `json:"limit,omitempty" jsonschema:"messages a page, 1 to 200; the default is 50"`
	Cursor          string `json:"cursor,omitempty" jsonschema:"next_cursor of the page before, from a request alike but for the cursor"`
}

// MessagesListResponse is a page of messages, newest first.
type MessagesListResponse struct {
	Messages   []Message `json:"messages"`
	NextCursor string    `json:"next_cursor,omitempty"` // absent on the last page
}

// A Message is one as its reader finds it.
type Message struct {
	Ref       artifact.Ref `json:"ref"`
	Thread    string       `json:"thread" jsonschema:"ref of the message that the thread began with"`
	Scope     string       `json:"scope"`
	From      string       `json:"from" jsonschema:"id of the agent that sent it"`
	Recipient string       `json:"recipient" jsonschema:"as it was addressed"`
	Subject   string       `json:"subject"`
	Body      string       `json:"body"`
	Priority  string       `json:"priority"`
	InReplyTo string       `json:"in_reply_to,omitempty"`
	SentAt    time.Time    `json:"sent_at"`
	Redacted  bool         `json:"redacted,omitempty" jsonschema:"its text was taken out"`

	AckStatus string    `json:"ack_status,omitempty" jsonschema:"your own; absent when it is not addressed to you"`
	AckAt     time.Time `json:"ack_at,omitzero"`
	Response  string    `json:"response,omitempty" jsonschema:"what you answered"`
	Archived  bool      `json:"archived,omitempty"`

	Sent *SentTo `json:"sent,omitempty" jsonschema:"of a message that you sent: what became of it"`
}

// SentTo is what became of a message.
type SentTo struct {
	Counts     map[string]int `json:"counts" jsonschema:"how many are pending, read, completed and rejected; of a broadcast those alone who did something"`
	Deliveries []Delivery     `json:"deliveries" jsonschema:"those who did something, the last first, at most 100"`
}

// A Delivery is what one recipient did with a message.
type Delivery struct {
	Recipient string    `json:"recipient"`
	AckStatus string    `json:"ack_status"`
	AckAt     time.Time `json:"ack_at"`
	Response  string    `json:"response,omitempty"`
}

// MessagesAckRequest says what became of a message.
type MessagesAckRequest struct {
	Ref      string `json:"ref" jsonschema:"ref of the message"`
	Status   string `json:"status,omitempty" jsonschema:"read, completed, the default, or rejected; it only moves forward"`
	Response string `json:"response,omitempty" jsonschema:"an answer that its sender reads, at most 65,536 characters"`
	WriteOptions
}

// AckResult tells how a delivery is after the write.
type AckResult struct {
	Ref       string    `json:"ref"`
	AckStatus string    `json:"ack_status"`
	AckAt     time.Time `json:"ack_at"`
	Response  string    `json:"response,omitempty"`
	Receipt
}

// MailboxRequest asks what is open.
type MailboxRequest struct {
	Limit int `json:"limit,omitempty" jsonschema:"threads to list, 1 to 200; the default is 50"`
}

// MailboxResponse tells of messages that are pending or read.
type MailboxResponse struct {
	Pending int          `json:"pending"`
	Read    int          `json:"read"`
	High    int          `json:"high" jsonschema:"how many of both are of high priority"`
	Threads []MailThread `json:"threads" jsonschema:"that have open messages, the latest first"`
	More    bool         `json:"more,omitempty" jsonschema:"there are more threads"`
}

// A MailThread is a thread with open messages.
type MailThread struct {
	Thread  string  `json:"thread" jsonschema:"ref of the message that it began with; messages/list lists it"`
	Pending int     `json:"pending"`
	Read    int     `json:"read"`
	Latest  Message `json:"latest" jsonschema:"the latest of the open messages"`
}

// Priorities of messages.
var Priorities = []string{"low", "normal", "high"}

// Acks are the statuses that a recipient may give.
var Acks = []string{AckRead, AckCompleted, AckRejected}

// messageType is the type of artifact that a message is.
const messageType = "message"

// ParseMessageRef reads the ref of a message, pinned or not. What stands there
// otherwise is the problem at path.
func ParseMessageRef(text, path string) (artifact.Ref, *artifact.Problem) {
	ref, err := artifact.ParseRef(text)
	if err == nil && ref.Type == messageType {
		return ref.Current(), nil
	}
	return ref, &artifact.Problem{Path: path, Constraint: "ref", Message: "this is no ref of a message, such as message:m-1", Value: artifact.Received(text)}
}

// A MailPlace is the last message of a page.
type MailPlace struct {
	At time.Time
	ID string
}

// A MailPlan is a request for messages that was checked.
type MailPlan struct {
	Thread   string   // id; "" for a box
	Statuses []string // of an inbox
	Priority string   // "" for all
	Limit    int
	After    *MailPlace // nil begins
}

// Plan checks a request.
func (r *MessagesListRequest) Plan() (p MailPlan, err error) {
	if p.Limit, err = PageSize(r.Limit); err != nil {
		return p, err
	}
	var problems []artifact.Problem
	enum := func(path, value string, allowed ...string) {
		if value != "" && !slices.Contains(allowed, value) {
			problems = append(problems, artifact.Problem{Path: path, Constraint: "enum", Message: "give one of " + strings.Join(allowed, ", "), Value: artifact.Received(value)})
		}
	}
	enum("/box", r.Box, BoxInbox, BoxSent)
	enum("/priority", r.Priority, Priorities...)
	enum("/ack_status", r.AckStatus, append([]string{AckPending, AckAny}, Acks...)...)
	if r.Thread != "" {
		ref, fault := ParseMessageRef(r.Thread, "/thread")
		if fault != nil {
			problems = append(problems, *fault)
		}
		if p.Thread = ref.ID; r.Box != "" {
			problems = append(problems, artifact.Problem{Path: "/box", Constraint: "exactly_one", Message: "ask for a thread or for a box"})
		}
	}
	if inbox := r.Thread == "" && r.Box != BoxSent; !inbox && r.AckStatus != "" && r.AckStatus != AckAny {
		problems = append(problems, artifact.Problem{Path: "/ack_status", Constraint: "inbox", Message: "what became of messages is asked of the inbox alone"})
	}
	if problems != nil {
		return p, artifact.Invalid(problems...)
	}
	p.Priority = r.Priority
	switch r.AckStatus {
	case "":
		p.Statuses = []string{AckPending}
	case AckAny:
		p.Statuses = append([]string{AckPending}, Acks...)
	default:
		p.Statuses = []string{r.AckStatus}
	}
	p.After, err = r.after()
	return p, err
}

// NextCursor returns the cursor of the page after a message.
func (r *MessagesListRequest) NextCursor(p MailPlace) string {
	return EncodeNameCursor(strconv.FormatInt(p.At.UnixMicro(), 10)+" "+p.ID, r.filter())
}

func (r *MessagesListRequest) after() (*MailPlace, error) {
	last, err := DecodeNameCursor(r.Cursor, r.filter())
	if err != nil || last == "" {
		return nil, err
	}
	at, id, _ := strings.Cut(last, " ")
	micros, err := strconv.ParseInt(at, 10, 64)
	if err != nil || !artifact.ValidID(id) {
		return nil, invalidCursor(r.Cursor, "it was not given by this list")
	}
	return &MailPlace{time.UnixMicro(micros).UTC(), id}, nil
}

func (r *MessagesListRequest) filter() string {
	own := *r
	own.Limit, own.Cursor = 0, ""
	raw, err := json.Marshal(own)
	if err != nil { // texts and a boolean
		return ""
	}
	return "messages\n" + string(raw)
}
