package node_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/postgres"
	"github.com/scidex-ai/substrate/verb"
)

func happened(page verb.PollResult) string {
	var out []string
	for _, e := range page.Events {
		out = append(out, e.Ref.ID)
	}
	return strings.Join(out, " ")
}

// TestConsumerAtNode reads with a consumer through a node, while the hub is there,
// while it is away, and when it is back. What it was done with while the hub was away
// is kept though the node is killed, and comes to the hub; and a consumer that others
// took meanwhile is no longer the node's.
func TestConsumerAtNode(t *testing.T) {
	w := newWorld(t, initHub)
	r := w.node(t.TempDir(), "ada", verb.Contributor)
	w.caughtUp(r)
	atNode := &verb.Client{URL: r.url, Token: r.token}
	poll := func(c *verb.Client, in verb.PollRequest) verb.PollResult {
		t.Helper()
		in.ConsumerID, in.Limit = "c", 2
		return must(t, verb.Poll, c, in)
	}
	write := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			do(w, w.as("ada", verb.Contributor), verb.Create, statement("", id, "x"))
		}
		w.caughtUp(r)
	}
	if first := poll(atNode, verb.PollRequest{Types: []string{"hypothesis.*"}}); first.Consumer == nil || first.Consumer.Offline || first.Consumer.Generation != 1 {
		t.Fatalf("a new consumer: %+v", first.Consumer)
	}
	write("a", "b", "c", "d", "e", "f")
	if page := poll(atNode, verb.PollRequest{}); happened(page) != "a b" {
		t.Errorf("first come %q", happened(page))
	}
	if page := poll(&verb.Client{URL: w.url, Token: r.token}, verb.PollRequest{}); happened(page) != "c d" {
		t.Errorf("at the hub come %q", happened(page))
	}
	page := poll(atNode, verb.PollRequest{AutoAdvance: new(bool)})
	if happened(page) != "e f" {
		t.Errorf("at the node again come %q", happened(page))
	}

	w.stop()
	other := &verb.Client{URL: r.url, Token: w.token("bo", verb.Viewer)}
	if _, err := verb.Poll.Call(t.Context(), other, verb.PollRequest{ConsumerID: "c"}); !artifact.IsCode(err, artifact.CodeUnavailable) {
		t.Errorf("without a lease and without the hub: %v", err)
	}
	off := poll(atNode, verb.PollRequest{AutoAdvance: new(bool)})
	if happened(off) != "e f" || !off.Consumer.Offline || off.Consumer.Generation != page.Consumer.Generation {
		t.Errorf("without the hub come %q, %+v", happened(off), off.Consumer)
	}
	advance := verb.ConsumersAdvanceRequest{ConsumerID: "c", Generation: off.Consumer.Generation - 1, EventID: off.Events[0].ID}
	if _, err := verb.ConsumersAdvance.Call(t.Context(), atNode, advance); !artifact.IsCode(err, artifact.CodeUnavailable) {
		t.Errorf("an advance of an elder generation without the hub: %v", err)
	}
	advance.Generation++
	if out := must(t, verb.ConsumersAdvance, atNode, advance); !out.Pending || out.Consumer.Cursor != off.Events[0].ID {
		t.Errorf("an advance without the hub: %+v", out)
	}
	if page := poll(atNode, verb.PollRequest{}); happened(page) != "f" || page.Consumer.Cursor < off.Events[1].ID {
		t.Errorf("after it come %q, %+v", happened(page), page.Consumer)
	}
	killed := filepath.Join(t.TempDir(), "node") // what a kill leaves
	if err := os.CopyFS(killed, os.DirFS(r.dir)); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r = w.node(killed, "ada", verb.Contributor)
	atNode.URL = r.url
	eventually(t, 20*time.Second, "the node serves", func() bool { status, _ := r.ask("/readyz"); return status == http.StatusOK })
	if page := poll(atNode, verb.PollRequest{}); happened(page) != "" || page.Consumer.Cursor < off.Events[1].ID || !page.Consumer.Offline {
		t.Errorf("after a kill come %q, %+v", happened(page), page.Consumer)
	}
	w.start()
	write("g")
	eventually(t, 20*time.Second, "the hub is followed", func() bool { return !r.stale() })
	if page := poll(atNode, verb.PollRequest{}); happened(page) != "g" || page.Consumer.Offline {
		t.Errorf("with the hub back come %q, %+v", happened(page), page.Consumer)
	}

	// What is owed comes to the hub by itself.
	write("h")
	w.stop()
	poll(atNode, verb.PollRequest{})
	last := poll(atNode, verb.PollRequest{}).Consumer.Cursor
	w.start()
	eventually(t, 30*time.Second, "the cursor comes to the hub", func() bool {
		k := do(w, w.as("ada", verb.Viewer), verb.ConsumersGet, verb.ConsumersGetRequest{ConsumerID: "c"}).Consumers[0]
		return k.Cursor == last
	})

	// Who is away is taken over, and what it does then counts no more.
	w.stop()
	gone := poll(atNode, verb.PollRequest{AutoAdvance: new(bool)}).Consumer
	w.start()
	rewound := do(w, w.as("ada", verb.Viewer), verb.ConsumersRewind, verb.ConsumersRewindRequest{ConsumerID: "c", EventID: page.Events[0].ID})
	w.stop()
	if out := must(t, verb.ConsumersAdvance, atNode, verb.ConsumersAdvanceRequest{ConsumerID: "c", Generation: gone.Generation, EventID: gone.Cursor}); !out.Pending {
		t.Errorf("an advance without the hub: %+v", out)
	}
	w.start()
	eventually(t, 20*time.Second, "the hub is followed", func() bool { return !r.stale() })
	if page := poll(atNode, verb.PollRequest{}); happened(page) != "f g" || page.Consumer.Generation != rewound.Consumer.Generation+1 {
		t.Errorf("after a rewind meanwhile come %q, %+v", happened(page), page.Consumer)
	}
	must(t, verb.ConsumersDelete, atNode, verb.ConsumersDeleteRequest{ConsumerID: "c"})
	w.stop()
	if _, err := verb.Poll.Call(t.Context(), atNode, verb.PollRequest{ConsumerID: "c"}); !artifact.IsCode(err, artifact.CodeUnavailable) {
		t.Errorf("a lease of a consumer that was deleted: %v", err)
	}
}

