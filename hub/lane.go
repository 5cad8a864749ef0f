package hub

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Limits of the writes that share a transaction.
const (
	maxGroup     = 64
	maxWaiting   = 4096
	groupTimeout = 30 * time.Second
)

// A lane lets writes share transactions. Commits of one log take turns, each
// until the disk has it; what waits for its turn may as well go in one.
//
// A write that comes while none is under way has a transaction to itself. Those
// that come meanwhile wait for it, and go together.
type lane struct {
	hub *Hub

	mu    sync.Mutex
	busy  bool      // guarded by mu: somebody has the lane, and hands it on
	queue []*waiter // guarded by mu
}

// A waiter is a write that waits for a transaction.
type waiter struct {
	member *member
	ctx    context.Context //nolint:containedctx // of the request, which the lane outlasts
	ready  chan outcome    // of capacity 1
}

// An outcome tells a waiter what became of it.
type outcome struct {
	served bool // it was written or refused; else it is to be run alone
	leads  bool // it has the lane now
}

// join writes a member when its turn comes. When served is set, it was written or
// refused: see its err. Otherwise it is to be written alone.
func (l *lane) join(ctx context.Context, m *member) (served bool, err error) {
	l.mu.Lock()
	if !l.busy {
		l.busy = true
		l.mu.Unlock()
		return l.lead(ctx, m), nil
	}
	if len(l.queue) >= maxWaiting {
		l.mu.Unlock()
		return false, errBusy()
	}
	w := &waiter{member: m, ctx: ctx, ready: make(chan outcome, 1)}
	l.queue = append(l.queue, w)
	l.mu.Unlock()
	var out outcome
	select {
	case out = <-w.ready:
	case <-ctx.Done():
		if l.drop(w) {
			return false, ctx.Err()
		}
		out = <-w.ready // it is being written
	}
	if out.leads {
		return l.lead(ctx, m), nil
	}
	return out.served, nil
}

// lead writes a member that has the lane and no company. It waits for no lock, or
// those behind it would.
func (l *lane) lead(ctx context.Context, m *member) (served bool) {
	defer l.next() //nolint:contextcheck // those it hands on to have their own
	return m.settle(l.hub.transact(ctx, []*member{m}, false))
}

// drop takes a waiter out of the queue; false when it is there no more.
func (l *lane) drop(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, w)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	return true
}

// next hands the lane to those who wait, or frees it.
func (l *lane) next() {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.queue), maxGroup)
	group := slices.Clone(l.queue[:n])
	l.queue = slices.Delete(l.queue, 0, n)
	switch n {
	case 0:
		l.busy = false
	case 1:
		group[0].ready <- outcome{leads: true}
	default:
		go func() {
			defer l.next()
			l.write(group)
		}()
	}
}

// write writes a group and tells its members what became of them. A second
// request with a key that is in the group runs after it.
func (l *lane) write(group []*waiter) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(group[0].ctx), groupTimeout)
	defer cancel()
	members := make([]*member, 0, len(group))
	keys := make(map[answerKey]bool)
	alone := make(map[*member]bool)
	for _, w := range group {
		if m := w.member; m.key != nil && keys[m.answerKey()] {
			alone[m] = true
		} else {
			if m.key != nil {
				keys[m.answerKey()] = true
			}
			members = append(members, m)
		}
	}
	err := l.transact(ctx, members)
	for _, w := range group {
		how, served := "alone", !alone[w.member] && w.member.settle(err)
		if served {
			how = "shared"
		}
		l.hub.metrics.grouped.WithLabelValues(how).Inc()
		w.ready <- outcome{served: served}
	}
}

// transact writes members together. A panic is an error: they are run alone then,
// and the one at fault fails where only its own request does.
func (l *lane) transact(ctx context.Context, members []*member) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			l.hub.log.ErrorContext(ctx, "a write panicked among others", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return l.hub.transact(ctx, members, false)
}
