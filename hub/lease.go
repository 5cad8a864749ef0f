package hub

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
	"github.com/scidex-ai/substrate/verb"
)

// leaseNote is how often a stream notes how far its node has come. What was sent
// counts from the note after: by then the node has applied it, or it will not
// have noticed and asks from where it is.
const leaseNote = time.Minute

// A leasedReader is a node's place in the log, which is noted so that the log is
// kept from there on. Agents hold no lease: nobody enrolled them to keep up.
type leasedReader struct {
	replicate.Reader

	note func(artifact.Seq)
	due  time.Time
	sent artifact.Seq // at the last note
}

// leased returns r with a lease, if the caller in ctx is a node.
func (h *Hub) leased(ctx context.Context, r replicate.Reader, from artifact.Seq) replicate.Reader {
	c, err := verb.CallerFrom(ctx)
	if err != nil || c.NodeID == "" {
		return r
	}
	var busy atomic.Bool
	l := &leasedReader{Reader: r, due: time.Now().Add(leaseNote), sent: from, note: func(seq artifact.Seq) {
		if busy.CompareAndSwap(false, true) {
			go func() { // the stream does not wait for it
				defer busy.Store(false)
				h.noteFollower(ctx, c.NodeID, seq)
			}()
		}
	}}
	l.note(from)
	return l
}

// Next implements [replicate.Reader].
func (l *leasedReader) Next(ctx context.Context, quiet <-chan time.Time) (*replicate.Page, error) {
	p, err := l.Reader.Next(ctx, quiet)
	if p != nil {
		l.move(p.To)
	}
	return p, err
}

// Beat implements [replicate.Reader].
func (l *leasedReader) Beat() *replicate.Page {
	p := l.Reader.Beat()
	l.move(p.To)
	return p
}

func (l *leasedReader) move(to artifact.Seq) {
	if time.Now().Before(l.due) {
		return
	}
	l.due = time.Now().Add(leaseNote)
	l.note(l.sent)
	l.sent = to
}

// noteFollower stores how far a node has come; back too: it may copy anew, or go
// on from an older file.
func (h *Hub) noteFollower(ctx context.Context, node string, seq artifact.Seq) {
	const note = `
		INSERT INTO feed.follower AS f (node, seq, moved_at, seen_at) VALUES ($1, $2, now(), now())
		ON CONFLICT (node) DO UPDATE SET
			seq = excluded.seq,
			moved_at = CASE WHEN excluded.seq <> f.seq OR excluded.seq >= $3 THEN excluded.moved_at ELSE f.moved_at END,
			seen_at = excluded.seen_at`
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if _, err := h.db.Exec(ctx, note, node, int64(seq), int64(h.pump.head())); err != nil {
		h.log.WarnContext(ctx, "how far a node has come could not be noted", "node", node, "err", err)
	}
}
