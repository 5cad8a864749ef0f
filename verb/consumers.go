package verb

import (
	"encoding/json"
	"regexp"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// The verbs on durable consumers: readers of events whose place the hub keeps. One
// is made by the first poll or subscription that names it.
var (
	ConsumersGet = Verb[ConsumersGetRequest, ConsumersGetResponse]{
		Name:    "consumers/get",
		Summary: "Read where a durable consumer of yours is, or all of yours.",
		Effect:  Read,
		Needs:   ownConsumer,
	}
	ConsumersAdvance = Verb[ConsumersAdvanceRequest, ConsumerResult]{
		Name:    "consumers/advance",
		Summary: "Note that a consumer is done with all events up to one. It only moves forward.",
		Effect:  Write,
		Needs:   ownConsumer,
	}
	ConsumersRewind = Verb[ConsumersRewindRequest, ConsumerResult]{
		Name:    "consumers/rewind",
		Summary: "Take a consumer back to an earlier event. Whoever reads with it now is ended.",
		Effect:  Write,
		Needs:   ownConsumer,
	}
	ConsumersRefuse = Verb[ConsumersRefuseRequest, RefuseResult]{
		Name:    "consumers/refuse",
		Summary: "Give an event back that could not be dealt with. It comes again, and after five refusals becomes a dead letter. Refused twice before it came again, it counts once.",
		Effect:  Write,
		Needs:   ownConsumer,
	}
	ConsumersDeadLetters = Verb[DeadLettersRequest, DeadLettersResponse]{
		Name:    "consumers/dead_letters",
		Summary: "List the events that a consumer refused too often, with why.",
		Effect:  Read,
		Needs:   ownConsumer,
	}
	ConsumersReplay = Verb[ConsumersReplayRequest, ConsumerResult]{
		Name:    "consumers/replay",
		Summary: "Have dead letters of a consumer delivered again, before what is new.",
		Effect:  Write,
		Needs:   ownConsumer,
	}
	ConsumersDelete = Verb[ConsumersDeleteRequest, ConsumersDeleteResult]{
		Name:    "consumers/delete",
		Summary: "Forget a consumer and where it was.",
		Effect:  Write,
		Needs:   ownConsumer,
	}
)

// ownConsumer is what the verbs on consumers take.
var ownConsumer = Needs{AnyOf: []Permission{Viewer}, Note: "each agent has consumers of its own; another's are as if they were not there"}

// Limits of consumers.
const (
	MaxConsumers    = 100  // of an agent
	MaxRefused      = 1000 // events of a consumer, dead letters among them
	MaxRefusals     = 5    // of an event, which then is a dead letter
	MaxReplayed     = 100  // named in one request
	MaxRefuseReason = 1000 // bytes
)

// A Consumer is a reader of events whose place is kept.
type Consumer struct {
	ConsumerID     string          `json:"consumer_id" jsonschema:"its name"`
	Types          []string        `json:"types,omitempty" jsonschema:"event types that it is for"`
	Filter         json.RawMessage `json:"filter,omitempty" jsonschema:"JSONLogic rule of the events that it is for"`
	Epoch          int             `json:"epoch" jsonschema:"of the log, when the cursor was set"`
	Generation     int64           `json:"generation" jsonschema:"rises with each takeover and rewind; advances name it"`
	Cursor         artifact.Seq    `json:"cursor" jsonschema:"event_id of the last event that it is done with"`
	Behind         artifact.Seq    `json:"behind" jsonschema:"changes after the cursor: at most as many events are to come"`
	DeadLetters    int             `json:"dead_letters" jsonschema:"events that it refused too often"`
	CreatedAt      time.Time       `json:"created_at" jsonschema:"when it was made"`
	LastActivityAt time.Time       `json:"last_activity_at" jsonschema:"to the hour; 30 days after it the consumer is deleted"`
}

// A ConsumerPlace is where a durable reader stands, with each page or stream.
type ConsumerPlace struct {
	ConsumerID string       `json:"consumer_id" jsonschema:"its name"`
	Epoch      int          `json:"epoch" jsonschema:"of the log, when the cursor was set"`
	Generation int64        `json:"generation" jsonschema:"to be named by consumers/advance"`
	Cursor     artifact.Seq `json:"cursor" jsonschema:"what is stored: events up to it are done with"`

	Types  []string        `json:"types,omitempty" jsonschema:"event types that it is for"`
	Filter json.RawMessage `json:"filter,omitempty" jsonschema:"JSONLogic rule of the events that it is for"`

	Offline bool `json:"offline,omitempty" jsonschema:"the hub is away: a node answers for it, of its replica, and keeps the cursor until the hub is back"`
}

// ConsumersGetRequest names a consumer.
type ConsumersGetRequest struct {
	ConsumerID string `json:"consumer_id,omitempty" jsonschema:"its name; absent: all of yours"`
}

// ConsumersGetResponse are consumers, by name.
type ConsumersGetResponse struct {
	Consumers []Consumer `json:"consumers" jsonschema:"by name"`
}

// ConsumersAdvanceRequest says what a consumer is done with.
type ConsumersAdvanceRequest struct {
	ConsumerID string       `json:"consumer_id" jsonschema:"its name"`
	Generation int64        `json:"generation" jsonschema:"as the poll or the subscription told it; an older one is refused"`
	EventID    artifact.Seq `json:"event_id" jsonschema:"of the last event that is done with, or the cursor of a poll"`
	Epoch      int          `json:"epoch,omitempty" jsonschema:"as the poll or the subscription told it; an event of an epoch that a restore of the hub ended may be lost"`
}

// ConsumersRewindRequest says where a consumer goes back to.
type ConsumersRewindRequest struct {
	ConsumerID string       `json:"consumer_id" jsonschema:"its name"`
	EventID    artifact.Seq `json:"event_id" jsonschema:"after which it goes on; 0 for all that are kept"`
}

// ConsumersRefuseRequest gives an event back.
type ConsumersRefuseRequest struct {
	ConsumerID string       `json:"consumer_id" jsonschema:"its name"`
	Generation int64        `json:"generation" jsonschema:"as the poll or the subscription told it; an older one is refused"`
	EventID    artifact.Seq `json:"event_id" jsonschema:"of the event"`
	Reason     string       `json:"reason,omitempty" jsonschema:"why, for whoever reads the dead letters; at most 1000 bytes"`
}

// RefuseResult tells what becomes of a refused event.
type RefuseResult struct {
	EventID  artifact.Seq `json:"event_id" jsonschema:"of the event"`
	Refusals int          `json:"refusals" jsonschema:"of this event so far"`
	Dead     bool         `json:"dead" jsonschema:"it is a dead letter now, and comes no more; else it comes again with the next poll or subscription"`
}

// DeadLettersRequest asks for a page of dead letters.
type DeadLettersRequest struct {
	ConsumerID string       `json:"consumer_id" jsonschema:"its name"`
	Since      artifact.Seq `json:"since,omitempty" jsonschema:"event_id of the last one of the page before"`
	Limit      int          `json:"limit,omitempty" jsonschema:"dead letters a page, 1 to 200; the default is 50"`
}

// DeadLettersResponse is a page of dead letters, by event.
type DeadLettersResponse struct {
	DeadLetters []DeadLetter `json:"dead_letters" jsonschema:"by event"`
	More        bool         `json:"more" jsonschema:"there are others after the last"`
}

// A DeadLetter is an event that was refused too often.
type DeadLetter struct {
	EventID  artifact.Seq `json:"event_id" jsonschema:"of the event"`
	Event    *Event       `json:"event,omitempty" jsonschema:"absent when it is no longer kept, or you may no longer see it"`
	Refusals int          `json:"refusals" jsonschema:"of this event"`
	Reason   string       `json:"reason,omitempty" jsonschema:"of the last refusal"`
	DeadAt   time.Time    `json:"dead_at" jsonschema:"when it was refused the last time"`
}

// ConsumersReplayRequest names dead letters.
type ConsumersReplayRequest struct {
	ConsumerID string         `json:"consumer_id" jsonschema:"its name"`
	EventIDs   []artifact.Seq `json:"event_ids,omitempty" jsonschema:"of at most 100 dead letters; absent: of all"`
}

// ConsumersDeleteRequest names a consumer.
type ConsumersDeleteRequest struct {
	ConsumerID string `json:"consumer_id" jsonschema:"its name"`
}

// ConsumersDeleteResult tells what was deleted.
type ConsumersDeleteResult struct {
	ConsumerID string       `json:"consumer_id" jsonschema:"its name"`
	Cursor     artifact.Seq `json:"cursor" jsonschema:"where it was"`
}

// ConsumerResult is a consumer after a write.
type ConsumerResult struct {
	Consumer Consumer `json:"consumer" jsonschema:"as it is now"`
	Pending  bool     `json:"pending,omitempty" jsonschema:"the hub is away: the node keeps the cursor and brings it to the hub when it is back"`
}

var consumerPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)

// CheckConsumerID returns what is wrong with a consumer's name.
func CheckConsumerID(id string) []artifact.Problem {
	if consumerPattern.MatchString(id) {
		return nil
	}
	return []artifact.Problem{{
		Path: "/consumer_id", Constraint: "consumer_id", Value: artifact.Received(id),
		Message: "a consumer's name is 1 to 128 letters, digits, and . _ : / - after the first",
	}}
}
