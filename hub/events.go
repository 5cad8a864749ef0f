package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

const (
	// internalSeen is what of internal events a caller may see: what is about itself,
	// what it takes part in, what became of candidates in its scopes, and, as an admin,
	// that the others happened.
	internalSeen  = `$2 <> 'anonymous' AND ($3 OR ` + internalWhole + `)`
	internalWhole = `(e.ref = 'agent:' || $2 OR starts_with(e.type, 'candidate.') OR EXISTS (
			SELECT FROM participant p WHERE p.type = split_part(e.ref, ':', 1) AND p.id = substr(split_part(e.ref, '@sha256:', 1), strpos(e.ref, ':') + 1) AND p.agent IN ($2, '*')))`
	eventColumns = `e.seq, e.type, e.ref, e.scope, e.actor_id, e.actor_kind, e.at, e.payload,
			e.class = 'public' OR starts_with(e.type, 'system.') OR ` + internalWhole
	// eventsQuery reads what the caller may see.
	eventsQuery = `
		SELECT ` + eventColumns + `
		FROM event e
		WHERE e.scope = ANY ($1) AND e.seq > $4 AND e.seq <= $5 AND (e.class = 'public' OR ` + internalSeen + `)
		ORDER BY e.seq
		LIMIT $6`
	// namedEventsQuery reads those of some that the caller may see.
	namedEventsQuery = `
		SELECT ` + eventColumns + `
		FROM event e
		WHERE e.scope = ANY ($1) AND e.seq = ANY ($4) AND (e.class = 'public' OR ` + internalSeen + `)
		ORDER BY e.seq`
	// cursorQuery tells from which seq on events are kept, those of before and
	// partitions of them having been dropped, and whether a seq is in the gap before an epoch.
	cursorQuery = `
		SELECT greatest((SELECT seq + 1 FROM feed.event_floor), (SELECT min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\)'))[1]::bigint)
			FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'event'::regclass)),
			EXISTS (SELECT FROM epoch p WHERE p.last_seq < $1 AND p.first_seq > $1 + 1)`
)

// eventsLook is how many events are looked at for a page, at most.
const eventsLook = 5000

var _ event.Source = (*Hub)(nil)

// Read implements [event.Source].
func (h *Hub) Read(ctx context.Context, after *artifact.Seq, f *event.Filter, size int) (event.Reader, error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.NeedSomewhere("reading events", verb.Viewer); err != nil {
		return nil, err
	}
	head, err := h.Head(ctx)
	if err != nil {
		return nil, callerError(err)
	}
	r := &eventReader{hub: h, cursor: head, filter: f, size: size}
	if after != nil {
		r.cursor = *after
		if err := h.checkCursor(ctx, r.cursor, head); err != nil {
			return nil, err
		}
		if r.cursor == 0 { // all that are kept
			if err := h.db.QueryRow(ctx, eventFloorQuery).Scan(&r.cursor); err != nil {
				return nil, callerError(fmt.Errorf("look which events are kept: %w", err))
			}
		}
	}
	return r, nil
}

// checkCursor refuses a cursor beyond the log, in the gap that a restore left, or
// before what is kept.
func (h *Hub) checkCursor(ctx context.Context, cursor, head artifact.Seq) error {
	if cursor == head || cursor == 0 {
		return nil // 0 means all that are kept
	}
	expired := &artifact.Error{
		Code: artifact.CodeNotFound, Reason: artifact.ReasonCursorExpired, Details: map[string]any{"epoch": h.id.epoch, "head": head},
		Message: "the cursor names changes that a restore of the hub lost: read anew what you keep, and go on after the cursor of now",
	}
	if cursor > head {
		expired.Message = "the cursor is ahead of the log: it is of another hub, or names changes that a restore lost: read anew what you keep, and go on after the cursor of now"
		return expired
	}
	var kept artifact.Seq
	var gap bool
	if err := h.db.QueryRow(ctx, cursorQuery, int64(cursor)).Scan(&kept, &gap); err != nil {
		return callerError(fmt.Errorf("look for a cursor: %w", err))
	}
	if gap {
		return expired
	}
	if cursor+1 < kept {
		expired.Details["oldest"] = kept
		expired.Message = "events after the cursor are no longer kept: read anew what you keep, and go on with since 0, all that are"
		return expired
	}
	return nil
}

// recentEvents are the latest public events, so that those who wait for more ask the
// database for nothing.
type recentEvents struct{ now atomic.Pointer[recentMoment] }

// A recentMoment does not change.
type recentMoment struct {
	public   event.Recent
	internal []internalMark // of events that are not there, not being for everyone
	floor    artifact.Seq   // before it there may be other internal events
	last     artifact.Seq   // that was read
}

// An internalMark tells that there is an internal event of a type.
type internalMark struct {
	seq artifact.Seq
	typ string
}

// internalMarks is how many are kept.
const internalMarks = 512

// follow takes in rows of the log. Where it begins, and after a jump, what came
// before is not known.
func (r *recentEvents) follow(rows []logRow) {
	next := new(recentMoment)
	if old := r.now.Load(); old != nil && old.last+1 == rows[0].Seq {
		*next = *old
	} else {
		next.public.Floor = rows[0].Seq - 1
	}
	next.last = rows[len(rows)-1].Seq
	for i := range rows {
		row := &rows[i]
		switch e := row.Event; {
		case e == nil:
			if f, err := row.EventFloor(); f != nil && err == nil {
				next.public.Forget(f.Scope, f.UpTo)
			}
		case row.class != replicate.Public:
			next.mark(internalMark{row.Seq, e.Type})
		default:
			next.public.Add(artifact.Event{
				ID: row.Seq, Type: e.Type, Ref: e.Ref, Scope: row.Scope, Actor: artifact.Actor{ID: e.ActorID, Kind: e.ActorKind}, At: row.At.UTC(), Payload: e.Payload,
			})
		}
	}
	r.now.Store(next)
}

