package verb_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/scidex-ai/substrate/verb"
)

func TestParseOrigins(t *testing.T) {
	got, err := verb.ParseOrigins([]string{"https://prism.example", "HTTPS://Prism.Example:443", "http://localhost:5173", "http://[::1]:80"})
	if want := []string{"https://prism.example", "http://localhost:5173", "http://[::1]"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("ParseOrigins = %q, %v; want %q", got, err, want)
	}
	for _, bad := range []string{
		"", "*", "null", "prism.example", "https://", "https://*.example", "https://prism.example/", "https://prism.example?x", "https://prism.example#x",
		"https://me@prism.example", "ftp://prism.example", "https://prism.example:", "https://prism.example, https://b.example", "https://prísm.example",
	} {
		if got, err := verb.ParseOrigins([]string{bad}); err == nil {
			t.Errorf("ParseOrigins(%q) = %q, want an error", bad, got)
		}
	}
}

func TestCORS(t *testing.T) {
	served := 0
	h := verb.Origins{prism}.CORS(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	for _, tt := range []struct {
		name, method, origin, asks string
		status                     int
		allowed, served            bool
	}{
		{name: "a preflight of the origin", method: "OPTIONS", origin: prism, asks: "POST", status: 204, allowed: true},
		{name: "a preflight of another", method: "OPTIONS", origin: "https://evil.example", asks: "POST", status: 403},
		{name: "a preflight of none", method: "OPTIONS", origin: "null", asks: "POST", status: 403},
		{name: "a request of the origin", method: "POST", origin: prism, status: 200, allowed: true, served: true},
		{name: "a request of another", method: "POST", origin: "https://evil.example", status: 200, served: true},
		{name: "a request of a null origin", method: "POST", origin: "null", status: 200, served: true},
		{name: "a request of no browser", method: "POST", status: 200, served: true},
		{name: "an OPTIONS that is no preflight", method: "OPTIONS", status: 200, served: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), tt.method, "http://node.example/graphql", http.NoBody)
			for name, value := range map[string]string{"Origin": tt.origin, "Access-Control-Request-Method": tt.asks} {
				if value != "" {
					req.Header.Set(name, value)
				}
			}
			served = 0
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			head := w.Header()
			if w.Code != tt.status || served == 1 != tt.served || head.Get("Vary") != "Origin" {
				t.Errorf("%d, served %d times, Vary %q", w.Code, served, head.Get("Vary"))
			}
			origin, credentials := "", ""
			if tt.allowed {
				origin, credentials = prism, "true"
			}
			if head.Get("Access-Control-Allow-Origin") != origin || head.Get("Access-Control-Allow-Credentials") != credentials {
				t.Errorf("headers %v", head)
			}
			if tt.status == http.StatusNoContent {
				for _, name := range []string{"Authorization", "Content-Type", "SciDEX-Consistency", "Last-Event-ID"} {
					if !strings.Contains(head.Get("Access-Control-Allow-Headers"), name) {
						t.Errorf("%s may not be sent", name)
					}
				}
				if head.Get("Access-Control-Max-Age") == "" || !strings.Contains(head.Get("Access-Control-Allow-Methods"), "DELETE") {
					t.Errorf("headers %v", head)
				}
			}
			if tt.allowed && !strings.Contains(head.Get("Access-Control-Expose-Headers"), "X-Request-Id, Retry-After, RateLimit") {
				t.Errorf("exposed: %q", head.Get("Access-Control-Expose-Headers"))
			}
		})
	}
}
