// Package node runs a lab-local replica: a copy of the hub's public state in
// SQLite, read and subscribed to on the lab's own network, with writes forwarded
// to the hub.
//
// Open store.go first: the file and its connections. apply.go is the only way
// in, put.go what each kind of row does, canonical.go how its data is read;
// read.go and broker.go are the ways out, verbs and subscriptions, and scoped.go
// what a caller may see. digest.go proves the copy equal to the hub. node.go and
// server.go make a process of it.
//
// SQLite is built with FTS5: build with the tag sqlite_fts5, as the Makefile does.
package node
