package event

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/scidex-ai/substrate/artifact"
)

// An interned rule is one for all readers who gave an equal one: it is evaluated
// once for each event, however many they are.
type interned struct {
	*Rule
	verdicts latest[bool]
}

var rules struct {
	sync.Mutex
	byText map[string]weak.Pointer[interned]
}

// intern returns the one rule that is equal to r. It lives as long as a filter has
// it.
func intern(r *Rule) *interned {
	rules.Lock()
	defer rules.Unlock()
	if known := rules.byText[r.text].Value(); known != nil {
		return known
	}
	if rules.byText == nil {
		rules.byText = make(map[string]weak.Pointer[interned])
	}
	made := &interned{Rule: r}
	rules.byText[r.text] = weak.Make(made)
	runtime.AddCleanup(made, forget, r.text)
	return made
}

// forget drops a rule that nobody has any more, unless it was made anew.
func forget(text string) {
	rules.Lock()
	defer rules.Unlock()
	if rules.byText[text].Value() == nil {
		delete(rules.byText, text)
	}
}

// match is [Rule.Match], remembered.
func (r *interned) match(e *artifact.Event) bool {
	return r.verdicts.of(e, func() bool { return r.Match(trees.of(e, func() any { return tree(e) })) })
}

// trees keeps the latest events as rules see them, for the next rule.
var trees latest[any]

// latest remembers what was made of the latest events. It is safe for concurrent
// use; what several make at once is made several times.
type latest[T any] struct{ slots [64]atomic.Pointer[made[T]] }

// A made is of one event, which its time and ref tell apart from that of another
// log in the process.
type made[T any] struct {
	id    artifact.Seq
	at    int64
	ref   string
	value T
}

func (l *latest[T]) of(e *artifact.Event, make func() T) T {
	slot := &l.slots[uint64(e.ID)%uint64(len(l.slots))] //nolint:gosec // seqs are positive
	at := e.At.UnixNano()
	if known := slot.Load(); known != nil && known.id == e.ID && known.at == at && known.ref == e.Ref {
		return known.value
	}
	value := make()
	slot.Store(&made[T]{e.ID, at, e.Ref, value})
	return value
}
