package hub

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/scidex-ai/substrate/artifact"
	"github.com/scidex-ai/substrate/replicate"
)

// A spanFollower is one who reads a ring, and what it should get.
type spanFollower struct {
	scopes []string
	at     artifact.Seq
	amid   bool
	rows   [][]byte
	want   [][]byte
}

// read takes all that the ring has for f.
func (f *spanFollower) read(t *testing.T, r *ring, log map[artifact.Seq]*entry) {
	t.Helper()
	for {
		s, _, ok := r.span(f.at)
		if !ok {
			t.Fatalf("the ring from %d to %d does not reach %d", r.base.seq, r.head, f.at)
		}
		if s == nil {
			break
		}
		p := s.page(f.scopes)
		if p.From != f.at || p.To <= f.at || len(p.Rows) > replicate.MaxPageRows || p.Head < p.To {
			t.Fatalf("page from %d to %d with %d rows after %d", p.From, p.To, len(p.Rows), f.at)
		}
		if end := log[p.To]; !p.Partial && (end.commit != p.To || p.Chain != end.chain) {
			t.Fatalf("a page ends at %d within a commit to %d, or with another chain", p.To, end.commit)
		}
		f.rows = append(f.rows, p.Rows...)
		f.at, f.amid = p.To, p.Partial
	}
	if f.amid {
		t.Fatalf("at the head, %d, a commit has not ended", f.at)
	}
	if !slices.EqualFunc(f.rows, f.want, bytes.Equal) {
		t.Fatalf("a follower of %v has %d rows at %d, want %d", f.scopes, len(f.rows), f.at, len(f.want))
	}
}

// TestSpans lets followers of random scopes read a ring, in and out of step.
func TestSpans(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	all := []string{"commons", "lab-a", "lab-b", "lab-c"}
	r := &ring{limit: 1 << 30, changed: make(chan struct{})}
	r.begin(chainCursor{}, 0)
	log := make(map[artifact.Seq]*entry)
	followers := make([]*spanFollower, 40)
	for i := range followers {
		followers[i] = new(spanFollower)
		for _, s := range all {
			if random.IntN(2) == 0 {
				followers[i].scopes = append(followers[i].scopes, s)
			}
		}
	}
	var seq artifact.Seq
	for step := range 300 {
		n := 1 + random.IntN(4)
		if step%40 == 7 {
			n = 1500 + random.IntN(2000)
		}
		if step == 150 {
			seq += replicate.EpochJump
		}
		commit := make([]entry, n)
		for i := range commit {
			seq++
			commit[i] = entry{
				seq: seq, public: random.IntN(5) > 0, thing: thing{scope: all[random.IntN(len(all))]}, wire: fmt.Appendf(nil, "row %d", seq),
				chain: artifact.HashBytes(fmt.Append(nil, seq)),
			}
		}
		for i := range commit {
			e := &commit[i]
			e.commit, log[e.seq] = seq, e
			for _, f := range followers {
				if e.public && slices.Contains(f.scopes, e.thing.scope) {
					f.want = append(f.want, e.wire)
				}
			}
		}
		cut := random.IntN(n)
		r.add(commit[:cut])
		r.add(commit[cut:])
		if step%50 == 49 {
			r.mu.Lock()
			r.dropSpans() // as what is withheld does
			r.mu.Unlock()
		}
		for _, f := range followers {
			if random.IntN(4) == 0 {
				f.read(t, r, log)
			}
		}
	}
	for _, f := range followers {
		f.read(t, r, log)
	}
	var bytes int64
	for _, s := range r.order {
		bytes += int64(s.bytes)
	}
	if bytes != r.pages.Load() {
		t.Errorf("%d bytes of pages in %d spans, counted %d", bytes, len(r.order), r.pages.Load())
	}
}

// TestPagesAreShared checks that a page is made once for all who see the same, and
// that what is kept of them is bounded.
func TestPagesAreShared(t *testing.T) {
	r := &ring{limit: 8 * maxPages, changed: make(chan struct{})}
	r.begin(chainCursor{}, 0)
	add := func(seq artifact.Seq, scope string, size int) {
		r.add([]entry{{seq: seq, commit: seq, public: true, thing: thing{scope: scope}, wire: bytes.Repeat([]byte("x"), size)}})
	}
	page := func(at artifact.Seq, scopes ...string) *replicate.Page {
		s, _, ok := r.span(at)
		if s == nil || !ok {
			t.Fatalf("nothing after %d", at)
		}
		return s.page(scopes)
	}
	add(1, "commons", 10)
	first := page(0, "commons", "lab-a")
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if p := page(0, "commons", "lab-b"); p != first || &p.Packed()[0] != &first.Packed()[0] {
				t.Error("a page is made again for followers who see the same of it")
			}
		})
	}
	group.Wait()
	if p := page(0, "lab-a"); len(p.Rows) != 0 || p.To != 1 {
		t.Errorf("page without commons = %+v", p)
	}
	add(2, "lab-a", 10)
	if a, b := page(1, "commons", "lab-a"), page(1, "commons", "lab-b"); len(a.Rows) != 1 || len(b.Rows) != 0 || b != page(1, "commons", "lab-c") {
		t.Errorf("pages = %+v for lab-a and %+v for others", a, b)
	}
	for seq := artifact.Seq(3); seq < 200; seq++ {
		add(seq, "commons", 1<<18)
		page(seq-1, "commons").Packed()
		if kept := r.pages.Load(); kept > maxPages+1<<20 {
			t.Fatalf("%d bytes of pages are kept", kept)
		}
	}
	if len(r.spans) != len(r.order) || len(r.spans) == 0 {
		t.Errorf("%d spans in an order of %d", len(r.spans), len(r.order))
	}
	// Much that came since makes one larger page of many small ones.
	add(200, "commons", 10)
	page(199, "commons")
	for seq := artifact.Seq(201); seq < 210; seq++ {
		add(seq, "commons", 10)
	}
	if p := page(199, "commons"); len(p.Rows) != 10 {
		t.Errorf("one who lags is sent %d rows, want all 10", len(p.Rows))
	}
	// What was said and is no longer to be told is in no page.
	r.add([]entry{{seq: 210, commit: 210, public: true, ends: true, thing: thing{scope: "commons"}, wire: []byte("{}")}})
	if p := page(199, "commons"); len(p.Rows) != 11 {
		t.Errorf("a page has %d rows, want 11", len(p.Rows))
	}
}
