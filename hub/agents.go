package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// agentsGet answers the verb of that name.
func (h *Hub) agentsGet(ctx context.Context, in verb.AgentsGetRequest) (out verb.AgentResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if out, err = verb.FindAgent(ctx, agentSource{h.db, c}, c, in.Agent); err != nil {
		return out, callerError(fmt.Errorf("read an agent: %w", err))
	}
	return out, nil
}

// agentsList answers the verb of that name.
func (h *Hub) agentsList(ctx context.Context, in verb.AgentsListRequest) (out verb.AgentsListResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	limit, after, err := in.Page()
	if err != nil {
		return out, err
	}
	rows, err := h.db.Query(ctx, listAgentsQuery, c.VisibleScopes(), c.Actor.ID, after, in.Role, in.Kind, limit+1)
	if err != nil {
		return out, callerError(fmt.Errorf("list agents: %w", err))
	}
	agents, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (verb.Agent, error) {
		var a replicate.Agent
		err := scanAgent(row, &a)
		return answered(&a), err
	})
	if err != nil {
		return out, callerError(fmt.Errorf("list agents: %w", err))
	}
	return in.Answer(agents, limit), nil
}

// agentsResolve answers the verb of that name.
func (h *Hub) agentsResolve(ctx context.Context, in verb.AgentsResolveRequest) (out verb.AgentsResolveResponse, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	if out, err = verb.ResolveRecipient(ctx, agentSource{h.db, c}, c, in.Recipient); err != nil {
		return out, callerError(fmt.Errorf("resolve a recipient: %w", err))
	}
	return out, nil
}

// agentsUpdate answers the verb of that name.
func (h *Hub) agentsUpdate(ctx context.Context, in verb.AgentsUpdateRequest) (out verb.AgentResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	out, err = single[verb.AgentResult](ctx, h, c, &writeRequest{
		verb: verb.AgentsUpdate.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			problems := verb.CheckAgentRoles("/roles", in.Roles)
			if in.Handle != nil && *in.Handle != "" {
				problems = append(problems, checkHandle(*in.Handle)...)
			}
			if in.Title != nil {
				problems = append(problems, checkAgentTitle(*in.Title)...)
			}
			if problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			o := &agentOp{in: in, requestID: c.RequestID}
			if in.Roles != nil {
				o.in.Roles = append([]string{}, slices.Compact(slices.Sorted(slices.Values(in.Roles)))...)
			}
			return []op{o}, nil
		},
	})
	if err == nil && in.MayDelegate != nil && out.Seq > 0 {
		h.readDelegates(ctx)
	}
	return out, err
}

// readDelegates makes who may delegate count from an answer on.
func (h *Hub) readDelegates(ctx context.Context) {
	if err := h.access.load(ctx, h.db); err != nil {
		h.log.WarnContext(ctx, "who may delegate could not be read again; the feed brings it", "err", err)
	}
}

// agentsRegister answers the verb of that name.
func (h *Hub) agentsRegister(ctx context.Context, in verb.AgentsRegisterRequest) (out verb.AgentResult, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return out, err
	}
	out, err = single[verb.AgentResult](ctx, h, c, &writeRequest{
		verb: verb.AgentsRegister.Name, request: in, options: in.WriteOptions,
		prepare: func() ([]op, error) {
			problems := verb.CheckKind("/kind", in.Kind)
			if !verb.ValidAgent(in.ID) || in.ID[0] == '@' {
				problems = append(problems, artifact.Problem{
					Path: "/id", Constraint: "agent_id", Value: artifact.Received(in.ID),
					Message: "an agent's id is 1 to 200 printable ASCII characters without space, and does not begin with @",
				})
			}
			if in.Handle != "" {
				problems = append(problems, checkHandle(in.Handle)...)
			}
			if problems = append(problems, checkAgentTitle(in.Title)...); problems != nil {
				return nil, artifact.Invalid(problems...)
			}
			o := &registerOp{kind: in.Kind, agentOp: agentOp{requestID: c.RequestID}}
			o.in.Agent = in.ID
			if in.Title != "" {
				o.in.Title = &in.Title
			}
			if in.Handle != "" {
				o.in.Handle = &in.Handle
			}
			return []op{o}, nil
		},
	})
	if err == nil && out.Seq > 0 {
		h.readDelegates(ctx)
	}
	return out, err
}

func checkHandle(handle string) []artifact.Problem {
	if verb.ValidHandle(handle) {
		return nil
	}
	return []artifact.Problem{{
		Path: "/handle", Constraint: "handle", Value: artifact.Received(handle),
		Message: "a handle, without @, is 1 to 63 lower-case letters, digits, - and _, and begins with a letter or digit",
	}}
}

// checkAgentTitle lets a title be empty.
func checkAgentTitle(title string) []artifact.Problem {
	if title == "" {
		return nil
	}
	if p := artifact.CheckTitle(title, "/title"); p != nil {
		return []artifact.Problem{*p}
	}
	return nil
}

