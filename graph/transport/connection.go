package transport

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/gorilla/websocket"
)

// A connection is one websocket: the goroutine that serves it reads, a second one
// writes, and each operation has its own. Whoever ends it cancels its context with a
// *closing; the first one counts.
type connection struct {
	*Websocket
	exec     *executor.Executor
	request  *http.Request // the upgrade
	protocol *protocol     // nil: the client offered none of ours
	ws       *websocket.Conn
	socket   *socket
	queue    *queue
	cancel   context.CancelCauseFunc
	valid    atomic.Pointer[func() error] // nil until connection_init was accepted
	heard    atomic.Int64                 // Unix nanoseconds: the last message or pong

	mu         sync.Mutex // guards what follows
	operations map[string]*operation
	running    int            // goroutines of operations, the stopped ones included
	all        sync.WaitGroup // of the same and the writer
}

func (c *connection) serve(ctx context.Context) {
	stalled := func() { c.end(CloseSlowConsumer, "slow consumer") }
	c.socket.stall.Store(&stalled)
	c.hear()
	c.ws.SetPongHandler(func(string) error { c.hear(); return nil })
	pong := c.ws.PingHandler()
	c.ws.SetPingHandler(func(data string) error { c.hear(); return pong(data) })

	// Once ending, the peer has a moment to read why and to answer.
	cut := time.AfterFunc(time.Hour, func() { c.socket.Close() })
	cut.Stop()
	context.AfterFunc(ctx, func() { cut.Reset(lastWords) })
	defer cut.Stop()
	c.all.Go(func() { c.write(ctx) })

	if c.protocol == nil {
		c.end(CloseNotAcceptable, "subprotocol not acceptable")
	}
	init := time.AfterFunc(c.InitTimeout, func() { c.end(CloseInitTimeout, "connection initialisation timeout") })
	defer init.Stop()
	c.read(ctx, init)

	c.end(closeWithoutHandshake, "gone")
	c.all.Wait()
	c.socket.Close()
	why := cause(ctx)
	level := slog.LevelDebug
	if why.code == CloseSlowConsumer || why.code == CloseInternalError {
		level = slog.LevelWarn
	}
	c.Log.Log(ctx, level, "websocket closed", "code", why.code, "reason", why.reason, "remote", c.request.RemoteAddr)
}

func (c *connection) end(code int, reason string) { c.cancel(&closing{code, reason}) }

// cause tells why ctx, a connection's, has ended: by default with the server's.
func cause(ctx context.Context) *closing {
	if why, ok := errors.AsType[*closing](context.Cause(ctx)); ok {
		return why
	}
	return &closing{CloseServiceRestart, "service restart"}
}

func (c *connection) hear() { c.heard.Store(time.Now().UnixNano()) }

// read handles messages until the peer has gone. While the connection is ending, it
// reads on without handling, for the peer's close frame.
func (c *connection) read(ctx context.Context, init *time.Timer) {
	var caller context.Context //nolint:contextcheck // nil until connection_init was accepted
	for {
		kind, r, err := c.ws.NextReader()
		if err != nil {
			return
		}
		c.hear()
		text, err := io.ReadAll(io.LimitReader(r, c.ReadLimit+1))
		if err != nil {
			return
		}
		var m message
		switch {
		case ctx.Err() != nil:
			continue
		case int64(len(text)) > c.ReadLimit:
			c.end(websocket.CloseMessageTooBig, "message too big")
			continue
		case kind != websocket.TextMessage || json.Unmarshal(text, &m) != nil:
			c.end(CloseInvalidMessage, "invalid message")
			continue
		}
		switch m.Type {
		case "connection_init":
			if caller != nil {
				c.end(CloseTooManyInits, "too many initialisation requests")
				continue
			}
			if caller = c.initialise(ctx, m.Payload); caller != nil {
				init.Stop()
			}
		case c.protocol.start:
			c.start(caller, m)
		case c.protocol.stop:
			if m.ID == "" {
				c.end(CloseInvalidMessage, "invalid message")
				continue
			}
			c.stop(m.ID)
		default:
			c.control(m)
		}
	}
}