// TestPrivateEventsAtNode checks that a node passes on the hub's events of what no
// replica holds, to whom the hub tells them, when they are asked for.
func TestPrivateEventsAtNode(t *testing.T) {
	l := newLabs(t)
	ada, bob := l.as(t, "ada"), l.token(t, "bob")
	ask := func(base string, query map[string][]string) *sse { return listenTo(t, base, bob, query, "") }
	named := ask(l.a.url, map[string][]string{"types": {"message.*"}})
	all := ask(l.a.url, map[string][]string{"include_private": {"true"}, "types": {"*"}})
	public := ask(l.a.url, map[string][]string{})
	must(t, verb.Create, l.as(t, "bob"), statement("", "bobs", "so that bob is known"))
	sent := must(t, verb.Create, ada, verb.CreateRequest{Type: "message", Title: "Hush", Content: []byte(`{"recipient":"agent:bob","body":"a secret"}`)})
	after := must(t, verb.Create, ada, statement("", "after", "x"))
	if e := named.event(); e.ID != sent.Seq || e.Type != "message.created" {
		t.Errorf("by its name comes %+v", e)
	}
	var types []string
	for e := all.event(); e.ID <= after.Seq; e = all.event() {
		if types = append(types, e.Type); e.ID == after.Seq {
			break
		}
	}
	if got := strings.Join(types, " "); !strings.Contains(got, "message.created") || !strings.HasSuffix(got, "hypothesis.created") {
		t.Errorf("with all come %s", got)
	}
	for e := public.event(); e.ID <= after.Seq; e = public.event() {
		if e.Ref.Type == "message" {
			t.Errorf("without being asked for comes %+v", e)
		}
		if e.ID == after.Seq {
			break
		}
	}
	start := sent.Seq - 1
	at := &verb.Client{URL: l.a.url, Token: bob}
	if page := must(t, verb.Poll, at, verb.PollRequest{Types: []string{"message.created"}, Since: &start}); len(page.Events) != 1 {
		t.Errorf("a poll by name: %+v", page)
	}
	eve := &verb.Client{URL: l.a.url, Token: l.token(t, "vic")}
	if page := must(t, verb.Poll, eve, verb.PollRequest{IncludePrivate: true, Since: &start}); len(page.Events) != 1 || page.Events[0].ID != after.Seq {
		t.Errorf("another's poll: %+v", page)
	}
}

