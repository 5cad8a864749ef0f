// Package hub owns every write. It keeps artifacts, their versions, links,
// signals and the event log in PostgreSQL, runs the verbs against them, and
// feeds what was committed to nodes.
//
// Read verbs.go for what a hub can do, write.go for the one path that every
// write takes, and pump.go for how a commit reaches the followers.
package hub
