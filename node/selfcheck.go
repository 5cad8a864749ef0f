package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/scidex-ai/substrate/replicate"
)

// A Checkup is the last time that the node compared its replica with the hub.
type Checkup struct {
	At      time.Time `json:"at"`
	Equal   bool      `json:"equal"`            // perhaps after a repair
	Mended  int       `json:"mended,omitempty"` // rows
	Left    int       `json:"left,omitempty"`   // rows
	Reason  string    `json:"reason,omitempty"` // why it is not equal, or is not known to be
	AtFault string    `json:"at_fault,omitempty"`

	of *Store // that was compared
}

// checkup returns the last comparison of the replica that is served now; nil for
// none.
func (n *Node) checkup() *Checkup {
	if c := n.checks.last.Load(); c != nil && c.of == n.Store() {
		return c
	}
	return nil
}

// diverged reports whether the replica is known to differ from the hub.
func (c *Checkup) diverged() bool { return c != nil && !c.Equal }

// trouble returns what the node's operator must see to; "" for nothing.
func (n *Node) trouble(f *freshness) string {
	if f.fatal != nil {
		return f.fatal.Error()
	}
	l := n.status.Load()
	if passing, ok := errors.AsType[*replicate.TransientError](l.Err); ok && !l.Connected {
		return passing.Error() + ": " + passing.Next
	}
	if c := n.checkup(); c.diverged() {
		if c.AtFault == "hub" {
			return "the hub's own rows are at fault, its operator must run scidex hub verify: " + c.Reason
		}
		return "the replica differs from its hub: " + c.Reason
	}
	return ""
}

// checks are the node's checks of itself.
type checks struct {
	last   atomic.Pointer[Checkup] // nil before the first; of one that came to no result the one before stays
	mended atomic.Int64            // rows, since the start
	found  atomic.Int64            // checks that found a difference, since the start
	now    chan struct{}           // has one when a check is wanted before its time

	refused atomic.Int64 // the last change that the replica could not take
}

func newChecks() checks { return checks{now: make(chan struct{}, 1)} }

// checkItself compares the replica with the hub now and then, until ctx ends.
func (n *Node) checkItself(ctx context.Context) {
	for {
		var due <-chan time.Time
		if every := n.config.SelfCheck; every > 0 { // nodes started together do not come together
			due = time.After(every/2 + rand.N(every)) //nolint:gosec // jitter, not a secret
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-n.checks.now:
		}
		n.check(ctx)
	}
}

// check compares the replica with the hub, mends what differs, and has it copied
// anew when that does not help. It never ends anything: a replica that differs is
// served on.
func (n *Node) check(ctx context.Context) {
	began, checked := time.Now(), n.Store()
	report, err := n.Repair(ctx)
	if ctx.Err() != nil {
		return
	}
	n.checks.mended.Add(int64(report.Mended))
	if err != nil {
		n.log.WarnContext(ctx, "self-check came to no result", "err", err, "mended", report.Mended)
		if report.Mended == 0 && (errors.Is(err, ErrNotComparable) || len(report.Differences) == 0) {
			return
		}
	}
	c := &Checkup{At: time.Now().UTC(), Equal: err == nil && report.Equal(), Mended: report.Mended, Left: report.Left, of: checked}
	if len(report.Rows) > 0 || !c.Equal {
		n.checks.found.Add(1)
	}
	switch {
	case err != nil:
		c.Reason = err.Error()
	case report.HubAtFault():
		c.Reason, c.AtFault = report.Differences[0], "hub"
		n.log.ErrorContext(ctx, "the hub's own rows are not what they should be, so the replica differs from it", "differences", report.Differences,
			"rows", report.Left, "next", "the hub's operator must run scidex hub verify")
	case !c.Equal:
		c.Reason = report.Differences[0]
		n.log.ErrorContext(ctx, "the replica differs from its hub and could not be mended", "differences", report.Differences,
			"mended", report.Mended, "left", report.Left, "next", "none: another is built beside it")
		if n.Store() != checked || n.Building().Reason != "" {
			break // another has taken its place, or is about to
		}
		n.Rebuild("the replica differs from its hub and could not be mended: " + c.Reason)
	case len(report.Rows) > 0:
		n.log.ErrorContext(ctx, "the replica differed from its hub and was mended", "rows", report.Mended, "first", report.Rows[0], "took", time.Since(began))
	default:
		n.log.InfoContext(ctx, "self-check: the replica equals its hub", "seq", report.Counted.Seq, "took", time.Since(began))
	}
	n.checks.last.Store(c)
}
