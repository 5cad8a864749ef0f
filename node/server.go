package node

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/uuid"
	"github.com/gorilla/websocket"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/graph"
	"github.com/scidex-ai/substrate/graph/transport"
	"github.com/scidex-ai/substrate/mcp"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// A Server serves a node over HTTP.
type Server struct {
	http.Handler
	graphql *transport.Handler
	done    chan struct{} // closed when streams are to end
	ended   sync.Once
}

// Shutdown ends streams of events and websockets, which http.Server does not know
// of, and waits for their operations. Call it before the http.Server's own.
func (s *Server) Shutdown(ctx context.Context) error {
	s.ended.Do(func() { close(s.done) })
	return s.graphql.Shutdown(ctx)
}

// Server returns what serves the node: GraphQL, the verbs (reads here, writes
// forwarded), health and, when it is not nil, metrics.
func (n *Node) Server(metrics http.Handler) *Server {
	done := make(chan struct{})
	registry := n.verbs()
	limiter := verb.NewLimiter(n.config.Limits, n.config.TrustedProxies)
	origins := verb.Origins(n.config.Origins)
	present := graph.ErrorPresenter(n.log)
	limit := limited(limiter, present)
	gql := transport.New(graph.NewSchema(&graph.Resolver{
		Replica: n, Reads: registry, Hub: n.hub, Log: n.log, WriteWait: n.config.WriteWait,
	}), transport.Config{
		Introspection:  n.config.Introspection,
		ErrorPresenter: present,
		Around: func(ctx context.Context, next graphql.OperationHandler) graphql.ResponseHandler {
			return withRequestID(ctx, func(ctx context.Context) graphql.ResponseHandler { return limit(ctx, next) })
		},
		Extensions: []graphql.HandlerExtension{graph.ReplicaExtension{Freshness: func() (artifact.Seq, int64, bool) {
			f := n.freshness()
			return f.applied, f.lag.Milliseconds(), f.stale
		}}},
		Websocket: transport.Websocket{
			Init: n.initSocket, Log: n.log,
			Valid: stillAllowed, Changed: n.access.Changed,
			CheckOrigin: func(req *http.Request) bool { return origins.Check(req) == nil },
		},
		Log: n.log,
	})
	mux := http.NewServeMux()
	mux.Handle("/graphql", n.begun(limiter, n.authenticated(limiter, n.consistent(gql))))
	verbs := &verb.Server{Registry: registry, Verifier: n.verifier, Limiter: limiter, Log: n.log}
	mux.Handle(verb.PathPrefix, n.begun(limiter, n.consistent(verbs.Handler())))
	mux.Handle(verb.CandidatesPath, n.begun(limiter, n.consistent(verbs.Under(verb.CandidatesPath))))
	mux.Handle(mcp.Path, n.begun(limiter, n.consistent(mcp.HTTP(verbs, origins, n.config.Version))))
	mux.Handle(verb.SubscribePath, n.begun(limiter, n.authenticated(limiter, n.consistent(&event.Stream{
		Source: n, Log: n.log, Access: n.access.Changed, Done: done, Durable: n.consumers.streamOffline, Pass: n.consumers.pass(done),
	}))))
	mux.Handle(verb.SessionPath, n.begun(limiter, n.session(limiter)))
	mux.Handle(verb.SessionPath+"/", n.begun(limiter, n.session(limiter)))
	openAPI := registry.OpenAPI(n.config.Version, verb.Examples())
	mux.Handle("GET /openapi.json", limiter.ByAddress(n.log, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		verb.WriteJSON(w, http.StatusOK, openAPI)
	})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		verb.WriteJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", n.serveReady)
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		verb.WriteJSON(w, http.StatusOK, map[string]any{
			"name": "SciDEX node", "version": n.config.Version, "graphql": "/graphql", "verbs": verb.PathPrefix,
			"openapi": "/openapi.json", "health": []string{"/healthz", "/readyz", "/metrics"},
		})
	})
	mux.Handle("/", limiter.ByAddress(n.log, verb.NotServed(n.log)))
	return &Server{Handler: origins.CORS(origins.Cookies(n.log, mux)), graphql: gql, done: done}
}

