// Package node runs a lab-local replica: a copy of the hub's public state in
// SQLite, read and subscribed to on the lab's own network, with writes forwarded
// to the hub.
//
// Open store.go first: the file and its connections. apply.go is the only way
// in, put.go what each kind of row does; read.go and broker.go are the ways out:
// verbs and subscriptions. digest.go proves the copy equal to the hub.
//
// SQLite is built with FTS5: build with the tag sqlite_fts5, as the Makefile does.
package node
