package verb

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// SessionPath is where a browser gives its token for a cookie. Below it stand
// refresh and logout.
const SessionPath = "/auth/session"

// A Session serves [SessionPath]: POST takes a token and sets the cookie, GET says
// whose the cookie is, POST refresh renews the token, DELETE or POST logout revokes
// it. Cookie callers never see their token, or any script that runs in their page
// could send it elsewhere.
type Session struct {
	Verifier *Verifier
	Origins  Origins
	Limiter  *Limiter
	Log      *slog.Logger
	// Mint returns a new token with the claims of one that is valid: see
	// [Key.Renew] at a hub and [Client.Renew] at a node.
	Mint func(ctx context.Context, token string) (string, error)
	// Revoke makes the caller's token count no more: see [RevokeBy].
	Revoke func(ctx context.Context, c *Caller) error
}

// SessionInfo is what a session's answers tell.
type SessionInfo struct {
	Agent       artifact.Actor `json:"agent"`
	Permissions []Permission   `json:"permissions"` // in commons
	Scopes      []string       `json:"scopes"`      // that the caller may read
	ExpiresAt   time.Time      `json:"expires_at"`
	SessionID   string         `json:"session_id"`
	Token       string         `json:"token,omitempty"` // the new one, for callers who brought theirs in a header
}

type sessionRequest struct {
	Token string `json:"token"`
}

var sessionCodec = newCodec[sessionRequest](SessionPath)

func (s *Session) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx := WithQuotaHeader(withRequestID(req.Context(), w, req.Header), w.Header())
	req = req.WithContext(ctx)
	w.Header().Set("Cache-Control", "no-store")
	var answer any
	err := s.Origins.Check(req)
	if err == nil {
		switch req.Method + " " + req.URL.Path {
		case "POST " + SessionPath:
			answer, err = s.open(w, req)
		case "GET " + SessionPath:
			answer, err = s.show(w, req)
		case "POST " + SessionPath + "/refresh":
			answer, err = s.refresh(w, req)
		case "DELETE " + SessionPath, "POST " + SessionPath + "/logout":
			answer, err = s.end(w, req)
		default:
			err = &artifact.Error{Code: artifact.CodeNotFound, Reason: artifact.ReasonUnknownPath, Message: "nothing is served here"}
		}
	}
	if err != nil {
		WriteError(ctx, w, s.Log, err)
		return
	}
	WriteJSON(w, http.StatusOK, answer)
}

func (s *Session) open(w http.ResponseWriter, req *http.Request) (any, error) {
	if err := s.Limiter.AllowAddress(w, req); err != nil {
		return nil, err
	}
	if err := needJSON(req); err != nil {
		return nil, err
	}
	const limit = maxToken + 1<<10
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, limit))
	if err != nil {
		return nil, bodyError(err, limit)
	}
	var in sessionRequest
	if err := checkRequest(raw); err != nil {
		return nil, err
	}
	if err := sessionCodec.decode(raw, &in); err != nil {
		return nil, err
	}
	c, err := s.verify(req.Context(), req.Header, in.Token)
	if err != nil {
		return nil, err
	}
	return describe(c), setCookie(w, req, c)
}

func (s *Session) show(w http.ResponseWriter, req *http.Request) (any, error) {
	c, err := s.caller(w, req, ClassRead)
	if err != nil {
		return nil, err
	}
	return describe(c), nil
}

func (s *Session) refresh(w http.ResponseWriter, req *http.Request) (any, error) {
	old, err := s.caller(w, req, ClassWrite)
	if err != nil {
		return nil, err
	}
	if old.TokenID.Issuer != "" {
		return nil, &artifact.Error{
			Code: artifact.CodePermissionDenied, Reason: artifact.ReasonRefreshElsewhere,
			Message: "this token is renewed where it was issued", Details: map[string]any{"issuer": old.TokenID.Issuer},
		}
	}
	ctx := WithCaller(req.Context(), old)
	token, err := s.Mint(ctx, old.Token)
	if err != nil {
		return nil, err
	}
	c, err := s.verify(ctx, req.Header, token)
	if err != nil {
		return nil, err
	}
	info := describe(c)
	if _, cookie := credential(req); cookie {
		return info, setCookie(w, req, c)
	}
	info.Token = token
	return info, nil
}

// end clears the cookie whatever comes of the revocation.
func (s *Session) end(w http.ResponseWriter, req *http.Request) (any, error) {
	clearCookie(w, req)
	c, err := s.caller(w, req, ClassWrite)
	if err != nil && artifact.AsError(err).Reason == artifact.ReasonUnauthenticated {
		return map[string]any{"revoked": false}, nil // it counts no more as it is
	}
	if err != nil {
		return nil, err
	}
	if err := s.Revoke(req.Context(), c); err != nil {
		return nil, err
	}
	return map[string]any{"revoked": true}, nil
}

// caller returns who brought a token in a header or the cookie.
func (s *Session) caller(w http.ResponseWriter, req *http.Request, class Class) (*Caller, error) {
	token, _ := credential(req)
	c, err := s.verify(req.Context(), req.Header, token)
	if err != nil {
		return nil, s.Limiter.Refuse(w, req, err)
	}
	return c, s.Limiter.Allow(req.Context(), c, class, 1)
}

func (s *Session) verify(ctx context.Context, head http.Header, token string) (*Caller, error) {
	c, err := s.Verifier.VerifyRequest(ctx, head, token)
	if err != nil {
		return nil, err
	}
	c.RequestID, _ = ctx.Value(requestIDKey{}).(string)
	c.Now = artifact.Now()
	return c, nil
}

func describe(c *Caller) SessionInfo {
	return SessionInfo{
		Agent: c.Actor, Permissions: append([]Permission{}, c.Permissions...), Scopes: append([]string{}, c.VisibleScopes()...),
		ExpiresAt: c.Expires.UTC(), SessionID: c.SessionID,
	}
}
