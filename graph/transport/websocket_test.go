package transport_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/scidex-ai/substrate/graph/transport"
)

func TestCloseCodes(t *testing.T) { //nolint:tparallel // its server is of its own, but the others count goroutines
	_, _, url := serve(t, transport.Config{Websocket: transport.Websocket{
		InitTimeout: time.Second,
		ReadLimit:   1 << 10,
		Init: func(ctx context.Context, _ *http.Request, payload map[string]any) (context.Context, time.Time, error) {
			switch payload["authorization"] {
			case "bad":
				return nil, time.Time{}, errors.New("no such token")
			case "short":
				return ctx, time.Now().Add(100 * time.Millisecond), nil
			case "panic":
				panic("secret")
			}
			return ctx, time.Time{}, nil
		},
	}})
	const init = `{"type":"connection_init"}`
	wait := `{"id":"1","type":"subscribe","payload":{"query":"subscription{waits}"}}`
	for _, c := range []struct {
		name, protocol string
		send           []string
		code           int
		reason         string
	}{
		{"text that is no JSON", modern, []string{`{`}, 4400, "invalid message"},
		{"a message that is no object", modern, []string{`[]`}, 4400, "invalid message"},
		{"an unknown type", modern, []string{`{"type":"connect"}`}, 4400, "invalid message"},
		{"a legacy type", modern, []string{init, `{"id":"1","type":"start","payload":{"query":"{name}"}}`}, 4400, "invalid message"},
		{"an init payload that is no object", modern, []string{`{"type":"connection_init","payload":"token"}`}, 4400, "invalid message"},
		{"an operation without id", modern, []string{init, `{"type":"subscribe","payload":{"query":"{name}"}}`}, 4400, "invalid message"},
		{"an operation with a number for id", modern, []string{init, `{"id":1,"type":"subscribe","payload":{"query":"{name}"}}`}, 4400, "invalid message"},
		{"an operation without payload", modern, []string{init, `{"id":"1","type":"subscribe"}`}, 4400, "invalid message"},
		{"an operation without query", modern, []string{init, `{"id":"1","type":"subscribe","payload":{}}`}, 4400, "invalid message"},
		{"complete without id", modern, []string{init, `{"type":"complete"}`}, 4400, "invalid message"},
		{"subscribe before init", modern, []string{wait}, 4401, "unauthorized"},
		{"a refused init", modern, []string{`{"type":"connection_init","payload":{"authorization":"bad"}}`}, 4403, "forbidden"},
		{"an expired token", modern, []string{`{"type":"connection_init","payload":{"authorization":"short"}}`, wait}, 4403, "token expired"},
		{"no subprotocol", "", nil, 4406, "subprotocol not acceptable"},
		{"another subprotocol", "mqtt", nil, 4406, "subprotocol not acceptable"},
		{"no init", modern, nil, 4408, "connection initialisation timeout"},
		{"no init but pings", modern, []string{`{"type":"ping"}`}, 4408, "connection initialisation timeout"},
		{"an id in use", modern, []string{init, wait, wait}, 4409, "subscriber already exists"},
		{"a second init", modern, []string{init, init}, 4429, "too many initialisation requests"},
		{"a panic in Init", modern, []string{`{"type":"connection_init","payload":{"authorization":"panic"}}`}, 4500, "internal error"},
		{"a large message", modern, []string{`{"type":"ping","payload":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`}, 1009, "message too big"},

		{"legacy: an unknown type", legacy, []string{`{"type":"subscribe"}`}, 4400, "invalid message"},
		{"legacy: ping", legacy, []string{init, `{"type":"ping"}`}, 4400, "invalid message"},
		{"legacy: start before init", legacy, []string{`{"id":"1","type":"start","payload":{"query":"{name}"}}`}, 4401, "unauthorized"},
		{"legacy: no init", legacy, nil, 4408, "connection initialisation timeout"},
		{"legacy: a second init", legacy, []string{init, init}, 4429, "too many initialisation requests"},
		{"legacy: terminate", legacy, []string{init, `{"type":"connection_terminate"}`}, 1000, "terminated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var offered []string
			if c.protocol != "" {
				offered = []string{c.protocol}
			}
			ws := dial(t, url, offered...)
			for _, text := range c.send {
				ws.send(text)
			}
			if got := ws.wantClose(c.code); got != c.reason {
				t.Errorf("reason = %q, want %q", got, c.reason)
			}
		})
	}
	t.Run("legacy: a refused init is told before", func(t *testing.T) {
		ws := dial(t, url, legacy)
		ws.send(`{"type":"connection_init","payload":{"authorization":"bad"}}`)
		ws.want(`{"type":"connection_error","payload":{"message":"forbidden"}}`)
		ws.wantClose(4403)
	})
	t.Run("graphql-transport-ws is preferred", func(t *testing.T) {
		if got := dial(t, url, legacy, modern).Subprotocol(); got != modern {
			t.Errorf("subprotocol = %q, want %q", got, modern)
		}
	})
	t.Run("another origin is refused", func(t *testing.T) {
		d := websocket.Dialer{Subprotocols: []string{modern}}
		_, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(url, "http"), http.Header{"Origin": {"https://evil.example"}})
		if err == nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("dial from another origin: error = %v, want 403", err)
		}
		_ = resp.Body.Close()
	})
}

