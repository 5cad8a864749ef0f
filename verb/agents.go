package verb

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// The verbs on agents.
var (
	AgentsGet = Verb[AgentsGetRequest, AgentResponse]{
		Name:    "agents/get",
		Summary: "Read an agent by its id or @handle, or yourself.",
		Effect:  Read,
		Needs:   Needs{AnyOf: []Permission{Viewer}, Note: "an agent is known in the scopes where it was seen; you always know yourself"},
	}
	AgentsList = Verb[AgentsListRequest, AgentsListResponse]{
		Name:    "agents/list",
		Summary: "List the agents that you may know of, by id.",
		Effect:  Read,
		Needs:   Needs{AnyOf: []Permission{Viewer}, Note: "an agent is known in the scopes where it was seen"},
	}
	AgentsResolve = Verb[AgentsResolveRequest, AgentsResolveResponse]{
		Name:    "agents/resolve",
		Summary: "Tell which agents a recipient means: one by id or handle, a role's, a group's, or everyone.",
		Effect:  Read,
		Needs:   Needs{AnyOf: []Permission{Viewer}, Note: "an agent is known in the scopes where it was seen"},
	}
	AgentsUpdate = Verb[AgentsUpdateRequest, AgentResult]{
		Name:    "agents/update",
		Summary: "Change how an agent is called and addressed: its handle, title and roles.",
		Effect:  Write,
		Needs: Needs{
			AnyOf: []Permission{Contributor, Reviewer, Admin},
			Note:  "an agent changes itself; an admin in commons changes any, and alone sets may_delegate, takes a handle away, and gives a permission's name as role or handle",
		},
	}
	AgentsRegister = Verb[AgentsRegisterRequest, AgentResult]{
		Name:    "agents/register",
		Summary: "Make an agent known in commons before it writes.",
		Effect:  Write,
		Needs:   Needs{AnyOf: []Permission{Admin}, Where: InCommons},
	}
)

// Limits of an agent.
const (
	MaxAgentRoles = 32
	MaxHandles    = 32 // former ones too
)

// An Agent is who reads and writes: a person or a program. It is the same in each
// scope where it is known.
type Agent struct {
	ID            string    `json:"id"`
	Kind          string    `json:"kind"`
	Handle        string    `json:"handle,omitempty"`
	FormerHandles []string  `json:"former_handles"` // in order; they lead to the agent still
	Title         string    `json:"title,omitempty"`
	Roles         []string  `json:"roles"` // in order: what it is addressed as; no permissions
	MayDelegate   bool      `json:"may_delegate"`
	CreatedAt     time.Time `json:"created_at,omitzero"` // absent while it was seen nowhere yet
	UpdatedAt     time.Time `json:"updated_at,omitzero"`
}

// AgentsGetRequest names an agent.
type AgentsGetRequest struct {
	Agent string `json:"agent,omitempty" jsonschema:"id, or @handle; absent: yourself"`
}

// AgentResponse is an agent.
type AgentResponse struct {
	Agent          Agent  `json:"agent"`
	RedirectedFrom string `json:"redirected_from,omitempty"` // the @handle that was asked for, when it is a former one
}

// AgentsListRequest asks for a page of agents.
type AgentsListRequest struct {
	Role   string `json:"role,omitempty" jsonschema:"only agents that are addressed by this role"`
	Kind   string `json:"kind,omitempty" jsonschema:"only agents of this kind: human, ai_local, ai_external, ai_swarm"`
	Limit  int    `json:"limit,omitempty" jsonschema:"agents a page, 1 to 200; the default is 50"`
	Cursor string `json:"cursor,omitempty" jsonschema:"next_cursor of the page before, from a request alike but for the cursor"`
}

// AgentsListResponse is a page of agents, by id.
type AgentsListResponse struct {
	Agents     []Agent `json:"agents"`
	NextCursor string  `json:"next_cursor,omitempty"` // absent on the last page
}

// AgentsResolveRequest names a recipient.
type AgentsResolveRequest struct {
	Recipient string `json:"recipient" jsonschema:"agent:<id>, @handle, agents:role:<role>, @role (a handle wins over a role), group:<id>, or agents:* for everyone"`
}

// AgentsResolveResponse tells whom a recipient means.
type AgentsResolveResponse struct {
	Agents         []string `json:"agents"`                    // ids; a group's as it lists them
	Everyone       bool     `json:"everyone,omitempty"`        // all in the scope of what is addressed; agents is empty then
	RedirectedFrom string   `json:"redirected_from,omitempty"` // the @handle that was asked for, when it is a former one
}

