package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/verb"
)

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	if err := w.db.QueryRow(w.t.Context(), query, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// sound checks that hub and node prove equal and whole.
func (w *world) sound(r *runner) {
	w.t.Helper()
	w.equal(r)
	if report, err := r.Verify(w.t.Context()); err != nil || !report.Equal() {
		w.t.Errorf("verify the node = %+v, %v", report, err)
	}
	if report, err := hub.Verify(w.t.Context(), w.db, nil); err != nil || len(report.Faults) > 0 {
		w.t.Errorf("verify the hub = %v, %v", report.Faults, err)
	}
}

// TestEventsAreTrimmed takes events out at the hub: nodes do so too, those that follow
// and those that begin to copy, and stay equal; what is told of each scope is its own;
// who reads from before is told.
func TestEventsAreTrimmed(t *testing.T) {
	w := newWorld(t, initSmall)
	w.lab("lab-a")
	w.some("h", "", 20, 10)
	w.some("p", "lab-a", 10, 10)
	r := w.node(t.TempDir(), "ada", verb.Contributor)
	w.equal(r)
	old := r.Store().Applied()
	lag := r.Follow(1, nil)
	w.some("n", "", 80, 10)
	w.equal(r)

	r1 := hub.Retention{Age: time.Nanosecond, Lease: time.Nanosecond, Events: time.Nanosecond}
	long := hub.Retention{Events: 400 * 24 * time.Hour}
	if gone, err := hub.TrimEvents(t.Context(), w.db, r1, false); err != nil || gone.Events > 0 {
		t.Errorf("took out %+v, %v of what the log leads to", gone, err)
	}
	if dropped, err := hub.Trim(t.Context(), w.db, r1, false); err != nil || len(dropped) == 0 {
		t.Fatalf("Trim = %v, %v", dropped, err)
	}
	if gone, err := hub.TrimEvents(t.Context(), w.db, long, false); err != nil || gone.Events > 0 {
		t.Errorf("took out %+v, %v, all younger than is kept", gone, err)
	}
	planned, err := hub.TrimEvents(t.Context(), w.db, r1, true)
	if err != nil || planned.Events == 0 || planned.UpTo < old {
		t.Fatalf("planned %+v, %v; want up to %d at least", planned, err, old)
	}
	parts := w.count("SELECT count(*) FROM pg_inherits WHERE inhparent = 'event'::regclass")
	gone, err := hub.TrimEvents(t.Context(), w.db, r1, false)
	if err != nil || gone != planned {
		t.Fatalf("took out %+v, %v; planned %+v", gone, err, planned)
	}
	if n := w.count("SELECT count(*) FROM event WHERE seq <= $1", int64(gone.UpTo)); n > 0 {
		t.Errorf("%d events are left below the floor", n)
	}
	if n := w.count("SELECT count(*) FROM pg_inherits WHERE inhparent = 'event'::regclass"); n >= parts {
		t.Errorf("%d partitions of events, %d before", n, parts)
	}
	if n := w.count("SELECT count(*) FROM feed.change WHERE kind = 'event_floor' AND data LIKE '%system.%'"); n > 0 {
		t.Errorf("%d floors tell of private events", n)
	}
	w.sound(r)
	if n := w.count("SELECT count(DISTINCT scope) FROM feed.change WHERE kind = 'event_floor'"); n != 2 {
		t.Errorf("%d scopes are told, want 2", n)
	}

	ada := w.as("ada", verb.Contributor)
	refused := func(what string, err error) {
		t.Helper()
		if why(err) != artifact.ReasonCursorExpired || artifact.AsError(err).Details["oldest"] == nil {
			t.Errorf("%s = %v, want cursor_expired with the oldest", what, err)
		}
	}
	_, err = verb.Poll.Call(ada, w.hub.Verbs(), verb.PollRequest{Since: &old})
	refused("a poll of the hub from before", err)
	_, err = readEvents(t.Context(), r.Follow(old, nil), old+1)
	refused("a subscription at the node from before", err)
	_, err = readEvents(t.Context(), lag, old+1)
	refused("one that lags behind", err)
	var all artifact.Seq
	page, err := verb.Poll.Call(ada, w.hub.Verbs(), verb.PollRequest{Since: &all})
	if err != nil || len(page.Events) == 0 || page.Events[0].ID <= gone.UpTo {
		t.Errorf("all that the hub keeps = %+v, %v", page, err)
	}
	head := r.Store().Applied()
	if ids, err := readEvents(t.Context(), r.Follow(0, nil), head); err != nil || len(ids) == 0 || ids[0] <= gone.UpTo {
		t.Errorf("all that the node keeps: %d, %v", len(ids), err)
	}
	if _, err := verb.Get.Call(ada, w.hub.Verbs(), verb.GetRequest{Ref: artifact.Ref{Type: "hypothesis", ID: "h0"}, AsOfSeq: old}); why(err) != artifact.ReasonHistoryTrimmed {
		t.Errorf("as of before = %v", err)
	}

	fresh := w.node(t.TempDir(), "ada", verb.Contributor)
	w.sound(fresh)
	_, err = readEvents(t.Context(), fresh.Follow(old, nil), old+1)
	refused("a subscription from before at a node that began to copy later", err)
	r.stop()
	r = w.node(r.dir, "ada", verb.Contributor)
	w.some("m", "lab-a", 80, 10)
	for _, trim := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := hub.Trim(ctx, w.db, r1, false); return err },
		func(ctx context.Context) error { _, err := hub.TrimEvents(ctx, w.db, r1, false); return err },
	} {
		if err := trim(t.Context()); err != nil {
			t.Fatal(fmt.Errorf("again: %w", err))
		}
	}
	w.sound(r)
	w.sound(fresh)
}
