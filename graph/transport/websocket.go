package transport

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/gorilla/websocket"
)

// A Websocket configures a Handler's websockets. Every field works at zero.
type Websocket struct {
	// Init authenticates. Its payload is connection_init's, empty if there is none.
	// The context that it returns carries the caller to every operation and must
	// derive from ctx. At expires (zero: never) the connection closes with 4403, as
	// it does at once on an error, which is logged and not shown.
	// Default: everyone is let in.
	Init func(ctx context.Context, r *http.Request, payload map[string]any) (_ context.Context, expires time.Time, err error)

	// Valid, when set, is asked with Init's context whether the caller may still be
	// served, whenever the channel that Changed returned is closed. An error closes
	// the connection with 4403.
	Valid   func(ctx context.Context) error
	Changed func() <-chan struct{}

	// CheckOrigin decides at the upgrade. Default: the same host, or no Origin header.
	CheckOrigin func(r *http.Request) bool

	InitTimeout time.Duration // from the upgrade until Init has returned; default 10 s
	PingEvery   time.Duration // default 20 s
	PongWait    time.Duration // a peer silent for so long is dead; default 50 s
	WriteWait   time.Duration // a peer that accepts no byte for so long is closed with 4513; default 10 s

	MaxQueueFrames int   // of one connection; an operation waits while the queue is full; default 256
	MaxQueueBytes  int   // default 4 MiB; one larger frame may pass alone
	MaxOperations  int   // at a time on one connection; default 50
	ReadLimit      int64 // bytes of one message; default 2 MiB

	Log *slog.Logger // default: slog.Default
}

// lastWords bounds how long a closing handshake may take.
const lastWords = time.Second

// sockets accepts websockets and keeps count of the open ones.
type sockets struct {
	Websocket
	exec     *executor.Executor
	upgrader websocket.Upgrader

	mu     sync.Mutex // guards what follows
	closed bool
	open   map[*connection]struct{}
	ended  sync.WaitGroup // Add only while not closed
}

func newSockets(w Websocket, exec *executor.Executor) *sockets {
	w.InitTimeout = cmp.Or(w.InitTimeout, 10*time.Second)
	w.PingEvery = cmp.Or(w.PingEvery, 20*time.Second)
	w.PongWait = cmp.Or(w.PongWait, 50*time.Second)
	w.WriteWait = cmp.Or(w.WriteWait, 10*time.Second)
	w.MaxQueueFrames = cmp.Or(w.MaxQueueFrames, 256)
	w.MaxQueueBytes = cmp.Or(w.MaxQueueBytes, 4<<20)
	w.MaxOperations = cmp.Or(w.MaxOperations, 50)
	w.ReadLimit = cmp.Or(w.ReadLimit, 2<<20)
	w.Log = cmp.Or(w.Log, slog.Default())
	return &sockets{
		Websocket: w,
		exec:      exec,
		upgrader:  websocket.Upgrader{CheckOrigin: w.CheckOrigin, WriteBufferPool: &writeBuffers},
		open:      map[*connection]struct{}{},
	}
}

// serve upgrades and blocks until the websocket and all it started have ended.
func (s *sockets) serve(w http.ResponseWriter, r *http.Request) {
	c := &connection{
		Websocket:  &s.Websocket,
		exec:       s.exec,
		request:    r,
		protocol:   choose(websocket.Subprotocols(r)),
		queue:      newQueue(s.MaxQueueFrames, s.MaxQueueBytes),
		operations: map[string]*operation{},
	}
	// The request's context outlives the hijacking: it ends with this call, or with
	// the server's base context.
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	c.cancel = end
	if !s.add(c) {
		writeError(w, mediaJSON, http.StatusServiceUnavailable, "unavailable", "shutting down")
		return
	}
	defer s.remove(c)

	head := http.Header{}
	if c.protocol != nil {
		head.Set("Sec-Websocket-Protocol", c.protocol.name)
	}
	h := &hijacker{ResponseWriter: w, wait: s.WriteWait}
	ws, err := s.upgrader.Upgrade(h, r, head)
	if err != nil {
		s.Log.DebugContext(ctx, "websocket refused", "error", err)
		return
	}
	c.ws, c.socket = ws, h.took
	c.serve(ctx)
}

func (s *sockets) add(c *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[c] = struct{}{}
	s.ended.Add(1)
	return true
}

func (s *sockets) remove(c *connection) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	s.ended.Done()
}

func (s *sockets) shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		c.cancel(&closing{CloseServiceRestart, "service restart"})
	}
	s.mu.Unlock()

	done := make(chan struct{})
	go func() {
		s.ended.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
