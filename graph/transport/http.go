package transport

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

const (
	mediaJSON    = "application/json"
	mediaGraphQL = "application/graphql-response+json"
)

// requestCodes name why a request could not be read.
var requestCodes = map[int]string{
	http.StatusBadRequest:            "bad_request",
	http.StatusRequestEntityTooLarge: "limit_exceeded",
	http.StatusUnsupportedMediaType:  "unsupported_media_type",
}

// serveRequest answers one operation as the GraphQL over HTTP draft asks
// (https://graphql.github.io/graphql-over-http/draft/).
func (h *Handler) serveRequest(w http.ResponseWriter, r *http.Request) {
	ctx := graphql.StartOperationTrace(r.Context())
	media := negotiate(r.Header.Values("Accept"))
	if media == "" {
		writeError(w, mediaJSON, http.StatusNotAcceptable, "not_acceptable", "accept "+mediaGraphQL+" or "+mediaJSON)
		return
	}
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			panic(v)
		default:
			writeResponse(w, media, http.StatusInternalServerError, errorResponse(presented(ctx, h.exec, v)...))
		}
	}()

	start := graphql.Now()
	params, status, err := h.readRequest(w, r)
	if err != nil {
		writeError(w, media, status, requestCodes[status], err.Error())
		return
	}
	params.Headers = r.Header
	params.ReadTime = graphql.TraceTiming{Start: start, End: graphql.Now()}

	op, errs := h.exec.CreateOperationContext(ctx, params)
	if errs != nil {
		writeExecuted(w, media, h.exec.DispatchError(graphql.WithOperationContext(ctx, op), errs))
		return
	}
	switch kind := op.Operation.Operation; {
	case kind == ast.Subscription:
		writeExecuted(w, media, errorResponse(coded("bad_request", "a subscription needs a websocket")))
		return
	case kind != ast.Query && r.Method == http.MethodGet:
		w.Header().Set("Allow", http.MethodPost)
		writeError(w, media, http.StatusMethodNotAllowed, "method_not_allowed", "a mutation needs POST")
		return
	}
	responses, ctx := h.exec.DispatchOperation(ctx, op)
	resp := responses(ctx)
	if resp == nil { // the caller has gone
		panic(http.ErrAbortHandler)
	}
	writeExecuted(w, media, resp)
}

// readRequest returns the status to answer along with an error.
func (h *Handler) readRequest(w http.ResponseWriter, r *http.Request) (*graphql.RawParams, int, error) {
	if r.Method == http.MethodGet {
		p, err := decodeURL(r.URL.Query())
		return p, http.StatusBadRequest, err
	}
	// A browser posts JSON to another site only after asking it (preflight), which a
	// form or plain text would not need.
	media, attrs, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != mediaJSON || !utf8Charset(attrs) || r.Header.Get("Content-Encoding") != "" {
		return nil, http.StatusUnsupportedMediaType, errors.New("send " + mediaJSON + " in UTF-8")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.config.MaxBodyBytes))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, http.StatusRequestEntityTooLarge, errors.New("the body is too large")
	}
	if err != nil {
		return nil, http.StatusBadRequest, errors.New("the body could not be read")
	}
	p, err := decodeRequest(body)
	return p, http.StatusBadRequest, err
}

// negotiate returns the media type to answer with, or "" if accept allows neither.
// Between equals it prefers the newer one, unless only a wildcard asks for it.
func negotiate(accept []string) string {
	list := strings.Join(accept, ",")
	if strings.TrimSpace(list) == "" {
		return mediaJSON
	}
	best, media := 0.0, ""
	for item := range strings.SplitSeq(list, ",") {
		name, attrs, err := mime.ParseMediaType(item)
		if err != nil || !utf8Charset(attrs) {
			continue
		}
		q := 1.0
		if text, ok := attrs["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		switch name {
		case "*/*", "application/*":
			name = mediaJSON
		case mediaJSON, mediaGraphQL:
		default:
			continue
		}
		if q > best || q == best && q > 0 && name == mediaGraphQL {
			best, media = q, name
		}
	}
	return media
}

func utf8Charset(attrs map[string]string) bool {
	c := attrs["charset"]
	return c == "" || strings.EqualFold(c, "utf-8") || strings.EqualFold(c, "utf8")
}

// writeExecuted answers 200, as clients of application/json expect of anything well
// formed, but 400 to a request error where the media type makes that unambiguous,
// and 429 to one that came too soon: nobody has read it.
func writeExecuted(w http.ResponseWriter, media string, r *graphql.Response) {
	status := http.StatusOK
	switch {
	case requestFailed(r) && r.Errors[0].Extensions["code"] == "rate_limited":
		status = http.StatusTooManyRequests
	case media == mediaGraphQL && requestFailed(r):
		status = http.StatusBadRequest
	}
	writeResponse(w, media, status, r)
}

func writeError(w http.ResponseWriter, media string, status int, code, message string) {
	writeResponse(w, media, status, errorResponse(coded(code, message)))
}

func writeResponse(w http.ResponseWriter, media string, status int, r *graphql.Response) {
	body, err := appendResponse(make([]byte, 0, len(r.Data)+128), r)
	if err != nil { // an extension that is no JSON
		panic(err)
	}
	head := w.Header()
	head.Set("Content-Type", media+"; charset=utf-8")
	head.Set("Content-Length", strconv.Itoa(len(body)))
	head.Add("Vary", "Accept")
	head.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON, marked nosniff; a caller that has gone needs no answer
}