func TestOperations(t *testing.T) {
	_, _, url := serve(t, transport.Config{Websocket: transport.Websocket{MaxOperations: 2}})
	for _, p := range []struct{ name, start, stop, next string }{
		{modern, "subscribe", "complete", "next"},
		{legacy, "start", "stop", "data"},
	} {
		// errs is what an operation's error message holds for one error.
		errs := func(text string) string {
			if p.name == legacy {
				return text
			}
			return "[" + text + "]"
		}
		start := func(query string) string {
			return fmt.Sprintf(`{"id":"é1","type":%q,"payload":{"query":%q}}`, p.start, query)
		}
		next := func(data string) string {
			return fmt.Sprintf(`{"id":"é1","type":%q,"payload":%s}`, p.next, data)
		}
		failed := func(text string) string { return `{"id":"é1","type":"error","payload":` + errs(text) + `}` }
		const complete = `{"id":"é1","type":"complete"}`

		t.Run(p.name, func(t *testing.T) {
			c := connect(t, url, p.name)
			for _, o := range []struct {
				name, query string
				want        []string
			}{
				{"a query", `{name}`, []string{next(`{"data":{"name":"ada <&>"}}`), complete}},
				{"a mutation", `mutation{rename(to:\"x\")}`, nil},
				{"a field error", `{broken}`, []string{next(`{"errors":[{"message":"broken"}],"data":{"broken":null},"extensions":{"replica":{"seq":7}}}`), complete}},
				{"a subscription", `subscription{ticks(count:3)}`, []string{next(`{"data":{"ticks":1}}`), next(`{"data":{"ticks":2}}`), next(`{"data":{"ticks":3}}`), complete}},
				{"an invalid document", `{nope}`, []string{failed(`{"message":"Cannot query field \"nope\" on type \"Query\".","locations":[{"line":1,"column":2}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}`)}},
				{"a subscription refused at its start", `subscription{refused}`, []string{failed(`{"message":"cursor expired"}`)}},
				{"a subscription that fails", `subscription{fails}`, []string{next(`{"data":{"fails":1}}`), failed(`{"message":"consumer taken over"}`)}},
				{"a panic", `{panics}`, []string{failed(`{"message":"internal error","extensions":{"code":"internal_error"}}`)}},
				{"a panic later", `subscription{panicsLater}`, []string{next(`{"data":{"panicsLater":1}}`), failed(`{"message":"internal error","extensions":{"code":"internal_error"}}`)}},
				{"the id once more", `{name}`, []string{next(`{"data":{"name":"ada <&>"}}`), complete}},
			} {
				if o.want == nil {
					c.send(fmt.Sprintf(`{"id":"é1","type":%q,"payload":{"query":"%s"}}`, p.start, o.query))
					c.want(next(`{"data":{"rename":"x"}}`), complete)
					continue
				}
				c.send(start(o.query))
				c.want(o.want...)
			}
		})
		t.Run(p.name+": the client's "+p.stop+" ends the operation and frees its id", func(t *testing.T) {
			s, _, url := serve(t, transport.Config{})
			c := connect(t, url, p.name)
			for range 3 {
				c.send(start(`subscription{waits}`))
				eventually(t, "the subscription runs", func() bool { return s.running.Load() == 1 })
				c.send(fmt.Sprintf(`{"id":"é1","type":%q}`, p.stop))
				eventually(t, "the subscription has ended", func() bool { return s.running.Load() == 0 })
			}
			c.send(start(`{name}`))
			c.want(next(`{"data":{"name":"ada <&>"}}`), complete)
		})
		t.Run(p.name+": too many operations", func(t *testing.T) {
			c := connect(t, url, p.name)
			for _, id := range []string{"a", "b", "c"} {
				c.send(fmt.Sprintf(`{"id":%q,"type":%q,"payload":{"query":"subscription{waits}"}}`, id, p.start))
			}
			c.want(`{"id":"c","type":"error","payload":` + errs(`{"message":"too many operations","extensions":{"code":"limit_exceeded"}}`) + `}`)
		})
	}
}

