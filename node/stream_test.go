package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/verb"
)

// A sse is a stream of events as a browser reads it.
type sse struct {
	t      *testing.T
	body   io.Closer
	lines  *bufio.Scanner
	lastID string
}

// sseEvent is what came between two blank lines.
type sseEvent struct{ name, id, data string }

func listenTo(t *testing.T, base, token string, query url.Values, lastID string) *sse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+verb.SubscribePath+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		text, _ := io.ReadAll(res.Body)
		t.Fatalf("subscribe = %s %s", res.Status, text)
	}
	s := &sse{t: t, body: res.Body, lines: bufio.NewScanner(res.Body)}
	if first := s.next(); first.data != "" || first.id == "" { // where it begins
		t.Fatalf("a stream begins with %+v", first)
	}
	return s
}

// next returns what comes next; nothing at the stream's end.
func (s *sse) next() (e sseEvent) {
	s.t.Helper()
	for s.lines.Scan() {
		line := s.lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "id":
			e.id, s.lastID = value, value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if line == "" {
				return e
			}
		}
	}
	return e
}

// event returns the next one.
func (s *sse) event() (e verb.Event) {
	s.t.Helper()
	for {
		raw := s.next()
		if raw.id != "" && raw.data == "" {
			continue // the cursor alone
		}
		if err := json.Unmarshal([]byte(raw.data), &e); err != nil || raw.name != "" || raw.id != fmt.Sprint(e.ID) {
			s.t.Fatalf("%+v is no event: %v", raw, err)
		}
		return e
	}
}

// TestEventStream subscribes at hub and node alike: what happens comes in order,
// once, whole and at once; what may not be seen never; and a stream that broke off
// goes on where it was.
func TestEventStream(t *testing.T) {
	l := newLabs(t)
	ada, root := l.as(t, "ada"), l.as(t, "root")
	for name, base := range map[string]string{"hub": l.hubURL, "node": l.a.url} {
		t.Run(name, func(t *testing.T) {
			mine := listenTo(t, base, l.token(t, "ada"), url.Values{"types": {"hypothesis.*,comment.created"}}, "")
			ruled := listenTo(t, base, l.token(t, "ada"), url.Values{"filter": {`{"in":["y",{"var":"ref.id"}]}`}}, "")
			public := listenTo(t, base, l.token(t, "vic"), url.Values{}, "")
			x := must(t, verb.Create, ada, statement("", "x-"+name, "open"))
			secret := must(t, verb.Create, ada, statement("lab-a", "y-"+name, "secret"))
			must(t, verb.Create, ada, verb.CreateRequest{Type: "gene", ID: "G-" + strings.ToUpper(name), Title: "G", Content: json.RawMessage(`{"symbol":"G` + strings.ToUpper(name) + `"}`)})
			y := must(t, verb.Create, ada, statement("", "y2-"+name, "open"))

			for _, want := range []verb.WriteResult{x, secret, y} {
				e := mine.event()
				ref := verb.EventRef{Type: "hypothesis", ID: want.Ref.ID, Version: want.ContentHash.String()}
				if e.Type != "hypothesis.created" || e.Ref != ref || e.Actor.ID != "ada" || e.ID != want.Seq || e.SchemaVersion != 1 || !json.Valid(e.Payload) {
					t.Errorf("got %+v, want %s at %d", e, want.Ref, want.Seq)
				}
			}
			for _, want := range []verb.WriteResult{secret, y} {
				if e := ruled.event(); e.ID != want.Seq {
					t.Errorf("the rule let %+v pass, want %d", e, want.Seq)
				}
			}
			var seen []string
			for range 3 {
				e := public.event()
				seen = append(seen, e.Ref.ID)
			}
			if diff := cmp.Diff([]string{"x-" + name, "G-" + strings.ToUpper(name), "y2-" + name}, seen); diff != "" {
				t.Errorf("someone without the lab: (-want +got)\n%s", diff)
			}

			// It breaks off, and goes on where it was.
			last := public.lastID
			_ = public.body.Close()
			z := must(t, verb.Create, ada, statement("", "z-"+name, "open"))
			again := listenTo(t, base, l.token(t, "vic"), url.Values{"since": {"0"}}, last)
			if e := again.event(); e.ID != z.Seq {
				t.Errorf("after %s came %+v, want %d", last, e, z.Seq)
			}

			// A poll reads the same, page by page.
			at := x.Seq - 1
			client := &verb.Client{URL: base, Token: l.token(t, "ada")}
			var polled []artifact.Seq
			for {
				page := must(t, verb.Poll, client, verb.PollRequest{Types: []string{"hypothesis.*"}, Since: &at, Limit: 2})
				for _, e := range page.Events {
					polled = append(polled, e.ID)
				}
				if page.Cursor < at || len(page.Events) > 2 {
					t.Fatalf("a page of two from %d: %+v", at, page)
				}
				if at = page.Cursor; page.CaughtUp {
					break
				}
			}
			if diff := cmp.Diff([]artifact.Seq{x.Seq, secret.Seq, y.Seq, z.Seq}, polled); diff != "" {
				t.Errorf("polled: (-want +got)\n%s", diff)
			}
			if page := must(t, verb.Poll, client, verb.PollRequest{}); len(page.Events) != 0 || !page.CaughtUp || page.Cursor < z.Seq {
				t.Errorf("a poll from now: %+v", page)
			}

			// A token that is revoked ends the stream, and says so.
			permissions["zed-"+name] = []string{verb.Viewer}
			gone := listenTo(t, base, l.token(t, "zed-"+name), url.Values{}, "")
			must(t, verb.TokensRevoke, root, verb.TokensRevokeRequest{Agent: "zed-" + name})
			for e := gone.next(); e.name != "end"; e = gone.next() {
				if e.id == "" {
					t.Fatalf("the stream of one whose token was revoked ends with %+v", e)
				}
			}
		})
	}
}

