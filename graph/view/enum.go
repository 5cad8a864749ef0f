package view

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// An enum's Go value is its GraphQL name.
type (
	// AgentKind is a kind of agent.
	AgentKind string
	// Permission is a permission of a token.
	Permission string
	// ReplicaPhase is what a replica is doing.
	ReplicaPhase string
	// IdempotencyOutcome is what became of a write's idempotency key.
	IdempotencyOutcome string
	// ProblemCode is the code of an error.
	ProblemCode string
)

// Phases of a replica.
const (
	Bootstrapping ReplicaPhase = "BOOTSTRAPPING"
	CatchingUp    ReplicaPhase = "CATCHING_UP"
	Live          ReplicaPhase = "LIVE"
	Disconnected  ReplicaPhase = "DISCONNECTED"
)

var agentKinds = []AgentKind{"HUMAN", "AI_LOCAL", "AI_EXTERNAL", "AI_SWARM"}

// IsValid reports whether k is one of the schema's.
func (k AgentKind) IsValid() bool { return slices.Contains(agentKinds, k) }

func marshalEnum(w io.Writer, s string) { _, _ = io.WriteString(w, strconv.Quote(strings.ToUpper(s))) } // gqlgen's buffer takes all

func unmarshalEnum[T ~string](into *T, v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("an enum is a name, not %T", v)
	}
	*into = T(s)
	return nil
}

// MarshalGQL implements graphql.Marshaler.
func (k AgentKind) MarshalGQL(w io.Writer) { marshalEnum(w, string(k)) }

// UnmarshalGQL implements graphql.Unmarshaler.
func (k *AgentKind) UnmarshalGQL(v any) error { return unmarshalEnum(k, v) }

// MarshalGQL implements graphql.Marshaler.
func (p Permission) MarshalGQL(w io.Writer) { marshalEnum(w, string(p)) }

// UnmarshalGQL implements graphql.Unmarshaler.
func (p *Permission) UnmarshalGQL(v any) error { return unmarshalEnum(p, v) }

// MarshalGQL implements graphql.Marshaler.
func (p ReplicaPhase) MarshalGQL(w io.Writer) { marshalEnum(w, string(p)) }

// UnmarshalGQL implements graphql.Unmarshaler.
func (p *ReplicaPhase) UnmarshalGQL(v any) error { return unmarshalEnum(p, v) }

// MarshalGQL implements graphql.Marshaler.
func (o IdempotencyOutcome) MarshalGQL(w io.Writer) { marshalEnum(w, string(o)) }

// UnmarshalGQL implements graphql.Unmarshaler.
func (o *IdempotencyOutcome) UnmarshalGQL(v any) error { return unmarshalEnum(o, v) }

// MarshalGQL implements graphql.Marshaler.
func (c ProblemCode) MarshalGQL(w io.Writer) { marshalEnum(w, string(c)) }

// UnmarshalGQL implements graphql.Unmarshaler.
func (c *ProblemCode) UnmarshalGQL(v any) error { return unmarshalEnum(c, v) }
