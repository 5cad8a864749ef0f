// Package transport serves a gqlgen schema by our own GraphQL transports, over
// HTTP (graphql-over-http) and websocket (graphql-transport-ws and the legacy
// graphql-ws). Open handler.go first; a websocket's life begins in websocket.go.
package transport