// control handles what only one of the subprotocols knows.
func (c *connection) control(m message) {
	switch {
	case c.protocol.legacy && m.Type == "connection_terminate":
		c.end(websocket.CloseNormalClosure, "terminated")
	case !c.protocol.legacy && m.Type == "ping":
		c.say(pongMessage)
	case !c.protocol.legacy && m.Type == "pong":
	default:
		c.end(CloseInvalidMessage, "invalid message")
	}
}

// initialise returns the caller's context, or nil after ending the connection.
func (c *connection) initialise(ctx context.Context, payload json.RawMessage) context.Context {
	var credentials map[string]any
	if len(payload) > 0 && json.Unmarshal(payload, &credentials) != nil {
		c.end(CloseInvalidMessage, "invalid message")
		return nil
	}
	if credentials == nil {
		credentials = map[string]any{}
	}
	caller, expires, err := c.authenticate(ctx, credentials)
	if err != nil {
		c.Log.DebugContext(ctx, "websocket init refused", "error", err)
		if c.protocol.legacy {
			c.say([]byte(`{"type":"connection_error","payload":{"message":"forbidden"}}`))
		}
		c.end(CloseForbidden, "forbidden")
		return nil
	}
	if caller == nil {
		caller = ctx
	}
	if !expires.IsZero() {
		expiry := time.AfterFunc(time.Until(expires), func() { c.end(CloseForbidden, "token expired") })
		context.AfterFunc(ctx, func() { expiry.Stop() })
	}
	if c.Valid != nil {
		valid := func() error { return c.Valid(caller) }
		c.valid.Store(&valid)
	}
	c.say(ackMessage)
	if c.protocol.legacy {
		c.say(c.protocol.keepAlive)
	}
	return caller
}

func (c *connection) authenticate(ctx context.Context, payload map[string]any) (_ context.Context, _ time.Time, err error) {
	if c.Init == nil {
		return ctx, time.Time{}, nil
	}
	defer func() {
		if v := recover(); v != nil {
			c.end(CloseInternalError, "internal error")
			err = presented(ctx, c.exec, v)
		}
	}()
	return c.Init(ctx, c.request, payload)
}

// say queues a message of the connection itself.
func (c *connection) say(text []byte) {
	if !c.queue.pushOwn(text) {
		c.end(CloseSlowConsumer, "slow consumer")
	}
}

// write sends what is queued and pings, until ctx ends; then it says why.
func (c *connection) write(ctx context.Context) {
	ping := time.NewTicker(c.PingEvery)
	defer ping.Stop()
	changed := c.changed()
	for {
		select {
		case <-ctx.Done():
			c.sayWhy(cause(ctx))
			return
		case <-changed:
			changed = c.changed() // before asking, so that no change is missed
			if valid := c.valid.Load(); valid != nil && (*valid)() != nil {
				c.end(CloseForbidden, "no longer allowed")
			}
		case <-ping.C:
			c.ping()
		case <-c.queue.ready:
			c.writeNext()
		}
	}
}

// changed returns what is closed when the caller must be asked for again; nil for
// never.
func (c *connection) changed() <-chan struct{} {
	if c.Valid == nil || c.Changed == nil {
		return nil
	}
	return c.Changed()
}

func (c *connection) ping() {
	if last := max(c.heard.Load(), c.socket.moved.Load()); time.Since(time.Unix(0, last)) > c.PongWait {
		c.end(websocket.CloseGoingAway, "no answer to pings")
		return
	}
	if err := c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.WriteWait)); err != nil {
		c.end(closeWithoutHandshake, "gone")
	}
	c.say(c.protocol.keepAlive)
}

// writeNext reports whether a frame was waiting.
func (c *connection) writeNext() bool {
	f, ok := c.queue.take()
	if !ok {
		return false
	}
	if f.op != nil && f.op.stopped.Load() {
		return true
	}
	if err := c.ws.WriteMessage(websocket.TextMessage, f.text); err != nil {
		c.end(closeWithoutHandshake, "gone")
	}
	return true
}

// sayWhy sends the rest of the queue, unless the peer does not read it, and the
// close frame. The connection is cut if that takes longer than lastWords.
func (c *connection) sayWhy(why *closing) {
	if why.code == closeWithoutHandshake {
		return
	}
	for why.code != CloseSlowConsumer && c.writeNext() {
	}
	message := websocket.FormatCloseMessage(why.code, why.reason)
	_ = c.ws.WriteControl(websocket.CloseMessage, message, time.Now().Add(lastWords)) // it is cut all the same
}