// AgentsUpdateRequest changes an agent. What is absent stays as it is.
type AgentsUpdateRequest struct {
	Agent       string   `json:"agent,omitempty" jsonschema:"id, or @handle; absent: yourself"`
	Handle      *string  `json:"handle,omitempty" jsonschema:"lower-case letters, digits, - and _; the one before leads to the agent still"`
	Title       *string  `json:"title,omitempty" jsonschema:"one line; empty: none"`
	Roles       []string `json:"roles,omitzero" jsonschema:"all that the agent is to be addressed as, such as citation-reviewer: at most 32; no permissions"`
	MayDelegate *bool    `json:"may_delegate,omitempty" jsonschema:"whether others may act for the agent"`
	WriteOptions
}

// AgentsRegisterRequest asks for an agent.
type AgentsRegisterRequest struct {
	ID     string `json:"id" jsonschema:"as sub in the agent's tokens"`
	Kind   string `json:"kind" jsonschema:"human, ai_local, ai_external or ai_swarm"`
	Title  string `json:"title,omitempty" jsonschema:"one line"`
	Handle string `json:"handle,omitempty" jsonschema:"lower-case letters, digits, - and _"`
	WriteOptions
}

// AgentResult tells how an agent is after the write.
type AgentResult struct {
	Agent Agent `json:"agent"`
	Receipt
}

var (
	handlePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	rolePattern   = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
)

// ValidHandle reports whether a text, without the @, can be an agent's handle.
func ValidHandle(s string) bool { return handlePattern.MatchString(s) }

// ValidAgentRole reports whether a text can be a role that agents are addressed
// as.
func ValidAgentRole(s string) bool { return rolePattern.MatchString(s) }

// UnseenAgent is the caller as it knows itself while it was seen nowhere.
func (c *Caller) UnseenAgent() Agent {
	return Agent{ID: c.Actor.ID, Kind: c.Actor.Kind, FormerHandles: []string{}, Roles: []string{}, MayDelegate: c.Actor.Kind == "human"}
}

// Page checks a request and returns how many agents its page holds and the id
// that it begins after.
func (in *AgentsListRequest) Page() (limit int, after string, err error) {
	if limit, err = PageSize(in.Limit); err != nil {
		return 0, "", err
	}
	var problems []artifact.Problem
	if in.Role != "" && !ValidAgentRole(in.Role) {
		problems = append(problems, roleProblem("/role", in.Role))
	}
	if in.Kind != "" {
		problems = append(problems, CheckKind("/kind", in.Kind)...)
	}
	if problems != nil {
		return 0, "", artifact.Invalid(problems...)
	}
	after, err = DecodeNameCursor(in.Cursor, in.filter())
	return limit, after, err
}

// Answer returns a page of agents, of which one more was read than it holds if
// there is a next page.
func (in *AgentsListRequest) Answer(agents []Agent, limit int) AgentsListResponse {
	out := AgentsListResponse{Agents: agents}
	if len(agents) > limit {
		out.Agents = agents[:limit]
		out.NextCursor = EncodeNameCursor(agents[limit-1].ID, in.filter())
	}
	return out
}

func (in *AgentsListRequest) filter() string { return "agents\n" + in.Role + "\n" + in.Kind }

// CheckKind returns the problem of a text that is no kind of agent.
func CheckKind(path, kind string) []artifact.Problem {
	if slices.Contains(ActorKinds, kind) {
		return nil
	}
	return []artifact.Problem{{Path: path, Constraint: "enum", Message: "a kind is one of " + strings.Join(ActorKinds, ", "), Value: artifact.Received(kind)}}
}

// CheckAgentRoles returns what is wrong with the roles of an agent.
func CheckAgentRoles(path string, roles []string) (problems []artifact.Problem) {
	if len(roles) > MaxAgentRoles {
		return []artifact.Problem{{Path: path, Constraint: "max_items", Message: fmt.Sprintf("an agent has at most %d roles, not %d", MaxAgentRoles, len(roles))}}
	}
	for i, role := range roles {
		if !ValidAgentRole(role) {
			problems = append(problems, roleProblem(fmt.Sprintf("%s/%d", path, i), role))
		}
	}
	return problems
}

func roleProblem(path, role string) artifact.Problem {
	return artifact.Problem{
		Path: path, Constraint: "role", Value: artifact.Received(role),
		Message: "a role is 1 to 63 lower-case letters, digits, - and _, and begins with a letter",
	}
}

// An AgentSource finds agents as far as one caller may know of them.
type AgentSource interface {
	// AgentByID returns nil for one that the caller may not know of.
	AgentByID(ctx context.Context, id string) (*Agent, error)
	// AgentByHandle takes former handles too.
	AgentByHandle(ctx context.Context, handle string) (*Agent, error)
	// AgentsByRole returns ids, in order.
	AgentsByRole(ctx context.Context, role string) ([]string, error)
	// Group returns the members that a group lists, nil for one that the caller
	// may not see.
	Group(ctx context.Context, id string) ([]string, error)
}

