// Package event is what hub and node share of events: the filter by which readers
// choose them, and how a stream of them goes over HTTP.
//
// filter.go is names and rules together, logic.go the rules (JSONLogic), stream.go
// the server-sent events. The package reads no database: what it streams comes
// from a [Source], the hub's log or a node's replica.
package event
