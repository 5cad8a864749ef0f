package node_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// A browser sends requests with cookies to a node.
type browser struct {
	http http.Client
	url  string
}

func newBrowser(t *testing.T, nodeURL string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{http.Client{Jar: jar}, nodeURL}
}

// A reply is what is left of a response once its body was read.
type reply struct {
	StatusCode int
	Header     http.Header
	cookies    []*http.Cookie
}

func (r *reply) Cookies() []*http.Cookie { return r.cookies }

func (b *browser) send(t *testing.T, method, path, body string, head http.Header) (reply, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if req.Header = head.Clone(); head == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, resp.Cookies()}, string(raw)
}

func (b *browser) signIn(t *testing.T, token string) {
	t.Helper()
	if resp, body := b.send(t, http.MethodPost, verb.SessionPath, `{"token":"`+token+`"}`, nil); resp.StatusCode != http.StatusOK {
		t.Fatalf("sign in: %d %s", resp.StatusCode, body)
	}
}

func (b *browser) cookie(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range b.http.Jar.Cookies(u) {
		return c.Value
	}
	return ""
}

// socket opens a websocket as a page would, sends messages and returns what the
// server answered last; or the status of the refused upgrade.
func (b *browser) socket(t *testing.T, origin string, messages ...string) (status int, last string) {
	t.Helper()
	d := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, Jar: b.http.Jar}
	ws, resp, err := d.DialContext(t.Context(), "ws"+strings.TrimPrefix(b.url, "http")+"/graphql", http.Header{"Origin": {origin}})
	if resp != nil {
		resp.Body.Close()
	}
	if err != nil {
		return resp.StatusCode, ""
	}
	defer ws.Close()
	_ = ws.SetReadDeadline(time.Now().Add(10 * time.Second))
	for _, m := range messages {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
			t.Fatal(err)
		}
		_, raw, err := ws.ReadMessage()
		if err != nil {
			return resp.StatusCode, err.Error()
		}
		last = string(raw)
	}
	return resp.StatusCode, last
}

const (
	initMessage  = `{"type":"connection_init"}`
	phaseMessage = `{"id":"1","type":"subscribe","payload":{"query":"{replica{phase}}"}}`
	phaseQuery   = `{"query":"{replica{phase}}"}`
)

func TestBrowserSession(t *testing.T) {
	n := newNetwork(t)
	b := newBrowser(t, n.url)
	token := n.tokens[verb.Contributor]
	b.signIn(t, token)
	if resp, body := b.send(t, http.MethodPost, "/graphql", phaseQuery, nil); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"phase"`) {
		t.Errorf("GraphQL with the cookie: %d %s", resp.StatusCode, body)
	}
	if resp, body := b.send(t, http.MethodPost, verb.PathPrefix+"create", `{"type":"gene","id":"brca1","title":"BRCA1","content":{"symbol":"BRCA1"}}`, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("a forwarded write with the cookie: %d %s", resp.StatusCode, body)
	}
	evil := http.Header{"Origin": {"https://evil.example"}}
	for _, path := range []string{"/graphql", verb.PathPrefix + "list"} {
		if resp, body := b.send(t, http.MethodPost, path, phaseQuery, evil); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "cross_origin") {
			t.Errorf("%s from another origin: %d %s", path, resp.StatusCode, body)
		}
	}

	t.Run("websocket", func(t *testing.T) {
		for _, origin := range []string{n.url, prism} {
			if status, last := b.socket(t, origin, initMessage, phaseMessage); status != http.StatusSwitchingProtocols || !strings.Contains(last, `"phase"`) {
				t.Errorf("from %s: %d %s", origin, status, last)
			}
		}
		for _, origin := range []string{"https://evil.example", "null"} {
			if status, _ := b.socket(t, origin, initMessage); status != http.StatusForbidden {
				t.Errorf("from %s: %d, want 403", origin, status)
			}
		}
		stranger := newBrowser(t, n.url)
		if _, last := stranger.socket(t, n.url, initMessage); !strings.Contains(last, "4403") {
			t.Errorf("without a token: %s, want close code 4403", last)
		}
		u, err := url.Parse(n.url)
		if err != nil {
			t.Fatal(err)
		}
		stranger.http.Jar.SetCookies(u, []*http.Cookie{{Name: verb.CookieName, Value: "x.y.z"}})
		withToken := `{"type":"connection_init","payload":{"authorization":"Bearer ` + token + `"}}`
		if _, last := stranger.socket(t, n.url, withToken, phaseMessage); !strings.Contains(last, `"phase"`) {
			t.Errorf("with a bad cookie and a good token: %s", last)
		}
		if _, last := stranger.socket(t, n.url, initMessage); !strings.Contains(last, "4403") {
			t.Errorf("with a bad cookie: %s, want close code 4403", last)
		}
	})
	t.Run("refresh and logout", func(t *testing.T) {
		resp, body := b.send(t, http.MethodPost, verb.SessionPath+"/refresh", "", nil)
		fresh := b.cookie(t)
		if resp.StatusCode != http.StatusOK || fresh == token || strings.Contains(body, fresh) {
			t.Errorf("refresh: %d %s", resp.StatusCode, body)
		}
		if resp, body := b.send(t, http.MethodDelete, verb.SessionPath, "", nil); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"revoked":true`) || b.cookie(t) != "" {
			t.Errorf("logout: %d %s", resp.StatusCode, body)
		}
		for name, at := range map[string]string{"hub": n.hubURL, "node": n.url} {
			for which, ended := range map[string]string{"the token": fresh, "the token before the refresh": token} {
				head := http.Header{"Authorization": {"Bearer " + ended}}
				if resp, body := newBrowser(t, at).send(t, http.MethodPost, verb.PathPrefix+"list", `{}`, head); resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("%s at the %s after logout: %d %s", which, name, resp.StatusCode, body)
				}
			}
		}
	})
	t.Run("without the hub", func(t *testing.T) {
		b.signIn(t, n.tokens[verb.Viewer])
		n.stopHub()
		if resp, body := b.send(t, http.MethodDelete, verb.SessionPath, "", nil); resp.StatusCode != http.StatusServiceUnavailable || b.cookie(t) != "" {
			t.Errorf("logout: %d %s, cookie %q", resp.StatusCode, body, b.cookie(t))
		}
	})
}

