package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

var _ replicate.Log = (*Hub)(nil)

// Open implements [replicate.Log].
func (h *Hub) Open(ctx context.Context, from replicate.Position, scopes []string) (replicate.Reader, replicate.Hello, error) {
	// Those who open the feed take turns with those who read it from the database,
	// so that however many come at once, writes have connections.
	select {
	case h.reading <- struct{}{}:
		defer func() { <-h.reading }()
	case <-ctx.Done():
		return nil, replicate.Hello{}, ctx.Err()
	}
	first, last, err := bounds(ctx, h.db)
	if err != nil {
		return nil, replicate.Hello{}, err
	}
	floor, err := floorOf(ctx, h.db, first)
	if err != nil {
		return nil, replicate.Hello{}, err
	}
	h.pump.saw(last)
	hello := replicate.Hello{
		HubID: h.id.hubID, Epoch: h.id.epoch, Head: last, Floor: floor,
		Schema: replicate.WireVersion, MinReader: replicate.WireVersion, BeatS: int(replicate.BeatInterval.Seconds()), Scopes: scopes,
	}
	if err := h.checkPosition(ctx, &from, floor, last); err != nil {
		return nil, hello, err
	}
	if hello.Prev, err = lastOfScopes(ctx, h.db, scopes, from.Seq); err != nil {
		return nil, hello, err
	}
	r := &feedReader{hub: h, scopes: scopes, at: chainCursor{from.Seq, from.Chain}, head: last, prev: previous{from.Seq, maps.Clone(hello.Prev)}}
	return h.leased(ctx, r, from.Seq), hello, nil
}

// foreignHub refuses a follower of another hub.
func foreignHub() error {
	return &artifact.Error{
		Code: artifact.CodeVersionConflict, Reason: artifact.ReasonCursorForeign,
		Message: "the replica was copied from another hub: give that hub's URL, or run scidex node rebuild to copy this one",
	}
}

// checkPosition refuses a position that the log cannot be followed from without
// loss, and fills in its chain.
func (h *Hub) checkPosition(ctx context.Context, p *replicate.Position, floor, last artifact.Seq) error {
	refuse := func(code artifact.Code, reason, message string) error {
		return &artifact.Error{Code: code, Reason: reason, Message: message, Details: map[string]any{
			"epoch": h.id.epoch, "head": last, "floor": floor, "cursor": p.Seq,
		}}
	}
	switch {
	case p.HubID != "" && p.HubID != h.id.hubID:
		return foreignHub()
	case p.Epoch != 0 && p.Epoch != h.id.epoch:
		return refuse(artifact.CodeVersionConflict, artifact.ReasonCursorDiverged, "the hub was restored since")
	case p.Seq > last:
		return refuse(artifact.CodeVersionConflict, artifact.ReasonCursorAhead, "the cursor is ahead of the log: this is not the hub that it came from, or it lost commits")
	case p.Seq < floor:
		return refuse(artifact.CodeNotFound, artifact.ReasonCursorExpired, "the log was trimmed past the cursor")
	case p.Seq == 0:
		return nil
	}
	chain, err := h.chainAt(ctx, p.Seq)
	switch {
	case errors.Is(err, errNoSuchSeq):
		return refuse(artifact.CodeNotFound, artifact.ReasonCursorExpired, "the cursor names changes that a restore of the hub lost")
	case err != nil:
		return fmt.Errorf("check the cursor's chain: %w", err)
	}
	if !p.Chain.IsZero() && p.Chain != chain {
		return refuse(artifact.CodeVersionConflict, artifact.ReasonCursorDiverged, "the log took another course before the cursor")
	}
	p.Chain = chain
	return nil
}

// A feedReader is one follower's place in the log. It reads the ring, whose pages
// it shares with others, and SQL while it lags behind that.
type feedReader struct {
	hub    *Hub
	scopes []string
	at     chainCursor // the chain is that of the last whole commit
	head   artifact.Seq
	prev   previous // where it last read SQL
	amid   bool     // at stands within a commit
}

// Next implements [replicate.Reader].
func (f *feedReader) Next(ctx context.Context, quiet <-chan time.Time) (*replicate.Page, error) {
	ring := &f.hub.pump.ring
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		span, changed, ok := ring.span(f.at.seq)
		if span != nil {
			return f.take(span.page(f.scopes)), nil
		}
		if end := ring.end(); !ok && f.at.seq < end { // before the pump begins, its end is 0
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-quiet:
				return nil, nil //nolint:nilnil // as the interface has it
			case f.hub.reading <- struct{}{}:
			}
			page, err := f.lag(ctx, end)
			<-f.hub.reading
			if err != nil {
				return nil, err
			}
			return f.take(page), nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-quiet:
			return nil, f.hub.pump.stalled()
		case <-changed:
		}
	}
}

// take moves f to where a page leads.
func (f *feedReader) take(p *replicate.Page) *replicate.Page {
	f.at.seq, f.amid = p.To, p.Partial
	if !p.Partial {
		f.at.chain = p.Chain
	}
	f.head = max(f.head, p.Head)
	return p
}

// readTimeout bounds one read of the log by a laggard.
const readTimeout = time.Minute

// lag reads a page of what the ring no longer holds, and of nothing but f's
// scopes, up to a commit's end. Its chain comes from the checkpoint before it.
func (f *feedReader) lag(ctx context.Context, upTo artifact.Seq) (*replicate.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, all, err := readScopes(ctx, f.hub.db, f.scopes, f.at.seq, upTo, replicate.MaxPageRows)
	if err != nil {
		return nil, err
	}
	if !all {
		upTo = rows[len(rows)-1].Seq
	}
	if f.prev.at != f.at.seq {
		f.prev = previous{at: f.at.seq}
	}
	if err := f.prev.meet(ctx, f.hub.db, rows); err != nil {
		return nil, err
	}
	f.prev.number(rows)
	mine := make([]*entry, len(rows))
	for i := range rows {
		e := newEntry(&rows[i], artifact.Hash{})
		mine[i] = &e
	}
	p := cutPage(f.at.seq, mine, upTo, all)
	f.prev.keep(lastOf(rows[:len(p.Rows)]), p.To)
	p.Head = max(f.hub.pump.head(), p.To)
	if !p.Partial {
		p.Chain, err = f.hub.chainAt(ctx, p.To)
	}
	return p, err
}

// lastOf returns the last row of each scope among rows of public class.
func lastOf(rows []logRow) map[string]artifact.Seq {
	last := make(map[string]artifact.Seq)
	for i := range rows {
		last[rows[i].Scope] = rows[i].Seq
	}
	return last
}

// chainAt returns the log's chain at a seq.
func (h *Hub) chainAt(ctx context.Context, at artifact.Seq) (artifact.Hash, error) {
	if chain, ok := h.pump.ring.chainAt(at); ok {
		return chain, nil
	}
	return chainAt(ctx, h.db, at)
}

// Beat implements [replicate.Reader]. Within a commit it is a part, since a
// follower takes any other page for the commit's end.
func (f *feedReader) Beat() *replicate.Page {
	f.head = max(f.head, f.hub.pump.head())
	return &replicate.Page{From: f.at.seq, To: f.at.seq, Chain: f.at.chain, Head: f.head, Partial: f.amid}
}
