package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/verb"
)

// happened returns what a page holds, by the ids of what happened.
func happened(page verb.PollResult) string {
	var out []string
	for _, e := range page.Events {
		out = append(out, e.Ref.ID)
	}
	return strings.Join(out, " ")
}

func seqs(n ...artifact.Seq) *artifact.Seq { return &n[0] }

var manual = false

// call runs a verb that must succeed.
func mustCall[In, Out any](t *testing.T, ctx context.Context, inv verb.Invoker, v verb.Verb[In, Out], in In) Out {
	t.Helper()
	out, err := v.Call(ctx, inv, in)
	if err != nil {
		t.Fatalf("%s %+v: %v", v.Name, in, err)
	}
	return out
}

// reasonOf returns why a verb refuses.
func reasonOf[In, Out any](t *testing.T, ctx context.Context, inv verb.Invoker, v verb.Verb[In, Out], in In) string {
	t.Helper()
	_, err := v.Call(ctx, inv, in)
	if err == nil {
		return ""
	}
	f, _ := verb.FailureOf(artifact.AsError(err))
	return f.Reason
}

// TestConsumer goes through a consumer's life: it is made by its first poll, moves by
// itself or when told, forward only, goes back when told, which ends the generation,
// and is its agent's alone.
func TestConsumer(t *testing.T) {
	f := newHub(t)
	bo := as(t.Context(), "bo", verb.Viewer)
	poll := func(in verb.PollRequest) verb.PollResult {
		t.Helper()
		in.ConsumerID = "c"
		return mustCall(t, bo, f.verbs, verb.Poll, in)
	}
	first := poll(verb.PollRequest{Types: []string{"hypothesis.*"}})
	if len(first.Events) != 0 || first.Consumer == nil || first.Consumer.Generation != 1 || !first.CaughtUp {
		t.Fatalf("a new consumer begins now: %+v", first)
	}
	for i := range 6 {
		f.mustCreate(t, hypothesis(fmt.Sprint("h", i), "x"))
	}
	if page := poll(verb.PollRequest{Limit: 2}); happened(page) != "h0 h1" || page.Consumer.Cursor != page.Cursor {
		t.Errorf("its first page: %s, %+v", happened(page), page.Consumer)
	}
	page := poll(verb.PollRequest{Limit: 2, AutoAdvance: &manual})
	if happened(page) != "h2 h3" || page.Consumer.Cursor >= page.Events[0].ID {
		t.Errorf("its second: %s, %+v", happened(page), page.Consumer)
	}
	if again := poll(verb.PollRequest{Limit: 2, AutoAdvance: &manual}); happened(again) != "h2 h3" {
		t.Errorf("what was not noted does not come again: %s", happened(again))
	}
	advance := verb.ConsumersAdvanceRequest{ConsumerID: "c", Generation: 1, EventID: page.Events[0].ID}
	if out := mustCall(t, bo, f.verbs, verb.ConsumersAdvance, advance); out.Consumer.Cursor != page.Events[0].ID {
		t.Errorf("advanced to %+v", out)
	}
	advance.EventID--
	if out := mustCall(t, bo, f.verbs, verb.ConsumersAdvance, advance); out.Consumer.Cursor != page.Events[0].ID {
		t.Errorf("an advance went back: %+v", out)
	}
	if page := poll(verb.PollRequest{Since: seqs(0), AutoAdvance: &manual}); !strings.HasPrefix(happened(page), "h0 h1") {
		t.Errorf("since wins: %s", happened(page))
	}
	if page := poll(verb.PollRequest{}); happened(page) != "h3 h4 h5" {
		t.Errorf("the rest: %s", happened(page))
	}

	// Another's is as if it were not there, and one of the same name another one.
	eve := as(t.Context(), "eve", verb.Admin)
	for name, reason := range map[string]string{
		"get":          reasonOf(t, eve, f.verbs, verb.ConsumersGet, verb.ConsumersGetRequest{ConsumerID: "c"}),
		"advance":      reasonOf(t, eve, f.verbs, verb.ConsumersAdvance, advance),
		"rewind":       reasonOf(t, eve, f.verbs, verb.ConsumersRewind, verb.ConsumersRewindRequest{ConsumerID: "c"}),
		"refuse":       reasonOf(t, eve, f.verbs, verb.ConsumersRefuse, verb.ConsumersRefuseRequest{ConsumerID: "c", Generation: 1, EventID: page.Events[0].ID}),
		"dead_letters": reasonOf(t, eve, f.verbs, verb.ConsumersDeadLetters, verb.DeadLettersRequest{ConsumerID: "c"}),
		"replay":       reasonOf(t, eve, f.verbs, verb.ConsumersReplay, verb.ConsumersReplayRequest{ConsumerID: "c"}),
		"delete":       reasonOf(t, eve, f.verbs, verb.ConsumersDelete, verb.ConsumersDeleteRequest{ConsumerID: "c"}),
	} {
		if reason != "not_found" {
			t.Errorf("%s of another's: %q", name, reason)
		}
	}
	if page := mustCall(t, eve, f.verbs, verb.Poll, verb.PollRequest{ConsumerID: "c"}); page.Consumer.Generation != 1 || len(page.Events) != 0 {
		t.Errorf("one of the same name: %+v", page)
	}

	// It goes back, and who read with it no longer counts.
	back := mustCall(t, bo, f.verbs, verb.ConsumersRewind, verb.ConsumersRewindRequest{ConsumerID: "c", EventID: page.Events[0].ID})
	if back.Consumer.Generation != 2 || back.Consumer.Cursor != page.Events[0].ID || back.Consumer.Behind == 0 {
		t.Errorf("rewound: %+v", back)
	}
	advance.EventID = page.Events[1].ID
	if reason := reasonOf(t, bo, f.verbs, verb.ConsumersAdvance, advance); reason != artifact.ReasonConsumerTaken {
		t.Errorf("an advance of the elder generation: %q", reason)
	}
	if reason := reasonOf(t, bo, f.verbs, verb.ConsumersRewind, verb.ConsumersRewindRequest{ConsumerID: "c", EventID: page.Events[1].ID}); reason != "validation_failed" {
		t.Errorf("a rewind forward: %q", reason)
	}
	advance.Generation, advance.EventID = 2, 1<<40
	if reason := reasonOf(t, bo, f.verbs, verb.ConsumersAdvance, advance); reason != artifact.ReasonCursorExpired {
		t.Errorf("an advance beyond the log: %q", reason)
	}
	if page := poll(verb.PollRequest{}); happened(page) != "h3 h4 h5" || page.Consumer.Generation != 3 {
		t.Errorf("after the rewind: %s, %+v", happened(page), page.Consumer)
	}

	all := mustCall(t, bo, f.verbs, verb.ConsumersGet, verb.ConsumersGetRequest{})
	if len(all.Consumers) != 1 || all.Consumers[0].ConsumerID != "c" || all.Consumers[0].Behind != 0 || cmp.Diff([]string{"hypothesis.*"}, all.Consumers[0].Types) != "" {
		t.Errorf("all: %+v", all)
	}
	mustCall(t, bo, f.verbs, verb.ConsumersDelete, verb.ConsumersDeleteRequest{ConsumerID: "c"})
	if reason := reasonOf(t, bo, f.verbs, verb.ConsumersGet, verb.ConsumersGetRequest{ConsumerID: "c"}); reason != "not_found" {
		t.Errorf("after it was deleted: %q", reason)
	}
}

