package verb

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
)

// PathPrefix is where the verbs stand: POST /api/scidex/<verb>.
const PathPrefix = "/api/scidex/"

// A Server serves verbs over HTTP.
type Server struct {
	Registry *Registry
	Verifier *Verifier
	Limiter  *Limiter // nil for no limits
	Log      *slog.Logger

	// BodyTimeout bounds how long a body may take to arrive. The default is two
	// minutes: the largest batch, at 1 Mbit/s.
	BodyTimeout time.Duration
}

// Handler serves every bound verb at POST /api/scidex/<verb>, JSON in and out.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Under serves the verbs of one namespace at another path, such as /v1/candidates/.
func (s *Server) Under(path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.serveNamed(w, req, strings.TrimPrefix(req.URL.Path, path[:strings.LastIndexByte(strings.TrimSuffix(path, "/"), '/')+1]))
	})
}

func (s *Server) serve(w http.ResponseWriter, req *http.Request) {
	s.serveNamed(w, req, strings.TrimPrefix(req.URL.Path, PathPrefix))
}

func (s *Server) serveNamed(w http.ResponseWriter, req *http.Request, name string) {
	ctx, caller, err := AuthenticateReader(req.Context(), w, req, s.Verifier, s.Limiter)
	if err != nil {
		WriteError(ctx, w, s.Log, err)
		return
	}
	ctx = WithQuotaHeader(ctx, w.Header())
	b, ok := s.Registry.byName[name]
	class := ClassRead
	if ok {
		class = Class(b.effect)
	}
	if err := s.Limiter.Allow(ctx, caller, class, 1); err != nil {
		WriteError(ctx, w, s.Log, err)
		return
	}
	if !ok {
		WriteError(ctx, w, s.Log, s.Registry.unknownVerb(name))
		return
	}
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		WriteError(ctx, w, s.Log, &artifact.Error{Code: artifact.CodeValidationFailed, Reason: artifact.ReasonMethodNotAllowed, Message: "verbs are called by POST"})
		return
	}
	if err := needJSON(req); err != nil {
		WriteError(ctx, w, s.Log, err)
		return
	}
	limit := int64(MaxRequestBytes)
	if name == Batch.Name {
		limit = MaxBatchBytes
	}
	raw, err := s.ReadBody(w, req, limit)
	if err != nil {
		WriteError(ctx, w, s.Log, err)
		return
	}
	out, err := s.run(ctx, caller, b, raw)
	if err != nil {
		WriteError(ctx, w, s.Log, err)
		return
	}
	w.Header().Set("X-Request-Id", caller.RequestID)
	WriteJSON(w, http.StatusOK, out)
}

// Call runs a verb for the caller in ctx as one that came by HTTP, with the same
// limits, and returns its answer in JSON, or an [artifact.Error]: for other doors.
func (s *Server) Call(ctx context.Context, name string, raw json.RawMessage) (json.RawMessage, error) {
	answer, err := s.call(ctx, name, raw)
	if err != nil {
		return nil, told(ctx, s.Log, err)
	}
	return answer, nil
}

func (s *Server) call(ctx context.Context, name string, raw json.RawMessage) (json.RawMessage, error) {
	caller, err := CallerFrom(ctx)
	if err != nil {
		return nil, err
	}
	b, ok := s.Registry.byName[name]
	if !ok {
		return nil, s.Registry.unknownVerb(name)
	}
	limit := int64(MaxRequestBytes)
	if name == Batch.Name {
		limit = MaxBatchBytes
	}
	if int64(len(raw)) > limit {
		return nil, bodyError(&http.MaxBytesError{Limit: limit}, limit)
	}
	if err := s.Limiter.Allow(ctx, caller, Class(b.effect), 1); err != nil {
		return nil, err
	}
	out, err := s.run(ctx, caller, b, raw)
	if err != nil {
		return nil, err
	}
	return encodeJSON(out)
}

// run runs a verb, one of which the limiter has counted.
func (s *Server) run(ctx context.Context, caller *Caller, b *binding, raw []byte) (any, error) {
	return b.callJSON(ctx, raw, func(in any) error {
		if items := weight(in); items > 1 {
			return s.Limiter.Allow(ctx, caller, Class(b.effect), items-1) // one was counted before it was read
		}
		return nil
	})
}

// ReadBody reads a body of at most limit bytes, and waits no longer for one that
// stalls than BodyTimeout.
func (s *Server) ReadBody(w http.ResponseWriter, req *http.Request, limit int64) ([]byte, error) {
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(cmp.Or(s.BodyTimeout, 2*time.Minute))) // what cannot do that has no connection
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, limit))
	if err != nil {
		return nil, bodyError(err, limit)
	}
	_ = conn.SetReadDeadline(time.Time{})
	return raw, nil
}

func needJSON(req *http.Request) error {
	if coding := req.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonUnsupportedMediaType, Message: "send the body as it is, without a Content-Encoding",
		}
	}
	if mt, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || mt != "application/json" {
		return &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonUnsupportedMediaType, Message: "send the body with Content-Type: application/json",
		}
	}
	return nil
}

