package verb

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/scidex-ai/substrate/artifact"
)

// Origins are the web origins, beside a server's own, whose pages may call it with
// the caller's cookie and read what it answers.
type Origins []string

// ParseOrigins checks origins such as https://prism.example and returns them as
// browsers write them, each once. There is no wildcard: pages bring credentials.
func ParseOrigins(texts []string) ([]string, error) {
	var origins []string
	for _, text := range texts {
		o, err := parseOrigin(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(origins, o) {
			origins = append(origins, o)
		}
	}
	return origins, nil
}

func parseOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		!strings.EqualFold(text, u.Scheme+"://"+u.Host) || strings.HasSuffix(u.Host, ":") ||
		strings.ContainsFunc(u.Host, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-:[]_", r)
		}) {
		return "", fmt.Errorf("origin %q: give one such as https://prism.example, without a path or wildcard", text)
	}
	host := strings.ToLower(u.Host)
	if p := u.Port(); u.Scheme == "http" && p == "80" || u.Scheme == "https" && p == "443" {
		host = strings.TrimSuffix(host, ":"+p) // browsers leave it out
	}
	return u.Scheme + "://" + host, nil
}

// Has reports whether a header's Origin is one of o.
func (o Origins) Has(origin string) bool { return origin != "" && slices.Contains(o, origin) }

var crossOrigin http.CrossOriginProtection

// Check returns a permission_denied error for a request that a page of another
// origin makes a browser send, if it is one that may change something or opens a
// websocket. Requests that no browser sent pass.
func (o Origins) Check(req *http.Request) error {
	if o.Has(req.Header.Get("Origin")) {
		return nil
	}
	if crossOrigin.Check(req) == nil && (!upgrades(req) || ownOrigin(req)) {
		return nil
	}
	return &artifact.Error{
		Code: artifact.CodePermissionDenied, Reason: artifact.ReasonCrossOrigin,
		Message: "pages of this origin may not call with a cookie; the server's --origin lets them",
	}
}

// upgrades reports whether a request asks for a websocket. It is a GET, which
// browsers send across origins without asking.
func upgrades(req *http.Request) bool { return req.Header.Get("Upgrade") != "" }

// ownOrigin reports whether a request comes from a page of the server itself, or
// from no page. Browsers state the origin of every websocket.
func ownOrigin(req *http.Request) bool {
	origin := req.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, req.Host)
}

// The headers that pages may send and read beside those that they always may.
var (
	corsMethods = "GET, POST, PUT, DELETE"
	corsSent    = "Authorization, Content-Type, SciDEX-Consistency, Last-Event-ID, Idempotency-Key, X-Request-Id, Mcp-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name"
	corsRead    = "X-Request-Id, Retry-After, RateLimit, RateLimit-Policy, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset"
)

// CORS lets pages of the origins call next with credentials and read its answers,
// and answers their preflight requests (https://fetch.spec.whatwg.org/#http-cors-protocol).
func (o Origins) CORS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		head := w.Header()
		head.Add("Vary", "Origin")
		origin := req.Header.Get("Origin")
		preflight := req.Method == http.MethodOptions && req.Header.Get("Access-Control-Request-Method") != ""
		switch {
		case o.Has(origin):
			head.Set("Access-Control-Allow-Origin", origin)
			head.Set("Access-Control-Allow-Credentials", "true")
			head.Set("Access-Control-Expose-Headers", corsRead)
			if preflight {
				head.Set("Access-Control-Allow-Methods", corsMethods)
				head.Set("Access-Control-Allow-Headers", corsSent)
				head.Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		case preflight:
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// isLoopback reports whether a request's host, with or without a port, is the
// machine itself.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
