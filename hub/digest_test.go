package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/hub"
	"github.com/scidex-ai/substrate/internal/pgtest"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

var commons = []string{artifact.Commons}

// foldLog sums up rows as a follower does.
func foldLog(t *testing.T, rows []string, at artifact.Seq) replicate.Digest {
	t.Helper()
	sums := make(replicate.Sums)
	for _, raw := range rows {
		var r replicate.Row
		if err := json.Unmarshal([]byte(raw), &r); err != nil {
			t.Fatal(err)
		}
		sums.Apply(&r, false)
	}
	return sums.Digest(at)
}

// checkDigest compares the digest of the tables to that of the whole log.
func (f *fixture) checkDigest(t *testing.T) replicate.Digest {
	t.Helper()
	head := f.head(t)
	rows, _ := readTo(t, f, 0, head)
	want := foldLog(t, rows, head)
	got, err := f.Digest(t.Context(), commons, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := got.Diff(want); diff != nil || got.Seq != head {
		t.Errorf("digest at %d (head %d) differs from the log's: %v", got.Seq, head, diff)
	}
	return got
}

func TestDigest(t *testing.T) {
	f := newHub(t)
	var then []replicate.Digest
	note := func() { then = append(then, f.checkDigest(t)) }
	note()
	h := f.mustCreate(t, hypothesis("h", "1"))
	note()
	f.mustCreate(t, verb.CreateRequest{Type: "gene", ID: "A", Title: `"A" <β> \ A`, Content: content(map[string]any{"symbol": "A"}), Links: nil})
	ctx := contributor(t.Context())
	for i := range 3 {
		out, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: "hypothesis:h", BaseContentHash: h.ContentHash, Content: content(map[string]any{"statement": strconv.Itoa(i)})})
		if err != nil {
			t.Fatal(err)
		}
		h.ContentHash = out.ContentHash
		note()
	}
	if _, err := verb.Link.Call(ctx, f.verbs, verb.LinkRequest{From: "hypothesis:h", LinkSpec: verb.LinkSpec{Predicate: "about", To: "gene:A"}}); err != nil {
		t.Fatal(err)
	}
	note()
	if _, err := verb.Signal.Call(ctx, f.verbs, verb.SignalRequest{Ref: "hypothesis:h", Kind: "vote", Value: "1"}); err != nil {
		t.Fatal(err)
	}
	note()
	appendRows(t, f.db, 1200, "internal", artifact.Commons, "test:hidden")
	appendRows(t, f.db, 3, "public", "lab", "test:lab")
	appendRows(t, f.db, 3, "public", artifact.Commons, "test:event")
	note()
	t.Run("of a seq before the head", func(t *testing.T) {
		for _, want := range then {
			got, err := f.Digest(t.Context(), commons, want.Seq)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("digest at %d differs from the one given then: %v, %v", want.Seq, got.Diff(want), err)
			}
		}
	})
	t.Run("over HTTP", func(t *testing.T) {
		c := &replicate.Client{URL: f.serve(t), Token: f.token(t, "vic", verb.Viewer)}
		got, err := c.Digest(t.Context(), replicate.Position{HubID: f.HubID(), Seq: then[2].Seq})
		if err != nil || !reflect.DeepEqual(got, then[2]) {
			t.Errorf("digest = %+v, %v", got, err)
		}
		if _, err := c.Digest(t.Context(), replicate.Position{HubID: "another", Seq: then[2].Seq}); artifact.AsError(err).Reason != artifact.ReasonCursorForeign {
			t.Errorf("the digest of another hub: %v", err)
		}
		if _, err := c.Digest(t.Context(), replicate.Position{HubID: f.HubID(), Seq: f.head(t) + 1}); !artifact.IsCode(err, artifact.CodeValidationFailed) {
			t.Errorf("digest beyond the head: %v", err)
		}
	})
	t.Run("of other scopes", func(t *testing.T) {
		got, err := f.Digest(t.Context(), []string{"lab"}, 0)
		if err != nil || len(got.Entries) != 1 || got.Entries[0].Count != 3 {
			t.Errorf("digest = %+v, %v, want three events", got, err)
		}
	})
	t.Run("finds a row changed behind the log's back", func(t *testing.T) {
		if _, err := f.db.Exec(t.Context(), "UPDATE artifact SET row_hash = sha256('x') WHERE type = 'gene'"); err != nil {
			t.Fatal(err)
		}
		got, err := f.Digest(t.Context(), commons, 0)
		if err != nil || len(got.Diff(then[len(then)-1])) != 1 {
			t.Errorf("differences = %v, %v, want one", got.Diff(then[len(then)-1]), err)
		}
	})
}

// TestDigestWhileWriting checks that a digest is of one seq even when commits go
// on.
func TestDigestWhileWriting(t *testing.T) {
	f := newHub(t)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := verb.Create.Call(contributor(t.Context()), f.verbs, hypothesis(fmt.Sprint("h", i), "x")); err != nil {
				t.Error(err)
			}
		}
	}()
	var got []replicate.Digest
	for begun := time.Now(); time.Since(begun) < time.Second; {
		d, err := f.Digest(t.Context(), commons, 0)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d)
		if d, err = f.Digest(t.Context(), commons, d.Seq-1); err != nil {
			t.Fatal(err)
		}
		got = append(got, d)
	}
	stop()
	<-stopped
	rows, _ := readTo(t, f, 0, f.head(t))
	for _, d := range got {
		upTo := 0
		for upTo < len(rows) && seqOf(t, rows[upTo]) <= d.Seq {
			upTo++
		}
		if diff := d.Diff(foldLog(t, rows[:upTo], d.Seq)); diff != nil {
			t.Fatalf("digest at %d: %v", d.Seq, diff)
		}
	}
}