// An agentOp changes an agent.
type agentOp struct {
	in        verb.AgentsUpdateRequest // roles in order
	requestID string

	id      string // "" for none that the caller may know of; loaded, as what follows
	exists  bool
	current replicate.Agent
	seen    []string // scopes, in order
	holder  string   // whose the handle is or was

	next replicate.Agent // decided
	same bool
}

const (
	handleHolderQuery = `SELECT agent FROM handle WHERE handle = $1`
	seenScopesQuery   = `SELECT scope FROM agent_seen WHERE agent = $1 ORDER BY scope`

	insertHandleQuery = `INSERT INTO handle (handle, agent, since) VALUES ($1, $2, $3)`
	updateAgentQuery  = `
		UPDATE agent SET title = $2, handle = nullif($3, ''), roles = $4, may_delegate = $5, updated_at = $6
		WHERE id = $1`
)

func (o *agentOp) needs(*needs) {}

func (o *agentOp) load(ctx context.Context, db querier, s *state) (err error) {
	o.exists, o.current, o.seen, o.holder, o.same = false, replicate.Agent{}, nil, "", false
	if o.id, err = o.find(ctx, db, s.caller); err != nil || o.id == "" {
		return err
	}
	return o.read(ctx, db)
}

// find returns the id of the agent that is meant.
func (o *agentOp) find(ctx context.Context, db querier, c *verb.Caller) (string, error) {
	name := o.in.Agent
	handle, byHandle := strings.CutPrefix(name, "@")
	switch {
	case name == "" || name == c.Actor.ID:
		return c.Actor.ID, nil
	case c.Has(verb.Admin, artifact.Commons):
		if byHandle && verb.ValidHandle(handle) {
			return holderOf(ctx, db, handle)
		} else if !byHandle && verb.ValidAgent(name) {
			return name, nil
		}
		return "", nil
	}
	found, err := verb.FindAgent(ctx, agentSource{db, c}, c, name)
	if artifact.IsCode(err, artifact.CodeNotFound) {
		return "", nil
	}
	return found.Agent.ID, err
}

// holderOf returns the agent whose a handle is or was, "" for none.
func holderOf(ctx context.Context, db querier, handle string) (agent string, err error) {
	err = db.QueryRow(ctx, handleHolderQuery, handle).Scan(&agent)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return agent, err
}

// read locks and reads the agent.
func (o *agentOp) read(ctx context.Context, db querier) (err error) {
	if err := lockAgent(ctx, db, o.id); err != nil {
		return err
	}
	if o.current, err = readAgent(ctx, db, o.id); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	} else if err == nil {
		o.exists = true
	}
	if err != nil {
		return err
	}
	rows, err := db.Query(ctx, seenScopesQuery, o.id)
	if err != nil {
		return err
	}
	if o.seen, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || o.in.Handle == nil {
		return err
	}
	o.holder, err = holderOf(ctx, db, *o.in.Handle)
	return err
}

func (o *agentOp) decide(s *state) error {
	self := o.id == s.caller.Actor.ID
	if o.id == "" || !o.exists && !self {
		return verb.NoAgent(o.in.Agent)
	}
	if !self {
		if err := s.caller.Need(artifact.Commons, "changing another agent", verb.Admin); err != nil {
			return err
		}
	}
	if !o.exists {
		o.current = newAgent(o.id, s.caller.Actor.Kind, s.caller.Now)
	}
	changed, err := o.change(s.caller)
	if err != nil {
		return err
	}
	if o.same = len(changed) == 0; o.same {
		if !o.exists {
			o.next.CreatedAt, o.next.UpdatedAt = time.Time{}, time.Time{}
		}
		return nil
	}
	return o.put(s, &eventOf{typ: "agent.updated", ref: agentRef(o.id), payload: map[string]any{"changed": changed}})
}

// change makes the agent as it is to be, and returns the names of what changes.
func (o *agentOp) change(c *verb.Caller) (changed []string, err error) {
	if err := o.allowed(c); err != nil {
		return nil, err
	}
	o.next = o.current
	if h := o.in.Handle; h != nil && *h != o.current.Handle {
		if err := o.rename(*h); err != nil {
			return nil, err
		}
		changed = append(changed, "handle")
	}
	if d := o.in.MayDelegate; d != nil && *d != o.current.MayDelegate {
		o.next.MayDelegate = *d
		changed = append(changed, "may_delegate")
	}
	if o.in.Roles != nil && !slices.Equal(o.in.Roles, o.current.Roles) {
		o.next.Roles = o.in.Roles
		changed = append(changed, "roles")
	}
	if t := o.in.Title; t != nil && *t != o.current.Title {
		o.next.Title = *t
		changed = append(changed, "title")
	}
	if len(changed) > 0 {
		o.next.UpdatedAt = c.Now
	}
	return changed, nil
}