// FindAgent answers [AgentsGet].
func FindAgent(ctx context.Context, from AgentSource, c *Caller, name string) (out AgentResponse, err error) {
	var found *Agent
	handle, byHandle := strings.CutPrefix(name, "@")
	switch {
	case byHandle:
		if ValidHandle(handle) {
			found, err = from.AgentByHandle(ctx, handle)
		}
	case name == "" || name == c.Actor.ID:
		if found, err = from.AgentByID(ctx, c.Actor.ID); found == nil {
			self := c.UnseenAgent()
			found = &self
		}
	case ValidAgent(name):
		found, err = from.AgentByID(ctx, name)
	}
	if err != nil {
		return out, err
	}
	if found == nil {
		return out, NoAgent(name)
	}
	out.Agent = *found
	if byHandle && handle != found.Handle {
		out.RedirectedFrom = name
	}
	return out, nil
}

// NoAgent is the answer for an agent, named by id or @handle, that is not there or
// that the caller may not know of.
func NoAgent(name string) *artifact.Error {
	if !strings.HasPrefix(name, "@") {
		name = "agent:" + name
	}
	return artifact.NotFound(name)
}

// Recipients that are no name of something.
const (
	everyone    = "agents:*"
	rolePrefix  = "agents:role:"
	agentPrefix = "agent:"
	groupPrefix = "group:"
)

// Recipients returns whom a recipient means, as far as the caller may know of
// them. A handle wins over a role of the same name. Agents is nil, and Everyone
// false, when nobody is meant.
func Recipients(ctx context.Context, from AgentSource, c *Caller, recipient string) (out AgentsResolveResponse, err error) {
	name := recipient
	cut := func(prefix string) (found bool) {
		name, found = strings.CutPrefix(recipient, prefix)
		return found
	}
	switch {
	case recipient == everyone:
		out.Agents, out.Everyone = []string{}, true
	case cut(rolePrefix):
		return byRole(ctx, from, name)
	case cut(agentPrefix):
		if name == c.Actor.ID {
			out.Agents = []string{name}
			return out, nil
		}
		if !ValidAgent(name) {
			return out, nil
		}
		found, err := from.AgentByID(ctx, name)
		if found != nil {
			out.Agents = []string{found.ID}
		}
		return out, err
	case cut(groupPrefix):
		if artifact.ValidID(name) {
			out.Agents, err = from.Group(ctx, name)
			out.Agents = slices.DeleteFunc(out.Agents, func(id string) bool { return !ValidAgent(id) })
		}
	case cut("@"):
		if !ValidHandle(name) {
			return out, nil
		}
		found, err := from.AgentByHandle(ctx, name)
		if err != nil || found == nil {
			if err == nil {
				out, err = byRole(ctx, from, name)
			}
			return out, err
		}
		out.Agents = []string{found.ID}
		if found.Handle != name {
			out.RedirectedFrom = recipient
		}
	}
	return out, err
}

func byRole(ctx context.Context, from AgentSource, role string) (out AgentsResolveResponse, err error) {
	if !ValidAgentRole(role) {
		return out, nil
	}
	agents, err := from.AgentsByRole(ctx, role)
	if len(agents) > 0 {
		out.Agents = agents
	}
	return out, err
}

// ResolveRecipient answers [AgentsResolve].
func ResolveRecipient(ctx context.Context, from AgentSource, c *Caller, recipient string) (AgentsResolveResponse, error) {
	if !isRecipient(recipient) {
		return AgentsResolveResponse{}, UnknownRecipient("/recipient", recipient)
	}
	out, err := Recipients(ctx, from, c, recipient)
	if err == nil && out.Agents == nil {
		err = artifact.NotFound(recipient)
	}
	return out, err
}

func isRecipient(s string) bool {
	return s == everyone || slices.ContainsFunc([]string{rolePrefix, agentPrefix, groupPrefix, "@"}, func(prefix string) bool {
		return strings.HasPrefix(s, prefix) && len(s) > len(prefix)
	})
}

// UnknownRecipient is the fault of a recipient that means nobody whom the caller
// may know of.
func UnknownRecipient(path, recipient string) *artifact.Error {
	return artifact.Invalid(artifact.Problem{
		Path: path, Constraint: "recipient", Value: artifact.Received(recipient),
		Message: "nobody that you may know of is meant by this: give agent:<id>, @handle, agents:role:<role>, group:<id> or agents:*; an agent is known once it has written, is a member or was registered",
	})
}
