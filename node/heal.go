package node

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// Rebuild asks for a new copy of the hub beside the replica, which is served until
// the new one takes its place. It returns at once; what is being built already is
// enough.
func (n *Node) Rebuild(reason string) {
	select {
	case n.wanted <- plan{Reason: reason}:
	default:
	}
}

// Building tells how far a replica is that is being built.
func (n *Node) Building() Building { return n.progress.now() }

// tend follows the hub with the current replica, and builds another beside it when
// that is wanted, until the new one has taken its place, or ctx ends.
func (n *Node) tend(ctx context.Context) {
	t := &tender{node: n, store: n.held.load()}
	ctx, t.stop = context.WithCancel(ctx)
	defer t.end()
	if t.store != nil {
		t.follow(ctx)
	}
	switch s, err := openSide(ctx, filepath.Join(n.config.Dir, sideFile)); {
	case err == nil:
		t.build(ctx, s.plan, 0)
		if err := s.Close(); err != nil {
			n.log.WarnContext(ctx, "what was begun of a replica is closed", "err", err)
		}
	case t.store == nil:
		t.build(ctx, plan{Reason: "the node has no replica yet"}, 0)
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case err := <-t.followed:
			t.followed = nil
			t.ended(ctx, err)
		case p := <-n.wanted:
			t.build(ctx, p, n.pause(0))
		case b := <-t.built:
			t.built = nil
			if b.err == nil && t.takeOver(ctx, b.side) == nil {
				return
			}
		}
	}
}

// A tender is one round of [Node.tend].
type tender struct {
	node     *Node
	store    *Store
	stop     context.CancelFunc
	halt     context.CancelFunc // ends following alone
	followed chan error         // nil when nobody follows
	plan     plan
	give     context.CancelFunc // ends building alone
	built    chan built         // nil when nothing is built
}

type built struct {
	side *side
	err  error
}

// end ends what the tender started, and waits for it.
func (t *tender) end() {
	t.stop()
	if t.followed != nil {
		<-t.followed //nolint:errcheck // it was told to end
	}
	if t.built != nil {
		if b := <-t.built; b.err == nil {
			_ = b.side.Close() // it is gone on with next time
		}
	}
}

func (t *tender) follow(ctx context.Context) {
	ctx, t.halt = context.WithCancel(ctx)
	f := &replicate.Follower{Source: t.node.feed, Sink: &served{t.store, t.node}, Log: t.node.log, Status: t.node.heard, SeldomWait: t.node.config.RetryWait}
	done := make(chan error, 1)
	t.followed = done
	go func() { done <- f.Run(ctx) }()
}

// served is the store that is served, as the feed keeps it up.
type served struct {
	*Store
	node *Node
}

// Hello implements [replicate.Sink].
func (s *served) Hello(ctx context.Context, h replicate.Hello) error {
	if err := s.Store.Hello(ctx, h); err != nil {
		return err
	}
	if gained := s.Gained(); gained != nil {
		select {
		case s.node.wanted <- plan{Reason: "the hub sends more scopes", Gained: gained}:
		default:
		}
	}
	return nil
}

// ended takes in why following ended for good. A history that the hub no longer
// knows is copied anew; what is not this node's to mend is told.
func (t *tender) ended(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	e, _ := errors.AsType[*artifact.Error](err)
	gap, _ := errors.AsType[*replicate.GapError](err)
	switch {
	case errors.Is(err, errRestored):
	case e != nil && (e.Reason == artifact.ReasonCursorDiverged || e.Reason == artifact.ReasonCursorAhead):
	case e != nil && e.Reason == artifact.ReasonCursorExpired || gap != nil:
		t.node.disconnected(err, nil)
		t.build(ctx, plan{Reason: err.Error()}, t.node.pause(1))
		return
	default:
		t.node.fail(ctx, err)
		return
	}
	t.node.disconnected(err, nil)
	t.build(ctx, plan{Reason: "the hub's log took another course: " + err.Error(), Restored: true}, t.node.pause(1))
}

