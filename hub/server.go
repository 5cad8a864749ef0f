package hub

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/mcp"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// Handler serves the hub: the verbs, the feed, keys, health and, when it is not
// nil, metrics. Streams end when done is closed, so that the server can stop.
func (h *Hub) Handler(metrics http.Handler, done <-chan struct{}) http.Handler {
	registry, verifier := h.Verbs(), h.Verifier()
	limiter := verb.NewLimiter(h.config.Limits, h.config.TrustedProxies)
	origins := verb.Origins(h.config.Origins)
	mux := http.NewServeMux()
	verbs := &verb.Server{Registry: registry, Verifier: verifier, Limiter: limiter, Log: h.log}
	mux.Handle(verb.PathPrefix, verbs.Handler())
	mux.Handle(verb.CandidatesPath, verbs.Under(verb.CandidatesPath))
	mux.Handle(mcp.Path, mcp.HTTP(verbs, origins, h.config.Version))
	session := &verb.Session{
		Verifier: verifier, Origins: origins, Limiter: limiter, Log: h.log,
		Mint:   func(_ context.Context, token string) (string, error) { return h.SigningKey().Renew(token) },
		Revoke: verb.RevokeBy(registry),
	}
	mux.Handle(verb.SessionPath, session)
	mux.Handle(verb.SessionPath+"/", session)
	feed := &replicate.Handler{
		Log: h, Logger: h.log, Done: done,
		Scopes: followed,
		Fail: func(w http.ResponseWriter, req *http.Request, err error) {
			verb.WriteError(req.Context(), w, h.log, callerError(err))
		},
	}
	mux.Handle("GET /feed", h.authenticated(verifier, limiter, func(w http.ResponseWriter, req *http.Request) {
		h.metrics.followers.Inc()
		defer h.metrics.followers.Dec()
		ctx, cancel := h.whileAllowed(req.Context())
		defer cancel()
		feed.ServeHTTP(w, req.WithContext(ctx))
	}))
	mux.Handle("GET /feed/backfill", h.authenticated(verifier, limiter, h.backfill(done)))
	mux.Handle("GET /feed/digest", h.authenticated(verifier, limiter, h.serveDigest))
	mux.Handle("POST /feed/rows", h.authenticated(verifier, limiter, h.serveRows))
	mux.Handle(verb.SubscribePath, h.authenticated(verifier, limiter, (&event.Stream{
		Source: h, Log: h.log, Access: h.access.Changed, Done: done, Durable: h.streamConsumer,
	}).ServeHTTP))
	openAPI := registry.OpenAPI(h.config.Version, verb.Examples())
	mux.Handle("GET /openapi.json", limiter.ByAddress(h.log, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		verb.WriteJSON(w, http.StatusOK, openAPI)
	})))
	mux.Handle("POST "+verb.EnrolPath, limiter.ByAddress(h.log, http.HandlerFunc(h.serveEnrol)))
	mux.HandleFunc("GET /.well-known/jwks.json", h.serveKeys)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		verb.WriteJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", h.serveReady)
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	mux.HandleFunc("GET /{$}", h.serveRoot)
	mux.Handle("/", limiter.ByAddress(h.log, verb.NotServed(h.log)))
	return origins.CORS(origins.Cookies(h.log, mux))
}

