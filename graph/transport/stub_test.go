package transport_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/scidex-ai/substrate/graph/transport"
)

// A stub is an executable schema that behaves as generated code does where the
// transports can tell: one buffer for all events of a subscription, and errors of
// a subscription's start in the context of Exec.
type stub struct {
	schema  *ast.Schema
	running atomic.Int32 // subscriptions
}

func newStub() *stub {
	return &stub{schema: gqlparser.MustLoadSchema(&ast.Source{Input: `
		type Query { name: String!  sum(of: [Int!]!): Int!  broken: String  panics: String }
		type Mutation { rename(to: String!): String! }
		type Subscription {
			ticks(count: Int!): Int!
			waits: Int!
			flood(bytes: Int!, count: Int = 1000000): String!
			fails: Int!
			refused: Int!
			panicsLater: Int!
		}`})}
}

func (s *stub) Schema() *ast.Schema { return s.schema }

func (s *stub) Complexity(context.Context, string, string, int, map[string]any) (int, bool) {
	return 0, false
}

func (s *stub) Exec(ctx context.Context) graphql.ResponseHandler {
	oc := graphql.GetOperationContext(ctx)
	f := graphql.CollectFields(oc, oc.Operation.SelectionSet, nil)[0]
	args := f.ArgumentMap(oc.Variables)
	if oc.Operation.Operation == ast.Subscription {
		s.running.Add(1)
		context.AfterFunc(ctx, func() { s.running.Add(-1) })
		return s.subscribe(ctx, f, args)
	}
	var v any
	switch f.Name {
	case "__typename":
		v = f.ObjectDefinition.Name
	case "name":
		v = "ada <&>"
	case "rename":
		v = args["to"]
	case "panics":
		panic("secret of the resolver")
	case "broken":
		return func(ctx context.Context) *graphql.Response {
			graphql.AddErrorf(ctx, "broken")
			graphql.RegisterExtension(ctx, "replica", map[string]int{"seq": 7})
			return &graphql.Response{Data: []byte(`{"broken":null}`)}
		}
	case "__type", "__schema":
		if oc.DisableIntrospection {
			graphql.AddErrorf(ctx, "introspection disabled")
		}
	}
	return graphql.OneShot(&graphql.Response{Data: data(nil, f.Alias, v)})
}

func (s *stub) subscribe(ctx context.Context, f graphql.CollectedField, args map[string]any) graphql.ResponseHandler {
	var buf []byte
	number := func(name string) int64 { n, _ := args[name].(int64); return n }
	limit := max(number("count"), 1)
	sent := int64(0)
	if f.Name == "refused" {
		graphql.AddError(ctx, errors.New("cursor expired"))
	}
	return func(rctx context.Context) *graphql.Response {
		if sent == limit && f.Name == "fails" {
			transport.Fail(ctx, errors.New("consumer taken over"))
		}
		if sent == limit && f.Name == "panicsLater" {
			panic("secret of the marshaller")
		}
		if sent == limit || rctx.Err() != nil {
			return nil
		}
		if f.Name == "waits" {
			<-rctx.Done()
			return nil
		}
		sent++
		var v any = sent
		if f.Name == "flood" {
			v = strings.Repeat("x", int(number("bytes")))
		}
		buf = data(buf[:0], f.Alias, v)
		return &graphql.Response{Data: buf}
	}
}

func data(b []byte, name string, v any) []byte {
	out := bytes.NewBuffer(b)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	_ = e.Encode(map[string]any{name: v})
	return bytes.TrimSpace(out.Bytes())
}

// serve returns the URL of a server for c.
func serve(t *testing.T, c transport.Config) (*stub, *transport.Handler, string) {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := newStub()
	h := transport.New(s, c)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return s, h, srv.URL
}

// A client is the test's end of a websocket.
type client struct {
	*websocket.Conn
	t *testing.T
}

func dial(t *testing.T, url string, protocols ...string) *client {
	t.Helper()
	d := websocket.Dialer{Subprotocols: protocols, HandshakeTimeout: 5 * time.Second}
	conn, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(url, "http"), http.Header{})
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	_ = resp.Body.Close()
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn, t}
}

// connect is dial with a connection_init that was answered.
func connect(t *testing.T, url, protocol string) *client {
	t.Helper()
	c := dial(t, url, protocol)
	c.send(`{"type":"connection_init"}`)
	c.want(`{"type":"connection_ack"}`)
	if protocol == legacy {
		c.want(`{"type":"ka"}`)
	}
	return c
}

const (
	modern = "graphql-transport-ws"
	legacy = "graphql-ws"
)

func (c *client) send(text string) {
	c.t.Helper()
	if err := c.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		c.t.Fatalf("send %s: %v", text, err)
	}
}

func (c *client) receive() (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, text, err := c.ReadMessage()
	return string(text), err
}

// want expects these messages in this order.
func (c *client) want(texts ...string) {
	c.t.Helper()
	for _, want := range texts {
		if got, err := c.receive(); err != nil || got != want {
			c.t.Fatalf("received %s, %v, want %s", got, err, want)
		}
	}
}

// wantClose expects this close code, whatever comes before it.
func (c *client) wantClose(code int) (reason string) {
	c.t.Helper()
	for {
		text, err := c.receive()
		if err == nil {
			continue
		}
		var closed *websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != code {
			c.t.Fatalf("connection ended with %v after %.100q, want code %d", err, text, code)
		}
		return closed.Text
	}
}

// eventually polls until ok, for at most 10 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: not so within 10 s", what)
}
