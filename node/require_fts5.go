//go:build !sqlite_fts5

package node

// The replica needs SQLite with FTS5, which go-sqlite3 leaves out by default.
// This name exists nowhere: the compiler's complaint is the message.
var _ = build_with_make_or_with_go_build_tags_sqlite_fts5
