package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/replicate"
)

// eventsOf returns the events that ride on rows.
func eventsOf(rows []replicate.Row) (events []artifact.Event) {
	for _, r := range rows {
		if e := r.Event; e != nil {
			events = append(events, artifact.Event{
				ID: r.Seq, Type: e.Type, At: r.At, Actor: artifact.Actor{ID: e.ActorID, Kind: e.ActorKind}, Ref: e.Ref, Scope: r.Scope, Payload: e.Payload,
			})
		}
	}
	return events
}

// readTo reads a subscription until its cursor is at a seq.
func readTo(ctx context.Context, sub *node.Subscription, seq artifact.Seq) (events []artifact.Event, err error) {
	for {
		page, err := sub.Next(ctx)
		if err != nil {
			return events, err
		}
		if page.CaughtUp != (page.Backlog == 0) {
			return events, fmt.Errorf("caught up: %t, with a backlog of %d", page.CaughtUp, page.Backlog)
		}
		if events = append(events, page.Events...); page.Cursor >= seq {
			return events, nil
		}
	}
}

// TestSubscription checks that whatever is applied meanwhile, and wherever the
// cursor begins, each event comes once and in order: out of SQL first, then out
// of memory.
func TestSubscription(t *testing.T) {
	s, f := newStore(t), newFeed(t, 20)
	var log []replicate.Row
	for range 60 { // more than memory keeps
		b := f.commits(100)
		log = append(log, b.Rows...)
		apply(t, s, b)
	}
	starts := []artifact.Seq{0, 1, 100, f.seq / 2, f.seq - 1, f.seq}
	starts = append(starts, starts...)
	var live []replicate.Batch
	for range 60 {
		b := f.commits(20)
		log = append(log, b.Rows...)
		live = append(live, b)
	}
	type result struct {
		from   artifact.Seq
		events []artifact.Event
		err    error
	}
	results := make([]result, len(starts))
	var wg sync.WaitGroup
	for i, from := range starts {
		wg.Go(func() {
			sub := s.Subscribe(from, nil)
			if i%2 == 1 {
				sub.PageSize = 7
			}
			events, err := readTo(asAda(t.Context()), sub, f.seq)
			results[i] = result{from, events, err}
		})
	}
	for _, b := range live {
		apply(t, s, b)
	}
	wg.Wait()
	all := eventsOf(log)
	for _, r := range results {
		if r.err != nil {
			t.Errorf("from %d: %v", r.from, r.err)
			continue
		}
		want := all
		for len(want) > 0 && want[0].ID <= r.from {
			want = want[1:]
		}
		if diff := cmp.Diff(ids(want), ids(r.events)); diff != "" {
			t.Errorf("from %d: (-want +got)\n%s", r.from, diff)
		}
	}
}

func ids(events []artifact.Event) (seqs []artifact.Seq) {
	for _, e := range events {
		seqs = append(seqs, e.ID)
	}
	return seqs
}