// build begins to build after a pause. A plan that is carried out already goes on;
// a copy of the replica is given up when the whole is to be copied anew.
func (t *tender) build(ctx context.Context, p plan, pause time.Duration) {
	if t.built != nil {
		if t.plan.Restored || t.plan.Gained == nil && !p.Restored || slices.Equal(t.plan.Gained, p.Gained) && p.Gained != nil {
			return
		}
		t.give()
		if b := <-t.built; b.err == nil {
			_ = b.side.Close() // it is begun anew
		}
	}
	t.plan = p
	ctx, t.give = context.WithCancel(ctx)
	done := make(chan built, 1)
	t.built = done
	t.node.progress.start(p.Reason)
	t.node.log.InfoContext(ctx, "a replica is to be built", "reason", p.Reason, "gained", p.Gained, "in", pause)
	go func() {
		s, err := t.node.buildUntilDone(ctx, &builder{node: t.node, plan: p, of: t.store}, pause)
		done <- built{s, err}
	}()
}

// buildUntilDone builds, and tries again after what may pass.
func (n *Node) buildUntilDone(ctx context.Context, b *builder, pause time.Duration) (*side, error) {
	wait := leastBuildWait
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		s, err := b.build(ctx)
		_, differs := errors.AsType[*differsError](err)
		switch {
		case err == nil:
			return s, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errUnwanted):
			n.progress.end()
			return nil, err
		case errors.Is(err, ErrForeignHub):
			n.fail(ctx, err)
			return nil, err
		case differs && b.plan.Gained != nil: // what was copied differed already
			b.plan.Gained = nil
		}
		if differs {
			wait = max(wait, n.config.RebuildWait)
		}
		pause = wait/2 + rand.N(wait) //nolint:gosec // jitter, not a secret
		wait = min(2*wait, mostBuildWait)
		if errors.Is(err, errOutdated) {
			pause = min(pause, leastBuildWait)
		}
		n.progress.failed(err)
		n.log.WarnContext(ctx, "the replica is not built yet", "err", err, "retry_in", pause)
	}
}

// pause returns how long to wait before building: nodes that all meet the same do
// not come at one time, and one that builds again and again comes less often.
func (n *Node) pause(least int) time.Duration {
	if now := time.Now(); now.Sub(n.lastBuild) < time.Hour {
		least = max(least, n.builds)
	} else {
		n.builds = 0
	}
	if least == 0 {
		return 0
	}
	return rand.N(min(n.config.RebuildWait<<min(least-1, 10), time.Hour)) //nolint:gosec // jitter, not a secret
}

// takeOver puts a replica that was built in the place of the current one.
func (t *tender) takeOver(ctx context.Context, s *side) error {
	n := t.node
	followed := t.followed != nil
	if followed {
		t.halt()
		<-t.followed //nolint:errcheck // it was told to end
		t.followed = nil
	}
	b := &builder{node: n, plan: t.plan, of: t.store}
	// The other was kept up while this one was checked.
	err := b.follow(ctx, s, func() artifact.Seq { return b.served() })
	if err == nil {
		err = n.swap(ctx, s)
	} else {
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		n.log.ErrorContext(ctx, "the replica that was built is not served; another is built", "err", err)
		if followed {
			t.follow(ctx)
		}
		t.build(ctx, t.plan, n.pause(1))
		return err
	}
	if t.store != nil { // the first copy is none that comes again
		n.builds, n.lastBuild = n.builds+1, time.Now()
	}
	n.progress.end()
	return nil
}

// disconnected notes that the hub is not followed, and why.
func (n *Node) disconnected(err, fatal error) {
	last := *n.status.Load()
	last.Connected, last.Err, last.fatal = false, err, cmp.Or(fatal, last.fatal)
	n.status.Store(&last)
}

// fail notes why following has ended for good.
func (n *Node) fail(ctx context.Context, err error) {
	n.disconnected(err, err)
	n.log.ErrorContext(ctx, "the replica follows its hub no more; reads go on from what it holds", "err", err,
		"next", "mend the cause and start the node again; scidex node rebuild throws the replica away")
}