// mark adds a mark, and leaves those of moments before as they are.
func (m *recentMoment) mark(i internalMark) {
	if m.internal = append(m.internal, i); len(m.internal) >= 2*internalMarks {
		cut := len(m.internal) - internalMarks
		m.floor, m.internal = m.internal[cut-1].seq, append(make([]internalMark, 0, 2*internalMarks), m.internal[cut:]...)
	}
}

// after returns the public events after a cursor; false when there may be others
// that a filter lets pass, or it does not reach back so far, or not to the head.
func (r *recentEvents) after(cursor, head artifact.Seq, f *event.Filter) ([]artifact.Event, bool) {
	now := r.now.Load()
	if now == nil || now.last < head || cursor < now.public.Floor || cursor < now.floor {
		return nil, false
	}
	for i := len(now.internal) - 1; i >= 0 && now.internal[i].seq > cursor; i-- {
		if f.Wants(now.internal[i].typ) {
			return nil, false
		}
	}
	return now.public.After(cursor), true
}

// An eventReader reads the hub's events in pages.
type eventReader struct {
	hub    *Hub
	cursor artifact.Seq
	filter *event.Filter
	size   int
}

// Cursor implements [event.Reader].
func (r *eventReader) Cursor() artifact.Seq { return r.cursor }

// Changed implements [event.Reader].
func (r *eventReader) Changed() <-chan struct{} {
	ring := &r.hub.pump.ring
	ring.mu.RLock()
	defer ring.mu.RUnlock()
	if ring.head > r.cursor {
		return closed
	}
	return ring.changed
}

// closed is the channel of what has happened already.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Next implements [event.Reader]. What it looks at is committed, and so is all
// before: the head is read first.
func (r *eventReader) Next(ctx context.Context) (page event.Page, err error) {
	c, err := verb.CallerFrom(ctx)
	if err != nil {
		return page, err
	}
	head := r.hub.pump.ring.end()
	if head <= r.cursor { // a hub that has just begun to read its log, or is not run
		if head, err = r.hub.Head(ctx); err != nil {
			return page, callerError(err)
		}
	}
	if head <= r.cursor {
		return event.Page{Cursor: r.cursor, CaughtUp: true, AsOf: r.cursor}, nil
	}
	scopes := c.VisibleScopes()
	p := &pager{reader: r, head: head}
	if events, all := r.hub.events.after(r.cursor, head, r.filter); all {
		for i := range events {
			if e := &events[i]; e.ID > head || slices.Contains(scopes, e.Scope) && !p.take(e) {
				break
			}
		}
	} else if err := r.hub.readEvents(ctx, c, r.cursor, head, p); err != nil {
		return page, callerError(fmt.Errorf("read events: %w", err))
	} else if err := r.hub.checkCursor(ctx, r.cursor, head); err != nil { // after it was read
		return page, err
	}
	page = p.page()
	r.cursor = page.Cursor
	return page, nil
}

// readEvents passes the events after a cursor that the caller may see.
func (h *Hub) readEvents(ctx context.Context, c *verb.Caller, cursor, head artifact.Seq, p *pager) error {
	rows, err := h.db.Query(ctx, eventsQuery, c.VisibleScopes(), c.Actor.ID, c.Has(verb.Admin, artifact.Commons), int64(cursor), int64(head), eventsLook)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return err
		}
		if !p.take(&e) {
			return nil
		}
	}
	return rows.Err()
}

// namedEvents returns those of some events that the caller may see.
func (h *Hub) namedEvents(ctx context.Context, db querier, c *verb.Caller, ids []artifact.Seq) ([]artifact.Event, error) {
	rows, err := db.Query(ctx, namedEventsQuery, c.VisibleScopes(), c.Actor.ID, c.Has(verb.Admin, artifact.Commons), ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanEvent)
}

// scanEvent reads an event. Of what is private to others, an admin is told that it
// happened, and not what.
func scanEvent(row pgx.CollectableRow) (e artifact.Event, err error) {
	var payload string
	var whole bool
	if err = row.Scan(&e.ID, &e.Type, &e.Ref, &e.Scope, &e.Actor.ID, &e.Actor.Kind, &e.At, &payload, &whole); err != nil {
		return e, err
	}
	e.At, e.Payload = e.At.UTC(), []byte(payload)
	if !whole {
		e.Payload = []byte("{}")
		e.Ref, _, _ = strings.Cut(e.Ref, "@sha256:") // a hash would prove a guess
	}
	return e, nil
}

// A pager puts events into a page.
type pager struct {
	reader *eventReader
	head   artifact.Seq
	events []artifact.Event
	looked int
	last   artifact.Seq // that was looked at
	full   bool
}

// take is false once the page is full, or enough was looked at for it.
func (p *pager) take(e *artifact.Event) bool {
	if p.looked == eventsLook {
		p.full = true
		return false
	}
	if p.reader.filter.Match(e) {
		if len(p.events) == p.reader.size {
			p.full = true
			return false
		}
		p.events = append(p.events, *e)
	}
	p.looked, p.last = p.looked+1, e.ID
	return true
}

func (p *pager) page() event.Page {
	// A read that ended at its limit may have left some.
	if p.full || p.looked == eventsLook {
		return event.Page{Events: p.events, Cursor: p.last, CaughtUp: p.last == p.head, AsOf: p.head}
	}
	return event.Page{Events: p.events, Cursor: p.head, CaughtUp: true, AsOf: p.head}
}
