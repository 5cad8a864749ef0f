package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/verb"
)

// TestStreamsWaitTogether has streams with few filters come, from now on and from the
// beginning, while things happen: each gets what its filter lets pass and all of it,
// once and in order, though it is woken for nothing else.
func TestStreamsWaitTogether(t *testing.T) {
	w := newWorld(t, initHub)
	r := w.node(t.TempDir(), "ada", verb.Contributor)
	w.caughtUp(r)
	const events, filters = 120, 6
	type stream struct {
		kind  int
		since artifact.Seq
		got   []artifact.Seq
	}
	start, err := w.hub.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}) // closed once all was written
	var last artifact.Seq
	run := func(s *stream) {
		filter := fmt.Sprintf(`{"==":[{"%%":[{"substr":[{"var":"ref.id"},1]},%d]},%d]}`, filters, s.kind)
		client := &event.Client{URL: r.url, Token: r.token}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := client.Follow(ctx, verb.SubscribeRequest{Types: []string{"hypothesis.created"}, Filter: json.RawMessage(filter), Since: &s.since}, func(e verb.Event) error {
			s.got = append(s.got, e.ID)
			var n int
			if _, err := fmt.Sscanf(e.Ref.ID, "h%d", &n); err != nil || n%filters != s.kind {
				t.Errorf("a stream of kind %d gets %s", s.kind, e.Ref.ID)
			}
			if n >= events-filters { // the last of its kind
				<-done
				return event.ErrLast
			}
			return nil
		})
		if !errors.Is(err, event.ErrLast) {
			t.Errorf("a stream of kind %d ends with %v after %d events", s.kind, err, len(s.got))
		}
	}
	var streams []*stream
	var wait sync.WaitGroup
	add := func(since artifact.Seq) {
		for kind := range filters {
			s := &stream{kind: kind, since: since}
			streams = append(streams, s)
			wait.Go(func() { run(s) })
		}
	}
	written := make([][]artifact.Seq, filters)
	for i := range events {
		if i%30 == 0 {
			add(start)
			add(max(start, last))
		}
		out, err := verb.Create.Call(w.as("ada", verb.Contributor), w.hub.Verbs(), statement("", fmt.Sprint("h", i), "x"))
		if err != nil {
			t.Fatal(err)
		}
		last = out.Seq
		written[i%filters] = append(written[i%filters], out.Seq)
	}
	close(done)
	wait.Wait()
	for _, s := range streams {
		var want []artifact.Seq
		for _, seq := range written[s.kind] {
			if seq > s.since {
				want = append(want, seq)
			}
		}
		if got := fmt.Sprint(s.got); got != fmt.Sprint(want) {
			t.Errorf("a stream of kind %d from %d on got\n%s, want\n%s", s.kind, s.since, got, strings.TrimSpace(fmt.Sprint(want)))
		}
	}
}
