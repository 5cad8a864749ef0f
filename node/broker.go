package node

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const (
	// defaultPage is how many events a page has at most, unless told.
	defaultPage = 100
	// scanFactor is how many times a page's events are looked at for it.
	scanFactor = 10
)

// A moment is the store after one commit. It does not change: whoever waits for
// more waits for next to be closed and loads the next moment.
type moment struct {
	position replicate.Position
	recent   event.Recent
	lost     []string      // scopes that the replica has left since it was opened
	retired  bool          // another store has taken its place: there is no later moment
	next     chan struct{} // closed once there is a later moment
}

// publish makes what was committed known. It waits for nobody.
func (s *Store) publish(p replicate.Position, events event.Recent) {
	s.publishMoment(&moment{position: p, recent: events, lost: s.now.Load().lost})
}

func (s *Store) publishMoment(m *moment) {
	m.next = make(chan struct{})
	old := s.now.Swap(m)
	close(old.next)
}

// retire tells those who wait for more that it comes from another store.
func (s *Store) retire() {
	m := *s.now.Load()
	m.retired = true
	s.publishMoment(&m)
}

// A Subscription is a cursor over the node's event table; what is in memory is
// only a cache of it. So a slow reader holds nobody up and is never dropped, and
// one that waits costs nothing. It outlives the file that it reads: its cursor is
// a place in the log, and goes on in the next one. Its methods are for one
// goroutine at a time.
type Subscription struct {
	PageSize int // events in a page, at most; 0 means 100

	current func() *Store
	store   *Store // that the last page came from
	scopes  []string
	cursor  artifact.Seq
	filter  *event.Filter
}

// An EventPage is what is new after a subscription's cursor.
type EventPage struct {
	Events   []artifact.Event // may be empty: all that was new was dropped by the filter
	Cursor   artifact.Seq     // resume after this
	CaughtUp bool             // nothing more is known after Cursor
	Backlog  int64            // changes after Cursor: at most as many events are still to come
}

// Subscribe returns a subscription to the events after a seq that a filter lets
// pass; nil lets all.
func (s *Store) Subscribe(after artifact.Seq, f *event.Filter) *Subscription {
	if f == nil {
		f = new(event.Filter)
	}
	return &Subscription{current: func() *Store { return s }, store: s, cursor: after, filter: f}
}

// Cursor returns the place after which the next page begins.
func (b *Subscription) Cursor() artifact.Seq { return b.cursor }

// Next waits until something was applied after the cursor, and returns the next
// page of it, of the scopes that the caller in ctx may see. The rows that its
// events tell of are readable. It returns ctx's error when ctx ends first.
func (b *Subscription) Next(ctx context.Context) (EventPage, error) {
	if _, err := verb.CallerFrom(ctx); err != nil {
		return EventPage{}, err
	}
	s, err := b.wait(ctx)
	if err != nil {
		return EventPage{}, err
	}
	defer s.uses.done()
	return b.page(ctx, s, s.now.Load())
}

// page returns the next page from a store in use, as it is at a moment.
func (b *Subscription) page(ctx context.Context, s *Store, m *moment) (EventPage, error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return EventPage{}, err
	}
	scopes := c.VisibleScopes()
	if err := b.checkScopes(m, scopes); err != nil {
		return EventPage{}, err
	}
	page := EventPage{Events: []artifact.Event{}, Cursor: b.cursor}
	all, err := s.eventsAfter(ctx, m, b.cursor, b.taker(&page, scopes))
	if err == nil && b.cursor < m.recent.Floor { // after it was read
		err = s.checkCursor(ctx, b.cursor)
	}
	if err != nil {
		return EventPage{}, err
	}
	if all {
		page.Cursor = m.position.Seq
	}
	b.cursor = page.Cursor
	page.Backlog = int64(m.position.Seq - page.Cursor)
	page.CaughtUp = page.Backlog == 0
	return page, nil
}

// wait waits until something was applied after the cursor, in whatever store is
// the current one then, and returns that store in use.
func (b *Subscription) wait(ctx context.Context) (*Store, error) {
	for {
		s := b.current()
		if s != b.store && s.restored && s.uses.begin() {
			err := s.checkCursor(ctx, b.cursor)
			if s.uses.done(); err != nil {
				return nil, err
			}
		}
		b.store = s
		if err := s.WaitApplied(ctx, b.cursor+1); err != nil && !errors.Is(err, errRetired) {
			return nil, err
		} else if err == nil && s.uses.begin() {
			return s, nil
		}
		if s == b.current() {
			return nil, errRetired // closed, with none in its place
		}
	}
}