// rename gives the agent another handle, or none. The one before becomes a former
// one.
func (o *agentOp) rename(handle string) error {
	if o.holder != "" && o.holder != o.id {
		return &artifact.Error{
			Code: artifact.CodeVersionConflict, Reason: artifact.ReasonHandleTaken, Message: "the handle is taken: choose another",
			Details: map[string]any{"handle": handle},
		}
	}
	former := slices.DeleteFunc(slices.Clone(o.current.FormerHandles), func(h string) bool { return h == handle })
	if o.current.Handle != "" {
		former = append(former, o.current.Handle)
		slices.Sort(former)
	}
	if handle != "" && o.holder == "" && len(former) >= verb.MaxHandles {
		return artifact.Invalid(artifact.Problem{
			Path: "/handle", Constraint: "max_items", Message: fmt.Sprintf("an agent has at most %d handles, former ones included: take one of them back", verb.MaxHandles),
		})
	}
	o.next.Handle, o.next.FormerHandles = handle, former
	return nil
}

// allowed refuses what only an admin may change. An agent keeps what an admin
// gave it.
func (o *agentOp) allowed(c *verb.Caller) error {
	reserved := func(name string) bool { return slices.Contains(verb.Permissions, name) }
	var action string
	switch h := o.in.Handle; {
	case o.in.MayDelegate != nil:
		action = "saying who may delegate"
	case h != nil && *h == "" && o.current.Handle != "":
		action = "taking a handle away"
	case h != nil && reserved(*h) && o.holder != o.id:
		action = "giving a handle that is a permission's name"
	case slices.ContainsFunc(o.in.Roles, func(role string) bool { return reserved(role) && !slices.Contains(o.current.Roles, role) }):
		action = "giving a role that is a permission's name"
	default:
		return nil
	}
	return c.Need(artifact.Commons, action, verb.Admin)
}

// put adds the agent's writes and its rows, one for each scope where it is seen.
// One that was seen nowhere is seen from now on in the widest scope of the caller,
// which is the agent itself.
func (o *agentOp) put(s *state, event *eventOf) error {
	if !o.exists {
		s.also(insertAgentQuery, o.id, o.next.Kind, o.next.MayDelegate, o.next.CreatedAt)
	}
	s.also(updateAgentQuery, o.id, o.next.Title, o.next.Handle, o.next.Roles, o.next.MayDelegate, o.next.UpdatedAt)
	if o.next.Handle != "" && o.holder == "" && o.next.Handle != o.current.Handle {
		s.also(insertHandleQuery, o.next.Handle, o.id, s.caller.Now)
	}
	told := widest(o.seen)
	if len(o.seen) == 0 {
		return s.putSeen(o.next, widest(s.scopes), event)
	}
	_, prev, err := replicate.Encode(o.current)
	if err != nil {
		return err
	}
	s.rows.internal = false
	for _, scope := range o.seen {
		e := event
		if scope != told {
			e = nil
		}
		if err := s.rows.put(scope, replicate.KindAgent, agentRef(o.id), 1, prev, o.next, e); err != nil {
			return err
		}
	}
	return nil
}

// widest returns commons if it is among scopes, else the first.
func widest(scopes []string) string {
	if len(scopes) == 0 || slices.Contains(scopes, artifact.Commons) {
		return artifact.Commons
	}
	return scopes[0]
}

func (o *agentOp) answer(seq artifact.Seq, token string) any {
	r := &verb.AgentResult{Agent: answered(&o.next), Receipt: verb.NewReceipt(o.requestID)}
	outcome := ""
	if o.same {
		outcome = verb.IdempotencyDeduplicated
	}
	r.Place(seq, token, outcome)
	return r
}

// A registerOp makes an agent, or makes one known in commons that exists.
type registerOp struct {
	agentOp
	kind string
}

func (o *registerOp) load(ctx context.Context, db querier, _ *state) error {
	o.agentOp = agentOp{in: o.in, requestID: o.requestID, id: o.in.Agent}
	return o.read(ctx, db)
}

func (o *registerOp) decide(s *state) error {
	if !o.exists {
		o.current = newAgent(o.id, o.kind, s.caller.Now)
	}
	changed, err := o.change(s.caller)
	if err != nil {
		return err
	}
	event := &eventOf{typ: "agent.registered", ref: agentRef(o.id), payload: map[string]any{}}
	switch {
	case !o.exists:
		return o.put(s, event)
	case o.current.Kind != o.kind || len(changed) > 0:
		return &artifact.Error{Code: artifact.CodeVersionConflict, Reason: artifact.ReasonExists, Message: "an agent with this id exists; agents/update changes it"}
	case slices.Contains(o.seen, artifact.Commons):
		o.same = true
		return nil
	}
	return s.putSeen(o.next, artifact.Commons, event)
}
