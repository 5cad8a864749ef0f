package node_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/node"
	"github.com/scidex-ai/substrate/replicate"
)

// TestGaps checks that a replica refuses a feed that leaves out a row of its
// scopes, also after a restart, and takes one that leaves out those of others.
func TestGaps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replica.db")
	f := newFeed(t, 60)
	s, err := node.OpenStore(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Hello(t.Context(), hello); err != nil {
		t.Fatal(err)
	}
	apply(t, s, f.commits(5))
	hidden := f.batch([]replicate.Row{{Scope: "lab-b", Kind: replicate.KindEvent, Op: replicate.Emit, Ref: "paper:x", At: f.at, Event: f.event("paper.read", "paper:x")}})
	apply(t, s, replicate.Batch{To: hidden.To, Chain: hidden.Chain})
	apply(t, s, f.batch(f.write("paper", "p1", "one")))

	before := checkDigest(t, s)
	gap := func(t *testing.T, err error, seq artifact.Seq) {
		t.Helper()
		if e, ok := errors.AsType[*replicate.GapError](err); !ok || e.Scope != artifact.Commons || e.Seq != seq {
			t.Fatalf("error = %v, want a gap at %d", err, seq)
		}
		if diff := before.Diff(checkDigest(t, s)); diff != nil || s.Applied() != before.Seq {
			t.Errorf("at %d, want %d: %v", s.Applied(), before.Seq, diff)
		}
	}
	lost := f.batch(f.write("paper", "p2", "two"))
	next := f.batch(f.write("paper", "p3", "three"))
	gap(t, s.Apply(t.Context(), next), next.Rows[0].Seq)
	within := replicate.Batch{Rows: []replicate.Row{lost.Rows[1]}, To: lost.To, Chain: lost.Chain}
	gap(t, s.Apply(t.Context(), within), lost.Rows[1].Seq)

	told := hello
	told.Prev = map[string]artifact.Seq{artifact.Commons: lost.To}
	gap(t, s.Hello(t.Context(), told), 0)

	if err := s.Close(); err != nil { // what a restart does
		t.Fatal(err)
	}
	s = openStore(t, path)
	gap(t, s.Hello(t.Context(), told), 0)
	gap(t, s.Apply(t.Context(), next), next.Rows[0].Seq)

	told.Prev[artifact.Commons] = lost.Rows[0].Prev
	if err := s.Hello(t.Context(), told); err != nil {
		t.Errorf("Hello = %v", err)
	}
	apply(t, s, lost)
	apply(t, s, next)
	checkDigest(t, s)
}

// A holed source leaves a row out of some of its streams.
type holed struct {
	rows    replicate.Batch
	streams int
	whole   int // streams that leave it out, the first ones
}

func (h *holed) Follow(ctx context.Context, from replicate.Position, handle func(replicate.Frame) error) error {
	h.streams++
	told := hello
	if err := handle(replicate.Frame{Type: replicate.FrameHello, Hello: &told, To: from.Seq}); err != nil {
		return err
	}
	for _, r := range h.rows.Rows {
		if r.Seq <= from.Seq || r.Seq == 4 && h.streams <= h.whole {
			continue
		}
		f := replicate.Frame{Type: replicate.FramePart, From: r.Seq - 1, To: r.Seq, Head: h.rows.To, Rows: []replicate.Row{r}}
		if r.Seq == r.Commit {
			f.Type = replicate.FramePage
		}
		if err := handle(f); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestFollowerMeetsAGap checks that a follower begins a stream with a gap anew,
// and gives up when it has one again.
func TestFollowerMeetsAGap(t *testing.T) {
	for name, c := range map[string]struct {
		leavesOut, streams int
		diverged           bool
	}{"once": {1, 2, false}, "always": {99, 2, true}} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			f := newFeed(t, 61)
			source := &holed{whole: c.leavesOut, rows: f.commits(10)}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			ran := make(chan error, 1)
			go func() {
				ran <- (&replicate.Follower{Source: source, Sink: s, Log: discard, MinWait: time.Millisecond}).Run(ctx)
			}()
			if !c.diverged {
				if err := s.WaitApplied(ctx, source.rows.To); err != nil {
					t.Fatal(err)
				}
				cancel()
			}
			err := <-ran
			if _, isGap := errors.AsType[*replicate.GapError](err); isGap != c.diverged || source.streams != c.streams {
				t.Errorf("Run = %v after %d streams, want %d", err, source.streams, c.streams)
			}
			checkDigest(t, s)
		})
	}
}
