// Package analysis turns text into the terms by which it is found: those of a
// document and those of a query, at the hub and at a node, so that both stores find
// the same. It does no I/O.
//
// scan.go splits text into words and their parts, fold.go brings letters into one
// form, term.go makes terms of them. document.go holds what a store indexes,
// query.go what it is asked; match.go finds a query's words in a text, fields.go the
// texts of an artifact.
//
// A word that a hyphen, a slash or a change between letters, digits and Greek
// divides is read both ways: its parts stand one after the other, and the joined form
// beside them. So APOE4, APOE-4 and APOE 4 find one another, as do TNF-α, TNFα and
// TNF alpha.
package analysis