// TestConsumerBounds checks names, and how many an agent has, also when it makes them
// at once.
func TestConsumerBounds(t *testing.T) {
	f := newHubWith(t, hub.Config{DB: pgtest.New(t, initHub), Consumers: hub.ConsumerConfig{PerAgent: 5}})
	bo := as(t.Context(), "bo", verb.Viewer)
	for _, name := range []string{" ", "-x", "a b", "é", strings.Repeat("x", 129)} {
		if reason := reasonOf(t, bo, f.verbs, verb.Poll, verb.PollRequest{ConsumerID: name}); reason != "validation_failed" {
			t.Errorf("the name %q: %q", name, reason)
		}
	}
	if reason := reasonOf(t, bo, f.verbs, verb.Poll, verb.PollRequest{AutoAdvance: &manual}); reason != "validation_failed" {
		t.Errorf("auto_advance of none: %q", reason)
	}
	var wait sync.WaitGroup
	for i := range 12 {
		wait.Go(func() {
			_, err := verb.Poll.Call(bo, f.verbs, verb.PollRequest{ConsumerID: fmt.Sprint("c", i)})
			if err != nil && artifact.AsError(err).Reason != artifact.ReasonTooMany {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := f.count(t, `SELECT count(*) FROM consumer_subscriptions`); n != 5 {
		t.Errorf("the agent has %d consumers", n)
	}
}

// TestRefusals gives an event back until it is a dead letter: it comes again each
// time, then no more, can be read, and comes again when it is replayed.
func TestRefusals(t *testing.T) {
	for _, auto := range []bool{true, false} {
		t.Run(fmt.Sprint("auto_advance ", auto), func(t *testing.T) {
			f := newHub(t)
			bo := as(t.Context(), "bo", verb.Viewer)
			poll := func() verb.PollResult {
				t.Helper()
				return mustCall(t, bo, f.verbs, verb.Poll, verb.PollRequest{ConsumerID: "c", AutoAdvance: &auto, Types: []string{"hypothesis.*"}})
			}
			poll()
			for i := range 3 {
				f.mustCreate(t, hypothesis(fmt.Sprint("h", i), "x"))
			}
			bad := poll().Events[1].ID
			refuse := verb.ConsumersRefuseRequest{ConsumerID: "c", Generation: 1, EventID: bad, Reason: "it does not parse"}
			for n := 1; n < verb.MaxRefusals; n++ {
				if out := mustCall(t, bo, f.verbs, verb.ConsumersRefuse, refuse); out.Refusals != n || out.Dead {
					t.Fatalf("refusal %d: %+v", n, out)
				}
				if out := mustCall(t, bo, f.verbs, verb.ConsumersRefuse, refuse); out.Refusals != n || out.Dead {
					t.Fatalf("refusal %d sent twice: %+v", n, out)
				}
				if page := poll(); !strings.Contains(happened(page), "h1") {
					t.Fatalf("after %d refusals %q come", n, happened(page))
				}
			}
			if out := mustCall(t, bo, f.verbs, verb.ConsumersRefuse, refuse); !out.Dead || out.Refusals != verb.MaxRefusals {
				t.Fatalf("the last refusal: %+v", out)
			}
			if out := mustCall(t, bo, f.verbs, verb.ConsumersRefuse, refuse); !out.Dead || out.Refusals != verb.MaxRefusals {
				t.Fatalf("the last refusal sent twice: %+v", out)
			}
			page := poll()
			if strings.Contains(happened(page), "h1") {
				t.Errorf("a dead letter comes: %s", happened(page))
			}
			if !auto {
				if happened(page) != "h0 h2" {
					t.Errorf("beside the dead letter come %q", happened(page))
				}
				mustCall(t, bo, f.verbs, verb.ConsumersAdvance, verb.ConsumersAdvanceRequest{ConsumerID: "c", Generation: 1, EventID: page.Cursor})
			}
			letters := mustCall(t, bo, f.verbs, verb.ConsumersDeadLetters, verb.DeadLettersRequest{ConsumerID: "c"})
			if len(letters.DeadLetters) != 1 || letters.More {
				t.Fatalf("dead letters: %+v", letters)
			}
			if d := letters.DeadLetters[0]; d.EventID != bad || d.Event == nil || d.Event.Ref.ID != "h1" || d.Reason != refuse.Reason || d.Refusals != verb.MaxRefusals {
				t.Errorf("the dead letter: %+v", d)
			}
			if k := mustCall(t, bo, f.verbs, verb.ConsumersGet, verb.ConsumersGetRequest{ConsumerID: "c"}).Consumers[0]; k.DeadLetters != 1 {
				t.Errorf("the consumer has %d", k.DeadLetters)
			}

			if out := mustCall(t, bo, f.verbs, verb.ConsumersReplay, verb.ConsumersReplayRequest{ConsumerID: "c", EventIDs: []artifact.Seq{bad}}); out.Consumer.DeadLetters != 0 {
				t.Errorf("replayed: %+v", out)
			}
			f.mustCreate(t, hypothesis("h3", "x"))
			page = poll()
			if happened(page) != "h1" || page.CaughtUp {
				t.Errorf("after the replay come %q", happened(page))
			}
			if !auto {
				if again := poll(); happened(again) != "h1" {
					t.Errorf("what was replayed and not noted does not come again: %s", happened(again))
				}
				mustCall(t, bo, f.verbs, verb.ConsumersAdvance, verb.ConsumersAdvanceRequest{ConsumerID: "c", Generation: 1, EventID: page.Cursor})
			}
			if page = poll(); happened(page) != "h3" {
				t.Errorf("after that come %q", happened(page))
			}
			refuse.Generation = 7
			if reason := reasonOf(t, bo, f.verbs, verb.ConsumersRefuse, refuse); reason != artifact.ReasonConsumerTaken {
				t.Errorf("a refusal of another generation: %q", reason)
			}
			refuse.Generation, refuse.EventID = 1, 1<<40
			if reason := reasonOf(t, bo, f.verbs, verb.ConsumersRefuse, refuse); reason != "not_found" {
				t.Errorf("a refusal of nothing: %q", reason)
			}
		})
	}
}

// TestConsumerIsTrimmed checks that a consumer whose next event is no longer kept is
// told which is, and can go on from there.
func TestConsumerIsTrimmed(t *testing.T) {
	f := newHubWith(t, hub.Config{DB: pgtest.New(t, initSmall), PartitionRows: smallPartition})
	bo := as(t.Context(), "bo", verb.Viewer)
	mustCall(t, bo, f.verbs, verb.Poll, verb.PollRequest{ConsumerID: "c"})
	for i := range 3 * smallPartition {
		f.mustCreate(t, hypothesis(fmt.Sprint("h", i), "x"))
	}
	var parts []string
	rows, err := f.db.Query(t.Context(), `SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'event'::regclass
		AND (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''(\d+)''\)'))[1]::bigint < $1`, int64(f.head(t))-10)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, name)
	}
	for _, name := range parts {
		if _, err := f.db.Exec(t.Context(), `DROP TABLE `+name); err != nil {
			t.Fatal(err)
		}
	}
	_, err = verb.Poll.Call(bo, f.verbs, verb.PollRequest{ConsumerID: "c"})
	e := artifact.AsError(err)
	kept, _ := e.Details["oldest"].(artifact.Seq)
	if e.Reason != artifact.ReasonCursorExpired || kept == 0 {
		t.Fatalf("a poll of what was trimmed: %v %+v", err, e.Details)
	}
	mustCall(t, bo, f.verbs, verb.ConsumersAdvance, verb.ConsumersAdvanceRequest{ConsumerID: "c", Generation: 1, EventID: kept - 1})
	if page := mustCall(t, bo, f.verbs, verb.Poll, verb.PollRequest{ConsumerID: "c"}); len(page.Events) == 0 || page.Events[0].ID < kept {
		t.Errorf("from what is kept on: %+v", page)
	}
}

// next returns what comes on a channel, within a bound.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes")
	}
	return v
}