func TestKeepAlive(t *testing.T) {
	_, _, url := serve(t, transport.Config{Websocket: transport.Websocket{PingEvery: 100 * time.Millisecond, PongWait: time.Second}})
	t.Run("pings both ways", func(t *testing.T) {
		c := connect(t, url, modern)
		pings := 0
		c.SetPingHandler(func(string) error {
			pings++
			return c.WriteControl(websocket.PongMessage, nil, time.Now().Add(time.Second))
		})
		c.send(`{"type":"ping","payload":{"x":1}}`)
		c.want(`{"type":"pong"}`)
		for range 12 { // past PongWait
			c.want(`{"type":"ping"}`)
			c.send(`{"type":"pong"}`)
		}
		if pings < 10 {
			t.Errorf("%d pings of the websocket protocol, want one for each message", pings)
		}
	})
	t.Run("legacy gets ka", func(t *testing.T) {
		connect(t, url, legacy).want(`{"type":"ka"}`, `{"type":"ka"}`)
	})
	t.Run("a peer that does not answer is closed", func(t *testing.T) {
		c := connect(t, url, modern)
		c.SetPingHandler(func(string) error { return nil })
		c.wantClose(websocket.CloseGoingAway)
	})
}

// closes is a log handler that keeps the close codes.
type closes struct {
	slog.Handler
	mu    sync.Mutex
	codes []int64
}

func (h *closes) Enabled(context.Context, slog.Level) bool { return true }

func (h *closes) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "code" {
			h.codes = append(h.codes, a.Value.Int64())
		}
		return true
	})
	return nil
}

func (h *closes) has(code int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.codes, code)
}

