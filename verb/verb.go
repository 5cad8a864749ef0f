// Package verb defines each operation of the substrate once, in Go, and derives
// from that one definition its HTTP route, its OpenAPI entry, its typed client
// and its in-process call.
//
// verbs.go, writes.go, move.go, scopes.go, agents.go and nodes.go list the verbs;
// registry.go binds them to code; http.go, client.go, reference.go and openapi.go are
// the projections. failures.go is the table of all errors, errors.go says which a verb
// may answer with.
// token.go and verifier.go say who calls, caller.go and directory.go what they may;
// session.go is for browsers, limit.go for those who call too often. The
// package holds no SQL: the hub binds verbs to PostgreSQL, a node binds the
// read verbs to its replica and forwards the others with a [Client].
package verb

import "context"

// A Verb is one operation: its name, its documentation and, as type parameters,
// its request and its response. The zero value of In is not always valid.
type Verb[In, Out any] struct {
	Name    string // in URLs, such as "create" or "messages/send"
	Summary string // one sentence, for people and for agents
	Effect  Effect
	Needs   Needs
}

// Needs says which permission a verb takes, and where. docs/PERMISSIONS.md is made
// of it. The registry refuses callers who hold none of them anywhere; whether
// they hold it in the scope of what they touch, the verb's own code checks.
type Needs struct {
	AnyOf []Permission // one of them is enough; none: any valid token
	Where Where
	Own   bool   // in a private scope, also who made what is touched
	Note  string // what else decides, for people
}

// Where says in which scope a permission must be held.
type Where string

// The places of a permission.
const (
	InScope   Where = ""        // the scope of what is touched
	InCommons Where = "commons" // the hub as a whole
)

// What most verbs take.
var (
	toRead  = Needs{AnyOf: []Permission{Viewer}}
	toWrite = Needs{AnyOf: []Permission{Contributor}}
)

// Effect says whether a verb writes.
type Effect string

// The effects of a verb. A node answers verbs with effect Read from its replica
// and forwards verbs with effect Write to its hub.
const (
	Read  Effect = "read"
	Write Effect = "write"
)

// Call runs v through inv: in process if inv is a [Registry], over HTTP if it is
// a [Client]. Either way its errors are [artifact.Error]s where the caller can
// act on them.
func (v Verb[In, Out]) Call(ctx context.Context, inv Invoker, in In) (Out, error) {
	var out Out
	err := inv.Invoke(ctx, v.Name, in, &out)
	return out, err
}

// An Invoker runs a verb by name. The types of in and *out are the verb's own.
type Invoker interface {
	Invoke(ctx context.Context, name string, in, out any) error
}
