package node

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const (
	// recentEvents is how many of the latest events stay in memory, at least.
	recentEvents = 4096
	// defaultPage is how many events a page has at most, unless told.
	defaultPage = 100
	// scanFactor is how many times a page's events are looked at for it.
	scanFactor = 10
)

// A moment is the store after one commit. It does not change: whoever waits for
// more waits for next to be closed and loads the next moment.
type moment struct {
	position replicate.Position
	recent   recent
	next     chan struct{} // closed once there is a later moment
}

// A recent holds the latest events, in order: all those after floor. Adding
// leaves copies made before as they are, so that readers need no lock.
type recent struct {
	floor  artifact.Seq
	events []artifact.Event
}

func (r *recent) add(e artifact.Event) {
	r.events = append(r.events, e)
	if len(r.events) >= 2*recentEvents {
		cut := len(r.events) - recentEvents
		r.floor, r.events = r.events[cut-1].ID, append(make([]artifact.Event, 0, 2*recentEvents), r.events[cut:]...)
	}
}

// after returns the events after a cursor that is not before the floor.
func (r *recent) after(cursor artifact.Seq) []artifact.Event {
	i, found := slices.BinarySearchFunc(r.events, cursor, func(e artifact.Event, c artifact.Seq) int { return cmp.Compare(e.ID, c) })
	if found {
		i++
	}
	return r.events[i:]
}

// publish makes what was committed known. It waits for nobody.
func (s *Store) publish(p replicate.Position, events recent) {
	old := s.now.Load()
	s.now.Store(&moment{position: p, recent: events, next: make(chan struct{})})
	close(old.next)
}

// A Subscription is a cursor over the node's event table; what is in memory is
// only a cache of it. So a slow reader holds nobody up and is never dropped, and
// one that waits costs nothing. Its methods are for one goroutine at a time.
type Subscription struct {
	PageSize int // events in a page, at most; 0 means 100

	store  *Store
	cursor artifact.Seq
	types  []string
}

// An EventPage is what is new after a subscription's cursor.
type EventPage struct {
	Events   []artifact.Event // may be empty: all that was new was dropped by the filter
	Cursor   artifact.Seq     // resume after this
	CaughtUp bool             // nothing more is known after Cursor
	Backlog  int64            // changes after Cursor: at most as many events are still to come
}

// Subscribe returns a subscription to the events after a seq. Types name the
// event types wanted; "hypothesis.*" are all whose name begins so, "*" and no
// types at all mean every one.
func (s *Store) Subscribe(after artifact.Seq, types []string) *Subscription {
	return &Subscription{store: s, cursor: after, types: slices.Clone(types)}
}

// Next waits until something was applied after the cursor, and returns the next
// page of it, of the scopes that the caller in ctx may see. The rows that its
// events tell of are readable. It returns ctx's error when ctx ends first.
func (b *Subscription) Next(ctx context.Context) (EventPage, error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return EventPage{}, err
	}
	if err := b.store.WaitApplied(ctx, b.cursor+1); err != nil {
		return EventPage{}, err
	}
	m := b.store.now.Load()
	page := EventPage{Events: []artifact.Event{}, Cursor: b.cursor}
	all, err := b.store.eventsAfter(ctx, m, b.cursor, b.taker(&page, c.VisibleScopes()))
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
		if slices.Contains(scopes, e.Scope) && b.wants(e.Type) {
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

func (b *Subscription) wants(typ string) bool {
	return len(b.types) == 0 || slices.ContainsFunc(b.types, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		if open && (prefix == "" || strings.HasSuffix(prefix, ".")) {
			return strings.HasPrefix(typ, prefix)
		}
		return typ == pattern
	})
}

const eventsSQL = `SELECT seq, type, ref, scope, actor_id, actor_kind, at, payload
	FROM event WHERE seq > ?1 AND seq <= ?2 ORDER BY seq`

// eventsAfter passes the events after a cursor and up to a moment to take, in
// order, until take is false; all reports that it never was.
func (s *Store) eventsAfter(ctx context.Context, m *moment, cursor artifact.Seq, take func(artifact.Event) bool) (all bool, err error) {
	if cursor >= m.recent.floor {
		for _, e := range m.recent.after(cursor) {
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
