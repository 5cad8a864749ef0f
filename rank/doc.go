// Package rank searches by meaning on either store: it decides what runs, joins what
// was found by words with what was found by vectors, and has a model order the first
// hits. Begin with search.go.
package rank
