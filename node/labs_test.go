package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/gorilla/websocket"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/verb"
)

// Labs are a hub and the enrolled nodes of two labs: lab-a, where ada is a
// contributor, and lab-b, where bob is. Root is an admin everywhere.
type labs struct {
	*network
	a, b *lab
}

// A lab is an enrolled node.
type lab struct {
	*node.Node
	id   string
	dir  string
	url  string
	stop func()
}

func newLabs(t *testing.T) *labs {
	t.Helper()
	l := &labs{network: newNetwork(t)}
	for lab, member := range map[string]string{"lab-a": "ada", "lab-b": "bob"} {
		must(t, verb.ScopesCreate, l.as(t, "root"), verb.ScopesCreateRequest{ID: lab, Title: lab})
		must(t, verb.ScopesGrant, l.as(t, "root"), verb.ScopesGrantRequest{Scope: lab, Agent: member, Roles: []string{verb.Contributor}})
		must(t, verb.ScopesGrant, l.as(t, "root"), verb.ScopesGrantRequest{Scope: lab, Agent: "root", Roles: []string{verb.Admin}})
	}
	l.a, l.b = l.enrol(t, "lab-a"), l.enrol(t, "lab-b")
	return l
}

func must[In, Out any](t *testing.T, v verb.Verb[In, Out], c verb.Invoker, in In) Out {
	t.Helper()
	out, err := v.Call(t.Context(), c, in)
	if err != nil {
		t.Fatalf("%s %+v: %v", v.Name, in, err)
	}
	return out
}

// permissions in commons, of the agents of these tests.
var permissions = map[string][]string{
	"root": {verb.Admin}, "ada": {verb.Contributor}, "bob": {verb.Contributor}, "vic": {verb.Viewer},
}

