package node

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/event"
)

// maxGroups is how many groups there are at most: a goroutine for each of thousands of
// streams would cost more than it spares.
const maxGroups = 1024

// groups are the filters of streams, each with one goroutine that looks at what
// happens for all streams that have it: those for which nothing passes are not woken.
type groups struct {
	mu sync.Mutex
	by map[string]*group // by the filter's text; guarded by mu
}

// A group is the streams with one filter. It asks nothing of scopes: who is woken for
// what it may not see finds nothing.
type group struct {
	filter  *event.Filter
	members int // guarded by groups.mu
	stop    chan struct{}
	ended   chan struct{}
	now     atomic.Pointer[looked]
}

// looked is how far a group has looked. It does not change.
type looked struct {
	upTo    artifact.Seq  // all up to here was looked at
	last    artifact.Seq  // the last that passed, or may have; nothing after it does
	clear   artifact.Seq  // nothing passes after this one
	first   artifact.Seq  // and before this one
	changed chan struct{} // closed once something more passes
	over    bool          // another store has taken its place: each stream looks for itself
}

// join has a stream be woken by the group of its filter, until it leaves; by none, if
// there are too many.
func (g *groups) join(s *Store, f *event.Filter) (in *group, leave func()) {
	text := f.Text()
	g.mu.Lock()
	defer g.mu.Unlock()
	in = g.by[text]
	if in == nil && len(g.by) >= maxGroups {
		return nil, func() {}
	}
	if in == nil || in.now.Load().over {
		in = &group{filter: f, stop: make(chan struct{}), ended: make(chan struct{})}
		m := s.now.Load()
		at := m.position.Seq
		in.now.Store(&looked{upTo: at, last: at, clear: at, first: at, changed: make(chan struct{})})
		if g.by == nil {
			g.by = make(map[string]*group)
		}
		g.by[text] = in
		go in.look(s, m)
	}
	in.members++
	return in, sync.OnceFunc(func() { g.leave(text, in) })
}

func (g *groups) leave(text string, in *group) {
	g.mu.Lock()
	in.members--
	last := in.members == 0
	if last && g.by[text] == in {
		delete(g.by, text)
	}
	g.mu.Unlock()
	if last {
		close(in.stop)
		<-in.ended
	}
}

// look looks at what happens after a moment, until the group has no members or the
// store is another's predecessor.
func (g *group) look(s *Store, m *moment) {
	defer close(g.ended)
	for {
		select {
		case <-g.stop:
			return
		case <-m.next:
		}
		before := m
		m = s.now.Load()
		was := g.now.Load()
		is := *was
		is.upTo, is.over = m.position.Seq, m.retired
		switch {
		case m.retired, !slices.Equal(m.lost, before.lost), was.upTo < m.recent.Floor:
			is.clear, is.first, is.last = was.upTo, was.upTo+1, is.upTo // each looks for itself
		default:
			g.pass(m.recent.After(was.upTo), was, &is)
		}
		woken := is.last != was.last || is.over
		if woken {
			is.changed = make(chan struct{})
		}
		g.now.Store(&is)
		if woken {
			close(was.changed)
		}
		if is.over {
			return
		}
	}
}

// pass notes which of some events pass.
func (g *group) pass(events []artifact.Event, was, is *looked) {
	for i := range events {
		if !g.filter.Match(&events[i]) {
			continue
		}
		if is.last == was.last {
			is.clear, is.first = was.last, events[i].ID
		}
		is.last = events[i].ID
	}
}

// Join has the reader be woken with others that have its filter, until it leaves. It
// implements [event.Joiner].
func (r *eventReader) Join() (leave func()) {
	s := r.current()
	if r.groups == nil || s != r.store || r.filter.All() {
		return func() {}
	}
	if r.group, leave = r.groups.join(s, r.filter); r.group != nil {
		r.from = r.group.now.Load().upTo
	}
	return leave
}

// woken returns the channel of the group, and false when the reader is to look for
// itself.
func (r *eventReader) woken() (<-chan struct{}, bool) {
	if r.group == nil {
		return nil, false
	}
	l := r.group.now.Load()
	if l.over || r.cursor < r.from {
		return nil, false
	}
	if r.cursor < l.last {
		return closed, true
	}
	return l.changed, true
}

// skip moves the cursor past what the group has seen not to pass.
func (r *eventReader) skip() {
	if r.group == nil || r.cursor < r.from {
		return
	}
	l := r.group.now.Load()
	switch {
	case l.over:
	case r.cursor >= l.last:
		r.cursor = max(r.cursor, l.upTo)
	case r.cursor >= l.clear && r.cursor < l.first:
		r.cursor = l.first - 1
	}
}
