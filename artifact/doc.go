// Package artifact defines what the substrate stores: typed, schema-validated,
// content-hashed documents, and the refs, links, signals, events and errors
// that speak of them.
//
// It is the vocabulary that every other package shares. It imports no other
// package of this module, opens no connection and starts no goroutine. Read
// ref.go first, then canonical.go and schema.go.
package artifact
