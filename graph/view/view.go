// Package view holds the Go types behind the GraphQL schema's objects and
// inputs: what resolvers fill in and the generated engine reads.
//
// It is apart from graph because the engine imports it, and graph imports the
// engine.
package view

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// Node is anything with a global id.
type Node interface {
	IsNode()
}

// Artifact is a version of a document, of whatever type.
type Artifact interface {
	Node
	IsArtifact()
}

// View gives a version of an artifact the fields of the interface Artifact. Each
// concrete type embeds it.
type View struct {
	artifact.Artifact
	Pinned bool // asked for by its hash
}

// GenericArtifact is an artifact of a type without a GraphQL type of its own.
type GenericArtifact struct{ View }

// IsNode implements [Node].
func (*GenericArtifact) IsNode() {}

// IsArtifact implements [Artifact].
func (*GenericArtifact) IsArtifact() {}

// NewArtifact returns the view of a version.
func NewArtifact(a artifact.Artifact, pinned bool) Artifact {
	return &GenericArtifact{View{Artifact: a, Pinned: pinned}}
}

// ID returns the global id.
func (v *View) ID() string {
	if v.Pinned {
		return v.Artifact.Ref.String()
	}
	return v.Artifact.Ref.Current().String()
}

// LocalID returns the id inside the type.
func (v *View) LocalID() string { return v.Artifact.ID }

// CreatedBy returns who made the first version.
func (v *View) CreatedBy() *Agent { return &Agent{ID: v.Artifact.CreatedBy} }

// UpdatedBy returns who wrote this version.
func (v *View) UpdatedBy() *Agent { return &Agent{ID: v.Artifact.UpdatedBy} }

// LifecycleState returns the state, nil for a type without lifecycle.
func (v *View) LifecycleState() *string { return optional(v.State) }

// Content returns the content, or the value at a JSON pointer into it, as far as
// the response's budget goes.
func (v *View) Content(ctx context.Context, path *string) (json.RawMessage, error) {
	content, err := v.Artifact.Content, error(nil)
	if path != nil && *path != "" {
		content, err = at(content, *path)
	}
	if err == nil && !spend(ctx, len(content)) {
		return nil, &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonResponseTooLarge,
			Message: fmt.Sprintf("the contents of one response are at most %d bytes: ask for fewer, or for a path", MaxResponseContent),
		}
	}
	return content, err
}

// MaxResponseContent bounds the contents in one response, in bytes: aliases could
// otherwise repeat a large one without end.
const MaxResponseContent = 16 << 20

type budgetKey struct{}

// WithBudget returns a context for one response, whose contents are counted.
func WithBudget(ctx context.Context) context.Context {
	return context.WithValue(ctx, budgetKey{}, new(atomic.Int64))
}

// spend counts bytes of content, and reports whether they fit the budget.
func spend(ctx context.Context, n int) bool {
	spent, ok := ctx.Value(budgetKey{}).(*atomic.Int64)
	return !ok || spent.Add(int64(n)) <= MaxResponseContent
}

// at returns the value at a JSON pointer, nil when there is none.
func at(raw json.RawMessage, pointer string) (json.RawMessage, error) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, artifact.Invalid(artifact.Problem{Path: "/path", Constraint: "json_pointer", Message: "a JSON pointer begins with /", Value: artifact.Received(pointer)})
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		var next json.RawMessage
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) == nil {
			next = object[token]
		} else if array := []json.RawMessage(nil); json.Unmarshal(raw, &array) == nil {
			next = element(array, token)
		}
		if next == nil {
			return nil, nil
		}
		raw = next
	}
	return raw, nil
}

// element returns the element that a pointer's token names: a decimal number
// without leading zeros.
func element(array []json.RawMessage, token string) json.RawMessage {
	n := 0
	if token == "" || len(token) > 9 || token[0] == '0' && len(token) > 1 {
		return nil
	}
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return nil
		}
		n = 10*n + int(c-'0')
	}
	if n >= len(array) {
		return nil
	}
	return array[n]
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Agent is who wrote.
type Agent struct {
	ID   string
	Kind *AgentKind
}

// IsNode implements [Node].
func (*Agent) IsNode() {}

// PageInfo is where a page stands among the others.
type PageInfo struct {
	HasNextPage     bool
	HasPreviousPage bool
	StartCursor     *string
	EndCursor       *string
}

// ArtifactConnection is a page of artifacts.
type ArtifactConnection struct {
	Edges    []*ArtifactEdge
	PageInfo *PageInfo
	AsOf     artifact.Seq
}

// Nodes returns the edges' artifacts.
func (c *ArtifactConnection) Nodes() []Artifact {
	nodes := make([]Artifact, len(c.Edges))
	for i, e := range c.Edges {
		nodes[i] = e.Node
	}
	return nodes
}

// ArtifactEdge is an artifact with its place.
type ArtifactEdge struct {
	Cursor string
	Node   Artifact
}

// Replica is how a node's copy stands to the hub.
type Replica struct {
	HubID         *string
	Epoch         int
	Version       string
	Phase         ReplicaPhase
	AppliedSeq    artifact.Seq
	HubSeq        artifact.Seq
	LagEvents     int64
	LagMs         int64
	LastContactAt *time.Time
	Trouble       *string
	CheckedAt     *time.Time
	Stale         bool
	DatabaseBytes int64
	ArtifactCount int64
	Subscribers   int
	UptimeMs      int64
}

// Event is one committed change.
type Event struct {
	artifact.Event
}

// EventID returns the event's place in the log.
func (e *Event) EventID() artifact.Seq { return e.Event.ID }

// EventType returns the event's name.
func (e *Event) EventType() string { return e.Event.Type }

// OccurredAt returns when the hub committed it.
func (e *Event) OccurredAt() time.Time { return e.Event.At }

// Agent returns who did it.
func (e *Event) Agent() *Agent { return NewAgent(e.Event.Actor) }

// Ref returns what it happened to, nil for an event of the whole system.
func (e *Event) Ref() *artifact.Ref {
	ref, err := artifact.ParseRef(e.Event.Ref)
	if err != nil {
		return nil
	}
	return &ref
}

// Payload returns the event's details.
func (e *Event) Payload() json.RawMessage { return e.Event.Payload }

// EventBatch is one push of events.
type EventBatch struct {
	Events   []*Event
	Cursor   artifact.Seq
	CaughtUp bool
	Backlog  int64
}

// NewAgent returns the view of an actor.
func NewAgent(a artifact.Actor) *Agent {
	agent := &Agent{ID: a.ID}
	if kind := AgentKind(strings.ToUpper(a.Kind)); kind.IsValid() {
		agent.Kind = &kind
	}
	return agent
}