// TestEventClient follows through a proxy that cuts every stream after some bytes,
// and then a node that restarts: no event is left out, and none comes before one
// that it follows.
func TestEventClient(t *testing.T) {
	l := newLabs(t)
	target, err := url.Parse(l.a.url)
	if err != nil {
		t.Fatal(err)
	}
	cuts := 0
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ModifyResponse: func(res *http.Response) error {
			res.Body = &cut{res.Body, 700 + 997*(cuts%5)} // amid events
			cuts++
			return nil
		},
	}
	srv := httptest.NewServer(proxy)
	t.Cleanup(srv.Close)
	const n = 60
	got := make(chan artifact.Seq, 10*n)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	followed := make(chan error, 1)
	start := artifact.Seq(0)
	go func() {
		client := &event.Client{URL: srv.URL, Token: l.token(t, "ada")}
		followed <- client.Follow(ctx, verb.SubscribeRequest{Types: []string{"hypothesis.created"}, Since: &start}, func(e verb.Event) error {
			got <- e.ID
			return nil
		})
	}()
	ada := l.as(t, "ada")
	var want, seen []artifact.Seq
	for i := range n {
		want = append(want, must(t, verb.Create, ada, statement([]string{"", "lab-a"}[i%2], fmt.Sprint("h", i), "x")).Seq)
	}
	for len(seen) < n {
		select {
		case seq := <-got:
			if len(seen) > 0 && seq <= seen[len(seen)-1] {
				if !slices.Contains(seen, seq) {
					t.Fatalf("%d comes after %v and is new", seq, seen)
				}
				continue // again
			}
			seen = append(seen, seq)
		case err := <-followed:
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if cuts < 3 {
		t.Errorf("the stream was cut %d times", cuts)
	}
	must(t, verb.TokensRevoke, l.as(t, "root"), verb.TokensRevokeRequest{Agent: "ada"})
	if err := <-followed; artifact.AsError(err).Reason != artifact.ReasonUnauthenticated {
		t.Errorf("a revoked token ends it with %v", err)
	}
}

// cut is a body that breaks off after so many bytes.
type cut struct {
	io.ReadCloser
	left int
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("cut")
	}
	n, err := c.ReadCloser.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// TestSubscribeRefused checks what is wrong with subscriptions, at hub and node
// alike.
func TestSubscribeRefused(t *testing.T) {
	l := newLabs(t)
	for _, tt := range []struct{ name, query, reason, path string }{
		{"a member that is none", "tpyes=x", "validation_failed", "/tpyes"},
		{"no type", "types=hypothesis", "validation_failed", "/types/0"},
		{"no JSON", "filter=%7B", "validation_failed", "/filter"},
		{"no operator", "filter=%7B%22eq%22%3A%5B1%2C1%5D%7D", "validation_failed", "/filter/eq"},
		{"no cursor", "since=x", "validation_failed", "/since"},
		{"a negative one", "since=-1", "validation_failed", "/since"},
		{"twice", "since=1&since=2", "validation_failed", "/since"},
	} {
		for at, base := range map[string]string{"hub": l.hubURL, "node": l.a.url} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+verb.SubscribePath+"?"+tt.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+l.token(t, "ada"))
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var e artifact.Error
			err = json.NewDecoder(res.Body).Decode(&e)
			_ = res.Body.Close()
			if err != nil || res.StatusCode < 400 || e.Reason != tt.reason || len(e.Problems) != 1 || e.Problems[0].Path != tt.path {
				t.Errorf("%s at the %s: %s %+v, %v, want %s at %s", tt.name, at, res.Status, e, err, tt.reason, tt.path)
			}
		}
	}
	for at, client := range map[string]*verb.Client{"hub": l.as(t, "ada"), "node": l.at(t, l.a, "ada")} {
		for _, limit := range []int{-1, verb.MaxEvents + 1} {
			if _, err := verb.Poll.Call(t.Context(), client, verb.PollRequest{Limit: limit}); artifact.AsError(err).Code != artifact.CodeValidationFailed {
				t.Errorf("a poll of %d at the %s: %v", limit, at, err)
			}
		}
		far := artifact.Seq(1 << 40)
		if _, err := verb.Poll.Call(t.Context(), client, verb.PollRequest{Since: &far}); err == nil {
			t.Errorf("a cursor beyond the log at the %s is taken", at)
		}
	}
}
