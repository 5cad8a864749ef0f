package hub

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// Handler serves the hub: the verbs, the feed, keys, health and, when it is not
// nil, metrics. Streams end when done is closed, so that the server can stop.
func (h *Hub) Handler(metrics http.Handler, done <-chan struct{}) http.Handler {
	registry, verifier := h.Verbs(), h.Verifier()
	mux := http.NewServeMux()
	mux.Handle(verb.PathPrefix, (&verb.Server{Registry: registry, Verifier: verifier, Log: h.log}).Handler())
	feed := &replicate.Handler{
		Log: h, Logger: h.log, Done: done,
		Scopes: followed,
		Fail: func(w http.ResponseWriter, req *http.Request, err error) {
			verb.WriteError(req.Context(), w, h.log, callerError(err))
		},
	}
	mux.Handle("GET /feed", h.authenticated(verifier, func(w http.ResponseWriter, req *http.Request) {
		h.metrics.followers.Inc()
		defer h.metrics.followers.Dec()
		ctx := req.Context()
		if c, err := verb.CallerFrom(ctx); err == nil && !c.Expires.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, c.Expires.Add(clockLeeway)) // no stream outlives its token
			defer cancel()
		}
		feed.ServeHTTP(w, req.WithContext(ctx))
	}))
	mux.Handle("GET /feed/digest", h.authenticated(verifier, h.serveDigest))
	openAPI := registry.OpenAPI(h.config.Version)
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) { verb.WriteJSON(w, http.StatusOK, openAPI) })
	mux.HandleFunc("GET /.well-known/jwks.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=60")
		verb.WriteJSON(w, http.StatusOK, h.JWKS())
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		verb.WriteJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", h.serveReady)
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	mux.HandleFunc("GET /{$}", h.serveRoot)
	mux.HandleFunc("/", verb.NotServed(h.log))
	return mux
}

// clockLeeway is how long after its end a token is still taken, for clocks that
// differ.
const clockLeeway = 30 * time.Second

// authenticated passes on requests with a token that may read.
func (h *Hub) authenticated(v *verb.Verifier, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		ctx, caller, err := verb.Authenticate(req.Context(), w, req.Header, v)
		if err == nil {
			err = caller.Need(verb.Viewer, "following the feed")
		}
		if err != nil {
			verb.WriteError(ctx, w, h.log, err)
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

func (h *Hub) serveDigest(w http.ResponseWriter, req *http.Request) {
	scopes, err := followed(req)
	if hub := req.URL.Query().Get("hub"); hub != "" && hub != h.id.hubID && err == nil {
		err = foreignHub()
	}
	var at int64
	if s := req.URL.Query().Get("seq"); s != "" && err == nil {
		if at, err = strconv.ParseInt(s, 10, 64); err != nil || at < 0 {
			err = artifact.Invalid(artifact.Problem{Path: "/seq", Constraint: "integer", Message: "a seq is an integer from 0", Value: artifact.Received(s)})
		}
	}
	if err != nil {
		verb.WriteError(req.Context(), w, h.log, err)
		return
	}
	d, err := h.Digest(req.Context(), scopes, artifact.Seq(at))
	if err != nil {
		verb.WriteError(req.Context(), w, h.log, callerError(err))
		return
	}
	verb.WriteJSON(w, http.StatusOK, d)
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