func TestNodeLimits(t *testing.T) {
	n := newNetwork(t)
	n.stop()
	nd, err := node.Open(t.Context(), node.Config{Dir: n.dir, HubURL: n.hubURL, Token: n.tokens[verb.Viewer], Limits: verb.Limits{
		Read: verb.Rate{PerSecond: 1e-3, Burst: 3}, Write: verb.Rate{PerSecond: 1e-3, Burst: 1}, Unauthenticated: verb.Rate{PerSecond: 1e-3, Burst: 2},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer nd.Close()
	server := nd.Server(nil)
	srv := httptest.NewServer(server)
	defer srv.Close()
	b := newBrowser(t, srv.URL)
	auth := func(permission string) http.Header {
		return http.Header{"Authorization": {"Bearer " + n.tokens[permission]}}
	}

	resp, _ := b.send(t, http.MethodPost, "/graphql", phaseQuery, auth(verb.Viewer))
	if resp.StatusCode != http.StatusOK || resp.Header.Get("RateLimit-Remaining") != "2" || !strings.HasPrefix(resp.Header.Get("RateLimit"), `"read";r=2`) {
		t.Errorf("a query: %d %v", resp.StatusCode, resp.Header)
	}
	init := `{"type":"connection_init","payload":{"authorization":"Bearer ` + n.tokens[verb.Viewer] + `"}}`
	two := strings.Replace(phaseMessage, `"1"`, `"2"`, 1)
	if _, last := b.socket(t, srv.URL, init, phaseMessage); !strings.Contains(last, `"phase"`) {
		t.Errorf("a query on a websocket: %s", last)
	}
	if _, last := b.socket(t, srv.URL, init, two); !strings.Contains(last, `"phase"`) {
		t.Errorf("a query on a websocket: %s", last)
	}
	resp, body := b.send(t, http.MethodPost, "/graphql", phaseQuery, auth(verb.Viewer))
	var answer struct {
		Errors []struct{ Extensions map[string]any }
	}
	if err := json.NewDecoder(bytes.NewBufferString(body)).Decode(&answer); err != nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" ||
		answer.Errors[0].Extensions["code"] != "rate_limited" || answer.Errors[0].Extensions["retryable"] != true || answer.Errors[0].Extensions["retryAfterMs"] == nil {
		t.Errorf("the fourth query: %d %s %v", resp.StatusCode, body, resp.Header)
	}
	if status, _ := b.socket(t, srv.URL, init); status != http.StatusTooManyRequests {
		t.Errorf("the third websocket without a token in its upgrade: %d, want 429", status)
	}
	const mutation = `{"query":"mutation{createArtifact(input:{type:\"gene\",title:\"x\",content:\"{}\"}){__typename}}"}`
	for _, want := range []string{"200 0", "429 0"} {
		resp, _ := b.send(t, http.MethodPost, "/graphql", mutation, auth(verb.Admin))
		if got := strconv.Itoa(resp.StatusCode) + " " + resp.Header.Get("RateLimit-Remaining"); got != want {
			t.Errorf("a mutation: %s, want %s", got, want)
		}
	}
	if resp, _ := b.send(t, http.MethodPost, "/graphql", phaseQuery, nil); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("without a token, over the limit: %d", resp.StatusCode)
	}
}