// checkScopes ends a subscription that saw a scope which the node has left.
func (b *Subscription) checkScopes(m *moment, scopes []string) error {
	for _, scope := range b.scopes {
		if slices.Contains(m.lost, scope) && !slices.Contains(scopes, scope) {
			return &artifact.Error{
				Code: artifact.CodeUnavailable, Reason: artifact.ReasonScopeLeft, Details: map[string]any{"scope": scope},
				Message: "the node no longer follows the scope " + scope + ": subscribe anew, at another node for what happens there",
			}
		}
	}
	b.scopes = scopes
	return nil
}

// taker returns a function that puts events into a page, and is false once the
// page is full or enough events were looked at for it.
func (b *Subscription) taker(page *EventPage, scopes []string) func(artifact.Event) bool {
	size := b.PageSize
	if size <= 0 {
		size = defaultPage
	}
	left := size * scanFactor
	return func(e artifact.Event) bool {
		if left == 0 {
			return false
		}
		if slices.Contains(scopes, e.Scope) && b.filter.Match(&e) {
			if len(page.Events) == size {
				return false
			}
			page.Events = append(page.Events, e)
		}
		page.Cursor = e.ID
		left--
		return true
	}
}

// checkCursor refuses a cursor in the gap that a restore of the hub left, or beyond
// the log: what it has passed is no longer what happened.
func (s *Store) checkCursor(ctx context.Context, cursor artifact.Seq) error {
	p := s.now.Load().position
	expired := &artifact.Error{
		Code: artifact.CodeNotFound, Reason: artifact.ReasonCursorExpired, Details: map[string]any{"epoch": p.Epoch, "head": p.Seq},
		Message: "the cursor names changes that a restore of the hub lost: read anew what you keep, and subscribe after the position that comes with it",
	}
	if cursor > p.Seq {
		return expired
	}
	if cursor == 0 || cursor == p.Seq {
		return nil // 0 means all that are kept
	}
	const query = `SELECT event_floor, coalesce((SELECT max(seq) FROM event WHERE seq <= ?1), 0), coalesce((SELECT min(seq) FROM event WHERE seq > ?1), ?2) FROM replica_state`
	var floor, last, next artifact.Seq
	if err := s.readers.QueryRowContext(ctx, query, int64(cursor), int64(p.Seq)).Scan(&floor, &last, &next); err != nil {
		return err
	}
	switch {
	case cursor < floor:
		expired.Details["oldest"] = floor + 1
		expired.Message = "events after the cursor are no longer kept: read anew what you keep, and go on with since 0, all that are"
		return expired
	case p.Epoch > 1 && cursor > last && next-last > replicate.EpochJump/2:
		return expired
	}
	return nil
}

const eventsSQL = `SELECT seq, type, ref, scope, actor_id, actor_kind, at, payload
	FROM event WHERE seq > ?1 AND seq <= ?2 ORDER BY seq`

// eventsAfter passes the events after a cursor and up to a moment to take, in
// order, until take is false; all reports that it never was.
func (s *Store) eventsAfter(ctx context.Context, m *moment, cursor artifact.Seq, take func(artifact.Event) bool) (all bool, err error) {
	if cursor >= m.recent.Floor {
		for _, e := range m.recent.After(cursor) {
			if !take(e) {
				return false, nil
			}
		}
		return true, nil
	}
	rows, err := s.read.events.QueryContext(ctx, cursor, m.position.Seq)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return false, err
		}
		if !take(e) {
			return false, nil
		}
	}
	return true, rows.Err()
}

func scanEvent(rows *sql.Rows) (e artifact.Event, err error) {
	var at int64
	err = rows.Scan(&e.ID, &e.Type, &e.Ref, &e.Scope, &e.Actor.ID, &e.Actor.Kind, &at, (*[]byte)(&e.Payload))
	e.At = fromMillis(at)
	return e, err
}

// eventOf returns the event that rides on a row, as the table gives it back.
func eventOf(r *replicate.Row) artifact.Event {
	return artifact.Event{
		ID: r.Seq, Type: r.Event.Type, Ref: r.Event.Ref, Scope: r.Scope,
		Actor: artifact.Actor{ID: r.Event.ActorID, Kind: r.Event.ActorKind},
		At:    fromMillis(r.At.UnixMilli()), Payload: r.Event.Payload,
	}
}

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
