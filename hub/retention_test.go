package hub_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// enrolled enrols a node of a lab for commons.
func (f *fixture) enrolled(t *testing.T, url, lab string) *verb.NodeKey {
	t.Helper()
	invited, err := verb.NodesInvite.Call(f.admin(t.Context()), f.verbs, verb.NodesInviteRequest{Lab: lab, Scopes: []string{artifact.Commons}})
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(verb.EnrolRequest{Code: invited.Code, PublicKey: base64.StdEncoding.EncodeToString(public)})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+verb.EnrolPath, "application/json", bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var e verb.Enrolment
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("enrol = %s: %v", resp.Status, err)
	}
	return &verb.NodeKey{Node: e.NodeID, Private: private}
}

// follows lets a node follow the log from a position until it has read some of it.
func (f *fixture) follows(t *testing.T, url string, key *verb.NodeKey, from artifact.Seq) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := &replicate.Client{URL: url, Credential: func() (string, error) { return key.Credential(f.HubID()) }}
	heard := 0
	err := c.Follow(ctx, replicate.Position{Seq: from}, func(replicate.Frame) error {
		if heard++; heard == 2 {
			cancel()
		}
		return nil
	})
	if heard > 0 {
		return nil
	}
	return err
}

func (f *fixture) status(t *testing.T, r hub.Retention) hub.LogStatus {
	t.Helper()
	s, err := hub.ReadLogStatus(t.Context(), f.db, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (f *fixture) trim(t *testing.T, r hub.Retention, dry bool) (names []string) {
	t.Helper()
	dropped, err := hub.Trim(t.Context(), f.db, r, dry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range dropped {
		names = append(names, p.Name)
	}
	return names
}

// TestTrim checks what is dropped of the log, that a live node keeps it, and what
// who was dropped past is told.
func TestTrim(t *testing.T) {
	f := newHubWith(t, hub.Config{DB: pgtest.New(t, initSmall), PartitionRows: smallPartition, RingBytes: 1})
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)
	key := f.enrolled(t, url, "lab a")
	for i := range 300 {
		f.mustCreate(t, hypothesis(fmt.Sprint("h-", i), "x"))
	}
	head := f.head(t)
	whole, _ := follow(t, url, token, "cursor=0", plain)
	whole.until(head)
	at := f.commitEndAfter(t, head/2)
	all := f.status(t, hub.Retention{})

	if names := f.trim(t, hub.Retention{}, false); names != nil {
		t.Errorf("dropped %v, all of them younger than a week", names)
	}
	now := hub.Retention{Age: time.Nanosecond}
	if err := f.follows(t, url, key, at); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node's place is noted", func() bool { return f.count(t, "SELECT count(*) FROM feed.follower") == 1 })
	planned := f.trim(t, now, true)
	if s := f.status(t, hub.Retention{}); s.First != all.First || len(planned) == 0 {
		t.Errorf("a dry run of %v dropped up to %d", planned, s.First)
	}

	t.Run("a live node keeps what it has not got", func(t *testing.T) {
		names := f.trim(t, now, false)
		if !slices.Equal(names, planned) {
			t.Errorf("dropped %v, planned %v", names, planned)
		}
		s := f.status(t, now)
		if s.Floor > at || s.Floor+2*smallPartition < at {
			t.Errorf("the log starts at %d, floor %d, for a node at %d", s.First, s.Floor, at)
		}
		if len(s.Followers) != 1 || !s.Followers[0].Leased || s.Followers[0].Lost || s.Followers[0].Seq != at || s.Followers[0].Behind != head-at {
			t.Errorf("followers = %+v", s.Followers)
		}
		resumed, _ := follow(t, url, token, fmt.Sprint("cursor=", at), plain)
		resumed.until(head)
		sameRows(t, "resumed", resumed.rows, whole.rows[len(whole.rows)-len(resumed.rows):])
		floor, _ := follow(t, url, token, fmt.Sprint("cursor=", s.Floor), plain)
		floor.until(head)
		if floor.chain != whole.chain {
			t.Errorf("from the floor on the chain is %s, want %s", floor.chain, whole.chain)
		}
	})
	t.Run("size counts before age", func(t *testing.T) {
		if names := f.trim(t, hub.Retention{Bytes: 1}, true); names != nil {
			t.Errorf("dropped %v that a live node needs", names)
		}
		if names := f.trim(t, hub.Retention{Bytes: 1, Lease: time.Nanosecond}, true); len(names) == 0 {
			t.Error("a log over its size keeps what nobody needs")
		}
		if names := f.trim(t, hub.Retention{Bytes: 1 << 40, Lease: time.Nanosecond}, true); names != nil {
			t.Errorf("dropped %v of a log within its size", names)
		}
	})
	t.Run("a node that does not move is lost", func(t *testing.T) {
		lapsed := hub.Retention{Age: time.Nanosecond, Lease: time.Nanosecond}
		f.trim(t, lapsed, false)
		s := f.status(t, lapsed)
		if s.Head != head || s.First > head || len(s.Followers) != 1 || !s.Followers[0].Lost || s.Followers[0].Leased {
			t.Errorf("status = %+v", s)
		}
		if err := f.follows(t, url, key, at); !artifact.IsCode(err, artifact.CodeNotFound) {
			t.Errorf("its resume = %v, want cursor_expired", err)
		}
		status, e := getError(t, fmt.Sprintf("%s/feed?cursor=%d", url, at), token)
		if status != http.StatusGone || e.Reason != artifact.ReasonCursorExpired {
			t.Errorf("resume = %d %+v", status, e)
		}
		for i := range 100 {
			f.mustCreate(t, hypothesis(fmt.Sprint("later-", i), "x"))
		}
		// A hub that starts now begins at the last checkpoint that is left.
		again := newHubWith(t, hub.Config{DB: f.db, PartitionRows: smallPartition})
		if resumed, _ := readTo(t, again, s.Floor, again.head(t)); len(resumed) == 0 {
			t.Error("nothing follows from the floor")
		}
	})
}

// commitEndAfter returns where the first commit that ends after a seq does.
func (f *fixture) commitEndAfter(t *testing.T, seq artifact.Seq) artifact.Seq {
	t.Helper()
	return artifact.Seq(f.count(t, "SELECT min(commit_seq) FROM feed.change WHERE commit_seq > $1", int64(seq)))
}

// TestTrimInterrupted ends a trim that was kept from ending, and trims under
// writers and a follower.
func TestTrimInterrupted(t *testing.T) {
	f := newHubWith(t, hub.Config{DB: pgtest.New(t, initSmall), PartitionRows: smallPartition})
	now := hub.Retention{Age: time.Nanosecond}
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)
	s, _ := follow(t, url, token, "cursor=0", plain)
	g, ctx := errgroup.WithContext(contributor(t.Context()))
	for w := range 3 {
		g.Go(func() error {
			for n := range 150 {
				if _, err := verb.Create.Call(ctx, f.verbs, hypothesis(fmt.Sprintf("h-%d-%d", w, n), "x")); err != nil {
					return err
				}
			}
			return nil
		})
	}
	eventually(t, "something is to be dropped", func() bool { return len(f.trim(t, now, true)) > 0 })

	reading, err := f.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Rollback(context.WithoutCancel(t.Context()))
	if _, err := reading.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0; SELECT count(*) FROM feed.change"); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if dropped, err := hub.Trim(short, f.db, now, false); err == nil {
		t.Fatalf("dropped %v under a reader", dropped)
	}
	pending := func() int { return f.count(t, "SELECT count(*) FROM pg_inherits WHERE inhdetachpending") }
	if n := pending(); n != 1 {
		t.Errorf("%d partitions are half detached, want 1", n)
	}
	if _, err := reading.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	// One that was detached and not dropped.
	if _, err := f.db.Exec(t.Context(), "CREATE TABLE feed.change_7 (LIKE feed.change INCLUDING ALL)"); err != nil {
		t.Fatal(err)
	}
	// The server notices only when the reader is done that nobody waits for it.
	eventually(t, "the log can be trimmed again", func() bool {
		_, err := hub.Trim(t.Context(), f.db, now, false)
		return err == nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	f.trim(t, now, false)
	tables := f.count(t, `SELECT count(*) FROM pg_class WHERE relnamespace = 'feed'::regnamespace AND relname ~ '^change_[0-9]+$' AND relkind = 'r'`)
	if parts := len(f.status(t, now).Parts); tables != parts || pending() != 0 {
		t.Errorf("%d tables of partitions, %d half detached; the log has %d", tables, pending(), parts)
	}
	s.until(f.head(t)) // the follower has all, in order, by the chain that it checks
}

// TestTrimPast trims what a hub has not read yet: it begins anew behind that.
func TestTrimPast(t *testing.T) {
	f := newHubWith(t, hub.Config{DB: pgtest.New(t, initSmall), PartitionRows: smallPartition, PollInterval: time.Hour})
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)
	f.mustCreate(t, hypothesis("before", "x"))
	eventually(t, "partitions lie ahead", func() bool {
		return f.count(t, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'feed.change'::regclass") > 1
	})
	s, _ := follow(t, url, token, fmt.Sprint("cursor=", f.head(t)), plain)
	// As another process would that tells nobody. No more: for one and a half
	// partitions there is surely room.
	for range 2 {
		appendRows(t, f.db, smallPartition/2, "public", "commons", "test:event")
	}
	if names := f.trim(t, hub.Retention{Age: time.Nanosecond, Lease: time.Nanosecond}, false); len(names) == 0 {
		t.Fatalf("dropped %v", names)
	}
	f.mustCreate(t, hypothesis("after", "x"))
	head := f.head(t)
	floor := f.status(t, hub.Retention{}).Floor
	anew, _ := follow(t, url, token, fmt.Sprint("cursor=", floor), plain)
	anew.until(head)
	s.close()
}

// TestStall checks that a hub that cannot read its log does not go on telling its
// followers that they have all of it.
func TestStall(t *testing.T) {
	f := newHub(t)
	url, token := f.serve(t), f.token(t, "vic", verb.Viewer)
	head := f.head(t)
	s, _ := follow(t, url, token, fmt.Sprint("cursor=", head), plain)
	execute(t, f.db, "ALTER TABLE feed.change RENAME TO away")
	for frame := s.next(); frame.Type != replicate.FrameReset; frame = s.next() {
		if frame.Type != replicate.FrameBeat {
			t.Fatalf("frame = %+v", frame)
		}
	}
	execute(t, f.db, "ALTER TABLE feed.away RENAME TO change")
	f.mustCreate(t, hypothesis("after", "x"))
	again, _ := follow(t, url, token, fmt.Sprint("cursor=", head), plain)
	again.until(f.head(t))
}

// TestLogGaugesAtOnce: a hub that just began tells how its log stands.
func TestLogGaugesAtOnce(t *testing.T) {
	r := prometheus.NewRegistry()
	newHubWith(t, hub.Config{DB: pgtest.New(t, initHub), Metrics: r})
	eventually(t, "the log is counted", func() bool {
		return gauge(t, r, "scidex_hub_log_first") == 1 && gauge(t, r, "scidex_hub_log_bytes") > 0
	})
}
