package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

var _ replicate.Log = (*Hub)(nil)

// Open implements [replicate.Log].
func (h *Hub) Open(ctx context.Context, from replicate.Position, scopes []string) (replicate.Reader, replicate.Hello, error) {
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
	r := &feedReader{hub: h, scopes: scopes, at: chainCursor{from.Seq, from.Chain}, head: last}
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
		return refuse(artifact.CodeVersionConflict, artifact.ReasonCursorDiverged, "the hub was restored since: run scidex node rebuild")
	case p.Seq > last:
		return refuse(artifact.CodeVersionConflict, artifact.ReasonCursorAhead, "the cursor is ahead of the log: this is not the hub that it came from, or it lost commits")
	case p.Seq < floor:
		return refuse(artifact.CodeNotFound, artifact.ReasonCursorExpired, "the log was trimmed past the cursor: run scidex node rebuild")
	case p.Seq == 0:
		return nil
	}
	chain, ok := h.pump.ring.chainAt(p.Seq)
	if !ok {
		var err error
		if chain, err = chainAt(ctx, h.db, p.Seq); errors.Is(err, errNoSuchSeq) {
			return refuse(artifact.CodeNotFound, artifact.ReasonCursorExpired, "the cursor names changes that a restore of the hub lost: run scidex node rebuild")
		} else if err != nil {
			return fmt.Errorf("check the cursor's chain: %w", err)
		}
	}
	if !p.Chain.IsZero() && p.Chain != chain {
		return refuse(artifact.CodeVersionConflict, artifact.ReasonCursorDiverged, "the log took another course before the cursor: run scidex node rebuild")
	}
	p.Chain = chain
	return nil
}

// A feedReader is one follower's place in the log. It reads the ring, and SQL
// while it lags behind that.
type feedReader struct {
	hub    *Hub
	scopes []string
	at     chainCursor
	head   artifact.Seq
	prev   previous // where it last read SQL
	amid   bool     // at stands within a commit
}

// Next implements [replicate.Reader].
func (f *feedReader) Next(ctx context.Context) (replicate.Page, error) {
	for {
		entries, head, changed, ok := f.hub.pump.ring.after(f.at.seq)
		if !ok && f.at.seq <= head || len(entries) == 0 && ok && f.at.seq < head {
			var err error
			if entries, err = f.lag(ctx); err != nil {
				return replicate.Page{}, err
			}
		}
		f.head = max(f.head, f.hub.pump.head())
		if len(entries) > 0 {
			return f.page(entries), nil
		}
		select {
		case <-ctx.Done():
			return replicate.Page{}, ctx.Err()
		case <-changed:
		}
	}
}

// readTimeout bounds one read of the log by a laggard.
const readTimeout = time.Minute

// lag reads entries that the ring does not hold.
func (f *feedReader) lag(ctx context.Context) ([]entry, error) {
	// Next's caller gives up waiting to send a beat; a read that takes longer
	// than that must still come to its end, or the laggard would never move.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	rows, err := readLog(ctx, f.hub.db, f.at.seq, replicate.MaxPageRows)
	if err != nil {
		return nil, err
	}
	if f.prev.at != f.at.seq {
		f.prev = previous{at: f.at.seq}
	}
	if err := f.prev.meet(ctx, f.hub.db, rows); err != nil {
		return nil, err
	}
	f.prev.number(rows)
	entries := make([]entry, len(rows))
	at := f.at
	for i := range rows {
		if err := at.step(&rows[i]); err != nil {
			return nil, err
		}
		entries[i] = newEntry(&rows[i], at.chain)
	}
	return entries, nil
}

// page takes from entries what one page holds: whole commits, or a part of one
// that is too large.
func (f *feedReader) page(entries []entry) replicate.Page {
	p := replicate.Page{From: f.at.seq}
	size := 0
	whole, wholeRows := 0, 0 // entries and rows up to the last whole commit
	n := 0
	for ; n < len(entries); n++ {
		e := &entries[n]
		if e.public && slices.Contains(f.scopes, e.thing.scope) {
			if len(p.Rows) > 0 && (len(p.Rows) == replicate.MaxPageRows || size+len(e.wire) > replicate.MaxPageBytes) {
				break
			}
			p.Rows = append(p.Rows, e.wire)
			size += len(e.wire)
		}
		if e.seq == e.commit {
			whole, wholeRows = n+1, len(p.Rows)
		}
	}
	if whole > 0 {
		n, p.Rows = whole, p.Rows[:wholeRows]
	} else {
		p.Partial = true
	}
	last := entries[n-1]
	f.at, f.amid = chainCursor{last.seq, last.chain}, p.Partial
	f.head = max(f.head, last.seq) // SQL may be ahead of the pump
	p.To, p.Chain, p.Head = last.seq, last.chain, f.head
	return p
}

// Beat implements [replicate.Reader]. Within a commit it is a part, since a
// follower takes any other page for the commit's end.
func (f *feedReader) Beat() replicate.Page {
	return replicate.Page{From: f.at.seq, To: f.at.seq, Chain: f.at.chain, Head: f.head, Partial: f.amid}
}