func bodyError(err error, limit int64) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonTooLarge,
			Message:  "the body is at most " + strconv.FormatInt(limit, 10) + " bytes",
			Problems: []artifact.Problem{{Constraint: "max_bytes", Message: "the body is too large"}},
		}
	}
	return &artifact.Error{Code: artifact.CodeValidationFailed, Reason: artifact.ReasonUnreadableBody, Message: "the body could not be read"}
}

// Authenticate verifies the bearer token of a request, of which it takes the
// context and the header, and the credential of the node that forwarded it, if
// any. It returns a context with the caller, whose request id it also sets as the
// response's X-Request-Id. The context carries a request id even when there is an
// error.
func Authenticate(ctx context.Context, w http.ResponseWriter, head http.Header, v *Verifier) (context.Context, *Caller, error) {
	id := requestID(head)
	w.Header().Set("X-Request-Id", id)
	ctx = context.WithValue(ctx, requestIDKey{}, id)
	caller, err := v.VerifyRequest(ctx, head, Bearer(head.Get("Authorization")))
	if err != nil {
		return ctx, nil, err
	}
	caller.RequestID, caller.Now = id, artifact.Now()
	return WithCaller(ctx, caller), caller, nil
}

// AuthenticateReader is [Authenticate] for doors that also serve those without a
// token, if the verifier lets them read. Who fails counts against its address, and
// so does who has no token.
func AuthenticateReader(ctx context.Context, w http.ResponseWriter, req *http.Request, v *Verifier, l *Limiter) (context.Context, *Caller, error) {
	if v.AnonymousRead && req.Header.Get("Authorization") == "" && req.Header.Get(NodeHeader) == "" {
		ctx = withRequestID(ctx, w, req.Header)
		if err := l.AllowAddress(w, req); err != nil {
			return ctx, nil, err
		}
		id, _ := ctx.Value(requestIDKey{}).(string)
		c := &Caller{Actor: artifact.Actor{ID: anonymous}, Permissions: []Permission{Viewer}, Anonymous: true, RequestID: id, Now: artifact.Now()}
		return WithCaller(ctx, c), c, nil
	}
	ctx, c, err := Authenticate(ctx, w, req.Header, v)
	if err != nil {
		err = l.Refuse(w, req, err)
	}
	return ctx, c, err
}

// anonymous is the id of callers without a token. No token has it.
const anonymous = "anonymous"

type requestIDKey struct{}

// requestID takes over a request id that another server of the network made, so
// that one id follows a forwarded write.
func requestID(head http.Header) string {
	if id, err := uuid.Parse(head.Get("X-Request-Id")); err == nil {
		return id.String()
	}
	return uuid.NewString()
}

// withRequestID returns the context of a request that nobody has authenticated yet.
func withRequestID(ctx context.Context, w http.ResponseWriter, head http.Header) context.Context {
	id := requestID(head)
	w.Header().Set("X-Request-Id", id)
	return context.WithValue(ctx, requestIDKey{}, id)
}

// WriteError writes an error's body with its status. What is no
// [artifact.Error] is logged and answered as internal_error.
func WriteError(ctx context.Context, w http.ResponseWriter, log *slog.Logger, err error) {
	e := told(ctx, log, err)
	status := Status(e)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="scidex"`)
	}
	if e.RetryAfterMS > 0 {
		w.Header().Set("Retry-After", retryAfter(e))
	}
	WriteJSON(w, status, e)
}

// told returns an error as callers are told it, and logs one that is the program's own.
func told(ctx context.Context, log *slog.Logger, err error) *artifact.Error {
	e := *artifact.AsError(err) // a copy: the request id is this answer's
	if e.RequestID == "" {
		e.RequestID, _ = ctx.Value(requestIDKey{}).(string)
	}
	if e.Code == artifact.CodeInternal && log != nil && ctx.Err() == nil {
		log.ErrorContext(ctx, "request failed", "request_id", e.RequestID, "err", err)
	}
	return &e
}

// retryAfter returns the header's value, in whole seconds.
func retryAfter(e *artifact.Error) string {
	return strconv.FormatInt((e.RetryAfterMS+999)/1000, 10)
}

// NotServed answers requests for paths that a server does not have.
func NotServed(log *slog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		WriteError(withRequestID(req.Context(), w, req.Header), w, log, &artifact.Error{Code: artifact.CodeNotFound, Reason: artifact.ReasonUnknownPath, Message: "nothing is served here"})
	}
}

// WriteJSON answers with v as JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	raw, err := encodeJSON(v)
	if err != nil {
		status, raw = http.StatusInternalServerError, []byte(`{"error":"internal_error","message":"the answer could not be encoded"}`)
	}
	w.WriteHeader(status)
	_, _ = w.Write(raw) //nolint:gosec // JSON, and said to be; the client may be gone: nobody is left to tell
}

// encodeJSON encodes an answer, in one line.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
