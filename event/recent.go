package event

import (
	"cmp"
	"slices"

	"github.com/scidex-ai/substrate/artifact"
)

// recentEvents is how many of the latest events stay in memory, at least.
const recentEvents = 4096

// A Recent holds the latest events, in order: all those after Floor. Adding leaves
// copies made before as they are, so that readers need no lock; one goroutine adds.
type Recent struct {
	Floor  artifact.Seq
	events []artifact.Event
}

// Add adds the event that comes next.
func (r *Recent) Add(e artifact.Event) {
	r.events = append(r.events, e)
	if len(r.events) >= 2*recentEvents {
		cut := len(r.events) - recentEvents
		r.Floor, r.events = r.events[cut-1].ID, append(make([]artifact.Event, 0, 2*recentEvents), r.events[cut:]...)
	}
}

// Forget drops the events of a scope up to a seq, which are no longer kept. What was
// before it is not known any more.
func (r *Recent) Forget(scope string, upTo artifact.Seq) {
	r.Floor = max(r.Floor, upTo)
	r.events = slices.DeleteFunc(slices.Clone(r.events), func(e artifact.Event) bool {
		return e.ID <= upTo && e.Scope == scope
	})
}

// After returns the events after a cursor that is not before the floor.
func (r *Recent) After(cursor artifact.Seq) []artifact.Event {
	i, found := slices.BinarySearchFunc(r.events, cursor, func(e artifact.Event, c artifact.Seq) int { return cmp.Compare(e.ID, c) })
	if found {
		i++
	}
	return r.events[i:]
}
