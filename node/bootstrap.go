package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

var (
	// errOutdated reports a side file that cannot be gone on with: it is of another
	// hub, epoch or set of scopes, or the log was trimmed past where it begins.
	errOutdated = errors.New("what was begun is out of date")
	// errUnwanted reports a plan that the hub no longer asks for.
	errUnwanted = errors.New("the scopes that were gained are not to be followed any more")
)

// A builder makes one replica beside the one that is served.
type builder struct {
	node *Node
	plan plan
	of   *Store // that it is to take the place of; nil for the first
}

// build returns a replica that is whole and equals the hub at its position. What
// was begun before goes on, unless it is out of date.
func (b *builder) build(ctx context.Context) (*side, error) {
	path := filepath.Join(b.node.config.Dir, sideFile)
	s, err := openSide(ctx, path)
	if err == nil && !slices.Equal(s.plan.Gained, b.plan.Gained) {
		err = errors.Join(errOutdated, s.Close())
	}
	switch {
	case err == nil:
		s.plan = b.plan
		b.node.log.InfoContext(ctx, "the replica that was begun is gone on with", "rows", s.rows)
	case errors.Is(err, os.ErrNotExist):
		s, err = b.begin(ctx, path)
	default:
		b.node.log.WarnContext(ctx, "what was begun of a replica is thrown away", "err", err)
		s, err = b.begin(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	if err := b.complete(ctx, s); err != nil {
		return nil, b.drop(ctx, s, err)
	}
	return s, nil
}

func (b *builder) begin(ctx context.Context, path string) (*side, error) {
	if b.plan.Gained == nil {
		return newSide(ctx, path, b.plan)
	}
	b.node.progress.phase(ctx, "copying")
	return copySide(ctx, path, b.plan, b.of)
}

// drop closes a file that could not be completed. It is kept when it can be gone
// on with.
func (b *builder) drop(ctx context.Context, s *side, err error) error {
	err = errors.Join(err, s.Close())
	different, wrong := errors.AsType[*differsError](err)
	switch {
	case wrong:
		bad := filepath.Join(b.node.config.Dir, badFile)
		if moved := errors.Join(removeFile(bad), s.file.move(bad)); moved != nil {
			return errors.Join(err, moved)
		}
		b.node.log.ErrorContext(ctx, "the replica that was built is not as the hub says: it is not served", "differences", different.list, "kept", bad)
	case s.fresh || errors.Is(err, errOutdated) || errors.Is(err, errUnwanted):
		return errors.Join(err, removeFile(s.path))
	}
	return err
}

// A differsError reports a replica that is not as the hub says.
type differsError struct{ list []string }

func (e *differsError) Error() string {
	return "the copy differs from the hub: " + strings.Join(e.list, "; ")
}

func (b *builder) complete(ctx context.Context, s *side) error {
	b.node.progress.begin(s)
	if s.place != nil {
		if err := b.fill(ctx, s); err != nil {
			return err
		}
	}
	b.node.progress.phase(ctx, "indexing")
	if err := s.index(ctx); err != nil {
		return err
	}
	b.node.progress.phase(ctx, "catching up")
	if err := b.follow(ctx, s, func() artifact.Seq { return max(s.head, b.served()) }); err != nil {
		return err
	}
	b.node.progress.phase(ctx, "checking")
	return b.check(ctx, s)
}

// served returns the position of the replica whose place is to be taken, before
// which the new one must not be.
func (b *builder) served() artifact.Seq {
	if b.of == nil || b.plan.Restored {
		return 0
	}
	return b.of.Applied()
}

// hubID returns the id of the hub that the copy must be of; "" for any.
func (b *builder) hubID() string {
	if b.of != nil {
		return b.of.now.Load().position.HubID
	}
	if b.node.copyOf == "" && b.node.config.Identity != nil {
		return b.node.config.Identity.HubID
	}
	return b.node.copyOf
}

// fill brings what there is at the hub now, page by page. While one page is
// stored, the next ones come.
func (b *builder) fill(ctx context.Context, s *side) error {
	r := replicate.FillRequest{HubID: b.hubID(), UpTo: s.upTo, Scopes: s.plan.Gained, From: *s.place}
	if p := s.now.Load().position; !s.fresh {
		r.HubID, r.Epoch = p.HubID, p.Epoch
	}
	pages := make(chan replicate.Fill, 2)
	g, ctx := errgroup.WithContext(ctx)
	greeted := make(chan replicate.FillHello, 1)
	g.Go(func() error {
		defer close(pages)
		err := b.node.feed.Backfill(ctx, r, func(h replicate.FillHello) error {
			greeted <- h
			return nil
		}, func(f replicate.Fill) error {
			select {
			case pages <- f:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		return b.refused(s, err)
	})
	g.Go(func() error {
		for f := range pages {
			select {
			case h := <-greeted:
				if err := b.greet(ctx, s, h); err != nil {
					return err
				}
			default:
			}
			if err := s.fill(ctx, &f); err != nil {
				return err
			}
			b.node.progress.page(ctx, s, f.Kind)
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if s.place != nil {
		return errors.New("the back-fill ended early")
	}
	return nil
}

// greet takes in what the hub says it is, before the first page.
func (b *builder) greet(ctx context.Context, s *side, h replicate.FillHello) error {
	scopes := slices.Sorted(slices.Values(h.Scopes))
	switch {
	case h.MinReader > replicate.WireVersion:
		return tooOld(h.MinReader)
	case h.HubID == "" || h.Epoch < 1 || len(scopes) == 0:
		return errors.New("the hub's hello names no hub, epoch or scope")
	case !s.fresh && !slices.Equal(scopes, s.scopes):
		return b.otherScopes()
	}
	var total int64
	for _, n := range h.Estimate {
		total += n
	}
	var err error
	if s.fresh {
		s.scopes = scopes
		err = s.begin(ctx, replicate.Position{HubID: h.HubID, Epoch: h.Epoch, Seq: h.Head}, h.Schema, total)
	} else {
		s.total = max(s.total, total)
	}
	b.node.progress.begin(s)
	if err != nil || h.EventFloor == 0 {
		return err
	}
	_, err = s.write.setEventFloor.ExecContext(ctx, int64(h.EventFloor))
	return err
}

func (b *builder) otherScopes() error {
	if b.plan.Gained != nil {
		return errUnwanted
	}
	return fmt.Errorf("%w: the hub sends other scopes now", errOutdated)
}

// refused tells what a refusal of the hub means for a file.
func (b *builder) refused(s *side, err error) error {
	e, ok := errors.AsType[*artifact.Error](err)
	if !ok {
		return err
	}
	switch e.Reason {
	case artifact.ReasonCursorForeign:
		if b.hubID() == "" { // only what was begun is of another hub
			return fmt.Errorf("%w: %w", errOutdated, err)
		}
		return fmt.Errorf("%w: %w", ErrForeignHub, err)
	case artifact.ReasonCursorExpired, artifact.ReasonCursorAhead, artifact.ReasonCursorDiverged, artifact.ReasonInvalidCursor:
		if !s.fresh {
			return fmt.Errorf("%w: %w", errOutdated, err)
		}
	case string(artifact.CodeNotFound):
		if b.plan.Gained != nil {
			return errUnwanted
		}
	}
	return err
}

// follow applies what the log says after the pages, until the file is where it is
// wanted. The pages are newer than some of it; of each thing the last row wins.
func (b *builder) follow(ctx context.Context, s *side, to func() artifact.Seq) error {
	if s.Applied() >= to() {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sink := &tail{side: s, builder: b, reached: func() bool {
		if s.Applied() < to() {
			return false
		}
		stop()
		return true
	}}
	f := &replicate.Follower{Source: b.node.feed, Sink: sink, Log: b.node.log, Status: func(st replicate.Status) { b.node.progress.lag(s.Applied(), st.Head) }}
	err := f.Run(ctx)
	if s.Applied() >= to() {
		return nil
	}
	if err == nil {
		return ctx.Err()
	}
	return b.refused(s, err)
}

// A tail is a side file as the feed completes it.
type tail struct {
	*side
	builder *builder
	reached func() bool
}

// Hello implements [replicate.Sink].
func (t *tail) Hello(ctx context.Context, h replicate.Hello) error {
	p := t.now.Load().position
	switch {
	case h.HubID != p.HubID || h.Epoch != p.Epoch:
		return errOutdated
	case !slices.Equal(slices.Sorted(slices.Values(h.Scopes)), t.scopes):
		return t.builder.otherScopes()
	}
	return t.Store.Hello(ctx, h)
}

// Apply implements [replicate.Sink].
func (t *tail) Apply(ctx context.Context, batch replicate.Batch) error {
	if err := t.Store.Apply(ctx, batch); err != nil {
		return err
	}
	if t.reached() {
		return context.Canceled
	}
	return nil
}

// check compares the file with the hub, and asks SQLite whether it is sound.
func (b *builder) check(ctx context.Context, s *side) error {
	if err := s.quickCheck(ctx); err != nil {
		return &differsError{[]string{err.Error()}}
	}
	for try := 1; ; try++ {
		mine, err := s.sum(ctx)
		if err != nil {
			return err
		}
		at := s.now.Load().position
		hubs, err := b.node.feed.Digest(ctx, at)
		if err != nil {
			return fmt.Errorf("ask the hub for its digest: %w", b.refused(s, err))
		}
		mine, hubs = mine.In(s.scopes), hubs.In(s.scopes)
		different := mine.Differing(hubs)
		settled := !slices.ContainsFunc(different, func(k replicate.DigestKey) bool { return slices.Contains(hubs.Unsettled, k) })
		switch {
		case different == nil:
			return nil
		case settled || try == comparisons:
			return &differsError{mine.Diff(hubs)}
		}
		// A row after this place says how some of these are.
		next := max(at.Seq+1, b.node.status.Load().Head)
		if err := b.follow(ctx, s, func() artifact.Seq { return next }); err != nil {
			return err
		}
	}
}

// tooOld refuses a hub whose rows this build cannot read.
func tooOld(needs int) error {
	return &replicate.TransientError{
		Err:    fmt.Errorf("this node is too old: the hub's feed needs a reader of version %d and this one is %d", needs, replicate.WireVersion),
		Seldom: true, Next: "install a newer scidex and start the node again; it goes on where it is",
	}
}

// Waits between tries to build.
const (
	leastBuildWait = time.Second
	mostBuildWait  = 5 * time.Minute
)