// verbs binds the read verbs to the replica and the write verbs to the hub.
func (n *Node) verbs() *verb.Registry {
	r := new(verb.Registry)
	bindReads(r, n.hub, n.lease)
	verb.Bind(r, verb.Poll, event.Poller{Source: n, Durable: n.consumers.poll, Elsewhere: func(ctx context.Context, in verb.PollRequest) bool {
		return n.elsewhere(ctx, in.Types, in.IncludePrivate)
	}}.Poll)
	forward(r, verb.Create, n.hub)
	forward(r, verb.Update, n.hub)
	forward(r, verb.Link, n.hub)
	forward(r, verb.Signal, n.hub)
	forward(r, verb.Batch, n.hub)
	forward(r, verb.Supersede, n.hub)
	forward(r, verb.Comment, n.hub)
	forward(r, verb.Unlink, n.hub)
	forward(r, verb.Cite, n.hub)
	forward(r, verb.Move, n.hub)
	forward(r, verb.Redact, n.hub)
	forward(r, verb.ScopesCreate, n.hub)
	forward(r, verb.ScopesGrant, n.hub)
	forward(r, verb.ScopesRevoke, n.hub)
	forward(r, verb.TokensRevoke, n.hub)
	forward(r, verb.AgentsUpdate, n.hub)
	forward(r, verb.AgentsRegister, n.hub)
	forward(r, verb.ConsumersGet, n.hub)
	verb.Bind(r, verb.ConsumersAdvance, n.consumers.advance)
	forward(r, verb.ConsumersRefuse, n.hub)
	verb.Bind(r, verb.ConsumersRewind, n.consumers.rewind)
	forward(r, verb.ConsumersDeadLetters, n.hub)
	forward(r, verb.ConsumersReplay, n.hub)
	verb.Bind(r, verb.ConsumersDelete, n.consumers.remove)
	forward(r, verb.MessagesSend, n.hub)
	forward(r, verb.MessagesList, n.hub)
	forward(r, verb.MessagesAck, n.hub)
	forward(r, verb.Mailbox, n.hub)
	forward(r, verb.CandidatesList, n.hub)
	forward(r, verb.CandidatesGet, n.hub)
	forward(r, verb.CandidatesHistory, n.hub)
	forward(r, verb.CandidatesRevise, n.hub)
	forward(r, verb.CandidatesApprove, n.hub)
	forward(r, verb.CandidatesReject, n.hub)
	forward(r, verb.NodesInvite, n.hub)
	forward(r, verb.NodesList, n.hub)
	forward(r, verb.NodesRevoke, n.hub)
	return r
}

// forward binds a verb to the hub, which is called with the caller's own token.
func forward[In, Out any](r *verb.Registry, v verb.Verb[In, Out], hub verb.Invoker) {
	verb.Bind(r, v, func(ctx context.Context, in In) (Out, error) { return v.Call(ctx, hub, in) })
}

