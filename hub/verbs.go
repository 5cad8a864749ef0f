package hub

import "github.com/scidex-ai/substrate/verb"

//go:generate go test -run TestReferences -update .

// Verbs binds every verb to the method that runs it.
func (h *Hub) Verbs() *verb.Registry {
	r := new(verb.Registry)
	verb.Bind(r, verb.Get, h.get)
	verb.Bind(r, verb.List, h.list)
	verb.Bind(r, verb.Schema, h.schema)
	verb.Bind(r, verb.Create, h.create)
	verb.Bind(r, verb.Update, h.update)
	verb.Bind(r, verb.Link, h.link)
	verb.Bind(r, verb.Signal, h.signal)
	verb.Bind(r, verb.Batch, h.batch)
	return r
}
