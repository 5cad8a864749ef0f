package verb

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// Poll reads events that have happened.
var Poll = Verb[PollRequest, PollResult]{
	Name:    "poll",
	Summary: "Read events after a cursor, as far as you may see them; subscribe streams the same.",
	Effect:  Read,
	Needs:   toRead,
}

// Limits of a poll.
const (
	MaxEvents     = 1000
	DefaultEvents = 100
)

// PollRequest says which events are wanted, and after which. [SubscribePath] takes
// the same members but limit.
type PollRequest struct {
	Types  []string        `json:"types,omitempty" jsonschema:"event types, such as hypothesis.created; the last part may be *; absent for all"`
	Filter json.RawMessage `json:"filter,omitempty" jsonschema:"JSONLogic over the event, at most 4 KiB: {\"==\":[{\"var\":\"ref.type\"},\"hypothesis\"]}"`
	Since  *artifact.Seq   `json:"since,omitempty" jsonschema:"cursor of the answer before, or the event_id of the last event that you have; 0 for all that are kept; absent: none yet, only the cursor of now"`
	Limit  int             `json:"limit,omitempty" jsonschema:"events a page, 1 to 1000; the default is 100"`

	ConsumerID     string `json:"consumer_id,omitempty" jsonschema:"name of a durable consumer of yours, which is made now if it is new: the page begins after its cursor, unless since says otherwise, and with its types and filter, unless others are given, which it keeps"`
	AutoAdvance    *bool  `json:"auto_advance,omitempty" jsonschema:"with consumer_id: false leaves the cursor to consumers/advance; the default, true, moves it past the page before that is sent, so that a page which is lost on the way does not come again"`
	IncludePrivate bool   `json:"include_private,omitempty" jsonschema:"true has a node ask the hub, which alone has events of messages and other private things; types that name those do too"`
}

// Advances reports whether a consumer's cursor moves with the page.
func (r *PollRequest) Advances() bool {
	return r.ConsumerID != "" && (r.AutoAdvance == nil || *r.AutoAdvance)
}

// CheckConsumer returns what is wrong with how a consumer is named.
func (r *PollRequest) CheckConsumer() error {
	if r.ConsumerID == "" {
		if r.AutoAdvance != nil {
			return artifact.Invalid(artifact.Problem{Path: "/auto_advance", Constraint: "consumer", Message: "only a consumer's cursor is moved: name it as consumer_id"})
		}
		return nil
	}
	if problems := CheckConsumerID(r.ConsumerID); problems != nil {
		return artifact.Invalid(problems...)
	}
	return nil
}

// Size returns how many events a page holds.
func (r *PollRequest) Size() (int, error) {
	if r.Limit == 0 {
		return DefaultEvents, nil
	}
	if r.Limit < 1 || r.Limit > MaxEvents {
		return 0, artifact.Invalid(artifact.Problem{
			Path: "/limit", Constraint: "range", Message: "a page holds 1 to " + strconv.Itoa(MaxEvents) + " events", Value: json.RawMessage(strconv.Itoa(r.Limit)),
		})
	}
	return r.Limit, nil
}

// PollResult is a page of events, in the order in which they were committed.
type PollResult struct {
	Events   []Event      `json:"events" jsonschema:"in the order of commits"`
	Cursor   artifact.Seq `json:"cursor" jsonschema:"pass it as since, or as Last-Event-ID; it moves on though no event passed the filter"`
	CaughtUp bool         `json:"caught_up" jsonschema:"nothing more has happened by now"`
	AsOf     artifact.Seq `json:"as_of"`

	Consumer *ConsumerPlace `json:"consumer,omitempty" jsonschema:"with consumer_id: where it stands"`
}

// An Event is SPEC-001's envelope.
type Event struct {
	ID            artifact.Seq    `json:"event_id" jsonschema:"rises in the order of commits"`
	Type          string          `json:"event_type" jsonschema:"such as hypothesis.created"`
	OccurredAt    time.Time       `json:"occurred_at" jsonschema:"when it was written"`
	Source        string          `json:"source" jsonschema:"what emitted it: hub"`
	Actor         artifact.Actor  `json:"actor" jsonschema:"who did it"`
	Ref           EventRef        `json:"ref" jsonschema:"what it happened to"`
	Scope         string          `json:"scope" jsonschema:"who may see it"`
	Payload       json.RawMessage `json:"payload" jsonschema:"what the type of event tells beside"`
	SchemaVersion int             `json:"schema_version" jsonschema:"of this form: 1"`
	LegacyType    string          `json:"legacy_event_type,omitempty" jsonschema:"what the type was called before agents were: actor.banned of agent.banned; types takes either, and this is told for one release"`
}

