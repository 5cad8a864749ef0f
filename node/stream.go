package node

import (
	"context"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
)

var (
	_ event.Source = (*Node)(nil)
	_ event.Joiner = (*eventReader)(nil)
)

// Read implements [event.Source].
func (n *Node) Read(ctx context.Context, after *artifact.Seq, f *event.Filter, size int) (event.Reader, error) {
	sub, err := n.subscribe(ctx, after, f, size)
	return &eventReader{Subscription: sub, groups: &n.groups}, err
}

// An eventReader is a subscription that is told when to look, and does not wait.
type eventReader struct {
	*Subscription

	groups *groups
	group  *group       // that looks for it, once it has joined one
	from   artifact.Seq // where the group began to
}

// closed is the channel of what has happened already.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Changed implements [event.Reader].
func (r *eventReader) Changed() <-chan struct{} {
	if c, ok := r.woken(); ok {
		return c
	}
	s := r.current()
	if m := s.now.Load(); s == r.store && m.position.Seq <= r.cursor && !m.retired {
		return m.next
	}
	return closed
}

// Next implements [event.Reader].
func (r *eventReader) Next(ctx context.Context) (event.Page, error) {
	s, err := r.take(ctx)
	if err != nil {
		return event.Page{}, err
	}
	defer s.uses.done()
	r.skip()
	m := s.now.Load()
	if m.position.Seq <= r.cursor {
		return event.Page{Cursor: r.cursor, CaughtUp: true, AsOf: m.position.Seq}, nil
	}
	p, err := r.page(ctx, s, m)
	return event.Page{Events: p.Events, Cursor: p.Cursor, CaughtUp: p.CaughtUp, AsOf: m.position.Seq}, err
}

// Cursor implements [event.Reader].
func (r *eventReader) Cursor() artifact.Seq {
	r.skip()
	return r.cursor
}

// take returns the store that is the current one, in use. It waits for none but
// one that is being put in another's place.
func (r *eventReader) take(ctx context.Context) (*Store, error) {
	for {
		s := r.current()
		switch {
		case s.uses.begin():
		case s == r.current():
			return nil, errRetired // closed, with none in its place
		default:
			continue
		}
		if s != r.store && s.restored {
			if err := s.checkCursor(ctx, r.cursor); err != nil {
				s.uses.done()
				return nil, err
			}
		}
		r.store = s
		return s, nil
	}
}