// begun refuses requests while there is no replica: it is what says who may do
// what.
func (n *Node) begun(l *verb.Limiter, next http.Handler) http.Handler {
	refuse := l.ByAddress(n.log, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		verb.WriteError(req.Context(), w, n.log, n.bootstrapping())
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if n.held.load() == nil {
			refuse.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// authenticated passes on requests with a token. A websocket may come without
// one, or with a cookie that has ended, and bring it in connection_init.
func (n *Node) authenticated(l *verb.Limiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		upgrade := websocket.IsWebSocketUpgrade(req)
		if upgrade && req.Header.Get("Authorization") == "" {
			l.ByAddress(n.log, next).ServeHTTP(w, req)
			return
		}
		if req.Method == http.MethodOptions {
			next.ServeHTTP(w, req)
			return
		}
		if upgrade && verb.FromCookie(req.Context()) {
			if _, err := n.verifier.VerifyRequest(req.Context(), req.Header, verb.Bearer(req.Header.Get("Authorization"))); err != nil {
				l.ByAddress(n.log, next).ServeHTTP(w, req)
				return
			}
		}
		ctx, caller, err := verb.AuthenticateReader(req.Context(), w, req, n.verifier, l)
		if err == nil {
			err = caller.NeedSomewhere("reading", verb.Viewer)
		}
		if err != nil {
			verb.WriteError(ctx, w, n.log, err)
			return
		}
		if !upgrade { // a socket's operations run side by side, after its header was sent
			ctx = verb.WithQuotaHeader(ctx, w.Header())
		}
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// consistencyHeader carries the consistencyToken of a write: the answer is read
// from a replica that has it.
const consistencyHeader = "SciDEX-Consistency"

// consistencyWait bounds how long a request waits for the replica.
const consistencyWait = time.Second

// consistent makes a request with a consistency token wait for the replica, and
// refuses it when that does not come in time.
func (n *Node) consistent(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if token := req.Header.Get(consistencyHeader); token != "" {
			if err := n.waitFor(req.Context(), token); err != nil {
				verb.WriteError(req.Context(), w, n.log, err)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

func (n *Node) waitFor(ctx context.Context, token string) error {
	epoch, seq, err := replicate.ParseToken(token)
	if err != nil {
		return err
	}
	behind := &artifact.Error{
		Code: artifact.CodeUnavailable, Reason: artifact.ReasonReplicaBehind, Retryable: true, RetryAfterMS: consistencyWait.Milliseconds(),
		Message: "the replica does not have the write yet", Details: map[string]any{"applied_seq": n.applied(), "wanted_seq": seq},
	}
	store, err := n.lease()
	if err != nil {
		return err
	}
	defer store.uses.done()
	p, err := store.Position(ctx)
	switch {
	case err != nil:
		return err
	case epoch > p.Epoch:
		return behind
	case epoch != 0 && epoch < p.Epoch: // of a write before the hub was restored, which may be lost
		if err := store.checkCursor(ctx, seq); err != nil && artifact.AsError(err).Details["oldest"] == nil {
			return err // what is no longer told of has not been lost
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, consistencyWait)
	defer cancel()
	if n.WaitApplied(ctx, seq) != nil {
		return behind
	}
	return nil
}

// initSocket authenticates a websocket by the token of connection_init, or by
// that of the upgrade request.
func (n *Node) initSocket(ctx context.Context, _ *http.Request, payload map[string]any) (context.Context, time.Time, error) {
	token := ""
	for _, key := range []string{"authorization", "Authorization", "token"} {
		if s, ok := payload[key].(string); ok && token == "" {
			if token = verb.Bearer(s); token == "" && key == "token" {
				token = s
			}
		}
	}
	if token == "" {
		if c, err := verb.CallerFrom(ctx); err == nil {
			own := *c
			own.RequestID = "" // that of the upgrade; each operation gets its own
			return verb.WithCaller(ctx, &own), c.Expires, nil
		}
	}
	c, err := n.verifier.Verify(ctx, token)
	if err == nil {
		err = c.NeedSomewhere("reading", verb.Viewer)
	}
	if err != nil {
		return ctx, time.Time{}, err
	}
	c.RequestID = "" // each operation gets one of its own
	return verb.WithCaller(ctx, c), c.Expires, nil
}

// stillAllowed reports whether a socket's caller may still be served. What it may
// see, each operation asks for itself.
func stillAllowed(ctx context.Context) error {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return err
	}
	if err := c.Valid(); err != nil {
		return err
	}
	return c.NeedSomewhere("reading", verb.Viewer)
}

// withRequestID gives each operation of a socket a request id of its own.
func withRequestID(ctx context.Context, next graphql.OperationHandler) graphql.ResponseHandler {
	if c, err := verb.CallerFrom(ctx); err == nil && c.RequestID == "" {
		own := *c
		own.RequestID, own.Now = uuid.NewString(), artifact.Now()
		ctx = verb.WithCaller(ctx, &own)
	}
	return next(ctx)
}

// serveReady says whether the node can answer reads, and how fresh they are.
func (n *Node) serveReady(w http.ResponseWriter, _ *http.Request) {
	f, building := n.freshness(), n.progress.now()
	status, code := "ready", http.StatusOK
	switch {
	case n.held.load() == nil:
		status, code = "bootstrapping", http.StatusServiceUnavailable
	case f.stale, n.trouble(&f) != "":
		status = "degraded" // reads go on
	}
	about := map[string]any{
		"status": status, "applied_seq": f.applied, "hub_seq": f.head, "lag_events": f.head - f.applied,
		"lag_ms": f.lag.Milliseconds(), "stale": f.stale,
	}
	if building.Reason != "" {
		about["building"], about["reason"] = building, building.Reason
	}
	if trouble := n.trouble(&f); trouble != "" {
		about["reason"] = trouble
	}
	if c := n.checkup(); c != nil {
		about["self_check"] = c
	}
	verb.WriteJSON(w, code, about)
}