// TestEveryEventReachesConsumer reads with a durable consumer through a node, under
// load, while PostgreSQL, the hub, the node and the client are killed in turn: each
// event that was written comes, and the cursor never goes back.
func TestEveryEventReachesConsumer(t *testing.T) {
	c := postgres.Config{Dir: t.TempDir(), Settings: map[string]string{"shared_buffers": "16MB"}}
	server, err := postgres.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.WithoutCancel(t.Context())) })
	db, err := hub.OpenPool(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := initHub(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, db)
	r := w.node(t.TempDir(), "ada", verb.Contributor)
	w.caughtUp(r)

	var mu sync.Mutex
	var written []string
	seen := map[string]bool{}
	seenSoFar := func() int { mu.Lock(); defer mu.Unlock(); return len(seen) }
	var noted artifact.Seq // that an advance was answered for
	token := r.token
	follow := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		var place verb.ConsumerPlace
		url := r.url
		client := &event.Client{URL: url, Token: token, Began: func(p verb.ConsumerPlace) {
			mu.Lock()
			defer mu.Unlock()
			if p.Cursor < noted {
				t.Errorf("a stream begins at %d, after %d was noted", p.Cursor, noted)
			}
			place = p
		}}
		ended := make(chan struct{})
		n := 0
		go func() {
			defer close(ended)
			start := artifact.Seq(0)
			err := client.Follow(ctx, verb.SubscribeRequest{Durable: true, ConsumerID: "c", Types: []string{"hypothesis.created"}, Since: &start}, func(e verb.Event) error {
				mu.Lock()
				seen[e.Ref.ID] = true
				p := place
				mu.Unlock()
				if n++; n%7 != 0 {
					return nil
				}
				out, err := verb.ConsumersAdvance.Call(ctx, &verb.Client{URL: url, Token: token}, verb.ConsumersAdvanceRequest{ConsumerID: "c", Generation: p.Generation, Epoch: p.Epoch, EventID: e.ID})
				if err != nil {
					return nil // it comes again
				}
				mu.Lock()
				defer mu.Unlock()
				if out.Consumer.Cursor < noted {
					t.Errorf("an advance to %d leaves the cursor at %d, it was at %d", e.ID, out.Consumer.Cursor, noted)
				}
				noted = max(noted, out.Consumer.Cursor)
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the consumer ends with %v", err)
			}
		}()
		return func() { cancel(); <-ended }
	}

	loading, stopLoad := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; loading.Err() == nil; i++ {
			id := fmt.Sprint("h", i)
			for loading.Err() == nil {
				_, err := verb.Create.Call(t.Context(), &verb.Client{URL: w.url, Token: token}, statement("", id, "x"))
				if err == nil || artifact.IsCode(err, artifact.CodeVersionConflict) {
					mu.Lock()
					written = append(written, id)
					mu.Unlock()
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(3 * time.Millisecond)
		}
	})
	stop := follow()
	more := func(what string) {
		t.Helper()
		before := seenSoFar()
		eventually(t, 60*time.Second, "events come "+what, func() bool { return seenSoFar() > before+20 })
	}
	more("at first")
	for range 2 {
		killPostgres(t, server)
		if server, err = postgres.Start(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		more("after PostgreSQL was killed")
		w.stop()
		w.start()
		more("after the hub was killed")
		stop() // nothing is noted at its end
		r.stop()
		r = w.node(r.dir, "ada", verb.Contributor)
		stop = follow()
		more("after the node was killed")
		stop()
		stop = follow()
		more("after the client was killed")
	}
	stopLoad()
	load.Wait()
	eventually(t, 60*time.Second, "all that was written comes", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range written {
			if !seen[id] {
				return false
			}
		}
		return true
	})
	stop()
	t.Logf("%d events written, %d seen, the cursor noted at %d", len(written), len(seen), noted)
}
