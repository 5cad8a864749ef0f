// Package graph serves the node's GraphQL API from what its interfaces give it.
//
// schema.graphqls at the repository root is the contract; resolver.go says what
// the resolvers stand on; schema.resolvers.go holds one short function for each
// field that needs one; the engine that gqlgen writes lives in
// internal/generated and is never edited.
package graph

//go:generate sh -c "cd .. && go tool gqlgen generate"