func TestSlowConsumer(t *testing.T) {
	const flood = `{"id":"1","type":"subscribe","payload":{"query":"subscription{flood(bytes:65536)}"}}`
	config := func(log *closes) transport.Config {
		return transport.Config{Websocket: transport.Websocket{
			WriteWait: 400 * time.Millisecond, PingEvery: 100 * time.Millisecond, PongWait: time.Minute,
			MaxQueueFrames: 8, Log: slog.New(log),
		}}
	}
	t.Run("one that accepts nothing is closed with 4513", func(t *testing.T) {
		log := &closes{}
		s, _, url := serve(t, config(log))
		c := connect(t, url, modern)
		c.send(flood)
		eventually(t, "the log names 4513", func() bool { return log.has(4513) })
		eventually(t, "the subscription has ended", func() bool { return s.running.Load() == 0 })
	})
	t.Run("one that wakes up learns why", func(t *testing.T) {
		s, _, url := serve(t, config(&closes{}))
		c := connect(t, url, modern)
		c.send(flood)
		eventually(t, "the subscription runs", func() bool { return s.running.Load() == 1 })
		eventually(t, "the subscription has ended", func() bool { return s.running.Load() == 0 })
		c.wantClose(4513)
	})
	t.Run("one that reads slowly gets everything", func(t *testing.T) {
		_, _, url := serve(t, config(&closes{}))
		c := connect(t, url, modern)
		const frames = 150
		c.send(fmt.Sprintf(`{"id":"1","type":"subscribe","payload":{"query":"subscription{flood(bytes:65536,count:%d)}"}}`, frames))
		got := 0
		for {
			text, err := c.receive()
			if err != nil {
				t.Fatalf("after %d events: %v", got, err)
			}
			if strings.Contains(text, `"complete"`) {
				break
			}
			if strings.Contains(text, `"next"`) {
				got++
				time.Sleep(10 * time.Millisecond)
			}
		}
		if got != frames {
			t.Errorf("%d events, want %d", got, frames)
		}
	})
	t.Run("one that asks and does not read is closed with 4513", func(t *testing.T) {
		log := &closes{}
		c := config(log)
		c.Websocket.WriteWait = time.Minute
		_, _, url := serve(t, c)
		ws := connect(t, url, modern)
		ws.send(flood)
		eventually(t, "the log names 4513", func() bool {
			for range 100 {
				_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"type":"ping"}`)) // fails once it is closed
			}
			return log.has(4513)
		})
	})
}

func TestShutdown(t *testing.T) {
	s, h, url := serve(t, transport.Config{})
	c := connect(t, url, modern)
	c.send(`{"id":"1","type":"subscribe","payload":{"query":"subscription{waits}"}}`)
	eventually(t, "the subscription runs", func() bool { return s.running.Load() == 1 })
	done := make(chan error, 1)
	go func() { done <- h.Shutdown(t.Context()) }()
	c.wantClose(websocket.CloseServiceRestart)
	if err := <-done; err != nil {
		t.Errorf("Shutdown() error = %v", err)
	}
	if n := s.running.Load(); n != 0 {
		t.Errorf("%d subscriptions run after Shutdown", n)
	}
	_, resp, err := (&websocket.Dialer{Subprotocols: []string{modern}}).DialContext(t.Context(), "ws"+strings.TrimPrefix(url, "http"), http.Header{})
	if err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("dial after Shutdown: error = %v, want 503", err)
	}
	_ = resp.Body.Close()
}

func TestNoGoroutineIsLeft(t *testing.T) {
	s, _, url := serve(t, transport.Config{})
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	end := time.Now().Add(10 * time.Second) // of a slow machine
	for i := 0; i < 2000 && (i < 200 || time.Now().Before(end)); i++ {
		c := connect(t, url, []string{modern, legacy}[i%2])
		c.send(fmt.Sprintf(`{"id":"1","type":%q,"payload":{"query":"subscription{waits}"}}`, []string{"subscribe", "start"}[i%2]))
		switch i % 3 {
		case 0: // vanishes
			_ = c.NetConn().Close()
		case 1:
			_ = c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Second))
			c.wantClose(1000)
		default: // a protocol error with the operation running
			c.send(`{`)
			c.wantClose(4400)
		}
		_ = c.Close()
	}
	eventually(t, "all goroutines have ended, and all files are closed", func() bool {
		return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files && s.running.Load() == 0
	})
}

// openFiles counts the files and sockets that the process has open; 0 where the system
// does not tell.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(files)
}