func (l *labs) token(t *testing.T, agent string, audience ...string) string {
	t.Helper()
	c := verb.Claims{ActorKind: "human", Permissions: permissions[agent], RegisteredClaims: jwt.RegisteredClaims{Subject: agent, Audience: audience}}
	token, err := l.hub.SigningKey().Sign(c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// as returns a client of the hub.
func (l *labs) as(t *testing.T, agent string) *verb.Client {
	t.Helper()
	return &verb.Client{URL: l.hubURL, Token: l.token(t, agent)}
}

// at returns a client of a lab's node.
func (l *labs) at(t *testing.T, at *lab, agent string, audience ...string) *verb.Client {
	t.Helper()
	return &verb.Client{URL: at.url, Token: l.token(t, agent, audience...)}
}

func (l *labs) enrol(t *testing.T, scope string) *lab {
	t.Helper()
	invite := must(t, verb.NodesInvite, l.as(t, "root"), verb.NodesInviteRequest{Lab: scope, Scopes: []string{scope}})
	dir := t.TempDir()
	id, err := node.Join(t.Context(), dir, l.hubURL, invite.Code, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l.serve(t, dir, id, 0)
}

func (l *labs) serve(t *testing.T, dir string, id *node.Identity, offlineAuthMax time.Duration) *lab {
	t.Helper()
	return l.serveWith(t, node.Config{Dir: dir, HubURL: l.hubURL, Identity: id, OfflineAuthMax: offlineAuthMax})
}

func (l *labs) serveWith(t *testing.T, c node.Config) *lab {
	t.Helper()
	nd, err := node.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	server := nd.Server(nil)
	srv := httptest.NewServer(server)
	running, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- nd.Run(running) }()
	stop := once(func() {
		_ = server.Shutdown(context.WithoutCancel(t.Context()))
		srv.Close()
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := nd.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	if err := nd.WaitApplied(ctx, 1); err != nil {
		t.Fatalf("the node has no replica: %v, %+v", err, nd.Building())
	}
	return &lab{Node: nd, id: c.Identity.NodeID, dir: c.Dir, url: srv.URL, stop: stop}
}

// caughtUp waits until both nodes hold all that the hub has.
func (l *labs) caughtUp(t *testing.T) {
	t.Helper()
	head, err := l.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, at := range []*lab{l.a, l.b} {
		if err := at.WaitApplied(ctx, head); err != nil {
			t.Fatal(err)
		}
	}
}

// holds reports whether the replica's files hold a text.
func (at *lab) holds(t *testing.T, text string) bool {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		raw, err := os.ReadFile(filepath.Join(at.dir, node.ReplicaFile+suffix))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(raw, []byte(text)) {
			return true
		}
	}
	return false
}

func eventually(t *testing.T, within time.Duration, what string, f func() bool) {
	t.Helper()
	for begun := time.Now(); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > within {
			t.Errorf("not within %s: %s", within, what)
			return
		}
	}
}

func why(err error) string {
	if err == nil {
		return ""
	}
	e := artifact.AsError(err)
	if e.Reason != "" {
		return e.Reason
	}
	return string(e.Code)
}

func statement(scope, id, text string) verb.CreateRequest {
	content, err := json.Marshal(map[string]any{"statement": text})
	if err != nil {
		panic(err)
	}
	return verb.CreateRequest{Type: "hypothesis", ID: id, Scope: scope, Title: text, Content: content}
}

func (l *labs) verify(t *testing.T, nodes ...*lab) {
	t.Helper()
	for _, at := range nodes {
		report, err := at.Verify(t.Context())
		if err != nil || len(report.Differences) > 0 {
			t.Errorf("the replica of %s differs: %v, %v", at.id, report.Differences, err)
		}
	}
}

// verifyHub checks the hub's tables against themselves.
func (l *labs) verifyHub(t *testing.T) {
	t.Helper()
	v, err := hub.Verify(t.Context(), l.db, nil)
	if err != nil || v.Total > 0 {
		t.Errorf("the hub is at fault: %+v, %v", v.Faults, err)
	}
}

func TestTwoLabs(t *testing.T) {
	l := newLabs(t)
	read := func(c *verb.Client, ref artifact.Ref) error {
		_, err := verb.Get.Call(t.Context(), c, verb.GetRequest{Ref: ref})
		return err
	}
	mine := must(t, verb.Create, l.at(t, l.a, "ada"), statement("lab-a", "h1", "alpha-secret of lab A"))
	again := must(t, verb.Update, l.at(t, l.a, "ada"), verb.UpdateRequest{Ref: mine.Ref.Current().String(), BaseContentHash: mine.ContentHash, Title: "alpha-secret again"})
	theirs := must(t, verb.Create, l.as(t, "bob"), statement("lab-b", "h1", "beta-secret of lab B"))
	public := must(t, verb.Create, l.as(t, "ada"), statement("", "pub", "gamma-open to all"))
	must(t, verb.Signal, l.as(t, "ada"), verb.SignalRequest{Ref: public.Ref.String(), Kind: "vote", Value: "1", Reason: "gamma-reason"})
	l.caughtUp(t)

	t.Run("each node holds its own lab and commons", func(t *testing.T) {
		for text, in := range map[string][2]bool{
			"alpha-secret": {true, false}, "beta-secret": {false, true}, "gamma-open": {true, true}, "lab-a": {true, false}, "lab-b": {false, true},
		} {
			if got := [2]bool{l.a.holds(t, text), l.b.holds(t, text)}; got != in {
				t.Errorf("%s is in the files of a and b: %v, want %v", text, got, in)
			}
		}
		l.verify(t, l.a, l.b)
		l.verifyHub(t)
	})
	t.Run("a node serves its own lab's members alone", func(t *testing.T) {
		for name, c := range map[string]struct {
			client *verb.Client
			ref    artifact.Ref
			want   string
		}{
			"a member at its node":             {l.at(t, l.a, "ada"), mine.Ref, ""},
			"a member at another lab's node":   {l.at(t, l.b, "ada"), mine.Ref, "not_found"},
			"another lab's member":             {l.at(t, l.a, "bob"), mine.Ref, "not_found"},
			"another lab's member at its node": {l.at(t, l.b, "bob"), theirs.Ref, ""},
			"an agent of no lab":               {l.at(t, l.a, "vic"), mine.Ref, "not_found"},
		} {
			if err := read(c.client, c.ref); why(err) != c.want {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
		if _, err := verb.Create.Call(t.Context(), l.at(t, l.b, "ada"), statement("lab-a", "h2", "x")); why(err) != "validation_failed" {
			t.Errorf("a write into lab-a through the node of lab-b = %v", err)
		}
	})
	t.Run("a token for one node is taken there alone", func(t *testing.T) {
		audience := verb.NodeAudience(l.a.id)
		write := func(c *verb.Client) error {
			_, err := verb.Create.Call(t.Context(), c, statement("", "", "delta"))
			return err
		}
		if err := write(l.at(t, l.a, "ada", audience)); err != nil {
			t.Errorf("through its node: %v", err)
		}
		if err := write(l.at(t, l.b, "ada", audience)); why(err) != artifact.ReasonUnauthenticated {
			t.Errorf("through another node: %v", err)
		}
		if err := write(&verb.Client{URL: l.hubURL, Token: l.token(t, "ada", audience)}); why(err) != artifact.ReasonUnauthenticated {
			t.Errorf("at the hub without a node: %v", err)
		}
		foreign, err := node.ReadIdentity(l.b.dir)
		if err != nil {
			t.Fatal(err)
		}
		replay := &verb.Client{URL: l.hubURL, Token: l.token(t, "ada", audience), Credential: func() (string, error) { return foreign.Key().Credential(foreign.HubID) }}
		if err := write(replay); why(err) != artifact.ReasonUnauthenticated {
			t.Errorf("replayed by another node: %v", err)
		}
	})
	t.Run("a move leaves no bytes with those who lose it", func(t *testing.T) {
		must(t, verb.Move, l.as(t, "root"), verb.MoveRequest{Ref: public.Ref.Current().String(), Scope: "lab-a", BaseContentHash: public.ContentHash, Reason: "too early"})
		l.caughtUp(t)
		eventually(t, 10*time.Second, "the bytes are gone", func() bool { return !l.b.holds(t, "gamma-open") && !l.b.holds(t, "gamma-reason") })
		if !l.a.holds(t, "gamma-open") || !l.a.holds(t, "gamma-reason") {
			t.Error("the lab that keeps it lost it")
		}
		if err := read(l.at(t, l.b, "bob"), public.Ref); why(err) != "not_found" {
			t.Errorf("get by who lost it = %v", err)
		}
		if err := read(l.at(t, l.a, "ada"), public.Ref); err != nil {
			t.Errorf("get by who keeps it = %v", err)
		}
		l.verify(t, l.a, l.b)
		l.verifyHub(t)
	})
	t.Run("a redaction leaves no bytes anywhere", func(t *testing.T) {
		must(t, verb.Redact, l.as(t, "root"), verb.RedactRequest{Ref: mine.Ref.Current().String(), Reason: "names a patient", Revisions: 2})
		l.caughtUp(t)
		eventually(t, 10*time.Second, "the bytes are gone", func() bool { return !l.a.holds(t, "alpha-secret") })
		fresh := l.enrol(t, "lab-a") // it copies from the start
		if err := fresh.WaitApplied(t.Context(), l.a.Store().Applied()); err != nil {
			t.Fatal(err)
		}
		for _, at := range []*lab{l.a, fresh} {
			for _, ref := range []artifact.Ref{mine.Ref, again.Ref} {
				got := must(t, verb.Get, l.at(t, at, "ada"), verb.GetRequest{Ref: ref})
				if !strings.Contains(string(got.Artifact.Redaction), "names a patient") || string(got.Artifact.Content) != "{}" {
					t.Errorf("%s is now %s, %s", ref, got.Artifact.Content, got.Artifact.Redaction)
				}
			}
		}
		l.verify(t, l.a, fresh)
	})
	t.Run("hub and node tell the same of scopes", func(t *testing.T) {
		for _, agent := range []string{"ada", "vic"} {
			for name, in := range map[string]any{"scopes/list": verb.ScopesListRequest{}, "scopes/members": verb.ScopesMembersRequest{Scope: "lab-a"}} {
				if hub, node := invoke(t, l.as(t, agent), name, in), invoke(t, l.at(t, l.a, agent), name, in); hub != node {
					t.Errorf("%s by %s: hub %s, node %s", name, agent, hub, node)
				}
			}
		}
	})
	t.Run("messages stay at the hub", func(t *testing.T) {
		must(t, verb.Create, l.as(t, "bob"), statement("", "", "x")) // so that ada knows of him
		message := must(t, verb.Create, l.at(t, l.a, "ada"), verb.CreateRequest{
			Type: "message", Title: "Hello", Content: json.RawMessage(`{"recipient":"agent:bob","body":"epsilon-secret"}`),
		})
		l.caughtUp(t)
		if err := read(l.at(t, l.b, "bob"), message.Ref); err != nil {
			t.Errorf("the addressee at its node: %v", err)
		}
		if err := read(l.at(t, l.a, "root"), message.Ref); why(err) != "not_found" {
			t.Errorf("an admin: %v", err)
		}
		l.verify(t, l.a, l.b)
		l.verifyHub(t)
		// SPEC-001 §13.8: events of messages and of the system are for others.
		ctx := verb.WithCaller(t.Context(), &verb.Caller{Actor: artifact.Actor{ID: "ada"}, Permissions: permissions["ada"], Access: l.a.Store().Access()})
		seen := make(map[string]bool)
		for events := l.a.Store().Subscribe(0, nil); ; {
			page, err := events.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Events {
				seen[strings.SplitN(e.Type, ".", 2)[0]] = true
			}
			if page.CaughtUp {
				break
			}
		}
		if seen["message"] || seen["system"] || !seen["hypothesis"] || !seen["schema"] || !seen["scope"] {
			t.Errorf("a member sees events of %v", seen)
		}
		if l.a.holds(t, "epsilon-secret") || l.b.holds(t, "epsilon-secret") {
			t.Error("a replica holds a message")
		}
	})
}

// liveSocket opens a socket with a subscription to events.
func liveSocket(t *testing.T, url, token string) *websocket.Conn {
	t.Helper()
	ws, resp, err := (&websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}}).DialContext(t.Context(), "ws"+strings.TrimPrefix(url, "http")+"/graphql", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	t.Cleanup(func() { ws.Close() })
	for _, m := range []string{
		fmt.Sprintf(`{"type":"connection_init","payload":{"authorization":"Bearer %s"}}`, token),
		`{"id":"1","type":"subscribe","payload":{"query":"subscription { events { cursor } }"}}`,
	} {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ws.ReadMessage(); err != nil { // the acknowledgement, and the first batch
			t.Fatal(err)
		}
	}
	return ws
}

func TestRevocation(t *testing.T) {
	l := newLabs(t)
	made := must(t, verb.Create, l.as(t, "ada"), statement("lab-a", "h1", "x"))
	l.caughtUp(t)

	t.Run("ends a socket within 2 seconds", func(t *testing.T) {
		token := l.token(t, "ada")
		ws := liveSocket(t, l.a.url, token)
		must(t, verb.TokensRevoke, &verb.Client{URL: l.a.url, Token: token}, verb.TokensRevokeRequest{})
		_ = ws.SetReadDeadline(time.Now().Add(2 * time.Second))
		for {
			_, _, err := ws.ReadMessage()
			if err == nil {
				continue
			}
			if !websocket.IsCloseError(err, 4403) {
				t.Errorf("the socket ended with %v, want 4403 within 2 s", err)
			}
			break
		}
		for name, url := range map[string]string{"the hub": l.hubURL, "the node": l.a.url} {
			if _, err := verb.Schema.Call(t.Context(), &verb.Client{URL: url, Token: token}, verb.SchemaRequest{}); why(err) != artifact.ReasonUnauthenticated {
				t.Errorf("%s takes a revoked token: %v", name, err)
			}
		}
	})
	t.Run("of a membership reaches the node within a second", func(t *testing.T) {
		c := l.at(t, l.a, "ada")
		if _, err := verb.Get.Call(t.Context(), c, verb.GetRequest{Ref: made.Ref}); err != nil {
			t.Fatal(err)
		}
		must(t, verb.ScopesRevoke, l.as(t, "root"), verb.ScopesRevokeRequest{Scope: "lab-a", Agent: "ada"})
		eventually(t, time.Second, "the node refuses who was a member", func() bool {
			_, err := verb.Get.Call(t.Context(), c, verb.GetRequest{Ref: made.Ref})
			return why(err) == "not_found"
		})
	})
	t.Run("of a node ends its feed and what it forwards", func(t *testing.T) {
		must(t, verb.NodesRevoke, l.as(t, "root"), verb.NodesRevokeRequest{ID: l.b.id})
		eventually(t, 2*time.Second, "the node is cut off", func() bool {
			status, answer := l.queryAt(t, l.b.url, l.token(t, "bob"), "{ replica { phase } }")
			return status == http.StatusOK && strings.Contains(answer, "DISCONNECTED")
		})
		if _, err := verb.Create.Call(t.Context(), l.at(t, l.b, "bob"), statement("", "", "x")); why(err) != artifact.ReasonUnauthenticated {
			t.Errorf("a write through a revoked node = %v", err)
		}
		if nodes := must(t, verb.NodesList, l.as(t, "root"), verb.NodesListRequest{}); len(nodes.Nodes) != 2 {
			t.Errorf("nodes = %+v", nodes)
		}
	})
}

func (l *labs) queryAt(t *testing.T, url, token, query string) (int, string) {
	t.Helper()
	at := *l.network
	at.url = url
	status, a := at.query(t, token, query, nil)
	return status, string(a.Data)
}

func TestOfflineRights(t *testing.T) {
	l := newLabs(t)
	made := must(t, verb.Create, l.as(t, "ada"), statement("lab-a", "h1", "x"))
	open := must(t, verb.Create, l.as(t, "ada"), statement("", "h2", "x"))
	l.caughtUp(t)
	id, err := node.ReadIdentity(l.a.dir)
	if err != nil {
		t.Fatal(err)
	}
	token := l.token(t, "ada")
	read := func(at *lab, ref artifact.Ref) string {
		_, err := verb.Get.Call(t.Context(), &verb.Client{URL: at.url, Token: token}, verb.GetRequest{Ref: ref})
		return why(err)
	}
	if got := read(l.a, made.Ref); got != "" { // and the node has its hub's keys
		t.Fatal(got)
	}
	l.stopHub()
	l.a.stop()
	patient := l.serve(t, l.a.dir, id, time.Hour)
	if got := read(patient, made.Ref) + read(patient, open.Ref); got != "" {
		t.Errorf("reads without the hub: %s", got)
	}
	patient.stop()
	strict := l.serve(t, l.a.dir, id, time.Millisecond)
	if got := read(strict, made.Ref); got != "not_found" {
		t.Errorf("a private read long after the hub was heard of: %q", got)
	}
	if got := read(strict, open.Ref); got != "" {
		t.Errorf("a read of commons long after the hub was heard of: %q", got)
	}
}

func TestJoin(t *testing.T) {
	l := &labs{network: newNetwork(t)}
	invite := must(t, verb.NodesInvite, l.as(t, "root"), verb.NodesInviteRequest{Lab: "A"})
	dir := t.TempDir()
	first, err := node.Join(t.Context(), dir, l.hubURL, invite.Code, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("again is safe", func(t *testing.T) {
		if again, err := node.Join(t.Context(), dir, l.hubURL, invite.Code, nil); err != nil || again.NodeID != first.NodeID {
			t.Errorf("Join = %+v, %v", again, err)
		}
		// The answer was lost: the key is there, and nothing else.
		lost := *first
		lost.NodeID, lost.HubID = "", ""
		raw, err := json.Marshal(lost)
		if err != nil {
			t.Fatal(err)
		}
		other := t.TempDir()
		if err := os.WriteFile(filepath.Join(other, node.IdentityFile), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if again, err := node.Join(t.Context(), other, l.hubURL, invite.Code, nil); err != nil || again.NodeID != first.NodeID {
			t.Errorf("Join after a lost answer = %+v, %v", again, err)
		}
	})
	t.Run("with another code is refused", func(t *testing.T) {
		code := must(t, verb.NodesInvite, l.as(t, "root"), verb.NodesInviteRequest{Lab: "B"}).Code
		if _, err := node.Join(t.Context(), dir, l.hubURL, code, nil); err == nil || !strings.Contains(err.Error(), "the code was not used") {
			t.Errorf("Join = %v", err)
		}
	})
	t.Run("takes a code once", func(t *testing.T) {
		for name, code := range map[string]string{"used": invite.Code, "unknown": "scidex-join-none", "empty": ""} {
			if _, err := node.Join(t.Context(), t.TempDir(), l.hubURL, code, nil); why(err) != artifact.ReasonUnauthenticated {
				t.Errorf("Join with a code that is %s = %v", name, err)
			}
		}
	})
	t.Run("by many with one code enrols one", func(t *testing.T) {
		code := must(t, verb.NodesInvite, l.as(t, "root"), verb.NodesInviteRequest{Lab: "B"}).Code
		joined := make(chan error, 6)
		for range cap(joined) {
			dir := t.TempDir()
			go func() {
				_, err := node.Join(t.Context(), dir, l.hubURL, code, nil)
				joined <- err
			}()
		}
		n := 0
		for range cap(joined) {
			if err := <-joined; err == nil {
				n++
			} else if why(err) != artifact.ReasonUnauthenticated {
				t.Error(err)
			}
		}
		if n != 1 {
			t.Errorf("%d nodes joined by one code", n)
		}
	})
	if info, err := os.Stat(filepath.Join(dir, node.IdentityFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info.Mode(), err)
	}
}