// TestConsumerStreams checks that a durable stream goes on where its consumer is,
// whatever its client says, that there is one at a time, and that polls go on where
// it was.
func TestConsumerStreams(t *testing.T) {
	db := pgtest.New(t, initHub)
	f := newHubWith(t, hub.Config{DB: db, Consumers: hub.ConsumerConfig{Look: 50 * time.Millisecond}})
	url := f.serve(t)
	elsewhere := newHubWith(t, hub.Config{DB: db, Consumers: hub.ConsumerConfig{Look: 50 * time.Millisecond}}).serve(t)
	token := f.token(t, "bo", verb.Viewer)
	type reader struct {
		events chan verb.Event
		places chan verb.ConsumerPlace
		ended  chan error
		stop   context.CancelFunc
	}
	follow := func(url string) *reader {
		ctx, cancel := context.WithCancel(t.Context())
		r := &reader{make(chan verb.Event, 1000), make(chan verb.ConsumerPlace, 10), make(chan error, 1), cancel}
		client := &event.Client{URL: url, Token: token, Began: func(p verb.ConsumerPlace) { r.places <- p }}
		go func() {
			r.ended <- client.Follow(ctx, verb.SubscribeRequest{Types: []string{"hypothesis.*"}, Durable: true, ConsumerID: "c"}, func(e verb.Event) error {
				r.events <- e
				return nil
			})
		}()
		return r
	}
	first := follow(url)
	place := next(t, first.places)
	a := f.mustCreate(t, hypothesis("a", "x"))
	f.mustCreate(t, hypothesis("b", "x"))
	if e := next(t, first.events); e.Ref.ID != "a" {
		t.Errorf("first comes %+v", e)
	}
	if e := next(t, first.events); e.Ref.ID != "b" {
		t.Errorf("second comes %+v", e)
	}
	client := &verb.Client{URL: url, Token: token}
	mustCall(t, t.Context(), client, verb.ConsumersAdvance, verb.ConsumersAdvanceRequest{ConsumerID: "c", Generation: place.Generation, Epoch: place.Epoch, EventID: a.Seq})

	for i, at := range []string{url, elsewhere, url} {
		later := follow(at)
		now := next(t, later.places)
		if now.Generation != place.Generation+1 || now.Cursor != a.Seq {
			t.Errorf("stream %d begins at %+v, before it was %+v", i, now, place)
		}
		if e := next(t, later.events); e.Ref.ID != "b" {
			t.Errorf("stream %d gets %+v first", i, e)
		} else {
			for range 2 { // sent twice, it counts once
				refuse := verb.ConsumersRefuseRequest{ConsumerID: "c", Generation: now.Generation, EventID: e.ID}
				if out := mustCall(t, t.Context(), client, verb.ConsumersRefuse, refuse); out.Refusals != i+1 {
					t.Errorf("refused by stream %d: %+v", i, out)
				}
			}
		}
		err := next(t, first.ended)
		if e := artifact.AsError(err); e.Reason != artifact.ReasonConsumerTaken || fmt.Sprint(e.Details["generation"], now.Generation) != fmt.Sprint(now.Generation, now.Generation) {
			t.Errorf("the elder stream ends with %v %v", err, e.Details)
		}
		if reason := reasonOf(t, t.Context(), client, verb.ConsumersAdvance, verb.ConsumersAdvanceRequest{ConsumerID: "c", Generation: place.Generation, EventID: a.Seq}); reason != artifact.ReasonConsumerTaken {
			t.Errorf("an advance of the elder: %q", reason)
		}
		first, place = later, now
	}
	if page := mustCall(t, t.Context(), client, verb.Poll, verb.PollRequest{ConsumerID: "c"}); happened(page) != "b" {
		t.Errorf("a poll goes on with %q", happened(page))
	}
	if err := next(t, first.ended); artifact.AsError(err).Reason != artifact.ReasonConsumerTaken {
		t.Errorf("the stream ends with %v", err)
	}
	last := follow(url)
	next(t, last.places)
	mustCall(t, t.Context(), client, verb.ConsumersDelete, verb.ConsumersDeleteRequest{ConsumerID: "c"})
	if err := next(t, last.ended); !artifact.IsCode(err, artifact.CodeNotFound) {
		t.Errorf("the stream of a consumer that was deleted ends with %v", err)
	}
	gone := follow(url)
	next(t, gone.places)
	gone.stop()
	if err := next(t, gone.ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPrivateEvents checks who is told of what is not for everyone: a message's
// participants all of it, an admin that it happened, others nothing; an admin of
// what the system does.
func TestPrivateEvents(t *testing.T) {
	f := newHub(t)
	f.register(t, "bo", "human")
	start := f.head(t)
	ada := contributor(t.Context())
	mustCall(t, ada, f.verbs, verb.Create, verb.CreateRequest{Type: "message", Title: "Hush", Content: content(map[string]any{"recipient": "agent:bo", "body": "a secret"})})
	mustCall(t, f.admin(t.Context()), f.verbs, verb.NodesInvite, verb.NodesInviteRequest{Lab: "A lab"})
	for _, tt := range []struct {
		who    string
		ctx    context.Context //nolint:containedctx // it says who calls
		types  string
		whole  bool // the payload
		pinned bool
	}{
		{"the sender", ada, "message.created", true, true},
		{"the recipient", as(t.Context(), "bo", verb.Viewer), "message.created", true, true},
		{"another", as(t.Context(), "eve", verb.Viewer, verb.Contributor, verb.Reviewer), "", true, true},
		{"an admin", as(t.Context(), "boss", verb.Admin), "message.created system.node_invited", false, false},
	} {
		page := mustCall(t, tt.ctx, f.verbs, verb.Poll, verb.PollRequest{Types: []string{"message.*", "system.*"}, Since: &start})
		var types []string
		for _, e := range page.Events {
			types = append(types, e.Type)
			if e.Ref.Type == "message" && (e.Ref.Version != "") != tt.pinned {
				t.Errorf("%s is told of %+v", tt.who, e.Ref)
			}
			if e.Ref.Type == "message" && (string(e.Payload) != "{}") != tt.whole {
				t.Errorf("%s is told %s", tt.who, e.Payload)
			}
			if strings.HasPrefix(e.Type, "system.") && !strings.Contains(string(e.Payload), "A lab") {
				t.Errorf("%s is told %s of the system", tt.who, e.Payload)
			}
		}
		if got := strings.Join(types, " "); got != tt.types {
			t.Errorf("%s is told of %q, want %q", tt.who, got, tt.types)
		}
	}
}

// TestEventsAheadOfTheRing reads at a hub that has not read its log up to what another
// hub wrote: what it keeps in memory ends before, and nothing after that is passed by.
func TestEventsAheadOfTheRing(t *testing.T) {
	f := newHub(t)
	f.mustCreate(t, hypothesis("h-1", "x"))
	ctx := contributor(t.Context())
	start := f.head(t)
	callOK(t, verb.Poll, ctx, f.verbs, verb.PollRequest{Since: &start}) // waits until the hub has read so far
	f.stop()
	made := f.mustCreate(t, hypothesis("h-2", "x"))
	page := callOK(t, verb.Poll, ctx, f.verbs, verb.PollRequest{Types: []string{"hypothesis.*"}, Since: &start})
	if len(page.Events) != 1 || page.Events[0].ID != made.Seq {
		t.Errorf("page = %+v, want the event %d", page, made.Seq)
	}
}

// TestLegacyNames checks that what was an actor's event is found by its old name and
// told with it.
func TestLegacyNames(t *testing.T) {
	f := newHub(t)
	start := f.head(t)
	f.register(t, "newcomer", "human")
	page := mustCall(t, contributor(t.Context()), f.verbs, verb.Poll, verb.PollRequest{Types: []string{"actor.registered"}, Since: &start})
	if len(page.Events) != 1 || page.Events[0].Type != "agent.registered" || page.Events[0].LegacyType != "actor.registered" {
		t.Errorf("by the old name come %+v", page.Events)
	}
	rule := json.RawMessage(`{"==":[{"var":"legacy_event_type"},"actor.registered"]}`)
	if page := mustCall(t, contributor(t.Context()), f.verbs, verb.Poll, verb.PollRequest{Filter: rule, Since: &start}); len(page.Events) != 1 {
		t.Errorf("by a rule on the old name come %+v", page.Events)
	}
}