func seqOf(t *testing.T, row string) artifact.Seq {
	t.Helper()
	var r struct {
		Seq artifact.Seq `json:"seq"`
	}
	if err := json.Unmarshal([]byte(row), &r); err != nil {
		t.Fatal(err)
	}
	return r.Seq
}

// TestDigestsShareAScan checks that many who ask at once cost one reading of the
// tables, and that all are answered exactly for where they are.
func TestDigestsShareAScan(t *testing.T) {
	counts := prometheus.NewRegistry()
	f := newHubWith(t, hub.Config{DB: pgtest.New(t, initHub), Metrics: counts})
	want := make(map[artifact.Seq]replicate.Digest)
	for i := range 5 {
		f.mustCreate(t, hypothesis(fmt.Sprint("h", i), "x"))
		head := f.head(t)
		rows, _ := readTo(t, f, 0, head)
		want[head] = foldLog(t, rows, head)
	}
	var all sync.WaitGroup
	for range 20 {
		for at, d := range want {
			all.Go(func() {
				got, err := f.Digest(t.Context(), commons, at)
				if diff := got.Diff(d); err != nil || diff != nil || got.Seq != at {
					t.Errorf("digest at %d: %v, %v", at, diff, err)
				}
			})
		}
	}
	all.Wait()
	// What is written after a scan is told from the log.
	f.mustCreate(t, hypothesis("later", "x"))
	head := f.head(t)
	rows, _ := readTo(t, f, 0, head)
	if got, err := f.Digest(t.Context(), commons, head); err != nil || got.Diff(foldLog(t, rows, head)) != nil {
		t.Errorf("digest at %d differs from the log: %v", head, err)
	}
	families, err := counts.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families {
		if m.GetName() == "scidex_hub_digest_scans_total" {
			if n := m.GetMetric()[0].GetCounter().GetValue(); n != 1 {
				t.Errorf("%g scans for 101 digests, want 1", n)
			}
			return
		}
	}
	t.Error("scans are not counted")
}

// TestDigestOfRanges checks that the parts of a range add up to the digest, at the
// head and before it, and that a listing is what the parts are made of.
func TestDigestOfRanges(t *testing.T) {
	f := newHub(t)
	ctx := contributor(t.Context())
	var before artifact.Seq
	for i := range 40 {
		made := f.mustCreate(t, hypothesis(fmt.Sprintf("h%02d", i), "x"))
		if i == 20 {
			before = f.head(t)
		}
		if _, err := verb.Update.Call(ctx, f.verbs, verb.UpdateRequest{Ref: made.Ref.Current().String(), BaseContentHash: made.ContentHash, Title: "again"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []artifact.Seq{before, f.head(t)} {
		d, err := f.Digest(t.Context(), commons, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range d.Entries {
			r := replicate.KeyRange{DigestKey: want.DigestKey}
			parts, err := f.Buckets(t.Context(), r, 7, at)
			if err != nil || parts.Seq != at || len(parts.Buckets) > 7 {
				t.Fatalf("Buckets of %v = %+v, %v", r, parts, err)
			}
			sum := replicate.DigestSum{DigestKey: want.DigestKey}
			listed := sum
			for _, b := range parts.Buckets {
				part := replicate.KeyRange{DigestKey: want.DigestKey, After: r.After, To: b.To}
				list, err := f.Listing(t.Context(), part, at)
				if err != nil {
					t.Fatal(err)
				}
				own := replicate.DigestSum{DigestKey: want.DigestKey}
				for _, h := range list.Rows {
					own.Add(h.Hash)
					listed.Add(h.Hash)
				}
				if own.Count != b.Count || own.XOR != b.XOR {
					t.Errorf("the rows of %v come to %+v, want %+v", part, own, b)
				}
				r.After = b.To
				sum = replicate.DigestSum{DigestKey: sum.DigestKey, Count: sum.Count + b.Count, XOR: xor(sum.XOR, b.XOR)}
			}
			if sum != want || listed != want {
				t.Errorf("%v at %d: parts come to %+v and rows to %+v, want %+v", want.DigestKey, at, sum, listed, want)
			}
		}
	}
	c := &replicate.Client{URL: f.serve(t), Token: f.token(t, "vic", verb.Viewer)}
	at := replicate.Position{HubID: f.HubID(), Epoch: 1, Seq: f.head(t)}
	if _, err := c.Listing(t.Context(), at, replicate.KeyRange{DigestKey: replicate.DigestKey{Scope: "lab", Kind: replicate.KindLink, Type: replicate.LinkType}}); !artifact.IsCode(err, artifact.CodeNotFound) {
		t.Errorf("a range of a scope that is not followed: %v", err)
	}
	if _, err := c.Stored(t.Context(), at, replicate.RowsRequest{DigestKey: replicate.DigestKey{Scope: "lab", Kind: replicate.KindLink}}); !artifact.IsCode(err, artifact.CodeNotFound) {
		t.Errorf("rows of a scope that is not followed: %v", err)
	}
	at.Epoch = 2
	if _, err := c.Stored(t.Context(), at, replicate.RowsRequest{}); artifact.AsError(err).Reason != artifact.ReasonCursorDiverged {
		t.Errorf("rows of another epoch: %v", err)
	}
}

func xor(a, b artifact.Hash) artifact.Hash {
	s := replicate.DigestSum{XOR: a}
	s.Add(b)
	return s.XOR
}
