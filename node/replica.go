package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/graph"
	"github.com/scidex-ai/substrate/graph/view"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

var _ graph.Replica = (*Node)(nil)

// freshness is how a replica stands to its hub at one time.
type freshness struct {
	applied, head artifact.Seq
	connected     bool
	stale         bool
	lag           time.Duration // since the replica was last known to be at the head
	heard         time.Time
	fatal         error
}

func (f *freshness) phase() view.ReplicaPhase {
	switch {
	case f.applied == 0:
		return view.Bootstrapping
	case !f.connected:
		return view.Disconnected
	case f.applied < f.head:
		return view.CatchingUp
	}
	return view.Live
}

// Status implements [graph.Replica].
func (n *Node) Status(ctx context.Context) (view.Replica, error) {
	f := n.freshness()
	store, err := n.lease()
	if err != nil {
		return view.Replica{}, err
	}
	defer store.uses.done()
	p, err := store.Position(ctx)
	if err != nil {
		return view.Replica{}, err
	}
	count, err := store.countArtifacts(ctx)
	if err != nil {
		return view.Replica{}, err
	}
	r := view.Replica{
		Epoch: p.Epoch, Version: n.config.Version, Phase: f.phase(), AppliedSeq: f.applied, HubSeq: f.head,
		LagEvents: int64(f.head - f.applied), LagMs: f.lag.Milliseconds(), Stale: f.stale,
		DatabaseBytes: n.databaseBytes(), ArtifactCount: count,
		Subscribers: int(n.readers.Load()), UptimeMs: time.Since(n.started).Milliseconds(),
	}
	if p.HubID != "" {
		r.HubID = &p.HubID
	}
	if !f.heard.IsZero() {
		r.LastContactAt = &f.heard
	}
	if trouble := n.trouble(&f); trouble != "" {
		r.Trouble = &trouble
	}
	if c := n.checkup(); c != nil {
		r.CheckedAt = &c.At
	}
	return r, nil
}

// databaseBytes returns the size of the replica's files.
func (n *Node) databaseBytes() (size int64) {
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(filepath.Join(n.config.Dir, ReplicaFile+suffix)); err == nil {
			size += info.Size()
		}
	}
	return size
}

const countArtifactsSQL = `SELECT coalesce(sum(n), 0) FROM digest WHERE kind = 'artifact' AND scope IN (SELECT value FROM json_each(?1))`

// countArtifacts returns how many artifacts the caller may see.
func (s *Store) countArtifacts(ctx context.Context) (count int64, err error) {
	scopes, err := visible(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.readers.QueryRowContext(ctx, countArtifactsSQL, scopes).Scan(&count); err != nil {
		return 0, fmt.Errorf("count artifacts: %w", err)
	}
	return count, nil
}

// WaitApplied implements [graph.Replica].
func (n *Node) WaitApplied(ctx context.Context, seq artifact.Seq) error {
	for {
		store, err := n.held.wait(ctx)
		if err != nil {
			return err
		}
		if err := store.WaitApplied(ctx, seq); !errors.Is(err, errRetired) {
			return err
		}
	}
}

// Subscribe implements [graph.Replica].
func (n *Node) Subscribe(ctx context.Context, after *artifact.Seq, types []string, maxBatch int) (graph.Events, error) {
	if err := event.MayStream(ctx); err != nil {
		return nil, err
	}
	f, err := event.NewFilter(types, nil)
	if err != nil {
		return nil, err
	}
	sub, err := n.subscribe(ctx, after, f, maxBatch)
	if err != nil {
		return nil, err
	}
	n.readers.Add(1)
	return &events{node: n, sub: sub, first: sub.cursor >= n.applied(), start: sub.cursor}, nil
}

// subscribe returns a subscription from a cursor, or from now on when that is nil.
func (n *Node) subscribe(ctx context.Context, after *artifact.Seq, f *event.Filter, size int) (*Subscription, error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.NeedSomewhere("subscribing", verb.Viewer); err != nil {
		return nil, err
	}
	store, err := n.lease()
	if err != nil {
		return nil, err
	}
	defer store.uses.done()
	start := store.Applied()
	if after != nil {
		if start = *after; !n.reaches(ctx, start) {
			p := store.now.Load().position
			return nil, &artifact.Error{
				Code: artifact.CodeNotFound, Reason: artifact.ReasonCursorExpired, Details: map[string]any{"epoch": p.Epoch, "head": p.Seq},
				Message: "the cursor is ahead of the log: it is of another hub, or names changes that a restore lost: read anew what you keep, and go on after the cursor of now",
			}
		}
		if start < store.Applied() {
			if err := store.checkCursor(ctx, start); err != nil {
				return nil, err
			}
		}
	}
	sub := n.Follow(start, f)
	sub.PageSize, sub.scopes = size, c.VisibleScopes()
	return sub, nil
}

// Follow returns a subscription as [Store.Subscribe] does, which outlives the
// replica that is served now. There must be one.
func (n *Node) Follow(after artifact.Seq, f *event.Filter) *Subscription {
	sub := n.held.load().Subscribe(after, f)
	sub.current = n.held.load
	return sub
}

// aheadWait bounds how long a subscription's cursor may be ahead of what the node
// has heard of: another node may have been a little quicker.
const aheadWait = 3 * time.Second

// reaches reports whether the log goes to a position, as far as the node knows. A
// node that is cut off from its hub cannot tell, and waits for it.
func (n *Node) reaches(ctx context.Context, seq artifact.Seq) bool {
	deadline := time.Now().Add(aheadWait)
	for {
		f := n.freshness()
		if seq <= f.head || !f.connected && seq < f.head+replicate.EpochJump/2 {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		select {
		case <-ctx.Done():
			return true // nobody is left to tell
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// events is a subscription as the graph reads it. When nothing is there to be
// delivered yet, an empty page comes at once, to tell where it starts.
type events struct {
	node  *Node
	sub   *Subscription
	first bool
	start artifact.Seq
}

// Next implements [graph.Events].
func (e *events) Next(ctx context.Context) (graph.EventPage, error) {
	if e.first {
		e.first = false
		return graph.EventPage{Cursor: e.start, CaughtUp: e.node.applied() >= e.start}, nil
	}
	p, err := e.sub.Next(ctx)
	return graph.EventPage(p), err
}

// Close implements [graph.Events].
func (e *events) Close() { e.node.readers.Add(-1) }
