package transport

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// A Config says what a Handler accepts and how it answers. Every field works at zero.
type Config struct {
	Introspection  bool                       // an extension may still refuse it for one operation
	Extensions     []graphql.HandlerExtension // run in this order, after the limits
	Around         graphql.OperationMiddleware
	ErrorPresenter graphql.ErrorPresenterFunc // what a caller sees of an error; default: gqlgen's, which shows all
	Recover        graphql.RecoverFunc        // default: log the panic, answer internal_error

	MaxBodyBytes     int64 // of a POST; default 2 MiB
	MaxDocumentBytes int   // default 64 KiB
	MaxTokens        int   // in a document; default 5,000
	QueryCacheBytes  int   // of parsed documents' text; default 4 MiB

	Websocket Websocket
	Log       *slog.Logger // default: slog.Default; also the websockets', if they have none
}

// A Handler answers GraphQL at one URL: POST, GET for queries, and websockets.
type Handler struct {
	config  Config
	exec    *executor.Executor
	sockets *sockets
}

// New returns a Handler for schema. It panics if an extension refuses the schema.
func New(schema graphql.ExecutableSchema, c Config) *Handler {
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 2<<20)
	c.MaxDocumentBytes = cmp.Or(c.MaxDocumentBytes, 64<<10)
	c.MaxTokens = cmp.Or(c.MaxTokens, 5000)
	c.QueryCacheBytes = cmp.Or(c.QueryCacheBytes, 4<<20)
	c.Log = cmp.Or(c.Log, slog.Default())
	c.Websocket.Log = cmp.Or(c.Websocket.Log, c.Log)

	exec := executor.New(schema)
	exec.SetQueryCache(newQueryCache(c.QueryCacheBytes))
	exec.SetParserTokenLimit(c.MaxTokens)
	exec.SetDisableSuggestion(!c.Introspection) // they tell names of the schema too
	if c.ErrorPresenter != nil {
		exec.SetErrorPresenter(c.ErrorPresenter)
	}
	if c.Recover == nil {
		c.Recover = logPanic(c.Log)
	}
	exec.SetRecoverFunc(c.Recover)
	exec.Use(limits{documentBytes: c.MaxDocumentBytes, introspection: c.Introspection})
	for _, e := range c.Extensions {
		exec.Use(e)
	}
	if c.Around != nil {
		exec.AroundOperations(c.Around)
	}
	return &Handler{config: c, exec: exec, sockets: newSockets(c.Websocket, exec)}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case websocket.IsWebSocketUpgrade(r):
		h.sockets.serve(w, r)
	case r.Method == http.MethodPost, r.Method == http.MethodGet:
		h.serveRequest(w, r)
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", allMethods)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", allMethods)
		writeError(w, mediaJSON, http.StatusMethodNotAllowed, "method_not_allowed", "use GET or POST")
	}
}

// Shutdown refuses new websockets, closes each open one with 1012 and waits until
// all their operations have ended. It returns ctx's error if that ends first.
// http.Server.Shutdown does not know of websockets: call both.
func (h *Handler) Shutdown(ctx context.Context) error { return h.sockets.shutdown(ctx) }

const allMethods = "GET, POST, OPTIONS"

func logPanic(log *slog.Logger) graphql.RecoverFunc {
	return func(ctx context.Context, v any) error {
		log.ErrorContext(ctx, "graphql panic", "panic", v, "stack", string(debug.Stack()))
		return coded("internal_error", "internal error")
	}
}

// presented turns a recovered panic into what the caller may see of it.
func presented(ctx context.Context, exec *executor.Executor, v any) gqlerror.List {
	err, _ := errors.AsType[*gqlerror.Error](exec.PresentRecoveredError(ctx, v))
	if err == nil {
		err = coded("internal_error", "internal error")
	}
	return gqlerror.List{err}
}

func coded(code, message string) *gqlerror.Error {
	return &gqlerror.Error{Message: message, Extensions: map[string]any{"code": code}}
}
