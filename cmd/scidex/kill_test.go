package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// A reading is what scidex tail has shown, in all of its lives.
type reading struct {
	mu   sync.Mutex
	seen map[artifact.Seq]int // by event, how often; guarded by mu
}

// take reads what a program shows until it ends.
func (r *reading) take(p *process) {
	for lines := bufio.NewScanner(p.stdout); lines.Scan(); {
		var e struct {
			ID artifact.Seq `json:"event_id"`
		}
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			r.mu.Lock()
			r.seen[e.ID]++
			r.mu.Unlock()
		}
	}
}

func (r *reading) count() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// TestKillsInTurn kills the hub, a node and a consumer that reads through it, with
// kill -9 and in turn, while messages are sent and hypotheses made: each event comes
// to the consumer, its place never goes back, and a message that was retried with its
// key is there once.
func TestKillsInTurn(t *testing.T) {
	url := pgtest.URL(t, nil)
	db := "--database-url=" + url
	runToEnd(t, "hub", "init", db)
	hubAddr, nodeAddr, dir := freeAddr(t), freeAddr(t), t.TempDir()
	hubURL, nodeURL := "http://"+hubAddr, "http://"+nodeAddr
	startHub := func() *process { return start(t, nil, "hub", "run", db, "--addr", hubAddr) }
	startNode := func() *process { return start(t, nil, "node", "run", "--data", dir, "--addr", nodeAddr) }
	hub := startHub()
	eventually(t, "the hub is ready", func() bool { return readySeq(t.Context(), hubURL, "head") > 0 })
	var invite struct{ Code string }
	printed(t, &invite, "hub", "invite", "--lab", "lab", "--hub-url", hubURL, db)
	runToEnd(t, "node", "join", hubURL+"#"+invite.Code, "--data", dir)
	node := startNode()
	eventually(t, "the node is ready", func() bool { return readySeq(t.Context(), nodeURL, "applied_seq") > 0 })
	ada := runToEnd(t, "token", "--sub", "ada", "--permissions", "contributor", db)
	bob := runToEnd(t, "token", "--sub", "bob", "--permissions", "contributor", db)
	atHub := &verb.Client{URL: hubURL, Token: ada}
	asBob := &verb.Client{URL: hubURL, Token: bob}
	if _, err := verb.Create.Call(t.Context(), asBob, verb.CreateRequest{Type: "gene", ID: "BOB", Title: "x", Content: json.RawMessage(`{"symbol":"BOB"}`)}); err != nil {
		t.Fatal(err) // who has written is known
	}

	read := &reading{seen: make(map[artifact.Seq]int)}
	startTail := func() *process {
		p := start(t, nil, "tail", "hypothesis.created", "--consumer", "c", "--json", "--hub", nodeURL, "--token", ada)
		go read.take(p)
		return p
	}
	tail := startTail()
	place := func() (at artifact.Seq, err error) {
		out, err := verb.ConsumersGet.Call(t.Context(), atHub, verb.ConsumersGetRequest{ConsumerID: "c"})
		if err == nil {
			at = out.Consumers[0].Cursor
		}
		return at, err
	}
	eventually(t, "the consumer is there", func() bool { _, err := place(); return err == nil })

	var written, replayed int
	first, last := artifact.Seq(0), artifact.Seq(0)
	loading, stopLoad := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; loading.Err() == nil; i++ {
			key := uuid.NewString()
			made := persist(t, verb.Create, atHub, verb.CreateRequest{
				Type: "hypothesis", ID: fmt.Sprint("h", i), Title: "x", Content: json.RawMessage(`{"statement":"x"}`), WriteOptions: verb.WriteOptions{IdempotencyKey: key},
			})
			if last = made.Seq; first == 0 {
				first = last
			}
			sent := persist(t, verb.MessagesSend, atHub, verb.MessagesSendRequest{
				Recipient: "agent:bob", Body: fmt.Sprint("message ", i), WriteOptions: verb.WriteOptions{IdempotencyKey: uuid.NewString()},
			})
			if written++; sent.Idempotency == verb.IdempotencyReplayed || made.Idempotency == verb.IdempotencyReplayed {
				replayed++
			}
		}
	})
	var before artifact.Seq
	watch := func(what string) {
		t.Helper()
		n := read.count()
		eventually(t, "events come again after "+what, func() bool { return read.count() > n+20 })
		eventually(t, "the consumer's place is told", func() bool {
			at, err := place()
			if err == nil && at < before {
				t.Errorf("after %s the consumer is at %d, it was at %d", what, at, before)
			}
			before = max(before, at)
			return err == nil
		})
	}
	for range 3 {
		hub.signal(syscall.SIGKILL)
		<-hub.done
		hub = startHub()
		watch("the hub was killed")
		node.signal(syscall.SIGKILL)
		<-node.done
		node = startNode()
		watch("the node was killed")
		tail.signal(syscall.SIGKILL)
		<-tail.done
		tail = startTail()
		watch("the consumer was killed")
	}
	stopLoad()
	load.Wait()
	eventually(t, fmt.Sprintf("all %d events come", written), func() bool { return read.count() >= written })
	if n := read.count(); n != written {
		t.Errorf("%d events came of %d", n, written)
	}
	eventually(t, "the consumer is done with all", func() bool { at, _ := place(); return at >= last })
	for i, seqs := 0, created(t, atHub, first-1); i < len(seqs); i++ {
		if read.seen[seqs[i]] == 0 {
			t.Errorf("event %d did not come", seqs[i])
		}
	}
	t.Logf("%d events and messages, %d of them replayed", written, replayed)

	got, cursor := map[string]int{}, ""
	for more := true; more; more = cursor != "" {
		page, err := verb.MessagesList.Call(t.Context(), asBob, verb.MessagesListRequest{Limit: 200, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Messages {
			got[page.Messages[i].Body]++
		}
		cursor = page.NextCursor
	}
	if len(got) != written {
		t.Errorf("bob has %d messages of %d", len(got), written)
	}
	for body, n := range got {
		if n != 1 {
			t.Errorf("bob has %q %d times", body, n)
		}
	}
}

// persist calls a verb until it is answered, with the same key each time.
func persist[In, Out any](t *testing.T, v verb.Verb[In, Out], c *verb.Client, in In) (out Out) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		out, err := v.Call(t.Context(), c, in)
		if err == nil {
			return out
		}
		if e := artifact.AsError(err); !e.Retryable && e.Code != artifact.CodeUnavailable || time.Now().After(end) {
			t.Errorf("%s: %v", v.Name, err)
			return out
		}
	}
}

// created returns the events of hypotheses that were made after one, as a poll tells.
func created(t *testing.T, c *verb.Client, after artifact.Seq) (ids []artifact.Seq) {
	t.Helper()
	for {
		page, err := verb.Poll.Call(t.Context(), c, verb.PollRequest{Since: &after, Types: []string{"hypothesis.created"}, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Events {
			ids = append(ids, page.Events[i].ID)
		}
		if after = page.Cursor; page.CaughtUp {
			return ids
		}
	}
}
