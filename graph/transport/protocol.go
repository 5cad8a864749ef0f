package transport

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// Close codes of graphql-transport-ws
// (https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md), used for both
// subprotocols, and our own 4513.
const (
	CloseInvalidMessage   = 4400
	CloseUnauthorized     = 4401 // subscribed before connection_ack
	CloseForbidden        = 4403 // connection_init refused, or its token has expired
	CloseNotAcceptable    = 4406
	CloseInitTimeout      = 4408
	CloseDuplicateID      = 4409
	CloseTooManyInits     = 4429
	CloseInternalError    = 4500
	CloseSlowConsumer     = 4513
	CloseServiceRestart   = websocket.CloseServiceRestart // 1012
	closeWithoutHandshake = 0                             // the peer has gone: nothing to say to it
)

// A closing is the reason why a connection ends: the cause of its context.
type closing struct {
	code   int
	reason string // for people; under 123 bytes
}

func (c *closing) Error() string { return fmt.Sprintf("websocket closed: %d %s", c.code, c.reason) }

// A protocol holds what differs between the two subprotocols.
type protocol struct {
	name              string
	start, stop, next string // message types
	legacy            bool   // error payload is one error; connection_error; keep-alive is ka
	keepAlive         []byte
}

// In the order of preference.
var protocols = []*protocol{
	{name: "graphql-transport-ws", start: "subscribe", stop: "complete", next: "next", keepAlive: []byte(`{"type":"ping"}`)},
	{name: "graphql-ws", start: "start", stop: "stop", next: "data", keepAlive: []byte(`{"type":"ka"}`), legacy: true},
}

func choose(offered []string) *protocol {
	for _, p := range protocols {
		if slices.Contains(offered, p.name) {
			return p
		}
	}
	return nil
}

var (
	ackMessage  = []byte(`{"type":"connection_ack"}`)
	pongMessage = []byte(`{"type":"pong"}`)
)

// A message is what a client sends.
type message struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// operationHead begins a message whose payload and closing brace follow.
func operationHead(room int, id, kind string) []byte {
	name, _ := json.Marshal(id) // a string always has a JSON form
	b := make([]byte, 0, len(name)+len(kind)+room+32)
	b = append(append(b, `{"id":`...), name...)
	return append(append(append(b, `,"type":"`...), kind...), `","payload":`...)
}

func completeMessage(id string) []byte {
	name, _ := json.Marshal(id)
	return append(append([]byte(`{"id":`), name...), `,"type":"complete"}`...)
}

// errorMessage ends an operation that has failed as a whole.
func (p *protocol) errorMessage(id string, errs gqlerror.List) ([]byte, error) {
	var payload any = errs
	if p.legacy { // its clients may expect an object; the first error says most
		payload = errs[0]
	}
	text, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	return append(append(operationHead(len(text), id, "error"), text...), '}'), nil
}
