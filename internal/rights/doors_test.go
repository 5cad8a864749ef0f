package rights_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// TestOutsiderAtOtherDoors asks at GraphQL as [TestOutsider] asks at the verbs,
// and reads what is served without a name being asked for.
func TestOutsiderAtOtherDoors(t *testing.T) {
	l := newLab(t)
	o := &outsider{lab: l, met: map[string]bool{}}
	before := o.state(t)
	for _, c := range l.callers {
		if c.token != "" {
			t.Run("the feed/"+c.name, func(t *testing.T) { o.feed(t, c) })
		} else if a := fetch(t, l.hubURL+"/feed?cursor=0", ""); a.status != http.StatusUnauthorized {
			t.Errorf("the feed without a token = %d %s", a.status, a.body)
		}
		door := c.doors[len(c.doors)-1]
		if door == atHub || c.token == "" {
			continue // a socket takes a token
		}
		t.Run("events/"+c.name, func(t *testing.T) { o.events(t, c, door) })
	}
	source, err := os.ReadFile("../../schema.graphqls")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Input: string(source)})
	if err != nil {
		t.Fatal(err)
	}
	g := newGenerator(t, l)
	for _, root := range []*ast.Definition{schema.Query, schema.Mutation, schema.Subscription} {
		for _, f := range root.Fields {
			if strings.HasPrefix(f.Name, "__") {
				continue
			}
			t.Run(f.Name, func(t *testing.T) { o.field(t, g, schema, root, f) })
		}
	}
	for key := range graphQLVerbs {
		if schema.Query.Fields.ForName(key) == nil && schema.Mutation.Fields.ForName(key) == nil && schema.Subscription.Fields.ForName(key) == nil {
			t.Errorf("graphQLVerbs: there is no field %s", key)
		}
	}
	o.pages(t)
	if after := o.state(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("what is private changed: %v, it was %v", after, before)
	}
	t.Logf("%d pairs of GraphQL requests", o.pairs)
}

// pages reads what is served to anyone.
func (o *outsider) pages(t *testing.T) {
	t.Helper()
	for door, url := range o.doors {
		for _, path := range []string{"/", "/openapi.json", "/metrics", "/readyz", "/healthz", "/.well-known/jwks.json"} {
			if told := o.tells(fetch(t, url+path, "").body); told != "" {
				t.Errorf("%s at the %s tells of %s", path, door, told)
			}
		}
	}
}

func fetch(t *testing.T, url, token string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, req, token)
}

// feed reads the log as a caller may follow it, from its start to its head. Nodes
// serve no feed.
func (o *outsider) feed(t *testing.T, c caller) {
	t.Helper()
	for _, door := range c.doors {
		if door != atHub {
			for _, path := range []string{"/feed?cursor=0", "/feed/digest"} {
				if a := fetch(t, o.doors[door]+path, c.token); a.status != http.StatusNotFound {
					t.Errorf("%s at a node = %d: read it as the hub's", path, a.status)
				}
			}
			continue
		}
		if a := fetch(t, o.doors[door]+"/feed/digest", c.token); a.status != http.StatusOK || o.tells(a.body) != "" || !strings.Contains(a.body, labB) {
			t.Errorf("digest = %d %s", a.status, a.body)
		}
		head, err := o.hub.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.doors[door]+"/feed?cursor=0", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "identity")
		req.Header.Set("Authorization", "Bearer "+c.token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewReaderSize(resp.Body, replicate.MaxFrameBytes)
		rows := 0
		for at := artifact.Seq(0); at < head; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatalf("at %d of %d: %v", at, head, err)
			}
			frame, err := replicate.DecodeFrame(line)
			if err != nil {
				t.Fatal(err)
			}
			if told := o.tells(string(line)); told != "" {
				t.Errorf("the feed tells of %s: %s", told, line)
			}
			if frame.Type != replicate.FrameHello {
				at, rows = frame.To, rows+len(frame.Rows)
			}
		}
		if rows == 0 {
			t.Error("the feed has no rows at all")
		}
	}
}

// events reads the subscription from the log's start to its head, with all that
// can be selected.
func (o *outsider) events(t *testing.T, c caller, door string) {
	t.Helper()
	head, err := o.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ws, resp, err := (&websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}}).DialContext(t.Context(), "ws"+strings.TrimPrefix(o.doors[door], "http")+"/graphql", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer ws.Close()
	const query = `subscription { events(since: "0") { cursor events { eventId eventType agent { id } ref payload artifact { ref title content scope createdBy { id } } } } }`
	init := map[string]any{"type": "connection_init"}
	if c.token != "" {
		init["payload"] = map[string]any{"authorization": "Bearer " + c.token}
	}
	for _, m := range []any{
		init,
		map[string]any{"type": "subscribe", "id": "1", "payload": map[string]any{"query": query}},
	} {
		if err := ws.WriteJSON(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := ws.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for at := int64(0); at < int64(head); {
		_, raw, err := ws.ReadMessage()
		if err != nil {
			t.Fatalf("at %d of %d: %v", at, head, err)
		}
		if told := o.tells(string(raw)); told != "" {
			t.Errorf("the events tell of %s: %s", told, raw)
		}
		var m struct {
			Type    string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		if m.Type == "connection_ack" {
			continue
		}
		var page struct {
			Data struct {
				Events struct {
					Cursor string
					Events []json.RawMessage
				}
			}
		}
		if err := json.Unmarshal(m.Payload, &page); m.Type != "next" || err != nil {
			t.Fatalf("%s, %v", raw, err)
		}
		if at, err = strconv.ParseInt(page.Data.Events.Cursor, 10, 64); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		seen += len(page.Data.Events.Events)
	}
	if seen == 0 {
		t.Error("there are no events at all")
	}
}
