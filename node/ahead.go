package node

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/scidex-ai/substrate/analysis"
	"github.com/scidex-ai/substrate/replicate"
)

// lookAhead is how many rows make it worth to find their words beside applying them.
const lookAhead = 8

// A versionKey identifies a version.
type versionKey struct {
	typ, id  string
	revision int
}

// A madeAhead is the words of a version, which whoever claims it makes.
type madeAhead struct {
	rule    *analysis.Rule
	id      string
	title   string
	content []byte
	claimed atomic.Bool
	done    chan struct{}
	columns []string // once done; nil when they could not be made
}

func (m *madeAhead) make() {
	defer close(m.done)
	// What panics here is made again where only its own commit fails.
	defer func() { _ = recover() }()
	m.columns = m.rule.Document(m.id, m.title, m.content).Row()
}

// makeAhead makes the words of a page's versions on the other processors while its
// rows are applied: for a node that catches up they are most of the work. The
// returned function ends that.
func (x *indexWriter) makeAhead(rows []replicate.Row) (end func()) {
	if len(rows) < lookAhead || x.later {
		return func() {}
	}
	var all []lacking
	for i := range rows {
		r := &rows[i]
		if r.Kind != replicate.KindRevision || r.Op != replicate.Put || len(r.Content) == 0 {
			continue
		}
		v, err := decodeRevision(r.Data)
		if err != nil || v.Redaction != nil {
			continue // it is told where it is applied
		}
		all = append(all, lacking{version: version{typ: v.Type, id: v.ID, revision: v.Revision.Revision, content: r.Content}, title: v.Title})
	}
	return x.makeAllAhead(all)
}

// makeAllAhead makes the words of versions on the other processors, while they are
// written one after the other.
func (x *indexWriter) makeAllAhead(versions []lacking) (end func()) {
	x.ahead = make(map[versionKey]*madeAhead, len(versions))
	var order []*madeAhead
	for i := range versions {
		v := &versions[i]
		rule := x.rule(v.typ)
		if rule == nil || v.redacted || v.content == nil {
			continue
		}
		m := &madeAhead{rule: rule, id: v.id, title: v.title, content: v.content, done: make(chan struct{})}
		x.ahead[versionKey{v.typ, v.id, v.revision}] = m
		order = append(order, m)
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range max(1, runtime.GOMAXPROCS(0)-1) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(order)); i = next.Add(1) - 1 {
				if m := order[i]; !m.claimed.Swap(true) {
					m.make()
				}
			}
		})
	}
	return func() {
		next.Store(int64(len(order)))
		all.Wait()
		x.ahead = nil
	}
}

// columns returns the words of a version, as they were made or as they are made now.
func (x *indexWriter) columns(rule *analysis.Rule, v *version, title string) []string {
	m := x.ahead[versionKey{v.typ, v.id, v.revision}]
	if m == nil || m.rule != rule || m.title != title {
		return rule.Document(v.id, title, v.content).Row()
	}
	if !m.claimed.Swap(true) {
		m.make() // for whoever asks again too: a version may have several heads in a page
	}
	<-m.done
	if m.columns == nil {
		return rule.Document(v.id, title, v.content).Row()
	}
	return m.columns
}
