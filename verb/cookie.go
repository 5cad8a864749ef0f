package verb

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/scidex-ai/substrate/artifact"
)

// CookieName is the cookie that holds a browser's token. Scripts cannot read it.
const CookieName = "scidex_jwt"

// maxCookieToken is the longest token that browsers keep in a cookie, in bytes:
// they drop cookies above 4096 with their name, and say nothing (RFC 6265bis §5.6).
const maxCookieToken = 4096 - len(CookieName) - 1

type fromCookieKey struct{}

// FromCookie reports whether the token of a request came as a cookie.
func FromCookie(ctx context.Context) bool {
	yes, _ := ctx.Value(fromCookieKey{}).(bool)
	return yes
}

// Cookies makes the cookie of a request without an Authorization header count as
// one, whatever next serves. A browser sends the cookie along with what pages of
// other origins ask for, so such requests are refused if they may change something
// or open a websocket; others get no answer that those pages could read.
func (o Origins) Cookies(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c, err := req.Cookie(CookieName)
		if err != nil || req.Header.Get("Authorization") != "" {
			next.ServeHTTP(w, req)
			return
		}
		if err := o.Check(req); err != nil {
			WriteError(withRequestID(req.Context(), w, req.Header), w, log, err)
			return
		}
		req = req.Clone(context.WithValue(req.Context(), fromCookieKey{}, true))
		req.Header.Set("Authorization", "Bearer "+c.Value)
		next.ServeHTTP(w, req)
	})
}

// credential returns the token of a request and whether it came as a cookie.
func credential(req *http.Request) (token string, cookie bool) {
	if h := req.Header.Get("Authorization"); h != "" {
		return Bearer(h), FromCookie(req.Context())
	}
	if c, err := req.Cookie(CookieName); err == nil {
		return c.Value, true
	}
	return "", false
}

// setCookie gives a browser the caller's token until that ends.
func setCookie(w http.ResponseWriter, req *http.Request, c *Caller) error {
	if len(c.Token) > maxCookieToken {
		return &artifact.Error{
			Code: artifact.CodeValidationFailed, Reason: artifact.ReasonTokenTooLong,
			Message: "browsers keep no cookie as long as this token; use one with fewer scopes or steps of delegation",
		}
	}
	http.SetCookie(w, newCookie(req, c.Token, max(1, int(time.Until(c.Expires).Seconds()))))
	return nil
}

func clearCookie(w http.ResponseWriter, req *http.Request) {
	http.SetCookie(w, newCookie(req, "", -1))
}

// newCookie returns a cookie that goes over TLS only, unless the browser runs on
// the server's own machine.
func newCookie(req *http.Request, value string, maxAge int) *http.Cookie {
	plain := req.TLS == nil && req.Header.Get("X-Forwarded-Proto") != "https" && isLoopback(req.Host)
	return &http.Cookie{ //nolint:gosec // Secure is left out on loopback without TLS alone
		Name: CookieName, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: !plain,
	}
}