// whileAllowed returns a context that ends when its caller's token does, or the
// caller's right to the scopes that it follows.
func (h *Hub) whileAllowed(ctx context.Context) (context.Context, context.CancelFunc) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	scopes := c.VisibleScopes()
	go func() {
		end := make(<-chan time.Time)
		if !c.Expires.IsZero() {
			timer := time.NewTimer(time.Until(c.Expires.Add(verb.Leeway)))
			defer timer.Stop()
			end = timer.C
		}
		for {
			changed := h.access.Changed()
			switch err := c.Valid(); {
			case err != nil:
				cancel(err)
				return
			case !slices.Equal(c.VisibleScopes(), scopes):
				cancel(verb.Unauthenticated("the scopes that it may follow have changed"))
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			case <-end:
				cancel(verb.Unauthenticated("the token has expired"))
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// asNode returns the context of a node that shows its credential alone: it
// follows what it is enrolled for.
func (h *Hub) asNode(ctx context.Context, v *verb.Verifier, head http.Header) (context.Context, error) {
	id, _, err := v.VerifyNode(ctx, head.Get(verb.NodeHeader))
	if err != nil {
		return ctx, err
	}
	h.sawNode(ctx, id)
	return verb.WithCaller(ctx, &verb.Caller{
		Actor: artifact.Actor{ID: "node:" + id, Kind: "ai_local"}, Permissions: []verb.Permission{verb.Viewer},
		Access: nodeAccess{&h.access, id}, NodeID: id, Now: artifact.Now(),
	}), nil
}

// nodeAccess is what a node may follow: what it is enrolled for, while it is.
type nodeAccess struct {
	*access
	id string
}

// Roles implements [verb.Access].
func (n nodeAccess) Roles(string) verb.Roles {
	_, scopes, ok := n.Node(n.id)
	roles := make(verb.Roles, len(scopes))
	for _, scope := range scopes {
		if ok && scope != artifact.Commons {
			roles[scope] = []verb.Permission{verb.Viewer}
		}
	}
	return roles
}

// Revoked implements [verb.Access].
func (n nodeAccess) Revoked(verb.TokenID) bool {
	_, _, ok := n.Node(n.id)
	return !ok
}

// authenticated passes on requests with a token that may read, or of a node.
func (h *Hub) authenticated(v *verb.Verifier, l *verb.Limiter, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get(verb.NodeHeader) != "" && req.Header.Get("Authorization") == "" {
			ctx, err := h.asNode(req.Context(), v, req.Header)
			if err != nil {
				verb.WriteError(ctx, w, h.log, l.Refuse(w, req, err))
				return
			}
			next(w, req.WithContext(ctx))
			return
		}
		ctx, caller, err := verb.Authenticate(req.Context(), w, req.Header, v)
		if err == nil {
			err = caller.NeedSomewhere("following the feed", verb.Viewer)
		}
		if err != nil {
			verb.WriteError(ctx, w, h.log, l.Refuse(w, req, err))
			return
		}
		next(w, req.WithContext(ctx))
	}
}

// followed returns the scopes that a request's caller follows.
func followed(req *http.Request) ([]string, error) {
	c, err := verb.CallerFrom(req.Context())
	if err != nil {
		return nil, err
	}
	return c.VisibleScopes(), nil
}

// serveReady says whether the hub can write now, and why not.
func (h *Hub) serveReady(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), 2*time.Second)
	defer cancel()
	head, err := h.Head(ctx)
	if err != nil {
		verb.WriteJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "unavailable", "reason": "the database does not answer"})
		return
	}
	left, err := h.partitionsLeft(ctx)
	if err != nil || left < h.config.PartitionRows {
		verb.WriteJSON(w, http.StatusServiceUnavailable, map[string]any{
			"status": "unavailable", "reason": "the log's partitions run out", "seqs_left": left,
		})
		return
	}
	verb.WriteJSON(w, http.StatusOK, map[string]any{"status": "ready", "head": head, "epoch": h.id.epoch, "hub_id": h.id.hubID})
}

func (h *Hub) serveRoot(w http.ResponseWriter, _ *http.Request) {
	about := map[string]any{
		"name": "SciDEX hub", "version": h.config.Version, "verbs": verb.PathPrefix, "openapi": "/openapi.json",
		"feed": "/feed", "keys": "/.well-known/jwks.json", "health": []string{"/healthz", "/readyz", "/metrics"},
	}
	if h.config.NodeURL != "" {
		about["node"] = h.config.NodeURL
	}
	verb.WriteJSON(w, http.StatusOK, about)
}
