package hub

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// maxRowsBody bounds a question for rows.
const maxRowsBody = 1 << 20

// serveDigest answers GET /feed/digest: the digest at a seq; with a scope, kind and
// type what ranges of keys came to, or with list the rows of one.
func (h *Hub) serveDigest(w http.ResponseWriter, req *http.Request) {
	answer, err := h.digestFor(req)
	if err != nil {
		verb.WriteError(req.Context(), w, h.log, callerError(err))
		return
	}
	verb.WriteJSON(w, http.StatusOK, answer)
}

func (h *Hub) digestFor(req *http.Request) (any, error) {
	scopes, err := h.follows(req)
	if err != nil {
		return nil, err
	}
	q := req.URL.Query()
	at, err := number(q.Get("seq"), "/seq")
	if err != nil {
		return nil, err
	}
	if q.Get("kind") == "" {
		if err := h.checkChain(req.Context(), artifact.Seq(at), q.Get("chain")); err != nil {
			return nil, err
		}
		return h.Digest(req.Context(), scopes, artifact.Seq(at))
	}
	r := replicate.KeyRange{After: q.Get("after"), To: q.Get("to")}
	r.Scope, r.Kind, r.Type = q.Get("scope"), q.Get("kind"), q.Get("type")
	if !slices.Contains(scopes, r.Scope) {
		return nil, artifact.NotFound("scope:" + r.Scope)
	}
	if q.Has("list") {
		return h.Listing(req.Context(), r, artifact.Seq(at))
	}
	n, err := number(q.Get("buckets"), "/buckets")
	if err != nil {
		return nil, err
	}
	return h.Buckets(req.Context(), r, int(min(n, maxBuckets)), artifact.Seq(at))
}

// number reads a parameter; 0 when it is not given.
func number(s, path string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, artifact.Invalid(artifact.Problem{Path: path, Constraint: "integer", Message: "an integer from 0", Value: artifact.Received(s)})
	}
	return n, nil
}

// serveRows answers POST /feed/rows: things as the tables hold them.
func (h *Hub) serveRows(w http.ResponseWriter, req *http.Request) {
	answer, err := h.rowsFor(w, req)
	if err != nil {
		verb.WriteError(req.Context(), w, h.log, callerError(err))
		return
	}
	verb.WriteJSON(w, http.StatusOK, answer)
}

func (h *Hub) rowsFor(w http.ResponseWriter, req *http.Request) (out replicate.StoredRows, err error) {
	scopes, err := h.follows(req)
	if err != nil {
		return out, err
	}
	var r replicate.RowsRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxRowsBody)).Decode(&r); err != nil {
		return out, &artifact.Error{Code: artifact.CodeValidationFailed, Reason: artifact.ReasonInvalidJSON, Message: "the body is no question for rows: " + err.Error()}
	}
	if !slices.Contains(scopes, r.Scope) {
		return out, artifact.NotFound("scope:" + r.Scope)
	}
	return h.Stored(req.Context(), r)
}

// follows returns the scopes that a request's caller follows, of the hub and epoch
// that it means.
func (h *Hub) follows(req *http.Request) ([]string, error) {
	q := req.URL.Query()
	if id := q.Get("hub"); id != "" && id != h.id.hubID {
		return nil, foreignHub()
	}
	if epoch, err := number(q.Get("epoch"), "/epoch"); err != nil {
		return nil, err
	} else if epoch != 0 && int(epoch) != h.id.epoch {
		return nil, &artifact.Error{Code: artifact.CodeVersionConflict, Reason: artifact.ReasonCursorDiverged, Message: "the hub was restored since"}
	}
	return followed(req)
}

// checkChain refuses a place where the log took another course.
func (h *Hub) checkChain(ctx context.Context, at artifact.Seq, chain string) error {
	if chain == "" || at == 0 {
		return nil
	}
	p := replicate.Position{Seq: at}
	var err error
	if p.Chain, err = artifact.ParseHash(chain); err != nil {
		return err
	}
	first, last, err := bounds(ctx, h.db)
	if err != nil {
		return err
	}
	floor, err := floorOf(ctx, h.db, first)
	if err != nil {
		return err
	}
	return h.checkPosition(ctx, &p, floor, last)
}
