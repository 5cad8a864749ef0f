package main

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// A subscriber follows a node's events over a websocket, as a client would: when
// the socket breaks it comes back with its cursor.
type subscriber struct {
	addr, token string
	from        int64

	mu     sync.Mutex
	events []int64 // ids as they came; guarded by mu
}

func subscribe(ctx context.Context, addr, token string, from int64) *subscriber {
	s := &subscriber{addr: addr, token: token, from: from}
	go func() {
		for ctx.Err() == nil {
			s.follow(ctx)
			pause(ctx, 50*time.Millisecond)
		}
	}()
	return s
}

// last returns the last event that came, or where the subscriber began.
func (s *subscriber) last() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return s.from
	}
	return s.events[len(s.events)-1]
}

func (s *subscriber) heard() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// A message is one of the protocol graphql-transport-ws.
type message struct {
	Type    string `json:"type"`
	ID      string `json:"id,omitempty"`
	Payload any    `json:"payload,omitempty"`
}

// follow reads one socket until it breaks.
func (s *subscriber) follow(ctx context.Context) {
	d := &websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, HandshakeTimeout: 10 * time.Second}
	ws, resp, err := d.DialContext(ctx, "ws://"+s.addr+"/graphql", nil)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	defer context.AfterFunc(ctx, func() { ws.Close() })()
	defer ws.Close()
	const query = `subscription($since: EventId) { events(since: $since, maxBatch: 1000) { events { eventId } } }`
	for _, m := range []message{
		{Type: "connection_init", Payload: map[string]any{"authorization": "Bearer " + s.token}},
		{Type: "subscribe", ID: "1", Payload: map[string]any{"query": query, "variables": map[string]any{"since": strconv.FormatInt(s.last(), 10)}}},
	} {
		if ws.WriteJSON(m) != nil {
			return
		}
	}
	for s.read(ws) {
	}
}

// read takes in one message. It reports false when the socket is of no more use.
func (s *subscriber) read(ws *websocket.Conn) bool {
	var m struct {
		Type    string
		Payload struct {
			Data struct {
				Events struct {
					Events []struct {
						EventID string `json:"eventId"`
					}
				}
			}
		}
	}
	// A node that is stopped, not ended, says nothing: the client gives up.
	if ws.SetReadDeadline(time.Now().Add(time.Minute)) != nil || ws.ReadJSON(&m) != nil {
		return false
	}
	switch m.Type {
	case "ping":
		return ws.WriteJSON(message{Type: "pong"}) == nil
	case "next":
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range m.Payload.Data.Events.Events {
			id, err := strconv.ParseInt(e.EventID, 10, 64)
			if err != nil {
				return false
			}
			s.events = append(s.events, id)
		}
	case "error", "complete":
		return false
	}
	return true
}