func TestSubscriptionGivesTheSameFromSQLAndMemory(t *testing.T) {
	path := t.TempDir() + "/replica.db"
	s, f := openStore(t, path), newFeed(t, 21)
	if err := s.Hello(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	b := f.commits(200)
	apply(t, s, b)
	reopened := openStore(t, path) // nothing in memory
	for name, s := range map[string]*node.Store{"memory": s, "SQL": reopened} {
		got, err := readTo(asAda(t.Context()), s.Subscribe(0, nil), f.seq)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(eventsOf(b.Rows), got); diff != "" {
			t.Errorf("events out of %s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestSubscriptionFilters(t *testing.T) {
	s, f := newStore(t), newFeed(t, 22)
	emit := func(typ, scope string) replicate.Row {
		return replicate.Row{Scope: scope, Kind: replicate.KindEvent, Op: replicate.Emit, Ref: "x:y", At: f.at, Event: &replicate.RowEvent{Type: typ, Ref: "x:y", ActorID: "ada", ActorKind: "human", Payload: json.RawMessage(`{}`)}}
	}
	apply(t, s, f.batch([]replicate.Row{
		emit("hypothesis.created", artifact.Commons), emit("hypothesis.updated", artifact.Commons), emit("hypothesis_x.created", artifact.Commons),
		emit("paper.created", artifact.Commons), emit("hypothesis.created", "lab-a"), emit("hypothesis", artifact.Commons),
	}))
	tests := []struct {
		name  string
		types []string
		want  []artifact.Seq
	}{
		{"no types", nil, []artifact.Seq{1, 2, 3, 4, 6}},
		{"every type", []string{"*"}, []artifact.Seq{1, 2, 3, 4, 6}},
		{"one type", []string{"hypothesis.created"}, []artifact.Seq{1}},
		{"types that begin alike", []string{"hypothesis.*"}, []artifact.Seq{1, 2}},
		{"two types", []string{"hypothesis.*", "paper.created"}, []artifact.Seq{1, 2, 4}},
		{"another type", []string{"gene.*"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			page, err := s.Subscribe(0, filter(t, tt.types...)).Next(asAda(t.Context()))
			if err != nil || page.Cursor != 6 || !page.CaughtUp {
				t.Errorf("Next() = %+v, %v, want a cursor at 6", page, err)
			}
			if diff := cmp.Diff(tt.want, ids(page.Events)); diff != "" {
				t.Errorf("events: (-want +got)\n%s", diff)
			}
		})
	}
	if _, err := s.Subscribe(0, nil).Next(t.Context()); artifact.AsError(err).Reason != artifact.ReasonUnauthenticated {
		t.Errorf("Next without a caller = %v, want unauthenticated", err)
	}
	sub := s.Subscribe(0, filter(t, "gene.*", "paper.*", "hypothesis.*"))
	sub.PageSize = 2
	page, err := sub.Next(asAda(t.Context()))
	if diff := cmp.Diff(node.EventPage{Events: page.Events, Cursor: 3, Backlog: 3}, page); err != nil || diff != "" || len(page.Events) != 2 {
		t.Errorf("a full page: %v (-want +got)\n%s", err, diff)
	}
}

func filter(t *testing.T, types ...string) *event.Filter {
	t.Helper()
	f, err := event.NewFilter(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestWaitApplied(t *testing.T) {
	s, f := newStore(t), newFeed(t, 23)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.WaitApplied(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("WaitApplied(1) on an empty replica = %v, want that the deadline passed", err)
	}
	b := f.batch(f.write("paper", "p1", "one"))
	done := make(chan error)
	go func() {
		err := s.WaitApplied(t.Context(), b.To)
		if err == nil {
			_, err = get(t, s, "paper:p1")
		}
		done <- err
	}()
	apply(t, s, b)
	if err := <-done; err != nil {
		t.Errorf("WaitApplied(%d), then get = %v", b.To, err)
	}
}

// TestFollowerDrivesAStore puts the store under the follower, with a source that
// breaks amid commits.
func TestFollowerDrivesAStore(t *testing.T) {
	s, f := newStore(t), newFeed(t, 24)
	log := f.commits(50)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		src := &breaking{log: log, done: cancel}
		fw := &replicate.Follower{Source: src, Sink: s, Log: discard}
		if err := fw.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	if s.Applied() != log.To {
		t.Errorf("Applied() = %d, want %d", s.Applied(), log.To)
	}
	checkDigest(t, s)
}

// breaking is a source whose stream breaks after every third frame, of one row
// each.
type breaking struct {
	log  replicate.Batch
	done func()
}

func (b *breaking) Follow(_ context.Context, from replicate.Position, handle func(replicate.Frame) error) error {
	if err := handle(replicate.Frame{Type: replicate.FrameHello, Hello: &hello}); err != nil {
		return err
	}
	rows := b.log.Rows
	for len(rows) > 0 && rows[0].Seq <= from.Seq {
		rows = rows[1:]
	}
	for i, r := range rows {
		if i == 30 {
			return errors.New("broken")
		}
		typ := replicate.FramePart
		if r.Seq == r.Commit {
			typ = replicate.FramePage
		}
		if err := handle(replicate.Frame{Type: typ, From: r.Seq - 1, To: r.Seq, Rows: []replicate.Row{r}}); err != nil {
			return err
		}
	}
	b.done()
	return errors.New("all sent")
}
