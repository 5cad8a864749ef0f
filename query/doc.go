// Package query is the language in which list and search are asked what to find
// and in what order: it parses and checks filters and sorts, and turns them into
// the SQL of either store, whose answers are the same. It does no I/O. Read
// filter.go first, then sql.go.
package query
