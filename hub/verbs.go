package hub

import (
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/verb"
)

//go:generate go test -run TestReferences|TestProtocolSession -update .

// Verbs binds every verb to the method that runs it.
func (h *Hub) Verbs() *verb.Registry {
	r := new(verb.Registry)
	verb.Bind(r, verb.Get, h.get)
	verb.Bind(r, verb.List, h.list)
	verb.Bind(r, verb.History, h.history)
	verb.Bind(r, verb.Diff, h.diff)
	verb.Bind(r, verb.Search, h.search)
	verb.Bind(r, verb.Schema, h.schema)
	verb.Bind(r, verb.Links, h.links)
	verb.Bind(r, verb.Signals, h.signals)
	verb.Bind(r, verb.Poll, event.Poller{Source: h, Durable: h.pollConsumer}.Poll)
	verb.Bind(r, verb.Create, h.create)
	verb.Bind(r, verb.Update, h.update)
	verb.Bind(r, verb.Link, h.link)
	verb.Bind(r, verb.Signal, h.signal)
	verb.Bind(r, verb.Batch, h.batch)
	verb.Bind(r, verb.Supersede, h.supersede)
	verb.Bind(r, verb.Comment, h.comment)
	verb.Bind(r, verb.Unlink, h.unlink)
	verb.Bind(r, verb.Cite, h.cite)
	verb.Bind(r, verb.Move, h.move)
	verb.Bind(r, verb.Redact, h.redact)
	verb.Bind(r, verb.ScopesCreate, h.scopesCreate)
	verb.Bind(r, verb.ScopesList, h.scopesList)
	verb.Bind(r, verb.ScopesMembers, h.scopesMembers)
	verb.Bind(r, verb.ScopesGrant, h.scopesGrant)
	verb.Bind(r, verb.ScopesRevoke, h.scopesRevoke)
	verb.Bind(r, verb.TokensRevoke, h.tokensRevoke)
	verb.Bind(r, verb.AgentsGet, h.agentsGet)
	verb.Bind(r, verb.AgentsList, h.agentsList)
	verb.Bind(r, verb.AgentsResolve, h.agentsResolve)
	verb.Bind(r, verb.AgentsUpdate, h.agentsUpdate)
	verb.Bind(r, verb.AgentsRegister, h.agentsRegister)
	verb.Bind(r, verb.ConsumersGet, h.consumersGet)
	verb.Bind(r, verb.ConsumersAdvance, h.consumersAdvance)
	verb.Bind(r, verb.ConsumersRefuse, h.consumersRefuse)
	verb.Bind(r, verb.ConsumersRewind, h.consumersRewind)
	verb.Bind(r, verb.ConsumersDeadLetters, h.consumersDeadLetters)
	verb.Bind(r, verb.ConsumersReplay, h.consumersReplay)
	verb.Bind(r, verb.ConsumersDelete, h.consumersDelete)
	verb.Bind(r, verb.MessagesSend, h.messagesSend)
	verb.Bind(r, verb.MessagesList, h.messagesList)
	verb.Bind(r, verb.MessagesAck, h.messagesAck)
	verb.Bind(r, verb.Mailbox, h.mailbox)
	verb.Bind(r, verb.NodesInvite, h.nodesInvite)
	verb.Bind(r, verb.NodesList, h.nodesList)
	verb.Bind(r, verb.NodesRevoke, h.nodesRevoke)
	return r
}