// An EventRef says what an event happened to.
type EventRef struct {
	Type    string `json:"type" jsonschema:"type of the artifact; kg_edge for a link, signal for a signal"`
	ID      string `json:"id" jsonschema:"id within the type"`
	Version string `json:"version,omitempty" jsonschema:"content hash, of what has versions"`
}

// EventOf returns an event as it is told.
func EventOf(e *artifact.Event) Event {
	out := Event{
		ID: e.ID, Type: e.Type, OccurredAt: e.At, Source: "hub", Actor: e.Actor, Scope: e.Scope, Payload: e.Payload, SchemaVersion: 1,
	}
	if what, ok := strings.CutPrefix(e.Type, "agent."); ok {
		out.LegacyType = "actor." + what
	}
	if ref, err := artifact.ParseRef(e.Ref); err == nil { // only refs are stored
		out.Ref.Type, out.Ref.ID = ref.Type, ref.ID
		if ref.IsPinned() {
			out.Ref.Version = ref.Hash.String()
		}
	}
	return out
}

// SubscribePath is where events are streamed, as server-sent events.
const SubscribePath = PathPrefix + "subscribe"

// SubscribeRequest says which events are wanted, and after which.
type SubscribeRequest struct {
	Types  []string        `json:"types,omitempty" jsonschema:"event types, such as hypothesis.created; the last part may be *; absent for all"`
	Filter json.RawMessage `json:"filter,omitempty" jsonschema:"JSONLogic over the event, at most 4 KiB"`
	Since  *artifact.Seq   `json:"since,omitempty" jsonschema:"event_id of the last event that you have; 0 for all that are kept; absent: from now on"`

	Durable        bool   `json:"durable,omitempty" jsonschema:"true begins after the cursor that is kept for the consumer, whatever Last-Event-ID says; consumers/advance moves it"`
	ConsumerID     string `json:"consumer_id,omitempty" jsonschema:"with durable: name of a consumer of yours, which is made now if it is new; whoever reads with it elsewhere is ended"`
	IncludePrivate bool   `json:"include_private,omitempty" jsonschema:"true has a node ask the hub, which alone has events of messages and other private things; types that name those do too"`
}

// CheckConsumer returns what is wrong with how a consumer is named.
func (r *SubscribeRequest) CheckConsumer() error {
	switch {
	case r.Durable:
		if problems := CheckConsumerID(r.ConsumerID); problems != nil {
			return artifact.Invalid(problems...)
		}
	case r.ConsumerID != "":
		return artifact.Invalid(artifact.Problem{Path: "/durable", Constraint: "consumer", Message: "a consumer is named for a durable subscription: say durable too"})
	}
	return nil
}

var subscribeCodec = newCodec[SubscribeRequest]("subscribe")

// SubscribeBody reads a subscription from a request's JSON body.
func SubscribeBody(req *http.Request) (in SubscribeRequest, err error) {
	if err := needJSON(req); err != nil {
		return in, err
	}
	raw, err := io.ReadAll(http.MaxBytesReader(nil, req.Body, MaxRequestBytes))
	if err != nil {
		return in, bodyError(err, MaxRequestBytes)
	}
	return in, subscribeCodec.read(raw, &in)
}

// SubscribeQuery reads a subscription from query parameters: types, repeated or
// with commas, filter as JSON, and since.
func SubscribeQuery(query url.Values) (in SubscribeRequest, err error) {
	members := make(map[string]any, len(query))
	for name, values := range query {
		switch name {
		case "types":
			var types []string
			for _, v := range values {
				types = append(types, strings.Split(v, ",")...)
			}
			members[name] = types
			continue
		case "filter":
			if !json.Valid([]byte(values[0])) {
				return in, artifact.Invalid(artifact.Problem{Path: "/filter", Constraint: "json", Message: "a filter is JSON", Value: artifact.Received(values[0])})
			}
			members[name] = json.RawMessage(values[0])
		case "durable", "include_private":
			members[name] = values[0]
			if yes, err := strconv.ParseBool(values[0]); err == nil {
				members[name] = yes
			}
		case "since":
			members[name] = values[0]
			if seq, err := strconv.ParseInt(values[0], 10, 64); err == nil {
				members[name] = seq
			}
		default:
			members[name] = values[0]
		}
		if len(values) > 1 {
			return in, artifact.Invalid(artifact.Problem{Path: "/" + artifact.EscapePointer(name), Constraint: "once", Message: "the parameter is given once"})
		}
	}
	raw, err := json.Marshal(members)
	if err != nil {
		return in, err
	}
	return in, subscribeCodec.read(raw, &in)
}

// read checks and decodes a request.
func (c codec[T]) read(raw []byte, into *T) error {
	if err := checkRequest(raw); err != nil {
		return err
	}
	return c.decode(raw, into)
}
