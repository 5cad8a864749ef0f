package hub

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A span is what the ring holds after one seq, and the pages that are made of it.
// A page depends on no more than which of the span's scopes a follower may see,
// so that all who may see the same of them are sent the same bytes, whatever
// else they follow.
type span struct {
	from    artifact.Seq
	entries []entry
	to      artifact.Seq // the last entry
	head    artifact.Seq // of the log
	scopes  []string     // of the public rows, each once

	mu    sync.Mutex           // guards what follows
	pages map[string]*pageOnce // by the scopes that their followers see, as numbers in scopes
	bytes int                  // of the pages
	total *atomic.Int64        // bytes of all spans' pages; nil when the ring has dropped this one
}

// A pageOnce is a page that the first who needs it makes, while others wait.
type pageOnce struct {
	once sync.Once
	page *replicate.Page
}

// spanOverhead is what a span takes beside its pages, in bytes.
const spanOverhead = 512

func newSpan(from artifact.Seq, entries []entry, head artifact.Seq, total *atomic.Int64) *span {
	s := &span{from: from, entries: entries, to: entries[len(entries)-1].seq, head: head, total: total, bytes: spanOverhead}
	for i := range entries {
		if e := &entries[i]; e.public && !slices.Contains(s.scopes, e.thing.scope) {
			s.scopes = append(s.scopes, e.thing.scope)
		}
	}
	total.Add(spanOverhead)
	return s
}

// page returns the first page of the span for a follower of scopes.
func (s *span) page(scopes []string) *replicate.Page {
	key := make([]byte, 0, 64)
	for i, scope := range s.scopes {
		if slices.Contains(scopes, scope) {
			key = binary.AppendUvarint(key, uint64(i))
		}
	}
	s.mu.Lock()
	made := s.pages[string(key)]
	if made == nil {
		if s.pages == nil {
			s.pages = make(map[string]*pageOnce, 1)
		}
		made = new(pageOnce)
		s.pages[string(key)] = made
	}
	s.mu.Unlock()
	made.once.Do(func() { made.page = s.cut(scopes) })
	return made.page
}

// cut makes a page.
func (s *span) cut(scopes []string) *replicate.Page {
	var mine []*entry
	for i := range s.entries {
		if e := &s.entries[i]; e.public && slices.Contains(scopes, e.thing.scope) {
			mine = append(mine, e)
		}
	}
	last := &s.entries[len(s.entries)-1]
	p := cutPage(s.from, mine, last.seq, last.seq == last.commit)
	p.Head = max(s.head, p.To)
	if !p.Partial {
		i, _ := slices.BinarySearchFunc(s.entries, p.To, func(e entry, seq artifact.Seq) int { return int(e.seq - seq) })
		p.Chain = s.entries[i].chain
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total != nil {
		size := spanOverhead
		for _, row := range p.Rows {
			size += 2 * len(row) // about what the line and its packed form take
		}
		s.bytes += size
		s.total.Add(int64(size))
	}
	return p
}

// drop forgets that the ring has the span. Those who read it go on.
func (s *span) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total != nil {
		s.total.Add(-int64(s.bytes))
		s.total = nil
	}
}

// cutPage takes what one page holds from the rows of a follower's scopes after a
// seq: whole commits, or a part of one that is too large. The rows are all there
// are up to a seq; ends says that a commit ends there.
func cutPage(from artifact.Seq, mine []*entry, upTo artifact.Seq, ends bool) *replicate.Page {
	p := &replicate.Page{From: from, To: upTo}
	size, n := 0, 0
	for ; n < len(mine); n++ {
		if n > 0 && (n == replicate.MaxPageRows || size+len(mine[n].wire) > replicate.MaxPageBytes) {
			break
		}
		size += len(mine[n].wire)
	}
	if n < len(mine) || !ends {
		whole := n
		for ; whole > 0; whole-- {
			e := mine[whole-1]
			if e.seq == e.commit || whole < len(mine) && mine[whole].commit != e.commit {
				break
			}
		}
		switch {
		case whole > 0:
			n, p.To = whole, mine[whole-1].commit
		case n < len(mine):
			p.To, p.Partial = mine[n-1].seq, true
		default:
			p.Partial = true
		}
	}
	p.Rows = make([][]byte, n)
	for i, e := range mine[:n] {
		p.Rows[i] = e.wire
	}
	return p
}
